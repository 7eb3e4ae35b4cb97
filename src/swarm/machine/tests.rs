//! Tests of the machine, and their fixtures. `random_walk.rs` plays random swarms; the other files test the rules one by one.
//! `consistency.rs` computes from scratch what the machine keeps up to date.

mod amp_fixtures;
mod amp_messages;
mod collect;
mod consistency;
mod engine;
mod hold;
mod landing;
mod leftover;
mod lifecycle;
pub(crate) mod random_walk;
mod review;
mod sandbox_ends;
mod scheduling;

use std::time::Duration;

use super::SwarmMachine;
use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::announcement::{Announcement, StoryRef};
use crate::swarm::effect::{CollectMode, Effect};
use crate::swarm::event::{ContainerExit, Event, MachineryFault, StopLevel};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmLimits, SwarmSpec, TasksFileSpec};
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, Failure, StoryOutcome};

pub(super) fn story_id(number: u32) -> StoryId {
    StoryId::from_number(number).expect("small")
}

pub(super) fn key(number: u32) -> StoryKey {
    StoryKey { file: 0, id: story_id(number) }
}

pub(super) fn story_ref(number: u32) -> StoryRef {
    StoryRef { key: key(number), label: story_id(number).to_string() }
}

pub(super) fn commit(number: u32) -> CommitId {
    format!("{number:040x}").parse().expect("40 digits")
}

pub(super) fn assignment(number: u32) -> AssignmentId {
    AssignmentId::new(2026, number)
}

pub(super) fn attempt(number: u32, attempt: u32) -> AttemptId {
    AttemptId { assignment: assignment(number), number: attempt }
}

pub(super) fn container(id: &AttemptId) -> ContainerId {
    let number: u64 = id.assignment.as_str()[7..].parse().expect("digits");
    format!("{:012x}", number * 100_000 + u64::from(id.number)).parse().expect("12 digits")
}

pub(super) fn limits() -> SwarmLimits {
    SwarmLimits {
        max_sandboxes: 2,
        retries: 1,
        machinery_retries: 3,
        backoff: Duration::from_secs(1),
        story_timeout: Duration::from_secs(60),
        idle_timeout: Duration::ZERO,
        slack: Duration::from_secs(10),
        grace_period: Duration::from_secs(5),
        max_bad_records: 3,
        liveness_timeout: Duration::from_secs(100_000),
    }
}

/// A plan of one file. Each entry is an assignment: its story numbers, each with those that it depends on.
pub(super) fn spec(assignments: &[&[(u32, &[u32])]]) -> SwarmSpec {
    let file = TasksFileSpec {
        path: "tasks/a.json".to_owned(),
        slug: "a".to_owned(),
        title: "A".to_owned(),
        branch: "feat/a".parse().expect("valid"),
        base: commit(1),
        has_verify: false,
    };
    let mut spec = SwarmSpec {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        files: vec![file],
        stories: Vec::new(),
        assignments: Vec::new(),
        limits: limits(),
        amp: None,
        landing: None,
    };
    for (number, stories) in (1..).zip(assignments) {
        spec.assignments.push(AssignmentSpec {
            id: assignment(number),
            file: 0,
            branch: format!("longshore/{number}").parse().expect("valid"),
            stories: stories.iter().map(|(story, _)| key(*story)).collect(),
            priority: 1,
            exclusive_with: Vec::new(),
        });
        for (story, depends_on) in *stories {
            spec.stories.push(StorySpec {
                key: key(*story),
                title: format!("story {story}"),
                depends_on: depends_on.iter().map(|story| key(*story)).collect(),
                done: None,
                risk: RiskLevel::Low,
                has_command: false,
                has_verify: false,
                tested_criteria: Vec::new(),
            });
        }
    }
    spec
}

/// A machine with the clock and the journal of its coordinator.
#[derive(Clone)]
pub(super) struct MachineHarness {
    pub(super) machine: SwarmMachine,
    pub(super) now: Duration,
    pub(super) journal: Vec<(Event, Duration)>,
    /// One in this many events gets the expensive checks.
    pub(super) full_check_every: u64,
    handled_events: u64,
}

