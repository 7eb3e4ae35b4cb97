//! The processes that the shim starts. Their list lets PID 1 reap orphans without stealing an exit status that the shim waits for.
//!
//! Every process in `shim/` is started through [`spawn`] or [`spawn_command`]. Must not: wait for a process.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, WaitOptions};

use super::process;
use super::users;

/// How much of a drained stream is kept.
const MAX_DRAINED_BYTES: u64 = 64 * 1024;

static OWN_PIDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn lock_own_pids() -> MutexGuard<'static, BTreeSet<u32>> {
    OWN_PIDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that the shim waits for. Drop it after taking the exit status.
#[derive(Debug)]
pub struct OwnedProcess(u32);

impl OwnedProcess {
    /// The process id, which is also the group's if the process leads one.
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.0).ok().and_then(Pid::from_raw)
    }

    /// Signals the process group, if it still exists.
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

/// Starts a process and lists it before the reaper can look: both take the same lock.
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

/// [`spawn`] for a blocking command. In a sandbox, it runs as the agent's user.
pub fn spawn_command(command: &mut Command) -> io::Result<(Child, OwnedProcess)> {
    users::run_as_agent(command);
    spawn(|| command.spawn(), |child| Some(child.id()))
}

/// Reads a stream to its end on a thread of its own, so that its writer never blocks. Returns the first 64 KB as text.
pub fn drain(stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut stream = stream.take(MAX_DRAINED_BYTES);
        let _ = stream.read_to_end(&mut bytes);
        let _ = io::copy(&mut stream.into_inner(), &mut io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether this process is PID 1 of its namespace, which inherits orphans.
pub fn is_init() -> bool {
    rustix::process::getpid().is_init()
}

/// Kills what an agent or a check left running: as PID 1 everything else in the sandbox, otherwise the group.
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
    // The lock is held throughout, so that no own child can appear unlisted in between.
    let list = lock_own_pids();
    let is_orphan = |pid: i32| !u32::try_from(pid).is_ok_and(|pid| list.contains(&pid));
    for process in process::list_all() {
        if process.state == 'Z'
            && process.parent == 1
            && is_orphan(process.pid)
            && let Some(pid) = Pid::from_raw(process.pid)
        {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
