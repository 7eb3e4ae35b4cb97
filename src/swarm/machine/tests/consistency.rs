//! Computes again from scratch what the machine keeps up to date, and compares.

use std::collections::BTreeSet;

use super::super::timer::Timer;
use super::super::{AttemptPhase, AttemptState, HoldKind, SwarmMachine};
use crate::protocol::acp::message::StoryStatus;

/// Panics where a count or an index of the machine is not what its stories and attempts say.
pub(crate) fn assert_consistent(machine: &SwarmMachine) {
    let decided = |story: &usize| machine.stories[*story].is_closed();
    let active: BTreeSet<usize> = (0..machine.attempts.len())
        .filter(|place| machine.attempts[*place].view.phase != AttemptPhase::Settled)
        .collect();
    assert_eq!(machine.active, active.len(), "active");
    let running: BTreeSet<usize> =
        active.iter().copied().filter(|place| holds_slot(&machine.attempts[*place])).collect();
    assert_eq!(machine.running, running, "running");
    assert!(running.len() <= machine.spec.limits.max_sandboxes, "more places than there are");
    assert_reviews_consistent(machine, &active);
    let executors = active.iter().filter(|place| machine.attempts[**place].view.review.is_none());
    let active_assignments: Vec<usize> = executors.map(|place| machine.attempts[*place].assignment).collect();
    for (place, state) in machine.assignments.iter().enumerate() {
        let members = &machine.index.assignment_stories[place];
        assert_eq!(state.open_stories, members.iter().filter(|story| !decided(story)).count(), "undecided of {place}");
        let waits =
            members.iter().filter(|story| !decided(story)).flat_map(|story| &machine.index.dependencies[*story]);
        let waits =
            waits.filter(|other| machine.index.story_assignment[**other] != Some(place) && !decided(other)).count();
        assert_eq!(state.unmet_dependencies, waits, "waiting_on of {place}");
        let times = active_assignments.iter().filter(|other| **other == place).count();
        assert_eq!(usize::from(state.active), times, "one active attempt of {place} at most");
        let held =
            machine.index.exclusive_with[place].iter().filter(|other| active_assignments.contains(other)).count();
        assert_eq!(state.active_exclusions, held, "held_by of {place}");
        let ready = machine.began
            && times == 0
            && state.open_stories > 0
            && waits == 0
            && held == 0
            && state.backoff_until.is_none();
        let ready = ready && machine.holds[place].is_none();
        let entry = (machine.spec.assignments[place].priority, place);
        assert_eq!(machine.ready.contains(&entry), ready, "ready of {place}");
    }
    let timers = machine.attempts.iter().enumerate().filter_map(|(place, attempt)| {
        let (at, _) = attempt.timer?;
        Some((at, Timer::Attempt(place)))
    });
    let backoffs = machine.assignments.iter().enumerate();
    let backoffs = backoffs.filter_map(|(place, state)| Some((state.backoff_until?, Timer::AssignmentBackoff(place))));
    let silences = machine.attempts.iter().enumerate();
    let silences = silences.filter_map(|(place, attempt)| {
        assert!(
            attempt.silence_deadline.is_none() || attempt.view.phase == AttemptPhase::Running,
            "silence of {place}"
        );
        Some((attempt.silence_deadline?, Timer::AttemptSilence(place)))
    });
    let engine = machine.engine_wait_until.map(|at| (at, Timer::EngineReturn));
    assert_eq!(machine.deadlines, timers.chain(backoffs).chain(silences).chain(engine).collect(), "deadlines");
    let count = |test: fn(&StoryStatus) -> bool| machine.stories.iter().filter(|view| test(&view.status)).count();
    assert_eq!(machine.counts.landed, count(|status| *status == StoryStatus::Completed), "landed");
    assert_eq!(machine.counts.failed, count(|status| *status == StoryStatus::Failed), "failed");
    assert_eq!(machine.counts.skipped, count(|status| *status == StoryStatus::Skipped), "skipped");
    let open = |status: &StoryStatus| matches!(status, StoryStatus::Pending | StoryStatus::InProgress);
    assert_eq!(machine.counts.open, count(open), "undecided");
    for (branch, state) in machine.branches.iter().enumerate() {
        let merging: Vec<usize> = active
            .iter()
            .copied()
            .filter(|place| {
                let attempt = &machine.attempts[*place];
                let file = machine.spec.assignments[attempt.assignment].file;
                attempt.view.phase == AttemptPhase::Merging && machine.index.file_branch[usize::from(file)] == branch
            })
            .collect();
        assert!(merging.len() <= 1 && merging.first().is_none_or(|place| state.merging == Some(*place)), "one merge");
        assert!(state.queue.is_empty() || state.merging.is_some(), "a queue with nothing before it");
    }
}

