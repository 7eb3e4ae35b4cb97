//! `longshore run --json`: an NDJSON event stream ([`event`](super::event)), flushed line by line.

use std::io::Write;

use jiff::Timestamp;

use super::background_writer::{BackgroundWriter, FirstWriteError};
use super::event::{EVENT_VERSION, EventLine, event_body};
use super::reporter::Reporter;
use super::story_labels::StoryLabels;
use crate::swarm::Announcement;

/// Writes events to a writer.
pub struct JsonReporter {
    labels: StoryLabels,
    writer: BackgroundWriter,
    seq: u64,
}

impl JsonReporter {
    /// Starts a stream. A closed reader or a full disk does not end the swarm: the error is recorded in `first_error`.
    pub fn new(labels: StoryLabels, writer: impl Write + Send + 'static, first_error: FirstWriteError) -> Self {
        Self { labels, writer: BackgroundWriter::new(writer, first_error), seq: 0 }
    }
}

impl Reporter for JsonReporter {
    fn announce(&mut self, at: Timestamp, announcement: &Announcement) {
        self.seq += 1;
        let line = EventLine {
            v: EVENT_VERSION,
            seq: self.seq,
            at,
            swarm: self.labels.swarm().to_string(),
            body: event_body(&self.labels, announcement),
        };
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
    use crate::ids::{AssignmentId, AttemptId, StoryKey};
    use crate::report::background_writer::tests::{BlockingWriter, CapturedLines};
    use crate::report::story_labels::tests::spec;
    use crate::swarm::{ContainerExit, SwarmOutcome};
    use crate::verdict::{Cause, Failure};

    fn lines(announcements: &[Announcement]) -> Vec<serde_json::Value> {
        let out = CapturedLines::default();
        let mut json = JsonReporter::new(StoryLabels::from_spec(&spec(2)), out.clone(), FirstWriteError::default());
        for announcement in announcements {
            json.announce("2026-11-21T12:03:04Z".parse().expect("a time"), announcement);
        }
        json.close();
        out.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn lines_are_numbered_and_match_the_schema() {
        let story = StoryKey { file: 1, id: "US-001".parse().expect("valid") };
        let attempt = AttemptId { assignment: AssignmentId::new(2026, 3), number: 2 };
        let exit = ContainerExit { code: Some(0), ..ContainerExit::default() };
        let found = lines(&[
            Announcement::StoryStarted { story: story.clone(), attempt: attempt.clone() },
            Announcement::SandboxEnded { attempt, exit },
            Announcement::StoryProgress { story: story.clone(), text: "a\nb\u{1b}[0m".to_owned() },
            Announcement::StoryFailed { story, failure: Failure::new(Cause::Oom, "killed"), attempts: 2 },
            Announcement::SwarmEnded {
                outcome: SwarmOutcome::SomeFailed,
                landed: 0,
                failed: 1,
                skipped: 0,
                pending: 0,
            },
        ]);
        let first = serde_json::json!({
            "v": 1, "seq": 1, "at": "2026-11-21T12:03:04Z", "swarm": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
            "type": "story_started", "story": "f1/US-001", "title": "Add the parser",
            "attempt": {"assignment": "T-2026-003", "number": 2},
        });
        assert_eq!(found[0], first);
        assert_eq!(found[3]["failure"]["cause"], "oom");
        assert_eq!(found[4]["exitCode"], 1);
        let schema = serde_json::to_value(schemars::schema_for!(EventLine)).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a good schema");
        for (place, line) in found.iter().enumerate() {
            assert_eq!(line["seq"], place as u64 + 1);
            assert!(validator.is_valid(line), "{line}");
        }
        assert!(!validator.is_valid(&serde_json::json!({"v": 1})), "the schema must refuse something");
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
        let mut json = JsonReporter::new(StoryLabels::from_spec(&spec(1)), Gone, trouble.clone());
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
        let mut json = JsonReporter::new(
            StoryLabels::from_spec(&spec(1)),
            BlockingWriter(blocked, out.clone()),
            FirstWriteError::default(),
        );
        let words = "a word ".repeat(1000);
        for _ in 0..100 {
            let story = StoryKey { file: 0, id: "US-001".parse().expect("valid") };
            json.announce(Timestamp::UNIX_EPOCH, &Announcement::StoryProgress { story, text: words.clone() });
        }
        assert_eq!(out.text(), "", "nothing was read yet, and nothing waited for that");
        drop(go);
        json.close();
        assert_eq!(out.text().lines().count(), 100);
    }
}
