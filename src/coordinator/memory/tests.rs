//! Stories' memories from AMP intents, and what later stories are given of them.

use serde_json::{Value, json};

use super::*;
use crate::handoff::agent_notes::{AgentNote, AgentNotes};
use crate::handoff::result::StoryResult;
use crate::plan;
use crate::protocol::amp::message::{
    AmpRole, CriterionVerdict, DiffSummary, Escalation, EscalationSeverity, EscalationType, Issue, IssueSeverity,
    ReviewDecision, ReviewVerdict, SystemStateSnapshot,
};
use crate::protocol::mesh::gram::render;
use crate::swarm::amp_intent::DispatchIntent;
use crate::verdict::{Failure, StoryOutcome};

const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

fn swarm() -> SwarmId {
    SWARM.parse().expect("an id")
}

/// Stories `US-001`, ..., each with those that it depends on.
fn plan(needs: &[&[usize]]) -> Plan {
    let id = |n: usize| format!("US-{n:03}");
    let stories: Vec<Value> = (1..)
        .zip(needs)
        .map(|(n, needs)| {
            json!({"id": id(n), "title": format!("Story {n}"), "command": "true",
                   "dependsOn": needs.iter().map(|n| id(*n)).collect::<Vec<_>>()})
        })
        .collect();
    let file = json!({"metadata": {"title": "A", "branchName": "feat/a"}, "userStories": stories}).to_string();
    let tasks = crate::tasks::parse(file.as_bytes(), std::path::Path::new("work.json")).expect("a tasks file");
    plan::build(vec![(tasks, file.into_bytes())], std::path::Path::new("/repo"), &plan::tests::options())
        .expect("a plan")
}

fn key(story: u32) -> StoryKey {
    StoryKey { file: 0, id: crate::ids::StoryId::from_number(story).expect("a number") }
}

fn attempt(story: u32, number: u32) -> AttemptId {
    AttemptId { assignment: AssignmentId::new(2026, story), number }
}

fn commit(n: u32) -> CommitId {
    format!("{n:040x}").parse().expect("a commit")
}

/// Those up to this one landed; an even attempt mends what was rejected.
struct LandedUpTo(u32);

impl StoryOutcomes for LandedUpTo {
    fn landing(&self, story: &StoryKey) -> StoryLanding {
        let number: u32 = story.id.as_str()[3..].parse().expect("a number");
        if number <= self.0 { StoryLanding::Landed(Some(commit(number))) } else { StoryLanding::NotLanded }
    }

    fn is_rework(&self, attempt: &AttemptId) -> bool {
        attempt.number.is_multiple_of(2)
    }
}

fn note(text: &str) -> AgentNote {
    let at = "2026-01-01T10:00:00Z".to_owned();
    AgentNote { id: None, kind: "note".into(), text: text.into(), importance: None, about: Vec::new(), at }
}

fn escalation() -> Escalation {
    Escalation {
        escalation_type: EscalationType::Conflict,
        severity: EscalationSeverity::Info,
        triggered_by: AmpRole::Executor,
        description: "it does not merge".to_owned(),
        affected_msgs: Vec::new(),
        system_state_snapshot: SystemStateSnapshot {
            task_status: "retrying".to_owned(),
            reject_count: 0,
            last_successful_msg_id: None,
        },
        suggested_actions: Vec::new(),
        auto_suspended: false,
    }
}

