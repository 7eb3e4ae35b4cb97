//! Computes from scratch what the machine keeps up to date, and compares.

use std::collections::BTreeSet;

use crate::protocol::acp::message::StoryStatus;
use crate::swarm::index::{AssignmentIndex, AttemptIndex, StoryIndex};
use crate::swarm::machine::attempt::{Attempt, Suspension};
use crate::swarm::machine::deadlines::{Deadlines, Timer};
use crate::swarm::machine::state::QueueEntry;
use crate::swarm::machine::{AttemptPhase, HoldKind, SwarmMachine};

/// Panics if a count or an index of the machine does not match its stories and attempts.
pub(crate) fn assert_consistent(machine: &SwarmMachine) {
    let active: BTreeSet<AttemptIndex> =
        machine.find_attempts(|attempt| attempt.view.phase != AttemptPhase::Settled).into_iter().collect();
    assert_eq!(machine.active, active.len(), "active");
    let running: BTreeSet<AttemptIndex> =
        active.iter().copied().filter(|attempt| holds_slot(&machine.attempts[*attempt])).collect();
    assert_eq!(machine.running, running, "running");
    let slots = machine.spec.limits.max_sandboxes;
    match machine.spec.landing {
        None => assert!(running.len() <= slots, "more running sandboxes than slots"),
        Some(_) => {
            let executors = |attempt: &&AttemptIndex| machine.attempts[**attempt].view.is_executor();
            let taken: BTreeSet<AttemptIndex> = active.iter().filter(executors).copied().collect();
            assert!(machine.slots.is_subset(&taken), "slots of attempts that are over");
            let held =
                |attempt: &&AttemptIndex| machine.assignments[machine.attempts[**attempt].assignment].hold.is_some();
            assert!(
                taken
                    .difference(&machine.slots)
                    .all(|attempt| held(&attempt) || machine.attempts[*attempt].is_suspended()),
                "finished work without a slot"
            );
            let ended = |id: &&u64| !machine.landings.contains_key(id);
            assert!(
                machine.branches.iter().filter_map(|branch| branch.landing.as_ref()).find(ended).is_none(),
                "a landing is over"
            );
        }
    }
    assert!(machine.effects.is_empty(), "effects of an event that is over");
    assert_reviews_consistent(machine, &active);
    assert_assignments_consistent(machine, &active);
    assert_deadlines_consistent(machine);
    let count = |test: fn(&StoryStatus) -> bool| machine.stories().filter(|view| test(&view.status)).count();
    assert_eq!(machine.counts.landed, count(|status| *status == StoryStatus::Completed), "landed");
    assert_eq!(machine.counts.failed, count(|status| *status == StoryStatus::Failed), "failed");
    assert_eq!(machine.counts.skipped, count(|status| *status == StoryStatus::Skipped), "skipped");
    let open = |status: &StoryStatus| matches!(status, StoryStatus::Pending | StoryStatus::InProgress);
    assert_eq!(machine.counts.open, count(open), "open");
    for (branch, state) in machine.branches.iter_indexed() {
        let is_merging = |attempt: &&AttemptIndex| {
            let attempt = &machine.attempts[**attempt];
            let on_branch = machine.assignments[attempt.assignment].branch == branch;
            attempt.view.phase == AttemptPhase::Merging && on_branch
        };
        let merging: Vec<AttemptIndex> = active.iter().filter(is_merging).copied().collect();
        if machine.spec.landing.is_some() {
            continue;
        }
        assert!(
            merging.len() <= 1 && merging.first().is_none_or(|attempt| state.merging == Some(*attempt)),
            "one merge at a time"
        );
        assert!(state.queue.is_empty() || state.merging.is_some(), "a queue behind no merge");
    }
}

fn assert_assignments_consistent(machine: &SwarmMachine, active: &BTreeSet<AttemptIndex>) {
    let is_open = |story: &&StoryIndex| !machine.stories[**story].view.is_closed();
    let executors = active.iter().filter(|attempt| machine.attempts[**attempt].view.is_executor());
    let active_assignments: Vec<AssignmentIndex> =
        executors.map(|attempt| machine.attempts[*attempt].assignment).collect();
    for (index, state) in machine.assignments.iter_indexed() {
        let open: Vec<&StoryIndex> = state.stories.iter().filter(is_open).collect();
        assert_eq!(state.open_stories, open.len(), "open stories of {}", state.id);
        let unmet = open
            .iter()
            .flat_map(|story| &machine.stories[**story].dependencies)
            .filter(|other| machine.stories[**other].assignment != Some(index))
            .filter(is_open)
            .count();
        assert_eq!(state.unmet_dependencies, unmet, "unmet dependencies of {}", state.id);
        let attempts = active_assignments.iter().filter(|other| **other == index).count();
        assert_eq!(usize::from(state.active), attempts, "at most one active attempt of {}", state.id);
        let exclusions = state.exclusive_with.iter().filter(|other| active_assignments.contains(other)).count();
        assert_eq!(state.active_exclusions, exclusions, "active exclusions of {}", state.id);
        let ready = machine.began
            && attempts == 0
            && !open.is_empty()
            && unmet == 0
            && exclusions == 0
            && state.hold.is_none()
            && !machine.deadlines.contains(Timer::AssignmentBackoff(index));
        let entry = QueueEntry { priority: state.priority, index };
        assert_eq!(machine.ready.contains(&entry), ready, "readiness of {}", state.id);
    }
}

