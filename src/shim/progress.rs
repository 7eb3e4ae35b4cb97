//! What one story has to say while it runs: state changes at once, everything else at most every two seconds; and its work
//! log.
//!
//! **The heartbeat.** Whoever hears nothing of a sandbox for long takes its shim to be dead. So where nothing else was said
//! for [`HEARTBEAT_INTERVAL`], the story is said to be `in_progress` once more, with no words. That is the one status that ACP lets
//! be repeated, and so a story is `in_progress` from the clone (for the first story) until what came of it has been written:
//! its last word waits for that ([`ProgressReporter::end_story`]).
//!
//! Fed by `story.rs` (state changes, the agent's last line) and `agent_requests.rs` (`acp-shim progress`). Must not: run anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::channel::Channel;
use crate::ids::StoryId;
use crate::protocol::acp::message::{ContainerMessage, ProgressUpdate, StoryStatus};
use crate::verdict::StoryLogEntry;

/// The least time between two updates of a story that change no state.
pub const UPDATE_INTERVAL: Duration = Duration::from_secs(2);
/// The most time in which nothing at all is said: the host is promised a word every 30 s.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(25);
/// The most entries of a work log.
pub const MAX_WORK_LOG_ENTRIES: usize = 200;

/// One story's voice. Cheap to clone.
#[derive(Clone)]
pub struct ProgressReporter {
    story: StoryId,
    channel: Channel,
    heartbeat: Duration,
    state: Arc<Mutex<ReporterState>>,
    wakeup: Arc<Notify>,
}

struct ReporterState {
    status: StoryStatus,
    last_sent: Instant,
    pending_report: Option<String>,
    pending_output: Option<String>,
    work_log: Vec<StoryLogEntry>,
}

impl ProgressReporter {
    /// A story that is pending.
    pub fn new(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with_status(StoryStatus::Pending, story, channel, heartbeat)
    }

    /// A story that is begun with its first heartbeat, if it comes to that.
    pub fn new_in_progress(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with_status(StoryStatus::InProgress, story, channel, heartbeat)
    }

