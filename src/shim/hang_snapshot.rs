//! Examines a command that hangs, before it is ended: the processes as a tree, and which of them holds which end of which pipe or
//! socket.
//!
//! Used by `command.rs` when the watchdog finds no progress. Readers of the result may not know the values of the sandbox's
//! environment variables, so a command line shows a variable's name instead. Must not: block, or open anything outside `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use super::descendants;
use super::process::Process;
use super::tail;
use crate::handoff::secrets::{Secrets, redact};
use crate::json::text::take_chars;
use crate::verdict::{MAX_HANG_SNAPSHOT_CHARS, MAX_HANG_SNAPSHOT_LINES};

/// The most bytes of a command line that are examined.
const MAX_COMMAND_BYTES: usize = 64 * 1024;
/// The most processes that the summary names.
const MAX_NAMED_PROCESSES: usize = 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HangSnapshot {
    /// A line per process, children indented below their parents.
    pub processes: Vec<String>,
    /// A line per pipe or socket.
    pub pipes: Vec<String>,
    /// Which processes wait for what: "`cat` (pid 31) waits in pipe_read".
    pub waiting: String,
}

/// Examines the processes below the shim. `group` is the command's process group.
pub fn capture(group: Option<i32>, secrets: &Secrets) -> HangSnapshot {
    let below = descendants::list_descendants(group);
    HangSnapshot {
        processes: process_tree(&below, secrets),
        pipes: list_pipes(&below),
        waiting: describe_waiting(&below),
    }
}

fn truncate(text: &str) -> String {
    take_chars(text, MAX_HANG_SNAPSHOT_CHARS).to_owned()
}

/// Drops lines over the limit. The last line then counts them.
fn limit_lines(mut lines: Vec<String>, what: &str) -> Vec<String> {
    if lines.len() > MAX_HANG_SNAPSHOT_LINES {
        let more = lines.len() - (MAX_HANG_SNAPSHOT_LINES - 1);
        lines.truncate(MAX_HANG_SNAPSHOT_LINES - 1);
        lines.push(format!("and {more} more {what}"));
    }
    lines
}

fn process_tree(below: &BTreeMap<i32, Process>, secrets: &Secrets) -> Vec<String> {
    let mut lines = Vec::new();
    let roots = below.values().filter(|process| !below.contains_key(&process.parent));
    // A stack: the last is shown next.
    let mut pending: Vec<(&Process, usize)> = roots.rev().map(|process| (process, 0)).collect();
    while let Some((process, depth)) = pending.pop() {
        lines.push(process_line(process, depth, secrets));
        let children = below.values().rev().filter(|child| child.parent == process.pid && child.pid != process.pid);
        pending.extend(children.map(|child| (child, depth + 1)));
    }
    limit_lines(lines, "processes")
}

fn process_line(process: &Process, depth: usize, secrets: &Secrets) -> String {
    let Process { pid, parent, state, .. } = process;
    let waits = process.wait_channel().map(|function| format!(" {function}")).unwrap_or_default();
    let command = command_line(process, secrets);
    // A chain of a thousand shells must leave room for the command.
    let indent = "  ".repeat(depth.min(20));
    truncate(&format!("{indent}{pid} (parent {parent}) {state}{waits} {} {command}", format_duration(process.age())))
}

/// `95 s`, `12 min`, `3 h`.
fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// The command line without secret values, or the kernel's name in brackets.
fn command_line(process: &Process, secrets: &Secrets) -> String {
    let bytes = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(MAX_COMMAND_BYTES)];
    let words: Vec<String> = bytes
        .strip_suffix(b"\0")
        .unwrap_or(bytes)
        .split(|b| *b == 0)
        .map(|word| tail::sanitize_line(redact(&String::from_utf8_lossy(word), secrets).as_bytes()))
        .collect();
    let text = words.join(" ");
    if text.trim().is_empty() { format!("[{}]", process.name) } else { text }
}

