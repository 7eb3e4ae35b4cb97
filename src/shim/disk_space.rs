//! Free space on the file systems that agents and git write to, measured when something failed.
//!
//! Used wherever a failure may have come from a full disk. Must not: write.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::verdict::{Cause, Failure};

/// Below this, the disk counts as full.
const FULL_BELOW_BYTES: u64 = 1024 * 1024;
/// Below this fraction of the total, given as a divisor, space counts as low.
const LOW_SPACE_DIVISOR: u64 = 20;
/// How many of the last lines of output are searched for a message about a full disk.
const CHECKED_OUTPUT_LINES: usize = 10;

/// The space of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpace {
    /// A directory on the file system.
    pub path: PathBuf,
    /// Bytes that this user can still write.
    pub free: u64,
    pub total: u64,
    out_of_inodes: bool,
}

impl DiskSpace {
    /// Measures the file system of a directory.
    pub fn measure(path: &Path) -> io::Result<Self> {
        let space = rustix::fs::statvfs(path)?;
        Ok(Self {
            path: path.to_owned(),
            free: space.f_bavail.saturating_mul(space.f_frsize),
            total: space.f_blocks.saturating_mul(space.f_frsize),
            out_of_inodes: space.f_files > 0 && space.f_favail == 0,
        })
    }

    pub fn is_full(&self) -> bool {
        self.out_of_inodes || (self.free < FULL_BELOW_BYTES && self.total > 0)
    }

    fn is_low(&self) -> bool {
        self.is_full() || self.free < self.total / LOW_SPACE_DIVISOR
    }
}

impl fmt::Display for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, total) = (self.free / 1024, self.total / 1024);
        let files = if self.out_of_inodes { ", and no inodes" } else { "" };
        write!(f, "{free} KB of {total} KB are free in `{}`{files}", self.path.display())
    }
}

/// The file systems that are full. If the output ends with a message about a full disk, also those that are low on space.
pub fn find_full(dirs: &[PathBuf], output: &[String]) -> Vec<DiskSpace> {
    let complained = output.iter().rev().take(CHECKED_OUTPUT_LINES).any(|line| crate::git::mentions_disk_full(line));
    measure_all(dirs).filter(|space| space.is_full() || (complained && space.is_low())).collect()
}

fn measure_all(dirs: &[PathBuf]) -> impl Iterator<Item = DiskSpace> {
    dirs.iter().filter_map(|dir| DiskSpace::measure(dir).ok())
}

/// Adds which file systems are full to a failure with that cause.
pub fn add_disk_evidence(failure: &mut Failure, dirs: &[PathBuf]) {
    if failure.cause != Cause::DiskFull {
        return;
    }
    let mut spaces: Vec<DiskSpace> = measure_all(dirs).collect();
    // If space was freed meanwhile, the first directory, with the work, is the most telling.
    match spaces.iter().any(DiskSpace::is_low) {
        true => spaces.retain(DiskSpace::is_low),
        false => spaces.truncate(1),
    }
    for space in spaces {
        let shown = space.path.display().to_string();
        if !failure.evidence.paths.contains(&shown) {
            failure.evidence.summary.push_str(&format!("; {space}"));
            failure.evidence.paths.push(shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_space(free: u64, total: u64) -> DiskSpace {
        DiskSpace { path: "/x".into(), free, total, out_of_inodes: false }
    }

    #[test]
    fn is_full_and_is_low_follow_the_thresholds() {
        assert!(disk_space(1000, 1 << 30).is_full());
        assert!(!disk_space(2 << 20, 1 << 30).is_full() && disk_space(2 << 20, 1 << 30).is_low());
        assert!(!disk_space(1 << 29, 1 << 30).is_low());
        assert!(DiskSpace { out_of_inodes: true, ..disk_space(1 << 29, 1 << 30) }.is_full());
        assert!(!disk_space(0, 0).is_full(), "a file system without a size is not full");
        assert_eq!(disk_space(2048, 10_240).to_string(), "2 KB of 10 KB are free in `/x`");
    }

    #[test]
    fn output_alone_does_not_count_as_a_full_disk() {
        let free = std::env::temp_dir();
        let output = ["cp: error writing 'x': No space left on device".to_owned()];
        assert!(!DiskSpace::measure(&free).expect("a directory").is_low(), "this test needs some space");
        assert_eq!(find_full(&[free], &output), []);
    }
}
