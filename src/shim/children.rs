//! The processes that the shim starts: a list of them, so that PID 1 can reap everybody else's orphans without stealing an
//! exit status that somebody here waits for; and the means to end all that an agent left behind.
//!
//! Every process in `shim/` is started through [`spawn`] or [`OwnedProcess`]. Must not: wait for anything.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions};

static OWN_PIDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn lock_own_pids() -> MutexGuard<'static, BTreeSet<u32>> {
    OWN_PIDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that somebody in the shim waits for. Dropped once its exit status was taken.
#[derive(Debug)]
pub struct OwnedProcess(u32);

impl OwnedProcess {
    /// The process, which is also its group where it was started as the leader of one.
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.0).ok().and_then(Pid::from_raw)
    }

    /// Signals the process's group. That nobody is left in it is fine.
    pub fn signal_group(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        lock_own_pids().remove(&self.0);
    }
}

/// Starts a process and notes it before the reaper can look: both take the same lock.
pub fn spawn<C>(
    start: impl FnOnce() -> io::Result<C>,
    id: impl FnOnce(&C) -> Option<u32>,
) -> io::Result<(C, OwnedProcess)> {
    let mut list = lock_own_pids();
    let child = start()?;
    let pid = id(&child).unwrap_or(0);
    list.insert(pid);
    Ok((child, OwnedProcess(pid)))
}

/// Whether this process is the first of its PID namespace, to which orphans come.
pub fn is_init() -> bool {
    rustix::process::getpid().is_init()
}

/// Kills what an agent or a check left running: as PID 1 everything else in the sandbox, otherwise the group alone.
pub fn kill_leftovers(group: &OwnedProcess) {
    if is_init() {
        // `kill(-1)`: every process but this one.
        let _ = rustix::process::kill_process_group(Pid::INIT, Signal::KILL);
    } else {
        group.signal_group(Signal::KILL);
    }
}

/// Reaps the orphans that are zombies now. Does nothing unless this is PID 1.
pub fn reap_orphans() {
    if !is_init() {
        return;
    }
    // The list is locked throughout, so that no child of ours can appear unnoted in between.
    let list = lock_own_pids();
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if list.contains(&pid) || !is_zombie_of_init(pid) {
            continue;
        }
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// `/proc/<pid>/stat` is `pid (subcommand) shared_state ppid ...`, where the subcommand may hold spaces and brackets.
fn is_zombie_of_init(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut words = rest.split_ascii_whitespace();
    words.next() == Some("Z") && words.next() == Some("1")
}