/// What an attempt came to; without a cause it is finished.
fn story_end(story: u32, number: u32, ms: u64, cause: Option<Cause>, files: &[&str], texts: &[&str]) -> AmpIntent {
    let mut remembered = AgentNotes::default();
    texts.iter().for_each(|text| remembered.add_note(note(text)).expect("a note"));
    let failure = cause.map(|cause| Failure::new(cause, "it went wrong with hunter2secret"));
    let outcome = match &failure {
        None => StoryOutcome::Finished { commit: commit(story) },
        Some(failure) => StoryOutcome::Failed { failure: failure.clone(), salvage: None, unsaved: false },
    };
    let id = format!("task_result-{}-{ms}", AssignmentId::new(2026, story));
    AmpIntent::Result(Box::new(ResultIntent {
        id: id.parse().expect("an id"),
        attempt: attempt(story, number),
        story: key(story),
        status: if cause.is_none() { SubtaskCompletionStatus::Complete } else { SubtaskCompletionStatus::Failed },
        result: Some(StoryResult {
            id: key(story).id,
            outcome,
            criteria: Vec::new(),
            work_log: Vec::new(),
            commits: vec![commit(1000 * story + number)],
            duration_ms: 1,
            agent_notes: remembered,
        }),
        diff: DiffSummary {
            files_changed: files.iter().map(|file| (*file).to_owned()).collect(),
            ..DiffSummary::default()
        },
        commit: cause.is_none().then(|| commit(story)),
        failure,
        refs: Vec::new(),
        ack_timeout_secs: None,
    }))
}

fn dispatch_intent(story: u32, ms: u64) -> AmpIntent {
    AmpIntent::Dispatch(DispatchIntent {
        id: format!("task_dispatch-{}-{ms}", AssignmentId::new(2026, story)).parse().expect("an id"),
        stories: vec![key(story)],
        attempt: Some(attempt(story, 1)),
        guidance: Vec::new(),
        refs: Vec::new(),
        ack_timeout_secs: None,
    })
}

fn rejection_intent(story: u32, ms: u64, description: &str) -> AmpIntent {
    AmpIntent::Verdict {
        id: format!("review_verdict-{}-{ms}", AssignmentId::new(2026, story)).parse().expect("an id"),
        refs: Vec::new(),
        ack_timeout_secs: None,
        verdict: Box::new(ReviewVerdict {
            decision: ReviewDecision::Rejected,
            criteria_results: vec![CriterionVerdict {
                criterion: "c".into(),
                passed: Some(false),
                evidence: "e".into(),
            }],
            issues: vec![Issue {
                severity: IssueSeverity::Major,
                file: "src/a.rs".into(),
                line: Some(7),
                description: description.into(),
                suggested_fix: "mend it".into(),
            }],
            direct_fixes: Vec::new(),
            architecture_notes: None,
            confidence: 0.9,
        }),
    }
}

fn memory(plan: &Plan, budget: usize) -> SwarmMemory {
    SwarmMemory::new(plan, swarm(), budget, vec![("TOKEN".into(), "hunter2secret".into())])
}

fn ids(gram: &MemoryGram) -> Vec<&str> {
    gram.nodes().iter().map(|node| node.id.as_str()).collect()
}

