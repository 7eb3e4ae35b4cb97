//! A damaged journal or state file gives the exact state or an error, never a wrong state.

use super::*;
use crate::state::journal::parse;
use crate::state::recovery::{recover, replay};

#[test]
fn a_journal_torn_at_any_byte_keeps_its_whole_records() {
    let sample = SampleJournal::new();
    let lines = sample.line_offsets();
    let machines: Vec<SwarmMachine> = (0..=sample.events.len()).map(|events| sample.machine(events)).collect();
    for length in 0..sample.bytes.len() {
        let read = parse(&sample.bytes[..length], &sample.path());
        // A record that lacks its newline alone is whole.
        let whole = lines.iter().filter(|end| **end > 0 && **end <= length + 1).count();
        match read {
            Err(_) => assert_eq!(whole, 0, "torn at {length}: only without a header is there nothing to go on with"),
            Ok(contents) => {
                let torn = length.saturating_sub(lines[whole]) as u64;
                assert_eq!(contents.torn_bytes, torn, "torn at {length}");
                assert!(replay(contents).machine == machines[whole - 1], "torn at {length}");
            }
        }
    }
}

#[test]
fn a_torn_journal_can_be_appended_to() {
    let sample = SampleJournal::new();
    let lines = sample.line_offsets();
    let last = lines[lines.len() - 2];
    for length in last..sample.bytes.len() {
        std::fs::write(sample.path(), &sample.bytes[..length]).expect("written");
        let (mut journal, contents) = Journal::open(&sample.path()).expect("opened");
        let missing = &sample.events[contents.records.len()..];
        assert_eq!(missing.len(), usize::from(length < sample.bytes.len() - 1), "torn at {length}");
        journal.append(missing, started()).expect("appended");
        assert_eq!(std::fs::read(sample.path()).expect("read"), sample.bytes, "torn at {length}");
    }
}

#[test]
fn a_damaged_journal_is_rejected_or_read_exactly() {
    let sample = SampleJournal::new();
    let right = sample.machine(sample.events.len());
    let exact = |bytes: &[u8], what: &str, at: usize| match parse(bytes, &sample.path()) {
        Err(StateError::Damaged { offset, .. }) => assert!(offset <= at as u64, "{what} at {at} is found at {offset}"),
        Err(StateError::UnsupportedVersion { .. }) => {}
        Err(other) => panic!("{what} at {at}: {other}"),
        Ok(contents) => assert!(replay(contents).machine == right, "{what} at {at} made a wrong state"),
    };
    for at in 0..sample.bytes.len() {
        let mut bytes = sample.bytes.clone();
        let byte = bytes[at];
        for changed in [byte ^ 1, byte ^ 0x20, b'\n'] {
            bytes[at] = changed;
            exact(&bytes, "a change", at);
        }
        bytes[at] = byte;
        bytes.insert(at, b'1');
        exact(&bytes, "an insertion", at);
        bytes.remove(at);
        bytes.remove(at);
        exact(&bytes, "a deletion", at);
    }
}

#[test]
fn lost_duplicated_and_moved_records_are_detected() {
    let sample = SampleJournal::new();
    let lines = sample.line_offsets();
    let line = |n: usize| &sample.bytes[lines[n]..lines[n + 1]];
    let records = lines.len() - 1;
    for n in 1..records - 1 {
        let around = |middle: &[&[u8]]| {
            let mut bytes = sample.bytes[..lines[n]].to_vec();
            middle.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.extend_from_slice(&sample.bytes[lines[n + 2]..]);
            parse(&bytes, &sample.path())
        };
        assert!(around(&[line(n), line(n + 1)]).is_ok());
        for wrong in [vec![line(n + 1)], vec![line(n), line(n), line(n + 1)], vec![line(n + 1), line(n)]] {
            let error = around(&wrong).expect_err("a journal with the wrong lines");
            assert!(
                error.to_string().contains(&format!("(record {n})"))
                    || error.to_string().contains(&format!("(record {})", n + 1)),
                "{error}"
            );
        }
    }
}

#[test]
fn newer_and_empty_journals_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal.ndjson");
    let newer = JournalHeader { schema_version: 2, ..header(1) };
    Journal::create(&path, &newer).expect("created");
    let error = Journal::read(&path).expect_err("newer");
    assert!(matches!(error, StateError::UnsupportedVersion { found: 2, supported: 1, .. }), "{error}");
    std::fs::write(&path, b"").expect("written");
    assert!(matches!(Journal::read(&path), Err(StateError::Damaged { .. })));
}

