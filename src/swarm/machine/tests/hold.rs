//! What waits for the admin, and what the admin decides, one by one.

use super::amp::*;
use super::*;
use crate::protocol::amp::message::{EscalationType, Severity};
use crate::swarm::event::{Action, Decision as Decided, StopLevel};
use crate::swarm::machine::{HoldKind, Phase};
use crate::swarm::spec::HEARTBEAT;

fn stop(level: StopLevel) -> Event {
    Event::StopRequested { level, by: "SIGINT".to_owned() }
}

fn risky() -> SwarmSpec {
    let mut plan = speaking(&[&[(1, &[])], &[(2, &[1])], &[(3, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    plan
}

/// A swarm of two tasks with one place, of which the first is suspended for its silence; and the effects of that.
fn suspended() -> (Rig, AttemptId, Vec<Effect>) {
    let mut plan = speaking(&[&[(1, &[])], &[(2, &[])]], None);
    plan.limits.max = 1;
    plan.limits.story_timeout = HEARTBEAT * 2;
    let (mut rig, _) = Rig::began(plan);
    let id = attempt(1, 1);
    rig.run(&id);
    rig.wait(10);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    let effects = rig.deadline(HEARTBEAT.as_secs());
    (rig, id, effects)
}

#[test]
fn high_risk_waits_for_an_approval_and_so_does_what_depends_on_it() {
    let (mut rig, effects) = Rig::began(risky());
    assert_eq!(kinds(&effects), [(EscalationType::PermissionDenied, Severity::Critical)]);
    assert_eq!(started(&effects), [attempt(3, 1)]);
    assert_eq!(rig.held(1), Some(HoldKind::Approval));
    let effects = rig.land(&attempt(3, 1), &[3], 7);
    assert_eq!(outcome(&effects), Some(Outcome::Suspended));
    for action in [Action::Resume, Action::Retry, Action::Rollback] {
        let refusal = rig.machine.can_decide(&assignment(1), &action).expect_err("nothing to do so");
        assert!(refusal.contains("`approve` or `abort`") && refusal.contains(action.word()), "{refusal}");
    }
    for (action, runs) in [(Action::Approve, true), (answer("with care"), true), (Action::Abort, false)] {
        let mut rig = rig.clone();
        rig.decide(1, action.clone());
        let effects = rig.give(Event::Resumed);
        assert_eq!(started(&effects), if runs { vec![attempt(1, 1)] } else { vec![] }, "{action:?}");
        if !runs {
            assert_eq!(outcome(&effects), Some(Outcome::SomeFailed));
            assert_eq!((rig.cause(1), rig.status(2)), (Some(Cause::AbortedByAdmin), StoryStatus::Skipped));
            continue;
        }
        let told =
            effects.iter().any(|effect| matches!(effect, Effect::Start { guidance, .. } if guidance == &["with care"]));
        assert_eq!(told, action != Action::Approve);
        rig.land(&attempt(1, 1), &[1], 8);
        assert_eq!(outcome(&rig.land(&attempt(2, 1), &[2], 9)), Some(Outcome::Landed));
        rig.fold();
    }
}

#[test]
fn an_approval_while_the_swarm_runs_starts_it() {
    let (mut rig, _) = Rig::began(risky());
    assert_eq!(started(&rig.decide(1, Action::Approve)), [attempt(1, 1)]);
    rig.fold();
}

#[test]
fn an_approval_of_what_was_skipped_is_wanted_again_when_that_is_taken_back() {
    let mut plan = speaking(&[&[(1, &[])], &[(2, &[1])]], None);
    plan.stories[1].risk = RiskLevel::High;
    plan.limits.retries = 0;
    let (mut rig, _) = Rig::began(plan);
    rig.complete(&attempt(1, 1));
    let effects = rig.give(collected(&attempt(1, 1), None, vec![failed(1, Cause::AgentFailed)]));
    assert_eq!(outcome(&effects), Some(Outcome::SomeFailed));
    assert_eq!(rig.held(2), None, "what is skipped waits for nobody");
    assert!(rig.machine.can_decide(&assignment(2), &Action::Approve).is_err());
    rig.decide(1, Action::Retry);
    assert_eq!(started(&rig.give(Event::Resumed)), [attempt(1, 2)]);
    assert_eq!(outcome(&rig.land(&attempt(1, 2), &[1], 7)), Some(Outcome::Suspended));
    assert_eq!(rig.held(2), Some(HoldKind::Approval));
}

#[test]
fn an_agent_that_writes_nothing_is_paused_and_gives_its_place_to_others() {
    let (mut rig, id, effects) = suspended();
    assert!(effects.contains(&Effect::Pause { attempt: id.clone() }), "{effects:?}");
    assert_eq!(kinds(&effects), [(EscalationType::HeartbeatTimeout, Severity::Critical)]);
    assert_eq!(started(&effects), [attempt(2, 1)]);
    // What the pipe still held says nothing new, and no clock of it runs.
    rig.give(said(&id, 2, 1, StoryStatus::InProgress));
    rig.ignores(Event::Examined { attempt: id.clone(), paused: true, processes: Vec::new() });
    assert_eq!(outcome(&rig.land(&attempt(2, 1), &[2], 7)), Some(Outcome::Suspended));
    assert_eq!(rig.machine.next_deadline(), None);
    rig.wait(100_000);
    rig.give(Event::Away { ms: 5_000_000 });
    let effects = rig.give(Event::Resumed);
    assert!(effects.contains(&Effect::Pause { attempt: id.clone() }), "it stays so: {effects:?}");
    assert_eq!(outcome(&effects), Some(Outcome::Suspended));
    rig.decide(1, Action::Resume);
    let effects = rig.give(Event::Resumed);
    assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "{effects:?}");
    assert!(!effects.contains(&Effect::Pause { attempt: id.clone() }), "{effects:?}");
    // Who looks before the engine has done it sees longshore's own doing.
    rig.ignores(Event::Examined { attempt: id.clone(), paused: true, processes: Vec::new() });
    // What was left of its time: two heartbeats and 10 s, of which one and 10 s are gone. Its new heartbeat is as long.
    let effects = rig.deadline(HEARTBEAT.as_secs());
    assert!(
        effects.contains(&Effect::Pause { attempt: id.clone() })
            || effects.contains(&Effect::Terminate { attempt: id })
    );
    rig.fold();
}

#[test]
fn a_sandbox_that_may_go_on_waits_for_a_place() {
    for action in [Action::Approve, Action::Resume, answer("go")] {
        let (mut rig, id, _) = suspended();
        rig.run(&attempt(2, 1));
        let effects = rig.decide(1, action);
        assert!(!effects.contains(&Effect::Unpause { attempt: id.clone() }), "the only place is another's");
        let effects = {
            rig.give(completion(&attempt(2, 1), 1, CompletionStatus::Completed));
            rig.give(ended(&attempt(2, 1), exit(0)))
        };
        assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "{effects:?}");
        rig.wait(5);
        rig.give(completion(&id, 2, CompletionStatus::Completed));
        rig.give(ended(&id, exit(0)));
        rig.give(collected(&id, Some(50), vec![finished(1)]));
        rig.give(collected(&attempt(2, 1), Some(51), vec![finished(2)]));
        rig.give(Event::Merged { attempt: id, head: commit(7) });
        assert_eq!(
            outcome(&rig.give(Event::Merged { attempt: attempt(2, 1), head: commit(8) })),
            Some(Outcome::Landed)
        );
        rig.fold();
    }
}

#[test]
fn the_rest_of_a_suspended_sandboxs_time_is_its_own_and_its_clocks_are_not_to_blame() {
    let (mut rig, id, _) = suspended();
    rig.land(&attempt(2, 1), &[2], 7);
    rig.wait(1_000_000);
    rig.decide(1, Action::Resume);
    rig.give(Event::Resumed);
    rig.wait(5);
    // Its shim counted the time in which it was frozen.
    rig.give(completion(&id, 2, CompletionStatus::Failed));
    rig.give(ended(&id, exit(0)));
    rig.give(collected(&id, None, vec![failed(1, Cause::Timeout)]));
    assert_eq!((rig.cause(1), rig.status(1)), (Some(Cause::KilledOutside), StoryStatus::Pending));
    assert_eq!(rig.machine.story(&key(1)).expect("there").failures, 0);
}

#[test]
fn a_suspended_sandbox_is_given_up_or_started_again() {
    for finishes in [false, true] {
        for (action, cause) in
            [(Action::Abort, Some(Cause::AbortedByAdmin)), (Action::Retry, None), (Action::Rollback, None)]
        {
            let (mut rig, id, _) = suspended();
            let effects = rig.decide(1, action.clone());
            assert!(effects.contains(&Effect::Kill { attempt: id.clone() }), "{effects:?}");
            assert_eq!(rig.held(1), None);
            rig.give(ended(&id, exit(137)));
            // What it had finished before does not land where the task was given up.
            let effects = rig.give(match finishes {
                true => collected(&id, Some(50), vec![finished(1)]),
                false => collected(&id, None, vec![result(1, StoryOutcome::NotReached)]),
            });
            if let Some(cause) = cause {
                assert_eq!((rig.cause(1), rig.status(1)), (Some(cause), StoryStatus::Failed), "{action:?}");
                assert_eq!(merged(&effects), []);
                continue;
            }
            assert_eq!(merged(&effects).len(), usize::from(finishes), "{action:?}");
            if !finishes {
                rig.land(&attempt(2, 1), &[2], 7);
                assert_eq!(rig.machine.attempt(&attempt(1, 2)).map(|view| view.base.clone()), Some(commit(1)));
                assert_eq!(rig.machine.story(&key(1)).expect("there").failures, 0);
            }
            rig.fold();
        }
    }
}

#[test]
fn giving_a_task_up_gives_all_of_it_up() {
    let plan = || {
        let mut plan = speaking(&[&[(1, &[]), (2, &[])]], Some(1));
        plan.limits.story_timeout = HEARTBEAT * 2;
        Rig::began(plan).0
    };
    let all = |rig: &Rig| [rig.cause(1), rig.cause(2)];
    // Of one that is locked, a story waits for its next try.
    let mut rig = plan();
    rig.complete(&attempt(1, 1));
    rig.give(collected(&attempt(1, 1), Some(50), vec![finished(1), failed(2, Cause::AgentFailed)]));
    rig.review(&attempt(1, 2), rejected("no"));
    assert_eq!(rig.held(1), Some(HoldKind::Locked));
    rig.decide(1, Action::Abort);
    assert_eq!(all(&rig), [Some(Cause::AbortedByAdmin); 2]);
    assert_eq!(outcome(&rig.give(Event::Resumed)), Some(Outcome::SomeFailed));
    // Of one that is suspended, one was begun and the other was not.
    let mut rig = plan();
    rig.run(&attempt(1, 1));
    rig.give(said(&attempt(1, 1), 1, 1, StoryStatus::InProgress));
    rig.deadline(HEARTBEAT.as_secs());
    rig.decide(1, Action::Abort);
    rig.give(Event::Resumed);
    rig.give(ended(&attempt(1, 1), exit(137)));
    let effects = rig.give(collect_failed(&attempt(1, 1), Cause::HostError, false, Some("refs/salvage")));
    assert_eq!(all(&rig), [Some(Cause::AbortedByAdmin); 2]);
    assert_eq!(outcome(&effects), Some(Outcome::SomeFailed));
    rig.fold();
}

#[test]
fn a_suspended_reviewers_task_is_decided_with_it() {
    for (action, cause, base, again) in [
        (Action::Abort, Some(Cause::AbortedByAdmin), None, None),
        (Action::Retry, None, None, Some(attempt(1, 3))),
        (Action::Rollback, Some(Cause::Rejected), Some(commit(1)), None),
    ] {
        for answers in [false, true] {
            let mut plan = speaking(&[&[(1, &[])]], Some(4));
            plan.limits.story_timeout = HEARTBEAT * 2;
            let (mut rig, _) = Rig::began(plan);
            rig.work(&attempt(1, 1), &[1]);
            let reviewer = attempt(1, 2);
            rig.run(&reviewer);
            rig.give(said(&reviewer, 1, 1, StoryStatus::InProgress));
            let effects = rig.deadline(HEARTBEAT.as_secs());
            assert!(effects.contains(&Effect::Pause { attempt: reviewer.clone() }));
            assert_eq!(outcome(&effects), Some(Outcome::Suspended));
            rig.decide(1, action.clone());
            assert!(rig.give(Event::Resumed).contains(&Effect::Kill { attempt: reviewer.clone() }));
            rig.give(ended(&reviewer, exit(137)));
            if answers && action == Action::Retry {
                continue;
            }
            let reviewed = if answers { approved() } else { no_verdict(Cause::StoppedByUser) };
            let effects = rig.give(Event::ReviewCollected { attempt: reviewer, reviewed: Box::new(reviewed) });
            assert_eq!((merged(&effects), kinds(&effects)), (vec![], vec![]), "{action:?}");
            assert_eq!(rig.cause(1), cause, "{action:?}");
            let starts = effects.iter().find_map(|one| match one {
                Effect::Start { base, .. } => Some(base.clone()),
                _ => None,
            });
            assert_eq!(starts, base, "{action:?}");
            assert_eq!(reviewing(&effects).map(|(id, _)| id), again, "{action:?}");
            rig.fold();
        }
    }
}

#[test]
fn a_suspended_sandbox_that_had_already_finished_is_let_go_on() {
    let (mut rig, id, _) = suspended();
    let effects = rig.give(completion(&id, 2, CompletionStatus::Completed));
    assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "or it could not end: {effects:?}");
    assert_eq!(rig.held(1), None);
    rig.give(ended(&id, exit(0)));
    rig.give(collected(&id, Some(50), vec![finished(1)]));
    rig.give(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(rig.status(1), StoryStatus::Completed);
    // One that sends nothing but rubbish is killed, paused or not.
    let (mut rig, id, _) = suspended();
    rig.give(refused(&id, 2));
    rig.give(refused(&id, 3));
    assert!(rig.give(refused(&id, 4)).contains(&Effect::Kill { attempt: id.clone() }));
    assert_eq!(rig.held(1), None);
    rig.give(ended(&id, exit(137)));
}

#[test]
fn a_stop_ends_what_is_suspended_and_resume_does_it_again() {
    for level in [StopLevel::Graceful, StopLevel::Kill] {
        let (mut rig, id, _) = suspended();
        assert!(rig.give(stop(level)).contains(&Effect::Kill { attempt: id.clone() }));
        rig.give(ended(&id, exit(137)));
        rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        let effects =
            rig.give(Event::StartFailed { attempt: attempt(2, 1), fault: Fault::new(Cause::EngineError, "no", true) });
        assert_eq!(outcome(&effects), Some(Outcome::Interrupted));
        assert_eq!(started(&rig.give(Event::Resumed)), [attempt(1, 2)]);
        rig.fold();
    }
}

#[test]
fn nobody_is_suspended_for_what_cannot_be_heard_or_while_it_ends() {
    let begun = || {
        let mut plan = speaking(&[&[(1, &[])]], None);
        plan.limits.story_timeout = HEARTBEAT * 4;
        plan.limits.grace = HEARTBEAT * 2;
        let (mut rig, _) = Rig::began(plan);
        rig.run(&attempt(1, 1));
        rig.give(said(&attempt(1, 1), 1, 1, StoryStatus::InProgress));
        rig
    };
    let mut rig = begun();
    rig.wait(HEARTBEAT.as_secs() - 10);
    rig.give(Event::EngineLost { problem: "refused".to_owned() });
    assert_eq!(rig.deadline(10), [], "the engine is away");
    rig.give(Event::EngineBack);
    assert_eq!(kinds(&rig.deadline(HEARTBEAT.as_secs())).len(), 1, "from then on it counts again");
    let mut rig = begun();
    rig.give(stop(StopLevel::Graceful));
    assert_eq!(rig.deadline(HEARTBEAT.as_secs()), [], "it is on its way out");
    assert_eq!(rig.machine.attempt(&attempt(1, 1)).expect("there").phase, Phase::Running);
}

#[test]
fn an_orchestrator_that_died_before_it_let_a_sandbox_go_on_does_so_later() {
    let (mut rig, id, _) = suspended();
    rig.land(&attempt(2, 1), &[2], 7);
    rig.decide(1, Action::Resume);
    rig.give(Event::Resumed);
    rig.machine = rig.fold();
    assert!(rig.give(Event::Resumed).contains(&Effect::Unpause { attempt: id }));
}

#[test]
fn failed_stories_are_taken_back_with_what_was_skipped_because_of_them() {
    // 4 depends on 1 and, by way of 3, on 2; both fail.
    for (action, from) in [(Action::Retry, 1), (Action::Rollback, 1)] {
        let mut plan = speaking(&[&[(1, &[])], &[(2, &[])], &[(3, &[2])], &[(4, &[1, 3])], &[(5, &[1])]], None);
        plan.limits.retries = 0;
        let (mut rig, _) = Rig::began(plan);
        for number in [1, 2] {
            rig.complete(&attempt(number, 1));
            rig.give(collected(&attempt(number, 1), None, vec![failed(number, Cause::AgentFailed)]));
        }
        assert_eq!(rig.machine.finished(), Some(Outcome::SomeFailed));
        rig.ignores(Event::Resumed);
        let effects = rig.decide(1, action.clone());
        assert_eq!(started(&effects), [], "nothing is done before the swarm is taken up");
        let effects = rig.give(Event::Resumed);
        let base = effects.iter().find_map(|one| match one {
            Effect::Start { base, attempt: id, .. } if *id == attempt(1, 2) => Some(base.clone()),
            _ => None,
        });
        assert_eq!(base, Some(commit(from)), "{action:?}");
        let pending = |rig: &Rig| (1..=5).map(|story| rig.status(story) == StoryStatus::Pending).collect::<Vec<_>>();
        assert_eq!(pending(&rig), [true, false, false, false, true], "4 waits for what will not come");
        assert_eq!(started(&rig.land(&attempt(1, 2), &[1], 7)), [attempt(5, 1)]);
        // And then the other one, too, while the swarm runs.
        assert_eq!(started(&rig.decide(2, Action::Retry)), [attempt(2, 2)]);
        rig.land(&attempt(5, 1), &[5], 8);
        assert_eq!(started(&rig.land(&attempt(2, 2), &[2], 9)), [attempt(3, 1)]);
        assert_eq!(started(&rig.land(&attempt(3, 1), &[3], 10)), [attempt(4, 1)]);
        assert_eq!(outcome(&rig.land(&attempt(4, 1), &[4], 11)), Some(Outcome::Landed));
        rig.fold();
    }
}

#[test]
fn what_cannot_be_decided_is_refused_with_a_sentence() {
    let (mut rig, id) = one();
    let all = [Action::Approve, Action::Resume, Action::Retry, Action::Abort, Action::Rollback, answer("x")];
    let refusals = |rig: &Rig, number: u32| {
        let all = all.iter().map(|action| rig.machine.can_decide(&assignment(number), action));
        all.map(|one| one.expect_err("no").replace('`', "")).collect::<Vec<_>>()
    };
    assert_eq!(refusals(&rig, 9), vec!["the swarm has no task T-2026-009"; 6]);
    let refused = refusals(&rig, 1);
    assert_eq!(refused[0], "nothing of T-2026-001 waits for the admin: there is nothing to approve");
    assert!(refused[2].starts_with("T-2026-001 is being worked on"), "{}", refused[2]);
    rig.work(&id, &[1]);
    rig.review(&attempt(1, 2), approved());
    rig.give(Event::Merged { attempt: id, head: commit(7) });
    assert!(refusals(&rig, 1)[4].starts_with("no story of T-2026-001 has failed"), "{:?}", refusals(&rig, 1));
    let decision = Decided { id: "1".to_owned(), task: assignment(1), action: Action::Abort, by: "me".to_owned() };
    rig.ignores(Event::Decided { decision });
    assert!(!rig.machine.knows("1"), "what was refused may come again when it can be done");
}

#[test]
fn what_was_given_up_is_not_taken_back_before_what_it_depends_on() {
    let mut plan = speaking(&[&[(1, &[])], &[(2, &[1])]], None);
    plan.stories[1].risk = RiskLevel::High;
    plan.limits.retries = 0;
    let (mut rig, _) = Rig::began(plan);
    rig.decide(2, Action::Abort);
    rig.complete(&attempt(1, 1));
    rig.give(collected(&attempt(1, 1), None, vec![failed(1, Cause::AgentFailed)]));
    let refusal = rig.machine.can_decide(&assignment(2), &Action::Retry).expect_err("1 has failed");
    assert_eq!(refusal, "what T-2026-002 depends on has not landed: `retry` that first");
    rig.decide(1, Action::Retry);
    rig.decide(2, Action::Retry);
    assert_eq!(started(&rig.give(Event::Resumed)), [attempt(1, 2)]);
    assert_eq!(started(&rig.land(&attempt(1, 2), &[1], 7)), [attempt(2, 1)]);
}
