//! What can be read of the machine: a view of each story and of each attempt. `state/` makes `swarm-state.json` from
//! them, `report/` the final table, and `resume` takes from them what to attach to again.
//!
//! Times are since the swarm began. Only the machine changes a view.

use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId, BranchName, CommitId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::effect::CollectMode;
use crate::swarm::event::ContainerExit;
use crate::verdict::Failure;

/// A story, as the machine knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoryView {
    /// Which.
    pub key: StoryKey,
    /// ACP's five. `Completed` is: landed on the integration branch, or done before the swarm began.
    pub status: StoryStatus,
    /// Whether it was done before the swarm began.
    pub done_before: bool,
    /// The assignment that has it; none for a story that is not to run.
    pub assignment: Option<AssignmentId>,
    /// The assignment's branch.
    pub branch: Option<BranchName>,
    /// The sandboxes that were asked to do it and reached it, a running one included.
    pub attempts: u32,
    /// How many of these failed by the story's own doing: what `retries` limits.
    pub failures: u32,
    /// How many of those hung: one that does it twice is not tried again.
    pub(super) hangs: u32,
    /// Where it ends, once landed.
    pub commit: Option<CommitId>,
    /// What went wrong last. Also there while the story waits for its next try; none once it landed.
    pub failure: Option<Failure>,
    /// For a skipped story: the one that did not land.
    pub blocked_by: Option<StoryKey>,
    /// When the first sandbox said that it began.
    pub started: Option<Duration>,
    /// When it was decided.
    pub ended: Option<Duration>,
    /// How long it took in the sandbox that finished it.
    pub duration: Option<Duration>,
    /// The newest words about it.
    pub latest_output: String,
    /// The refs that keep what its attempts left and what did not land, oldest first, each once.
    pub salvage_refs: Vec<String>,
    /// What went wrong by its own doing the time before, for the next prompt.
    pub(super) previous_failure: Option<String>,
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

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptPhase {
    /// [`Effect::Start`](crate::swarm::Effect::Start) was given.
    Starting,
    /// The container exists; nothing has run in it.
    Created,
    /// The task-request was written.
    Running,
    /// The sandbox said `completion`; its container has not ended.
    Completed,
    /// The container ended; its work is being brought to the host.
    Collecting,
    /// Its tip waits for a verdict: of a reviewer, or of the admin.
    Reviewing,
    /// Its tip waits for another merge onto the same branch.
    MergeQueued,
    /// Its tip is being merged.
    Merging,
    /// Nothing more comes of it but its removal.
    Settled,
}

impl AttemptPhase {
    /// Whether it takes one of the swarm's places: from its start until its container has ended.
    pub fn holds_slot(self) -> bool {
        self <= AttemptPhase::Completed
    }
}

/// What its container is, in the words of `swarm-state.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Its stories, counted by the sandbox's own words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptProgress {
    /// All.
    pub total: u32,
    /// Said to be finished.
    pub completed: u32,
    /// Said to have failed.
    pub failed: u32,
    /// Being worked on.
    pub in_progress: u32,
    /// Not begun.
    pub pending: u32,
    /// Not tried.
    pub skipped: u32,
}

/// An attempt, as the machine knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptView {
    /// Which.
    pub id: AttemptId,
    /// How far.
    pub phase: AttemptPhase,
    /// Its stories, in order, each with its status by the sandbox's word.
    pub stories: Vec<(StoryKey, StoryStatus)>,
    /// Where its branch started.
    pub base: CommitId,
    /// Its container, once created.
    pub container: Option<ContainerId>,
    /// The container's name.
    pub container_name: Option<String>,
    /// What the container is.
    pub status: ContainerStatus,
    /// The records that were taken in, refused ones included: `resume` skips as many.
    pub record_count: u64,
    /// The refused ones.
    pub bad_records: u32,
    /// The sandbox's last word.
    pub completion: Option<CompletionStatus>,
    /// How the container ended.
    pub exit: Option<ContainerExit>,
    /// The error reported, or what it failed of.
    pub error: Option<String>,
    /// When it was started by the machine.
    pub created: Duration,
    /// When its container started to run.
    pub started: Option<Duration>,
    /// The last event of it.
    pub updated: Duration,
    /// What is to be collected, in [`AttemptPhase::Collecting`].
    pub collect_mode: Option<CollectMode>,
    /// The verified tip, once collected.
    pub tip: Option<CommitId>,
    /// The refs that keep what it left, oldest first, each once.
    pub salvage_refs: Vec<String>,
    /// The work folder could not be salvaged, or not all of it, and was kept.
    pub work_dir_kept: bool,
    /// Its container was found paused.
    pub paused: bool,
    /// The container is gone.
    pub removed: bool,
    /// It starts with what a reviewer rejected.
    pub is_rework: bool,
    /// For a reviewer's attempt: what it reviews.
    pub review: Option<ReviewSpec>,
}

impl AttemptView {
    /// Its stories, counted.
    pub fn progress(&self) -> AttemptProgress {
        let mut counts = AttemptProgress { total: self.stories.len() as u32, ..AttemptProgress::default() };
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
