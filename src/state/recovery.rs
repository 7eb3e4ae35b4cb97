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
    let contents = Journal::read(&dir.journal_file())?;
    check_against_state_file(dir, &contents)?;
    Ok(replay(contents))
}

/// Checks that the journal has every event in the state file. A crash can only lose events after the last snapshot.
///
/// # Errors
/// [`StateError::RecordsLost`]; [`StateError::UnsupportedVersion`] if a later version of longshore continued the swarm. A missing or
/// damaged state file is ignored, because it can be regenerated.
pub fn check_against_state_file(dir: &SwarmDir, contents: &JournalContents) -> StateResult<()> {
    let (found, path) = (contents.records.len() as u64, dir.journal_file());
    match SwarmState::read(&dir.state_file()) {
        Ok(state) if state.journal_records > found => {
            Err(StateError::RecordsLost { path, found, expected: state.journal_records })
        }
        Err(error @ StateError::UnsupportedVersion { .. }) => Err(error),
        _ => Ok(()),
    }
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
