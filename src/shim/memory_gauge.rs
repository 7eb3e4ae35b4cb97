//! Counters of the sandbox's memory cgroup, version 1 or 2: kills by the kernel, and how near the limit memory use came.
//!
//! Read by `command.rs` before and after each command. Must not: judge.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct MemoryGauge {
    root: PathBuf,
}

impl Default for MemoryGauge {
    fn default() -> Self {
        Self::with_root("/sys/fs/cgroup")
    }
}

impl MemoryGauge {
    /// Counters of the cgroup file system at `root`.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// How many processes the kernel has killed for memory; `None` without a readable counter.
    pub fn oom_kills(&self) -> Option<u64> {
        read_field(&self.root.join("memory.events"), "oom_kill")
            .or_else(|| read_field(&self.root.join("memory/memory.oom_control"), "oom_kill"))
    }

    /// Whether peak memory use is within 5 % of the limit. `false` without a limit.
    pub fn near_limit(&self) -> bool {
        let read =
            |peak: &str, limit: &str| Some((read_number(&self.root.join(peak))?, read_number(&self.root.join(limit))?));
        let figures = read("memory.peak", "memory.max")
            .or_else(|| read("memory/memory.max_usage_in_bytes", "memory/memory.limit_in_bytes"));
        figures.is_some_and(|(peak, limit)| peak >= limit - limit / 20)
    }
}

fn read_field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cgroup_v1_and_v2() {
        let v2 = tempfile::tempdir().expect("a directory");
        fs::write(v2.path().join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n").expect("written");
        fs::write(v2.path().join("memory.peak"), "960\n").expect("written");
        fs::write(v2.path().join("memory.max"), "1000\n").expect("written");
        let gauge = MemoryGauge::with_root(v2.path());
        assert_eq!(gauge.oom_kills(), Some(2));
        assert!(gauge.near_limit());

        let v1 = tempfile::tempdir().expect("a directory");
        fs::create_dir(v1.path().join("memory")).expect("made");
        fs::write(v1.path().join("memory/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
            .expect("written");
        fs::write(v1.path().join("memory/memory.max_usage_in_bytes"), "10\n").expect("written");
        fs::write(v1.path().join("memory/memory.limit_in_bytes"), "1000\n").expect("written");
        let gauge = MemoryGauge::with_root(v1.path());
        assert_eq!(gauge.oom_kills(), Some(1));
        assert!(!gauge.near_limit());
    }

    #[test]
    fn missing_cgroup_yields_no_counts() {
        let none = tempfile::tempdir().expect("a directory");
        fs::write(none.path().join("memory.max"), "max\n").expect("written");
        let gauge = MemoryGauge::with_root(none.path());
        assert_eq!(gauge.oom_kills(), None);
        assert!(!gauge.near_limit());
    }
}
