//! The rules of the review loop, one by one.

use super::amp::*;
use super::*;
use crate::protocol::amp::message::{Decision, EscalationType, Kind, Severity};
use crate::swarm::event::{Action, StopLevel};
use crate::swarm::machine::{HoldKind, Phase};
use crate::swarm::reviewed::Reviewed;
use crate::swarm::word::Word;

/// The base and the guidance of the attempt that is started, and what its only story is told of the time before.
fn next(effects: &[Effect]) -> (AttemptId, CommitId, Vec<String>, String) {
    let mut starts = effects.iter().filter_map(|effect| match effect {
        Effect::Start { attempt, stories, guidance, base } => {
            let previous = stories[0].1.clone().unwrap_or_default();
            Some((attempt.clone(), base.clone(), guidance.clone(), previous))
        }
        _ => None,
    });
    starts.next().unwrap_or_else(|| panic!("nothing is started: {effects:?}"))
}

#[test]
fn approved_work_lands_and_only_then() {
    let (mut rig, id) = one();
    let effects = rig.work(&id, &[1]);
    assert_eq!(merged(&effects), [], "nothing lands unreviewed");
    let (reviewer, review) = reviewing(&effects).expect("a review");
    assert_eq!((&reviewer, &review.of, &review.commit), (&attempt(1, 2), &id, &tip(&id)));
    assert_eq!((review.rejects, review.base.clone()), (0, commit(1)));
    assert_eq!(rig.machine.attempt(&id).expect("there").phase, Phase::Reviewing);
    let effects = rig.review(&reviewer, approved());
    assert_eq!(merged(&effects), [tip(&id)]);
    let effects = rig.give(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(outcome(&effects), Some(Outcome::Landed));
    assert_eq!(task_status(&effects), Some("landed"));
    rig.fold();
}

#[test]
fn a_reviewers_fix_lands_with_the_work_if_it_is_one() {
    let (mut rig, id) = one();
    rig.work(&id, &[1]);
    assert_eq!(merged(&rig.review(&attempt(1, 2), mended(77, None))), [commit(77)]);
    let effects = rig.give(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(outcome(&effects), Some(Outcome::Landed));
    assert_eq!(rig.machine.story(&key(1)).expect("there").commit, Some(commit(77)), "the story ends with the fix");
}

#[test]
fn a_reviewers_fix_that_is_more_than_that_is_a_rejection() {
    for none in [false, true] {
        let (mut rig, id) = one();
        rig.work(&id, &[1]);
        let mut reviewed = mended(77, Some("it has 9 lines"));
        if none {
            reviewed.fix = None;
        }
        let effects = rig.review(&attempt(1, 2), reviewed);
        assert_eq!(merged(&effects), []);
        let (again, base, _, previous) = next(&effects);
        assert_eq!((again, base), (attempt(1, 3), tip(&id)), "without the fix");
        let why = if none { "there is no commit with the fix" } else { "it has 9 lines" };
        assert!(previous.contains(why), "{previous}");
        assert_eq!(rig.machine.rejects(&assignment(1)), 1);
        let ended = |said: &Announcement| {
            matches!(said, Announcement::ReviewEnded { decision: Decision::Rejected, rejects: 1, .. })
        };
        assert_eq!(announced(&effects, ended), 1);
    }
}

#[test]
fn rejected_work_goes_back_with_the_findings_and_costs_no_retry() {
    let mut plan = speaking(&[&[(1, &[])]], Some(4));
    plan.limits.retries = 0;
    let (mut rig, _) = Rig::began(plan);
    let mut id = attempt(1, 1);
    for (round, finding) in [(1_u32, "the sum is wrong"), (2, "no test")] {
        let effects = rig.work(&id, &[1]);
        let (reviewer, review) = reviewing(&effects).expect("a review");
        assert_eq!((review.rejects, review.base), (round - 1, commit(1)), "the whole of it is reviewed");
        let effects = rig.review(&reviewer, rejected(finding));
        assert_eq!(kinds(&effects), [], "that is no trouble");
        let (again, base, _, previous) = next(&effects);
        assert_eq!(base, tip(&id), "on top of what was rejected");
        assert!(previous.contains(&format!("- [major] a.rs:3: {finding}\n  Suggested: mend it")), "{previous}");
        let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("why");
        assert_eq!((failure.cause, failure.salvage), (Cause::Rejected, Some(format!("refs/kept/{}", id.number))));
        assert_eq!(rig.status(1), StoryStatus::Pending);
        // The dispatch refers to what came before it.
        let said = words(&rig.run(&again));
        let Some(Word::Dispatch(dispatch)) = said.first() else { panic!("{said:?}") };
        let kinds: Vec<Kind> = dispatch.refs.iter().map(|id| id.kind()).collect();
        assert_eq!(kinds, [Kind::TaskResult, Kind::ReviewVerdict]);
        rig.give(ended(&again, exit(1)));
        // Once more from the start, so that the helper's whole life can be used: the machinery lost it.
        rig.give(collect_failed(&again, Cause::HostError, false, None));
        let effects = rig.give_next();
        let (after, base, _, text) = next(&effects);
        assert_eq!((base, text), (tip(&id), previous), "a failure between does not lose what was rejected");
        id = after;
    }
    rig.work(&id, &[1]);
    let reviewer = AttemptId { number: id.number + 1, ..id.clone() };
    assert_eq!(merged(&rig.review(&reviewer, approved())), [tip(&id)]);
    rig.give(Event::Merged { attempt: id, head: commit(7) });
    let view = rig.machine.story(&key(1)).expect("there");
    assert_eq!((view.status, view.failures), (StoryStatus::Completed, 0));
    rig.fold();
}

#[test]
fn the_fourth_rejection_locks_the_task_and_nothing_else() {
    let mut plan = speaking(&[&[(1, &[])], &[(2, &[])], &[(3, &[1])]], Some(4));
    plan.limits.max = 2;
    let (mut rig, _) = Rig::began(plan);
    for round in 0..4 {
        let id = attempt(1, 1 + 2 * round);
        rig.work(&id, &[1]);
        let effects = rig.review(&attempt(1, 2 + 2 * round), rejected(["a", "b", "c", "d"][round as usize]));
        if round < 3 {
            assert_eq!(kinds(&effects), []);
            continue;
        }
        assert_eq!(kinds(&effects), [(EscalationType::HallucinationLock, Severity::Critical)]);
        let lock = &escalations(&effects)[0];
        assert!(lock.auto_suspended && lock.system_state_snapshot.reject_count == 4, "{lock:?}");
        assert_eq!(lock.system_state_snapshot.task_status, "locked");
        assert_eq!((started(&effects), outcome(&effects)), (vec![], None), "what does not depend on it goes on");
    }
    assert_eq!(rig.held(1), Some(HoldKind::Locked));
    rig.work(&attempt(2, 1), &[2]);
    rig.review(&attempt(2, 2), approved());
    let effects = rig.give(Event::Merged { attempt: attempt(2, 1), head: commit(7) });
    assert_eq!(outcome(&effects), Some(Outcome::Suspended), "and then there is nothing left to do");
    assert_eq!(Outcome::Suspended.exit_code(), 4);
    assert!(!rig.machine.over());
    // Nobody decided: the same again.
    assert_eq!(outcome(&rig.give(Event::Resumed)), Some(Outcome::Suspended));
    // The admin's words, while nothing runs: what follows is done when the swarm is taken up.
    let effects = rig.decide(1, answer("use a set"));
    assert_eq!(started(&effects), []);
    let said = words(&effects);
    let guidance = |word: &Word| matches!(word, Word::Dispatch(dispatch) if dispatch.attempt.is_none() && dispatch.guidance == ["use a set"]);
    assert_eq!(said.iter().filter(|word| guidance(word)).count(), 1, "{said:?}");
    let (again, base, guidance, _) = next(&rig.give(Event::Resumed));
    assert_eq!((&again, base, guidance), (&attempt(1, 9), tip(&attempt(1, 7)), vec!["use a set".to_owned()]));
    rig.work(&again, &[1]);
    let effects = rig.review(&attempt(1, 10), approved());
    assert_eq!(merged(&effects), [tip(&again)]);
    let effects = rig.give(Event::Merged { attempt: again, head: commit(8) });
    assert_eq!(started(&effects), [attempt(3, 1)], "what depends on it runs");
    rig.fold();
}

#[test]
fn a_verdict_that_is_not_sure_is_the_admins_to_believe() {
    let fix = || Reviewed { fix: mended(77, None).fix, ..verdict(Decision::ApprovedWithFix, 0.5, &[]) };

    let back = Some(attempt(1, 3));
    for (reviewed, action, lands, review, goes_back, rejects) in [
        (verdict(Decision::Approved, 0.79, &[]), Action::Approve, Some(tip(&attempt(1, 1))), None, None, 0),
        (fix(), Action::Approve, Some(commit(77)), None, None, 0),
        (verdict(Decision::Rejected, 0.1, &["bad"]), Action::Approve, None, None, back.clone(), 1),
        (verdict(Decision::Rejected, 0.1, &["bad"]), Action::Resume, None, back.clone(), None, 0),
        (verdict(Decision::Rejected, 0.1, &["bad"]), answer("look"), None, None, back.clone(), 0),
        (verdict(Decision::Rejected, 0.1, &["bad"]), Action::Retry, None, None, back.clone(), 0),
        (verdict(Decision::Rejected, 0.1, &["bad"]), Action::Rollback, None, None, back.clone(), 0),
    ] {
        let (mut rig, id) = one();
        rig.work(&id, &[1]);
        let wants = reviewed.verdict.as_ref().expect("one").decision;
        let effects = rig.review(&attempt(1, 2), reviewed);
        assert_eq!(kinds(&effects), [(EscalationType::Unknown, Severity::Critical)]);
        assert_eq!((merged(&effects), started(&effects)), (vec![], vec![]));
        assert_eq!((rig.held(1), outcome(&effects)), (Some(HoldKind::LowConfidence), Some(Outcome::Suspended)));
        rig.decide(1, action.clone());
        let effects = rig.give(Event::Resumed);
        assert_eq!(merged(&effects), lands.into_iter().collect::<Vec<_>>(), "{action:?} of {wants:?}");
        assert_eq!(reviewing(&effects).map(|(id, _)| id), review, "{action:?} of {wants:?}");
        assert_eq!(started(&effects), goes_back.clone().into_iter().collect::<Vec<_>>(), "{action:?} of {wants:?}");
        assert_eq!(rig.machine.rejects(&assignment(1)), rejects, "{action:?}");
        if goes_back.is_some() {
            let (_, base, _, previous) = next(&effects);
            assert_eq!(base == commit(1), action == Action::Rollback, "{action:?}");
            assert!(previous.contains("- [major] a.rs:3: bad"), "{action:?}: {previous}");
            assert_eq!(previous.contains("where you begin"), action != Action::Rollback, "{previous}");
        }
        rig.fold();
    }
    // 0.8 is sure.
    let (mut rig, id) = one();
    rig.work(&id, &[1]);
    assert_eq!(merged(&rig.review(&attempt(1, 2), verdict(Decision::Approved, 0.8, &[]))), [tip(&id)]);
}

#[test]
fn no_verdict_is_asked_for_once_more_and_then_the_admin() {
    for cause in [Cause::ProtocolViolation, Cause::Timeout, Cause::AgentFailed] {
        let (mut rig, id) = one();
        rig.work(&id, &[1]);
        let effects = rig.review(&attempt(1, 2), no_verdict(cause));
        assert_eq!(reviewing(&effects).map(|(id, _)| id), Some(attempt(1, 3)));
        assert_eq!(kinds(&effects), []);
        let effects = rig.review(&attempt(1, 3), no_verdict(cause));
        assert_eq!(kinds(&effects), [(EscalationType::Unknown, Severity::Critical)]);
        assert_eq!((rig.held(1), outcome(&effects)), (Some(HoldKind::NoVerdict), Some(Outcome::Suspended)));
        let mut lands = rig.clone();
        lands.decide(1, Action::Approve);
        assert_eq!(merged(&lands.give(Event::Resumed)), [tip(&id)]);
        rig.decide(1, Action::Resume);
        let effects = rig.give(Event::Resumed);
        assert_eq!(reviewing(&effects).map(|(id, _)| id), Some(attempt(1, 4)), "and it has both tries again");
        let effects = rig.review(&attempt(1, 4), no_verdict(cause));
        assert!(reviewing(&effects).is_some());
    }
}

#[test]
fn a_review_that_the_machinery_fails_is_tried_again_after_a_backoff() {
    let mut plan = speaking(&[&[(1, &[])]], Some(4));
    plan.limits.machinery_retries = 2;
    let (mut rig, _) = Rig::began(plan);
    rig.work(&attempt(1, 1), &[1]);
    // It cannot be started; it dies; it leaves nothing that can be had.
    let fault = Fault::new(Cause::EngineError, "busy", true);
    rig.give(Event::StartFailed { attempt: attempt(1, 2), fault });
    assert_eq!(reviewing(&rig.deadline(1)).map(|(id, _)| id), Some(attempt(1, 3)));
    rig.run(&attempt(1, 3));
    rig.give(ended(&attempt(1, 3), exit(137)));
    rig.give(Event::ReviewCollected { attempt: attempt(1, 3), reviewed: Box::new(no_verdict(Cause::HostError)) });
    assert_eq!(reviewing(&rig.deadline(2)).map(|(id, _)| id), Some(attempt(1, 4)));
    rig.complete(&attempt(1, 4));
    let effects = rig.give(collect_failed(&attempt(1, 4), Cause::DiskFull, false, None));
    assert_eq!((rig.held(1), outcome(&effects)), (Some(HoldKind::NoVerdict), Some(Outcome::Suspended)));
    // The engine's absence costs nothing.
    rig.decide(1, Action::Resume);
    rig.give(Event::Resumed);
    for number in 5..12 {
        let fault = Fault { unreachable: true, ..Fault::new(Cause::EngineError, "away", true) };
        rig.give(Event::StartFailed { attempt: attempt(1, number), fault });
        assert_eq!(reviewing(&rig.deadline(1)).map(|(id, _)| id), Some(attempt(1, number + 1)));
    }
    rig.fold();
}

#[test]
fn what_goes_round_in_circles_is_a_conflict_and_goes_on() {
    // By round: what was found, and the tree; then whether that is a conflict.
    let circles: [&[(&str, &str, bool)]; 4] = [
        &[
            ("the sum is wrong", "a", false),
            ("The sum is wrong!", "b", false),
            ("line 7: the SUM is wrong", "c", false),
        ],
        &[("sum", "a", false), ("Sum, 2", "b", false), ("sum", "c", true)],
        &[("sum", "a", false), ("test", "b", false), ("sum", "c", true)],
        &[("sum", "a", false), ("test", "b", false), ("doc", "a", true)],
    ];
    for rounds in circles {
        let (mut rig, mut id) = one();
        for (finding, tree, circle) in rounds {
            rig.work_as(&id, &[1], tree);
            let reviewer = AttemptId { number: id.number + 1, ..id.clone() };
            let effects = rig.review(&reviewer, rejected(finding));
            let expected: &[_] = if *circle { &[(EscalationType::Conflict, Severity::Info)] } else { &[] };
            assert_eq!(kinds(&effects), expected, "{finding} {tree} in {rounds:?}");
            assert!(escalations(&effects).iter().all(|one| !one.auto_suspended));
            (id, ..) = next(&effects);
        }
    }
}

#[test]
fn several_stories_of_one_assignment_are_reviewed_together() {
    let mut plan = speaking(&[&[(1, &[]), (2, &[1]), (3, &[])]], Some(4));
    plan.limits.retries = 1;
    let (mut rig, _) = Rig::began(plan);
    let id = attempt(1, 1);
    rig.complete(&id);
    let results = vec![finished(1), finished(2), failed(3, Cause::VerificationFailed)];
    let effects = rig.give(collected(&id, Some(50), results));
    let (_, review) = reviewing(&effects).expect("a review");
    assert_eq!(review.stories, [key(1), key(2)], "what is finished");
    let newest = words(&effects).into_iter().find_map(|word| match word {
        Word::Result(end) if end.id == review.result => Some(*end),
        _ => None,
    });
    let newest = newest.expect("the result that the request is about is told");
    assert_eq!((newest.story, newest.failure), (key(2), None), "a complete one");
    assert_eq!(kinds(&effects), [], "a failed check goes back to the executor");
    // All that was reviewed goes back; then part of it lands, and the rest begins on top of that.
    let effects = rig.review(&attempt(1, 2), rejected("bad"));
    let Some(Effect::Start { stories, base, .. }) = effects.iter().find(|one| matches!(one, Effect::Start { .. }))
    else {
        panic!("{effects:?}")
    };
    assert_eq!((stories.len(), base), (3, &commit(50)));
    let id = attempt(1, 3);
    rig.complete(&id);
    let effects =
        rig.give(collected(&id, Some(51), vec![finished(1), finished(2), result(3, StoryOutcome::NotReached)]));
    assert_eq!(reviewing(&effects).expect("a review").1.base, commit(1));
    rig.review(&attempt(1, 4), approved());
    let effects = rig.give(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(task_status(&effects), Some("in_progress"), "a story of it is left");
    let (again, base, ..) = next(&effects);
    assert_eq!((&again, base), (&attempt(1, 5), commit(7)), "from the branch that it landed on");
    rig.complete(&again);
    let effects = rig.give(collected(&again, Some(52), vec![finished(3)]));
    assert_eq!(reviewing(&effects).expect("a review").1.base, commit(7), "what has landed is not reviewed again");
    let effects = rig.review(&attempt(1, 6), approved());
    assert_eq!(merged(&effects), [commit(52)]);
    rig.fold();
}

#[test]
fn what_does_not_merge_after_its_review_is_done_again_once_and_reviewed_again() {
    let (mut rig, id) = one();
    rig.work(&id, &[1]);
    rig.review(&attempt(1, 2), rejected("bad"));
    let id = attempt(1, 3);
    rig.work(&id, &[1]);
    rig.review(&attempt(1, 4), approved());
    let conflict =
        |id: &AttemptId| Event::MergeConflicted { attempt: id.clone(), paths: vec![], kept: "refs/k".to_owned() };
    let effects = rig.give(conflict(&id));
    assert_eq!(kinds(&effects), [(EscalationType::Conflict, Severity::Info)]);
    let (again, base, ..) = next(&effects);
    assert_eq!((&again, base), (&attempt(1, 5), commit(1)), "from the branch, not from what did not merge");
    let effects = rig.work(&again, &[1]);
    assert_eq!(merged(&effects), []);
    rig.review(&attempt(1, 6), approved());
    let effects = rig.give(conflict(&again));
    assert_eq!(kinds(&effects), [(EscalationType::Conflict, Severity::Warning)]);
    assert_eq!(outcome(&effects), Some(Outcome::SomeFailed));
    rig.fold();
}

#[test]
fn a_stop_while_a_review_runs_or_waits_leaves_the_work_for_resume() {
    for level in [StopLevel::Graceful, StopLevel::Kill] {
        // While it runs.
        let (mut rig, id) = one();
        rig.work(&id, &[1]);
        rig.run(&attempt(1, 2));
        let stop = Event::StopRequested { level, by: "SIGINT".to_owned() };
        let effects = rig.give(stop.clone());
        let reviewer = attempt(1, 2);
        let end = match level {
            StopLevel::Graceful => Effect::Terminate { attempt: reviewer.clone() },
            StopLevel::Kill => Effect::Kill { attempt: reviewer.clone() },
        };
        assert!(effects.contains(&end), "{effects:?}");
        rig.give(ended(&reviewer, exit(143)));
        let effects = rig
            .give(Event::ReviewCollected { attempt: reviewer, reviewed: Box::new(no_verdict(Cause::StoppedByUser)) });
        assert_eq!((outcome(&effects), kinds(&effects)), (Some(Outcome::Interrupted), vec![]));
        let effects = rig.give(Event::Resumed);
        assert_eq!(reviewing(&effects).map(|(id, _)| id), Some(attempt(1, 3)));
        assert_eq!(merged(&rig.review(&attempt(1, 3), approved())), [tip(&id)]);
        rig.fold();
        // While one waits: for a place, or for a backoff.
        let (mut rig, id) = one();
        rig.work(&id, &[1]);
        rig.give(Event::StartFailed { attempt: attempt(1, 2), fault: Fault::new(Cause::EngineError, "busy", true) });
        assert_eq!(outcome(&rig.give(stop)), Some(Outcome::Interrupted));
        assert!(!rig.machine.over());
        assert_eq!(reviewing(&rig.give(Event::Resumed)).map(|(id, _)| id), Some(attempt(1, 3)));
        rig.fold();
    }
}

#[test]
fn a_verdict_is_a_reviewers_and_a_result_an_executors() {
    let (mut rig, id) = one();
    rig.complete(&id);
    let reviewed = |id: &AttemptId| Event::ReviewCollected { attempt: id.clone(), reviewed: Box::new(approved()) };
    rig.ignores(reviewed(&id));
    rig.give(collected(&id, Some(50), vec![finished(1)]));
    rig.complete(&attempt(1, 2));
    rig.ignores(collected(&attempt(1, 2), Some(50), vec![finished(1)]));
    assert_eq!(merged(&rig.give(reviewed(&attempt(1, 2)))), [commit(50)]);
    rig.ignores(reviewed(&attempt(1, 2)));
}
