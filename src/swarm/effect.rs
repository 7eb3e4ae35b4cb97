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
        tip: CommitId,
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

/// What to expect in a work directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectMode {
    /// The shim reported its completion: there is a result.
    Result,
    /// The shim died: there may be a result; if there is none, the depot salvages.
    Salvage,
}
