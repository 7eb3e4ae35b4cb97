//! Swarms that are resumed after their sandboxes have ended. On several threads and with the real clock: what is tested is an order
//! between tasks.

use super::*;
use crate::swarm::{AttemptPhase, Event, MachineryFault};

/// More sandboxes than an orchestrator can adopt before the first of them reports its end.
const SANDBOXES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sandboxes_that_ended_while_a_failed_swarm_was_away_are_noticed() {
    let mut simulation = Simulation::new(1);
    let engine = FakeEngine::new({
        let script = simulation.sandboxes.clone();
        move |run| {
            let script = script.clone();
            async move {
                match run.spec.argv.get(1).map(String::as_str) {
                    Some("depot") => script.run(run).await,
                    // Its story never ends.
                    _ => std::future::pending().await,
                }
            }
        }
    })
    .with_image("image");
    simulation.faulty_engine = FaultyEngine::new(engine.clone(), 1, FaultRates::default());
    let stories: Vec<_> = (1..=SANDBOXES)
        .map(|number| {
            json!({
                "id": format!("US-{number:03}"), "title": "Story", "description": "", "acceptanceCriteria": [],
                "priority": number, "status": "pending", "dependsOn": [], "notes": "", "command": "true",
            })
        })
        .collect();
    let (setup, lock) = simulation.swarm_of(&stories, SANDBOXES, 0).await;
    let dir = setup.dir.clone();
    let all_run = async {
        let is_running = |dir: &SwarmDir| {
            let machine = recover(dir).unwrap().machine;
            machine.attempts().filter(|view| view.phase == AttemptPhase::Running).count() == SANDBOXES
        };
        while !is_running(&dir) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = run(setup, StopSignals::new()) => panic!("it ended: {ended:?}"),
        () = all_run => {}
    }
    drop(lock);

    let (mut store, contents) = SwarmStore::open(dir.clone()).unwrap();
    let elapsed = replay(contents).elapsed;
    let fault = MachineryFault::new(Cause::EngineError, "the engine could not be reached", false);
    store.append(&[(Event::MachineryFailed { fault }, elapsed)], Timestamp::now()).unwrap();
    drop(store);
    assert_eq!(recover(&dir).unwrap().machine.outcome(), Some(SwarmOutcome::MachineryFailed));
    engine.kill_all(143);

    let (setup, _lock) = simulation.resume(&dir).await;
    let all_ended = async {
        let is_first_over =
            |view: &crate::swarm::AttemptView| view.id.number > 1 || view.phase == AttemptPhase::Settled;
        while !recover(&dir).unwrap().machine.attempts().all(is_first_over) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = run(setup, StopSignals::new()) => panic!("it ended: {ended:?}"),
        () = all_ended => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => {
            let machine = recover(&dir).unwrap().machine;
            let phases: Vec<_> = machine.attempts().map(|view| (view.id.clone(), view.phase)).collect();
            panic!("some ends were not noticed: {phases:?}");
        }
    }
}
