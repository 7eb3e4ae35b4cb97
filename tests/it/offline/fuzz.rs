//! Fuzz targets: each takes any bytes, and says by a panic that a property does not hold. They are plain functions of bytes, so a
//! fuzzer that is guided by coverage can call them too; here a loop calls them that needs no other compiler: it mutates the
//! corpus (the golden files, and what the program itself writes) as a seed says, a fixed number of times.
//!
//! | target | what holds |
//! |---|---|
//! | `lines` | however a stream is cut, the lines are the same; a good line can be written, and is read back |
//! | `acp` | what is accepted can be said again, and means the same; a session counts every line |
//! | `amp` | what is accepted can be said again, means the same, and fits the schema |
//! | `tasks` | what parses can be planned or is refused; what a sandbox gets of it parses |
//! | `journal` | damaged, it is an error or an exact prefix; well formed and senseless, it folds |
//! | `state` | damaged, it is an error, and never another state |
//! | `handoff` | what is read can be written, and is read back the same |
//! | `tar` | what a sandbox left is taken within its bounds, or nothing is; nothing else is written |
//!
//! A failing input is printed. `LONGSHORE_SEED=<n>` begins at that input, `LONGSHORE_RUNS=<n>` plays so many.

#[path = "../../../src/test_rng.rs"]
mod test_rng;
mod tar;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use longshore::handoff::assignment::AssignmentFile;
use longshore::handoff::depot::{DepotRequest, DepotResponse};
use longshore::handoff::result::ResultFile;
use longshore::ids::{AttemptId, StoryId};
use longshore::plan::{self, FanOut, Plan, PlanOptions};
use longshore::protocol::acp::machine::Session;
use longshore::protocol::acp::message::{
    StoryStatus, decode_container, decode_task_request, encode_container, encode_task_request,
};
use longshore::protocol::amp;
use longshore::protocol::amp::message::{Ack, AmpMessage, ReviewVerdict};
use longshore::state::journal::{JOURNAL_VERSION, Journal, JournalContents, JournalHeader, TasksFileCopy};
use longshore::state::recovery::replay;
use longshore::state::{StateError, SwarmState};
use longshore::swarm::{Event, MachineryFault, SwarmMachine};
use longshore::tasks;
use longshore::verdict::Cause;
use longshore::wire::{LineSplitter, NdjsonCodec, WireLine};
use serde::Serialize;
use serde::de::DeserializeOwned;
use test_rng::SeededRng;
use tokio_util::codec::{Decoder, Encoder};

pub fn fuzz_lines(data: &[u8]) -> bool {
    let lines = |size: usize| {
        let mut splitter = LineSplitter::new();
        let mut found = Vec::new();
        for chunk in data.chunks(size) {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = splitter.next_line() {
                found.push(line);
            }
        }
        found.extend(splitter.finish());
        found
    };
    let whole = lines(data.len().max(1));
    let size = 1 + data.iter().fold(0, |sum: usize, byte| sum + usize::from(*byte)) % 97;
    assert_eq!(lines(size), whole, "in pieces of {size} bytes");
    let mut good = false;
    for line in whole {
        let WireLine::Good(line) = line else { continue };
        let mut stream = BytesMut::new();
        NdjsonCodec::new().encode(&line[..], &mut stream).expect("what was read as a line can be written as one");
        let again = NdjsonCodec::new().decode(&mut stream).expect("memory can be read");
        // An empty line is none.
        assert!(again == Some(WireLine::Good(line.clone())) || line.is_empty(), "{again:?}");
        good = true;
    }
    good
}

pub fn fuzz_acp(data: &[u8]) -> bool {
    let (mut session, mut accepted) = (None, false);
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok((envelope, message)) = decode_container(line) {
            let text = encode_container(&envelope, &message);
            assert_eq!(decode_container(&text), Ok((envelope.clone(), message)));
            accepted = true;
            let stories: Vec<StoryId> = ["US-001", "US-002"].map(|id| id.parse().expect("an id")).to_vec();
            session.get_or_insert_with(|| (Session::new(envelope.swarm_id, envelope.container_id, &stories), 0));
        }
        if let Ok((envelope, request)) = decode_task_request(line) {
            let text = encode_task_request(&envelope, &request).expect("what came on a line fits on one");
            assert_eq!(decode_task_request(&text), Ok((envelope, request)));
            accepted = true;
        }
        if let Some((session, count)) = &mut session {
            session.handle_line(WireLine::Good(Bytes::copy_from_slice(line)));
            *count += 1;
            assert_eq!(session.record_count(), *count);
        }
    }
    accepted
}

