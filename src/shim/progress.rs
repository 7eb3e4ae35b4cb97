//! What one story has to say while it runs: state changes at once, everything else at most every two seconds; and its work
//! log.
//!
//! **The heartbeat.** Whoever hears nothing of a sandbox for long takes its shim to be dead. So where nothing else was said
//! for [`HEARTBEAT`], the story is said to be `in_progress` once more, with no words. That is the one status that ACP lets
//! be repeated, and so a story is `in_progress` from the clone (for the first story) until what came of it has been written:
//! its last word waits for that ([`Progress::close`]).
//!
//! Fed by `story.rs` (state changes, the agent's last line) and `socket.rs` (`acp-shim progress`). Must not: run anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::channel::Channel;
use crate::ids::StoryId;
use crate::protocol::acp::message::{ContainerMessage, ProgressUpdate, StoryStatus};
use crate::verdict::StoryLogEntry;

/// The least time between two updates of a story that change no state.
pub const UPDATE_EVERY: Duration = Duration::from_secs(2);
/// The most time in which nothing at all is said: the host is promised a word every 30 s.
pub const HEARTBEAT: Duration = Duration::from_secs(25);
/// The most entries of a work log.
pub const WORK_LOG_ENTRIES: usize = 200;

/// One story's voice. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    story: StoryId,
    channel: Channel,
    heartbeat: Duration,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
}

struct Inner {
    status: StoryStatus,
    last_sent: Instant,
    told: Option<String>,
    printed: Option<String>,
    work_log: Vec<StoryLogEntry>,
}

impl Progress {
    /// A story that is pending.
    pub fn new(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with(StoryStatus::Pending, story, channel, heartbeat)
    }

    /// A story that is begun with its first heartbeat, if it comes to that.
    pub fn preparing(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with(StoryStatus::InProgress, story, channel, heartbeat)
    }

