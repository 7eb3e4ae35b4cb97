//! Journals on users' disks: what an earlier build wrote is read, replayed and written as that build did.

use std::fs;
use std::path::{Path, PathBuf};

use longshore::state::{Journal, SwarmState, recovery};

/// A swarm of version 0.1.0 with reviews, retries, a conflict, an approval, a lock and a resume.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/journal").join(name)
}

#[test]
fn a_journal_of_0_1_0_replays_to_its_state_file() {
    let contents = Journal::read(&golden("0.1.0.ndjson")).expect("a whole journal");
    let started = contents.header.started;
    let machine = recovery::replay(contents).machine;
    let state = SwarmState::from_machine(&machine, started).to_bytes().expect("encoded");
    let expected = fs::read_to_string(golden("0.1.0.swarm-state.json")).expect("a state file");
    assert_eq!(String::from_utf8(state).expect("UTF-8"), expected);
}

#[test]
fn the_records_of_0_1_0_are_written_unchanged() {
    let contents = Journal::read(&golden("0.1.0.ndjson")).expect("a whole journal");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("journal.ndjson");
    let mut journal = Journal::create(&path, &contents.header).expect("created");
    for record in &contents.records {
        journal.append(&[(record.event.clone(), record.elapsed)], record.at).expect("appended");
    }
    let written = fs::read_to_string(&path).expect("written");
    let expected = fs::read_to_string(golden("0.1.0.ndjson")).expect("a journal");
    assert_eq!(written.lines().count(), expected.lines().count());
    for (number, (written, expected)) in written.lines().zip(expected.lines()).enumerate() {
        assert_eq!(written, expected, "record {number}");
    }
}
