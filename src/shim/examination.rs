//! What an agent that ended well left in the clone: is the repository whole, did only the assigned branch move, is there a
//! change, is it free of merge markers? What is uncommitted is committed.
//!
//! Used by `story.rs` between the agent and the checks. Must not: run anything of the agent's or of the repo's, or throw
//! anything away.

use std::collections::BTreeMap;

use super::clone_dir::{CloneDir, MAX_GIT_FILE_BYTES};
use super::conflict_markers;
use super::git::{GitError, HardenedGit};
use super::safe_fs;
use super::staging::{self, EmbeddedRepos};
use crate::ids::CommitId;
use crate::verdict::{Cause, Evidence, Failure};

/// The most commits of one story that are listed in the result.
const MAX_LISTED_COMMITS: usize = 1000;
/// The most paths that evidence names.
const MAX_NAMED_PATHS: usize = 50;

/// What to compare with.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The clone.
    pub clone: CloneDir,
    /// The assigned branch's full ref name.
    pub branch_ref: String,
    /// The commit that the story began at.
    pub start: CommitId,
    /// All refs as they were then.
    pub expected_refs: BTreeMap<String, CommitId>,
    /// The message for what is uncommitted.
    pub message: String,
}

/// A story's commits, on the assigned branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedWork {
    /// The last.
    pub commit: CommitId,
    /// All, oldest first.
    pub commits: Vec<CommitId>,
}

/// Why what is there is not a story's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryFailure {
    /// The cause.
    pub failure: Box<Failure>,
    /// Commits that only other refs have: to be salvaged too.
    pub stray_commits: Vec<CommitId>,
}

impl From<Failure> for StoryFailure {
    fn from(failure: Failure) -> Self {
        Self { failure: Box::new(failure), stray_commits: Vec::new() }
    }
}

impl From<GitError> for StoryFailure {
    fn from(error: GitError) -> Self {
        git_failure(&error, "the clone cannot be read any more").into()
    }
}

/// The failure that a fault of git is, with what it kept from being done.
pub fn git_failure(error: &GitError, what: &str) -> Failure {
    let cause = match error {
        error if error.is_disk_full() => Cause::DiskFull,
        GitError::Stopped { .. } => Cause::StoppedByUser,
        GitError::TimedOut { .. } => Cause::Timeout,
        _ => Cause::RepoDamaged,
    };
    let reason = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure::new(cause, format!("{what}: {error}{reason}"))
}

fn failure_with_paths(cause: Cause, summary: String, mut paths: Vec<String>) -> Failure {
    paths.truncate(MAX_NAMED_PATHS);
    Failure { evidence: Evidence { paths, ..Evidence::from_summary(summary) }, ..Failure::new(cause, "") }
}

