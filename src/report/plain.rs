//! One plain line an event: for logs, CI jobs, and terminals that want no bars.
//!
//! `12:03:04 US-001 landed 3f2a1b4c5d (2.1 s)`. A story's own words come at most every ten seconds, so that a long run
//! stays readable; `--json` has them all.

use std::collections::HashMap;
use std::io::Write;

use jiff::{SignedDuration, Timestamp};

use super::aside::Aside;
use super::words::{Said, Tone, said};
use super::{Look, Names, Reporter, Trouble};
use crate::ids::StoryKey;
use crate::swarm::Announcement;

/// The least time between two lines with the words of one story.
const WORDS_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// Lines on a writer.
pub struct Plain {
    names: Names,
    look: Look,
    writer: Aside,
    quiet: bool,
    last_words: HashMap<StoryKey, Timestamp>,
}

impl Plain {
    /// Every line. A reader that is gone does not end the swarm.
    pub fn new(names: Names, look: Look, writer: impl Write + Send + 'static) -> Self {
        let writer = Aside::new(writer, Trouble::default());
        Self { names, look, writer, quiet: false, last_words: HashMap::new() }
    }

    /// Only what went wrong.
    pub fn quiet(names: Names, look: Look, writer: impl Write + Send + 'static) -> Self {
        Self { quiet: true, ..Self::new(names, look, writer) }
    }

    fn too_soon(&mut self, at: Timestamp, story: &StoryKey) -> bool {
        match self.last_words.get(story) {
            Some(last) if at.duration_since(*last) < WORDS_EVERY => true,
            _ => {
                self.last_words.insert(story.clone(), at);
                false
            }
        }
    }
}

impl Reporter for Plain {
    fn announce(&mut self, at: Timestamp, announcement: &Announcement) {
        if let Announcement::StoryProgress { story, .. } = announcement
            && self.too_soon(at, story)
        {
            return;
        }
        let Some(said) = said(&self.names, announcement) else { return };
        if self.quiet && !matches!(said.tone, Tone::Bad | Tone::Warning) {
            return;
        }
        // One write a line, so that lines of other programs on the same terminal do not come between.
        let line = format!("{}\n", line(&said, at, &self.look));
        self.writer.write(line.into_bytes());
    }

    fn close(&mut self) {
        self.writer.close();
    }
}

/// The line, without its newline.
pub fn line(said: &Said, at: Timestamp, look: &Look) -> String {
    let time = at.to_zoned(look.zone.clone()).strftime("%H:%M:%S").to_string();
    let Said { tone, subject, text } = said;
    if !look.colour {
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
    use crate::report::aside::tests::{Blocked, Kept};
    use crate::report::names::tests::spec;
    use crate::swarm::event::ContainerExit;
    use crate::swarm::{StopLevel, SwarmOutcome};
    use crate::verdict::{Cause, Failure};
    use std::time::Duration;

    fn key(id: &str) -> StoryKey {
        StoryKey { file: 0, id: id.parse().expect("valid") }
    }

    fn attempt(number: u32) -> crate::ids::AttemptId {
        crate::ids::AttemptId { assignment: crate::ids::AssignmentId::new(2026, 1), number }
    }

    fn exit(code: Option<i64>) -> ContainerExit {
        ContainerExit { code, ..ContainerExit::default() }
    }

    fn printed(quiet: bool, colour: bool, announcements: &[Announcement]) -> String {
        let look = Look { colour, ..Look::bare() };
        let names = Names::of(&spec(1));
        let out = Kept::default();
        let mut plain =
            if quiet { Plain::quiet(names, look, out.clone()) } else { Plain::new(names, look, out.clone()) };
        let start: Timestamp = "2026-11-21T12:03:04Z".parse().expect("a time");
        for (second, announcement) in announcements.iter().enumerate() {
            plain.announce(start + SignedDuration::from_secs(second as i64), announcement);
        }
        plain.close();
        out.text()
    }

    fn story() -> Vec<Announcement> {
        let commit: crate::ids::CommitId = "3f2a1b4c5d".repeat(4).parse().expect("valid");
        vec![
            Announcement::SwarmStarted { stories: 2, done: 1, assignments: 2, max_sandboxes: 3 },
            Announcement::SandboxStarting { attempt: attempt(1), stories: vec![key("US-001")] },
            Announcement::StoryStarted { story: key("US-001"), attempt: attempt(1) },
            Announcement::StoryProgress { story: key("US-001"), text: "\u{1b}[2Jreading\nfiles".to_owned() },
            Announcement::StoryProgress { story: key("US-001"), text: "too soon".to_owned() },
            Announcement::SandboxEnded { attempt: attempt(1), exit: exit(Some(0)) },
            Announcement::StoryLanded {
                story: key("US-001"),
                commit: commit.clone(),
                head: commit,
                duration: Duration::from_millis(2100),
            },
            Announcement::StoryFailed {
                story: key("US-002"),
                failure: Failure::new(Cause::VerificationFailed, "`make test` exited 2"),
                attempts: 2,
            },
            Announcement::SandboxEnded { attempt: attempt(2), exit: exit(Some(137)) },
            Announcement::Stopping { level: StopLevel::Graceful, by: "SIGINT".to_owned() },
            Announcement::SwarmEnded {
                outcome: SwarmOutcome::SomeFailed,
                landed: 1,
                failed: 1,
                skipped: 0,
                pending: 0,
            },
        ]
    }

    #[test]
    fn a_line_an_event() {
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
        assert_eq!(printed(false, false, &story()), wanted);
    }

    #[test]
    fn a_resumed_swarm_is_not_said_to_be_started() {
        let resumed = |done, running| Announcement::SwarmResumed { stories: 2, done, running };
        let wanted = "\
12:03:04 swarm a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d resumed: 2 stories to go, 1 done before, 3 sandboxes still running
12:03:05 swarm a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d resumed: 2 stories to go
";
        assert_eq!(printed(false, false, &[resumed(1, 3), resumed(0, 0)]), wanted);
    }

    #[test]
    fn a_reader_that_is_slow_does_not_block() {
        let (go, blocked) = std::sync::mpsc::channel();
        let out = Kept::default();
        let mut plain = Plain::new(Names::of(&spec(1)), Look::bare(), Blocked(blocked, out.clone()));
        story().iter().for_each(|announcement| plain.announce(Timestamp::UNIX_EPOCH, announcement));
        assert_eq!(out.text(), "", "nothing was read yet, and nothing waited for that");
        drop(go);
        plain.close();
        assert_eq!(out.text().lines().count(), 9);
    }

    #[test]
    fn quiet_tells_problems_only() {
        let text = printed(true, false, &story());
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains("landed 3f2a"));
    }

    #[test]
    fn colours_only_where_asked_for() {
        assert!(printed(false, true, &story()).contains("\x1b[32mlanded"));
        assert!(!printed(false, false, &story()).contains('\x1b'));
    }

    #[test]
    fn words_come_again_after_ten_seconds() {
        let words = |text: &str| Announcement::StoryProgress { story: key("US-001"), text: text.to_owned() };
        let all: Vec<_> = (0..12).map(|second| words(&format!("w{second}"))).collect();
        let text = printed(false, false, &all);
        assert_eq!(text, "12:03:04 US-001 w0\n12:03:14 US-001 w10\n");
    }
}
