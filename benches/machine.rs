//! Throughput of the machine in events per second, for swarms of 10, 24 and 1,000 stories: the cost of an event must not grow
//! with the number of stories. `cargo bench --bench machine`.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use longshore::handoff::result::StoryResult;
use longshore::ids::{AssignmentId, CommitId, StoryId, StoryKey};
use longshore::protocol::acp::message::{CompletionStatus, StoryStatus};
use longshore::swarm::{
    AssignmentSpec, ContainerExit, Effect, Event, StorySpec, SwarmLimits, SwarmMachine, SwarmSpec, TasksFileSpec,
};
use longshore::tasks::RiskLevel;
use longshore::verdict::StoryOutcome;

/// The stories of one tasks file.
const STORIES_PER_FILE: usize = 500;

fn key(n: usize) -> StoryKey {
    let id = StoryId::from_number((n % STORIES_PER_FILE) as u32 + 1).expect("below 1000");
    StoryKey { file: (n / STORIES_PER_FILE) as u16, id }
}

fn commit(number: usize) -> CommitId {
    format!("{number:040x}").parse().expect("40 digits")
}

/// Each story depends on the third and the seventh before it, if there are any.
fn spec(stories: usize) -> SwarmSpec {
    let file = |file| TasksFileSpec {
        path: format!("tasks/{file}.json"),
        slug: format!("f{file}"),
        title: "A feature".to_owned(),
        branch: "feat/feature".parse().expect("valid"),
        base: commit(1),
        has_verify: false,
    };
    let story = |n: usize| StorySpec {
        key: key(n),
        title: format!("Story {n}"),
        depends_on: [3, 7].iter().filter(|back| n % STORIES_PER_FILE >= **back).map(|back| key(n - back)).collect(),
        done: None,
        risk: RiskLevel::Low,
        has_command: false,
        has_verify: false,
        tested_criteria: Vec::new(),
    };
    let assignment = |n: usize| AssignmentSpec {
        id: AssignmentId::new(2026, n as u32 + 1),
        file: (n / STORIES_PER_FILE) as u16,
        branch: format!("longshore/story-{n}").parse().expect("valid"),
        stories: vec![key(n)],
        priority: (n % 5) as i64,
        exclusive_with: Vec::new(),
    };
    SwarmSpec {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        files: (0..stories.div_ceil(STORIES_PER_FILE)).map(file).collect(),
        stories: (0..stories).map(story).collect(),
        assignments: (0..stories).map(assignment).collect(),
        amp: None,
        landing: None,
        limits: SwarmLimits {
            max_sandboxes: 8,
            retries: 1,
            machinery_retries: 3,
            backoff: Duration::from_secs(1),
            story_timeout: Duration::from_secs(1800),
            idle_timeout: Duration::ZERO,
            slack: Duration::from_secs(60),
            grace_period: Duration::from_secs(10),
            max_bad_records: 100,
            liveness_timeout: Duration::from_secs(150),
        },
    }
}

/// The events of a swarm in which everything lands, with `updates` progress updates per story and the sandboxes interleaved.
fn simulate_events(stories: usize, updates: u64) -> Vec<Event> {
    let mut machine = SwarmMachine::new(spec(stories));
    let mut pending = VecDeque::from([vec![Event::Began]]);
    let mut events = Vec::new();
    let mut commits = 1;
    let mut next_commit = || {
        commits += 1;
        commit(commits)
    };
    // The sandboxes take turns.
    while let Some(mut script) = pending.pop_front() {
        let event = script.remove(0);
        if !script.is_empty() {
            pending.push_back(script);
        }
        for effect in machine.handle(&event, Duration::from_millis(events.len() as u64)) {
            match effect {
                Effect::Start { attempt, stories, .. } => {
                    let name = attempt.dir_name();
                    let container = "abc123def456".parse().expect("valid");
                    let mut script = vec![
                        Event::SandboxCreated { attempt: attempt.clone(), container, name },
                        Event::SandboxStarted { attempt: attempt.clone() },
                    ];
                    script.extend((1..=updates).map(|record| Event::StoryReported {
                        attempt: attempt.clone(),
                        record_number: record,
                        story: stories[0].0.clone(),
                        status: if record == updates { StoryStatus::Completed } else { StoryStatus::InProgress },
                        output: "Reading the sources and writing a test first".to_owned(),
                    }));
                    let (status, record) = (CompletionStatus::Completed, updates + 1);
                    script.push(Event::CompletionReported {
                        attempt: attempt.clone(),
                        record_number: record,
                        status,
                        errors: vec![],
                    });
                    let (error, tail) = (String::new(), Vec::new());
                    let exit = ContainerExit { code: Some(0), error, stderr_tail: tail, ..ContainerExit::default() };
                    script.push(Event::SandboxEnded { attempt, exit });
                    pending.push_back(script);
                }
                Effect::Collect { attempt, .. } => {
                    let tip = next_commit();
                    let result = StoryResult {
                        id: machine.attempt(&attempt).expect("started").stories[0].0.id.clone(),
                        outcome: StoryOutcome::Finished { commit: tip.clone() },
                        criteria: Vec::new(),
                        work_log: Vec::new(),
                        commits: vec![tip.clone()],
                        duration_ms: 1000,
                        agent_notes: Default::default(),
                    };
                    pending.push_back(vec![Event::ResultCollected {
                        attempt,
                        tip: Some(tip),
                        stories: vec![result],
                        leftover: None,
                        diffs: Vec::new(),
                        tree: None,
                        result_ref: None,
                    }]);
                }
                Effect::Merge { attempt, .. } => {
                    pending.push_back(vec![Event::Merged { attempt, head: next_commit() }]);
                }
                Effect::Remove { attempt, .. } => pending.push_back(vec![Event::SandboxRemoved { attempt }]),
                _ => {}
            }
        }
        events.push(event);
    }
    assert!(machine.outcome().is_some(), "the whole swarm");
    events
}

fn bench_machine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("machine");
    for stories in [10, 24, 1000] {
        let events = simulate_events(stories, 20);
        let fresh = SwarmMachine::new(spec(stories));
        group.throughput(Throughput::Elements(events.len() as u64));
        group.bench_function(format!("{stories} stories"), |bencher| {
            bencher.iter_batched(
                || fresh.clone(),
                |mut machine| {
                    for (at, event) in events.iter().enumerate() {
                        black_box(machine.handle(event, Duration::from_millis(at as u64)));
                    }
                    machine
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, bench_machine);
criterion_main!(benches);
