//! The journal and the snapshot of a swarm, and the policy for new snapshots.
//!
//! An event costs one journal line, however many stories there are. A snapshot costs as much as the swarm is big, so it
//! is not made for each event: while it is small, at most every 200 ms; when it is big, after the journal has grown by a
//! quarter of its size (so that snapshots write at most four times what the journal does); after 10 s with something new in
//! any case, or, over 64 KB, as much longer as it is bigger (so that waiting alone writes at most 6.4 KB a second);
//! and always at the end. For the current state, read the journal (`recovery::current_state`). Called by the coordinator, which
//! does the writing off its loop.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::state::error::StateResult;
use crate::state::journal::{Journal, JournalContents, JournalHeader};
use crate::state::recovery::read_whole_journal;
use crate::state::swarm_dir::{SwarmDir, write_atomic};
use crate::state::swarm_state::SwarmState;
use crate::swarm::{Event, SwarmMachine};

/// A snapshot up to this size is written at once.
const SMALL_SNAPSHOT_BYTES: u64 = 16 * 1024;
/// But not more often than this.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// A bigger one waits for this part of its size in journal lines.
const JOURNAL_FRACTION: u64 = 4;
/// And no longer than this, up to this size.
const MAX_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY_BYTES: u64 = 64 * 1024;

/// When to make the next snapshot. Pure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// The last snapshot's size and time; `None` before the first.
    last_snapshot: Option<(u64, Duration)>,
    /// Journal bytes since the last snapshot.
    pending_bytes: u64,
    /// The time of the first event since the last snapshot.
    dirty_since: Option<Duration>,
}

impl SnapshotPolicy {
    /// Nothing is written yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Journal lines were written.
    pub fn record_append(&mut self, bytes: u64, now: Duration) {
        self.pending_bytes += bytes;
        self.dirty_since.get_or_insert(now);
    }

    /// A snapshot was made that has all events up to now.
    pub fn record_snapshot(&mut self, bytes: u64, now: Duration) {
        *self = Self { last_snapshot: Some((bytes, now)), pending_bytes: 0, dirty_since: None };
    }

    /// When the next snapshot is due, if no more events arrive; `None` if there are no new events.
    pub fn due_at(&self) -> Option<Duration> {
        let dirty = self.dirty_since?;
        let Some((size, at)) = self.last_snapshot else { return Some(dirty) };
        Some(if size <= SMALL_SNAPSHOT_BYTES || self.pending_bytes >= size / JOURNAL_FRACTION {
            dirty.max(at + MIN_INTERVAL)
        } else {
            dirty + MAX_DELAY.mul_f64((size as f64 / MAX_DELAY_BYTES as f64).max(1.0))
        })
    }
}

/// A snapshot that is not written yet. Can be written on any thread.
#[derive(Debug)]
#[must_use]
pub struct PendingSnapshot {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PendingSnapshot {
    /// How many bytes it writes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether the state file has these bytes.
    pub fn is_written(&self) -> bool {
        std::fs::read(&self.path).is_ok_and(|bytes| bytes == self.bytes)
    }

    /// Writes it. Snapshots must be written in the order in which they were made.
    pub fn write(self) -> StateResult<u64> {
        write_atomic(&self.path, &self.bytes)?;
        Ok(self.bytes.len() as u64)
    }
}

/// A swarm's journal and snapshots on disk. `Send`, so that the coordinator can move it to a blocking thread.
#[derive(Debug)]
pub struct SwarmStore {
    dir: SwarmDir,
    started: Timestamp,
    journal: Journal,
    policy: SnapshotPolicy,
}

impl SwarmStore {
    /// Creates the journal with its header, then points `latest` at this swarm.
    pub fn create(dir: SwarmDir, header: &JournalHeader) -> StateResult<Self> {
        let journal = Journal::create(&dir.journal_file(), header)?;
        dir.set_latest()?;
        Ok(Self { dir, started: header.started, journal, policy: SnapshotPolicy::new() })
    }

    /// Opens the journal of an existing swarm and truncates a torn record.
    pub fn open(dir: SwarmDir) -> StateResult<(Self, JournalContents)> {
        // Check first, because opening truncates a torn record.
        read_whole_journal(&dir)?;
        let (journal, contents) = Journal::open(&dir.journal_file())?;
        let started = contents.header.started;
        Ok((Self { dir, started, journal, policy: SnapshotPolicy::new() }, contents))
    }

    /// Makes events durable, each with the time passed to the machine. Returns the bytes written.
    pub fn append(&mut self, events: &[(Event, Duration)], at: Timestamp) -> StateResult<u64> {
        let bytes = self.journal.append(events, at)?;
        if let Some((_, now)) = events.last() {
            self.policy.record_append(bytes, *now);
        }
        Ok(bytes)
    }

    /// When the next snapshot is due, if no more events arrive.
    pub fn snapshot_due_at(&self) -> Option<Duration> {
        self.policy.due_at()
    }

    /// A snapshot of the machine, if one is due. The machine must have handled exactly the appended events.
    pub fn snapshot_if_due(&mut self, machine: &SwarmMachine, now: Duration) -> StateResult<Option<PendingSnapshot>> {
        match self.policy.due_at() {
            Some(due) if due <= now => self.snapshot(machine, now).map(Some),
            _ => Ok(None),
        }
    }

    /// A snapshot of the machine, due or not: at the end, and at a stop.
    pub fn snapshot(&mut self, machine: &SwarmMachine, now: Duration) -> StateResult<PendingSnapshot> {
        let bytes = SwarmState::from_machine(machine, self.started).to_bytes()?;
        self.policy.record_snapshot(bytes.len() as u64, now);
        Ok(PendingSnapshot { path: self.dir.state_file(), bytes })
    }

    /// The swarm's folder.
    pub fn dir(&self) -> &SwarmDir {
        &self.dir
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}
