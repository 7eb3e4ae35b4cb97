//! `longshore run --json`: an NDJSON event stream ([`event`](super::event)), flushed line by line.

use std::io::Write;

use jiff::Timestamp;

use super::background_writer::{BackgroundWriter, FirstWriteError};
use super::event::{EVENT_VERSION, EventLine};
use super::reporter::Reporter;
use crate::ids::SwarmId;
use crate::swarm::Announcement;

/// Writes events to a writer.
pub struct JsonReporter {
    swarm: SwarmId,
    writer: BackgroundWriter,
    seq: u64,
}

impl JsonReporter {
    /// Starts a stream. A closed reader or a full disk does not end the swarm: the error is recorded in `first_error`.
    pub fn new(swarm: SwarmId, writer: impl Write + Send + 'static, first_error: FirstWriteError) -> Self {
        Self { swarm, writer: BackgroundWriter::new(writer, first_error), seq: 0 }
    }
}

impl Reporter for JsonReporter {
    fn announce(&mut self, at: Timestamp, announcement: &Announcement) {
        self.seq += 1;
        let line = EventLine { v: EVENT_VERSION, seq: self.seq, at, swarm: self.swarm, announcement };
        if let Ok(mut bytes) = serde_json::to_vec(&line) {
            bytes.push(b'\n');
            self.writer.write(bytes);
        }
    }

    fn close(&mut self) {
        self.writer.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AssignmentId, AttemptId, CommitId, StoryId, StoryKey};
    use crate::protocol::amp::message::{EscalationSeverity, EscalationType, ReviewDecision};
    use crate::report::background_writer::tests::{BlockingWriter, CapturedLines};
    use crate::report::story_labels::tests::{spec, story_ref, swarm_id};
    use crate::swarm::{StopLevel, SwarmOutcome};
    use crate::verdict::{Cause, Failure};
    use std::time::Duration;

    /// One of each type.
    fn samples() -> Vec<Announcement> {
        let story =
            |number: u32| spec(2).story_ref(&StoryKey { file: 1, id: StoryId::from_number(number).expect("valid") });
        let (one, stories) = (story(1), vec![story(1), story(2)]);
        let task = AssignmentId::new(2026, 3);
        let attempt = AttemptId { assignment: task.clone(), number: 2 };
        let checker = AttemptId { assignment: task.clone(), number: 3 };
        let commit = |digit: &str| digit.repeat(40).parse::<CommitId>().expect("valid");
        let failure = Failure { salvage: Some("refs/longshore/x".to_owned()), ..Failure::new(Cause::Oom, "killed") };
        let (by, problem) = ("ada".to_owned(), "no \u{1b}[0mspace\nleft".to_owned());
        vec![
            Announcement::SwarmStarted { stories: 3, done: 1, assignments: 2, max_sandboxes: 4 },
            Announcement::SwarmResumed { stories: 3, done: 1, running: 2 },
            Announcement::SandboxStarting { attempt: attempt.clone(), stories: stories.clone() },
            Announcement::StartDelayed { attempt: attempt.clone(), reason: problem.clone() },
            Announcement::SandboxPaused { attempt: attempt.clone(), container: "longshore-1".to_owned() },
            Announcement::SandboxStarted {
                attempt: attempt.clone(),
                container: "c0ffee".repeat(8).parse().expect("valid"),
            },
            Announcement::SandboxEnded {
                attempt: attempt.clone(),
                exit_code: Some(137),
                oom_killed: true,
                vanished: false,
                error: "out of memory".to_owned(),
                stderr_tail: vec!["bye".to_owned()],
            },
            Announcement::SandboxEnded {
                attempt: attempt.clone(),
                exit_code: None,
                oom_killed: false,
                vanished: true,
                error: String::new(),
                stderr_tail: Vec::new(),
            },
            Announcement::StoryStarted {
                story: one.clone(),
                title: "Add the parser".to_owned(),
                attempt: attempt.clone(),
            },
            Announcement::StoryProgress { story: one.clone(), text: problem.clone() },
            Announcement::StoryFinished { story: one.clone() },
            Announcement::StoryLanded {
                story: one.clone(),
                commit: commit("a"),
                head: commit("b"),
                duration: Duration::from_micros(2_100_999),
            },
            Announcement::StoryRetried {
                story: one.clone(),
                failure: failure.clone(),
                next_attempt: 3,
                delay: Duration::from_secs(5),
            },
            Announcement::StoryFailed { story: one.clone(), failure: Failure::new(Cause::Hung, ""), attempts: 2 },
            Announcement::StorySkipped { story: story(2), blocked_by: one },
            Announcement::ReviewStarted { attempt: attempt.clone(), stories: stories.clone(), round: 1 },
            Announcement::ReviewEnded {
                attempt: attempt.clone(),
                stories: stories.clone(),
                decision: ReviewDecision::ApprovedWithFix,
                confidence: 0.5,
                issues: 6,
                reject_count: 1,
            },
            Announcement::Escalated {
                message: "escalation-T-2026-003-1772116327001".parse().expect("an id"),
                task: task.clone(),
                stories,
                escalation_type: EscalationType::HallucinationLock,
                severity: EscalationSeverity::Critical,
                description: "rejected 4 times".to_owned(),
                suggested_actions: vec!["look at it".to_owned()],
                auto_suspended: true,
            },
            Announcement::DecisionApplied { task, action: "retry".to_owned(), by: by.clone() },
            Announcement::NotifyFailed { problem: problem.clone() },
            Announcement::MemoryDamaged { problem: problem.clone() },
            Announcement::RecordRefused { attempt: attempt.clone(), reason: problem.clone(), count: 7 },
            Announcement::ErrorReported {
                attempt: attempt.clone(),
                code: "AGENT_CRASH".to_owned(),
                message: problem.clone(),
            },
            Announcement::Salvaged { attempt: attempt.clone(), reference: "refs/longshore/x".to_owned() },
            Announcement::WorkDirKept { attempt, work_dir: "T-2026-003-2".to_owned(), partly_salvaged: true },
            Announcement::Stopping { level: StopLevel::Graceful, by },
            Announcement::EngineLost { problem },
            Announcement::EngineReconnected,
            Announcement::MachineryFailed { failure: failure.clone() },
            Announcement::CheckStarted { attempt: checker.clone(), stories: vec![story(2)], commit: commit("a") },
            Announcement::CheckEnded { attempt: checker.clone(), stories: vec![story(2)], failure: None },
            Announcement::CheckEnded { attempt: checker, stories: Vec::new(), failure: Some(failure.clone()) },
            Announcement::BranchRed { commit: commit("b"), failure },
            Announcement::BranchRewound { commit: commit("a"), stories: vec![story(2)] },
            Announcement::SwarmEnded {
                outcome: SwarmOutcome::SomeFailed,
                exit_code: 1,
                landed: 1,
                failed: 2,
                skipped: 3,
                pending: 4,
            },
        ]
    }

