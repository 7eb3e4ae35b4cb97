//! Examines the clone of an agent that succeeded: the repository must be intact, only the assigned branch may have moved, and there
//! must be a change without merge markers. Uncommitted changes are committed, an unfinished merge with both parents.
//!
//! Used by `story.rs` between the agent and the checks, and by `review.rs`. Must not: run anything of the agent or the repo, or
//! delete anything.

use std::collections::BTreeMap;

use super::clone_dir::{CloneDir, MAX_GIT_FILE_BYTES};
use super::conflict_markers;
use super::git::{GitError, HardenedGit};
use super::merge_start::{StartedMerge, unmerged_paths};
use super::safe_fs;
use super::special_files;
use super::staging::{self, EmbeddedRepos, IndexState};
use super::story_failure::{MAX_NAMED_PATHS, StoryFailure};
use crate::ids::CommitId;
use crate::verdict::Cause;

/// The most commits of one story that the result lists.
const MAX_LISTED_COMMITS: usize = 1000;

/// The clone, and the state to compare it with.
#[derive(Debug, Clone)]
pub struct Examination {
    pub clone: CloneDir,
    /// The assigned branch's full ref name.
    pub branch_ref: String,
    /// The commit at which the story started.
    pub start: CommitId,
    /// All refs at that time.
    pub expected_refs: BTreeMap<String, CommitId>,
    /// The merge to finish.
    pub merge: Option<StartedMerge>,
    /// The message for the commit of uncommitted changes.
    pub message: String,
}

/// A story's commits, on the assigned branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedWork {
    /// The newest commit.
    pub commit: CommitId,
    /// All commits, oldest first.
    pub commits: Vec<CommitId>,
}

