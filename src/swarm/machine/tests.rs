//! Tests of the machine: what they share. `table.rs` and `ends.rs` go through the rules one by one, `walk.rs` plays random swarms,
//! `check.rs` computes again from scratch what the machine keeps up to date.

mod amp;
mod check;
mod ends;
mod engine;
mod hold;
mod rest;
mod review;
mod table;
mod talk;
pub(crate) mod walk;

use std::time::Duration;

use super::Machine;
use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::effect::{Announcement, Effect, Outcome};
use crate::swarm::event::{Event, Exit, Fault};
use crate::swarm::spec::{AssignmentSpec, FileSpec, Limits, StorySpec, SwarmSpec};
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, Failure, StoryOutcome};

pub(super) fn story_id(number: u32) -> StoryId {
    StoryId::from_number(number).expect("small")
}

pub(super) fn key(number: u32) -> StoryKey {
    StoryKey { file: 0, id: story_id(number) }
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
    format!("{:012x}", number * 1000 + u64::from(id.number)).parse().expect("12 digits")
}

pub(super) fn limits() -> Limits {
    Limits {
        max: 2,
        retries: 1,
        machinery_retries: 3,
        backoff: Duration::from_secs(1),
        story_timeout: Duration::from_secs(60),
        idle_timeout: Duration::ZERO,
        slack: Duration::from_secs(10),
        grace: Duration::from_secs(5),
        max_bad_records: 3,
        liveness: Duration::from_secs(100_000),
    }
}

/// A plan of one file. Each entry is an assignment: its stories' numbers, each with the numbers that it depends on.
pub(super) fn spec(assignments: &[&[(u32, &[u32])]]) -> SwarmSpec {
    let file = FileSpec {
        path: "tasks/a.json".to_owned(),
        slug: "a".to_owned(),
        title: "A".to_owned(),
        branch: "feat/a".parse().expect("valid"),
        base: commit(1),
    };
    let mut spec = SwarmSpec {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        files: vec![file],
        stories: Vec::new(),
        assignments: Vec::new(),
        limits: limits(),
        amp: None,
    };
    for (place, stories) in assignments.iter().enumerate() {
        let number = place as u32 + 1;
        spec.assignments.push(AssignmentSpec {
            id: assignment(number),
            file: 0,
            branch: format!("longshore/{number}").parse().expect("valid"),
            stories: stories.iter().map(|(story, _)| key(*story)).collect(),
            priority: 1,
            apart_from: Vec::new(),
        });
        for (story, depends_on) in *stories {
            spec.stories.push(StorySpec {
                key: key(*story),
                title: format!("story {story}"),
                depends_on: depends_on.iter().map(|story| key(*story)).collect(),
                done: None,
                risk: RiskLevel::Low,
            });
        }
    }
    spec
}

/// A machine with the clock and the journal that its coordinator would have.
#[derive(Clone)]
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) now: Duration,
    pub(super) journal: Vec<(Event, Duration)>,
    /// What costs more than the machine itself is checked for one in this many events.
    pub(super) thorough: u64,
    given: u64,
}

impl Rig {
    pub(super) fn new(spec: SwarmSpec) -> Self {
        Self { machine: Machine::new(spec), now: Duration::ZERO, journal: Vec::new(), thorough: 1, given: 0 }
    }

    /// A swarm that has begun, and its first effects.
    pub(super) fn began(spec: SwarmSpec) -> (Self, Vec<Effect>) {
        let mut rig = Self::new(spec);
        let effects = rig.give(Event::Began);
        (rig, effects)
    }

