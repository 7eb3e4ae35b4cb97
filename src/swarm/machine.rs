//! The machine: what a swarm does next. `coordinator/` owns the one machine of a running swarm; `state/` folds journals.
//!
//! | file | rules |
//! |---|---|
//! | `ready.rs` | which assignment starts, and from which commit |
//! | `sandbox.rs` | a sandbox's life and words, from its start to its end |
//! | `judge.rs` | causes, from evidence |
//! | `settle.rs` | what a result, or the lack of one, means for each story: lands, again, or failed |
//! | `review.rs` | finished work is reviewed before it lands, where that is wanted |
//! | `hold.rs` | what waits for the admin, and what the admin decides |
//! | `talk.rs` | what is said of it all in AMP |
//! | `merge.rs` | one merge at a time for a branch |
//! | `decide.rs` | a story is decided: who may run now, who is skipped |
//! | `engine.rs` | the engine goes away and comes back |
//! | `deadline.rs` | the timers |
//! | `index.rs` | what follows from the plan alone |
//! | `stop.rs` | beginning, stopping, resuming, the end |
//!
//! An attempt goes `Starting -> Created -> Running -> Completed -> Collecting -> Reviewing -> MergeQueued -> NodeMerge -> Settled`, and may leave
//! out what did not happen. It holds one of the `max` places until its container has ended; collecting and merging are done
//! outside of them. Its assignment has no other attempt before it is settled.
//!
//! Every attempt uses up a story's retry, uses up one of the assignment's machinery retries, or decides a story; so
//! a swarm comes to an end whatever its sandboxes do.
//!
//! Must not: do I/O, read a clock, or depend on anything but the spec, the events and their times.

mod timer;
mod closing;
mod engine;
mod hold;
mod plan_index;
mod diagnosis;
mod merge;
mod scheduling;
mod review;
mod sandbox;
mod settle;
mod lifecycle;
mod amp_state;
mod view;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId, BranchName, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::MsgId;
use crate::swarm::effect::{Effect, SwarmOutcome};
use crate::swarm::event::{Event, StopLevel};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmSpec};
use crate::tasks::DoneStatus;
use crate::verdict::Failure;

use amp_state::{AmpState, TaskAmpState};
use diagnosis::EndReason;
pub use hold::{AdminHold, HoldKind};
use plan_index::PlanIndex;
use review::ReviewState;
use settle::FinishedStory;
use timer::{AttemptTimer, Timer};
pub use view::{AttemptPhase, AttemptProgress, AttemptView, ContainerStatus, StoryView};

