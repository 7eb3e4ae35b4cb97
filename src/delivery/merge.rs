//! Merges the trees of two commits, without a working tree, index, hooks or merge drivers.
//!
//! Called by `landing.rs` and `apply.rs`. Must not: create a commit or move a ref.

use std::time::Duration;

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::repo::Repo;
use crate::ids::CommitId;

/// The time limit for merging two trees.
const TIME_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Two trees merged by git.
pub(super) enum MergedTree {
    /// The id of the merged tree.
    Clean(CommitId),
    /// The conflicting files, sorted.
    Conflicting(Vec<String>),
}

impl Repo {
    /// Merges the trees of two commits, without a checkout.
    pub(super) async fn merge_trees(&self, onto: &CommitId, tip: &CommitId) -> Result<MergedTree, DeliveryError> {
        let operation = "merge the result";
        let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options"];
        let command = self.git(operation, args).args([onto.as_str(), tip.as_str()]);
        let command = command.env("GIT_ATTR_SOURCE", onto.as_str()).time_limit(TIME_LIMIT).accept_codes(&[0, 1]);
        let output = command.run().await?;
        let text = output.text();
        let mut fields = text.split('\0');
        // A git without `--write-tree` fails here too.
        let tree = fields.next().unwrap_or_default().parse().map_err(|_| unexpected_output(operation, &text))?;
        if output.code == 0 {
            return Ok(MergedTree::Clean(tree));
        }
        let mut paths: Vec<String> = fields.take_while(|field| !field.is_empty()).map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        Ok(MergedTree::Conflicting(paths))
    }
}