    fn with(status: StoryStatus, story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        let inner = Inner { status, last_sent: Instant::now(), told: None, printed: None, work_log: Vec::new() };
        Self { story, channel, heartbeat, inner: Arc::new(Mutex::new(inner)), changed: Arc::new(Notify::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status and says so at once.
    pub fn change(&self, status: StoryStatus, output: &str) {
        let mut inner = self.lock();
        inner.status = status;
        inner.printed = None;
        if let Some(told) = inner.told.take() {
            note(&mut inner, told);
        }
        self.send(&mut inner, output.to_owned());
    }

    /// The whole work log, with these last words about the story, which [`last_word`](Self::last_word) says.
    pub fn close(&self, output: &str) -> Vec<StoryLogEntry> {
        let mut inner = self.lock();
        inner.printed = None;
        if let Some(told) = inner.told.take() {
            note(&mut inner, told);
        }
        note(&mut inner, output.to_owned());
        inner.work_log.clone()
    }

    /// Says what became of the story. Nothing is said of it afterwards.
    pub fn last_word(&self, status: StoryStatus, output: &str) {
        let mut inner = self.lock();
        inner.status = status;
        self.say(&mut inner, output.to_owned());
    }

    /// What the agent says about its work: sent as soon as the interval allows, and always in the work log.
    pub fn tell(&self, text: &str) {
        let mut inner = self.lock();
        if let Some(older) = inner.told.replace(text.to_owned()) {
            note(&mut inner, older);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// A line that the agent printed: sent where nothing better is there to say.
    pub fn printed(&self, line: &str) {
        let mut inner = self.lock();
        let first = inner.printed.is_none();
        inner.printed = Some(line.to_owned());
        drop(inner);
        if first {
            self.changed.notify_one();
        }
    }

    /// Sends what is due, for ever. Runs beside the story.
    pub async fn speak(&self) {
        loop {
            let (due, beat) = {
                let inner = self.lock();
                let waits = inner.told.is_some() || inner.printed.is_some();
                (waits.then(|| inner.last_sent + UPDATE_EVERY), inner.last_sent + self.heartbeat)
            };
            match due {
                None => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(beat) => self.beat(beat),
                },
                Some(due) => {
                    tokio::time::sleep_until(due).await;
                    self.send_waiting(due);
                }
            }
        }
    }

    /// Sends what waits, unless a change of state went out after `due` was reckoned.
    fn send_waiting(&self, due: Instant) {
        let mut inner = self.lock();
        if inner.last_sent + UPDATE_EVERY > due {
            return;
        }
        let told = inner.told.take();
        let printed = inner.printed.take();
        if let Some(text) = told.or(printed) {
            self.send(&mut inner, text);
        }
    }

    /// Says that there is nothing to say, unless something was said after `due` was reckoned. Only a story in progress can.
    fn beat(&self, due: Instant) {
        let mut inner = self.lock();
        if inner.last_sent + self.heartbeat > due {
            return;
        }
        if inner.status == StoryStatus::InProgress {
            self.say(&mut inner, String::new());
        } else {
            inner.last_sent = Instant::now();
        }
    }

    fn send(&self, inner: &mut Inner, output: String) {
        note(inner, output.clone());
        self.say(inner, output);
    }

    fn say(&self, inner: &mut Inner, output: String) {
        inner.last_sent = Instant::now();
        let update = ProgressUpdate { story_id: self.story.clone(), status: inner.status, output };
        self.channel.send(&ContainerMessage::Progress(update));
    }
}

fn note(inner: &mut Inner, text: String) {
    if inner.work_log.len() == WORK_LOG_ENTRIES {
        // The beginning stays: it says what was started with; of the middle, the newest matter more.
        inner.work_log.remove(1);
    }
    let text = text.chars().take(2000).collect();
    inner.work_log.push(StoryLogEntry { at: jiff::Timestamp::now().to_string(), text });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::acp::message::decode_container;
    use crate::shim::channel::Sender;

    #[derive(Clone, Default)]
    struct Wire(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Wire {
        fn outputs(&self) -> Vec<String> {
            let bytes = self.0.lock().unwrap().clone();
            let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            lines
                .map(|line| match decode_container(line).unwrap().1 {
                    ContainerMessage::Progress(update) => format!("{} {}", update.status.word(), update.output),
                    other => panic!("{other:?}"),
                })
                .collect()
        }
    }

    fn story(wire: &Wire) -> (Progress, tokio::task::JoinHandle<()>) {
        let sender = Sender {
            swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().unwrap(),
            container: "abc123def456".parse().unwrap(),
        };
        let out: Box<dyn std::io::Write + Send> = Box::new(wire.clone());
        let channel = Channel::new(sender, Arc::new(Mutex::new(out)));
        let progress = Progress::new("US-001".parse().unwrap(), channel, HEARTBEAT);
        let speaker = progress.clone();
        (progress, tokio::spawn(async move { speaker.speak().await }))
    }

    #[tokio::test(start_paused = true)]
    async fn between_changes_of_state_an_update_goes_out_every_two_seconds_at_most() {
        let wire = Wire::default();
        let (progress, speaking) = story(&wire);
        progress.change(StoryStatus::InProgress, "started");
        // A line every 100 ms for 5 s, and one thing said in between. The clock stands at 2 s when line 21 is printed, and the
        // speaker comes after the printer.
        for line in 1..=50 {
            progress.printed(&format!("line {line}"));
            if line == 25 {
                progress.tell("half way");
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let log: Vec<String> = progress.close("done").into_iter().map(|entry| entry.text).collect();
        progress.last_word(StoryStatus::Completed, "done");
        speaking.abort();
        assert_eq!(
            wire.outputs(),
            ["in_progress started", "in_progress line 21", "in_progress half way", "completed done"]
        );
        assert_eq!(log, ["started", "line 21", "half way", "done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_by_a_heartbeat_that_is_no_news() {
        let wire = Wire::default();
        let (progress, speaking) = story(&wire);
        progress.change(StoryStatus::InProgress, "started");
        for _ in 0..60 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(wire.outputs(), ["in_progress started", "in_progress ", "in_progress "]);
        // What was closed beats on until its last word is said.
        let log = progress.close("done");
        for _ in 0..26 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        progress.last_word(StoryStatus::Completed, "done");
        speaking.abort();
        assert_eq!(wire.outputs()[3..], ["in_progress ", "completed done"]);
        assert_eq!(log.len(), 2, "a heartbeat is in no work log");
    }
}
