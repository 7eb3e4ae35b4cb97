//! Verifies that a reviewer's fix is a direct fix (AMP 04, "Direct Fix Scope"): typo, lint, white space or the order of imports, in
//! fewer than five lines. Git tells what changed, and the reviewer's declaration has to match.
//!
//! Added and removed lines are counted as git counts them, over the whole fix and not per file: a changed line counts twice, so a
//! fix changes at most two lines. The reviewer's own `diff_lines` is ignored.
//!
//! | subject | refused |
//! |---|---|
//! | commits | none, more than four, a merge, one whose size or files alone would be refused |
//! | files | added, deleted, renamed, of another mode or kind, links, submodules, binary, not declared, declared but unchanged |
//! | lines | five or more, added and removed together |
//! | kinds | a declared kind that does not explain the change (`change_kinds.rs`) |
//!
//! Called by `coordinator/` once the commits are on the host. Must not: trust the sandbox.

mod change_kinds;

use std::collections::{BTreeMap, BTreeSet};

use self::change_kinds::Hunk;
use super::error::DeliveryError;
use super::git_runner::{sanitize, truncate, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;
use crate::protocol::amp::message::{ChangeType, DirectFix};
use crate::protocol::amp::rules::MAX_FIX_LINES;

/// A fix has fewer lines than this (AMP 04: "must <5").
const FIX_LINE_LIMIT: u64 = MAX_FIX_LINES as u64 + 1;
/// The most commits of a fix: each changes at least one line.
const MAX_FIX_COMMITS: usize = 4;
/// The largest patch of one file, in bytes. Lines can be long.
const MAX_PATCH_BYTES: usize = 1024 * 1024;

/// Whether a fix is a direct fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FixVerdict {
    Accepted(FixSize),
    /// The reason, for people.
    Refused(String),
}

/// The size of a fix, as git counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixSize {
    /// The changed files, sorted.
    files: Vec<String>,
    /// Added and removed lines.
    lines: u64,
}

impl FixVerdict {
    pub(crate) fn refusal(self) -> Option<String> {
        match self {
            Self::Accepted(_) => None,
            Self::Refused(reason) => Some(reason),
        }
    }
}

/// Why a check ended early.
enum FixError {
    Refused(String),
    Git(DeliveryError),
}

