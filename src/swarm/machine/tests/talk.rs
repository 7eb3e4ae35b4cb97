//! What is said in AMP, and when, one by one.

use super::amp::*;
use super::*;
use crate::protocol::amp::machine::SETTLE;
use crate::protocol::amp::message::{CompletionStatus as Came, EscalationType, Kind, MsgId, Role, Severity};
use crate::swarm::event::Action;
use crate::swarm::spec::HEARTBEAT;
use crate::swarm::word::Word;

/// A word in short: what, and of which message.
fn short(word: &Word) -> String {
    match word {
        Word::Dispatch(dispatch) => match dispatch.attempt {
            Some(_) => "dispatch".to_owned(),
            None => "guidance".to_owned(),
        },
        Word::Result(end) => format!("result {:?}", end.status).to_lowercase(),
        Word::Request(_) => "request".to_owned(),
        Word::Verdict { .. } => "verdict".to_owned(),
        Word::Escalation { escalation, .. } => format!("escalation {:?}", escalation.escalation_type),
        Word::Ack { of, by, .. } => format!("ack of {} by {}", of.kind(), by.word()),
        Word::Task(_) => String::new(),
    }
}

fn shorts(effects: &[Effect]) -> Vec<String> {
    words(effects).iter().map(short).collect()
}

fn ids(effects: &[Effect]) -> Vec<MsgId> {
    let ids = words(effects).into_iter().filter_map(|word| match word {
        Word::Dispatch(dispatch) => Some(dispatch.id),
        Word::Result(end) => Some(end.id),
        Word::Request(request) => Some(request.id),
        Word::Verdict { id, .. } | Word::Escalation { id, .. } => Some(id),
        Word::Ack { .. } | Word::Task(_) => None,
    });
    ids.collect()
}

#[test]
fn the_conversation_of_a_task_that_is_reviewed() {
    let (mut rig, id) = one();
    let reviewer = attempt(1, 2);
    let mut all = rig.run(&id);
    assert_eq!(shorts(&all), ["dispatch"], "no ack before it has begun");
    all.extend(rig.give(said(&id, 1, 1, StoryStatus::InProgress)));
    all.extend(rig.give(said(&id, 2, 1, StoryStatus::InProgress)));
    all.extend(rig.give(completion(&id, 3, CompletionStatus::Completed)));
    all.extend(rig.give(ended(&id, exit(0))));
    assert_eq!(shorts(&all)[1..], ["ack of task_dispatch by executor"], "once, at its first word");
    all.extend(rig.give(collected(&id, Some(50), vec![finished(1)])));
    all.extend(rig.run(&reviewer));
    all.extend(rig.give(said(&reviewer, 1, 1, StoryStatus::InProgress)));
    all.extend(rig.give(completion(&reviewer, 2, CompletionStatus::Completed)));
    all.extend(rig.give(ended(&reviewer, exit(0))));
    all.extend(rig.give(Event::ReviewCollected { attempt: reviewer, reviewed: Box::new(approved()) }));
    all.extend(rig.give(Event::Merged { attempt: id, head: commit(7) }));
    assert_eq!(
        shorts(&all),
        [
            "dispatch",
            "ack of task_dispatch by executor",
            "result complete",
            "ack of task_result by coordinator",
            "request",
            "ack of review_request by reviewer",
            "verdict",
            "ack of review_verdict by coordinator",
        ]
    );
    let ids = ids(&all);
    assert!(ids.iter().all(|id| id.unix_ms() >= BEGAN), "{ids:?}");
    let told = words(&all);
    let request = told.iter().find_map(|word| match word {
        Word::Request(request) => Some(request.clone()),
        _ => None,
    });
    let request = request.expect("there");
    assert_eq!((&request.review.dispatch, &request.review.result), (&ids[0], &ids[1]));
    assert_eq!(request.refs, [ids[1].clone()]);
}

