//! One process, as `/proc/<pid>/stat` describes it.
//!
//! Used by `children.rs` to find orphans, and by `descendants.rs` and `hang_snapshot.rs`.

use std::fs;
use std::time::Duration;

use super::tail;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    /// The kernel's name for the process: at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub state: char,
    /// The CPU time that the process used.
    own_cpu: Duration,
    /// The CPU time of the children that it has reaped.
    pub reaped_cpu: Duration,
    /// When it started, since the machine did.
    started: Duration,
}

impl Process {
    /// The process with this id, or `self`.
    pub fn read(pid: &str) -> Option<Self> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The CPU time that it and its reaped children used.
    pub fn cpu(&self) -> Duration {
        self.own_cpu + self.reaped_cpu
    }

    /// The kernel function that it waits in, if the kernel tells.
    pub fn wait_channel(&self) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/wchan", self.pid)).ok()?;
        let name = text.trim();
        let plain = !name.is_empty() && name != "0" && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        plain.then(|| name.to_owned())
    }

    /// How long it has run.
    pub fn age(&self) -> Duration {
        let uptime = fs::read_to_string("/proc/uptime").ok();
        let uptime = uptime.and_then(|text| text.split('.').next()?.parse::<u64>().ok()).map(Duration::from_secs);
        uptime.unwrap_or_default().saturating_sub(self.started)
    }
}

/// All processes in `/proc`. One that ends meanwhile is left out.
pub fn list_all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter_map(|pid| Process::read(&pid)).collect()
}

/// Parses `pid (name) state ppid pgrp ...`. The name may contain spaces and brackets.
fn parse_stat(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // A second has 100 clock ticks on every architecture that Docker runs on.
    let ticks = |index: usize| {
        let count: u64 = fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0);
        Duration::from_millis(count.saturating_mul(10))
    };
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        name: tail::sanitize_line(name.as_bytes()),
        state: fields.first()?.chars().next()?,
        // User and system time each.
        own_cpu: ticks(11) + ticks(12),
        reaped_cpu: ticks(13) + ticks(14),
        started: ticks(19),
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
        assert_eq!((process.cpu(), process.reaped_cpu), (Duration::from_millis(400), Duration::from_millis(300)));
        assert_eq!(process.started, Duration::from_secs(5));
        assert_eq!(parse_stat("12 (sh"), None);
    }
}