/// Describes what the leaves of the tree wait for, youngest first.
fn describe_waiting(below: &BTreeMap<i32, Process>) -> String {
    let parents: BTreeSet<i32> = below.values().map(|process| process.parent).collect();
    let mut leaves: Vec<&Process> =
        below.values().filter(|process| process.state != 'Z' && !parents.contains(&process.pid)).collect();
    leaves.sort_by_key(|process| std::cmp::Reverse(process.pid));
    let describe = |process: &&Process| {
        let does = match (process.wait_channel(), process.state) {
            (Some(function), _) => format!("waits in {function}"),
            (None, 'R') => "is ready to run".to_owned(),
            (None, 'D') => "waits for a device".to_owned(),
            (None, 'T' | 't') => "is stopped".to_owned(),
            (None, _) => "sleeps".to_owned(),
        };
        format!("`{}` (pid {}) {does}", process.name, process.pid)
    };
    let mut parts: Vec<String> = leaves.iter().take(MAX_NAMED_PROCESSES).map(describe).collect();
    match leaves.len().saturating_sub(MAX_NAMED_PROCESSES) {
        0 => {}
        more => parts.push(format!("{more} more wait")),
    }
    parts.join(", ")
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DescriptorKind {
    Pipe,
    Fifo(String),
    Socket,
}

/// The holders of the ends of a pipe or socket.
#[derive(Default)]
struct DescriptorHolders {
    readers: BTreeSet<String>,
    writers: BTreeSet<String>,
    both: BTreeSet<String>,
}

fn list_pipes(below: &BTreeMap<i32, Process>) -> Vec<String> {
    let mut found: BTreeMap<(DescriptorKind, u64), DescriptorHolders> = BTreeMap::new();
    for process in below.values() {
        collect_descriptors(
            &format!("{} ({})", process.name, process.pid),
            &format!("/proc/{}", process.pid),
            &mut found,
            false,
        );
    }
    // The shim's ends of those pipes.
    let own = rustix::process::getpid().as_raw_nonzero();
    collect_descriptors(&format!("acp-shim ({own})"), "/proc/self", &mut found, true);
    let addresses = socket_addresses();
    let lines = found.into_iter().map(|((kind, inode), ends)| {
        let list = |holders: BTreeSet<String>| holders.into_iter().collect::<Vec<_>>().join(", ");
        let (what, open) = match kind {
            DescriptorKind::Socket => {
                let address = addresses.get(&inode).map(|address| format!(" {address}")).unwrap_or_default();
                return truncate(&format!("socket {inode}{address}: {}", list(ends.both)));
            }
            DescriptorKind::Pipe => {
                (format!("pipe {inode}"), [("read by", ends.readers), ("written by", ends.writers)])
            }
            DescriptorKind::Fifo(path) => {
                (format!("fifo {path}"), [("read by", ends.readers), ("written by", ends.writers)])
            }
        };
        let mut sides: Vec<String> = open
            .into_iter()
            .map(|(side, holders)| match holders.is_empty() {
                true => format!("{side} nobody"),
                false => format!("{side} {}", list(holders)),
            })
            .collect();
        if !ends.both.is_empty() {
            sides.push(format!("both ends held by {}", list(ends.both)));
        }
        truncate(&format!("{what}: {}", sides.join("; ")))
    });
    limit_lines(lines.collect(), "pipes and sockets")
}

/// Collects the pipes and sockets that a process holds; with `known_only`, those that are collected already.
fn collect_descriptors(
    who: &str,
    process: &str,
    found: &mut BTreeMap<(DescriptorKind, u64), DescriptorHolders>,
    known_only: bool,
) {
    let Ok(entries) = fs::read_dir(format!("{process}/fd")) else { return };
    for entry in entries.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(key) = parse_descriptor(&target, &entry.path()) else { continue };
        let ends = match found.get_mut(&key) {
            Some(ends) => ends,
            None if known_only => continue,
            None => found.entry(key.clone()).or_default(),
        };
        let number = entry.file_name().to_string_lossy().into_owned();
        let holder = format!("{who} as {number}");
        match (&key.0, access_mode(process, &number)) {
            (DescriptorKind::Socket, _) | (_, Some(2) | None) => ends.both.insert(holder),
            (_, Some(1)) => ends.writers.insert(holder),
            (_, Some(_)) => ends.readers.insert(holder),
        };
    }
}