#[test]
fn a_swarm_whose_spec_says_so_says_nothing() {
    let (mut rig, mut all) = Rig::began(spec(&[&[(1, &[])]]));
    all.extend(rig.land(&attempt(1, 1), &[1], 7));
    assert!(!all.iter().any(|effect| matches!(effect, Effect::Tell(_))));
}

#[test]
fn an_ack_that_does_not_come_is_told_once_and_waited_for() {
    for review in [false, true] {
        let mut plan = speaking(&[&[(1, &[])]], Some(4));
        plan.limits.story_timeout = HEARTBEAT * 2;
        let (mut rig, _) = Rig::began(plan);
        let mut id = attempt(1, 1);
        if review {
            rig.work(&id, &[1]);
            id = attempt(1, 2);
        }
        let asked = ids(&rig.run(&id)).pop().expect("told");
        let (kind, seconds) = if review { (Kind::ReviewRequest, 600) } else { (Kind::TaskDispatch, 300) };
        assert_eq!(asked.kind(), kind);
        let effects = rig.deadline(seconds);
        assert_eq!(kinds(&effects), [(EscalationType::AckTimeout, Severity::Info)]);
        let late = &escalations(&effects)[0];
        assert!(!late.auto_suspended && late.affected_msgs.contains(&asked), "{late:?}");
        assert_eq!(late.triggered_by, Role::System);
        assert_eq!(task_status(&effects), Some(if review { "in_review" } else { "dispatched" }));
        // It comes after all, and is written.
        let effects = rig.give(said(&id, 1, 1, StoryStatus::InProgress));
        assert_eq!(shorts(&effects), [format!("ack of {kind} by {}", if review { "reviewer" } else { "executor" })]);
        assert!(kinds(&rig.give_next()).contains(&(EscalationType::HeartbeatTimeout, Severity::Critical)));
    }
}

