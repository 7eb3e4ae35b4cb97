//! What an agent that ended well left in the clone: is the repository whole, did only the assigned branch move, is there a
//! change, is it free of merge markers? What is uncommitted is committed.
//!
//! Used by `story.rs` between the agent and the checks. Must not: run anything of the agent's or of the repo's, or throw
//! anything away.

use std::collections::BTreeMap;

use super::clone::{CloneDir, GIT_FILE_MAX};
use super::git::{Git, GitError};
use super::markers;
use super::special;
use super::staging::{self, Embedded};
use crate::ids::CommitId;
use crate::verdict::{Cause, Evidence, Failure};

/// The most commits of one story that are listed in the result.
const COMMITS_LISTED: usize = 1000;
/// The most paths that evidence names.
const PATHS_NAMED: usize = 50;

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
    pub refs: BTreeMap<String, CommitId>,
    /// The message for what is uncommitted.
    pub message: String,
}

/// A story's commits, on the assigned branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The last.
    pub commit: CommitId,
    /// All, oldest first.
    pub commits: Vec<CommitId>,
}

/// Why what is there is not a story's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The cause.
    pub failure: Box<Failure>,
    /// Commits that only other refs have: to be salvaged too.
    pub beside: Vec<CommitId>,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { failure: Box::new(failure), beside: Vec::new() }
    }
}

impl From<GitError> for Fault {
    fn from(error: GitError) -> Self {
        git_failure(&error, "the clone cannot be read any more").into()
    }
}

/// The failure that a fault of git is, with what it kept from being done.
pub fn git_failure(error: &GitError, what: &str) -> Failure {
    let cause = match error {
        error if error.disk_full() => Cause::DiskFull,
        GitError::Halted { .. } => Cause::StoppedByUser,
        GitError::TimedOut { .. } => Cause::Timeout,
        _ => Cause::RepoDamaged,
    };
    let reason = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure::new(cause, format!("{what}: {error}{reason}"))
}

fn with_paths(cause: Cause, summary: String, mut paths: Vec<String>) -> Failure {
    paths.truncate(PATHS_NAMED);
    Failure { evidence: Evidence { paths, ..Evidence::from_summary(summary) }, ..Failure::new(cause, "") }
}

impl Examination {
    /// Checks that the repository is whole, that nothing but the assigned branch moved, and that HEAD is on it. Gives the
    /// branch's commit.
    pub fn tip(&self) -> Result<CommitId, Fault> {
        if let Some(damage) = self.clone.damage() {
            return Err(Failure::new(Cause::RepoDamaged, damage).into());
        }
        let head = special::read_text(&self.clone.git_dir().join("HEAD"), GIT_FILE_MAX).unwrap_or_default();
        self.clone.put_in_order()?;
        let refs = self.clone.refs()?;
        self.check_refs(head.trim_end(), &refs)
    }

    /// Commits what is there, if it can be a result.
    pub fn examine(&self) -> Result<Committed, Fault> {
        let tip = self.tip()?;
        let git = self.clone.git();
        let unmerged = unmerged_paths(&git)?;
        if !unmerged.is_empty() {
            let summary = "a merge was left unfinished: there are paths with conflicts".to_owned();
            return Err(with_paths(Cause::VerificationFailed, summary, unmerged).into());
        }
        let walked = special::in_work_tree(&self.clone.repo);
        if !walked.special.is_empty() {
            let paths = walked.special.iter().map(|path| self.clone.shown(path)).collect();
            let summary = "special files are where git reads its rules".to_owned();
            return Err(with_paths(Cause::VerificationFailed, summary, paths).into());
        }
        let staged = staging::stage_everything(&self.clone, &git, &self.start, Embedded::Report)?;
        if !staged.embedded.is_empty() {
            let summary = "there are git repositories inside the work tree, whose files would be lost".to_owned();
            return Err(with_paths(Cause::VerificationFailed, summary, staged.embedded).into());
        }
        if !staged.refused.is_empty() {
            let summary = "git does not take in every file of the work tree".to_owned();
            return Err(with_paths(Cause::VerificationFailed, summary, staged.refused).into());
        }
        if !staged.changed {
            return Err(Failure::new(Cause::NoChanges, "the tree is the same as at the story's start").into());
        }
        let committed = self.commit(&git, &tip)?;
        // The index is looked into for SHA-1 alone.
        let looked_into = self.start.as_str().len() == 40;
        if looked_into && !markers::possible(&self.clone.repo, &staged.files, &walked) {
            return Ok(committed);
        }
        let marked = marked_paths(&git, &self.start, &committed.commit)?;
        if !marked.is_empty() {
            return Err(with_paths(Cause::VerificationFailed, "merge markers were left in files".into(), marked).into());
        }
        Ok(committed)
    }