#[test]
fn story_memory_holds_notes_findings_failures_files_and_commits() {
    let plan = plan(&[&[]]);
    let mut memory = memory(&plan, DEFAULT_MEMORY_BUDGET);
    let intents = [
        dispatch_intent(1, 1000),
        story_end(1, 1, 2000, Some(Cause::VerificationFailed), &["lost.rs"], &["the tests need a port"]),
        story_end(1, 3, 3000, None, &["src/a.rs"], &["hunter2secret is the token"]),
        rejection_intent(1, 4000, "it is too slow"),
        story_end(1, 4, 5000, None, &["src/b.rs", "src/a.rs"], &[]),
    ];
    assert!(memory.story_memory(&key(1), &plan, &LandedUpTo(1)).is_none(), "no intent was applied yet");
    // Each intent twice, as after a crash.
    intents.iter().chain(&intents).for_each(|intent| memory.apply_intent(intent));
    assert!(memory.story_memory(&key(1), &plan, &LandedUpTo(0)).is_none(), "it has not landed");
    let known = memory.story_memory(&key(1), &plan, &LandedUpTo(1)).expect("it is known");
    assert_eq!(known.name, "work-US-001");
    let gram = known.own_gram();
    let mut found = ids(gram);
    found.sort_unstable();
    let (third, fourth) = (format!("commit:{}", commit(1003)), format!("commit:{}", commit(1004)));
    assert_eq!(
        found,
        [
            "attempt:US-001/1",
            third.as_str(),
            fourth.as_str(),
            "file:src/a.rs",
            "file:src/b.rs",
            "finding:T-2026-001/1.1",
            "note:US-001/1.1",
            "note:US-001/3.1",
            "story:US-001",
        ]
    );
    let text = render::markdown(gram);
    for part in
        ["the tests need a port", "it is too slow", "verification\\_failed", "$TOKEN", "is about `file:src/a.rs`"]
    {
        let part = part.replace("\\_", "_").replace('$', "\\$");
        assert!(text.contains(&part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("hunter2") && !gram.to_json().to_string().contains("hunter2"), "{text}");
    assert_eq!(gram.metadata().expect("some")["branch"], "feat/a");
    // The same intents give the same gram, hash and id.
    let mut again = SwarmMemory::new(&plan, swarm(), 1, vec![("TOKEN".into(), "hunter2secret".into())]);
    intents.iter().for_each(|intent| again.apply_intent(intent));
    assert_eq!(again.story_memory(&key(1), &plan, &LandedUpTo(1)).expect("known").own_gram().to_json(), gram.to_json());
}

fn dispatch_context(memory: &mut SwarmMemory, plan: &Plan, story: u32, budget: usize) -> DispatchContext {
    DispatchContext {
        swarm: swarm(),
        attempt: attempt(story, 1),
        branch: "feat/a-us".into(),
        stories: vec![plan.story(&key(story)).clone()],
        header_blocks: HeaderBlocks::new(),
        memory: memory.dependency_memories(&[key(story)], plan, &LandedUpTo(story - 1)),
        budget,
    }
}

/// What the sandbox of a story takes out of the frame that it is sent.
fn received_memory(context: &DispatchContext) -> Option<MemoryGram> {
    let file = context.to_file(Timestamp::UNIX_EPOCH).expect("a frame");
    let stories = context.stories.iter().map(|story| story.id.clone()).collect();
    dispatch::receive(file.text.as_bytes(), context.swarm, &context.attempt, stories, Timestamp::UNIX_EPOCH)
        .expect("no fault")
}

#[test]
fn shared_dependency_appears_once_in_a_diamond() {
    let plan = plan(&[&[], &[1], &[1], &[2, 3]]);
    let mut memory = memory(&plan, DEFAULT_MEMORY_BUDGET);
    for story in 1..4 {
        let learned = format!("what {story} learned");
        memory.apply_intent(&story_end(story, 1, 1000 * u64::from(story), None, &["common.rs"], &[&learned]));
    }
    assert_eq!(
        received_memory(&dispatch_context(&mut memory, &plan, 1, DEFAULT_MEMORY_BUDGET)),
        None,
        "the first starts with nothing"
    );
    let gram = received_memory(&dispatch_context(&mut memory, &plan, 4, DEFAULT_MEMORY_BUDGET)).expect("memory");
    let text = render::markdown(&gram);
    for story in 1..4 {
        assert_eq!(text.matches(&format!("what {story} learned")).count(), 1, "{text}");
    }
    let file = gram.nodes().iter().find(|node| node.id == "file:common.rs").expect("the file");
    assert_eq!(file.metadata["sources"].as_array().expect("a list").len(), 3);
    let sources = gram.metadata().expect("some")["sources"].as_array().expect("a list").clone();
    let of: Vec<&Value> = sources.iter().map(|source| &source["story"]).collect();
    assert_eq!(of.len(), 3, "{sources:?}");
    // Nothing at all, where that is wanted.
    assert_eq!(received_memory(&dispatch_context(&mut memory, &plan, 4, 0)), None);
}

#[test]
fn long_chain_stays_within_budget_and_is_reproducible() {
    let needs: Vec<Vec<usize>> = (0..150).map(|n| if n == 0 { Vec::new() } else { vec![n] }).collect();
    let needs: Vec<&[usize]> = needs.iter().map(Vec::as_slice).collect();
    let plan = plan(&needs);
    let intents: Vec<AmpIntent> = (1..150)
        .map(|story| {
            let text = format!("story {story}: {}", "x".repeat(400));
            story_end(story, 1, 1000 * u64::from(story), None, &["a.rs"], &[&text, "short"])
        })
        .collect();
    let budget = 4096;
    // As it goes along, and all at once.
    let mut along = memory(&plan, budget);
    for (story, intent) in (1..).zip(&intents) {
        along.apply_intent(intent);
        let known = along.story_memory(&key(story), &plan, &LandedUpTo(story)).expect("known");
        known.merged_gram();
    }
    let mut at_once = memory(&plan, budget);
    intents.iter().for_each(|intent| at_once.apply_intent(intent));
    let one = dispatch_context(&mut along, &plan, 150, budget).to_file(Timestamp::UNIX_EPOCH).expect("a frame");
    let two = dispatch_context(&mut at_once, &plan, 150, budget).to_file(Timestamp::UNIX_EPOCH).expect("a frame");
    assert_eq!(one, two);
    assert!(one.text.len() < budget + 2048, "{}", one.text.len());
    let gram = received_memory(&dispatch_context(&mut along, &plan, 150, budget)).expect("memory");
    assert!(render::markdown(&gram).contains("story 149:"), "the newest is there");
}

#[test]
fn unknown_header_block_is_refused_by_name() {
    let plan = plan(&[&[]]);
    let mut memory = memory(&plan, DEFAULT_MEMORY_BUDGET);
    let mut context = dispatch_context(&mut memory, &plan, 1, DEFAULT_MEMORY_BUDGET);
    let receive = |context: &DispatchContext, story: u32| {
        let file = context.to_file(Timestamp::UNIX_EPOCH).expect("a frame");
        let stories = vec![key(story).id];
        dispatch::receive(file.text.as_bytes(), swarm(), &context.attempt, stories, Timestamp::UNIX_EPOCH)
    };
    context.header_blocks.insert("alertControl".into(), json!({"priority": 1}));
    assert!(receive(&context, 1).is_ok(), "who may ignore it does");
    context.header_blocks.insert("alertControl".into(), json!({"mustUnderstand": true, "role": "manager"}));
    assert!(receive(&context, 1).is_err(), "a role that nobody knows is the ultimate receiver's (5.2.2)");
    context.header_blocks.insert("alertControl".into(), json!({"mustUnderstand": true, "role": "none"}));
    assert!(receive(&context, 1).is_ok(), "it is for nobody (2.2)");
    context.header_blocks.insert("alertControl".into(), json!({"mustUnderstand": true}));
    let fault = receive(&context, 1).expect_err("a fault");
    assert_eq!(
        (fault.code.as_str(), fault.not_understood.as_slice()),
        ("MustUnderstand", &["alertControl".to_owned()][..])
    );
    assert!(fault.node.as_deref().is_some_and(|node| node.ends_with("/T-2026-001-1")), "the sandbox: {fault}");
    for role in ["next", "intermediary"] {
        context.header_blocks.insert("alertControl".into(), json!({"mustUnderstand": true, "role": role}));
        let fault = context.to_file(Timestamp::UNIX_EPOCH).expect_err("the coordinator is asked first");
        assert_eq!(fault.cause, Cause::DispatchRefused);
        for part in ["the coordinator refused", "MustUnderstand", "alertControl"] {
            assert!(fault.evidence.summary.contains(part), "{}", fault.evidence.summary);
        }
    }
    context.header_blocks = [("ttl".to_owned(), json!({"expires": "1969-12-31T00:00:00Z"}))].into_iter().collect();
    let fault = receive(&context, 1).expect_err("it is over");
    assert_eq!(fault.subcode.as_deref(), Some("amp:TTLExpired"));
    context.header_blocks.clear();
    let stories = vec![key(1).id];
    let other = attempt(1, 2);
    let file = context.to_file(Timestamp::UNIX_EPOCH).expect("a frame");
    let fault = dispatch::receive(file.text.as_bytes(), swarm(), &other, stories, Timestamp::UNIX_EPOCH);
    assert_eq!(fault.expect_err("it is another's").subcode.as_deref(), Some("Misrouted"));
    let fault = receive(&context, 2).expect_err("a task of another");
    assert_eq!((fault.code.as_str(), fault.pointer()), ("Sender", Some("/frame/Body/task/stories")));
}

#[test]
fn dispatch_records_the_coordinators_relay() {
    let plan = plan(&[&[], &[1]]);
    let mut memory = memory(&plan, DEFAULT_MEMORY_BUDGET);
    memory.apply_intent(&story_end(1, 1, 1000, None, &["a.rs"], &["what 1 learned"]));
    let mut context = dispatch_context(&mut memory, &plan, 2, DEFAULT_MEMORY_BUDGET);
    let block = |role: &str, relay: bool| json!({"role": role, "relay": relay, "x": 1});
    let blocks = [
        ("goes", block("next", true)),
        ("ends", block("next", false)),
        ("forAny", block("intermediary", false)),
        ("forLast", block("ultimateReceiver", false)),
        ("forNone", block("none", false)),
    ];
    context.header_blocks = blocks.iter().map(|(name, block)| ((*name).to_owned(), block.clone())).collect();
    let at: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
    let text = context.to_file(at).expect("a frame").text;
    let frame: Value = serde_json::from_str(&text).expect("JSON");
    let header = &frame["frame"]["Header"];
    let there: Vec<&str> = blocks.iter().map(|(name, _)| *name).filter(|name| !header[name].is_null()).collect();
    assert_eq!(there, ["goes", "forLast", "forNone"], "Table 3");
    assert_eq!(header["ttl"]["hops"], 0, "nobody passes it on");
    let node = |last: &str| format!("agent://longshore/{SWARM}/{last}");
    assert_eq!(header["routing"]["visited"], json!([node("plan"), node("coordinator")]));
    assert_eq!(header["routing"]["to"], node("T-2026-002-1"));
    let entry = &header["audit"]["entries"][0];
    assert_eq!(
        (&entry["agentUri"], &entry["timestamp"]),
        (&json!(node("coordinator")), &json!("2026-01-02T03:04:05Z"))
    );
    let mark = &header["applied"]["by"][0];
    assert_eq!((&mark["node"], &mark["changed"]), (&json!(node("coordinator")), &json!(["/frame/MemoryGrams/0"])));
    assert!(render::markdown(&received_memory(&context).expect("memory")).contains("what 1 learned"));
}

#[test]
fn unmerged_work_counts_as_a_failed_attempt() {
    let plan = plan(&[&[], &[1]]);
    let mut memory = memory(&plan, DEFAULT_MEMORY_BUDGET);
    let lost = |number: u32, cause: Cause| {
        let id = format!("escalation-{}-{}", AssignmentId::new(2026, 1), 2000 + number);
        let failure = Failure::new(cause, "conflict in `a.rs` with hunter2secret");
        let failed =
            crate::swarm::amp_intent::FailedStories { attempt: attempt(1, number), stories: vec![key(1)], failure };
        AmpIntent::Escalation {
            id: id.parse().expect("an id"),
            from: AmpRole::Coordinator,
            escalation: Box::new(escalation()),
            failed_stories: Some(Box::new(failed)),
        }
    };
    // An attempt that failed before it completed, one that did not merge, and one that landed.
    let intents = [
        story_end(1, 1, 1000, Some(Cause::VerificationFailed), &[], &[]),
        lost(1, Cause::VerificationFailed),
        story_end(1, 3, 1500, None, &["a.rs"], &[]),
        lost(3, Cause::Conflict),
        story_end(1, 5, 3000, None, &["a.rs"], &[]),
    ];
    for _ in 0..2 {
        intents.iter().for_each(|intent| memory.apply_intent(intent));
    }
    let gram = memory.story_memory(&key(1), &plan, &LandedUpTo(1)).expect("known").own_gram().clone();
    let attempts: Vec<&str> =
        gram.nodes().iter().map(|node| node.id.as_str()).filter(|id| id.starts_with("attempt:")).collect();
    assert_eq!(attempts, ["attempt:US-001/1", "attempt:US-001/3"]);
    let tried = gram.edges().iter().filter(|edge| edge.target.starts_with("attempt:"));
    assert_eq!(tried.count(), 2, "each occurs once");
    let text = render::markdown(&gram);
    assert!(text.contains("conflict: conflict in") && !text.contains("hunter2"), "{text}");
}
