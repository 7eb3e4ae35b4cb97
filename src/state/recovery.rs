//! Rebuilds a machine by replaying the journal. Called by `longshore resume`, and by `longshore status` if the snapshot is
//! damaged or behind.

use std::time::Duration;

use jiff::Timestamp;

use crate::state::error::{StateError, StateResult};
use crate::state::journal::{Journal, JournalContents, JournalHeader};
use crate::state::swarm_dir::SwarmDir;
use crate::state::swarm_state::SwarmState;
use crate::swarm::{AmpIntent, Effect, SwarmMachine};

/// A swarm rebuilt from its journal.
#[derive(Debug)]
pub struct RecoveredSwarm {
    /// The journal's header.
    pub header: JournalHeader,
    /// The machine after the last event.
    pub machine: SwarmMachine,
    /// The last event's time since the swarm began; the machine's clock continues from here.
    pub elapsed: Duration,
    /// The last event's wall-clock time.
    pub last_event_at: Option<Timestamp>,
    /// All AMP messages sent, in order.
    pub amp_intents: Vec<AmpIntent>,
    pub event_count: u64,
    /// Bytes of a torn record, which is ignored.
    pub torn_bytes: u64,
}

/// Reads and replays the journal. Writes nothing.
pub fn recover(dir: &SwarmDir) -> StateResult<RecoveredSwarm> {
    Ok(replay(read_whole_journal(dir)?))
}

/// Reads the journal, and checks that it has every record that it is known to have had: those in the state file, and those that
/// `journal.count` counted.
///
/// # Errors
/// [`StateError::RecordsLost`]; [`StateError::UnsupportedVersion`] if a later version of longshore continued the swarm. A missing or
/// damaged state file is ignored, because it can be regenerated, and so is a missing count.
pub fn read_whole_journal(dir: &SwarmDir) -> StateResult<JournalContents> {
    let path = dir.journal_file();
    // Both before the journal, to which another process may be appending.
    let counted = Journal::read_count(&path);
    let in_snapshot = match SwarmState::read(&dir.state_file()) {
        Ok(state) => state.journal_records,
        Err(error @ StateError::UnsupportedVersion { .. }) => return Err(error),
        Err(_) => 0,
    };
    let contents = Journal::read(&path)?;
    let (found, expected) = (contents.records.len() as u64, counted.max(in_snapshot));
    if expected > found {
        return Err(StateError::RecordsLost { path, found, expected });
    }
    Ok(contents)
}

/// Replays a journal.
pub fn replay(contents: JournalContents) -> RecoveredSwarm {
    let JournalContents { header, records, torn_bytes, .. } = contents;
    let mut machine = SwarmMachine::new(header.spec.clone());
    let mut amp_intents = Vec::new();
    for record in &records {
        // The effects were executed, or are repeated after `Event::Resumed`.
        for effect in machine.handle(&record.event, record.elapsed) {
            if let Effect::SendAmp(intent) = effect {
                amp_intents.push(*intent);
            }
        }
    }
    let elapsed = records.last().map_or(Duration::ZERO, |record| record.elapsed);
    let last_event_at = records.last().map(|record| record.at);
    RecoveredSwarm {
        header,
        machine,
        elapsed,
        last_event_at,
        amp_intents,
        event_count: records.len() as u64,
        torn_bytes,
    }
}

/// The current state of a swarm, read from the journal. The state file may be missing or damaged.
pub fn current_state(dir: &SwarmDir) -> StateResult<SwarmState> {
    let recovered = recover(dir)?;
    Ok(SwarmState::from_machine(&recovered.machine, recovered.header.started))
}
