//! The hook by which tests end the program at a place of their choice in its journal; not in release builds.
//!
//! `LONGSHORE_TEST_DIE_AT_RECORD=7`: record 7 is written and synced, whatever its batch has after it is not, and the process
//! kills itself with SIGKILL before anything else is done. `7-`: of record 7 only a half is written. A record that is there
//! already is passed over. Called by `journal.rs` before an append. Must not: do anything where the variable is not set.

use std::fs::File;
use std::io::Write;

use rustix::process::{Signal, getpid, kill_process};

const KILL_POINT_VARIABLE: &str = "LONGSHORE_TEST_DIE_AT_RECORD";

/// The record at which the process kills itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KillPoint {
    record: u64,
    torn: bool,
}

impl KillPoint {
    fn parse(text: &str) -> Option<Self> {
        let (digits, torn) = match text.strip_suffix('-') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        digits.parse().ok().map(|record| Self { record, torn })
    }

    /// How many bytes of these lines are written before death; `first` is the number of the first.
    fn bytes_before_kill(self, first: u64, lines: &[u8]) -> Option<usize> {
        let index = usize::try_from(self.record.checked_sub(first)?).ok()?;
        let mut ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let begin = match index {
            0 => 0,
            _ => ends.nth(index - 1)?,
        };
        let end = ends.next()?;
        Some(if self.torn { begin + (end - begin) / 2 } else { end })
    }
}

/// Kills the process if the kill point is among the records about to be appended.
pub(super) fn kill_at_record(file: &mut File, first: u64, lines: &[u8]) {
    let Some(kill_point) = std::env::var(KILL_POINT_VARIABLE).ok().and_then(|text| KillPoint::parse(&text)) else {
        return;
    };
    let Some(cut) = kill_point.bytes_before_kill(first, lines) else { return };
    let written = file.write_all(&lines[..cut]).and_then(|()| file.sync_data());
    written.expect("a journal of a test can be written");
    kill_self()
}

/// The header is record 0: `0` is after it is written, `0-` before. It is there whole or not at all.
pub(super) fn kill_at_header(written: bool) {
    let kill_point = std::env::var(KILL_POINT_VARIABLE).ok().and_then(|text| KillPoint::parse(&text));
    if kill_point == Some(KillPoint { record: 0, torn: !written }) {
        kill_self()
    }
}

fn kill_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // The signal is on its way.
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_at_the_kill_point() {
        let lines = b"abcd\nef\nghijkl\n";
        let cut = |place: &str, first| {
            let cut = KillPoint::parse(place).expect("a place").bytes_before_kill(first, lines)?;
            Some(std::str::from_utf8(&lines[..cut]).expect("ASCII"))
        };
        assert_eq!(cut("7", 7), Some("abcd\n"));
        assert_eq!(cut("8", 7), Some("abcd\nef\n"));
        assert_eq!(cut("9", 7), Some("abcd\nef\nghijkl\n"));
        assert_eq!(cut("9-", 7), Some("abcd\nef\nghi"));
        assert_eq!(cut("7-", 7), Some("ab"));
        assert_eq!(cut("10", 7), None, "not yet");
        assert_eq!(cut("6", 7), None, "it is there already");
        assert_eq!(KillPoint::parse(""), None);
        assert_eq!(KillPoint::parse("-"), None);
    }
}