    /// Checks that nothing but the assigned branch moved, and that HEAD is on it. Gives the branch's commit.
    fn check_refs(&self, head: &str, refs: &BTreeMap<String, String>) -> Result<CommitId, Fault> {
        let own_business = |name: &str| {
            name == self.branch_ref
                || ["refs/stash", "refs/notes/", "refs/longshore/"].iter().any(|prefix| name.starts_with(prefix))
        };
        let mut moved = Vec::new();
        let mut beside = Vec::new();
        for (name, found) in refs.iter().filter(|(name, _)| !own_business(name)) {
            if self.refs.get(name).map(CommitId::as_str) != Some(found.as_str()) {
                moved.push(name.clone());
                beside.extend(self.commit_of(found));
            }
        }
        moved.extend(self.refs.keys().filter(|name| !own_business(name) && !refs.contains_key(*name)).cloned());
        if !moved.is_empty() {
            let summary = format!("refs other than `{}` were created, moved or deleted", self.branch_ref);
            let failure = Box::new(with_paths(Cause::BranchViolation, summary, moved));
            return Err(Fault { failure, beside });
        }
        let tip: Option<CommitId> = refs.get(&self.branch_ref).and_then(|id| id.parse().ok());
        let on_branch = head.strip_prefix("ref:").map(str::trim) == Some(self.branch_ref.as_str());
        match tip {
            Some(tip) if on_branch => Ok(tip),
            // A detached HEAD at the branch's own commit says nothing else than the branch.
            Some(tip) if head == tip.as_str() => {
                self.clone.write("HEAD", &format!("ref: {}\n", self.branch_ref))?;
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
    fn commit_of(&self, object: &str) -> Option<CommitId> {
        let found = self.clone.git().run(&["rev-parse", "--verify", "-q", &format!("{object}^{{commit}}")]).ok()?;
        found.text().parse().ok()
    }

    fn commit(&self, git: &Git, tip: &CommitId) -> Result<Committed, Fault> {
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
            return Ok(Committed { commits: vec![commit.clone()], commit });
        }
        let limit = format!("--max-count={COMMITS_LISTED}");
        let listed = git.run(&["rev-list", "--reverse", &limit, &format!("{}..{commit}", self.start)])?.text();
        Ok(Committed { commits: listed.lines().filter_map(|line| line.parse().ok()).collect(), commit })
    }
}

/// Paths that the index has in several versions.
fn unmerged_paths(git: &Git) -> Result<Vec<String>, GitError> {
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
fn marked_paths(git: &Git, start: &CommitId, end: &CommitId) -> Result<Vec<String>, GitError> {
    let pattern = "-G^(<<<<<<<|>>>>>>>) ";
    let common = ["--no-ext-diff", "--no-textconv", "--no-renames"];
    let mut args = vec!["diff"];
    args.extend(common);
    args.extend(["--name-only", "-z", pattern, start.as_str(), end.as_str()]);
    let candidates = git.run(&args)?.stdout;
    let mut marked = Vec::new();
    for path in candidates.split(|b| *b == 0).filter(|path| !path.is_empty()).take(PATHS_NAMED) {
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
