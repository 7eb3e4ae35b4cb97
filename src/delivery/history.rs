//! What a range of commits holds, for reports: read on demand, never on the way to a merge.
//!
//! Called by `coordinator/` and `report/`. What commits say is a sandbox's text: it comes out without control characters.

use super::error::DeliveryError;
use super::git::{sanitize, truncate, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;
use crate::protocol::amp::message::DiffSummary;

/// A commit as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// The commit.
    pub id: CommitId,
    /// The first line of its message.
    pub subject: String,
    /// The rest of its message.
    pub body: String,
}

/// How much of a file changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Lines added; none for a binary file.
    pub added: Option<u64>,
    /// Lines removed; none for a binary file.
    pub removed: Option<u64>,
}

impl Repo {
    /// A branch's history since `base`, newest first, a line a commit: short id and subject, along first parents with what
    /// they merged.
    pub async fn log_oneline(&self, branch: &str, base: &CommitId) -> Result<Vec<String>, DeliveryError> {
        let args = ["log", "--format=%h %s", "--no-color", "--no-decorate", "--topo-order", "--end-of-options"];
        let range = format!("{base}..refs/heads/{branch}");
        let output = self.git().new_command("read the branch's log", args).arg(range).arg("--").run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().map(|line| truncate(&sanitize(line), 300)).collect())
    }

    /// The commits from `base` to `tip`, oldest first.
    pub async fn commits_between(&self, base: &CommitId, tip: &CommitId) -> Result<Vec<CommitInfo>, DeliveryError> {
        let operation = "read commits";
        let args = ["log", "-z", "--reverse", "--topo-order", "--no-color", "--format=%H%n%s%n%b", "--end-of-options"];
        let output = self.git().new_command(operation, args).arg(format!("{base}..{tip}")).arg("--").run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.split('\0')
            .filter(|record| !record.is_empty())
            .map(|record| {
                let mut parts = record.splitn(3, '\n');
                let id =
                    parts.next().and_then(|id| id.parse().ok()).ok_or_else(|| unexpected_output(operation, record))?;
                let mut part = || sanitize(parts.next().unwrap_or_default());
                Ok(CommitInfo { id, subject: part(), body: part() })
            })
            .collect()
    }

    /// What changed between two commits, file by file; a renamed file is one removed and one added.
    pub async fn diff_stat(&self, base: &CommitId, tip: &CommitId) -> Result<Vec<FileStat>, DeliveryError> {
        let operation = "count changed lines";
        let args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let call =
            self.git().new_command(operation, args).args(["--end-of-options", base.as_str(), tip.as_str(), "--"]);
        let output = call.run().await?;
        let records = output.stdout.split(|&byte| byte == 0).filter(|record| !record.is_empty());
        records
            .map(|record| {
                let text = String::from_utf8_lossy(record);
                let mut parts = text.splitn(3, '\t');
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(added), Some(removed), Some(path)) => {
                        Ok(FileStat { path: path.to_owned(), added: added.parse().ok(), removed: removed.parse().ok() })
                    }
                    _ => Err(unexpected_output(operation, &text)),
                }
            })
            .collect()
    }

    /// The commit's tree.
    pub async fn tree_id(&self, commit: &CommitId) -> Result<String, DeliveryError> {
        let name = format!("{commit}^{{tree}}");
        let call = self.git().new_command("find a commit's tree", ["rev-parse", "--verify", "--end-of-options", &name]);
        let output = call.run().await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The same as AMP tells it (02, `diff_summary`): git's own count. A renamed file is two paths here, all the lines of one
    /// removed and all of the other added: what a reviewer has to look at, and not what a guess at renames makes of it.
    pub async fn diff_summary(&self, from: &CommitId, to: &CommitId) -> Result<DiffSummary, DeliveryError> {
        let stats = self.diff_stat(from, to).await?;
        let mut summary = DiffSummary::default();
        for stat in stats {
            summary.files_changed.push(stat.path);
            summary.lines_added += stat.added.unwrap_or(0);
            summary.lines_removed += stat.removed.unwrap_or(0);
        }
        // Git sorts bytes, and what is not UTF-8 has been replaced.
        summary.files_changed.sort();
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch_repo::ScratchRepo;

    #[tokio::test]
    async fn a_commit_range_is_described() {
        let scratch = ScratchRepo::new();
        let base = scratch.commit("a", "1\n2\n");
        scratch.write("a", "1\n3\n4\n");
        scratch.write("odd\n\"ü\"\t-x", "x\n");
        scratch.write("-n", "y\n");
        scratch.write("bin", "\0\0");
        scratch.git(&["add", "-A"]);
        scratch.git(&["commit", "-q", "-m", "first \u{1b}[31mred\n\nbody\nmore"]);
        let first = scratch.head();
        let tip = scratch.commit("c", "1\n");
        let repo = scratch.repo().await;

        let log = repo.log_oneline("main", &base).await.expect("read");
        assert_eq!(log.len(), 2);
        assert!(log[1].ends_with("first \u{fffd}[31mred"), "{log:?}");
        let commits = repo.commits_between(&base, &tip).await.expect("read");
        assert_eq!(commits.iter().map(|note| &note.id).collect::<Vec<_>>(), [&first, &tip]);
        assert_eq!(commits[0].body, "body\nmore");
        let stats = repo.diff_stat(&base, &first).await.expect("read");
        let found: Vec<_> = stats.iter().map(|stat| (stat.path.as_str(), stat.added, stat.removed)).collect();
        assert_eq!(
            found,
            [
                ("-n", Some(1), Some(0)),
                ("a", Some(2), Some(1)),
                ("bin", None, None),
                ("odd\n\"ü\"\t-x", Some(1), Some(0))
            ]
        );
    }

    #[tokio::test]
    async fn diff_summary_uses_git_line_counts() {
        let scratch = ScratchRepo::new();
        scratch.write("keep", "1\n");
        scratch.write("old-name", "1\n2\n3\n");
        scratch.write("gone", "1\n2\n");
        let base = scratch.commit("changed", "1\n2\n");
        scratch.git(&["mv", "old-name", "new-name"]);
        scratch.git(&["rm", "-q", "gone"]);
        scratch.write("bin", "\0\0\n\n");
        scratch.write("changed", "1\nzwei\n");
        std::fs::write(scratch.root.join(std::ffi::OsStr::new("caf\u{e9}")), "x\n").expect("written");
        let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
        std::fs::write(scratch.root.join(odd), "x\n").expect("written");
        let tip = scratch.commit("z", "1\n");
        let repo = scratch.repo().await;

        let summary = repo.diff_summary(&base, &tip).await.expect("counted");
        let names = ["bin", "caf\u{e9}", "changed", "gone", "new-name", "old-name", "z", "\u{fffd}"];
        assert_eq!(summary.files_changed, names, "renames are not followed, a binary file is named");
        // changed 1, new-name 3, z 1, and two odd names with a line each; a binary file has no lines.
        assert_eq!((summary.lines_added, summary.lines_removed), (1 + 3 + 1 + 2, 1 + 2 + 3));
        let same = repo.diff_summary(&tip, &tip).await.expect("counted");
        assert_eq!(same, Default::default());
        assert!(repo.diff_summary(&base, &"0".repeat(40).parse().expect("40 digits")).await.is_err());
    }
}
