//! What the machine wants said in AMP: who, to whom, about what, with which id. `coordinator/amp.rs` makes the messages of
//! them, with what the plan knows; the same word gives the same message, however often it is said.
//!
//! Times are in milliseconds since 1970; a message's is that of its id.

use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    AmpRole, DiffSummary, Escalation, MsgId, ReviewScope, ReviewVerdict, SubtaskCompletionStatus,
};
use crate::verdict::Failure;

/// Something to be said.
#[derive(Debug, Clone, PartialEq)]
pub enum AmpIntent {
    /// `task_dispatch` (01).
    Dispatch(DispatchIntent),
    /// `task_result` (02).
    Result(Box<ResultIntent>),
    /// `review_request` (03).
    ReviewRequest(Box<ReviewRequestIntent>),
    /// `review_verdict` (04).
    Verdict {
        /// Its id.
        id: MsgId,
        /// What was said before.
        refs: Vec<MsgId>,
        /// By when an ack is wanted, in seconds, where that is not the type's own time.
        ack_timeout_secs: Option<u32>,
        /// What it says.
        verdict: Box<ReviewVerdict>,
    },
    /// `escalation` (05).
    Escalation {
        /// Its id.
        id: MsgId,
        /// Who says it.
        from: AmpRole,
        /// What it says.
        escalation: Box<Escalation>,
        /// The failure that it is about, if it is one.
        failed_stories: Option<Box<FailedStories>>,
    },
    /// An ack.
    Ack {
        /// Of which message.
        of: MsgId,
        /// By whom.
        by: AmpRole,
        /// When.
        at_ms: u64,
        /// What the receiver adds.
        note: Option<String>,
    },
    /// The task's file in the SSOT.
    TaskUpdate(TaskUpdate),
}

/// Stories that failed in an attempt, maybe after they were said to be complete: that they do not merge shows later.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedStories {
    /// In which attempt.
    pub attempt: AttemptId,
    /// Which stories.
    pub stories: Vec<StoryKey>,
    /// Why.
    pub failure: Failure,
}

/// A dispatch.
#[derive(Debug, Clone, PartialEq)]
pub struct DispatchIntent {
    /// Its id.
    pub id: MsgId,
    /// The stories to be done.
    pub stories: Vec<StoryKey>,
    /// The attempt that does them; none for a dispatch from the admin to the coordinator.
    pub attempt: Option<AttemptId>,
    /// What the admin says; goes before the stories' own words.
    pub guidance: Vec<String>,
    /// What was said before.
    pub refs: Vec<MsgId>,
    /// By when an ack is wanted, in seconds, where that is not the type's own time.
    pub ack_timeout_secs: Option<u32>,
}

/// What came of a story in an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultIntent {
    /// Its id.
    pub id: MsgId,
    /// In which attempt.
    pub attempt: AttemptId,
    /// Which story.
    pub story: StoryKey,
    /// How far it got.
    pub status: SubtaskCompletionStatus,
    /// What the sandbox said of it, where it said something.
    pub result: Option<StoryResult>,
    /// Git's own count of what changed.
    pub diff: DiffSummary,
    /// The commit that it ends with.
    pub commit: Option<CommitId>,
    /// Why it is not complete.
    pub failure: Option<Failure>,
    /// What was said before.
    pub refs: Vec<MsgId>,
    /// By when an ack is wanted, in seconds, where that is not the type's own time.
    pub ack_timeout_secs: Option<u32>,
}

/// A review that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewRequestIntent {
    /// Its id.
    pub id: MsgId,
    /// The attempt that reviews.
    pub attempt: AttemptId,
    /// What it is to review.
    pub review: ReviewSpec,
    /// What was said before.
    pub refs: Vec<MsgId>,
    /// By when an ack is wanted, in seconds, where that is not the type's own time.
    pub ack_timeout_secs: Option<u32>,
}

/// What a reviewer is to review.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewSpec {
    /// The attempt whose work it is.
    pub reviewed_attempt: AttemptId,
    /// The stories that it lands.
    pub stories: Vec<StoryKey>,
    /// What the diff is against.
    pub base: CommitId,
    /// The commit under review.
    pub commit: CommitId,
    /// The dispatch that has the criteria.
    pub dispatch: MsgId,
    /// The result; the newest, where there are several stories.
    pub result: MsgId,
    /// All of it, or what is new.
    pub scope: ReviewScope,
    /// How often the task was rejected.
    pub reject_count: u32,
    /// What the admin said.
    pub guidance: Vec<String>,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskUpdate {
    /// Which.
    pub task: AssignmentId,
    /// A word: dispatched, in_progress, in_review, landing, landed, failed, suspended, ...
    pub status: &'static str,
    /// Its stories.
    pub stories: Vec<(StoryKey, StoryStatus)>,
    /// The newest words of it.
    pub progress: Option<String>,
    /// How often it was rejected.
    pub reject_count: u32,
    /// When.
    pub at_ms: u64,
}
