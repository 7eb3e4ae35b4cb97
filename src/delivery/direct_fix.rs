//! Whether what a reviewer mended is what a reviewer may mend (AMP 04, "Direct Fix Scope"): typo, lint, white space or the
//! order of imports, in fewer than five lines. Git says what changed; what the reviewer says of it has to agree.
//!
//! How it is counted: a line is counted where it is added and where it is removed, as git counts, so a line that was changed
//! counts twice, and a fix has at most two of those. The fix as a whole is counted, not each file of it: four lines in each of
//! twenty files are no direct fix. The reviewer's own `diff_lines` decides nothing.
//!
//! | what | refused |
//! |---|---|
//! | commits | none, more than four, a merge, one that would be refused for its size or its files |
//! | files | added, deleted, renamed, of another mode or kind, links, submodules, binary ones, not declared, declared and not changed |
//! | lines | five or more, added and removed ones together |
//! | kinds | a declared one that does not explain the change (`fix/kinds.rs`) |
//!
//! Called by `coordinator/review.rs` once the commits are on the host. Must not: believe the sandbox.

mod change_kinds;

use std::collections::{BTreeMap, BTreeSet};

use self::change_kinds::Hunk;
use super::error::DeliveryError;
use super::git::{sanitize, truncate, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;
use crate::protocol::amp::message::{ChangeType, DirectFix};

/// A fix has fewer lines than this (spec: "must <5").
pub const FIX_LINE_LIMIT: u64 = 5;
/// The most commits of a fix. Each changes a line at least.
const MAX_FIX_COMMITS: usize = 4;
/// The most bytes of a patch of one file. Lines can be long.
const MAX_PATCH_BYTES: usize = 1024 * 1024;

/// A fix that is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFix {
    /// The files that it changes, sorted.
    pub files: Vec<String>,
    /// Added and removed lines, as git counts them.
    pub lines: u64,
}

/// Why a fix is none.
type FixRefusal = String;

impl Repo {
    /// Looks at what a reviewer put on top of `from`, the commit under review. The inner error says, for people, why it is not a
    /// direct fix; the outer one, that git could not be asked.
    pub async fn verify_direct_fix(
        &self,
        from: &CommitId,
        to: &CommitId,
        declared: &[DirectFix],
    ) -> Result<Result<VerifiedFix, FixRefusal>, DeliveryError> {
        let mut kinds: BTreeMap<&str, Vec<ChangeType>> = BTreeMap::new();
        for fix in declared {
            kinds.entry(declared_path(fix)).or_default().push(fix.change_type);
        }
        let steps = match self.fix_commits(from, to).await? {
            Ok(steps) => steps,
            Err(why) => return Ok(Err(why)),
        };
        // What is added in one commit and gone in the next would be in the history all the same.
        for (before, after) in steps.iter().filter(|(before, after)| (before, after) != (from, to)) {
            if let Err(why) = self.check_fix_size(before, after, &kinds).await? {
                return Ok(Err(format!("in commit {}: {why}", after.short())));
            }
        }
        let seen = match self.check_fix_size(from, to, &kinds).await? {
            Ok(seen) => seen,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(path) = kinds.keys().find(|path| !seen.files.iter().any(|file| file == *path)) {
            return Ok(Err(format!("`{}` is said to be mended, and is as it was", display_path(path))));
        }
        for file in &seen.files {
            let hunks = match self.file_hunks(from, to, file).await? {
                Ok(hunks) => hunks,
                Err(why) => return Ok(Err(why)),
            };
            let allowed = kinds.get(file.as_str()).map(Vec::as_slice).unwrap_or_default();
            if let Err(why) = change_kinds::check_declared_kinds(file, &hunks, allowed) {
                return Ok(Err(format!("the change of `{}` is not what it is said to be: {why}", display_path(file))));
            }
        }
        Ok(Ok(seen))
    }

    /// The fix's commits as pairs of what was before and after, oldest first.
    async fn fix_commits(
        &self,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Result<Vec<(CommitId, CommitId)>, FixRefusal>, DeliveryError> {
        let operation = "read the commits of a fix";
        let range = format!("{from}..{to}");
        // One more than there may be says that there are too many.
        let most = format!("--max-count={}", MAX_FIX_COMMITS + 1);
        let args = ["rev-list", "--parents", "--topo-order", &most, "--end-of-options", &range, "--"];
        let listed = self.git().new_command(operation, args).run().await?.trimmed_stdout();
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
                _ => return Ok(Err("its history is not a line of commits on top of the one under review".to_owned())),
            }
        }
        Ok(if steps.is_empty() {
            Err("nothing was changed".to_owned())
        } else if steps.len() > MAX_FIX_COMMITS {
            Err(format!("it has more than {MAX_FIX_COMMITS} commits"))
        } else if wanted != *from {
            Err("it does not begin at the commit under review".to_owned())
        } else {
            steps.reverse();
            Ok(steps)
        })
    }

