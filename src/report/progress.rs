//! Progress bars on a terminal: one for the swarm, below a line per running sandbox. Finished work scrolls up as plain lines.
//! The only user of indicatif.
//!
//! A thread of its own redraws the elapsed times twice a second, so that a quiet swarm still shows activity. The
//! bars are removed when the reporter is closed or dropped, even by a panic.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::plain::format_line;
use super::report_line::{Tone, describe_announcement};
use super::reporter::Reporter;
use super::text::sanitize;
use super::text_style::TextStyle;
use crate::ids::{AssignmentId, AttemptId, SwarmId};
use crate::protocol::amp::message::EscalationSeverity;
use crate::swarm::{Announcement, StoryRef};

const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

type SandboxBars = Arc<Mutex<BTreeMap<AttemptId, ProgressBar>>>;

/// Shows progress bars.
pub struct ProgressBarReporter {
    swarm: SwarmId,
    style: TextStyle,
    multi_progress: MultiProgress,
    swarm_bar: ProgressBar,
    sandbox_bars: SandboxBars,
    /// The sandbox that each story runs in.
    running: HashMap<StoryRef, AttemptId>,
    /// The review round of each reviewer's sandbox.
    reviews: HashMap<AttemptId, u32>,
    /// The stories that wait for the admin, each with its task.
    waiting: BTreeMap<StoryRef, AssignmentId>,
    landed: u64,
    failed: u64,
    skipped: u64,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ProgressBarReporter {
    /// Bars on standard error.
    pub fn new(swarm: SwarmId, style: TextStyle) -> Self {
        Self::with_target(swarm, style, ProgressDrawTarget::stderr())
    }

    fn with_target(swarm: SwarmId, style: TextStyle, target: ProgressDrawTarget) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let colours = if style.colour { ".green/dim" } else { "" };
        let bar_style =
            progress_style(&format!("{{elapsed_precise}} [{{bar:24{colours}}}] {{pos}}/{{len}} {{wide_msg}}"));
        let swarm_bar = multi.add(ProgressBar::new(0).with_style(bar_style.progress_chars("=> ")));
        let lines = SandboxBars::default();
        let (stop, stopped) = channel();
        let (bars, whole) = (Arc::clone(&lines), swarm_bar.clone());
        // Ends when stopped or when the reporter is dropped.
        let redraw = move || {
            while stopped.recv_timeout(REDRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // Before the swarm begins there is nothing to show.
                if whole.length() > Some(0) {
                    whole.tick();
                }
                for bar in lock_ignoring_poison(&bars).values() {
                    bar.tick();
                }
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).stack_size(256 * 1024).spawn(redraw);
        // Without the thread, elapsed times only update on events.
        let ticker = thread.ok().map(|thread| (stop, thread));
        Self {
            swarm,
            style,
            multi_progress: multi,
            swarm_bar,
            sandbox_bars: lines,
            running: HashMap::new(),
            reviews: HashMap::new(),
            waiting: BTreeMap::new(),
            landed: 0,
            failed: 0,
            skipped: 0,
            ticker,
        }
    }

    fn add_bar(&mut self, attempt: &AttemptId, stories: &[StoryRef]) {
        let template = if self.style.colour {
            "  {prefix:.bold} {elapsed:>4.dim} {wide_msg}"
        } else {
            "  {prefix} {elapsed:>4} {wide_msg}"
        };
        let bar = ProgressBar::new_spinner().with_style(progress_style(template));
        let bar = self.multi_progress.insert_before(&self.swarm_bar, bar);
        bar.set_prefix(stories.first().map(|story| story.label.clone()).unwrap_or_default());
        bar.set_message("starting");
        if let Some(old) = lock_ignoring_poison(&self.sandbox_bars).insert(attempt.clone(), bar) {
            old.finish_and_clear();
        }
    }

    fn remove_bar(&mut self, attempt: &AttemptId) {
        if let Some(bar) = lock_ignoring_poison(&self.sandbox_bars).remove(attempt) {
            bar.finish_and_clear();
            self.multi_progress.remove(&bar);
        }
        self.running.retain(|_, running| running != attempt);
        self.reviews.remove(attempt);
    }

    fn set_bar_message(&self, story: &StoryRef, message: String) {
        let Some(attempt) = self.running.get(story) else { return };
        if let Some(bar) = lock_ignoring_poison(&self.sandbox_bars).get(attempt) {
            bar.set_message(match self.reviews.get(attempt) {
                Some(round) => format!("review {round}: {message}"),
                None => message,
            });
        }
    }

    /// Adds to the counts and updates the swarm's bar.
    fn add_counts(&mut self, landed: u64, failed: u64, skipped: u64) {
        self.landed += landed;
        self.failed += failed;
        self.skipped += skipped;
        let mut message = format!("{} landed", self.landed);
        let waiting = self.waiting.len() as u64;
        let others = [(self.failed, "failed"), (self.skipped, "skipped"), (waiting, "waiting for the admin")];
        for (number, word) in others {
            if number > 0 {
                message.push_str(&format!(", {number} {word}"));
            }
        }
        self.swarm_bar.set_position(self.landed + self.failed + self.skipped);
        self.swarm_bar.set_message(message);
    }
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere must not keep the terminal from being cleaned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn progress_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates of this file are well-formed")
}

impl Reporter for ProgressBarReporter {
    fn announce(&mut self, at: Timestamp, announcement: &Announcement) {
        match announcement {
            Announcement::SwarmStarted { stories, .. } | Announcement::SwarmResumed { stories, .. } => {
                self.swarm_bar.set_length(*stories as u64);
                self.add_counts(0, 0, 0);
            }
            Announcement::SandboxStarting { attempt, stories } => self.add_bar(attempt, stories),
            Announcement::SandboxEnded { attempt, .. } => self.remove_bar(attempt),
            Announcement::ReviewStarted { attempt, stories, round } => {
                if let Some(bar) = lock_ignoring_poison(&self.sandbox_bars).get(attempt) {
                    bar.set_message(format!("review {round}"));
                }
                // The reviewer's progress is shown as the review's.
                self.running.extend(stories.iter().map(|story| (story.clone(), attempt.clone())));
                self.reviews.insert(attempt.clone(), *round);
            }
            Announcement::Escalated { task, stories, severity: EscalationSeverity::Critical, .. } => {
                stories
                    .iter()
                    .for_each(|story| self.set_bar_message(story, "suspended, waits for the admin".to_owned()));
                self.waiting.extend(stories.iter().map(|story| (story.clone(), task.clone())));
                self.add_counts(0, 0, 0);
            }
            Announcement::DecisionApplied { task, .. } => {
                self.waiting.retain(|_, waiting| waiting != task);
                self.add_counts(0, 0, 0);
            }
            Announcement::StoryStarted { story, title, attempt } => {
                self.running.insert(story.clone(), attempt.clone());
                if let Some(bar) = lock_ignoring_poison(&self.sandbox_bars).get(attempt) {
                    bar.set_prefix(story.label.clone());
                    bar.reset_elapsed();
                }
                self.set_bar_message(story, sanitize(title));
            }
            Announcement::StoryProgress { story, text } => self.set_bar_message(story, sanitize(text)),
            Announcement::StoryFinished { story } => self.set_bar_message(story, "finished in its sandbox".to_owned()),
            Announcement::StoryLanded { .. } => self.add_counts(1, 0, 0),
            Announcement::StoryFailed { .. } => self.add_counts(0, 1, 0),
            Announcement::StorySkipped { .. } => self.add_counts(0, 0, 1),
            _ => {}
        }
        let shown_by_bars = matches!(announcement, Announcement::StoryStarted { .. });
        if let Some(line) =
            describe_announcement(self.swarm, announcement).filter(|line| line.tone != Tone::Detail && !shown_by_bars)
        {
            let _ = self.multi_progress.println(format_line(&line, at, &self.style));
        }
    }

