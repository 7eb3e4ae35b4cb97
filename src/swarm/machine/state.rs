//! The machine's state, as the plan sets it up. The rules in the sibling files change it; `events.rs` calls them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::amp::AmpMachine;
use super::attempt::Attempt;
use super::deadlines::Deadlines;
use super::hold::AdminHold;
use super::landing_state::{Landing, PendingMerge, ReworkBase};
use super::review_state::ReviewState;
use super::view::StoryView;
use crate::ids::{AssignmentId, BranchName, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::announcement::{Announcement, StoryRef};
use crate::swarm::effect::Effect;
use crate::swarm::event::StopLevel;
use crate::swarm::index::{AssignmentIndex, AttemptIndex, BranchIndex, IndexVec, StoryIndex, TypedIndex};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmSpec};
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::tasks::{DoneStatus, RiskLevel};
use crate::verdict::Failure;

/// The number of an assignment's first check sandbox. No assignment has as many other attempts.
const FIRST_CHECK: u32 = 1001;

/// A swarm in progress. Two machines that were given the same events are equal.
#[derive(Debug, Clone, PartialEq)]
pub struct SwarmMachine {
    pub(super) spec: SwarmSpec,
    pub(super) story_indices: BTreeMap<StoryKey, StoryIndex>,
    pub(super) assignment_indices: BTreeMap<AssignmentId, AssignmentIndex>,
    pub(super) stories: IndexVec<StoryIndex, TrackedStory>,
    pub(super) assignments: IndexVec<AssignmentIndex, Assignment>,
    pub(super) attempts: IndexVec<AttemptIndex, Attempt>,
    pub(super) branches: IndexVec<BranchIndex, Branch>,
    /// The integration branch of each tasks file.
    pub(super) file_branches: Vec<BranchIndex>,
    /// Assignments that may start now.
    pub(super) ready: BTreeSet<QueueEntry<AssignmentIndex>>,
    /// Finished attempts whose review may start now.
    pub(super) review_queue: BTreeSet<QueueEntry<AttemptIndex>>,
    /// Suspended attempts that may continue as soon as there is a slot.
    pub(super) wake_queue: BTreeSet<QueueEntry<AttemptIndex>>,
    /// The attempts whose sandboxes run or are about to.
    pub(super) running: BTreeSet<AttemptIndex>,
    /// The executors' attempts that hold a slot: until their work has landed or failed, or waits for the admin.
    pub(super) slots: BTreeSet<AttemptIndex>,
    pub(super) landings: BTreeMap<u64, Landing>,
    pub(super) last_landing: u64,
    /// Finished attempts whose own check was cut short by a stop.
    pub(super) shelved: VecDeque<AttemptIndex>,
    /// The tasks files whose base has not passed its checks yet.
    pub(super) unchecked_bases: BTreeSet<u16>,
    /// How the checks failed before anything was changed, which ends the swarm.
    pub(super) red_base: Option<Failure>,
    /// The number of attempts that are not settled.
    pub(super) active: usize,
    /// Of these: finished work that no reviewer is working on, and suspended reviewers.
    pub(super) parked: usize,
    /// And sandboxes that are paused until the admin decides.
    pub(super) suspended: usize,
    pub(super) amp: AmpMachine,
    /// The ids of the admin's decisions that were applied.
    pub(super) applied_decisions: BTreeSet<String>,
    pub(super) deadlines: Deadlines,
    pub(super) counts: StoryCounts,
    pub(super) began: bool,
    pub(super) stop_level: Option<StopLevel>,
    /// A fault ended the swarm before its stories were closed.
    pub(super) machinery_failed: bool,
    pub(super) outcome: Option<SwarmOutcome>,
    /// The number of applied events.
    pub(super) event_count: u64,
    pub(super) now: Duration,
    /// The effects of the event being handled; empty between events.
    pub(super) effects: Vec<Effect>,
}

/// The event changed something. Handlers return `None` for an event that is a duplicate, too late, impossible, or about something
/// unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied;

