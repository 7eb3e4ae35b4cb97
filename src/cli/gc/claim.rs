//! Takes the locks of the swarms whose things are to go: also of those that are over, because an interrupted one can be resumed
//! at any time. What was seen before the lock is seen again under it. Must not: wait for a lock, or remove anything.

use std::path::Path;

use super::judge::{Known, Standing, at_rest};
use crate::cli::error::Shown;
use crate::ids::SwarmId;
use crate::state::{StateError, SwarmDir, SwarmLock};

/// A swarm that nobody else can take up while this is there.
pub(super) struct Claim {
    pub(super) dir: SwarmDir,
    _lock: SwarmLock,
}

/// Claims the swarms of which something may go: `wide` says whether one goes that did not finish too. How each stands under its
/// lock is put down in `known`.
pub(super) fn claim(root: &Path, known: &mut Known, swarms: &[(SwarmId, bool)]) -> Result<Vec<Claim>, Shown> {
    let mut claims = Vec::new();
    for (swarm, wide) in swarms {
        match known.swarms.get(swarm) {
            Some(Standing::Over) => {}
            Some(Standing::Unfinished | Standing::Damaged) if *wide => {}
            _ => continue,
        }
        let dir = SwarmDir::open(root, *swarm)?;
        match dir.lock() {
            Ok(lock) => {
                known.swarms.insert(*swarm, at_rest(&dir));
                claims.push(Claim { dir, _lock: lock });
            }
            // Taken up since it was looked at.
            Err(StateError::Locked { .. }) => {
                known.swarms.insert(*swarm, Standing::Live);
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
    use crate::engine::{Found, FoundKind, label};
    use crate::report::story_labels::tests::spec;
    use crate::state::journal::JOURNAL_VERSION;
    use crate::state::{Journal, JournalHeader};
    use crate::swarm::Event;

    /// A swarm's folder with a journal in which nothing has begun, and its volume in the engine.
    fn swarm() -> (tempfile::TempDir, SwarmDir, Journal, Found) {
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
        let volume = Found {
            kind: FoundKind::Volume,
            id: "v".to_owned(),
            name: "v".to_owned(),
            labels: BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value))),
            running: false,
            paused: false,
        };
        (root, dir, journal, volume)
    }

    fn removes(known: &Known, volume: &Found) -> bool {
        known.judge(volume, &GcArgs::default()).remove
    }

    #[test]
    fn one_that_is_over_is_held_while_its_things_go() {
        let (root, dir, _journal, volume) = swarm();
        let mut known = Known::at(std::slice::from_ref(&volume), root.path()).expect("read");
        let claims = claim(root.path(), &mut known, &[(dir.swarm(), false)]).expect("claimed");
        assert!(removes(&known, &volume));
        assert!(dir.is_locked().expect("read"));
        drop(claims);
        assert!(!dir.is_locked().expect("read"));
    }

    #[test]
    fn one_that_was_taken_up_meanwhile_keeps_its_things() {
        let (root, dir, _journal, volume) = swarm();
        let mut known = Known::at(std::slice::from_ref(&volume), root.path()).expect("read");
        assert!(removes(&known, &volume));
        let _resumed = dir.lock().expect("free");
        let claims = claim(root.path(), &mut known, &[(dir.swarm(), false)]).expect("looked at");
        assert!(claims.is_empty());
        let verdict = known.judge(&volume, &GcArgs::default());
        assert!(!verdict.remove && verdict.reason.contains("which is running"), "{verdict:?}");
    }

    #[test]
    fn one_that_left_work_meanwhile_keeps_its_things() {
        let (root, dir, mut journal, volume) = swarm();
        let mut known = Known::at(std::slice::from_ref(&volume), root.path()).expect("read");
        assert!(removes(&known, &volume));
        // Resumed and dead again since.
        journal.append(&[(Event::Began, Duration::ZERO)], Timestamp::UNIX_EPOCH).expect("appended");
        let _claims = claim(root.path(), &mut known, &[(dir.swarm(), false)]).expect("claimed");
        assert_eq!(known.swarms[&dir.swarm()], Standing::Unfinished);
        assert!(!removes(&known, &volume));
    }
}
