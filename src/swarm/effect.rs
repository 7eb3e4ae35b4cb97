//! What the machine wants done. [`Effect::Persist`] is the first of its batch: the coordinator makes the event durable before
//! it carries out the rest.

use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::swarm::amp_intent::{AmpIntent, ReviewSpec};
use crate::swarm::announcement::Announcement;
use crate::swarm::swarm_outcome::SwarmOutcome;

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append the event just handled to the journal and sync it.
    Persist,
    Start {
        attempt: AttemptId,
        /// The stories to do, in order, each with its previous failure.
        stories: Vec<(StoryKey, Option<String>)>,
        guidance: Vec<String>,
        base: CommitId,
    },
    StartReview {
        attempt: AttemptId,
        review: Box<ReviewSpec>,
    },
    StartCheck {
        attempt: AttemptId,
        check: Box<CheckSpec>,
    },
    /// Pause the sandbox until the admin decides.
    Pause {
        attempt: AttemptId,
    },
    Unpause {
        attempt: AttemptId,
    },
    SendAmp(Box<AmpIntent>),
    /// Send SIGTERM.
    Terminate {
        attempt: AttemptId,
    },
    /// Send SIGKILL.
    Kill {
        attempt: AttemptId,
    },
    /// Inspect the container, and answer with [`Event::SandboxInspected`](super::Event::SandboxInspected).
    Inspect {
        attempt: AttemptId,
    },
    /// Bring the result, or whatever there is, from the work directory to the host.
    Collect {
        attempt: AttemptId,
        mode: CollectMode,
    },
    /// Merge the tip onto the integration branch of `file`. One at a time for a branch.
    Merge {
        attempt: AttemptId,
        /// The tasks file whose branch it is.
        file: u16,
        onto: CommitId,
        /// The commit of the branch that the work began with.
        base: CommitId,
        tip: CommitId,
        stories: Vec<StoryKey>,
    },
    /// Merge the candidates, one onto the other, onto the branch's head, and keep them under a ref. The branch stays. Without
    /// candidates, the only commit is the head itself.
    PrepareLanding {
        landing: u64,
        /// The tasks file whose branch it is.
        file: u16,
        onto: CommitId,
        candidates: Vec<CandidateSpec>,
        /// Otherwise the commits are the candidates' own tips.
        merge: bool,
    },
    /// Move the branch from `from` to the prepared commit `to`.
    MoveBranch {
        landing: u64,
        file: u16,
        from: CommitId,
        to: CommitId,
        stories: Vec<StoryKey>,
    },
    /// Remove the container, and the work directory unless `keep_work_dir`.
    Remove {
        attempt: AttemptId,
        /// Not all of it could be salvaged: the directory stays, and the user is told its name.
        keep_work_dir: bool,
    },
    Announce(Announcement),
    Finish(SwarmOutcome),
}

/// Finished work that is to land.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateSpec {
    pub attempt: AttemptId,
    /// The commit of the branch that the work began with.
    pub base: CommitId,
    pub tip: CommitId,
    pub stories: Vec<StoryKey>,
}

/// A commit whose checks are to run.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckSpec {
    pub commit: CommitId,
    /// The stories whose own checks run, beside those that all share.
    pub stories: Vec<StoryKey>,
    /// Shared verify commands that failed before anything was changed, and may fail.
    pub tolerated: Vec<String>,
}

/// A merge that the sandbox begins with, because it conflicted on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeSpec {
    /// The integration branch's commit.
    pub head: CommitId,
    /// The files that conflicted.
    pub paths: Vec<String>,
}

/// What to expect in a work directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectMode {
    /// The shim reported its completion: there is a result.
    Result,
    /// The shim died: there may be a result; if there is none, the depot salvages.
    Salvage,
}