impl Examination {
    /// Checks that the repository is intact, that only the assigned branch moved, and that HEAD is on it. Returns the branch's
    /// commit.
    pub fn check_tip(&self) -> Result<CommitId, StoryFailure> {
        if let Some(damage) = self.clone.find_damage() {
            return Err(StoryFailure::new(Cause::RepoDamaged, damage));
        }
        let head = safe_fs::read_text(&self.clone.git_dir().join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        self.clone.restore_git_files()?;
        let refs = self.clone.list_refs()?;
        self.check_refs(head.trim_end(), &refs)
    }

    /// Commits the work, unless it cannot be a result.
    pub fn examine(&self) -> Result<CommittedWork, StoryFailure> {
        // Checking the tip ends the merge.
        let in_progress = self.merge.as_ref().is_some_and(|merge| merge.is_in_progress(&self.clone));
        let tip = self.check_tip()?;
        let git = self.clone.git();
        let unmerged = unmerged_paths(&git)?;
        let merge_parent = self.merge_parent(&git, &tip, in_progress, &unmerged)?;
        if self.merge.is_none() && !unmerged.is_empty() {
            let summary = "an unfinished merge has conflicts";
            return Err(StoryFailure::with_paths(Cause::VerificationFailed, summary, unmerged));
        }
        let scan = special_files::scan_work_tree(&self.clone.repo);
        if !scan.special.is_empty() {
            let paths = scan.special.iter().map(|path| self.clone.relative_path(path)).collect();
            let summary = "files that git reads as rules are not regular files";
            return Err(StoryFailure::with_paths(Cause::VerificationFailed, summary, paths));
        }
        let staged = staging::stage_all(&self.clone, &git, &self.start, EmbeddedRepos::Report)?;
        if !staged.embedded.is_empty() {
            let summary = "the work tree contains git repositories, whose files would be lost";
            return Err(StoryFailure::with_paths(Cause::VerificationFailed, summary, staged.embedded));
        }
        if !staged.refused.is_empty() {
            let summary = "git refuses to add files of the work tree";
            return Err(StoryFailure::with_paths(Cause::VerificationFailed, summary, staged.refused));
        }
        if !staged.changed && self.merge.is_none() {
            return Err(StoryFailure::new(Cause::NoChanges, "the story changed nothing"));
        }
        let committed = self.commit_work(&git, &tip, merge_parent)?;
        // The shortcut reads the index, which works for SHA-1 only.
        let is_sha1 = self.start.as_str().len() == 40;
        if is_sha1 && !conflict_markers::may_have_markers(&self.clone.repo, &staged.files, &scan) {
            return Ok(committed);
        }
        let mut marked = conflict_marker_paths(&git, &self.start, &committed.commit)?;
        if let Some(merge) = self.merge.as_ref().filter(|_| !marked.is_empty()) {
            // Text that only looks like markers may come from the other side.
            let new = conflict_marker_paths(&git, &merge.head, &committed.commit)?;
            marked.retain(|path| new.contains(path));
        }
        if !marked.is_empty() {
            let cause = if self.merge.is_some() { Cause::Conflict } else { Cause::VerificationFailed };
            return Err(StoryFailure::with_paths(cause, "files contain merge markers", marked));
        }
        Ok(committed)
    }

    /// The second parent of the commit of uncommitted changes, with a merge to finish: its head, unless the agent committed the
    /// merge. Whatever else the agent did to it must have kept its result.
    fn merge_parent(
        &self,
        git: &HardenedGit,
        tip: &CommitId,
        in_progress: bool,
        unmerged: &[String],
    ) -> Result<Option<CommitId>, StoryFailure> {
        let Some(merge) = &self.merge else { return Ok(None) };
        let untouched = merge.untouched_paths(&self.clone, unmerged);
        if !untouched.is_empty() {
            return Err(StoryFailure::with_paths(Cause::Conflict, "conflicts are not resolved", untouched));
        }
        let has_merged = is_ancestor(git, &merge.head, tip)?;
        if !has_merged && !in_progress {
            let summary = format!("the merge was given up: {} is not merged", merge.head.short());
            return Err(StoryFailure::with_paths(Cause::Conflict, summary, merge.conflicts.clone()));
        }
        // Rebased work gets both histories too.
        let needs_parent = !has_merged || !is_ancestor(git, &self.start, tip)?;
        Ok(needs_parent.then(|| merge.head.clone()))
    }

    /// Checks that only the assigned branch moved, and that HEAD is on it. Returns the branch's commit.
    fn check_refs(&self, head: &str, refs: &BTreeMap<String, String>) -> Result<CommitId, StoryFailure> {
        let may_change = |name: &str| {
            name == self.branch_ref
                || ["refs/stash", "refs/notes/", "refs/longshore/"].iter().any(|prefix| name.starts_with(prefix))
        };
        let mut moved = Vec::new();
        let mut stray_commits = Vec::new();
        for (name, found) in refs.iter().filter(|(name, _)| !may_change(name)) {
            if self.expected_refs.get(name).map(CommitId::as_str) != Some(found.as_str()) {
                moved.push(name.clone());
                stray_commits.extend(self.resolve_commit(found));
            }
        }
        moved.extend(self.expected_refs.keys().filter(|name| !may_change(name) && !refs.contains_key(*name)).cloned());
        if !moved.is_empty() {
            let summary = format!("refs other than `{}` were created, moved or deleted", self.branch_ref);
            return Err(StoryFailure {
                stray_commits,
                ..StoryFailure::with_paths(Cause::BranchViolation, summary, moved)
            });
        }
        let tip: Option<CommitId> = refs.get(&self.branch_ref).and_then(|id| id.parse().ok());
        let on_branch = head.strip_prefix("ref:").map(str::trim) == Some(self.branch_ref.as_str());
        match tip {
            Some(tip) if on_branch => Ok(tip),
            // A detached HEAD at the branch's own commit is as good as the branch.
            Some(tip) if head == tip.as_str() => {
                self.clone.write_git_file("HEAD", &format!("ref: {}\n", self.branch_ref))?;
                Ok(tip)
            }
            Some(_) => {
                let summary = format!("HEAD is at `{}` instead of `{}`", head.trim(), self.branch_ref);
                Err(StoryFailure::new(Cause::BranchViolation, summary))
            }
            None => Err(StoryFailure::new(Cause::RepoDamaged, format!("`{}` is missing", self.branch_ref))),
        }
    }

    /// The commit of a ref's object, which may be a tag.
    fn resolve_commit(&self, object: &str) -> Option<CommitId> {
        let found = self.clone.git().run(&["rev-parse", "--verify", "-q", &format!("{object}^{{commit}}")]).ok()?;
        found.text().parse().ok()
    }

    fn commit_work(
        &self,
        git: &HardenedGit,
        tip: &CommitId,
        merge_parent: Option<CommitId>,
    ) -> Result<CommittedWork, StoryFailure> {
        // If the agent rewrote earlier history, its work becomes one commit on top of the start.
        let rewritten = *tip != self.start && !is_ancestor(git, &self.start, tip)?;
        let parent = if rewritten { &self.start } else { tip };
        // Without a merge, the caller has found that the index differs from the start.
        let is_changed = *parent == self.start && self.merge.is_none();
        let state = if is_changed { IndexState::Changed } else { IndexState::Unknown };
        let parents: Vec<CommitId> = [parent.clone()].into_iter().chain(merge_parent).collect();
        let created = staging::commit_index(git, &parents, &self.message, state)?;
        let commit = created.unwrap_or_else(|| parent.clone());
        if commit != *tip {
            git.run(&["update-ref", "--no-deref", &self.branch_ref, commit.as_str()])?;
        }
        if *parent == self.start && commit != self.start {
            return Ok(CommittedWork { commits: vec![commit.clone()], commit });
        }
        let limit = format!("--max-count={MAX_LISTED_COMMITS}");
        let range = format!("{}..{commit}", self.start);
        let other_side = self.merge.as_ref().map(|merge| format!("^{}", merge.head));
        let args: Vec<&str> =
            ["rev-list", "--reverse", &limit, &range].into_iter().chain(other_side.as_deref()).collect();
        let listed = git.run(&args)?.text();
        Ok(CommittedWork { commits: listed.lines().filter_map(|line| line.parse().ok()).collect(), commit })
    }
}

/// Whether a commit is an ancestor of another, or the same.
fn is_ancestor(git: &HardenedGit, ancestor: &CommitId, of: &CommitId) -> Result<bool, GitError> {
    Ok(git.output(&["merge-base", "--is-ancestor", ancestor.as_str(), of.as_str()], None)?.success)
}

/// The files that gained both the first and the last marker of a conflict.
fn conflict_marker_paths(git: &HardenedGit, start: &CommitId, end: &CommitId) -> Result<Vec<String>, GitError> {
    let pattern = "-G^(<<<<<<<|>>>>>>>) ";
    let common = ["--no-ext-diff", "--no-textconv", "--no-renames"];
    let mut args = vec!["diff"];
    args.extend(common);
    args.extend(["--name-only", "-z", pattern, start.as_str(), end.as_str()]);
    let candidates = git.run(&args)?.stdout;
    let mut marked = Vec::new();
    for path in candidates.split(|b| *b == 0).filter(|path| !path.is_empty()).take(MAX_NAMED_PATHS) {
        let path = String::from_utf8_lossy(path).into_owned();
        let literal = format!(":(top,literal){path}");
        let mut args = vec!["diff"];
        args.extend(common);
        args.extend(["-U0", start.as_str(), end.as_str(), "--", &literal]);
        let changed = git.run(&args)?.stdout;
        let gained = |marker: &[u8]| changed.split(|b| *b == b'\n').any(|line| line.starts_with(marker));
        if gained(b"+<<<<<<< ") && gained(b"+>>>>>>> ") {
            marked.push(path);
        }
    }
    Ok(marked)
}