pub fn fuzz_amp(data: &[u8]) -> bool {
    static SCHEMA: LazyLock<jsonschema::Validator> =
        LazyLock::new(|| jsonschema::validator_for(amp::schema::message_schema().as_value()).expect("a good schema"));
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let message = AmpMessage::parse(text);
    if let Ok(message) = &message {
        let text = message.to_json();
        assert_eq!(AmpMessage::parse(&text).as_ref(), Ok(message));
        let value = serde_json::from_str(&text).expect("JSON");
        assert!(SCHEMA.is_valid(&value), "{text}");
    }
    let ack = Ack::parse(text);
    if let Ok(ack) = &ack {
        assert_eq!(Ack::parse(&ack.to_json()).as_ref(), Ok(ack));
    }
    let verdict = ReviewVerdict::parse(text, &[String::from("It works")]);
    message.is_ok() || ack.is_ok() || verdict.is_ok()
}

pub fn fuzz_tasks(data: &[u8]) -> bool {
    let Ok(file) = tasks::parse(data, Path::new("tasks.json")) else { return false };
    let mut planned = false;
    for fan_out in [FanOut::Story, FanOut::File] {
        let options =
            PlanOptions { fan_out, rerun_done: false, branch: None, year: 2026, mailbox: None, has_agent: true };
        let Ok(plan) = plan::build(vec![(file.clone(), data.to_vec())], Path::new("/nowhere"), &options) else {
            continue;
        };
        planned = true;
        for assignment in &plan.assignments {
            let delivered = plan.tasks_file_for(assignment.file, &assignment.stories);
            let read = tasks::parse(delivered.as_bytes(), Path::new("tasks.json"));
            read.unwrap_or_else(|error| panic!("what a sandbox gets cannot be read: {error}\n{delivered}"));
        }
    }
    planned
}

pub fn fuzz_journal(data: &[u8]) -> bool {
    let path = scratch_path("journal");
    std::fs::write(&path, data).expect("written");
    let (_, whole) = &*JOURNAL;
    if let Ok(contents) = Journal::read(&path) {
        assert_eq!(contents.header, whole.header);
        assert!(whole.records.starts_with(&contents.records), "records that nobody wrote");
        assert_eq!((contents.valid_bytes + contents.torn_bytes) as usize, data.len());
        let machine = replay(contents.clone()).machine;
        let mut exact = SwarmMachine::new(whole.header.spec.clone());
        for record in &whole.records[..contents.records.len()] {
            exact.handle(&record.event, record.elapsed);
        }
        assert_eq!(state_bytes(&machine), state_bytes(&exact));
        // To go on with it takes the torn end off and nothing else.
        let (journal, again) = Journal::open(&path).expect("what can be read can be gone on with");
        assert_eq!((journal.event_count() as usize, again.records), (contents.records.len(), contents.records));
    }
    // The same with checksums that are right, so that what comes after them is reached.
    std::fs::write(&path, with_checksum(data)).expect("written");
    let read = Journal::read(&path);
    read.is_ok_and(|contents| !state_bytes(&replay(contents).machine).is_empty())
}

pub fn fuzz_state(data: &[u8]) -> bool {
    let path = scratch_path("state");
    std::fs::write(&path, data).expect("written");
    match SwarmState::read(&path) {
        Ok(state) => {
            assert_eq!(state.to_bytes().expect("JSON"), *STATE, "a state that nobody wrote");
            true
        }
        Err(error) => {
            assert!(!matches!(error, StateError::Io { .. }), "{error}");
            false
        }
    }
}

pub fn fuzz_handoff(data: &[u8]) -> bool {
    fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) -> bool {
        let read = serde_json::from_slice::<T>(data);
        if let Ok(read) = &read {
            let written = serde_json::to_vec(read).expect("JSON");
            assert_eq!(&serde_json::from_slice::<T>(&written).expect("what was written can be read"), read);
        }
        read.is_ok()
    }
    assert_round_trip::<ResultFile>(data)
        | assert_round_trip::<AssignmentFile>(data)
        | assert_round_trip::<DepotRequest>(data)
        | assert_round_trip::<DepotResponse>(data)
}