/// A swarm in progress. Two machines that were given the same events are equal.
#[derive(Debug, Clone, PartialEq)]
pub struct SwarmMachine {
    spec: SwarmSpec,
    index: PlanIndex,
    stories: Vec<StoryView>,
    assignments: Vec<AssignmentState>,
    attempts: Vec<AttemptState>,
    branches: Vec<BranchState>,
    /// What may start now, best first: (priority, place in the plan).
    ready: BTreeSet<(i64, usize)>,
    /// The attempts that hold a place.
    running: BTreeSet<usize>,
    /// The attempts that are not settled.
    active: usize,
    /// Of these: finished work that no reviewer is at, or one that is paused.
    parked: usize,
    /// And sandboxes that are paused until the admin decides.
    suspended: usize,
    /// Of these, what may go on as soon as there is a place: (priority, attempt).
    wake_queue: BTreeSet<(i64, usize)>,
    /// What may be reviewed now, best first: (priority, the executor's attempt).
    review_queue: BTreeSet<(i64, usize)>,
    /// By assignment: what its reviews came to, what was said of it, and what it waits for the admin for.
    review_states: Vec<ReviewState>,
    task_amp_states: Vec<TaskAmpState>,
    holds: Vec<Option<AdminHold>>,
    amp_state: AmpState,
    /// The admin's decisions that were taken in.
    applied_decisions: BTreeSet<String>,
    deadlines: BTreeSet<(Duration, Timer)>,
    counts: StoryCounts,
    began: bool,
    stop_level: Option<StopLevel>,
    /// The engine is away, and until when it is waited for.
    engine_wait_until: Option<Duration>,
    /// The fault that ended everything.
    machinery_failed: bool,
    outcome: Option<SwarmOutcome>,
    /// How many events it has taken in.
    event_count: u64,
    now: Duration,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct AssignmentState {
    /// Its attempts; the number is the place, from 1.
    attempts: Vec<usize>,
    /// Whether the last of them is not settled.
    active: bool,
    /// Dependencies of its undecided stories, outside of it, that are not decided.
    unmet_dependencies: usize,
    /// Active assignments that it must be kept apart from.
    active_exclusions: usize,
    /// Its stories that are not decided.
    open_stories: usize,
    machinery_failures: u32,
    /// When the last of these was.
    last_machinery_failure: Option<Duration>,
    /// How often its work did not merge.
    merge_conflicts: u32,
    /// Attempts that the engine's absence ended, which cost nothing.
    engine_losses: u32,
    /// Until when it waits after such a failure.
    backoff_until: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
struct AttemptState {
    view: AttemptView,
    assignment: usize,
    stories: Vec<usize>,
    /// Why the machine ended it.
    end_reason: Option<EndReason>,
    /// The first error record.
    first_error: Option<Failure>,
    /// What it died of, where it ended without a completion.
    end_failure: Option<Failure>,
    timer: Option<(Duration, AttemptTimer)>,
    /// When it will have been silent for too long.
    silence_deadline: Option<Duration>,
    /// It has been, and what its container looks like was asked for.
    inspection_pending: bool,
    /// What it looked like then.
    processes: Vec<String>,
    /// It was seen paused: its time ran, and it could not.
    was_paused: bool,
    /// The engine was away while it was made or ran.
    engine_lost: bool,
    /// Collecting was tried again this often, and merging.
    collect_retries: u32,
    merge_retries: u32,
    /// The dispatch, or the review request, that it got; and whether it has acked that.
    task_msg_id: Option<MsgId>,
    task_acked: bool,
    /// It is paused until the admin decides; with what was left of its timer.
    suspended: Option<Option<(Duration, AttemptTimer)>>,
    /// It was, at least once: its own clocks ran on meanwhile.
    was_suspended: bool,
    /// When it was last let go on.
    last_unpaused: Option<Duration>,
    /// It gave its place away when it was paused, and ends without having one again.
    evicted: bool,
    /// The tree of its tip, and the ref that keeps its commits.
    tree: Option<String>,
    result_ref: Option<String>,
    /// What lands with its merge.
    finished_stories: Vec<FinishedStory>,
    /// The removal was asked for, with the work folder kept or not.
    removal: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
struct BranchState {
    name: BranchName,
    head: CommitId,
    /// Whose merge is in flight, or waits to be tried again.
    merging: Option<usize>,
    queue: VecDeque<usize>,
}

/// Counts, so that no event has to count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct StoryCounts {
    /// Landed, and done before.
    landed: usize,
    failed: usize,
    /// The failed ones whose cause is the machinery's.
    failed_by_machinery: usize,
    skipped: usize,
    /// Of these, those that the tasks file had as skipped.
    skipped_initially: usize,
    open: usize,
}

impl SwarmMachine {
    /// A swarm that has not begun.
    pub fn new(spec: SwarmSpec) -> Self {
        let index = PlanIndex::new(&spec);
        let mut tally = StoryCounts::default();
        let mut assignments = vec![AssignmentState::default(); spec.assignments.len()];
        let mut stories = Vec::with_capacity(spec.stories.len());
        for (place, story) in spec.stories.iter().enumerate() {
            let status = match story.done {
                Some(DoneStatus::Completed) => StoryStatus::Completed,
                Some(DoneStatus::Skipped) => StoryStatus::Skipped,
                None => StoryStatus::Pending,
            };
            match story.done {
                Some(DoneStatus::Completed) => tally.landed += 1,
                Some(DoneStatus::Skipped) => {
                    (tally.skipped, tally.skipped_initially) = (tally.skipped + 1, tally.skipped + 1)
                }
                None => tally.open += 1,
            }
            let owner = index.story_assignment[place].filter(|_| story.done.is_none());
            if let Some(owner) = owner {
                assignments[owner].open_stories += 1;
                let outside = |dependency: &&usize| {
                    index.story_assignment[**dependency] != Some(owner) && spec.stories[**dependency].done.is_none()
                };
                assignments[owner].unmet_dependencies += index.dependencies[place].iter().filter(outside).count();
            }
            stories.push(StoryView {
                key: story.key.clone(),
                status,
                done_before: story.done.is_some(),
                assignment: owner.map(|owner| spec.assignments[owner].id.clone()),
                branch: owner.map(|owner| spec.assignments[owner].branch.clone()),
                attempts: 0,
                failures: 0,
                hangs: 0,
                commit: None,
                failure: None,
                blocked_by: None,
                started: None,
                ended: None,
                duration: None,
                latest_output: String::new(),
                salvage_refs: Vec::new(),
                previous_failure: None,
            });
        }
        let mut branches: Vec<BranchState> = Vec::new();
        for (file, place) in spec.files.iter().zip(&index.file_branch) {
            if *place == branches.len() {
                branches.push(BranchState {
                    name: file.branch.clone(),
                    head: file.base.clone(),
                    merging: None,
                    queue: VecDeque::new(),
                });
            }
        }
        let count = spec.assignments.len();
        Self {
            parked: 0,
            suspended: 0,
            wake_queue: BTreeSet::new(),
            review_queue: BTreeSet::new(),
            review_states: vec![ReviewState::default(); count],
            task_amp_states: vec![TaskAmpState::default(); count],
            holds: vec![None; count],
            amp_state: AmpState::default(),
            applied_decisions: BTreeSet::new(),
            spec,
            index,
            stories,
            assignments,
            attempts: Vec::new(),
            branches,
            ready: BTreeSet::new(),
            running: BTreeSet::new(),
            active: 0,
            deadlines: BTreeSet::new(),
            counts: tally,
            began: false,
            stop_level: None,
            engine_wait_until: None,
            machinery_failed: false,
            outcome: None,
            event_count: 0,
            now: Duration::ZERO,
        }
    }

    /// Takes an event in. `now` is the time since the swarm began; it is cut to whole milliseconds, as the journal
    /// keeps it, and never goes back.
    ///
    /// An event that is a duplicate, too late, impossible, or about something unknown changes nothing and gives no
    /// effects. Any other gives [`Effect::Persist`] first. After [`Effect::Finish`], which comes once, only
    /// [`Event::Resumed`], and what may come before it ([`Event::OrchestratorAbsent`], [`Event::Decided`]), can do anything. Removals
    /// that were asked for before it are still to be carried out.
    pub fn handle(&mut self, event: &Event, now: Duration) -> Vec<Effect> {
        let late = matches!(event, Event::Resumed | Event::OrchestratorAbsent { .. } | Event::DecisionMade { .. });
        if self.outcome.is_some() && !late {
            return Vec::new();
        }
        let before = self.now;
        self.now = before.max(Duration::from_millis(now.as_millis() as u64));
        let mut out = vec![Effect::Persist];
        let ended = self.outcome.is_some() && *event != Event::Resumed;
        if self.apply_event(event, &mut out) {
            self.event_count += 1;
            if ended {
                // A decision for later: what it wants done is done, and given again, when the swarm is taken up.
                out.retain(|effect| matches!(effect, Effect::Persist | Effect::SendAmp(_) | Effect::Announce(_)));
            }
            self.start_ready(&mut out);
            self.finish_if_done(&mut out);
            out
        } else {
            self.now = before;
            Vec::new()
        }
    }

    /// Gives the event to its rule; false where it changed nothing.
    fn apply_event(&mut self, event: &Event, out: &mut Vec<Effect>) -> bool {
        match event {
            Event::Began => self.begin(out),
            Event::Resumed => self.resume(out),
            Event::StopRequested { level, by } => self.stop(*level, by, out),
            Event::MachineryFailed { fault } => self.fail_machinery(fault, out),
            Event::DeadlinePassed => self.fire_deadlines(out),
            Event::SandboxCreated { attempt, container, name } => self.on_sandbox_created(attempt, container, name),
            Event::SandboxStarted { attempt } => self.on_sandbox_started(attempt, out),
            Event::StartDelayed { attempt, reason } => self.on_start_delayed(attempt, reason, out),
            Event::StartFailed { attempt, fault } => self.on_start_failed(attempt, fault, out),
            Event::SandboxInspected { attempt, paused, processes } => {
                self.on_sandbox_inspected(attempt, *paused, processes, out)
            }
            Event::EngineLost { problem } => self.on_engine_lost(problem, out),
            Event::EngineReconnected => self.on_engine_reconnected(out),
            Event::StoryReported { attempt, record_number: record, story, status, output } => {
                self.on_story_reported(attempt, *record, story, *status, output, out)
            }
            Event::ErrorReported { attempt, record_number: record, code, message } => {
                self.on_error_reported(attempt, *record, code, message, out)
            }
            Event::CompletionReported { attempt, record_number: record, status, errors } => {
                self.on_completion_reported(attempt, *record, *status, errors, out)
            }
            Event::RecordRefused { attempt, record_number: record, reason } => {
                self.on_record_refused(attempt, *record, reason, out)
            }
            Event::SandboxEnded { attempt, exit } => self.on_sandbox_ended(attempt, exit, out),
            Event::ResultCollected { attempt, tip, stories, leftover: rest, diffs, tree, result_ref: kept } => {
                let came = settle::CollectedResult { tip: tip.as_ref(), stories, diffs, tree: tree.as_ref() };
                self.on_result_collected(attempt, came, kept.as_ref(), rest.as_ref(), out)
            }
            Event::ReviewCollected { attempt, outcome: reviewed } => self.on_review_collected(attempt, reviewed, out),
            Event::DecisionMade { decision } => self.on_decision_made(decision, out),
            Event::OrchestratorAbsent { ms } => self.on_orchestrator_absent(Duration::from_millis(*ms)),
            Event::CollectFailed {
                attempt,
                fault,
                salvage_ref: salvage,
                work_dir_empty: nothing_there,
                salvage_incomplete: left_out,
                depot_timed_out: no_answer,
            } => {
                let salvaged = salvage.is_some() || *nothing_there;
                let collected = settle::SalvageOutcome { reference: salvage.as_deref(), salvaged, complete: !left_out };
                self.on_collect_failed(attempt, fault, collected, *no_answer, out)
            }
            Event::Merged { attempt, head } => self.on_merged(attempt, head, out),
            Event::MergeConflicted { attempt, paths, result_ref: kept } => {
                self.on_merge_conflicted(attempt, paths, kept, out)
            }
            Event::MergeFailed { attempt, fault, result_ref: kept } => self.on_merge_failed(attempt, fault, kept, out),
            Event::SandboxRemoved { attempt } => self.on_sandbox_removed(attempt),
        }
    }

    /// When to give [`Event::DeadlinePassed`], if nothing else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let own = self.deadlines.first().map(|(at, _)| *at);
        own.into_iter().chain(self.next_amp_deadline()).min().filter(|_| self.outcome.is_none())
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<SwarmOutcome> {
        self.outcome
    }

    /// Whether it ended with nothing left to do: there is nothing to resume.
    pub fn is_complete(&self) -> bool {
        let open = matches!(self.outcome, None | Some(SwarmOutcome::Interrupted | SwarmOutcome::Suspended));
        !open && !self.machinery_failed && self.counts.open == 0 && self.active == 0
    }

    /// How many events it has taken in: the journal's records.
    pub fn event_count(&self) -> u64 {
        self.event_count
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.began
    }

    /// Whether a stop was asked for, and how hard.
    pub fn stop_level(&self) -> Option<StopLevel> {
        self.stop_level
    }

    /// The time of the newest event.
    pub fn last_event_at(&self) -> Duration {
        self.now
    }

    /// The plan.
    pub fn spec(&self) -> &SwarmSpec {
        &self.spec
    }

    /// The stories, in the plan's order.
    pub fn stories(&self) -> impl Iterator<Item = &StoryView> {
        self.stories.iter()
    }

    /// A story.
    pub fn story(&self, key: &StoryKey) -> Option<&StoryView> {
        self.index.stories.get(key).map(|place| &self.stories[*place])
    }

    /// What the plan says of a story.
    pub fn story_spec(&self, key: &StoryKey) -> Option<&StorySpec> {
        self.index.stories.get(key).map(|place| &self.spec.stories[*place])
    }

    /// What the plan says of an assignment.
    pub fn assignment_spec(&self, id: &AssignmentId) -> Option<&AssignmentSpec> {
        self.index.assignments.get(id).map(|place| &self.spec.assignments[*place])
    }

    /// The attempts, in the order of their starts.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptView> {
        self.attempts.iter().map(|attempt| &attempt.view)
    }

    /// An attempt.
    pub fn attempt(&self, id: &AttemptId) -> Option<&AttemptView> {
        self.attempt_index(id).map(|place| &self.attempts[place].view)
    }

    /// The head of a file's integration branch, as far as the machine knows it.
    pub fn head(&self, file: u16) -> &CommitId {
        &self.branches[self.index.file_branch[usize::from(file)]].head
    }

    fn attempt_index(&self, id: &AttemptId) -> Option<usize> {
        let assignment = *self.index.assignments.get(&id.assignment)?;
        self.assignments[assignment].attempts.get(usize::try_from(id.number).ok()?.checked_sub(1)?).copied()
    }

    /// The attempt, if it is in one of these phases.
    fn attempt_in(&self, id: &AttemptId, phases: &[AttemptPhase]) -> Option<usize> {
        self.attempt_index(id).filter(|place| phases.contains(&self.attempts[*place].view.phase))
    }
}
