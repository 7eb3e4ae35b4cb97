//! Tests of the state folder: what they share.

mod damage;
mod swarm_dirs;
mod snapshot_policy;

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, StoryId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::{
    AssignmentSpec, ContainerExit, Effect, Event, StorySpec, SwarmLimits, SwarmMachine, SwarmSpec, TasksFileSpec,
};
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, Failure, StoryOutcome};

fn started() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().expect("valid")
}

fn commit(number: usize) -> crate::ids::CommitId {
    format!("{number:040x}").parse().expect("40 digits")
}

/// A plan of this many stories that depend on nothing, in files of 500.
fn spec(stories: usize) -> SwarmSpec {
    let key = |n: usize| StoryKey {
        file: (n / 500) as u16,
        id: StoryId::from_number((n % 500) as u32 + 1).expect("below 1000"),
    };
    SwarmSpec {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        files: (0..stories.div_ceil(500))
            .map(|file| TasksFileSpec {
                path: format!("tasks/feature-{file}.json"),
                slug: format!("feature-{file}"),
                title: "A feature".to_owned(),
                branch: "feat/feature".parse().expect("valid"),
                base: commit(1),
                has_verify: false,
            })
            .collect(),
        stories: (0..stories)
            .map(|n| StorySpec {
                key: key(n),
                title: format!("Story {n} of the feature"),
                depends_on: Vec::new(),
                done: None,
                risk: RiskLevel::Low,
                has_command: false,
                has_verify: false,
                tested_criteria: Vec::new(),
            })
            .collect(),
        assignments: (0..stories)
            .map(|n| AssignmentSpec {
                id: AssignmentId::new(2026, n as u32 + 1),
                file: (n / 500) as u16,
                branch: format!("longshore/a1b2c3d4/story-{n}").parse().expect("valid"),
                stories: vec![key(n)],
                priority: n as i64,
                exclusive_with: Vec::new(),
            })
            .collect(),
        amp: None,
        landing: None,
        limits: SwarmLimits {
            max_sandboxes: 4,
            retries: 1,
            machinery_retries: 3,
            backoff: Duration::from_secs(1),
            story_timeout: Duration::from_secs(1800),
            idle_timeout: Duration::ZERO,
            slack: Duration::from_secs(60),
            grace_period: Duration::from_secs(10),
            max_bad_records: 100,
            liveness_timeout: Duration::from_secs(150),
        },
    }
}

fn header(stories: usize) -> JournalHeader {
    JournalHeader {
        schema_version: journal::JOURNAL_VERSION,
        program_version: "0.1.0".to_owned(),
        swarm_id: spec(1).swarm,
        started: started(),
        spec: spec(stories),
        settings: serde_json::json!({"max": 4}),
        tasks: vec![TasksFileCopy {
            canonical: None,
            path: "tasks/feature-0.json".to_owned(),
            content: "{\"userStories\": []}\n".to_owned(),
        }],
    }
}

/// A swarm played to its end, one event each 50 ms: four updates a story, the second one fails for good, the third was stopped
/// from outside once.
struct SimulatedSwarm {
    machine: SwarmMachine,
    now: Duration,
    pending: std::collections::VecDeque<Event>,
    commits: usize,
}

impl SimulatedSwarm {
    fn new(stories: usize) -> Self {
        let pending = [Event::Began].into();
        Self { machine: SwarmMachine::new(spec(stories)), now: Duration::ZERO, pending, commits: 100 }
    }

    /// The next event that the machine took in.
    fn next_event(&mut self) -> Option<(Event, Duration)> {
        while self.machine.outcome().is_none() {
            self.now += Duration::from_millis(50);
            let event = self.pending.pop_front().unwrap_or_else(|| {
                self.now = self.machine.next_deadline().expect("something can happen").max(self.now);
                Event::DeadlinePassed
            });
            let effects = self.machine.handle(&event, self.now);
            for effect in &effects {
                self.handle_effect(effect);
            }
            if !effects.is_empty() {
                return Some((event, self.now));
            }
        }
        None
    }