impl MachineHarness {
    pub(super) fn new(spec: SwarmSpec) -> Self {
        Self {
            machine: SwarmMachine::new(spec),
            now: Duration::ZERO,
            journal: Vec::new(),
            full_check_every: 1,
            handled_events: 0,
        }
    }

    /// A swarm that has begun, and the effects of that.
    pub(super) fn begun(spec: SwarmSpec) -> (Self, Vec<Effect>) {
        let mut rig = Self::new(spec);
        let effects = rig.handle(Event::Began);
        (rig, effects)
    }

    /// Handles an event, checks what holds for all of them, and returns the effects without the `Persist`.
    pub(super) fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.handled_events += 1;
        let before = self.handled_events.is_multiple_of(self.full_check_every).then(|| self.machine.clone());
        let mut effects = self.machine.handle(&event, self.now);
        if before.is_some() {
            consistency::assert_consistent(&self.machine);
        }
        let unchanged = before.map(|before| before == self.machine);
        if effects.is_empty() {
            assert!(unchanged != Some(false), "an event without effects changed something: {event:?}");
            return effects;
        }
        assert_eq!(effects.remove(0), Effect::Persist, "{event:?}");
        assert!(!effects.contains(&Effect::Persist), "{event:?}");
        assert!(unchanged != Some(true) || event == Event::Resumed, "an event with effects changed nothing: {event:?}");
        self.journal.push((event, self.now));
        effects
    }

    /// Handles an event that must change nothing.
    pub(super) fn assert_ignored(&mut self, event: Event) {
        let before = self.journal.len();
        let effects = self.handle(event.clone());
        assert!(effects.is_empty() && self.journal.len() == before, "{event:?} gave {effects:?}");
    }

    pub(super) fn advance_secs(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Advances to the next deadline, which must be this many seconds away, and fires it.
    pub(super) fn fire_deadline_in(&mut self, seconds: u64) -> Vec<Effect> {
        let at = self.machine.next_deadline().expect("a deadline");
        assert_eq!(at, self.now + Duration::from_secs(seconds), "the next deadline");
        self.now = at - Duration::from_millis(1);
        self.assert_ignored(Event::DeadlinePassed);
        self.now = at;
        self.handle(Event::DeadlinePassed)
    }

    pub(super) fn start_sandbox(&mut self, id: &AttemptId) -> Vec<Effect> {
        let mut effects = self.handle(Event::SandboxCreated {
            attempt: id.clone(),
            container: container(id),
            name: "box".to_owned(),
        });
        effects.extend(self.handle(Event::SandboxStarted { attempt: id.clone() }));
        effects
    }

    /// Runs a sandbox with a completion, up to its end.
    pub(super) fn run_to_completion(&mut self, id: &AttemptId) -> Vec<Effect> {
        self.start_sandbox(id);
        self.handle(completion_reported(id, 1, CompletionStatus::Completed));
        self.handle(sandbox_ended(id, container_exit(0)))
    }

    /// The same, with all stories finished and merged; `head` is the new head.
    pub(super) fn run_and_land(&mut self, id: &AttemptId, stories: &[u32], head: u32) -> Vec<Effect> {
        self.run_to_completion(id);
        let results = stories.iter().map(|story| finished_story(*story)).collect();
        self.handle(result_collected(id, Some(900 + head), results));
        self.handle(merged(id, head))
    }

    pub(super) fn status(&self, story: u32) -> StoryStatus {
        self.machine.story(&key(story)).expect("in the plan").status
    }

    pub(super) fn cause(&self, story: u32) -> Option<Cause> {
        self.machine.story(&key(story)).expect("in the plan").failure.as_ref().map(|failure| failure.cause)
    }

    /// Replays the journal, which must give the same machine.
    pub(super) fn replay_journal(&self) -> SwarmMachine {
        let mut machine = SwarmMachine::new(self.machine.spec().clone());
        for (event, at) in &self.journal {
            assert!(!machine.handle(event, *at).is_empty(), "{event:?}");
        }
        assert!(machine == self.machine, "the replayed journal gives another machine");
        machine
    }
}

pub(super) fn single_story_swarm() -> (MachineHarness, AttemptId) {
    let (rig, _) = MachineHarness::begun(spec(&[&[(1, &[])]]));
    (rig, attempt(1, 1))
}