impl Examination {
    /// Checks that the repository is whole, that nothing but the assigned branch moved, and that HEAD is on it. Gives the
    /// branch's commit.
    pub fn check_tip(&self) -> Result<CommitId, StoryFailure> {
        if let Some(damage) = self.clone.find_damage() {
            return Err(Failure::new(Cause::RepoDamaged, damage).into());
        }
        let head = safe_fs::read_text(&self.clone.git_dir().join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        self.clone.restore_git_files()?;
        let refs = self.clone.list_refs()?;
        self.check_refs(head.trim_end(), &refs)
    }

    /// Commits what is there, if it can be a result.
    pub fn examine(&self) -> Result<CommittedWork, StoryFailure> {
        let tip = self.check_tip()?;
        let git = self.clone.git();
        let unmerged = unmerged_paths(&git)?;
        if !unmerged.is_empty() {
            let summary = "a merge was left unfinished: there are paths with conflicts".to_owned();
            return Err(failure_with_paths(Cause::VerificationFailed, summary, unmerged).into());
        }
        let walked = safe_fs::scan_work_tree(&self.clone.repo);
        if !walked.special.is_empty() {
            let paths = walked.special.iter().map(|path| self.clone.relative_path(path)).collect();
            let summary = "special files are where git reads its rules".to_owned();
            return Err(failure_with_paths(Cause::VerificationFailed, summary, paths).into());
        }
        let staged = staging::stage_all(&self.clone, &git, &self.start, EmbeddedRepos::Report)?;
        if !staged.embedded.is_empty() {
            let summary = "there are git repositories inside the work tree, whose files would be lost".to_owned();
            return Err(failure_with_paths(Cause::VerificationFailed, summary, staged.embedded).into());
        }
        if !staged.refused.is_empty() {
            let summary = "git does not take in every file of the work tree".to_owned();
            return Err(failure_with_paths(Cause::VerificationFailed, summary, staged.refused).into());
        }
        if !staged.changed {
            return Err(Failure::new(Cause::NoChanges, "the tree is the same as at the story's start").into());
        }
        let committed = self.commit_work(&git, &tip)?;
        // The index is looked into for SHA-1 alone.
        let looked_into = self.start.as_str().len() == 40;
        if looked_into && !conflict_markers::may_have_markers(&self.clone.repo, &staged.files, &walked) {
            return Ok(committed);
        }
        let marked = conflict_marker_paths(&git, &self.start, &committed.commit)?;
        if !marked.is_empty() {
            return Err(failure_with_paths(
                Cause::VerificationFailed,
                "merge markers were left in files".into(),
                marked,
            )
            .into());
        }
        Ok(committed)
    }

    /// Checks that nothing but the assigned branch moved, and that HEAD is on it. Gives the branch's commit.
    fn check_refs(&self, head: &str, refs: &BTreeMap<String, String>) -> Result<CommitId, StoryFailure> {
        let own_business = |name: &str| {
            name == self.branch_ref
                || ["refs/stash", "refs/notes/", "refs/longshore/"].iter().any(|prefix| name.starts_with(prefix))
        };
        let mut moved = Vec::new();
        let mut beside = Vec::new();
        for (name, found) in refs.iter().filter(|(name, _)| !own_business(name)) {
            if self.expected_refs.get(name).map(CommitId::as_str) != Some(found.as_str()) {
                moved.push(name.clone());
                beside.extend(self.resolve_commit(found));
            }
        }
        moved
            .extend(self.expected_refs.keys().filter(|name| !own_business(name) && !refs.contains_key(*name)).cloned());
        if !moved.is_empty() {
            let summary = format!("refs other than `{}` were created, moved or deleted", self.branch_ref);
            let failure = Box::new(failure_with_paths(Cause::BranchViolation, summary, moved));
            return Err(StoryFailure { failure, stray_commits: beside });
        }
        let tip: Option<CommitId> = refs.get(&self.branch_ref).and_then(|id| id.parse().ok());
        let on_branch = head.strip_prefix("ref:").map(str::trim) == Some(self.branch_ref.as_str());
        match tip {
            Some(tip) if on_branch => Ok(tip),
            // A detached HEAD at the branch's own commit says nothing else than the branch.
            Some(tip) if head == tip.as_str() => {
                self.clone.write_git_file("HEAD", &format!("ref: {}\n", self.branch_ref))?;
                Ok(tip)
            }
            Some(_) => {
                let summary = format!("HEAD was left at `{}` instead of `{}`", head.trim(), self.branch_ref);
                Err(Failure::new(Cause::BranchViolation, summary).into())
            }
            None => Err(Failure::new(Cause::RepoDamaged, format!("`{}` is gone", self.branch_ref)).into()),
        }
    }

    /// The commit behind a ref's object, which may be a tag.
    fn resolve_commit(&self, object: &str) -> Option<CommitId> {
        let found = self.clone.git().run(&["rev-parse", "--verify", "-q", &format!("{object}^{{commit}}")]).ok()?;
        found.text().parse().ok()
    }

    fn commit_work(&self, git: &HardenedGit, tip: &CommitId) -> Result<CommittedWork, StoryFailure> {
        // Where the agent rewrote what was there before it, its work is put on top of the start in one commit.
        let rewritten = *tip != self.start
            && !git.output(&["merge-base", "--is-ancestor", self.start.as_str(), tip.as_str()], None)?.success;
        let parent = if rewritten { &self.start } else { tip };
        // The tree is another than the start's: who calls this has compared them.
        let differs = (*parent == self.start).then_some(true);
        let made = staging::commit_index(git, std::slice::from_ref(parent), &self.message, differs)?;
        let commit = made.unwrap_or_else(|| parent.clone());
        if commit != *tip {
            git.run(&["update-ref", "--no-deref", &self.branch_ref, commit.as_str()])?;
        }
        if *parent == self.start && commit != self.start {
            return Ok(CommittedWork { commits: vec![commit.clone()], commit });
        }
        let limit = format!("--max-count={MAX_LISTED_COMMITS}");
        let listed = git.run(&["rev-list", "--reverse", &limit, &format!("{}..{commit}", self.start)])?.text();
        Ok(CommittedWork { commits: listed.lines().filter_map(|line| line.parse().ok()).collect(), commit })
    }
}

/// Paths that the index has in several versions.
fn unmerged_paths(git: &HardenedGit) -> Result<Vec<String>, GitError> {
    let listed = git.output(&["ls-files", "-u", "-z"], None)?;
    if !listed.success {
        // A broken index is mended by the staging.
        return Ok(Vec::new());
    }
    let mut paths: Vec<String> = listed
        .stdout
        .split(|b| *b == 0)
        .filter_map(|entry| String::from_utf8_lossy(entry).split_once('\t').map(|(_, path)| path.to_owned()))
        .collect();
    paths.dedup();
    Ok(paths)
}

/// Files that gained both the first and the last marker of a conflict.
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