    fn handle_effect(&mut self, effect: &Effect) {
        let new = match effect {
            Effect::Start { attempt, stories, .. } => self.sandbox_events(attempt, &stories[0].0),
            Effect::Collect { attempt, .. } => {
                let id = self.machine.attempt(attempt).expect("started").stories[0].0.id.clone();
                self.commits += 1;
                let outcome = if attempt.assignment == AssignmentId::new(2026, 2) {
                    let failure = Failure::new(Cause::VerificationFailed, "`make test` exited 2");
                    StoryOutcome::Failed { failure, salvage: None, unsaved: false }
                } else {
                    StoryOutcome::Finished { commit: commit(self.commits) }
                };
                let tip = matches!(outcome, StoryOutcome::Finished { .. }).then(|| commit(self.commits));
                let result = StoryResult {
                    id,
                    outcome,
                    criteria: Vec::new(),
                    work_log: Vec::new(),
                    commits: tip.clone().into_iter().collect(),
                    duration_ms: 1234,
                    agent_notes: Default::default(),
                };
                vec![Event::ResultCollected {
                    attempt: attempt.clone(),
                    tip,
                    stories: vec![result],
                    leftover: None,
                    diffs: Vec::new(),
                    tree: None,
                    result_ref: None,
                }]
            }
            Effect::Merge { attempt, .. } => {
                self.commits += 1;
                vec![Event::Merged { attempt: attempt.clone(), head: commit(self.commits) }]
            }
            Effect::Remove { attempt, .. } => vec![Event::SandboxRemoved { attempt: attempt.clone() }],
            _ => Vec::new(),
        };
        self.pending.extend(new);
    }

    fn sandbox_events(&self, attempt: &AttemptId, story: &StoryKey) -> Vec<Event> {
        let attempt = attempt.clone();
        let container = format!("{:064x}", 7 + self.commits).parse().expect("64 digits");
        let says = |record, status| Event::StoryReported {
            attempt: attempt.clone(),
            record_number: record,
            story: story.clone(),
            status,
            output: "Reading the sources and writing a test first".to_owned(),
        };
        let exit = ContainerExit { code: Some(0), ..ContainerExit::default() };
        let mut events = vec![
            Event::SandboxCreated {
                attempt: attempt.clone(),
                container,
                name: format!("longshore-{}", attempt.dir_name()),
            },
            Event::SandboxStarted { attempt: attempt.clone() },
            says(1, StoryStatus::InProgress),
            says(2, StoryStatus::InProgress),
        ];
        if attempt.number == 1 && attempt.assignment == AssignmentId::new(2026, 3) {
            let fault = crate::swarm::MachineryFault::new(Cause::HostError, "no result", false);
            let (salvage, nothing_there) = (None, true);
            events.push(Event::SandboxEnded {
                attempt: attempt.clone(),
                exit: ContainerExit { code: Some(137), ..exit },
            });
            events.push(Event::CollectFailed {
                attempt,
                fault,
                salvage_ref: salvage,
                work_dir_empty: nothing_there,
                salvage_incomplete: false,
                depot_timed_out: false,
            });
            return events;
        }
        let completed = CompletionStatus::Completed;
        events.push(says(3, StoryStatus::InProgress));
        events.push(says(4, StoryStatus::Completed));
        events.push(Event::CompletionReported {
            attempt: attempt.clone(),
            record_number: 5,
            status: completed,
            errors: vec![],
        });
        events.push(Event::SandboxEnded { attempt, exit });
        events
    }
}

/// The stories of a [`SampleJournal`].
const STORIES: usize = 1;

/// A journal of a small swarm: its bytes, its events, and the offset of each record.
struct SampleJournal {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
    events: Vec<(Event, Duration)>,
}

impl SampleJournal {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal.ndjson");
        // Small: every byte of it is damaged in turn.
        let mut play = SimulatedSwarm::new(STORIES);
        let events: Vec<(Event, Duration)> = std::iter::from_fn(|| play.next_event()).collect();
        assert!(events.len() > 10, "a journal with something in it");
        let mut journal = Journal::create(&path, &header(STORIES)).expect("created");
        // In batches of different sizes.
        for batch in events.chunks(4) {
            journal.append(batch, started()).expect("appended");
        }
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!(bytes.len() as u64, journal.byte_len());
        Self { folder, bytes, events }
    }

    /// Where each line begins, and the end.
    fn line_offsets(&self) -> Vec<usize> {
        let ends = self.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        std::iter::once(0).chain(ends).collect()
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("journal.ndjson")
    }

    /// The machine after so many events.
    fn machine(&self, events: usize) -> SwarmMachine {
        let mut machine = SwarmMachine::new(spec(STORIES));
        for (event, at) in &self.events[..events] {
            assert!(!machine.handle(event, *at).is_empty());
        }
        machine
    }
}