fn holds_slot(attempt: &AttemptState) -> bool {
    attempt.view.phase.holds_slot() && attempt.suspended.is_none() && !attempt.evicted
}

/// What is under review, what waits for a review, and what waits for the admin.
fn assert_reviews_consistent(machine: &SwarmMachine, active: &BTreeSet<usize>) {
    let in_phase = |place: &usize| machine.attempts[*place].view.phase == AttemptPhase::Reviewing;
    let reviewers: Vec<usize> =
        active.iter().copied().filter(|place| machine.attempts[*place].view.review.is_some()).collect();
    let mut reviewed = BTreeSet::new();
    for place in &reviewers {
        let of = machine.reviewed_attempt(*place).expect("what it reviews");
        assert!(in_phase(&of), "a reviewer at work that is not under review");
        assert!(reviewed.insert(of), "two reviewers of the same work");
        assert_eq!(machine.attempts[of].assignment, machine.attempts[*place].assignment);
    }
    let parked: BTreeSet<usize> =
        active.iter().copied().filter(in_phase).filter(|place| !reviewed.contains(place)).collect();
    let frozen = reviewers.iter().filter(|place| machine.attempts[**place].suspended.is_some()).count();
    assert_eq!(machine.parked, parked.len() + frozen, "parked");
    let suspended: Vec<usize> =
        (0..machine.attempts.len()).filter(|place| machine.attempts[*place].suspended.is_some()).collect();
    assert_eq!(machine.suspended, suspended.len(), "suspended");
    for place in &suspended {
        let attempt = &machine.attempts[*place];
        assert_eq!(attempt.view.phase, AttemptPhase::Running, "what is suspended has begun, and has not ended");
        assert!(
            attempt.timer.is_none() && attempt.silence_deadline.is_none(),
            "the timers of what is suspended stand still"
        );
        let waking = machine.wake_queue.contains(&(machine.spec.assignments[attempt.assignment].priority, *place));
        let held = machine.holds[attempt.assignment].as_ref().is_some_and(|hold| hold.kind == HoldKind::Suspended);
        assert!(held != waking, "it waits for the admin, or for a place");
    }
    assert!(machine.wake_queue.iter().all(|(_, place)| suspended.contains(place)), "wakes");
    for (_, of) in &machine.review_queue {
        assert!(parked.contains(of), "only parked work waits for a reviewer");
        assert!(machine.attempts[*of].timer.is_none(), "it waits, or its backoff runs");
    }
    for (assignment, hold) in machine.holds.iter().enumerate() {
        let Some(hold) = hold else { continue };
        let work = parked.iter().find(|place| machine.attempts[**place].assignment == assignment);
        match hold.kind {
            HoldKind::Approval => assert!(!machine.assignments[assignment].active, "it runs unapproved"),
            HoldKind::Suspended => {
                assert!(suspended.iter().any(|place| machine.attempts[*place].assignment == assignment));
            }
            HoldKind::Locked | HoldKind::LowConfidence | HoldKind::NoVerdict => {
                let work = work.expect("what is held is there");
                let entry = (machine.spec.assignments[assignment].priority, *work);
                assert!(!machine.review_queue.contains(&entry), "held work is not reviewed");
            }
        }
    }
    for place in &parked {
        let attempt = &machine.attempts[*place];
        let entry = (machine.spec.assignments[attempt.assignment].priority, *place);
        let waits = machine.review_queue.contains(&entry) || attempt.timer.is_some();
        assert!(waits || machine.holds[attempt.assignment].is_some(), "parked work that nothing comes of");
    }
}
