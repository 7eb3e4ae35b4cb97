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
//! An attempt goes `Starting -> Created -> Running -> Completed -> Collecting -> Reviewing -> MergeQueued -> Merging -> Settled`, and may leave
//! out what did not happen. It holds one of the `max` places until its container has ended; collecting and merging are done
//! outside of them. Its assignment has no other attempt before it is settled.
//!
//! Every attempt uses up a story's retry, uses up one of the assignment's machinery retries, or decides a story; so
//! a swarm comes to an end whatever its sandboxes do.
//!
//! Must not: do I/O, read a clock, or depend on anything but the spec, the events and their times.

mod deadline;
mod decide;
mod engine;
mod hold;
mod index;
mod judge;
mod merge;
mod ready;
mod review;
mod sandbox;
mod settle;
mod stop;
mod talk;
mod view;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId, BranchName, CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::MsgId;
use crate::swarm::effect::{Effect, Outcome};
use crate::swarm::event::{Event, StopLevel};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmSpec};
use crate::tasks::Done;
use crate::verdict::Failure;

use deadline::{AttemptTimer, Timer};
pub use hold::{Hold, HoldKind};
use index::Index;
use judge::Ending;
use review::Loop;
use settle::FinishedStory;
use talk::{Talk, TaskTalk};
pub use view::{AttemptView, ContainerStatus, Phase, Progress, StoryView};

