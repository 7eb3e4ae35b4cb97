//! Locks the swarms with resources to remove, including finished swarms, because an interrupted swarm can be resumed at any time.
//! The state of each swarm is read again under its lock. Must not: wait for a lock, or remove anything.

use std::path::Path;

use super::decision::{SwarmGcState, SwarmInventory, stopped_swarm_gc_state};
use crate::cli::error::CommandError;
use crate::ids::SwarmId;
use crate::state::{StateError, SwarmDir, SwarmLock};

/// A locked swarm; it cannot be resumed while the claim exists.
pub(super) struct SwarmClaim {
    pub(super) dir: SwarmDir,
    _lock: SwarmLock,
}

/// Claims the swarms with removable resources; `wide` includes an unfinished swarm. Updates `known` with the state of each swarm
/// under its lock.
pub(super) fn claim_swarms(
    root: &Path,
    known: &mut SwarmInventory,
    swarms: &[(SwarmId, bool)],
) -> Result<Vec<SwarmClaim>, CommandError> {
    let mut claims = Vec::new();
    for (swarm, wide) in swarms {
        match known.swarms.get(swarm) {
            Some(SwarmGcState::Finished) => {}
            Some(SwarmGcState::Unfinished | SwarmGcState::Damaged) if *wide => {}
            _ => continue,
        }
        let dir = SwarmDir::open(root, *swarm)?;
        match dir.lock() {
            Ok(lock) => {
                known.swarms.insert(*swarm, stopped_swarm_gc_state(&dir));
                claims.push(SwarmClaim { dir, _lock: lock });
            }
            // Resumed since its state was read.
            Err(StateError::Locked { .. }) => {
                known.swarms.insert(*swarm, SwarmGcState::Live);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::cli::args::GcArgs;
    use crate::engine::{EngineResource, EngineResourceKind, label};
    use crate::report::story_labels::tests::spec;
    use crate::state::journal::JOURNAL_VERSION;
    use crate::state::{Journal, JournalHeader};
    use crate::swarm::Event;

    /// A swarm's folder with a journal in which nothing has begun, and its volume in the engine.
    fn create_swarm() -> (tempfile::TempDir, SwarmDir, Journal, EngineResource) {
        let root = tempfile::tempdir().expect("a folder");
        let spec = spec(1);
        let dir = SwarmDir::create(root.path(), spec.swarm).expect("created");
        let header = JournalHeader {
            schema_version: JOURNAL_VERSION,
            program_version: "0.1.0".to_owned(),
            swarm_id: spec.swarm,
            started: Timestamp::UNIX_EPOCH,
            spec,
            settings: serde_json::Value::Null,
            tasks: Vec::new(),
        };
        let journal = Journal::create(&dir.journal_file(), &header).expect("created");
        let labels = [(label::SWARM, header.swarm_id.to_string()), (label::ROLE, "work".to_owned())];
        let volume = EngineResource {
            kind: EngineResourceKind::Volume,
            id: "v".to_owned(),
            name: "v".to_owned(),
            labels: BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value))),
            running: false,
            paused: false,
        };
        (root, dir, journal, volume)
    }

    fn is_removed(known: &SwarmInventory, volume: &EngineResource) -> bool {
        known.decide(volume, &GcArgs::default()).remove
    }

    #[test]
    fn finished_swarm_stays_locked_while_its_resources_are_removed() {
        let (root, dir, _journal, volume) = create_swarm();
        let mut known = SwarmInventory::from_resources_at(std::slice::from_ref(&volume), root.path()).expect("read");
        let claims = claim_swarms(root.path(), &mut known, &[(dir.swarm(), false)]).expect("claimed");
        assert!(is_removed(&known, &volume));
        assert!(dir.is_locked().expect("read"));
        drop(claims);
        assert!(!dir.is_locked().expect("read"));
    }

    #[test]
    fn swarm_resumed_meanwhile_keeps_its_resources() {
        let (root, dir, _journal, volume) = create_swarm();
        let mut known = SwarmInventory::from_resources_at(std::slice::from_ref(&volume), root.path()).expect("read");
        assert!(is_removed(&known, &volume));
        let _resumed = dir.lock().expect("free");
        let claims = claim_swarms(root.path(), &mut known, &[(dir.swarm(), false)]).expect("looked at");
        assert!(claims.is_empty());
        let decision = known.decide(&volume, &GcArgs::default());
        assert!(!decision.remove && decision.reason.contains("which is running"), "{decision:?}");
    }

    #[test]
    fn swarm_with_new_work_keeps_its_resources() {
        let (root, dir, mut journal, volume) = create_swarm();
        let mut known = SwarmInventory::from_resources_at(std::slice::from_ref(&volume), root.path()).expect("read");
        assert!(is_removed(&known, &volume));
        // Resumed and dead again since.
        journal.append(&[(Event::Began, Duration::ZERO)], Timestamp::UNIX_EPOCH).expect("appended");
        let _claims = claim_swarms(root.path(), &mut known, &[(dir.swarm(), false)]).expect("claimed");
        assert_eq!(known.swarms[&dir.swarm()], SwarmGcState::Unfinished);
        assert!(!is_removed(&known, &volume));
    }
}