#[test]
fn a_sandbox_that_ends_owes_nothing_any_more() {
    let (mut rig, _) = Rig::began(speaking(&[&[(1, &[])]], None));
    let id = attempt(1, 1);
    rig.run(&id);
    rig.give(ended(&id, exit(1)));
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn what_was_late_while_nobody_ran_is_told_once_after_what_was_said_has_been_heard() {
    for heard in [false, true] {
        let mut plan = speaking(&[&[(1, &[])]], None);
        plan.limits.story_timeout = HEARTBEAT * 9;
        let (mut rig, _) = Rig::began(plan);
        let id = attempt(1, 1);
        rig.run(&id);
        rig.give(Event::MachineryFailed { fault: Fault::new(Cause::EngineError, "gone", false) });
        let before = rig.now;
        assert_eq!(words(&rig.give(Event::Away { ms: 86_400_000 })), []);
        assert_eq!((kinds(&rig.give(Event::Resumed)), rig.now), (vec![], before));
        if heard {
            let effects = rig.give(said(&id, 1, 1, StoryStatus::InProgress));
            let at = words(&effects).into_iter().find_map(|word| match word {
                Word::Ack { at_ms, .. } => Some(at_ms),
                _ => None,
            });
            assert_eq!(at, Some(BEGAN + 86_400_000), "the time without an orchestrator counts");
            assert_eq!(kinds(&rig.deadline(HEARTBEAT.as_secs())).len(), 1, "the heartbeat, counted from there");
            continue;
        }
        let effects = rig.deadline(SETTLE.as_secs());
        let both = [EscalationType::AckTimeout, EscalationType::HeartbeatTimeout];
        let told: Vec<EscalationType> = kinds(&effects).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(told, both);
        rig.give(Event::Away { ms: 86_400_000 });
        assert_eq!(kinds(&rig.give(Event::Resumed)), [], "once");
        rig.wait(10);
        rig.ignores(Event::DeadlinePassed);
        rig.fold();
    }
}

#[test]
fn a_failure_is_told_the_admin_by_what_it_means() {
    use crate::protocol::amp::message::EscalationType::*;
    for (cause, first, last) in [
        // Checks that fail go back to the executor; the admin hears of the last time.
        (Cause::VerificationFailed, None, CiFailure),
        (Cause::AgentFailed, Some(Unknown), Unknown),
        (Cause::BranchViolation, Some(BranchViolation), BranchViolation),
    ] {
        let (mut rig, _) = Rig::began(speaking(&[&[(1, &[])]], Some(4)));
        rig.complete(&attempt(1, 1));
        let effects = rig.give(collected(&attempt(1, 1), None, vec![failed(1, cause)]));
        assert_eq!(kinds(&effects), first.map(|kind| (kind, Severity::Info)).into_iter().collect::<Vec<_>>());
        assert_eq!(reviewing(&effects), None, "failed work is not reviewed");
        assert_eq!(shorts(&effects)[..2], ["result failed", "ack of task_result by coordinator"]);
        rig.complete(&attempt(1, 2));
        let effects = rig.give(collected(&attempt(1, 2), None, vec![failed(1, cause)]));
        assert_eq!(kinds(&effects), [(last, Severity::Warning)]);
        assert_eq!(outcome(&effects), Some(Outcome::SomeFailed));
    }
}

#[test]
fn a_story_that_was_stopped_is_partial() {
    let (mut rig, _) = Rig::began(speaking(&[&[(1, &[])]], None));
    let id = attempt(1, 1);
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(Event::StopRequested { level: crate::swarm::event::StopLevel::Graceful, by: "SIGINT".to_owned() });
    rig.give(completion(&id, 2, CompletionStatus::Stopped));
    rig.give(ended(&id, exit(0)));
    let effects = rig.give(collected(&id, None, vec![failed(1, Cause::StoppedByUser)]));
    let ends = words(&effects).into_iter().find_map(|word| match word {
        Word::Result(end) => Some((end.status, end.failure.map(|failure| failure.cause))),
        _ => None,
    });
    assert_eq!(ends, Some((Came::Partial, Some(Cause::StoppedByUser))));
    assert_eq!(kinds(&effects), [], "it was the user who did it");
}

#[test]
fn the_admins_decision_is_the_ack_of_what_was_escalated() {
    let mut plan = speaking(&[&[(1, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    let (mut rig, effects) = Rig::began(plan);
    let escalation = ids(&effects).pop().expect("told");
    let effects = rig.decide(1, answer("mind the dog"));
    assert_eq!(shorts(&effects), ["ack of escalation by admin", "guidance", "ack of task_dispatch by coordinator"]);
    let notes: Vec<Option<String>> = words(&effects)
        .into_iter()
        .filter_map(|word| match word {
            Word::Ack { note, by: Role::Admin, .. } => Some(note),
            _ => None,
        })
        .collect();
    assert_eq!(notes, [Some("answer: mind the dog".to_owned())]);
    let guidance = ids(&effects).pop().expect("told");
    rig.give(Event::Resumed);
    // The task's dispatch refers to both.
    let dispatch = words(&rig.run(&attempt(1, 1))).remove(0);
    let Word::Dispatch(dispatch) = dispatch else { panic!("{dispatch:?}") };
    assert_eq!(dispatch.refs, [escalation, guidance]);
    assert_eq!(dispatch.guidance, ["mind the dog"]);
}

#[test]
fn an_abort_is_told_in_the_tasks_file() {
    let mut plan = speaking(&[&[(1, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    let (mut rig, _) = Rig::began(plan);
    assert_eq!(task_status(&rig.decide(1, Action::Abort)), Some("aborted"));
}

#[test]
fn work_of_a_sandbox_that_nobody_saw_begin_is_reviewed_all_the_same() {
    let (mut rig, id) = one();
    rig.give(Event::SandboxCreated { attempt: id.clone(), container: container(&id), name: "box".to_owned() });
    rig.give(ended(&id, exit(0)));
    let effects = rig.give(collected(&id, Some(50), vec![finished(1)]));
    assert_eq!(shorts(&effects)[..2], ["dispatch", "result complete"]);
    assert!(reviewing(&effects).is_some());
    assert_eq!(rig.machine.next_deadline(), None, "and nothing is waited for of it");
}