#[test]
fn ndjson_lines() {
    let mut corpus = golden_corpus("acp");
    corpus.push([vec![b'x'; 65_536], b"\n".to_vec(), vec![b'y'; 65_537], b"\nz".to_vec()].concat());
    run_target("lines", 15_000, &corpus, fuzz_lines);
}

#[test]
fn acp_records() {
    run_target("acp", 40_000, &golden_corpus("acp"), fuzz_acp);
}

#[test]
fn amp_messages() {
    run_target("amp", 20_000, &golden_corpus("amp/valid"), fuzz_amp);
}

#[test]
fn tasks_files() {
    run_target("tasks", 6_000, &golden_corpus("tasks"), fuzz_tasks);
}

#[test]
fn journal_records() {
    run_target("journal", 4_000, std::slice::from_ref(&JOURNAL.0), fuzz_journal);
}

#[test]
fn state_file() {
    run_target("state", 10_000, std::slice::from_ref(&STATE), fuzz_state);
}

#[test]
fn handoff_files() {
    let result = r#"{"schemaVersion":1,"swarmId":"a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d","attempt":{"assignment":"T-2026-001","number":1},"base":"1111111111111111111111111111111111111111","tip":"2222222222222222222222222222222222222222","bundle":true,"stories":[{"id":"US-001","outcome":{"outcome":"finished","commit":"2222222222222222222222222222222222222222"},"criteria":[{"id":"AC-1","text":"It works","met":null}],"workLog":[{"at":"2026-01-01T00:00:00Z","text":"half done"}],"commits":["2222222222222222222222222222222222222222"],"durationMs":7},{"id":"US-002","outcome":{"outcome":"failed","failure":{"cause":"agent_failed","evidence":{"summary":"the agent exited 1","exitCode":1}},"salvage":"3333333333333333333333333333333333333333","unsaved":false}},{"id":"US-003","outcome":{"outcome":"skipped","because":"US-002"}},{"id":"US-004","outcome":{"outcome":"not_reached"}}]}"#;
    let assignment = r#"{"schemaVersion":1,"swarmId":"a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d","attempt":{"assignment":"T-2026-001","number":2},"branch":"longshore/a1b2c3d4/US-001","base":"1111111111111111111111111111111111111111","integrationBranch":"feat/x","objectFormat":"sha1","taskFilePath":"tasks/x.json","stories":[{"id":"US-001","previousFailure":"it failed"}],"agent":{"name":"a","argv":["agent","-p"],"prompt":"stdin"},"verify":["true"],"storyTimeoutSecs":60,"idleTimeoutSecs":0,"graceSecs":10,"identity":{"name":"Ada","email":"a@b.c"}}"#;
    let request = r#"{"op":"prepare","folder":"T-2026-001-1","uid":100000,"shim_uid":120000,"files":[{"path":"assignment.json","text":"{}"}]}"#;
    let answer =
        r#"{"answer":"objects","tips":[{"name":"refs/a","commit":"1111111111111111111111111111111111111111"}]}"#;
    let corpus: Vec<Vec<u8>> = [result, assignment, request, answer].map(|text| text.as_bytes().to_vec()).to_vec();
    serde_json::from_str::<ResultFile>(result).expect("the corpus is good");
    serde_json::from_str::<AssignmentFile>(assignment).expect("the corpus is good");
    serde_json::from_str::<DepotRequest>(request).expect("the corpus is good");
    serde_json::from_str::<DepotResponse>(answer).expect("the corpus is good");
    run_target("handoff", 40_000, &corpus, fuzz_handoff);
}