    #[test]
    fn lines_are_those_of_the_golden_file_and_match_the_schema() {
        let out = CapturedLines::default();
        let mut json = JsonReporter::new(swarm_id(), out.clone(), FirstWriteError::default());
        for announcement in samples() {
            json.announce("2026-11-21T12:03:04Z".parse().expect("a time"), &announcement);
        }
        json.close();
        let (found, wanted) = (out.text(), include_str!("../../tests/golden/events/1.ndjson"));
        for (found, wanted) in found.lines().zip(wanted.lines()) {
            assert_eq!(found, wanted);
        }
        assert_eq!(found, wanted);

        let schema = serde_json::to_value(schemars::schema_for!(EventLine)).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a good schema");
        let lines: Vec<serde_json::Value> =
            found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for line in &lines {
            assert!(validator.is_valid(line), "{line}");
        }
        assert!(!validator.is_valid(&serde_json::json!({"v": 1})), "the schema must refuse something");
        for variant in schema["oneOf"].as_array().expect("a schema a type") {
            let name = &variant["properties"]["type"]["const"];
            assert!(lines.iter().any(|line| line["type"] == *name), "no sample of {name}");
        }
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        }
        let trouble = FirstWriteError::default();
        let mut json = JsonReporter::new(swarm_id(), Gone, trouble.clone());
        let started = Announcement::SwarmStarted { stories: 1, done: 0, assignments: 1, max_sandboxes: 1 };
        json.announce(Timestamp::UNIX_EPOCH, &started);
        json.close();
        assert_eq!(json.seq, 1);
        assert!(trouble.error().is_none());
    }

    #[test]
    fn a_slow_reader_does_not_block() {
        let (go, blocked) = std::sync::mpsc::channel();
        let out = CapturedLines::default();
        let mut json = JsonReporter::new(swarm_id(), BlockingWriter(blocked, out.clone()), FirstWriteError::default());
        let words = "a word ".repeat(1000);
        for _ in 0..100 {
            let story = story_ref("US-001");
            json.announce(Timestamp::UNIX_EPOCH, &Announcement::StoryProgress { story, text: words.clone() });
        }
        assert_eq!(out.text(), "", "nothing was read yet, and nothing waited for that");
        drop(go);
        json.close();
        assert_eq!(out.text().lines().count(), 100);
    }
}
