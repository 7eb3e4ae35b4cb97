//! Where no space is left: the file systems that agents and git write to, looked at when something failed.
//!
//! Used by `story.rs`, `attempt.rs` and `git.rs`. Must not: write.

use std::fmt;
use std::path::{Path, PathBuf};

use super::git;
use crate::verdict::{Cause, Failure};

/// Less free space than this is none.
const NONE: u64 = 1024 * 1024;
/// The share, as a divisor, below which a place is short of space.
const SHORT: u64 = 20;
/// The last lines of a program's output in which it may say that no space was left.
const LAST_WORDS: usize = 10;

/// A file system, by one of its folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder.
    pub path: PathBuf,
    /// Bytes that are left for us.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
    /// No more files can be made, however large.
    no_files: bool,
}

impl Place {
    /// Measures the file system of a folder; none where it cannot be.
    pub fn of(path: &Path) -> Option<Self> {
        let space = rustix::fs::statvfs(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            free: space.f_bavail.saturating_mul(space.f_frsize),
            total: space.f_blocks.saturating_mul(space.f_frsize),
            no_files: space.f_files > 0 && space.f_favail == 0,
        })
    }

    /// Nothing more can be written.
    pub fn is_full(&self) -> bool {
        self.no_files || (self.free < NONE && self.total > 0)
    }

    fn is_short(&self) -> bool {
        self.is_full() || self.free < self.total / SHORT
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, total) = (self.free / 1024, self.total / 1024);
        let files = if self.no_files { ", and no more files" } else { "" };
        write!(f, "{free} KB of {total} KB are free in `{}`{files}", self.path.display())
    }
}

/// The places that are full; or those that are short of space, where the program's last words are that none was left.
pub fn full(folders: &[PathBuf], said: &[String]) -> Vec<Place> {
    let places: Vec<Place> = folders.iter().filter_map(|folder| Place::of(folder)).collect();
    let complained = said.iter().rev().take(LAST_WORDS).any(|line| git::says_disk_full(line));
    places.into_iter().filter(|place| place.is_full() || (complained && place.is_short())).collect()
}

/// Says in a failure for lack of space where that was.
pub fn explain(failure: &mut Failure, folders: &[PathBuf]) {
    if failure.cause != Cause::DiskFull {
        return;
    }
    let mut places: Vec<Place> = folders.iter().filter_map(|folder| Place::of(folder)).collect();
    // Where space was made since, the folder that the work is in says most.
    match places.iter().any(Place::is_short) {
        true => places.retain(Place::is_short),
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

    fn place(free: u64, total: u64) -> Place {
        Place { path: "/x".into(), free, total, no_files: false }
    }

    #[test]
    fn full_is_a_measure_and_short_is_not_enough_by_itself() {
        assert!(place(1000, 1 << 30).is_full());
        assert!(!place(2 << 20, 1 << 30).is_full() && place(2 << 20, 1 << 30).is_short());
        assert!(!place(1 << 29, 1 << 30).is_short());
        assert!(Place { no_files: true, ..place(1 << 29, 1 << 30) }.is_full());
        assert!(!place(0, 0).is_full(), "a file system without a size says nothing");
        assert_eq!(place(2048, 10_240).to_string(), "2 KB of 10 KB are free in `/x`");
    }

    #[test]
    fn words_alone_do_not_fill_a_disk() {
        let free = std::env::temp_dir();
        let said = ["cp: error writing 'x': No space left on device".to_owned()];
        assert!(!Place::of(&free).expect("a folder").is_short(), "this test needs some space");
        assert_eq!(full(&[free], &said), []);
    }
}