/// Calls a target with the corpus itself, then with mutations of it.
fn run_target(name: &str, runs: u64, corpus: &[Vec<u8>], target: fn(&[u8]) -> bool) {
    assert!(!corpus.is_empty(), "there is nothing to begin with");
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LONGSHORE_SEED").unwrap_or(0);
    let call = |data: &[u8], which: &str| {
        catch_unwind(AssertUnwindSafe(|| target(data))).unwrap_or_else(|_| {
            panic!("fuzz target `{name}` failed at {which} with the input\n{}", data.escape_ascii())
        })
    };
    let good = corpus.iter().filter(|data| call(data, "a file of the corpus")).count();
    assert!(good > 0, "nothing of the corpus is accepted");
    let (mut accepted, mut calls) = (0, 0);
    for seed in first..first + number("LONGSHORE_RUNS").unwrap_or(runs) {
        let mut random = SeededRng(seed);
        let mut data = random.choose(corpus).clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, corpus, &mut random);
        }
        accepted += u64::from(call(&data, &format!("LONGSHORE_SEED={seed}")));
        calls += 1;
    }
    // What stops at the door each time is not tested. (Of a state file every byte is checked.)
    assert!(name == "state" || calls < 1000 || accepted > calls / 100, "only {accepted} of {calls} were accepted");
}

/// What makes parsers stumble.
const TOKENS: [&str; 24] = [
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "0.1",
    "\"\"",
    "{}",
    "[]",
    "\\u0000",
    "\\ud800",
    "\\",
    "\"",
    ",",
    ":",
    "\n",
    "\r\n",
    "\u{feff}",
    "\u{202e}",
    "../..",
    "main",
    "US-001",
    "completed",
    "\u{0}",
];

fn mutate(data: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut SeededRng) {
    let place = |data: &[u8], random: &mut SeededRng| random.below(data.len() as u64 + 1) as usize;
    let span = |data: &[u8], random: &mut SeededRng| {
        let begin = place(data, random);
        let most = random.choose(&[1, 8, 64, 4096]);
        begin..(begin + 1 + random.below(most) as usize).min(data.len())
    };
    match random.below(8) {
        0 if !data.is_empty() => {
            let at = random.below(data.len() as u64) as usize;
            data[at] ^= 1 << random.below(8);
        }
        1 => {
            let range = span(data, random);
            data.drain(range);
        }
        2 => {
            let range = span(data, random);
            let (at, copy) = (place(data, random), data[range].to_vec());
            data.splice(at..at, copy);
        }
        3 => {
            let at = place(data, random);
            let word = random.choose(&TOKENS);
            data.splice(at..at, word.bytes());
        }
        4 => {
            // A JSON value for another.
            let range = span(data, random);
            let word = random.choose(&TOKENS);
            data.splice(range, word.bytes());
        }
        5 => {
            let other = random.choose(corpus);
            let range = span(&other, random);
            let at = place(data, random);
            data.splice(at..at, other[range].iter().copied());
        }
        6 => {
            // Lines change places.
            let mut lines: Vec<Vec<u8>> = data.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if lines.len() > 1 {
                let (a, b) = (random.below(lines.len() as u64) as usize, random.below(lines.len() as u64) as usize);
                lines.swap(a, b);
                *data = lines.concat();
            }
        }
        7 if random.chance(50) => data.truncate(place(data, random)),
        _ => {
            // Padding to some, an end to others.
            let at = place(data, random);
            data.splice(at..at, [0; 512]);
        }
    }
}

fn golden_corpus(folder: &str) -> Vec<Vec<u8>> {
    fn collect_files(folder: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => collect_files(&path, into),
                false => into.push((path.clone(), std::fs::read(&path).expect("read"))),
            }
        }
    }
    let mut files = Vec::new();
    collect_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder), &mut files);
    files.sort();
    files.into_iter().map(|(_, bytes)| bytes).filter(|bytes| bytes.len() < 20_000).collect()
}

/// A file of this process for what is read by path.
fn scratch_path(name: &str) -> PathBuf {
    static SCRATCH_DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        // In memory, where there is such a place: a disk would be worn for nothing.
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
    });
    SCRATCH_DIR.path().join(name)
}