/// Parses a link of `/proc/<pid>/fd`: `pipe:[4711]`, `socket:[4712]`, or the path of a FIFO.
fn parse_descriptor(target: &Path, link: &Path) -> Option<(DescriptorKind, u64)> {
    let text = target.to_str()?;
    let inode = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok();
    if let Some(inode) = inode("pipe:[") {
        return Some((DescriptorKind::Pipe, inode));
    }
    if let Some(inode) = inode("socket:[") {
        return Some((DescriptorKind::Socket, inode));
    }
    // Devices and `/proc` have no FIFOs.
    if !text.starts_with('/') || text.starts_with("/dev/") || text.starts_with("/proc/") {
        return None;
    }
    let meta = fs::metadata(link).ok().filter(|meta| meta.file_type().is_fifo())?;
    Some((DescriptorKind::Fifo(tail::sanitize_line(text.as_bytes())), meta.ino()))
}

/// The access mode of a descriptor: 0 to read, 1 to write, 2 for both.
fn access_mode(process: &str, number: &str) -> Option<u32> {
    let info = fs::read_to_string(format!("{process}/fdinfo/{number}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok().map(|flags| flags & 3)
}

/// Sockets by their inodes: a path, or the two addresses of a connection.
fn socket_addresses() -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for protocol in ["tcp", "tcp6", "udp", "udp6"] {
        for line in fs::read_to_string(format!("/proc/net/{protocol}")).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if let [_, local, remote, state, _, _, _, _, _, inode, ..] = fields[..]
                && let (Some(local), Some(remote), Ok(inode)) =
                    (parse_socket_address(local), parse_socket_address(remote), inode.parse())
            {
                let state = tcp_state(state);
                found.insert(inode, format!("{protocol} {local} to {remote}{state}"));
            }
        }
    }
    for line in fs::read_to_string("/proc/net/unix").unwrap_or_default().lines().skip(1) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if let Some(inode) = fields.get(6).and_then(|inode| inode.parse().ok()) {
            let path =
                fields.get(7).map(|path| format!(" {}", tail::sanitize_line(path.as_bytes()))).unwrap_or_default();
            found.insert(inode, format!("unix{path}"));
        }
    }
    found
}

fn tcp_state(state: &str) -> &'static str {
    match state {
        "01" => ", connected",
        "02" => ", connecting",
        "08" => ", closed by the other side",
        "0A" => ", listening",
        _ => "",
    }
}

/// Parses `0100007F:1F90`, which is `127.0.0.1:8080`: 32-bit words in the machine's byte order, and a port.
fn parse_socket_address(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for start in (0..host.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(host.get(start..start + 8)?, 16).ok()?.to_ne_bytes());
    }
    let host: std::net::IpAddr = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(bytes.as_slice()).ok()?.into(),
    };
    Some(std::net::SocketAddr::new(host, port).to_string())
}

/// Describes a hang: its duration, and what the processes wait for.
pub fn describe_hang(idle: Duration, snapshot: &HangSnapshot) -> String {
    let time = format_duration(idle);
    match snapshot.waiting.as_str() {
        "" => format!("no output and no CPU use for {time}; no process is left, and its output is held open"),
        waiting => format!("no output and no CPU use for {time}; {waiting}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_socket_addresses() {
        if cfg!(target_endian = "little") {
            assert_eq!(parse_socket_address("0100007F:1F90").as_deref(), Some("127.0.0.1:8080"));
            assert_eq!(parse_socket_address("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
        }
        assert_eq!(parse_socket_address("0100007F"), None);
        assert_eq!(parse_socket_address("01:1F90"), None);
    }

    #[test]
    fn limit_lines_truncates_and_counts_the_rest() {
        let lines: Vec<String> = (0..MAX_HANG_SNAPSHOT_LINES + 10).map(|n| n.to_string()).collect();
        let shown = limit_lines(lines, "processes");
        assert_eq!(shown.len(), MAX_HANG_SNAPSHOT_LINES);
        assert_eq!(shown.last().map(String::as_str), Some("and 11 more processes"));
    }
}
