//! Journal and snapshot together, and when the snapshot is made anew.
//!
//! An event costs one journal line, however many stories there are. A snapshot costs as much as the swarm is big, so it
//! is not made for each event: while it is small, at most every 200 ms; when it is big, after the journal has grown by a
//! quarter of its size (so that snapshots write at most four times what the journal does); after 10 s with something new in
//! any case, or, over 64 KB, as much longer as it is bigger (so that waiting alone writes at most 6.4 KB a second);
//! and always at the end. Who wants the newest reads the journal (`recover::current_state`). Called by the coordinator, which
//! does the writing off its loop.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::state::dir::{SwarmDir, write_whole};
use crate::state::error::StateResult;
use crate::state::journal::{Contents, Header, Journal};
use crate::state::recover::witness;
use crate::state::swarm_state::SwarmState;
use crate::swarm::{Event, SwarmMachine};

/// A snapshot up to this size is written at once.
const SMALL: u64 = 16 * 1024;
/// But not more often than this.
const INTERVAL: Duration = Duration::from_millis(200);
/// A bigger one waits for this part of its size in journal lines.
const PART: u64 = 4;
/// And no longer than this, up to this size.
const LONGEST: Duration = Duration::from_secs(10);
const LONGEST_UP_TO: u64 = 64 * 1024;

/// When to make the next snapshot. Pure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// The last snapshot's size and time; none before the first.
    last: Option<(u64, Duration)>,
    /// Journal bytes that it does not have.
    since: u64,
    /// The time of the first event that it does not have.
    dirty: Option<Duration>,
}

impl SnapshotPolicy {
    /// Nothing is written yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Journal lines were written.
    pub fn appended(&mut self, bytes: u64, now: Duration) {
        self.since += bytes;
        self.dirty.get_or_insert(now);
    }

    /// A snapshot was made that has all events up to now.
    pub fn wrote(&mut self, bytes: u64, now: Duration) {
        *self = Self { last: Some((bytes, now)), since: 0, dirty: None };
    }

    /// When a snapshot is due, if nothing more happens; none where there is nothing new.
    pub fn due(&self) -> Option<Duration> {
        let dirty = self.dirty?;
        let Some((size, at)) = self.last else { return Some(dirty) };
        Some(if size <= SMALL || self.since >= size / PART {
            dirty.max(at + INTERVAL)
        } else {
            dirty + LONGEST.mul_f64((size as f64 / LONGEST_UP_TO as f64).max(1.0))
        })
    }
}

/// A snapshot that was made and is to be written, anywhere.
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

    /// Whether this is what the state file has.
    pub fn written(&self) -> bool {
        std::fs::read(&self.path).is_ok_and(|bytes| bytes == self.bytes)
    }

    /// Writes it. Snapshots must be written in the order in which they were made.
    pub fn write(self) -> StateResult<u64> {
        write_whole(&self.path, &self.bytes)?;
        Ok(self.bytes.len() as u64)
    }
}

/// What a swarm writes. `Send`: the coordinator moves it to where it may block.
#[derive(Debug)]
pub struct Store {
    dir: SwarmDir,
    started: Timestamp,
    journal: Journal,
    policy: SnapshotPolicy,
}

impl Store {
    /// Begins: the journal with its header; then `latest` points here.
    pub fn create(dir: SwarmDir, header: &Header) -> StateResult<Self> {
        let journal = Journal::create(&dir.journal_file(), header)?;
        dir.make_latest()?;
        Ok(Self { dir, started: header.started, journal, policy: SnapshotPolicy::new() })
    }

    /// Goes on with a swarm: opens the journal and cuts off what is torn.
    pub fn open(dir: SwarmDir) -> StateResult<(Self, Contents)> {
        // Read first: opening cuts a torn end off.
        witness(&dir, &Journal::read(&dir.journal_file())?)?;
        let (journal, contents) = Journal::open(&dir.journal_file())?;
        let started = contents.header.started;
        Ok((Self { dir, started, journal, policy: SnapshotPolicy::new() }, contents))
    }

    /// Makes events durable, each with the time that the machine was given. Gives the bytes written.
    pub fn append(&mut self, events: &[(Event, Duration)], at: Timestamp) -> StateResult<u64> {
        let bytes = self.journal.append(events, at)?;
        if let Some((_, now)) = events.last() {
            self.policy.appended(bytes, *now);
        }
        Ok(bytes)
    }

    /// When the next snapshot is due, if nothing more happens.
    pub fn snapshot_due(&self) -> Option<Duration> {
        self.policy.due()
    }

    /// A snapshot of the machine, if one is due. The machine must have taken in what was appended, and nothing more.
    pub fn maybe_snapshot(&mut self, machine: &SwarmMachine, now: Duration) -> StateResult<Option<PendingSnapshot>> {
        match self.policy.due() {
            Some(due) if due <= now => self.snapshot(machine, now).map(Some),
            _ => Ok(None),
        }
    }

    /// A snapshot of the machine, due or not: at the end, and at a stop.
    pub fn snapshot(&mut self, machine: &SwarmMachine, now: Duration) -> StateResult<PendingSnapshot> {
        let bytes = SwarmState::of(machine, self.started).to_bytes()?;
        self.policy.wrote(bytes.len() as u64, now);
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