/// A journal of a swarm of two stories, as bytes and as read.
static JOURNAL: LazyLock<(Vec<u8>, JournalContents)> = LazyLock::new(|| {
    let text = r#"{"schemaVersion":"3.0","metadata":{"title":"T","type":"feat","branchName":"feat/x","createdAt":"2026-01-01"},"userStories":[{"id":"US-001","title":"A","command":"true"},{"id":"US-002","title":"B","command":"true","dependsOn":["US-001"]}]}"#;
    let plan = plan_from(text);
    let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("an id");
    let commit = |digit: &str| digit.repeat(40).parse().expect("an id");
    let limits = serde_json::from_str(LIMITS_JSON).expect("limits");
    let header = JournalHeader {
        schema_version: JOURNAL_VERSION,
        program_version: "0.1.0".to_owned(),
        swarm_id: swarm,
        started: Timestamp::UNIX_EPOCH,
        spec: plan.to_swarm_spec(swarm, &[commit("1")], limits),
        settings: serde_json::json!({ "max": 2 }),
        tasks: vec![TasksFileCopy { path: "tasks.json".to_owned(), content: text.to_owned(), canonical: None }],
    };
    let attempt = AttemptId { assignment: plan.assignments[0].id.clone(), number: 1 };
    let container: longshore::ids::ContainerId = "0123456789ab".parse().expect("an id");
    let story = plan.assignments[0].stories[0].clone();
    let events = [
        Event::Began,
        Event::SandboxCreated { attempt: attempt.clone(), container, name: "longshore-a1b2c3d4-1".to_owned() },
        Event::SandboxStarted { attempt: attempt.clone() },
        Event::StoryReported {
            attempt: attempt.clone(),
            record_number: 1,
            story,
            status: StoryStatus::InProgress,
            output: "begun: \u{e9}\n".to_owned(),
        },
        Event::RecordRefused { attempt: attempt.clone(), record_number: 2, reason: "no JSON".to_owned() },
        Event::CollectFailed {
            attempt: attempt.clone(),
            fault: MachineryFault::new(Cause::EngineError, "the engine failed", true),
            salvage_ref: None,
            work_dir_empty: true,
            salvage_incomplete: false,
            depot_timed_out: false,
        },
        Event::DeadlinePassed,
        Event::Resumed,
        Event::SandboxRemoved { attempt },
    ];
    let path = scratch_path("whole");
    let mut journal = Journal::create(&path, &header).expect("made");
    for (second, event) in events.into_iter().enumerate() {
        journal.append(&[(event, Duration::from_secs(second as u64))], Timestamp::UNIX_EPOCH).expect("appended");
    }
    (std::fs::read(&path).expect("read"), Journal::read(&path).expect("read"))
});

const LIMITS_JSON: &str = r#"{"max":2,"retries":1,"machineryRetries":3,"backoff":{"secs":1,"nanos":0},"storyTimeout":{"secs":60,"nanos":0},"slack":{"secs":60,"nanos":0},"grace":{"secs":10,"nanos":0},"maxBadRecords":100}"#;

/// The state file of that swarm.
static STATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let recovered = replay(JOURNAL.1.clone());
    SwarmState::from_machine(&recovered.machine, Timestamp::UNIX_EPOCH).to_bytes().expect("JSON")
});

fn state_bytes(machine: &SwarmMachine) -> Vec<u8> {
    SwarmState::from_machine(machine, Timestamp::UNIX_EPOCH).to_bytes().expect("JSON")
}

fn plan_from(text: &str) -> Plan {
    let file = tasks::parse(text.as_bytes(), Path::new("tasks.json")).expect("a tasks file");
    let options = PlanOptions {
        fan_out: FanOut::Story,
        rerun_done: false,
        branch: None,
        year: 2026,
        mailbox: None,
        has_agent: true,
    };
    plan::build(vec![(file, text.as_bytes().to_vec())], Path::new("/nowhere"), &options).expect("a plan")
}

/// The lines with the checksums that they would have (`state/journal.rs` says which), numbered as they stand.
fn with_checksum(data: &[u8]) -> Vec<u8> {
    const BODY: usize = "{\"c\":\"0123456789abcdef\",".len();
    let mut before = 0;
    let mut out = Vec::new();
    for line in data.split(|byte| *byte == b'\n').filter(|line| line.len() > BODY) {
        let body = &line[BODY..];
        let start = 0xcbf2_9ce4_8422_2325_u64 ^ before;
        before = body.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        out.extend_from_slice(format!("{{\"c\":\"{before:016x}\",").as_bytes());
        out.extend_from_slice(body);
        out.push(b'\n');
    }
    out
}
