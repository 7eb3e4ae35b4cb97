//! Commits and changed lines of a range, for reports; never on the way to a merge.
//!
//! Called by `coordinator/` and `cli/`. Commit messages may come from a sandbox: they are returned without control characters.

use super::error::DeliveryError;
use super::git_runner::{sanitize, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitInfo {
    pub id: CommitId,
    /// The first line of the message.
    pub subject: String,
    /// The rest of the message.
    pub body: String,
}

/// The changed lines of a file. `None` for a binary file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStat {
    /// Invalid UTF-8 is replaced.
    pub path: String,
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

impl Repo {
    /// The commits from `base` to `tip`, oldest first.
    pub(crate) async fn commits_between(
        &self,
        base: &CommitId,
        tip: &CommitId,
    ) -> Result<Vec<CommitInfo>, DeliveryError> {
        let operation = "read commits";
        let args = ["log", "-z", "--reverse", "--topo-order", "--no-color", "--format=%H%n%s%n%b", "--end-of-options"];
        let output = self.git(operation, args).args([&format!("{base}..{tip}"), "--"]).run().await?;
        let parse = |record: &[u8]| {
            let record = String::from_utf8_lossy(record);
            let mut parts = record.splitn(3, '\n');
            let id =
                parts.next().and_then(|id| id.parse().ok()).ok_or_else(|| unexpected_output(operation, &record))?;
            let mut part = || sanitize(parts.next().unwrap_or_default());
            Ok(CommitInfo { id, subject: part(), body: part() })
        };
        output.nul_fields().map(parse).collect()
    }

    /// The files that differ between two commits. A renamed file is one removed and one added: its lines count in both.
    pub(crate) async fn diff_stat(&self, base: &CommitId, tip: &CommitId) -> Result<Vec<FileStat>, DeliveryError> {
        let operation = "count changed lines";
        let args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let command = self.git(operation, args).args(["--end-of-options", base.as_str(), tip.as_str(), "--"]);
        let output = command.run().await?;
        let parse = |record: &[u8]| {
            let record = String::from_utf8_lossy(record);
            let mut parts = record.splitn(3, '\t');
            let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(unexpected_output(operation, &record));
            };
            Ok(FileStat { path: path.to_owned(), added: added.parse().ok(), removed: removed.parse().ok() })
        };
        output.nul_fields().map(parse).collect()
    }

    /// The id of the commit's tree.
    pub(crate) async fn tree_id(&self, commit: &CommitId) -> Result<String, DeliveryError> {
        let name = format!("{commit}^{{tree}}");
        let command = self.git("find a commit's tree", ["rev-parse", "--verify", "--end-of-options", &name]);
        Ok(command.run().await?.text().trim().to_owned())
    }
}

#[cfg(test)]
mod tests;
