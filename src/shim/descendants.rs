//! The processes below the shim, and how much CPU they used.
//!
//! Used by `watchdog.rs` and `hang_snapshot.rs`. In a sandbox the shim is PID 1, and all other processes are below it. Elsewhere (in
//! tests), those of one process group and their descendants are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::children;
use super::process::{self, Process};

/// The processes below the shim by their ids. `group` is the command's process group.
pub fn list_descendants(group: Option<i32>) -> BTreeMap<i32, Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let all: BTreeMap<i32, Process> = process::list_all()
        .into_iter()
        .filter(|process| process.pid != own)
        .map(|process| (process.pid, process))
        .collect();
    if children::is_init() {
        return all;
    }
    let mut below: BTreeSet<i32> =
        all.values().filter(|process| Some(process.group) == group).map(|process| process.pid).collect();
    loop {
        let more: Vec<i32> = all
            .values()
            .filter(|process| below.contains(&process.parent) && !below.contains(&process.pid))
            .map(|process| process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        below.extend(more);
    }
    all.into_iter().filter(|(pid, _)| below.contains(pid)).collect()
}

/// Whether any of the processes has not ended.
pub fn are_running(processes: &BTreeMap<i32, Process>) -> bool {
    processes.values().any(|process| !matches!(process.state, 'Z' | 'X'))
}

/// The CPU time of the processes below the shim, including those that ended and were reaped. The shim's own is not included.
pub fn cpu_used(group: Option<i32>) -> Duration {
    let running: Duration = list_descendants(group).values().map(Process::cpu).sum();
    let shim = children::is_init().then(|| Process::read("self")).flatten();
    running + shim.map(|shim| shim.reaped_cpu).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_is_listed_but_not_below_itself() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let me = process::list_all().into_iter().find(|process| process.pid == own).expect("it runs");
        assert!(me.age() < Duration::from_secs(3600), "{:?}", me.age());
        assert!(!list_descendants(Some(me.group)).contains_key(&own), "not the shim itself");
    }
}
