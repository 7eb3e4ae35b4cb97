//! The engine's absence, silence and pauses, rule by rule.

use super::*;
use crate::swarm::event::StopLevel;
use crate::swarm::machine::Phase;

fn lost() -> Event {
    Event::EngineLost { problem: "connection refused".to_owned() }
}

fn unreachable(id: &AttemptId) -> Event {
    let fault = Fault { unreachable: true, ..Fault::new(Cause::EngineError, "no engine answers", true) };
    Event::StartFailed { attempt: id.clone(), fault }
}

/// One story, no machinery retry, and a sandbox that may say nothing for 20 s.
fn one() -> (Rig, AttemptId) {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.machinery_retries = 0;
    plan.limits.liveness = Duration::from_secs(20);
    let (rig, _) = Rig::began(plan);
    (rig, attempt(1, 1))
}

#[test]
fn what_fails_while_the_engine_is_away_costs_nothing_and_waits_for_it() {
    let (mut rig, id) = one();
    rig.give(lost());
    rig.ignores(lost());
    rig.give(unreachable(&id));
    rig.wait(10);
    assert_eq!(started(&rig.give(Event::DeadlinePassed)), [], "its backoff is over, and the engine is away");
    assert_eq!(started(&rig.give(Event::EngineBack)), [attempt(1, 2)]);
    rig.ignores(Event::EngineBack);
    // Also where the engine's absence is not told yet.
    rig.give(unreachable(&attempt(1, 2)));
    assert_eq!(started(&rig.deadline(1)), [attempt(1, 3)]);
    assert_eq!(outcome(&rig.land(&attempt(1, 3), &[1], 7)), Some(Outcome::Landed));
}

