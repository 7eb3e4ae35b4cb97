//! Reports a running story: status changes at once, everything else at most every two seconds. Also keeps its work log.
//!
//! **The heartbeat.** The host takes a silent shim to be dead. So if nothing else was sent for [`HEARTBEAT_INTERVAL`], the story is
//! reported as `in_progress` again, without text. ACP lets only that status be repeated, so a story stays `in_progress` from the clone
//! (for the first story) until its result is written ([`ProgressReporter::send_final_status`]).
//!
//! Fed by `story.rs` (status changes, the agent's last line) and `agent_requests.rs` (`acp-shim progress`). Must not: run anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::channel::Channel;
use crate::ids::StoryId;
use crate::json::text::take_chars;
use crate::protocol::acp::message::{ContainerMessage, ProgressUpdate, StoryStatus};
use crate::verdict::StoryLogEntry;

/// The minimum time between two updates of a story without a status change.
const UPDATE_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum silence. The host expects an update every 30 s.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(25);
/// The most entries of a work log.
const MAX_WORK_LOG_ENTRIES: usize = 200;
/// The most characters of an entry.
const MAX_ENTRY_CHARS: usize = 2000;

/// Reports one story. Cheap to clone.
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
    pub fn new(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with_status(StoryStatus::Pending, story, channel, heartbeat)
    }

    /// A story that starts with its first heartbeat.
    pub fn new_in_progress(story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        Self::with_status(StoryStatus::InProgress, story, channel, heartbeat)
    }

    fn with_status(status: StoryStatus, story: StoryId, channel: Channel, heartbeat: Duration) -> Self {
        let state = ReporterState {
            status,
            last_sent: Instant::now(),
            pending_report: None,
            pending_output: None,
            work_log: Vec::new(),
        };
        Self { story, channel, heartbeat, state: Arc::new(Mutex::new(state)), wakeup: Arc::new(Notify::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status, and sends it at once.
    pub fn set_status(&self, status: StoryStatus, output: &str) {
        let mut state = self.lock();
        state.status = status;
        state.drop_pending();
        self.log_and_send(&mut state, output.to_owned());
    }

    /// Adds the final text, which [`send_final_status`](Self::send_final_status) sends, and returns the work log.
    pub fn close(&self, output: &str) -> Vec<StoryLogEntry> {
        let mut state = self.lock();
        state.drop_pending();
        state.push_log_entry(output);
        state.work_log.clone()
    }

    /// Sends the final status. Nothing may be sent afterwards.
    pub fn send_final_status(&self, status: StoryStatus, output: &str) {
        let mut state = self.lock();
        state.status = status;
        self.send_update(&mut state, output.to_owned());
    }

    /// Reports the agent's progress: sent as soon as the interval allows, and always logged.
    pub fn report(&self, text: &str) {
        let mut state = self.lock();
        if let Some(older) = state.pending_report.replace(text.to_owned()) {
            state.push_log_entry(&older);
        }
        drop(state);
        self.wakeup.notify_one();
    }

    /// Reports a line of output: sent if the interval passes without a report of the agent.
    pub fn report_output(&self, line: &str) {
        let mut state = self.lock();
        let first = state.pending_output.is_none();
        state.pending_output = Some(line.to_owned());
        drop(state);
        if first {
            self.wakeup.notify_one();
        }
    }

    /// Sends what is due until the task is aborted.
    pub fn spawn(&self) -> JoinHandle<()> {
        let reporter = self.clone();
        tokio::spawn(async move { reporter.run().await })
    }

    async fn run(&self) {
        loop {
            let (due, beat) = {
                let state = self.lock();
                let waits = state.pending_report.is_some() || state.pending_output.is_some();
                (waits.then(|| state.last_sent + UPDATE_INTERVAL), state.last_sent + self.heartbeat)
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

    /// Sends what is pending, unless a status change was sent after `due` was computed.
    fn send_pending(&self, due: Instant) {
        let mut state = self.lock();
        if state.last_sent + UPDATE_INTERVAL > due {
            return;
        }
        let report = state.pending_report.take();
        let output = state.pending_output.take();
        if let Some(text) = report.or(output) {
            self.log_and_send(&mut state, text);
        }
    }

    /// Sends a heartbeat, unless something was sent after `due` was computed. Only a story in progress has one.
    fn send_heartbeat(&self, due: Instant) {
        let mut state = self.lock();
        if state.last_sent + self.heartbeat > due {
            return;
        }
        if state.status == StoryStatus::InProgress {
            self.send_update(&mut state, String::new());
        } else {
            state.last_sent = Instant::now();
        }
    }

    fn log_and_send(&self, state: &mut ReporterState, output: String) {
        state.push_log_entry(&output);
        self.send_update(state, output);
    }

    fn send_update(&self, state: &mut ReporterState, output: String) {
        state.last_sent = Instant::now();
        let update = ProgressUpdate { story_id: self.story.clone(), status: state.status, output };
        self.channel.send(&ContainerMessage::Progress(update));
    }
}

impl ReporterState {
    /// Logs a pending report, and drops pending output.
    fn drop_pending(&mut self) {
        self.pending_output = None;
        if let Some(report) = self.pending_report.take() {
            self.push_log_entry(&report);
        }
    }

    fn push_log_entry(&mut self, text: &str) {
        if self.work_log.len() == MAX_WORK_LOG_ENTRIES {
            // Keep the first entry. Of the others, the newest matter more.
            self.work_log.remove(1);
        }
        let text = take_chars(text, MAX_ENTRY_CHARS).to_owned();
        self.work_log.push(StoryLogEntry { at: jiff::Timestamp::now().to_string(), text });
    }
}