fn assert_deadlines_consistent(machine: &SwarmMachine) {
    let mut known = Deadlines::default();
    let mut keep = |timer: Timer| known.set(timer, machine.deadlines.get(timer));
    for (index, attempt) in machine.attempts.iter_indexed() {
        let timer = Timer::Attempt(index);
        assert_eq!(attempt.timer.is_some(), machine.deadlines.contains(timer), "the timer of {}", attempt.view.id);
        keep(timer);
        let silence = Timer::AttemptSilence(index);
        let running = attempt.view.phase == AttemptPhase::Running;
        assert!(running || !machine.deadlines.contains(silence), "the silence of {}", attempt.view.id);
        keep(silence);
    }
    machine.assignments.indices().for_each(|assignment| keep(Timer::AssignmentBackoff(assignment)));
    machine.landings.keys().for_each(|landing| keep(Timer::Landing(*landing)));
    keep(Timer::EngineReturn);
    assert_eq!(machine.deadlines, known, "deadlines");
}

fn holds_slot(attempt: &Attempt) -> bool {
    attempt.view.phase.has_container() && matches!(attempt.suspension, Suspension::Never | Suspension::Resumed)
}

/// What is under review, waits for a review, or waits for the admin.
fn assert_reviews_consistent(machine: &SwarmMachine, active: &BTreeSet<AttemptIndex>) {
    let waits_for_review = |attempt: &AttemptIndex| machine.attempts[*attempt].view.phase == AttemptPhase::Reviewing;
    let reviewers: Vec<AttemptIndex> =
        active.iter().copied().filter(|attempt| machine.attempts[*attempt].is_review()).collect();
    let mut reviewed = BTreeSet::new();
    for reviewer in &reviewers {
        let work = machine.reviewed_attempt(*reviewer).expect("what it reviews");
        assert!(waits_for_review(&work), "a reviewer of work that is not under review");
        assert!(reviewed.insert(work), "two reviewers of the same work");
        assert_eq!(machine.attempts[work].assignment, machine.attempts[*reviewer].assignment);
    }
    let parked: BTreeSet<AttemptIndex> =
        active.iter().copied().filter(waits_for_review).filter(|attempt| !reviewed.contains(attempt)).collect();
    let frozen = reviewers.iter().filter(|attempt| machine.attempts[**attempt].is_suspended()).count();
    assert_eq!(machine.parked, parked.len() + frozen, "parked");
    let suspended = machine.find_attempts(|attempt| attempt.is_suspended());
    assert_eq!(machine.suspended, suspended.len(), "suspended");
    for index in &suspended {
        let attempt = &machine.attempts[*index];
        assert_eq!(attempt.view.phase, AttemptPhase::Running, "only a running attempt is suspended");
        let timers = [Timer::Attempt(*index), Timer::AttemptSilence(*index)];
        assert!(!timers.into_iter().any(|timer| machine.deadlines.contains(timer)), "its timers stand still");
        let waking = machine.wake_queue.contains(&machine.queue_entry(*index));
        let hold = machine.assignments[attempt.assignment].hold.as_ref();
        let held = hold.is_some_and(|hold| hold.kind == HoldKind::Suspended);
        assert!(held != waking, "it waits for the admin, or for a slot");
    }
    assert!(machine.wake_queue.iter().all(|entry| suspended.contains(&entry.index)), "wake queue");
    for entry in &machine.review_queue {
        assert!(parked.contains(&entry.index), "only parked work waits for a reviewer");
        assert!(machine.attempts[entry.index].timer.is_none(), "it waits, or its backoff runs");
    }
    for (index, assignment) in machine.assignments.iter_indexed() {
        let Some(hold) = &assignment.hold else { continue };
        let belongs = |attempt: &&AttemptIndex| machine.attempts[**attempt].assignment == index;
        match hold.kind {
            HoldKind::Approval => assert!(!assignment.active, "it runs without an approval"),
            HoldKind::Suspended => assert!(suspended.iter().any(|attempt| belongs(&attempt))),
            HoldKind::Locked | HoldKind::LowConfidence | HoldKind::NoVerdict => {
                let work = parked.iter().find(belongs).expect("the held work is there");
                assert!(!machine.review_queue.contains(&machine.queue_entry(*work)), "held work is not reviewed");
            }
        }
    }
    for index in &parked {
        let attempt = &machine.attempts[*index];
        let waits = machine.review_queue.contains(&machine.queue_entry(*index)) || attempt.timer.is_some();
        assert!(waits || machine.assignments[attempt.assignment].hold.is_some(), "parked work is forgotten");
    }
}
