//! The state of one attempt, and the small types that it is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use super::deadlines::AttemptTimer;
use super::view::{AttemptPhase, AttemptRole, AttemptView, ContainerStatus};
use crate::handoff::result::StoryResult;
use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::index::{AssignmentIndex, StoryIndex};
use crate::verdict::Failure;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attempt {
    pub(super) view: AttemptView,
    pub(super) assignment: AssignmentIndex,
    /// The commit of the integration branch that its work builds upon. Its base may have earlier work on top of that.
    pub(super) branch_base: CommitId,
    /// In the order of [`AttemptView::stories`].
    pub(super) stories: Vec<StoryIndex>,
    /// Why the machine ended it.
    pub(super) end_reason: Option<EndReason>,
    /// The failure in its first error record.
    pub(super) first_error: Option<Failure>,
    /// Why it ended, if it ended without a completion.
    pub(super) end_failure: Option<Failure>,
    /// What its deadline is for, if it has one.
    pub(super) timer: Option<AttemptTimer>,
    /// It was silent for too long, and its container is being inspected.
    pub(super) inspection_pending: bool,
    /// Its process list at that inspection.
    pub(super) processes: Vec<String>,
    /// Someone else paused its container: its timers ran while it could not.
    pub(super) was_paused: bool,
    /// The engine was lost while it started or ran.
    pub(super) engine_lost: bool,
    pub(super) collect_retries: u32,
    pub(super) merge_retries: u32,
    pub(super) suspension: Suspension,
    pub(super) last_unpaused: Option<Duration>,
    /// The tree of its tip.
    pub(super) tree: Option<String>,
    /// The ref that keeps its commits.
    pub(super) result_ref: Option<String>,
    /// The stories that land with its merge.
    pub(super) finished_stories: Vec<FinishedStory>,
    /// A reviewer or the admin approved it.
    pub(super) is_approved: bool,
    /// What was reported of its finished stories, until their checks are done.
    pub(super) unsent_results: BTreeMap<StoryIndex, ReportedStory>,
    /// For a checker's attempt: the landing that needs it.
    pub(super) landing: Option<u64>,
    /// The requested removal.
    pub(super) removal: Option<WorkDirFate>,
}

/// Whether the machine has paused a sandbox until the admin decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspension {
    Never,
    /// Paused now.
    Suspended {
        /// The timer that was running, and what was left of it.
        timer: Option<(AttemptTimer, Duration)>,
    },
    /// Was paused, and runs in a slot again.
    Resumed,
    /// Was paused, and ends without a slot.
    Evicted,
}

/// Why the machine ended a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// It took longer than all its stories may take.
    SandboxTimeout,
    /// It reported its completion and did not exit.
    ExitOverdue,
    BadRecords,
    SwarmStopped,
    /// Its shim sent nothing for too long.
    Silent,
    AdminRetry,
    AdminRollback,
    AdminAbort,
}

/// What happens to a work directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkDirFate {
    /// The host has all of it, or there was nothing.
    Remove,
    /// It has something that no ref has; refs have the rest.
    KeepPartlySalvaged,
    /// It is the only copy.
    KeepUnsalvaged,
}

impl WorkDirFate {
    pub(super) fn from_salvage(complete: bool, partial: bool) -> Self {
        match (complete, partial) {
            (true, _) => Self::Remove,
            (false, true) => Self::KeepPartlySalvaged,
            (false, false) => Self::KeepUnsalvaged,
        }
    }
}

/// A story that lands with its attempt's merge.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FinishedStory {
    pub(super) story: StoryIndex,
    pub(super) commit: CommitId,
    pub(super) duration: Duration,
}

/// A sandbox's own report about a story, with git's count of what it changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedStory {
    pub(super) result: StoryResult,
    pub(super) diff: DiffSummary,
}

/// A story with its failure.
#[derive(Debug, Clone)]
pub(super) struct FailedStory {
    pub(super) story: StoryIndex,
    pub(super) failure: Failure,
}

impl FailedStory {
    /// The same failure for each of the stories.
    pub(super) fn for_all(stories: impl IntoIterator<Item = StoryIndex>, failure: &Failure) -> Vec<Self> {
        stories.into_iter().map(|story| Self { story, failure: failure.clone() }).collect()
    }
}

impl Attempt {
    pub(super) fn new(view: AttemptView, assignment: AssignmentIndex, stories: Vec<StoryIndex>) -> Self {
        Self {
            branch_base: view.base.clone(),
            view,
            assignment,
            stories,
            end_reason: None,
            first_error: None,
            end_failure: None,
            timer: None,
            inspection_pending: false,
            processes: Vec::new(),
            was_paused: false,
            engine_lost: false,
            collect_retries: 0,
            merge_retries: 0,
            suspension: Suspension::Never,
            last_unpaused: None,
            tree: None,
            result_ref: None,
            finished_stories: Vec::new(),
            is_approved: false,
            unsent_results: BTreeMap::new(),
            landing: None,
            removal: None,
        }
    }

    pub(super) fn is_review(&self) -> bool {
        self.view.review().is_some()
    }

    pub(super) fn is_check(&self) -> bool {
        self.view.check().is_some()
    }

    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.suspension, Suspension::Suspended { .. })
    }

    pub(super) fn was_suspended(&self) -> bool {
        self.suspension != Suspension::Never
    }

    pub(super) fn finished_indices(&self) -> Vec<StoryIndex> {
        self.finished_stories.iter().map(|finished| finished.story).collect()
    }

    /// Whether the sandbox reported that it began the story.
    pub(super) fn has_begun_story(&self, story: StoryIndex) -> bool {
        self.reported_status(story).is_some_and(|status| !matches!(status, StoryStatus::Pending | StoryStatus::Skipped))
    }

    pub(super) fn reported_status(&self, story: StoryIndex) -> Option<StoryStatus> {
        let mut reported = self.stories.iter().zip(&self.view.stories);
        reported.find(|(index, _)| **index == story).map(|(_, (_, status))| *status)
    }
}

impl AttemptView {
    /// The view of an attempt that starts `now`.
    pub(super) fn starting(
        id: AttemptId,
        stories: Vec<StoryKey>,
        base: CommitId,
        role: AttemptRole,
        now: Duration,
    ) -> Self {
        Self {
            id,
            phase: AttemptPhase::Starting,
            stories: stories.into_iter().map(|key| (key, StoryStatus::Pending)).collect(),
            base,
            container: None,
            container_name: None,
            status: ContainerStatus::Pending,
            record_count: 0,
            bad_records: 0,
            completion: None,
            exit: None,
            error: None,
            created: now,
            started: None,
            updated: now,
            collect_mode: None,
            tip: None,
            salvage_refs: Vec::new(),
            work_dir_kept: false,
            paused: false,
            removed: false,
            is_rework: false,
            merge: None,
            role,
        }
    }
}
