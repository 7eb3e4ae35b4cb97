//! Whether somebody's `git gc` runs in the repository.
//!
//! Called by `landing/write.rs`. Must not: create or remove the lock, which is git's.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Git takes a lock of another host for abandoned after this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(12 * 60 * 60);

/// Whether the process that `gc.pid` names lives. A lock that cannot be read counts as held.
pub(super) fn is_gc_running(common_dir: &Path) -> bool {
    let path = common_dir.join("gc.pid");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    let (pid, host) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let this_host = rustix::system::uname().nodename().to_string_lossy() == host;
    match pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
        // An error other than "no such process" means that it is another user's.
        Some(pid) if this_host => rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH),
        _ => {
            let age = fs::metadata(&path).and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
            age.is_none_or(|age| age < ABANDONED_AFTER)
        }
    }
}

#[cfg(test)]
mod tests;
