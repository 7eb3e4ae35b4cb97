//! The read-only views of stories and attempts: `state/` makes `swarm-state.json` from them, `report/` the final table, and
//! `resume` finds in them what to attach to again.
//!
//! Times count from the swarm's beginning. Only the machine changes a view.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, AttemptId, BranchName, CommitId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::effect::{CheckSpec, CollectMode, MergeSpec};
use crate::swarm::event::ContainerExit;
use crate::verdict::Failure;

/// A story, as the machine knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoryView {
    pub key: StoryKey,
    /// `Completed` means that it landed on the integration branch, or was done before the swarm began.
    pub status: StoryStatus,
    pub done_before: bool,
    /// Its assignment; `None` for a story that is not to run.
    pub assignment: Option<AssignmentId>,
    pub branch: Option<BranchName>,
    /// The attempts that reached it, a running one included.
    pub attempts: u32,
    /// The attempts that failed because of the story itself. `retries` limits them.
    pub failures: u32,
    /// Its commit, once landed.
    pub commit: Option<CommitId>,
    /// The newest failure, also while the story waits for its next attempt; `None` once landed.
    pub failure: Option<Failure>,
    /// The story that did not land, if this one was skipped because of it.
    pub blocked_by: Option<StoryKey>,
    /// When a sandbox first reported that it began.
    pub started: Option<Duration>,
    pub ended: Option<Duration>,
    /// The time that it took in the sandbox that finished it.
    pub duration: Option<Duration>,
    pub latest_output: String,
    /// The refs that keep its unfinished or unmerged work, oldest first, without duplicates.
    pub salvage_refs: Vec<String>,
}

impl StoryView {
    /// Whether it landed, was done before, failed for good or was skipped.
    pub fn is_closed(&self) -> bool {
        self.done_before || self.ended.is_some()
    }

    /// Whether stories that depend on it may run.
    pub fn has_landed(&self) -> bool {
        self.done_before || self.status == StoryStatus::Completed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptPhase {
    /// [`Effect::Start`](crate::swarm::Effect::Start) was given.
    Starting,
    /// The container exists; nothing has run in it.
    Created,
    /// The task-request was written.
    Running,
    /// The sandbox reported its completion; its container has not ended.
    Completed,
    /// The container ended; its work is being brought to the host.
    Collecting,
    /// Its tip waits for a verdict of a reviewer or of the admin.
    Reviewing,
    /// Its tip waits for its turn to land.
    MergeQueued,
    /// Its tip is being merged, checked, or put onto the branch.
    Merging,
    /// Only its removal may still be open.
    Settled,
}

impl AttemptPhase {
    /// Whether its container may exist and not have ended.
    pub fn has_container(self) -> bool {
        self <= AttemptPhase::Completed
    }
}

/// The status of a container, in the words of `swarm-state.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "SavedContainerStatus")]
pub enum ContainerStatus {
    /// Not started.
    Pending,
    /// Started, not ended.
    Running,
    /// Ended after `completion completed`.
    Completed,
    /// Ended in another way, or never started.
    Failed,
    /// Ended because the swarm was stopped.
    Stopped,
}

/// An attempt's stories, counted by the status that the sandbox reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoryProgress {
    /// All stories.
    pub total: u32,
    /// Reported as finished.
    pub completed: u32,
    /// Reported as failed.
    pub failed: u32,
    /// In progress.
    pub in_progress: u32,
    /// Not begun.
    pub pending: u32,
    /// Skipped.
    pub skipped: u32,
}

/// An attempt, as the machine knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptView {
    pub id: AttemptId,
    pub phase: AttemptPhase,
    /// Its stories, in order, with the status that the sandbox reported.
    pub stories: Vec<(StoryKey, StoryStatus)>,
    pub base: CommitId,
    /// Its container, once created.
    pub container: Option<ContainerId>,
    pub container_name: Option<String>,
    pub status: ContainerStatus,
    /// The number of the newest record, refused ones included: `resume` skips as many.
    pub record_count: u64,
    pub bad_records: u32,
    /// The status in its completion record.
    pub completion: Option<CompletionStatus>,
    pub exit: Option<ContainerExit>,
    pub error: Option<String>,
    pub created: Duration,
    /// When its container started to run.
    pub started: Option<Duration>,
    /// When its newest event came.
    pub updated: Duration,
    /// What is to be collected, in [`AttemptPhase::Collecting`].
    pub collect_mode: Option<CollectMode>,
    /// The verified tip, once collected.
    pub tip: Option<CommitId>,
    /// The refs that keep its unfinished or unmerged work, oldest first, without duplicates.
    pub salvage_refs: Vec<String>,
    /// The work directory was kept because not all of it could be salvaged.
    pub work_dir_kept: bool,
    /// Its container was found paused.
    pub paused: bool,
    pub removed: bool,
    /// It starts from rejected work.
    pub is_rework: bool,
    /// The merge that it begins with, after a conflict.
    pub merge: Option<MergeSpec>,
    pub role: AttemptRole,
}

/// What a sandbox is for.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptRole {
    /// An agent does stories.
    Executor,
    /// A reviewer judges the work of another attempt.
    Reviewer(ReviewSpec),
    /// The checks of a commit run. No agent was ever in it.
    Checker(CheckSpec),
}

impl AttemptView {
    pub fn review(&self) -> Option<&ReviewSpec> {
        match &self.role {
            AttemptRole::Reviewer(review) => Some(review),
            AttemptRole::Executor | AttemptRole::Checker(_) => None,
        }
    }

    pub fn check(&self) -> Option<&CheckSpec> {
        match &self.role {
            AttemptRole::Checker(check) => Some(check),
            AttemptRole::Executor | AttemptRole::Reviewer(_) => None,
        }
    }

    pub fn is_executor(&self) -> bool {
        self.role == AttemptRole::Executor
    }

    pub fn progress(&self) -> StoryProgress {
        let mut counts = StoryProgress { total: self.stories.len() as u32, ..StoryProgress::default() };
        for (_, status) in &self.stories {
            match status {
                StoryStatus::Pending => counts.pending += 1,
                StoryStatus::InProgress => counts.in_progress += 1,
                StoryStatus::Completed => counts.completed += 1,
                StoryStatus::Failed => counts.failed += 1,
                StoryStatus::Skipped => counts.skipped += 1,
            }
        }
        counts
    }
}
