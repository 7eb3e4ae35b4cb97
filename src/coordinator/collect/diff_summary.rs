//! AMP's `diff_summary` (02) from git's line counts.
//!
//! Called where results are collected. Must not: run git.

use crate::delivery::FileStat;
use crate::protocol::amp::message::DiffSummary;

/// Sums the changed lines. A renamed file appears under both paths with all of its lines, because a reviewer has to read them
/// all; git's guess at renames is not used.
pub(super) fn summarize_diff(stats: Vec<FileStat>) -> DiffSummary {
    let mut summary = DiffSummary::default();
    for stat in stats {
        summary.files_changed.push(stat.path);
        summary.lines_added += stat.added.unwrap_or(0);
        summary.lines_removed += stat.removed.unwrap_or(0);
    }
    // Git sorts bytes, but invalid UTF-8 has been replaced.
    summary.files_changed.sort();
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_summary_uses_git_line_counts() {
        let stat = |path: &str, added, removed| FileStat { path: path.to_owned(), added, removed };
        let renamed = [stat("new-name", Some(3), Some(0)), stat("old-name", Some(0), Some(3))];
        let others = [stat("bin", None, None), stat("\u{fffd}", Some(1), Some(0)), stat("changed", Some(1), Some(1))];
        let summary = summarize_diff(renamed.into_iter().chain(others).collect());
        assert_eq!(summary.files_changed, ["bin", "changed", "new-name", "old-name", "\u{fffd}"]);
        assert_eq!((summary.lines_added, summary.lines_removed), (3 + 1 + 1, 3 + 1));
        assert_eq!(summarize_diff(Vec::new()), DiffSummary::default());
    }
}
