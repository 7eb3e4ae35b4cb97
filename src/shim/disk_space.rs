//! Where no space is left: the file systems that agents and git write to, looked at when something failed.
//!
//! Used by `story.rs`, `attempt.rs` and `git.rs`. Must not: write.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::verdict::{Cause, Failure};

/// Less free space than this is none.
const FULL_BELOW_BYTES: u64 = 1024 * 1024;
/// The share, as a divisor, below which a place is short of space.
const LOW_SPACE_DIVISOR: u64 = 20;
/// The last lines of a program's output in which it may say that no space was left.
const CHECKED_OUTPUT_LINES: usize = 10;

/// A file system, by one of its folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpace {
    /// The folder.
    pub path: PathBuf,
    /// Bytes that are left for us.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
    /// No more files can be made, however large.
    out_of_inodes: bool,
}

impl DiskSpace {
    /// Measures the file system of a folder; none where it cannot be.
    pub fn measure(path: &Path) -> Option<Self> {
        let space = rustix::fs::statvfs(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            free: space.f_bavail.saturating_mul(space.f_frsize),
            total: space.f_blocks.saturating_mul(space.f_frsize),
            out_of_inodes: space.f_files > 0 && space.f_favail == 0,
        })
    }

    /// Nothing more can be written.
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
        let files = if self.out_of_inodes { ", and no more files" } else { "" };
        write!(f, "{free} KB of {total} KB are free in `{}`{files}", self.path.display())
    }
}

/// The places that are full; or those that are short of space, where the program's last words are that none was left.
pub fn find_full(folders: &[PathBuf], said: &[String]) -> Vec<DiskSpace> {
    let places: Vec<DiskSpace> = folders.iter().filter_map(|folder| DiskSpace::measure(folder)).collect();
    let complained = said.iter().rev().take(CHECKED_OUTPUT_LINES).any(|line| crate::git::mentions_disk_full(line));
    places.into_iter().filter(|place| place.is_full() || (complained && place.is_low())).collect()
}

/// Says in a failure for lack of space where that was.
pub fn add_disk_evidence(failure: &mut Failure, folders: &[PathBuf]) {
    if failure.cause != Cause::DiskFull {
        return;
    }
    let mut places: Vec<DiskSpace> = folders.iter().filter_map(|folder| DiskSpace::measure(folder)).collect();
    // Where space was made since, the folder that the work is in says most.
    match places.iter().any(DiskSpace::is_low) {
        true => places.retain(DiskSpace::is_low),
        false => places.truncate(1),
    }
    for place in places {
        let shown = place.path.display().to_string();
        if !failure.evidence.paths.contains(&shown) {
            failure.evidence.summary.push_str(&format!("; {place}"));
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
        assert!(!disk_space(0, 0).is_full(), "a file system without a size says nothing");
        assert_eq!(disk_space(2048, 10_240).to_string(), "2 KB of 10 KB are free in `/x`");
    }

    #[test]
    fn output_alone_does_not_count_as_a_full_disk() {
        let free = std::env::temp_dir();
        let said = ["cp: error writing 'x': No space left on device".to_owned()];
        assert!(!DiskSpace::measure(&free).expect("a folder").is_low(), "this test needs some space");
        assert_eq!(find_full(&[free], &said), []);
    }
}
