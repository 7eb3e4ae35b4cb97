//! The SSOT with 100,000 messages of 1,000 tasks, each with its ack: what a lookup, the log of a task and one more message
//! cost. `cargo bench --bench ssot`.
//!
//! Before the measurements it says how long the last 1,000 messages took to append, in parts of the first 1,000, both
//! without and with the wait for the disk ([`Ssot::sync`]) after the 1,000.

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use longshore::ids::AssignmentId;
use longshore::protocol::amp::message::{
    Ack, AmpDraft, AmpMessage, AmpMessageType, AmpRole, MsgId, Payload, RiskLevel, Subtask, TaskDispatch,
};
use longshore::protocol::amp::store::Ssot;

const MESSAGES: u64 = 100_000;
const TASKS: u64 = 1_000;
/// What is timed together.
const BATCH_SIZE: u64 = 1_000;
/// 2026-11-22T12:00:00Z.
const FIRST_UNIX_MS: u64 = 1_795_348_800_000;

/// The `n`th message: tasks take turns.
fn message(n: u64) -> AmpMessage {
    let task = AssignmentId::new(2026, (n % TASKS) as u32 + 1);
    let subtask = |number: u32| Subtask {
        subtask_id: format!("{task}-S{number}"),
        description: "As a user I want to see what was said about my task".to_owned(),
        estimated_lines: 60,
    };
    let payload = TaskDispatch {
        description: "Show the conversation about a task, in order, with the state of each ack".to_owned(),
        repo: "/home/somebody/dev/project".to_owned(),
        branch: "longshore/us-003-conversation".to_owned(),
        subtasks: (1..=3).map(subtask).collect(),
        acceptance_criteria: (1..=4).map(|n| format!("criterion {n} is met, and a test shows it")).collect(),
        risk_level: RiskLevel::Medium,
        forbidden_actions: Vec::new(),
        tech_constraints: None,
    };
    let ms = FIRST_UNIX_MS + n;
    let draft = AmpDraft {
        from: AmpRole::Coordinator,
        to: AmpRole::Executor,
        task_id: task.clone(),
        timestamp: Timestamp::from_millisecond(ms as i64).expect("a time"),
        requires_ack: true,
        ack_timeout_sec: None,
        context_ref: Vec::new(),
        payload: Payload::TaskDispatch(payload),
    };
    AmpMessage::new(MsgId::new(AmpMessageType::TaskDispatch, task, ms), draft).expect("a good message")
}

fn append(ssot: &Ssot, n: u64) {
    let message = message(n);
    ssot.ensure_message(&message).expect("written");
    let ack = Ack { ack_of: message.id().clone(), by: AmpRole::Executor, timestamp: message.timestamp(), note: None };
    ssot.ensure_ack(&ack).expect("written");
}

/// Appends all; gives the times of the first and the last batch in task folders that are there, each without and with the
/// sync.
fn append_all(folder: &Path) -> [(Duration, Duration); 2] {
    let batch = |ssot: &Ssot, batch: u64| {
        let began = Instant::now();
        (batch * BATCH_SIZE..(batch + 1) * BATCH_SIZE).for_each(|n| append(ssot, n));
        (began, began.elapsed())
    };
    let timed = |ssot: &Ssot, number: u64| {
        let (began, appended) = batch(ssot, number);
        ssot.sync().expect("synced");
        (appended, began.elapsed())
    };
    let ssot = Ssot::open(folder).expect("opened");
    // The first batch makes the tasks' folders, which would make the ratio better than it is.
    timed(&ssot, 0);
    let first = timed(&ssot, 1);
    // Another value, so that the last batch syncs what is its own.
    let middle = Ssot::open(folder).expect("opened");
    let last = MESSAGES / BATCH_SIZE - 1;
    for number in 2..last {
        let _ = batch(&middle, number);
    }
    rustix::fs::sync();
    [first, timed(&ssot, last)]
}

fn bench_ssot(criterion: &mut Criterion) {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let [first, last] = append_all(folder.path());
    let ssot = Ssot::open(folder.path()).expect("opened");
    let ratio = |last: Duration, first: Duration| last.as_secs_f64() / first.as_secs_f64();
    let mut err = std::io::stderr().lock();
    for (what, first, last) in [("written", first.0, last.0), ("written and synced", first.1, last.1)] {
        let _ = writeln!(err, "{what}: first 1,000 {first:?}, last 1,000 {last:?}, ratio {:.2}", ratio(last, first));
    }
    drop(err);

    let mut group = criterion.benchmark_group("ssot/100000");
    group.sample_size(20);
    let id = message(54_321).id().clone();
    group.bench_function("lookup by id", |bench| bench.iter(|| black_box(ssot.log_entry(&id)).expect("read")));
    group.bench_function("log of a task", |bench| {
        bench.iter(|| assert_eq!(black_box(ssot.log(id.task_id())).expect("read").len(), 100));
    });
    group.bench_function("open escalations", |bench| bench.iter(|| black_box(ssot.open_escalations()).expect("read")));
    group.bench_function("all ids in order", |bench| bench.iter(|| black_box(ssot.message_ids(None)).expect("read")));
    let mut next = MESSAGES;
    group.bench_function("append a message and its ack", |bench| {
        bench.iter(|| {
            append(&ssot, next);
            next += 1;
        });
    });
    group.finish();
}

criterion_group!(benches, bench_ssot);
criterion_main!(benches);