#[test]
fn a_sandbox_that_the_engine_took_along_is_the_engines_failure_and_free() {
    for (code, vanished) in [(Some(137), false), (Some(143), false), (None, true), (Some(255), false)] {
        let (mut rig, id) = one();
        rig.run(&id);
        let exit = Exit { code, vanished, engine_lost: true, ..Exit::default() };
        rig.give(ended(&id, exit));
        rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!((rig.cause(1), rig.status(1)), (Some(Cause::EngineError), StoryStatus::Pending), "{code:?}");
        assert_eq!(started(&rig.deadline(1)), [attempt(1, 2)], "no machinery retry was there to be used up");
    }
    // A shim that was told to stop by the engine's own end says so.
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(completion(&id, 1, CompletionStatus::Stopped));
    rig.give(ended(&id, Exit { engine_lost: true, ..exit(0) }));
    rig.give(collected(&id, None, vec![failed(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::EngineError));
    assert_eq!(started(&rig.deadline(1)), [attempt(1, 2)]);
    // Memory stays memory.
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(ended(&id, Exit { oom_killed: true, engine_lost: true, ..exit(137) }));
    rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
    assert_eq!(rig.cause(1), Some(Cause::Oom));
}

#[test]
fn what_an_engine_stops_in_its_last_moments_costs_nothing_either() {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.machinery_retries = 1;
    let (mut rig, _) = Rig::began(plan);
    for number in 1..=3 {
        let id = attempt(1, number);
        rig.run(&id);
        rig.give(ended(&id, exit(137)));
        rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(rig.cause(1), Some(Cause::KilledOutside), "it still answered, and did not say why");
        rig.wait(10);
        rig.give(lost());
        assert_eq!(started(&rig.give(Event::EngineBack)), [], "its backoff is told by the clock");
        assert_eq!(started(&rig.give(Event::DeadlinePassed)), [attempt(1, number + 1)]);
    }
}

#[test]
fn a_collect_waits_for_the_engine_longer_than_for_a_fault() {
    let (mut rig, id) = one();
    rig.complete(&id);
    rig.give(lost());
    for _ in 0..10 {
        rig.give(collect_failed(&id, Cause::EngineError, true, None));
        rig.wait(2);
        let again = rig.give(Event::DeadlinePassed);
        assert!(matches!(again[..], [Effect::Collect { .. }]), "{again:?}");
    }
    rig.give(Event::EngineBack);
    rig.give(collected(&id, Some(5), vec![finished(1)]));
    assert_eq!(outcome(&rig.give(Event::Merged { attempt: id, head: commit(7) })), Some(Outcome::Landed));
}

#[test]
fn an_engine_that_stays_away_ends_the_swarm_to_be_resumed() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(lost());
    while outcome(&rig.give(Event::DeadlinePassed)).is_none() {
        rig.now = rig.machine.next_deadline().expect("the engine's");
        assert!(rig.now <= Duration::from_secs(300));
    }
    assert_eq!(rig.machine.finished(), Some(Outcome::MachineryFailed));
    assert!(!rig.machine.over());
    rig.give(Event::Resumed);
    assert_eq!(rig.machine.attempt(&id).expect("there").phase, Phase::Running);
    rig.give(completion(&id, 1, CompletionStatus::Completed));
    rig.give(ended(&id, exit(0)));
    rig.give(collected(&id, Some(5), vec![finished(1)]));
    assert_eq!(outcome(&rig.give(Event::Merged { attempt: id, head: commit(7) })), Some(Outcome::Landed));
}

#[test]
fn a_stop_leaves_the_sandboxes_of_an_absent_engine_for_resume() {
    let stop = Event::StopRequested { level: StopLevel::Graceful, by: "SIGINT".to_owned() };
    for order in [[lost(), stop.clone()], [stop, lost()]] {
        let (mut rig, id) = one();
        rig.run(&id);
        let [first, second] = order;
        assert_eq!(outcome(&rig.give(first)), None);
        assert_eq!(outcome(&rig.give(second)), Some(Outcome::Interrupted));
        assert!(!rig.machine.over());
        rig.give(Event::Resumed);
        assert_eq!(rig.machine.attempt(&id).expect("there").phase, Phase::Running);
    }
}

#[test]
fn silence_is_looked_into_and_ends_the_sandbox_with_what_was_seen() {
    for paused in [false, true] {
        let (mut rig, id) = one();
        rig.run(&id);
        rig.wait(15);
        rig.give(said(&id, 1, 1, StoryStatus::InProgress));
        let examine = [Effect::Examine { attempt: id.clone() }];
        assert_eq!(rig.deadline(20), examine, "20 s after its last word");
        // No answer: asked again.
        assert_eq!(rig.deadline(20), examine);
        let processes = vec!["1 acp-shim serve".to_owned()];
        let effects = rig.give(Event::Examined { attempt: id.clone(), paused, processes: processes.clone() });
        let told = announced(&effects, |said| matches!(said, Announcement::SandboxPaused { .. }));
        assert_eq!(told, usize::from(paused));
        let end = if paused { Effect::Kill { attempt: id.clone() } } else { Effect::Terminate { attempt: id.clone() } };
        assert!(effects.contains(&end), "{effects:?}");
        rig.give(ended(&id, exit(137)));
        let effects = rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(outcome(&effects), Some(Outcome::MachineryFailed), "it had no machinery retry");
        let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
        assert_eq!(failure.cause, Cause::ConnectionLost);
        assert_eq!(failure.evidence.processes, processes);
        assert_eq!(failure.evidence.summary.contains("paused"), paused, "{}", failure.evidence.summary);
    }
}

#[test]
fn a_word_that_comes_while_it_is_looked_into_saves_it() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.deadline(20);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.ignores(Event::Examined { attempt: id.clone(), paused: false, processes: Vec::new() });
    // A pause is told, and ends nothing by itself; its end is not told.
    let pause = |paused| Event::Examined { attempt: id.clone(), paused, processes: Vec::new() };
    assert!(matches!(rig.give(pause(true))[..], [Effect::Announce(Announcement::SandboxPaused { .. })]));
    rig.ignores(pause(true));
    assert_eq!(rig.give(pause(false)), []);
}

#[test]
fn an_absent_engines_silence_proves_nothing() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(lost());
    assert_eq!(rig.deadline(20), []);
    rig.wait(19);
    rig.give(Event::EngineBack);
    assert_eq!(rig.deadline(20), [Effect::Examine { attempt: id }], "counted from the engine's return");
}

#[test]
fn a_time_that_ran_out_in_a_pause_is_nobodys_failure_but_the_pauses() {
    for paused in [false, true] {
        let mut plan = spec(&[&[(1, &[])]]);
        plan.limits.retries = 0;
        let (mut rig, _) = Rig::began(plan);
        let id = attempt(1, 1);
        rig.run(&id);
        for is in [paused, false] {
            rig.give(Event::Examined { attempt: id.clone(), paused: is, processes: Vec::new() });
        }
        rig.give(completion(&id, 1, CompletionStatus::Failed));
        rig.give(ended(&id, exit(0)));
        rig.give(collected(&id, None, vec![failed(1, Cause::Timeout)]));
        let (cause, status) = match paused {
            true => (Cause::KilledOutside, StoryStatus::Pending),
            false => (Cause::Timeout, StoryStatus::Failed),
        };
        assert_eq!((rig.cause(1), rig.status(1)), (Some(cause), status));
    }
}