    /// Gives an event, checks what holds of every event, and gives the effects without the `Persist`.
    pub(super) fn give(&mut self, event: Event) -> Vec<Effect> {
        self.given += 1;
        let before = self.given.is_multiple_of(self.thorough).then(|| self.machine.clone());
        let mut effects = self.machine.handle(&event, self.now);
        if before.is_some() {
            check::consistent(&self.machine);
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

    /// Gives an event that must change nothing.
    pub(super) fn ignores(&mut self, event: Event) {
        let before = self.journal.len();
        let effects = self.give(event.clone());
        assert!(effects.is_empty() && self.journal.len() == before, "{event:?} gave {effects:?}");
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Goes to the next deadline, which must be this many seconds away, and fires it.
    pub(super) fn deadline(&mut self, seconds: u64) -> Vec<Effect> {
        let at = self.machine.next_deadline().expect("a deadline");
        assert_eq!(at, self.now + Duration::from_secs(seconds), "the next deadline");
        self.now = at - Duration::from_millis(1);
        self.ignores(Event::DeadlinePassed);
        self.now = at;
        self.give(Event::DeadlinePassed)
    }

    pub(super) fn run(&mut self, id: &AttemptId) -> Vec<Effect> {
        let mut effects =
            self.give(Event::SandboxCreated { attempt: id.clone(), container: container(id), name: "box".to_owned() });
        effects.extend(self.give(Event::SandboxStarted { attempt: id.clone() }));
        effects
    }

    /// A sandbox's whole life with a completion, up to its end.
    pub(super) fn complete(&mut self, id: &AttemptId) -> Vec<Effect> {
        self.run(id);
        self.give(completion(id, 1, CompletionStatus::Completed));
        self.give(ended(id, exit(0)))
    }

    /// The same, with every story finished and merged; `head` is the new head.
    pub(super) fn land(&mut self, id: &AttemptId, stories: &[u32], head: u32) -> Vec<Effect> {
        self.complete(id);
        let results = stories.iter().map(|story| finished(*story)).collect();
        self.give(Event::ResultCollected {
            attempt: id.clone(),
            tip: Some(commit(900 + head)),
            stories: results,
            rest: None,
            diffs: Vec::new(),
            tree: None,
            kept: None,
        });
        self.give(Event::Merged { attempt: id.clone(), head: commit(head) })
    }

    pub(super) fn status(&self, story: u32) -> StoryStatus {
        self.machine.story(&key(story)).expect("in the plan").status
    }

    pub(super) fn cause(&self, story: u32) -> Option<Cause> {
        self.machine.story(&key(story)).expect("in the plan").failure.as_ref().map(|failure| failure.cause)
    }

    /// The journal, folded, is the machine.
    pub(super) fn fold(&self) -> Machine {
        let mut machine = Machine::new(self.machine.spec().clone());
        for (event, at) in &self.journal {
            assert!(!machine.handle(event, *at).is_empty(), "{event:?}");
        }
        assert!(machine == self.machine, "the folded journal is another machine");
        machine
    }
}

pub(super) fn exit(code: i64) -> Exit {
    Exit { code: Some(code), tail: vec!["last".to_owned()], ..Exit::default() }
}

pub(super) fn ended(id: &AttemptId, exit: Exit) -> Event {
    Event::SandboxEnded { attempt: id.clone(), exit }
}

pub(super) fn completion(id: &AttemptId, record: u64, status: CompletionStatus) -> Event {
    Event::CompletionReported { attempt: id.clone(), record, status, errors: Vec::new() }
}

pub(super) fn said(id: &AttemptId, record: u64, story: u32, status: StoryStatus) -> Event {
    Event::StoryReported { attempt: id.clone(), record, story: key(story), status, output: format!("record {record}") }
}

pub(super) fn refused(id: &AttemptId, record: u64) -> Event {
    Event::RecordRefused { attempt: id.clone(), record, reason: "not JSON".to_owned() }
}

pub(super) fn result(story: u32, outcome: StoryOutcome) -> StoryResult {
    StoryResult {
        id: story_id(story),
        outcome,
        criteria: Vec::new(),
        work_log: Vec::new(),
        commits: Vec::new(),
        duration_ms: 1500,
        remembered: Default::default(),
    }
}

pub(super) fn finished(story: u32) -> StoryResult {
    result(story, StoryOutcome::Finished { commit: commit(100 + story) })
}

pub(super) fn failed(story: u32, cause: Cause) -> StoryResult {
    let failure = Failure { salvage: Some(format!("refs/salvage/{story}")), ..Failure::new(cause, "it went wrong") };
    result(story, StoryOutcome::Failed { failure, salvage: None, unsaved: false })
}

pub(super) fn collected(id: &AttemptId, tip: Option<u32>, stories: Vec<StoryResult>) -> Event {
    Event::ResultCollected {
        attempt: id.clone(),
        tip: tip.map(commit),
        stories,
        rest: None,
        diffs: Vec::new(),
        tree: None,
        kept: None,
    }
}

pub(super) fn collect_failed(id: &AttemptId, cause: Cause, retryable: bool, salvage: Option<&str>) -> Event {
    Event::CollectFailed {
        attempt: id.clone(),
        fault: Fault::new(cause, "no result", retryable),
        salvage: salvage.map(str::to_owned),
        nothing_there: false,
        left_out: false,
        no_answer: false,
    }
}

pub(super) fn started(effects: &[Effect]) -> Vec<AttemptId> {
    let starts = effects.iter().filter_map(|effect| match effect {
        Effect::Start { attempt, .. } => Some(attempt.clone()),
        _ => None,
    });
    starts.collect()
}

pub(super) fn outcome(effects: &[Effect]) -> Option<Outcome> {
    match effects.last() {
        Some(Effect::Finish(outcome)) => Some(*outcome),
        _ => None,
    }
}

pub(super) fn announced(effects: &[Effect], test: impl Fn(&Announcement) -> bool) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Announce(said) if test(said))).count()
}