    fn close(&mut self) {
        let Some((stop, thread)) = self.ticker.take() else {
            let _ = self.multi_progress.clear();
            return;
        };
        let _ = stop.send(());
        let _ = thread.join();
        for (_, bar) in std::mem::take(&mut *lock_ignoring_poison(&self.sandbox_bars)) {
            bar.finish_and_clear();
        }
        self.swarm_bar.finish_and_clear();
        let _ = self.multi_progress.clear();
    }
}

impl Drop for ProgressBarReporter {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::amp::message::EscalationType;
    use crate::report::story_labels::tests::{story_ref, swarm_id};
    use indicatif::TermLike;
    use std::io;

    /// A terminal that keeps what is written and counts how often lines are cleared.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<(Vec<String>, usize)>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            60
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            lock_ignoring_poison(&self.0).0.push(text.to_owned());
            Ok(())
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            lock_ignoring_poison(&self.0).0.push(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            lock_ignoring_poison(&self.0).1 += 1;
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_sandbox_has_a_line_and_the_swarm_a_bar() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255);
        let mut progress = ProgressBarReporter::with_target(swarm_id(), TextStyle::plain(), target);
        let story = story_ref("US-001");
        let attempt = AttemptId { assignment: AssignmentId::new(2026, 1), number: 1 };
        let commit: crate::ids::CommitId = "3f2a1b4c5d".repeat(4).parse().expect("valid");
        let text = format!("\u{1b}[2Jreading {}", "files ".repeat(40));
        let all = [
            Announcement::SwarmStarted { stories: 2, done: 0, assignments: 2, max_sandboxes: 2 },
            Announcement::SandboxStarting { attempt: attempt.clone(), stories: vec![story.clone()] },
            Announcement::StoryStarted { story: story.clone(), title: String::new(), attempt: attempt.clone() },
            Announcement::StoryProgress { story: story.clone(), text },
        ];
        for announcement in &all {
            progress.announce(Timestamp::UNIX_EPOCH, announcement);
        }
        for bar in lock_ignoring_poison(&progress.sandbox_bars).values() {
            bar.force_draw();
        }
        assert_eq!(lock_ignoring_poison(&progress.sandbox_bars).len(), 1);
        let ended = Announcement::SandboxEnded {
            attempt,
            exit_code: Some(0),
            oom_killed: false,
            vanished: false,
            error: String::new(),
            stderr_tail: Vec::new(),
        };
        progress.announce(Timestamp::UNIX_EPOCH, &ended);
        let duration = Duration::from_secs(2);
        let landed = Announcement::StoryLanded { story, commit: commit.clone(), head: commit, duration };
        progress.announce(Timestamp::UNIX_EPOCH, &landed);
        assert!(lock_ignoring_poison(&progress.sandbox_bars).is_empty() && progress.running.is_empty());
        progress.close();
        let (written, cleared) = lock_ignoring_poison(&screen.0).clone();
        let text = written.concat();
        assert!(text.contains("US-001") && text.contains("reading files"), "{text}");
        assert!(!text.contains("\u{1b}[2J"), "sandbox output must not control the terminal");
        assert!(text.contains("US-001 landed 3f2a1b4c5d (2.0 s)"), "{text}");
        assert!(written.iter().all(|line| super::super::text::display_width(line) <= 180), "{written:#?}");
        assert!(cleared > 0);
    }
    #[test]
    fn reviews_and_admin_waits_are_shown() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen), 255);
        let mut progress = ProgressBarReporter::with_target(swarm_id(), TextStyle::plain(), target);
        let story = story_ref("US-001");
        let (task, stories) = (AssignmentId::new(2026, 1), vec![story.clone()]);
        let attempt = AttemptId { assignment: task.clone(), number: 4 };
        let message = "escalation-T-2026-001-1772116327001".parse().expect("an id");
        let mut announce = |announcement| progress.announce(Timestamp::UNIX_EPOCH, &announcement);
        announce(Announcement::SandboxStarting { attempt: attempt.clone(), stories: stories.clone() });
        announce(Announcement::ReviewStarted { attempt: attempt.clone(), stories: stories.clone(), round: 2 });
        let message_of =
            |progress: &ProgressBarReporter| lock_ignoring_poison(&progress.sandbox_bars)[&attempt].message();
        assert_eq!(message_of(&progress), "review 2");
        let mut announce = |announcement| progress.announce(Timestamp::UNIX_EPOCH, &announcement);
        announce(Announcement::StoryProgress { story, text: "reading the diff".to_owned() });
        assert_eq!(message_of(&progress), "review 2: reading the diff");
        let mut announce = |announcement| progress.announce(Timestamp::UNIX_EPOCH, &announcement);
        announce(Announcement::Escalated {
            message,
            task: task.clone(),
            stories,
            escalation_type: EscalationType::HallucinationLock,
            severity: EscalationSeverity::Critical,
            description: "rejected 4 times".to_owned(),
            suggested_actions: Vec::new(),
            auto_suspended: true,
        });
        assert!(message_of(&progress).contains("waits for the admin"), "{}", message_of(&progress));
        assert_eq!(progress.swarm_bar.message(), "0 landed, 1 waiting for the admin");
        let decided = Announcement::DecisionApplied { task, action: "retry".to_owned(), by: "ada".to_owned() };
        progress.announce(Timestamp::UNIX_EPOCH, &decided);
        assert_eq!(progress.swarm_bar.message(), "0 landed");
        progress.close();
    }
}