/// Ends a single-story sandbox without a result. Returns the cause of the story's failure.
pub(super) fn diagnosed_cause(rig: &mut MachineHarness, id: &AttemptId, exit: ContainerExit) -> Cause {
    let effects = rig.handle(sandbox_ended(id, exit));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), mode: CollectMode::Salvage }));
    let effects = rig.handle(collect_failed(id, Cause::HostError, false, Some("refs/salvage")));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work_dir: false }));
    let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
    assert_eq!(failure.salvage.as_deref(), Some("refs/salvage"));
    failure.cause
}

pub(super) fn stop_requested(level: StopLevel) -> Event {
    Event::StopRequested { level, by: "SIGINT".to_owned() }
}

pub(super) fn merged(id: &AttemptId, head: u32) -> Event {
    Event::Merged { attempt: id.clone(), head: commit(head) }
}

pub(super) fn error_reported(id: &AttemptId, record_number: u64, code: &str) -> Event {
    Event::ErrorReported { attempt: id.clone(), record_number, code: code.to_owned(), message: "m".to_owned() }
}

pub(super) fn container_exit(code: i64) -> ContainerExit {
    ContainerExit { code: Some(code), stderr_tail: vec!["last".to_owned()], ..ContainerExit::default() }
}

pub(super) fn sandbox_ended(id: &AttemptId, exit: ContainerExit) -> Event {
    Event::SandboxEnded { attempt: id.clone(), exit }
}

pub(super) fn completion_reported(id: &AttemptId, record: u64, status: CompletionStatus) -> Event {
    Event::CompletionReported { attempt: id.clone(), record_number: record, status, errors: Vec::new() }
}

pub(super) fn story_reported(id: &AttemptId, record: u64, story: u32, status: StoryStatus) -> Event {
    Event::StoryReported {
        attempt: id.clone(),
        record_number: record,
        story: key(story),
        status,
        output: format!("record {record}"),
    }
}

pub(super) fn record_refused(id: &AttemptId, record: u64) -> Event {
    Event::RecordRefused { attempt: id.clone(), record_number: record, reason: "not JSON".to_owned() }
}

pub(super) fn story_result(story: u32, outcome: StoryOutcome) -> StoryResult {
    StoryResult {
        id: story_id(story),
        outcome,
        criteria: Vec::new(),
        work_log: Vec::new(),
        commits: Vec::new(),
        duration_ms: 1500,
        agent_notes: Default::default(),
    }
}

pub(super) fn finished_story(story: u32) -> StoryResult {
    story_result(story, StoryOutcome::Finished { commit: commit(100 + story) })
}

pub(super) fn failed_story(story: u32, cause: Cause) -> StoryResult {
    let failure = Failure { salvage: Some(format!("refs/salvage/{story}")), ..Failure::new(cause, "it went wrong") };
    story_result(story, StoryOutcome::Failed { failure, salvage: None, unsaved: false })
}

pub(super) fn result_collected(id: &AttemptId, tip: Option<u32>, stories: Vec<StoryResult>) -> Event {
    Event::ResultCollected {
        attempt: id.clone(),
        tip: tip.map(commit),
        stories,
        leftover: None,
        diffs: Vec::new(),
        tree: None,
        result_ref: None,
    }
}

pub(super) fn collect_failed(id: &AttemptId, cause: Cause, retryable: bool, salvage: Option<&str>) -> Event {
    Event::CollectFailed {
        attempt: id.clone(),
        fault: MachineryFault::new(cause, "no result", retryable),
        salvage_ref: salvage.map(str::to_owned),
        work_dir_empty: false,
        salvage_incomplete: false,
        depot_timed_out: false,
    }
}

pub(super) fn started_attempts(effects: &[Effect]) -> Vec<AttemptId> {
    let starts = effects.iter().filter_map(|effect| match effect {
        Effect::Start { attempt, .. } => Some(attempt.clone()),
        _ => None,
    });
    starts.collect()
}

pub(super) fn finish_outcome(effects: &[Effect]) -> Option<SwarmOutcome> {
    match effects.last() {
        Some(Effect::Finish(outcome)) => Some(*outcome),
        _ => None,
    }
}

pub(super) fn count_announcements(effects: &[Effect], test: impl Fn(&Announcement) -> bool) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Announce(said) if test(said))).count()
}
