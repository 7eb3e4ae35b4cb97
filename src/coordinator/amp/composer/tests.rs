//! Messages composed from random plans and swarms break no rule of AMP.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::handoff::assignment::PromptDelivery;
use crate::plan::{FanOut, PlanOptions};
use crate::swarm::machine::tests::random_walk::random_amp_intents;
use crate::swarm::{AckTimeouts, AmpSpec, SwarmLimits, SwarmSpec, TasksFileSpec};
use crate::test_rng::SeededRng;

/// The number of random plans in an ordinary `cargo test`.
const RUNS: u64 = 12;

fn text(random: &mut SeededRng) -> String {
    match random.below(6) {
        0 => "\\\"é".repeat(4000),
        1 => "a\nb\tc".to_owned(),
        _ => "do it".to_owned(),
    }
}

/// Stories with texts of any length, with no criteria or with hundreds, and of any risk.
fn plan(random: &mut SeededRng) -> Plan {
    let most = if random.chance(10) { 400 } else { 6 };
    let stories = 1 + random.below(most) as usize;
    let many = random.choose(&[0, 1, 3, 300]);
    let stories: Vec<Value> = (1..=stories)
        .map(|number| {
            let criteria: Vec<Value> = (0..random.below(many + 1))
                .map(|n| match random.chance(50) {
                    true => json!({"id": format!("AC-{n}"), "text": text(random), "testCommand": text(random)}),
                    false => json!(text(random)),
                })
                .collect();
            json!({
                "id": format!("US-{number:03}"),
                "title": text(random),
                "description": if random.chance(20) { "long ".repeat(40_000) } else { text(random) },
                "acceptanceCriteria": criteria,
                "riskLevel": random.choose(&["low", "medium", "high"]),
            })
        })
        .collect();
    let file = json!({"metadata": {"title": "A", "branchName": "feat/a"}, "userStories": stories}).to_string();
    let tasks = crate::tasks::parse(file.as_bytes(), Path::new("tasks.json")).expect("a tasks file");
    let fan_out = if random.chance(50) { FanOut::Story } else { FanOut::File };
    let options = PlanOptions { fan_out, rerun_done: false, branch: None, year: 2026, mailbox: None, has_agent: true };
    // There is no plan for what is too much for one sandbox: another, then.
    match crate::plan::build(vec![(tasks, file.into_bytes())], Path::new("/repo"), &options) {
        Ok(plan) => plan,
        Err(_) => plan(random),
    }
}

fn spec(plan: &Plan) -> SwarmSpec {
    let second = Duration::from_secs(1);
    let file = &plan.files[0];
    SwarmSpec {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        files: vec![TasksFileSpec {
            path: "tasks.json".to_owned(),
            slug: file.slug.clone(),
            title: "A".to_owned(),
            branch: file.branch.clone(),
            base: "1".repeat(40).parse().expect("a commit"),
            has_verify: false,
        }],
        stories: plan.stories.clone(),
        assignments: plan.assignments.clone(),
        limits: SwarmLimits {
            max_sandboxes: 3,
            retries: 1,
            machinery_retries: 1,
            backoff: second,
            story_timeout: second * 60,
            idle_timeout: Duration::ZERO,
            slack: second * 10,
            grace_period: second * 5,
            max_bad_records: 3,
            liveness_timeout: second * 100_000,
        },
        amp: Some(AmpSpec {
            began_ms: 1_760_000_000_000,
            ack_timeouts: AckTimeouts { dispatch: second * 7, ..AckTimeouts::default() },
            heartbeat_timeout: second * 5,
            review_rounds: Some(2),
        }),
        landing: None,
    }
}

#[test]
fn composed_messages_break_no_amp_rule() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, to) = match number("LONGSHORE_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (1, number("LONGSHORE_RUNS").unwrap_or(RUNS)),
    };
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (from..to).filter(|seed| !seed.is_multiple_of(20)) {
        let mut random = SeededRng(seed);
        let plan = plan(&mut random);
        let spec = spec(&plan);
        let criteria = vec!["it is fast".to_owned()];
        let (repo, reviews) = (PathBuf::from("/repo"), PathBuf::from("/repo/.longshore/reviews"));
        let mut composer = AmpComposer::from_parts(spec.swarm, repo, reviews, plan, random.chance(50), criteria);
        for intent in random_amp_intents(seed, spec) {
            let record = composer.compose(&intent);
            let record = record.unwrap_or_else(|(text, rule)| {
                panic!("LONGSHORE_SEED={seed}: {rule}: {}", text.chars().take(2000).collect::<String>())
            });
            let what = match (&record, &intent) {
                (SsotRecord::Message(message), _) => {
                    if let AmpIntent::ReviewRequest(request) = &intent {
                        check_review_assignment(&composer, request);
                    }
                    message.message_type().to_string()
                }
                (SsotRecord::Ack(ack), _) => {
                    assert_eq!(ack.check(), Ok(()), "LONGSHORE_SEED={seed}");
                    "ack".to_owned()
                }
                (SsotRecord::Task(task), _) => format!("task {:?}", task.status),
            };
            *met.entry(what).or_default() += 1;
        }
    }
    if from == 1 {
        for what in
            ["task_dispatch", "task_result", "review_request", "review_verdict", "escalation", "ack", "task Locked"]
        {
            assert!(met.contains_key(what), "no {what} was met: {met:?}");
        }
    }
}

/// A reviewer's assignment is about the result that the request names.
fn check_review_assignment(composer: &AmpComposer, request: &ReviewRequestIntent) {
    let review = &request.review;
    let agent = AgentSpec { name: "r".to_owned(), argv: vec!["true".to_owned()], prompt: PromptDelivery::default() };
    let work = composer.review_assignment("x", review, &agent).expect("there was a dispatch and a result");
    assert_eq!(work.result.completion_status, SubtaskCompletionStatus::Complete);
    assert_eq!(work.result.self_assessment.criteria_met.len(), work.dispatch.acceptance_criteria.len());
    assert_eq!(work.criteria, composer.review_criteria(&review.reviewed_attempt.assignment));
}
