//! Prints one plain line per event: for logs, CI jobs, and terminals without progress bars.
//!
//! `12:03:04 US-001 landed 3f2a1b4c5d (2.1 s)`. A story's progress is shown at most every ten seconds, so that a long run
//! stays readable; `--json` has all of it.

use std::collections::HashMap;
use std::io::Write;

use jiff::{SignedDuration, Timestamp};

use super::background_writer::{BackgroundWriter, FirstWriteError};
use super::report_line::{ReportLine, Tone, describe_announcement};
use super::reporter::Reporter;
use super::text_style::TextStyle;
use crate::ids::SwarmId;
use crate::swarm::{Announcement, StoryRef};

/// The least time between two progress lines of one story.
const PROGRESS_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Prints lines to a writer.
pub struct PlainReporter {
    swarm: SwarmId,
    style: TextStyle,
    writer: BackgroundWriter,
    quiet: bool,
    last_progress: HashMap<StoryRef, Timestamp>,
}

impl PlainReporter {
    /// Prints every line. A closed reader does not end the swarm.
    pub fn new(swarm: SwarmId, style: TextStyle, writer: impl Write + Send + 'static) -> Self {
        let writer = BackgroundWriter::new(writer, FirstWriteError::default());
        Self { swarm, style, writer, quiet: false, last_progress: HashMap::new() }
    }

    /// Prints only warnings and failures.
    pub fn quiet(swarm: SwarmId, style: TextStyle, writer: impl Write + Send + 'static) -> Self {
        Self { quiet: true, ..Self::new(swarm, style, writer) }
    }

    fn is_throttled(&mut self, at: Timestamp, story: &StoryRef) -> bool {
        match self.last_progress.get(story) {
            Some(last) if at.duration_since(*last) < PROGRESS_INTERVAL => true,
            _ => {
                self.last_progress.insert(story.clone(), at);
                false
            }
        }
    }
}

impl Reporter for PlainReporter {
    fn announce(&mut self, at: Timestamp, announcement: &Announcement) {
        if let Announcement::StoryProgress { story, .. } = announcement
            && self.is_throttled(at, story)
        {
            return;
        }
        let Some(line) = describe_announcement(self.swarm, announcement) else { return };
        if self.quiet && !matches!(line.tone, Tone::Bad | Tone::Warning) {
            return;
        }
        // One write per line, so that output of other programs does not interleave.
        let text = format!("{}\n", format_line(&line, at, &self.style));
        self.writer.write(text.into_bytes());
    }

    fn close(&mut self) {
        self.writer.close();
    }
}

