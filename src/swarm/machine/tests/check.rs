//! Computes again from scratch what the machine keeps up to date, and compares.

use std::collections::BTreeSet;

use super::super::deadline::Timer;
use super::super::{Machine, Phase};
use crate::protocol::acp::message::StoryStatus;

/// Panics where a count or an index of the machine is not what its stories and attempts say.
pub(crate) fn consistent(machine: &Machine) {
    let decided = |story: &usize| machine.stories[*story].decided();
    let active: BTreeSet<usize> =
        (0..machine.attempts.len()).filter(|place| machine.attempts[*place].view.phase != Phase::Settled).collect();
    assert_eq!(machine.active, active.len(), "active");
    let running: BTreeSet<usize> =
        active.iter().copied().filter(|place| machine.attempts[*place].view.phase.holds_slot()).collect();
    assert_eq!(machine.running, running, "running");
    let active_assignments: Vec<usize> = active.iter().map(|place| machine.attempts[*place].assignment).collect();
    for (place, state) in machine.assignments.iter().enumerate() {
        let members = &machine.index.members[place];
        assert_eq!(state.undecided, members.iter().filter(|story| !decided(story)).count(), "undecided of {place}");
        let waits =
            members.iter().filter(|story| !decided(story)).flat_map(|story| &machine.index.dependencies[*story]);
        let waits = waits.filter(|other| machine.index.owner[**other] != Some(place) && !decided(other)).count();
        assert_eq!(state.waiting_on, waits, "waiting_on of {place}");
        let times = active_assignments.iter().filter(|other| **other == place).count();
        assert_eq!(usize::from(state.active), times, "one active attempt of {place} at most");
        let held = machine.index.apart[place].iter().filter(|other| active_assignments.contains(other)).count();
        assert_eq!(state.held_by, held, "held_by of {place}");
        let ready =
            machine.began && times == 0 && state.undecided > 0 && waits == 0 && held == 0 && state.backoff.is_none();
        let entry = (machine.spec.assignments[place].priority, place);
        assert_eq!(machine.ready.contains(&entry), ready, "ready of {place}");
    }
    let timers = machine.attempts.iter().enumerate().filter_map(|(place, attempt)| {
        let (at, _) = attempt.timer?;
        Some((at, Timer::Attempt(place)))
    });
    let backoffs = machine.assignments.iter().enumerate();
    let backoffs = backoffs.filter_map(|(place, state)| Some((state.backoff?, Timer::Assignment(place))));
    let silences = machine.attempts.iter().enumerate();
    let silences = silences.filter_map(|(place, attempt)| {
        assert!(attempt.silence.is_none() || attempt.view.phase == Phase::Running, "silence of {place}");
        Some((attempt.silence?, Timer::Silence(place)))
    });
    let engine = machine.engine_away.map(|at| (at, Timer::Engine));
    assert_eq!(machine.deadlines, timers.chain(backoffs).chain(silences).chain(engine).collect(), "deadlines");
    let count = |test: fn(&StoryStatus) -> bool| machine.stories.iter().filter(|view| test(&view.status)).count();
    assert_eq!(machine.tally.landed, count(|status| *status == StoryStatus::Completed), "landed");
    assert_eq!(machine.tally.failed, count(|status| *status == StoryStatus::Failed), "failed");
    assert_eq!(machine.tally.skipped, count(|status| *status == StoryStatus::Skipped), "skipped");
    let open = |status: &StoryStatus| matches!(status, StoryStatus::Pending | StoryStatus::InProgress);
    assert_eq!(machine.tally.undecided, count(open), "undecided");
    for (branch, state) in machine.branches.iter().enumerate() {
        let merging: Vec<usize> = active
            .iter()
            .copied()
            .filter(|place| {
                let attempt = &machine.attempts[*place];
                let file = machine.spec.assignments[attempt.assignment].file;
                attempt.view.phase == Phase::Merging && machine.index.branch[usize::from(file)] == branch
            })
            .collect();
        assert!(merging.len() <= 1 && merging.first().is_none_or(|place| state.merging == Some(*place)), "one merge");
        assert!(state.queue.is_empty() || state.merging.is_some(), "a queue with nothing before it");
    }
}