/// Lower priorities come first, then lower indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueEntry<I> {
    pub(super) priority: i64,
    pub(super) index: I,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrackedStory {
    pub(super) view: StoryView,
    pub(super) risk: RiskLevel,
    pub(super) has_command: bool,
    /// It has checks of its own.
    pub(super) has_checks: bool,
    pub(super) assignment: Option<AssignmentIndex>,
    /// What must land before it.
    pub(super) dependencies: Vec<StoryIndex>,
    /// What waits for it.
    pub(super) dependents: Vec<StoryIndex>,
    /// How many of its failures were hangs.
    pub(super) hangs: u32,
    /// The newest failure of its own, for the next prompt.
    pub(super) previous_failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assignment {
    pub(super) id: AssignmentId,
    pub(super) file: u16,
    pub(super) branch: BranchIndex,
    pub(super) priority: i64,
    pub(super) stories: Vec<StoryIndex>,
    /// Assignments that must not run at the same time.
    pub(super) exclusive_with: Vec<AssignmentIndex>,
    /// Attempt `n` is at position `n - 1`.
    pub(super) attempts: Vec<AttemptIndex>,
    /// The check sandboxes, numbered from [`FIRST_CHECK`]: a story's attempts count without them.
    pub(super) checks: Vec<AttemptIndex>,
    /// Whether an executor's attempt is not settled.
    pub(super) active: bool,
    /// The dependencies of its open stories that are open and in other assignments.
    pub(super) unmet_dependencies: usize,
    /// How many of [`exclusive_with`](Self::exclusive_with) are active.
    pub(super) active_exclusions: usize,
    pub(super) open_stories: usize,
    pub(super) machinery_failures: u32,
    /// When the newest of these was.
    pub(super) last_machinery_failure: Option<Duration>,
    pub(super) merge_conflicts: u32,
    /// The files in which its work conflicted.
    pub(super) conflict_paths: BTreeSet<String>,
    /// The next attempt begins with this merge.
    pub(super) pending_merge: Option<PendingMerge>,
    /// The next attempt goes on from here.
    pub(super) rework_base: Option<ReworkBase>,
    /// Attempts that ended because the engine was lost, which cost no retry.
    pub(super) engine_losses: u32,
    pub(super) review: ReviewState,
    pub(super) hold: Option<AdminHold>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branch {
    pub(super) name: BranchName,
    pub(super) head: CommitId,
    /// Its merge is in flight, or waits to be retried.
    pub(super) merging: Option<AttemptIndex>,
    /// The batch that is being checked and landed.
    pub(super) landing: Option<u64>,
    /// The machinery failed to land on it; nothing does until the swarm is resumed.
    pub(super) blocked: bool,
    /// The head whose checks passed.
    pub(super) passed_head: Option<CommitId>,
    /// The shared verify commands that fail without any story's doing.
    pub(super) tolerated: Vec<String>,
    pub(super) queue: VecDeque<AttemptIndex>,
}

/// The stories by status, so that no event has to count them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct StoryCounts {
    /// Landed, or completed before the swarm.
    pub(super) landed: usize,
    pub(super) failed: usize,
    /// The failed ones whose cause is the machinery.
    pub(super) failed_by_machinery: usize,
    pub(super) skipped: usize,
    /// The skipped ones that the tasks file had as skipped.
    pub(super) skipped_initially: usize,
    pub(super) open: usize,
}

/// What an assignment waits for.
pub(super) struct WaitCounts {
    pub(super) open_stories: usize,
    pub(super) unmet_dependencies: usize,
}

impl SwarmMachine {
    /// A swarm that has not begun.
    pub fn new(spec: SwarmSpec) -> Self {
        let mut branches = IndexVec::new();
        let file_branches = spec.files.iter().map(|file| {
            let known = branches.iter_indexed().find(|(_, branch): &(_, &Branch)| branch.name == file.branch);
            let known = known.map(|(index, _)| index);
            known.unwrap_or_else(|| {
                let (name, head) = (file.branch.clone(), file.base.clone());
                branches.push(Branch::new(name, head))
            })
        });
        let file_branches: Vec<BranchIndex> = file_branches.collect();
        let branch_of = |assignment: &AssignmentSpec| file_branches[usize::from(assignment.file)];
        let mut machine = Self {
            story_indices: index_by(&spec.stories, |story| story.key.clone()),
            assignment_indices: index_by(&spec.assignments, |assignment| assignment.id.clone()),
            stories: spec.stories.iter().map(TrackedStory::new).collect(),
            assignments: spec.assignments.iter().map(|one| Assignment::new(one, branch_of(one))).collect(),
            attempts: IndexVec::new(),
            branches,
            file_branches,
            ready: BTreeSet::new(),
            review_queue: BTreeSet::new(),
            wake_queue: BTreeSet::new(),
            running: BTreeSet::new(),
            slots: BTreeSet::new(),
            landings: BTreeMap::new(),
            last_landing: 0,
            shelved: VecDeque::new(),
            unchecked_bases: BTreeSet::new(),
            red_base: None,
            active: 0,
            parked: 0,
            suspended: 0,
            amp: AmpMachine::new(&spec),
            applied_decisions: BTreeSet::new(),
            deadlines: Deadlines::default(),
            counts: StoryCounts::default(),
            began: false,
            stop_level: None,
            machinery_failed: false,
            outcome: None,
            event_count: 0,
            now: Duration::ZERO,
            effects: Vec::new(),
            spec,
        };
        machine.link_stories();
        machine.link_assignments();
        machine
    }

    fn link_stories(&mut self) {
        for index in self.stories.indices() {
            match self.stories[index].view.status {
                StoryStatus::Completed => self.counts.landed += 1,
                StoryStatus::Skipped => {
                    self.counts.skipped += 1;
                    self.counts.skipped_initially += 1;
                }
                _ => self.counts.open += 1,
            }
            // The plan refuses files with unknown dependencies.
            let depends_on = &self.spec.stories[index.position()].depends_on;
            let dependencies: BTreeSet<StoryIndex> =
                depends_on.iter().filter_map(|key| self.story_indices.get(key)).copied().collect();
            for dependency in &dependencies {
                self.stories[*dependency].dependents.push(index);
            }
            self.stories[index].dependencies = dependencies.into_iter().collect();
        }
    }

    fn link_assignments(&mut self) {
        let mut exclusions = BTreeSet::new();
        for index in self.assignments.indices() {
            let spec = &self.spec.assignments[index.position()];
            let stories: Vec<StoryIndex> =
                spec.stories.iter().filter_map(|key| self.story_indices.get(key)).copied().collect();
            for story in &stories {
                let story = &mut self.stories[*story];
                story.assignment = Some(index);
                if !story.view.done_before {
                    (story.view.assignment, story.view.branch) = (Some(spec.id.clone()), Some(spec.branch.clone()));
                }
            }
            self.assignments[index].stories = stories;
            let others = spec.exclusive_with.iter().filter_map(|id| self.assignment_indices.get(id)).copied();
            exclusions
                .extend(others.filter(|other| *other != index).flat_map(|other| [(index, other), (other, index)]));
        }
        for (index, other) in exclusions {
            self.assignments[index].exclusive_with.push(other);
        }
        for index in self.assignments.indices() {
            let WaitCounts { open_stories, unmet_dependencies } = self.count_waits(index);
            let assignment = &mut self.assignments[index];
            (assignment.open_stories, assignment.unmet_dependencies) = (open_stories, unmet_dependencies);
        }
    }

    pub(super) fn count_waits(&self, assignment: AssignmentIndex) -> WaitCounts {
        let mut counts = WaitCounts { open_stories: 0, unmet_dependencies: 0 };
        for story in self.assignments[assignment].stories.iter().map(|story| &self.stories[*story]) {
            if !story.view.is_closed() {
                counts.open_stories += 1;
                counts.unmet_dependencies += self.count_unmet(story);
            }
        }
        counts
    }

    /// The open dependencies of the story that are in other assignments.
    pub(super) fn count_unmet(&self, story: &TrackedStory) -> usize {
        let unmet = |other: &&StoryIndex| {
            let other = &self.stories[**other];
            other.assignment != story.assignment && !other.view.is_closed()
        };
        story.dependencies.iter().filter(unmet).count()
    }

    pub(super) fn announce(&mut self, announcement: Announcement) {
        self.effects.push(Effect::Announce(announcement));
    }

    pub(super) fn queue_entry(&self, attempt: AttemptIndex) -> QueueEntry<AttemptIndex> {
        QueueEntry { priority: self.assignments[self.attempts[attempt].assignment].priority, index: attempt }
    }

    pub(super) fn story_ref(&self, story: StoryIndex) -> StoryRef {
        self.spec.story_ref(&self.stories[story].view.key)
    }

    pub(super) fn story_refs(&self, stories: &[StoryIndex]) -> Vec<StoryRef> {
        stories.iter().map(|story| self.story_ref(*story)).collect()
    }

    pub(super) fn story_keys(&self, stories: &[StoryIndex]) -> Vec<StoryKey> {
        stories.iter().map(|story| self.stories[*story].view.key.clone()).collect()
    }
}

fn index_by<T, K: Ord, I: TypedIndex>(items: &[T], key: impl Fn(&T) -> K) -> BTreeMap<K, I> {
    items.iter().enumerate().map(|(position, item)| (key(item), I::from_position(position))).collect()
}

impl TrackedStory {
    fn new(spec: &StorySpec) -> Self {
        let view = StoryView {
            key: spec.key.clone(),
            status: match spec.done {
                Some(DoneStatus::Completed) => StoryStatus::Completed,
                Some(DoneStatus::Skipped) => StoryStatus::Skipped,
                None => StoryStatus::Pending,
            },
            done_before: spec.done.is_some(),
            assignment: None,
            branch: None,
            attempts: 0,
            failures: 0,
            commit: None,
            failure: None,
            blocked_by: None,
            started: None,
            ended: None,
            duration: None,
            latest_output: String::new(),
            salvage_refs: Vec::new(),
        };
        Self {
            view,
            risk: spec.risk,
            has_command: spec.has_command,
            has_checks: spec.has_verify || !spec.tested_criteria.is_empty(),
            assignment: None,
            dependencies: Vec::new(),
            dependents: Vec::new(),
            hangs: 0,
            previous_failure: None,
        }
    }
}

impl Branch {
    fn new(name: BranchName, head: CommitId) -> Self {
        Self {
            name,
            head,
            merging: None,
            landing: None,
            blocked: false,
            passed_head: None,
            tolerated: Vec::new(),
            queue: VecDeque::new(),
        }
    }
}

impl Assignment {
    fn new(spec: &AssignmentSpec, branch: BranchIndex) -> Self {
        Self {
            id: spec.id.clone(),
            file: spec.file,
            branch,
            priority: spec.priority,
            stories: Vec::new(),
            exclusive_with: Vec::new(),
            attempts: Vec::new(),
            checks: Vec::new(),
            active: false,
            unmet_dependencies: 0,
            active_exclusions: 0,
            open_stories: 0,
            machinery_failures: 0,
            last_machinery_failure: None,
            merge_conflicts: 0,
            conflict_paths: BTreeSet::new(),
            pending_merge: None,
            rework_base: None,
            engine_losses: 0,
            review: ReviewState::default(),
            hold: None,
        }
    }

    pub(super) fn next_attempt_number(&self) -> u32 {
        self.attempts.len() as u32 + 1
    }

    pub(super) fn next_check_number(&self) -> u32 {
        self.checks.len() as u32 + FIRST_CHECK
    }

    pub(super) fn attempt_with_number(&self, number: u32) -> Option<AttemptIndex> {
        let (attempts, position) = match number.checked_sub(FIRST_CHECK) {
            Some(position) => (&self.checks, position),
            None => (&self.attempts, number.checked_sub(1)?),
        };
        attempts.get(usize::try_from(position).ok()?).copied()
    }
}
