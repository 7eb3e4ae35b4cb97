//! From the folder back to a machine: the journal's events, folded. Called by `longshore resume` and by `longshore status` where the
//! snapshot is damaged or behind.

use std::time::Duration;

use jiff::Timestamp;

use crate::state::error::{StateError, StateResult};
use crate::state::journal::{Journal, JournalContents, JournalHeader};
use crate::state::swarm_dir::SwarmDir;
use crate::state::swarm_state::SwarmState;
use crate::swarm::{AmpIntent, Effect, SwarmMachine};

/// What the journal says.
#[derive(Debug)]
pub struct RecoveredSwarm {
    /// The first record.
    pub header: JournalHeader,
    /// The machine after the last one.
    pub machine: SwarmMachine,
    /// The last one's time since the swarm began: the machine's clock goes on from here.
    pub elapsed: Duration,
    /// The last one's time by the wall clock.
    pub last_event_at: Option<Timestamp>,
    /// All that was said in AMP, in order.
    pub amp_intents: Vec<AmpIntent>,
    /// How many events there are.
    pub event_count: u64,
    /// Bytes of a torn record, which count for nothing.
    pub torn_bytes: u64,
}

/// Reads the journal and folds it. Writes nothing.
pub fn recover(dir: &SwarmDir) -> StateResult<RecoveredSwarm> {
    let contents = Journal::read(&dir.journal_file())?;
    check_against_state_file(dir, &contents)?;
    Ok(replay(contents))
}

/// Holds the journal to the state file: a crash loses what came after a picture, and never what came before it.
///
/// # Errors
/// [`StateError::RecordsLost`]; [`StateError::UnsupportedVersion`] where a later version went on with the swarm. A state file that is not there or
/// damaged says nothing: it can be made again.
pub fn check_against_state_file(dir: &SwarmDir, contents: &JournalContents) -> StateResult<()> {
    let (has, path) = (contents.records.len() as u64, dir.journal_file());
    match SwarmState::read(&dir.state_file()) {
        Ok(state) if state.journal_records > has => {
            Err(StateError::RecordsLost { path, found: has, expected: state.journal_records })
        }
        Err(error @ StateError::UnsupportedVersion { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Folds a journal that was read.
pub fn replay(contents: JournalContents) -> RecoveredSwarm {
    let JournalContents { header, records, torn_bytes, .. } = contents;
    let mut machine = SwarmMachine::new(header.spec.clone());
    let mut words = Vec::new();
    for record in &records {
        // The effects were carried out, or are given again after `Event::Resumed`.
        for effect in machine.handle(&record.event, record.elapsed) {
            if let Effect::SendAmp(word) = effect {
                words.push(*word);
            }
        }
    }
    let elapsed = records.last().map_or(Duration::ZERO, |record| record.elapsed);
    let last = records.last().map(|record| record.at);
    RecoveredSwarm {
        header,
        machine,
        elapsed,
        last_event_at: last,
        amp_intents: words,
        event_count: records.len() as u64,
        torn_bytes,
    }
}

/// The newest picture of a swarm, for reading: from the journal, which is never behind. The file may be gone or damaged.
pub fn current_state(dir: &SwarmDir) -> StateResult<SwarmState> {
    let recovered = recover(dir)?;
    Ok(SwarmState::from_machine(&recovered.machine, recovered.header.started))
}