impl From<DeliveryError> for FixError {
    fn from(error: DeliveryError) -> Self {
        Self::Git(error)
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, FixError> {
    Err(FixError::Refused(reason.into()))
}

type DeclaredKinds<'a> = BTreeMap<&'a str, Vec<ChangeType>>;

impl Repo {
    /// Verifies the commits that a reviewer put on top of `from`, the commit under review.
    ///
    /// # Errors
    /// Those of git. A fix that is not a direct fix is not an error.
    pub(crate) async fn verify_direct_fix(
        &self,
        from: &CommitId,
        to: &CommitId,
        declared: &[DirectFix],
    ) -> Result<FixVerdict, DeliveryError> {
        let mut kinds = DeclaredKinds::new();
        for fix in declared {
            // As git prints paths.
            let path = fix.file.strip_prefix("./").unwrap_or(&fix.file);
            kinds.entry(path).or_default().push(fix.change_type);
        }
        match self.check_fix(from, to, &kinds).await {
            Ok(size) => Ok(FixVerdict::Accepted(size)),
            Err(FixError::Refused(reason)) => Ok(FixVerdict::Refused(reason)),
            Err(FixError::Git(error)) => Err(error),
        }
    }

    async fn check_fix(&self, from: &CommitId, to: &CommitId, kinds: &DeclaredKinds<'_>) -> Result<FixSize, FixError> {
        let steps = self.fix_commits(from, to).await?;
        // What one commit adds and the next one removes would still be in the history.
        for (before, after) in steps.iter().filter(|(before, after)| (before, after) != (from, to)) {
            self.check_fix_size(before, after, kinds).await.map_err(|error| match error {
                FixError::Refused(reason) => FixError::Refused(format!("in commit {}: {reason}", after.short())),
                FixError::Git(error) => FixError::Git(error),
            })?;
        }
        let size = self.check_fix_size(from, to, kinds).await?;
        if let Some(path) = kinds.keys().find(|path| !size.files.iter().any(|file| file == *path)) {
            return refuse(format!("`{}` is declared as fixed, but did not change", display_path(path)));
        }
        for file in &size.files {
            let hunks = self.file_hunks(from, to, file).await?;
            let allowed = kinds.get(file.as_str()).map(Vec::as_slice).unwrap_or_default();
            if let Err(reason) = change_kinds::check_declared_kinds(file, &hunks, allowed) {
                return refuse(format!("the change of `{}` does not match its kind: {reason}", display_path(file)));
            }
        }
        Ok(size)
    }

    /// The fix's commits as pairs of parent and commit, oldest first.
    async fn fix_commits(&self, from: &CommitId, to: &CommitId) -> Result<Vec<(CommitId, CommitId)>, FixError> {
        let operation = "read the commits of a fix";
        let range = format!("{from}..{to}");
        // One more than the limit shows that there are too many.
        let max_count = format!("--max-count={}", MAX_FIX_COMMITS + 1);
        let args = ["rev-list", "--parents", "--topo-order", &max_count, "--end-of-options", &range, "--"];
        let listed = self.git(operation, args).run().await?.trimmed_stdout();
        let mut steps = Vec::new();
        let mut wanted = to.clone();
        for line in listed.lines() {
            let ids: Result<Vec<CommitId>, _> = line.split(' ').map(str::parse).collect();
            let ids = ids.map_err(|_| unexpected_output(operation, line))?;
            match ids.as_slice() {
                [commit, parent] if *commit == wanted => {
                    steps.push((parent.clone(), commit.clone()));
                    wanted = parent.clone();
                }
                _ => return refuse("its history is not a line of commits on top of the one under review"),
            }
        }
        if steps.is_empty() {
            refuse("nothing was changed")
        } else if steps.len() > MAX_FIX_COMMITS {
            refuse(format!("it has more than {MAX_FIX_COMMITS} commits"))
        } else if wanted != *from {
            refuse("it does not begin at the commit under review")
        } else {
            steps.reverse();
            Ok(steps)
        }
    }

    /// Requires few enough changed lines in declared files, and no other change.
    async fn check_fix_size(
        &self,
        from: &CommitId,
        to: &CommitId,
        declared: &DeclaredKinds<'_>,
    ) -> Result<FixSize, FixError> {
        let operation = "read the files of a fix";
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none"];
        let command = self.git(operation, args).args(["--end-of-options", from.as_str(), to.as_str(), "--"]);
        let output = command.run().await?;
        let mut fields = output.nul_fields();
        let mut files = BTreeSet::new();
        while let Some(entry) = fields.next() {
            // `:100644 100644 <id> <id> M`, then the path.
            let entry = String::from_utf8_lossy(entry);
            let path = fields.next().ok_or_else(|| unexpected_output(operation, &entry))?;
            let shown = display_path(&String::from_utf8_lossy(path));
            let words: Vec<&str> = entry.trim_start_matches(':').split(' ').collect();
            let [before, after, _, _, status] = words[..] else {
                return Err(unexpected_output(operation, &entry).into());
            };
            match (status, before, after) {
                ("A", ..) => return refuse(format!("`{shown}` was added")),
                ("D", ..) => return refuse(format!("`{shown}` was deleted")),
                ("M", "100644", "100644") | ("M", "100755", "100755") => {}
                ("M", before, after) if before != after => {
                    return refuse(format!("the mode of `{shown}` was changed"));
                }
                _ => return refuse(format!("`{shown}` is not a regular file")),
            }
            match std::str::from_utf8(path) {
                Ok(path) if declared.contains_key(path) => files.insert(path.to_owned()),
                _ => return refuse(format!("`{shown}` was changed, but `direct_fixes` does not declare it")),
            };
        }
        if files.is_empty() {
            return refuse("nothing was changed");
        }
        let mut lines = 0;
        for stat in self.diff_stat(from, to).await? {
            let (Some(added), Some(removed)) = (stat.added, stat.removed) else {
                return refuse(format!("`{}` is a binary file", display_path(&stat.path)));
            };
            lines += added + removed;
        }
        if lines >= FIX_LINE_LIMIT {
            return refuse(format!(
                "{lines} lines were added or removed, but a direct fix has fewer than {FIX_LINE_LIMIT}"
            ));
        }
        Ok(FixSize { files: files.into_iter().collect(), lines })
    }

    async fn file_hunks(&self, from: &CommitId, to: &CommitId, file: &str) -> Result<Vec<Hunk>, FixError> {
        let args = ["diff-tree", "-p", "-U0", "--inter-hunk-context=0", "--text", "--no-renames", "--no-ext-diff"];
        let literal = format!(":(top,literal){file}");
        let command = self.git("read a fix", args).args(["--no-textconv", "--no-color", "--end-of-options"]);
        let command = command.args([from.as_str(), to.as_str(), "--", &literal]);
        let mut patch = Vec::new();
        let ended = command.run_streaming(|chunk| {
            patch.extend_from_slice(chunk);
            patch.len() <= MAX_PATCH_BYTES
        });
        if ended.await?.is_none() {
            return refuse(format!("the changed lines of `{}` are too long to check", display_path(file)));
        }
        let hunks = change_kinds::parse_hunks(&patch);
        let binary = hunks.iter().flat_map(|hunk| hunk.removed.iter().chain(&hunk.added)).any(|line| line.contains(&0));
        if binary { refuse(format!("`{}` is a binary file", display_path(file))) } else { Ok(hunks) }
    }
}

/// A path from the sandbox, safe to print.
fn display_path(path: &str) -> String {
    truncate(&sanitize(path).replace('\n', "\u{fffd}"), 200)
}

#[cfg(test)]
mod tests;