/// A swarm in progress. Two machines that were given the same events are equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    spec: SwarmSpec,
    index: Index,
    stories: Vec<StoryView>,
    assignments: Vec<Assignment>,
    attempts: Vec<Attempt>,
    branches: Vec<Branch>,
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
    wakes: BTreeSet<(i64, usize)>,
    /// What may be reviewed now, best first: (priority, the executor's attempt).
    reviews: BTreeSet<(i64, usize)>,
    /// By assignment: what its reviews came to, what was said of it, and what it waits for the admin for.
    loops: Vec<Loop>,
    talks: Vec<TaskTalk>,
    holds: Vec<Option<Hold>>,
    talk: Talk,
    /// The admin's decisions that were taken in.
    decisions: BTreeSet<String>,
    deadlines: BTreeSet<(Duration, Timer)>,
    tally: Tally,
    began: bool,
    stopping: Option<StopLevel>,
    /// The engine is away, and until when it is waited for.
    engine_away: Option<Duration>,
    /// The fault that ended everything.
    broken: bool,
    finished: Option<Outcome>,
    /// How many events it has taken in.
    events: u64,
    now: Duration,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Assignment {
    /// Its attempts; the number is the place, from 1.
    attempts: Vec<usize>,
    /// Whether the last of them is not settled.
    active: bool,
    /// Dependencies of its undecided stories, outside of it, that are not decided.
    waiting_on: usize,
    /// Active assignments that it must be kept apart from.
    held_by: usize,
    /// Its stories that are not decided.
    undecided: usize,
    machinery_failures: u32,
    /// When the last of these was.
    machinery_failed: Option<Duration>,
    /// How often its work did not merge.
    conflicts: u32,
    /// Attempts that the engine's absence ended, which cost nothing.
    engine_losses: u32,
    /// Until when it waits after such a failure.
    backoff: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
struct Attempt {
    view: AttemptView,
    assignment: usize,
    stories: Vec<usize>,
    /// Why the machine ended it.
    ending: Option<Ending>,
    /// The first error record.
    reported: Option<Failure>,
    /// What it died of, where it ended without a completion.
    died_of: Option<Failure>,
    timer: Option<(Duration, AttemptTimer)>,
    /// When it will have been silent for too long.
    silence: Option<Duration>,
    /// It has been, and what its container looks like was asked for.
    silent: bool,
    /// What it looked like then.
    processes: Vec<String>,
    /// It was seen paused: its time ran, and it could not.
    was_paused: bool,
    /// The engine was away while it was made or ran.
    engine_lost: bool,
    /// Collecting was tried again this often, and merging.
    collects: u32,
    merges: u32,
    /// The dispatch, or the review request, that it got; and whether it has acked that.
    told: Option<MsgId>,
    acked: bool,
    /// It is paused until the admin decides; with what was left of its timer.
    suspended: Option<Option<(Duration, AttemptTimer)>>,
    /// It was, at least once: its own clocks ran on meanwhile.
    was_suspended: bool,
    /// When it was last let go on.
    woken: Option<Duration>,
    /// It gave its place away when it was paused, and ends without having one again.
    evicted: bool,
    /// The tree of its tip, and the ref that keeps its commits.
    tree: Option<String>,
    kept: Option<String>,
    /// What lands with its merge.
    finished: Vec<FinishedStory>,
    /// The removal was asked for, with the work folder kept or not.
    removal: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
struct Branch {
    name: BranchName,
    head: CommitId,
    /// Whose merge is in flight, or waits to be tried again.
    merging: Option<usize>,
    queue: VecDeque<usize>,
}

/// Counts, so that no event has to count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    /// Landed, and done before.
    landed: usize,
    failed: usize,
    /// The failed ones whose cause is the machinery's.
    machinery: usize,
    skipped: usize,
    /// Of these, those that the tasks file had as skipped.
    skipped_before: usize,
    undecided: usize,
}

impl Machine {
    /// A swarm that has not begun.
    pub fn new(spec: SwarmSpec) -> Self {
        let index = Index::new(&spec);
        let mut tally = Tally::default();
        let mut assignments = vec![Assignment::default(); spec.assignments.len()];
        let mut stories = Vec::with_capacity(spec.stories.len());
        for (place, story) in spec.stories.iter().enumerate() {
            let status = match story.done {
                Some(Done::Completed) => StoryStatus::Completed,
                Some(Done::Skipped) => StoryStatus::Skipped,
                None => StoryStatus::Pending,
            };
            match story.done {
                Some(Done::Completed) => tally.landed += 1,
                Some(Done::Skipped) => (tally.skipped, tally.skipped_before) = (tally.skipped + 1, tally.skipped + 1),
                None => tally.undecided += 1,
            }
            let owner = index.owner[place].filter(|_| story.done.is_none());
            if let Some(owner) = owner {
                assignments[owner].undecided += 1;
                let outside = |dependency: &&usize| {
                    index.owner[**dependency] != Some(owner) && spec.stories[**dependency].done.is_none()
                };
                assignments[owner].waiting_on += index.dependencies[place].iter().filter(outside).count();
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
                because: None,
                started: None,
                ended: None,
                duration: None,
                text: String::new(),
                salvaged: Vec::new(),
                previous: None,
            });
        }
        let mut branches: Vec<Branch> = Vec::new();
        for (file, place) in spec.files.iter().zip(&index.branch) {
            if *place == branches.len() {
                branches.push(Branch {
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
            wakes: BTreeSet::new(),
            reviews: BTreeSet::new(),
            loops: vec![Loop::default(); count],
            talks: vec![TaskTalk::default(); count],
            holds: vec![None; count],
            talk: Talk::default(),
            decisions: BTreeSet::new(),
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
            tally,
            began: false,
            stopping: None,
            engine_away: None,
            broken: false,
            finished: None,
            events: 0,
            now: Duration::ZERO,
        }
    }

    /// Takes an event in. `now` is the time since the swarm began; it is cut to whole milliseconds, as the journal
    /// keeps it, and never goes back.
    ///
    /// An event that is a duplicate, too late, impossible, or about something unknown changes nothing and gives no
    /// effects. Any other gives [`Effect::Persist`] first. After [`Effect::Finish`], which comes once, only
    /// [`Event::Resumed`], and what may come before it ([`Event::Away`], [`Event::Decided`]), can do anything. Removals
    /// that were asked for before it are still to be carried out.
    pub fn handle(&mut self, event: &Event, now: Duration) -> Vec<Effect> {
        let late = matches!(event, Event::Resumed | Event::Away { .. } | Event::Decided { .. });
        if self.finished.is_some() && !late {
            return Vec::new();
        }
        let before = self.now;
        self.now = before.max(Duration::from_millis(now.as_millis() as u64));
        let mut out = vec![Effect::Persist];
        let ended = self.finished.is_some() && *event != Event::Resumed;
        if self.take(event, &mut out) {
            self.events += 1;
            if ended {
                // A decision for later: what it wants done is done, and given again, when the swarm is taken up.
                out.retain(|effect| matches!(effect, Effect::Persist | Effect::Tell(_) | Effect::Announce(_)));
            }
            self.start_ready(&mut out);
            self.conclude(&mut out);
            out
        } else {
            self.now = before;
            Vec::new()
        }
    }

    /// Gives the event to its rule; false where it changed nothing.
    fn take(&mut self, event: &Event, out: &mut Vec<Effect>) -> bool {
        match event {
            Event::Began => self.begin(out),
            Event::Resumed => self.resume(out),
            Event::StopRequested { level, by } => self.stop(*level, by, out),
            Event::MachineryFailed { fault } => self.break_down(fault, out),
            Event::DeadlinePassed => self.fire_deadlines(out),
            Event::SandboxCreated { attempt, container, name } => self.created(attempt, container, name),
            Event::SandboxStarted { attempt } => self.started(attempt, out),
            Event::StartHeld { attempt, reason } => self.start_held(attempt, reason, out),
            Event::StartFailed { attempt, fault } => self.start_failed(attempt, fault, out),
            Event::Examined { attempt, paused, processes } => self.examined(attempt, *paused, processes, out),
            Event::EngineLost { problem } => self.engine_lost(problem, out),
            Event::EngineBack => self.engine_back(out),
            Event::StoryReported { attempt, record, story, status, output } => {
                self.story_reported(attempt, *record, story, *status, output, out)
            }
            Event::ErrorReported { attempt, record, code, message } => {
                self.error_reported(attempt, *record, code, message, out)
            }
            Event::CompletionReported { attempt, record, status, errors } => {
                self.completion_reported(attempt, *record, *status, errors, out)
            }
            Event::RecordRefused { attempt, record, reason } => self.record_refused(attempt, *record, reason, out),
            Event::SandboxEnded { attempt, exit } => self.ended(attempt, exit, out),
            Event::ResultCollected { attempt, tip, stories, rest, diffs, tree, kept } => {
                let came = settle::Came { tip: tip.as_ref(), results: stories, diffs, tree: tree.as_ref() };
                self.result_collected(attempt, came, kept.as_ref(), rest.as_ref(), out)
            }
            Event::ReviewCollected { attempt, reviewed } => self.review_collected(attempt, reviewed, out),
            Event::Decided { decision } => self.decided_by_admin(decision, out),
            Event::Away { ms } => self.was_away(Duration::from_millis(*ms)),
            Event::CollectFailed { attempt, fault, salvage, nothing_there, left_out, no_answer } => {
                let salvaged = salvage.is_some() || *nothing_there;
                let collected = settle::Salvage { reference: salvage.as_deref(), salvaged, whole: !left_out };
                self.collect_failed(attempt, fault, collected, *no_answer, out)
            }
            Event::Merged { attempt, head } => self.merged(attempt, head, out),
            Event::MergeConflicted { attempt, paths, kept } => self.merge_conflicted(attempt, paths, kept, out),
            Event::MergeFailed { attempt, fault, kept } => self.merge_failed(attempt, fault, kept, out),
            Event::SandboxRemoved { attempt } => self.removed(attempt),
        }
    }

    /// When to give [`Event::DeadlinePassed`], if nothing else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let own = self.deadlines.first().map(|(at, _)| *at);
        own.into_iter().chain(self.talk_deadline()).min().filter(|_| self.finished.is_none())
    }

    /// How it ended, once it has.
    pub fn finished(&self) -> Option<Outcome> {
        self.finished
    }

    /// Whether it ended with nothing left to do: there is nothing to resume.
    pub fn over(&self) -> bool {
        let open = matches!(self.finished, None | Some(Outcome::Interrupted | Outcome::Suspended));
        !open && !self.broken && self.tally.undecided == 0 && self.active == 0
    }

    /// How many events it has taken in: the journal's records.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether it has begun.
    pub fn began(&self) -> bool {
        self.began
    }

    /// Whether a stop was asked for, and how hard.
    pub fn stopping(&self) -> Option<StopLevel> {
        self.stopping
    }

    /// The time of the newest event.
    pub fn updated(&self) -> Duration {
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
    pub fn assignment(&self, id: &AssignmentId) -> Option<&AssignmentSpec> {
        self.index.assignments.get(id).map(|place| &self.spec.assignments[*place])
    }

    /// The attempts, in the order of their starts.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptView> {
        self.attempts.iter().map(|attempt| &attempt.view)
    }

    /// An attempt.
    pub fn attempt(&self, id: &AttemptId) -> Option<&AttemptView> {
        self.attempt_place(id).map(|place| &self.attempts[place].view)
    }

    /// The head of a file's integration branch, as far as the machine knows it.
    pub fn head(&self, file: u16) -> &CommitId {
        &self.branches[self.index.branch[usize::from(file)]].head
    }

    fn attempt_place(&self, id: &AttemptId) -> Option<usize> {
        let assignment = *self.index.assignments.get(&id.assignment)?;
        self.assignments[assignment].attempts.get(usize::try_from(id.number).ok()?.checked_sub(1)?).copied()
    }

    /// The attempt, if it is in one of these phases.
    fn attempt_in(&self, id: &AttemptId, phases: &[Phase]) -> Option<usize> {
        self.attempt_place(id).filter(|place| phases.contains(&self.attempts[*place].view.phase))
    }
}
