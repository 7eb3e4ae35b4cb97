//! The state of a landing, and the small types that it leaves with an assignment. `landing.rs` has the rules.

use std::collections::BTreeMap;

use crate::ids::{CommitId, StoryId};
use crate::swarm::event::{CheckOutcome, CheckableCommit};
use crate::swarm::index::{AttemptIndex, BranchIndex};
use crate::verdict::{Cause, CriterionResult, Failure};

/// A landing in progress.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Landing {
    pub(super) purpose: LandingPurpose,
    pub(super) branch: BranchIndex,
    /// The tasks file of the candidates.
    pub(super) file: u16,
    pub(super) candidates: Vec<AttemptIndex>,
    pub(super) stage: LandingStage,
    /// The branch's head that the candidates were merged onto.
    pub(super) onto: CommitId,
    pub(super) prepared: Vec<CheckableCommit>,
    /// This many candidates are known to pass together.
    pub(super) passed: usize,
    pub(super) failed: Option<FailedPrefix>,
    /// The results of the candidates' criteria, from the checks that passed.
    pub(super) criteria: BTreeMap<StoryId, Vec<CriterionResult>>,
    /// The tolerated commands that still failed in the newest check that passed; `None` if none ran.
    pub(super) still_failing: Option<Vec<String>>,
    /// The check sandbox that runs.
    pub(super) check: Option<AttemptIndex>,
    pub(super) machinery_failures: u32,
    pub(super) branch_moves: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LandingPurpose {
    Base,
    Story,
    Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LandingStage {
    Preparing,
    /// So many of the candidates are checked together.
    Checking {
        count: usize,
    },
    /// The only candidate failed: the head that it was merged onto is checked.
    CheckingHead,
    Moving,
}

/// This many candidates fail together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FailedPrefix {
    pub(super) count: usize,
    pub(super) outcome: CheckOutcome,
}

/// The prepared commit on which a story failed its checks; its next attempt goes on from there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReworkBase {
    pub(super) commit: CommitId,
    /// The branch's head in it.
    pub(super) onto: CommitId,
}

impl Landing {
    pub(super) fn new(
        purpose: LandingPurpose,
        branch: BranchIndex,
        file: u16,
        candidates: Vec<AttemptIndex>,
        onto: CommitId,
    ) -> Self {
        Self {
            purpose,
            branch,
            file,
            candidates,
            stage: LandingStage::Preparing,
            onto,
            prepared: Vec::new(),
            passed: 0,
            failed: None,
            criteria: BTreeMap::new(),
            still_failing: None,
            check: None,
            machinery_failures: 0,
            branch_moves: 0,
        }
    }
}

/// A merge that an assignment's next attempt begins with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PendingMerge {
    /// The story's own commit.
    pub(super) tip: CommitId,
    pub(super) paths: Vec<String>,
}

/// The failure of work that does not merge.
pub(super) fn conflict_failure(paths: &[String]) -> Failure {
    let conflicts = match paths {
        [] => String::new(),
        [path] => format!(": conflict in `{path}`"),
        [path, rest @ ..] => format!(": conflicts in `{path}` and {} more", rest.len()),
    };
    let summary = format!("the commits do not merge onto the integration branch{conflicts}");
    let mut failure = Failure::new(Cause::Conflict, summary);
    failure.evidence.paths = paths.to_vec();
    failure
}
