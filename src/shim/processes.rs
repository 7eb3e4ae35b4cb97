//! The processes that run below the shim, from `/proc`: how much CPU they used, and what can be shown of them.
//!
//! Used by `watchdog.rs` (CPU) and `hang_snapshot.rs` (what is shown). As PID 1 of a sandbox all other processes are meant; anywhere
//! else (in tests) those of one process group and their descendants. Must not: show the value of an environment variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use super::children;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its group's.
    pub group: i32,
    /// The kernel's name of it: at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub state: char,
    /// Ticks of CPU that it used, with what it has reaped.
    ticks: u64,
    /// When it was started, in ticks since the machine began.
    start_ticks: u64,
}

impl Process {
    /// What of the kernel it waits in, where the kernel says so.
    pub fn wait_channel(&self) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/wchan", self.pid)).ok()?;
        let name = text.trim();
        let plain = !name.is_empty() && name != "0" && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        plain.then(|| name.to_owned())
    }

    /// How long it has run.
    pub fn age(&self) -> Duration {
        let up = fs::read_to_string("/proc/uptime").ok();
        let up = up.and_then(|text| text.split('.').next()?.parse::<u64>().ok()).map(Duration::from_secs);
        up.unwrap_or_default().saturating_sub(ticks_to_duration(self.start_ticks))
    }
}

/// All that `/proc` has now. What ends meanwhile is left out.
pub fn list_all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// Those below the shim, by their ids: see above. `group` is that of the command.
pub fn list_descendants(group: Option<i32>) -> BTreeMap<i32, Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let all: BTreeMap<i32, Process> =
        list_all().into_iter().filter(|process| process.pid != own).map(|process| (process.pid, process)).collect();
    if children::is_init() {
        return all;
    }
    let mut ours: BTreeSet<i32> =
        all.values().filter(|process| Some(process.group) == group).map(|process| process.pid).collect();
    loop {
        let more: Vec<i32> = all
            .values()
            .filter(|process| ours.contains(&process.parent) && !ours.contains(&process.pid))
            .map(|process| process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        ours.extend(more);
    }
    all.into_iter().filter(|(pid, _)| ours.contains(pid)).collect()
}

/// The CPU that the processes below the shim have used, ended ones included as far as somebody reaped them. As PID 1 that
/// is what the shim has reaped, too; what it used itself is not in it.
pub fn cpu_used(group: Option<i32>) -> Duration {
    let running: u64 = list_descendants(group).values().map(|process| process.ticks).sum();
    let reaped = if children::is_init() { reaped_ticks() } else { 0 };
    ticks_to_duration(running + reaped)
}

fn reaped_ticks() -> u64 {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return 0 };
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    parse_field(&fields, 13) + parse_field(&fields, 14)
}

/// A time in the ticks of `/proc`: a second has 100 of them on every architecture that Docker runs on.
fn ticks_to_duration(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

fn parse_field(fields: &[&str], place: usize) -> u64 {
    fields.get(place).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// `pid (subcommand) shared_state ppid pgrp ...`, where the subcommand may hold spaces and brackets.
fn parse_stat(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        name: super::tail::sanitize_line(name.as_bytes()),
        state: fields.first()?.chars().next()?,
        // User and system time, and those of what it has reaped.
        ticks: (11..=14).map(|place| parse_field(&fields, place)).sum(),
        start_ticks: parse_field(&fields, 19),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_stat_accepts_brackets_and_spaces_in_names() {
        let stat = "12 (a b) c) S 1 12 12 0 -1 4194304 90 80 0 0 7 3 20 10 20 0 1 0 500 1 2 3\n";
        let process = parse_stat(stat).expect("a process");
        assert_eq!((process.name.as_str(), process.pid, process.parent, process.state), ("a b) c", 12, 1, 'S'));
        assert_eq!((process.ticks, process.start_ticks), (40, 500));
        assert_eq!(parse_stat("12 (sh"), None);
    }

    #[test]
    fn list_all_contains_this_process() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let me = list_all().into_iter().find(|process| process.pid == own).expect("it runs");
        assert!(me.age() < Duration::from_secs(3600), "{:?}", me.age());
        assert!(!list_descendants(Some(me.group)).contains_key(&own), "not the shim itself");
    }
}