    fn with_status(status: StoryStatus, story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        let inner = ReporterState {
            status,
            last_sent: Instant::now(),
            pending_report: None,
            pending_output: None,
            work_log: Vec::new(),
        };
        Self { story, channel, heartbeat, state: Arc::new(Mutex::new(inner)), wakeup: Arc::new(Notify::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status and says so at once.
    pub fn set_status(&self, status: StoryStatus, output: &str) {
        let mut inner = self.lock();
        inner.status = status;
        inner.pending_output = None;
        if let Some(told) = inner.pending_report.take() {
            push_log_entry(&mut inner, told);
        }
        self.log_and_send(&mut inner, output.to_owned());
    }

    /// The whole work log, with these last words about the story, which [`send_final_status`](Self::send_final_status) says.
    pub fn close(&self, output: &str) -> Vec<StoryLogEntry> {
        let mut inner = self.lock();
        inner.pending_output = None;
        if let Some(told) = inner.pending_report.take() {
            push_log_entry(&mut inner, told);
        }
        push_log_entry(&mut inner, output.to_owned());
        inner.work_log.clone()
    }

    /// Says what became of the story. Nothing is said of it afterwards.
    pub fn send_final_status(&self, status: StoryStatus, output: &str) {
        let mut inner = self.lock();
        inner.status = status;
        self.send_update(&mut inner, output.to_owned());
    }

    /// What the agent says about its work: sent as soon as the interval allows, and always in the work log.
    pub fn report(&self, text: &str) {
        let mut inner = self.lock();
        if let Some(older) = inner.pending_report.replace(text.to_owned()) {
            push_log_entry(&mut inner, older);
        }
        drop(inner);
        self.wakeup.notify_one();
    }

    /// A line that the agent printed: sent where nothing better is there to say.
    pub fn report_output(&self, line: &str) {
        let mut inner = self.lock();
        let first = inner.pending_output.is_none();
        inner.pending_output = Some(line.to_owned());
        drop(inner);
        if first {
            self.wakeup.notify_one();
        }
    }

    /// Sends what is due, for ever. Runs beside the story.
    pub async fn run(&self) {
        loop {
            let (due, beat) = {
                let inner = self.lock();
                let waits = inner.pending_report.is_some() || inner.pending_output.is_some();
                (waits.then(|| inner.last_sent + UPDATE_INTERVAL), inner.last_sent + self.heartbeat)
            };
            match due {
                None => tokio::select! {
                    () = self.wakeup.notified() => {}
                    () = tokio::time::sleep_until(beat) => self.send_heartbeat(beat),
                },
                Some(due) => {
                    tokio::time::sleep_until(due).await;
                    self.send_pending(due);
                }
            }
        }
    }

    /// Sends what waits, unless a change of state went out after `due` was reckoned.
    fn send_pending(&self, due: Instant) {
        let mut inner = self.lock();
        if inner.last_sent + UPDATE_INTERVAL > due {
            return;
        }
        let told = inner.pending_report.take();
        let printed = inner.pending_output.take();
        if let Some(text) = told.or(printed) {
            self.log_and_send(&mut inner, text);
        }
    }

    /// Says that there is nothing to say, unless something was said after `due` was reckoned. Only a story in progress can.
    fn send_heartbeat(&self, due: Instant) {
        let mut inner = self.lock();
        if inner.last_sent + self.heartbeat > due {
            return;
        }
        if inner.status == StoryStatus::InProgress {
            self.send_update(&mut inner, String::new());
        } else {
            inner.last_sent = Instant::now();
        }
    }

    fn log_and_send(&self, inner: &mut ReporterState, output: String) {
        push_log_entry(inner, output.clone());
        self.send_update(inner, output);
    }

    fn send_update(&self, inner: &mut ReporterState, output: String) {
        inner.last_sent = Instant::now();
        let update = ProgressUpdate { story_id: self.story.clone(), status: inner.status, output };
        self.channel.send(&ContainerMessage::Progress(update));
    }
}

fn push_log_entry(inner: &mut ReporterState, text: String) {
    if inner.work_log.len() == MAX_WORK_LOG_ENTRIES {
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
    use crate::shim::channel::SandboxIdentity;

    #[derive(Clone, Default)]
    struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for CapturedOutput {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl CapturedOutput {
        fn outputs(&self) -> Vec<String> {
            let bytes = self.0.lock().unwrap().clone();
            let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            lines
                .map(|line| match decode_container(line).unwrap().1 {
                    ContainerMessage::Progress(update) => format!("{} {}", update.status.as_str(), update.output),
                    other => panic!("{other:?}"),
                })
                .collect()
        }
    }

    fn spawn_reporter(wire: &CapturedOutput) -> (ProgressReporter, tokio::task::JoinHandle<()>) {
        let sender = SandboxIdentity {
            swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().unwrap(),
            container: "abc123def456".parse().unwrap(),
        };
        let out: Box<dyn std::io::Write + Send> = Box::new(wire.clone());
        let channel = Channel::new(sender, Arc::new(Mutex::new(out)));
        let progress = ProgressReporter::new("US-001".parse().unwrap(), channel, HEARTBEAT_INTERVAL);
        let speaker = progress.clone();
        (progress, tokio::spawn(async move { speaker.run().await }))
    }

    #[tokio::test(start_paused = true)]
    async fn updates_are_limited_to_one_every_two_seconds() {
        let wire = CapturedOutput::default();
        let (progress, speaking) = spawn_reporter(&wire);
        progress.set_status(StoryStatus::InProgress, "started");
        // A line every 100 ms for 5 s, and one thing said in between. The clock stands at 2 s when line 21 is printed, and the
        // speaker comes after the printer.
        for line in 1..=50 {
            progress.report_output(&format!("line {line}"));
            if line == 25 {
                progress.report("half way");
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let log: Vec<String> = progress.close("done").into_iter().map(|entry| entry.text).collect();
        progress.send_final_status(StoryStatus::Completed, "done");
        speaking.abort();
        assert_eq!(
            wire.outputs(),
            ["in_progress started", "in_progress line 21", "in_progress half way", "completed done"]
        );
        assert_eq!(log, ["started", "line 21", "half way", "done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_sent_during_silence_and_not_logged() {
        let wire = CapturedOutput::default();
        let (progress, speaking) = spawn_reporter(&wire);
        progress.set_status(StoryStatus::InProgress, "started");
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
        progress.send_final_status(StoryStatus::Completed, "done");
        speaking.abort();
        assert_eq!(wire.outputs()[3..], ["in_progress ", "completed done"]);
        assert_eq!(log.len(), 2, "a heartbeat is in no work log");
    }
}