    /// Whether few enough lines of declared files changed, and nothing else did.
    async fn check_fix_size(
        &self,
        from: &CommitId,
        to: &CommitId,
        declared: &BTreeMap<&str, Vec<ChangeType>>,
    ) -> Result<Result<VerifiedFix, FixRefusal>, DeliveryError> {
        let operation = "look at the files of a fix";
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none"];
        let call = self.git().new_command(operation, args).args(["--end-of-options", from.as_str(), to.as_str(), "--"]);
        let output = call.run().await?;
        let mut fields = output.stdout.split(|&byte| byte == 0).filter(|field| !field.is_empty());
        let mut files = BTreeSet::new();
        while let Some(entry) = fields.next() {
            // `:100644 100644 <id> <id> M`, then the path.
            let entry = String::from_utf8_lossy(entry);
            let path = fields.next().ok_or_else(|| unexpected_output(operation, &entry))?;
            let named = display_path(&String::from_utf8_lossy(path));
            let words: Vec<&str> = entry.trim_start_matches(':').split(' ').collect();
            let [before, after, _, _, status] = words[..] else { return Err(unexpected_output(operation, &entry)) };
            let why = match (status, before, after) {
                ("A", ..) => Some(format!("`{named}` was added")),
                ("D", ..) => Some(format!("`{named}` was deleted")),
                ("M", "100644", "100644") | ("M", "100755", "100755") => None,
                ("M", before, after) if before != after => Some(format!("the mode of `{named}` was changed")),
                _ => Some(format!("`{named}` is no plain file")),
            };
            if let Some(why) = why {
                return Ok(Err(why));
            }
            match std::str::from_utf8(path) {
                Ok(path) if declared.contains_key(path) => files.insert(path.to_owned()),
                _ => return Ok(Err(format!("`{named}` was changed, and `direct_fixes` does not say so"))),
            };
        }
        if files.is_empty() {
            return Ok(Err("nothing was changed".to_owned()));
        }
        let mut lines = 0;
        for stat in self.diff_stat(from, to).await? {
            let (Some(added), Some(removed)) = (stat.added, stat.removed) else {
                return Ok(Err(format!("`{}` is a binary file", display_path(&stat.path))));
            };
            lines += added + removed;
        }
        if lines >= FIX_LINE_LIMIT {
            return Ok(Err(format!(
                "{lines} lines were added or removed, and a direct fix has fewer than {FIX_LINE_LIMIT}"
            )));
        }
        Ok(Ok(VerifiedFix { files: files.into_iter().collect(), lines }))
    }

    /// What changed in one file.
    async fn file_hunks(
        &self,
        from: &CommitId,
        to: &CommitId,
        file: &str,
    ) -> Result<Result<Vec<Hunk>, FixRefusal>, DeliveryError> {
        let args = ["diff-tree", "-p", "-U0", "--inter-hunk-context=0", "--text", "--no-renames", "--no-ext-diff"];
        let literal = format!(":(top,literal){file}");
        let call = self.git().new_command("read a fix", args).args(["--no-textconv", "--no-color", "--end-of-options"]);
        let call = call.args([from.as_str(), to.as_str(), "--", &literal]);
        let mut patch = Vec::new();
        let ended = call.run_streaming(|chunk| {
            patch.extend_from_slice(chunk);
            patch.len() <= MAX_PATCH_BYTES
        });
        if ended.await?.is_none() {
            return Ok(Err(format!("the changed lines of `{}` are too long to be looked at", display_path(file))));
        }
        let hunks = change_kinds::parse_hunks(&patch);
        let binary = hunks.iter().flat_map(|hunk| hunk.removed.iter().chain(&hunk.added)).any(|line| line.contains(&0));
        Ok(if binary { Err(format!("`{}` is a binary file", display_path(file))) } else { Ok(hunks) })
    }
}

/// The declared path, as git writes it.
fn declared_path(fix: &DirectFix) -> &str {
    fix.file.strip_prefix("./").unwrap_or(&fix.file)
}

/// A path of the sandbox's, fit to be shown.
fn display_path(path: &str) -> String {
    truncate(&sanitize(path).replace('\n', "\u{fffd}"), 200)
}

#[cfg(test)]
mod tests;