#[test]
fn a_state_file_round_trips_and_damage_is_rejected() {
    let mut play = SimulatedSwarm::new(2);
    while play.next_event().is_some() {}
    let state = SwarmState::from_machine(&play.machine, started());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("swarm-state.json");
    state.write(&path).expect("written");
    assert_eq!(SwarmState::read(&path).expect("read"), state);
    let bytes = std::fs::read(&path).expect("read");
    let read = |bytes: &[u8]| SwarmState::parse(bytes, &path);
    for at in 0..bytes.len() {
        assert!(read(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        for changed in [bytes[at] ^ 1, bytes[at] ^ 0x20, b' '] {
            damaged[at] = changed;
            match read(&damaged) {
                Ok(read) => assert_eq!(read, state, "byte {at}"),
                Err(StateError::Damaged { .. } | StateError::UnsupportedVersion { .. }) => {}
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    }
    let text = String::from_utf8(bytes).expect("text").replacen("\"schemaVersion\": 1", "\"schemaVersion\": 2", 1);
    assert!(matches!(read(text.as_bytes()), Err(StateError::UnsupportedVersion { found: 2, .. })));
}

#[test]
fn the_state_file_matches_its_schema() {
    let mut play = SimulatedSwarm::new(3);
    while play.next_event().is_some() {}
    let state = SwarmState::from_machine(&play.machine, started());
    let value: serde_json::Value = serde_json::from_slice(&state.to_bytes().expect("JSON")).expect("JSON");
    let schema = serde_json::to_value(schemars::schema_for!(SwarmState)).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    if let Err(error) = validator.validate(&value) {
        panic!("{error}");
    }
    for field in ["schemaVersion", "swarmId", "createdAt", "updatedAt", "status", "containers", "stories"] {
        assert!(value.get(field).is_some(), "{field}");
    }
    let container = &value["containers"][0];
    for field in [
        "containerId",
        "containerName",
        "taskFilePath",
        "branchName",
        "status",
        "storyProgress",
        "prUrl",
        "exitCode",
        "error",
        "attempt",
        "createdAt",
        "updatedAt",
    ] {
        assert!(container.get(field).is_some(), "{field}");
    }
    let progress = serde_json::json!({
        "total": 1, "completed": 1, "failed": 0, "inProgress": 0, "pending": 0, "skipped": 0
    });
    assert_eq!(container["storyProgress"], progress);
    assert_eq!(container["status"], "completed");
    let words: Vec<&str> =
        value["stories"].as_array().expect("stories").iter().filter_map(|story| story["status"].as_str()).collect();
    assert_eq!(words, ["completed", "failed", "completed"]);
    let failed = &value["stories"][1];
    assert_eq!((&failed["cause"], &failed["attempts"]), (&"verification_failed".into(), &2.into()));
    assert_eq!(failed["evidence"]["summary"], "`make test` exited 2");
    assert_eq!(value["stories"][0]["durationMs"], 1234);
    assert_eq!(value["createdAt"], "2026-11-21T10:00:00Z");
    assert_eq!(value["status"], "some_failed");
}

/// A swarm's directory with the sample's journal, and the state file as it was after `snapshot` records.
fn sample_dir(sample: &SampleJournal, snapshot: Option<usize>) -> (tempfile::TempDir, SwarmDir) {
    let root = tempfile::tempdir().expect("a folder");
    let dir = SwarmDir::create(root.path(), sample_header(sample).swarm_id).expect("created");
    let mut store = SwarmStore::create(dir.clone(), &sample_header(sample)).expect("created");
    store.append(&sample.events, started()).expect("appended");
    if let Some(records) = snapshot {
        SwarmState::from_machine(&sample.machine(records), started()).write(&dir.state_file()).expect("written");
    }
    (root, dir)
}

fn sample_header(sample: &SampleJournal) -> JournalHeader {
    parse(&sample.bytes, &sample.path()).expect("a journal").header
}

#[test]
fn cut_off_records_are_noticed_with_and_without_a_snapshot() {
    let sample = SampleJournal::new();
    let (lines, all) = (sample.line_offsets(), sample.events.len());
    let lost = |dir: &SwarmDir| match recover(dir) {
        Err(StateError::RecordsLost { found, expected, .. }) => Some((found as usize, expected as usize)),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    };
    for snapshot in [None, Some(1), Some(all)] {
        for kept in 0..all {
            let (_root, dir) = sample_dir(&sample, snapshot);
            assert_eq!(lost(&dir), None);
            let path = dir.journal_file();
            let whole = std::fs::read(&path).expect("read");
            std::fs::write(&path, &whole[..lines[kept + 1]]).expect("written");
            assert_eq!(lost(&dir), Some((kept, all)), "{kept} of {all} records are left");
            let error = SwarmStore::open(dir.clone()).expect_err("cut off").to_string();
            assert!(error.contains(&format!("ends at record {kept}, and record {all} had been written")), "{error}");
            assert_eq!(std::fs::read(&path).expect("read").len(), lines[kept + 1], "it stays as it is");
            // A swarm of an earlier version has no count, and only its snapshot says what is missing.
            std::fs::remove_file(path.with_file_name("journal.count")).expect("removed");
            let known = snapshot.filter(|records| *records > kept);
            assert_eq!(lost(&dir), known.map(|records| (kept, records)));
            std::fs::write(&path, &whole).expect("restored");
            assert_eq!(lost(&dir), None);
        }
    }
}

#[test]
fn an_unreadable_count_is_ignored() {
    let sample = SampleJournal::new();
    let (_root, dir) = sample_dir(&sample, None);
    let path = dir.journal_file().with_file_name("journal.count");
    assert_eq!(std::fs::read_to_string(&path).expect("read").trim_end().parse(), Ok(sample.events.len()));
    for text in ["", "\0\0\0\0", "-1", "many"] {
        std::fs::write(&path, text).expect("written");
        recover(&dir).expect("whole");
    }
}
