//! How fast ACP's records are read: longshore's codec with full validation beside what a user would write, and beside the
//! least that typed reading can cost.
//!
//! * `longshore`: chunks -> `LineSplitter` -> `Session` (every rule, and the session's).
//! * `read_with_lines_codec`: chunks -> `LinesCodec` with the same limit -> `serde_json::Value`; nothing is validated.
//! * `typed`: lines split beforehand -> a derived struct of owned texts; nothing is validated.
//!
//! `cargo bench --bench codec` ends with the ratios, measured in turns within one run. The traffic is a sandbox's:
//! progress texts of 40 to 400 characters, a few with escapes and wide characters, cut into chunks as Docker's are.

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput};
use longshore::ids::{ContainerId, StoryId, SwarmId};
use longshore::protocol::acp::machine::{RecordOutcome, Session};
use longshore::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, Envelope, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
    encode_container,
};
use longshore::wire::{LineSplitter, MAX_LINE_BYTES};
use serde::Deserialize;
use tokio_util::codec::{Decoder, LinesCodec};

/// Stories of the session; each has this many records.
const STORIES: u32 = 100;
const RECORDS_PER_STORY: u32 = 40;
/// As Docker's attached stream has them.
const CHUNK_BYTES: usize = 32 * 1024;

struct SampleSession {
    swarm: SwarmId,
    container: ContainerId,
    stories: Vec<StoryId>,
    stream: Bytes,
    lines: Vec<Vec<u8>>,
}

fn sample_session() -> SampleSession {
    let swarm: SwarmId = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a UUID v4");
    let container: ContainerId = "abc123def456".parse().expect("a container id");
    let stories: Vec<StoryId> = (1..=STORIES).filter_map(StoryId::from_number).collect();
    let mut lines = Vec::new();
    let mut say = |message: ContainerMessage| {
        let timestamp = jiff::Timestamp::from_millisecond(1_772_359_200_000 + lines.len() as i64 * 137)
            .expect("a time in this century");
        lines.push(encode_container(
            &Envelope { timestamp, swarm_id: swarm, container_id: container.clone() },
            &message,
        ));
    };
    for story_id in &stories {
        for number in 0..RECORDS_PER_STORY {
            let status = if number + 1 == RECORDS_PER_STORY { StoryStatus::Completed } else { StoryStatus::InProgress };
            let words = "Running the tests of the module that was changed last. ".repeat(1 + number as usize % 7);
            let output = match number % 10 {
                8 => format!("{words}\n\"quoted\"\tand \\ escaped"),
                9 => format!("{words} → größer 🚀"),
                _ => words,
            };
            say(ContainerMessage::Progress(ProgressUpdate { story_id: story_id.clone(), status, output }));
        }
        let message = "a tool of the agent ended with signal 9".to_owned();
        say(ContainerMessage::Error(ErrorReport { code: ErrorCode::UNKNOWN_ERROR, message }));
    }
    let pr_url = Some("https://github.com/org/repo/pull/42".to_owned());
    say(ContainerMessage::Completion(Completion { status: CompletionStatus::Completed, pr_url, errors: Vec::new() }));
    let mut stream = lines.join(&b'\n');
    stream.push(b'\n');
    SampleSession { swarm, container, stories, stream: Bytes::from(stream), lines }
}

impl SampleSession {
    fn chunks(&self) -> impl Iterator<Item = Bytes> {
        (0..self.stream.len())
            .step_by(CHUNK_BYTES)
            .map(|at| self.stream.slice(at..self.stream.len().min(at + CHUNK_BYTES)))
    }

    fn read_with_longshore(&self) -> u64 {
        let mut splitter = LineSplitter::new();
        let mut session = Session::new(self.swarm, self.container.clone(), &self.stories);
        for chunk in self.chunks() {
            splitter.push(chunk);
            while let Some(line) = splitter.next_line() {
                match black_box(session.handle_line(line)) {
                    RecordOutcome::Accepted(_) => {}
                    RecordOutcome::Rejected(problem) => panic!("the traffic is valid: {problem}"),
                }
            }
        }
        session.record_count()
    }

    fn read_with_lines_codec(&self) -> u64 {
        let mut codec = LinesCodec::new_with_max_length(MAX_LINE_BYTES);
        let mut buffer = BytesMut::with_capacity(2 * CHUNK_BYTES);
        let mut records = 0;
        for chunk in self.chunks() {
            buffer.extend_from_slice(&chunk);
            while let Some(line) = codec.decode(&mut buffer).expect("no line is too long") {
                black_box(serde_json::from_str::<serde_json::Value>(&line).expect("valid JSON"));
                records += 1;
            }
        }
        records
    }

    fn read_typed(&self) -> u64 {
        let mut records = 0;
        for line in &self.lines {
            black_box(serde_json::from_slice::<TypedRecord>(line).expect("valid JSON"));
            records += 1;
        }
        records
    }
}

/// What one derives without a thought of rules.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read into and dropped")]
struct TypedRecord {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    swarm_id: String,
    container_id: String,
    payload: TypedPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read into and dropped")]
struct TypedPayload {
    story_id: Option<String>,
    status: Option<String>,
    output: Option<String>,
    pr_url: Option<String>,
    errors: Option<Vec<String>>,
    code: Option<String>,
    message: Option<String>,
}

type ReadFn = fn(&SampleSession) -> u64;

const READERS: [(&str, ReadFn); 3] = [
    ("longshore", SampleSession::read_with_longshore),
    ("lines_codec_value", SampleSession::read_with_lines_codec),
    ("typed", SampleSession::read_typed),
];

/// Time of each reader in each round. They take turns, and ratios are taken within a round, so that a machine that is busy
/// with something else is busy for all of them.
fn measure_rounds(traffic: &SampleSession) -> Vec<[f64; 3]> {
    let timed = |read: ReadFn| {
        let started_at = Instant::now();
        assert_eq!(read(traffic), traffic.lines.len() as u64);
        started_at.elapsed().as_secs_f64()
    };
    (0..201).map(|_| READERS.map(|(_, read)| timed(read))).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::print_stdout, reason = "a benchmark reports on stdout")]
fn main() {
    let traffic = sample_session();
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("acp_records");
    group.throughput(Throughput::Elements(traffic.lines.len() as u64));
    for (name, read) in READERS {
        group.bench_function(name, |bencher| bencher.iter(|| read(&traffic)));
    }
    group.finish();
    criterion.final_summary();

    let rounds = measure_rounds(&traffic);
    let a_second = |reader: usize| traffic.lines.len() as f64 / median(rounds.iter().map(|round| round[reader]));
    let [ours, value, typed] = [a_second(0), a_second(1), a_second(2)];
    println!("records a second: longshore {ours:.0}, LinesCodec + Value {value:.0}, typed {typed:.0}");
    let more = median(rounds.iter().map(|[ours, value, _]| value / ours));
    println!("longshore reads {more:.2} x the records of LinesCodec + Value (wanted: at least 1.30)");
    let longer = median(rounds.iter().map(|[ours, _, typed]| ours / typed));
    println!("longshore takes {longer:.2} x the time of bare typed serde_json on split lines (wanted: at most 1.60)");
}
