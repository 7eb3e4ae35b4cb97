//! What one story has to say while it runs: state changes at once, everything else at most every two seconds; and its work
//! log.
//!
//! Fed by `story.rs` (state changes, the agent's last line) and `socket.rs` (`acp-shim progress`). Must not: run anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::channel::Channel;
use crate::ids::StoryId;
use crate::protocol::acp::message::{ContainerMessage, ProgressUpdate, StoryStatus};
use crate::verdict::WorkLogEntry;

/// The least time between two updates of a story that change no state.
pub const UPDATE_EVERY: Duration = Duration::from_secs(2);
/// The most entries of a work log.
pub const WORK_LOG_ENTRIES: usize = 200;

/// One story's voice. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    story: StoryId,
    channel: Channel,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
}

struct Inner {
    status: StoryStatus,
    last_sent: Instant,
    told: Option<String>,
    printed: Option<String>,
    work_log: Vec<WorkLogEntry>,
}

impl Progress {
    /// A story that is pending.
    pub fn new(story: StoryId, channel: Channel) -> Self {
        let inner = Inner {
            status: StoryStatus::Pending,
            last_sent: Instant::now(),
            told: None,
            printed: None,
            work_log: Vec::new(),
        };
        Self { story, channel, inner: Arc::new(Mutex::new(inner)), changed: Arc::new(Notify::new()) }
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
            let due = {
                let inner = self.lock();
                (inner.told.is_some() || inner.printed.is_some()).then(|| inner.last_sent + UPDATE_EVERY)
            };
            match due {
                None => self.changed.notified().await,
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

    fn send(&self, inner: &mut Inner, output: String) {
        inner.last_sent = Instant::now();
        note(inner, output.clone());
        let update = ProgressUpdate { story_id: self.story.clone(), status: inner.status, output };
        self.channel.send(&ContainerMessage::Progress(update));
    }

    /// The work log so far.
    pub fn work_log(&self) -> Vec<WorkLogEntry> {
        self.lock().work_log.clone()
    }
}

fn note(inner: &mut Inner, text: String) {
    if inner.work_log.len() == WORK_LOG_ENTRIES {
        // The beginning stays: it says what was started with; of the middle, the newest matter more.
        inner.work_log.remove(1);
    }
    let text = text.chars().take(2000).collect();
    inner.work_log.push(WorkLogEntry { at: jiff::Timestamp::now().to_string(), text });
}