/// Formats a line without its newline.
pub fn format_line(line: &ReportLine, at: Timestamp, style: &TextStyle) -> String {
    let time = at.to_zoned(style.time_zone.clone()).strftime("%H:%M:%S").to_string();
    let ReportLine { tone, subject, text } = line;
    if !style.colour {
        return format!("{time} {subject} {text}");
    }
    let code = match tone {
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Warning => "33",
        Tone::Neutral => "0",
        Tone::Detail => "2",
    };
    format!("\x1b[2m{time}\x1b[0m \x1b[1m{subject}\x1b[0m \x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::background_writer::tests::{BlockingWriter, CapturedLines};
    use crate::report::story_labels::tests::{story_ref, swarm_id};
    use crate::swarm::{StopLevel, SwarmOutcome};
    use crate::verdict::{Cause, Failure};
    use std::time::Duration;

    fn attempt(number: u32) -> crate::ids::AttemptId {
        crate::ids::AttemptId { assignment: crate::ids::AssignmentId::new(2026, 1), number }
    }

    fn ended(number: u32, code: i64) -> Announcement {
        Announcement::SandboxEnded {
            attempt: attempt(number),
            exit_code: Some(code),
            oom_killed: false,
            vanished: false,
            error: String::new(),
            stderr_tail: Vec::new(),
        }
    }

    fn render_lines(quiet: bool, colour: bool, announcements: &[Announcement]) -> String {
        let style = TextStyle { colour, ..TextStyle::plain() };
        let out = CapturedLines::default();
        let mut plain = if quiet {
            PlainReporter::quiet(swarm_id(), style, out.clone())
        } else {
            PlainReporter::new(swarm_id(), style, out.clone())
        };
        let start: Timestamp = "2026-11-21T12:03:04Z".parse().expect("a time");
        for (second, announcement) in announcements.iter().enumerate() {
            plain.announce(start + SignedDuration::from_secs(second as i64), announcement);
        }
        plain.close();
        out.text()
    }

    fn sample_announcements() -> Vec<Announcement> {
        let commit: crate::ids::CommitId = "3f2a1b4c5d".repeat(4).parse().expect("valid");
        vec![
            Announcement::SwarmStarted { stories: 2, done: 1, assignments: 2, max_sandboxes: 3 },
            Announcement::SandboxStarting { attempt: attempt(1), stories: vec![story_ref("US-001")] },
            Announcement::StoryStarted {
                story: story_ref("US-001"),
                title: "Add the parser".to_owned(),
                attempt: attempt(1),
            },
            Announcement::StoryProgress { story: story_ref("US-001"), text: "\u{1b}[2Jreading\nfiles".to_owned() },
            Announcement::StoryProgress { story: story_ref("US-001"), text: "too soon".to_owned() },
            ended(1, 0),
            Announcement::StoryLanded {
                story: story_ref("US-001"),
                commit: commit.clone(),
                head: commit,
                duration: Duration::from_millis(2100),
            },
            Announcement::StoryFailed {
                story: story_ref("US-002"),
                failure: Failure::new(Cause::VerificationFailed, "`make test` exited 2"),
                attempts: 2,
            },
            ended(2, 137),
            Announcement::Stopping { level: StopLevel::Graceful, by: "SIGINT".to_owned() },
            Announcement::SwarmEnded {
                outcome: SwarmOutcome::SomeFailed,
                exit_code: 1,
                landed: 1,
                failed: 1,
                skipped: 0,
                pending: 0,
            },
        ]
    }

    #[test]
    fn each_event_is_one_line() {
        let wanted = "\
12:03:04 swarm a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d started: 2 stories in 2 assignments, at most 3 at once, 1 done before
12:03:05 US-001 sandbox starting (T-2026-001 attempt 1)
12:03:06 US-001 started: Add the parser
12:03:07 US-001 reading files
12:03:10 US-001 landed 3f2a1b4c5d (2.1 s)
12:03:11 US-002 failed after 2 attempts: verification_failed: `make test` exited 2
12:03:12 T-2026-001 sandbox of attempt 2 ended with exit code 137
12:03:13 swarm stopping (SIGINT): nothing new is started, sandboxes are asked to finish; again to kill them
12:03:14 swarm some stories did not land: 1 landed, 1 failed
";
        assert_eq!(render_lines(false, false, &sample_announcements()), wanted);
    }

    #[test]
    fn a_resumed_swarm_is_reported_as_resumed() {
        let resumed = |done, running| Announcement::SwarmResumed { stories: 2, done, running };
        let wanted = "\
12:03:04 swarm a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d resumed: 2 stories to go, 1 done before, 3 sandboxes still running
12:03:05 swarm a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d resumed: 2 stories to go
";
        assert_eq!(render_lines(false, false, &[resumed(1, 3), resumed(0, 0)]), wanted);
    }

    #[test]
    fn a_slow_reader_does_not_block() {
        let (go, blocked) = std::sync::mpsc::channel();
        let out = CapturedLines::default();
        let mut plain = PlainReporter::new(swarm_id(), TextStyle::plain(), BlockingWriter(blocked, out.clone()));
        sample_announcements().iter().for_each(|announcement| plain.announce(Timestamp::UNIX_EPOCH, announcement));
        assert_eq!(out.text(), "", "nothing was read yet, and nothing waited for that");
        drop(go);
        plain.close();
        assert_eq!(out.text().lines().count(), 9);
    }

    #[test]
    fn quiet_reports_problems_only() {
        let text = render_lines(true, false, &sample_announcements());
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains("landed 3f2a"));
    }

    #[test]
    fn colours_are_used_only_when_enabled() {
        assert!(render_lines(false, true, &sample_announcements()).contains("\x1b[32mlanded"));
        assert!(!render_lines(false, false, &sample_announcements()).contains('\x1b'));
    }

    #[test]
    fn progress_is_reported_every_ten_seconds() {
        let progress = |text: &str| Announcement::StoryProgress { story: story_ref("US-001"), text: text.to_owned() };
        let all: Vec<_> = (0..12).map(|second| progress(&format!("w{second}"))).collect();
        let text = render_lines(false, false, &all);
        assert_eq!(text, "12:03:04 US-001 w0\n12:03:14 US-001 w10\n");
    }
}
