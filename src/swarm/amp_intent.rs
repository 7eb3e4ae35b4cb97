//! The AMP messages that the machine wants sent. `coordinator/amp/composer.rs` composes them with what the plan knows; the same intent
//! always gives the same message.
//!
//! Times are in milliseconds since 1970; a message's time is that of its id.

use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    AmpRole, DiffSummary, Escalation, MsgId, ReviewScope, ReviewVerdict, SubtaskCompletionStatus,
};
use crate::verdict::Failure;

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
        id: MsgId,
        refs: Vec<MsgId>,
        /// The ack timeout, if it is not the type's own.
        ack_timeout_secs: Option<u32>,
        verdict: Box<ReviewVerdict>,
    },
    /// `escalation` (05).
    Escalation {
        id: MsgId,
        from: AmpRole,
        escalation: Box<Escalation>,
        /// The failure that it is about, if any.
        failed_stories: Option<Box<FailedStories>>,
    },
    Ack {
        of: MsgId,
        by: AmpRole,
        at_ms: u64,
        note: Option<String>,
    },
    /// A new version of the task's file in the SSOT.
    TaskUpdate(TaskUpdate),
}

/// Stories that failed in an attempt, possibly after they were reported as complete: a merge conflict shows later.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedStories {
    pub attempt: AttemptId,
    pub stories: Vec<StoryKey>,
    pub failure: Failure,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DispatchIntent {
    pub id: MsgId,
    pub stories: Vec<StoryKey>,
    /// The attempt that does them; `None` for a dispatch from the admin to the coordinator.
    pub attempt: Option<AttemptId>,
    /// The admin's guidance, which goes before the stories' own text.
    pub guidance: Vec<String>,
    pub refs: Vec<MsgId>,
    /// The ack timeout, if it is not the type's own.
    pub ack_timeout_secs: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResultIntent {
    pub id: MsgId,
    pub attempt: AttemptId,
    pub story: StoryKey,
    pub status: SubtaskCompletionStatus,
    /// The sandbox's own report, if there is one.
    pub result: Option<StoryResult>,
    /// What changed, as counted by git.
    pub diff: DiffSummary,
    pub commit: Option<CommitId>,
    pub failure: Option<Failure>,
    pub refs: Vec<MsgId>,
    /// The ack timeout, if it is not the type's own.
    pub ack_timeout_secs: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReviewRequestIntent {
    pub id: MsgId,
    pub attempt: AttemptId,
    pub review: ReviewSpec,
    pub refs: Vec<MsgId>,
    /// The ack timeout, if it is not the type's own.
    pub ack_timeout_secs: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReviewSpec {
    pub reviewed_attempt: AttemptId,
    pub stories: Vec<StoryKey>,
    /// The commit that the diff is against.
    pub base: CommitId,
    pub commit: CommitId,
    /// The dispatch, which has the criteria.
    pub dispatch: MsgId,
    /// The result; the newest, if there are several stories.
    pub result: MsgId,
    pub scope: ReviewScope,
    pub reject_count: u32,
    pub guidance: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPhase {
    /// A story of high risk has no approval.
    AwaitingApproval,
    Dispatched,
    InProgress,
    /// An attempt failed, and another follows.
    Retrying,
    AwaitingReview,
    InReview,
    /// A review rejected it, and the executor gets it back.
    Rejected,
    Landing,
    Landed,
    Failed,
    /// The admin must decide how to continue.
    Suspended,
    Locked,
    Aborted,
}

impl TaskPhase {
    /// The phase as `system_state_snapshot.task_status` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskPhase::AwaitingApproval => "awaiting_approval",
            TaskPhase::Dispatched => "dispatched",
            TaskPhase::InProgress => "in_progress",
            TaskPhase::Retrying => "retrying",
            TaskPhase::AwaitingReview => "awaiting_review",
            TaskPhase::InReview => "in_review",
            TaskPhase::Rejected => "rejected",
            TaskPhase::Landing => "landing",
            TaskPhase::Landed => "landed",
            TaskPhase::Failed => "failed",
            TaskPhase::Suspended => "suspended",
            TaskPhase::Locked => "locked",
            TaskPhase::Aborted => "aborted",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TaskUpdate {
    pub task: AssignmentId,
    pub phase: TaskPhase,
    pub stories: Vec<(StoryKey, StoryStatus)>,
    pub progress: Option<String>,
    pub reject_count: u32,
    pub at_ms: u64,
}
