//! Swarms that are stopped: by a signal, by another process, politely or not. Nothing is lost, and nothing runs on.

use super::*;

/// Two stories that have begun, and one that has not.
fn start_waiting_swarm(scratch: &SwarmFixture) -> (RunningCommand, Vec<SandboxHandle>) {
    let waiting = |number| story(number, &format!("echo {number} > half; {WAIT_FOR_GO}"));
    let tasks = scratch.tasks("feat/stop", json!([waiting(1), waiting(2), depending_on(story(3, "echo 3 > f"), &[1])]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--grace", "2s"]);
    let sandboxes = scratch.sandboxes(2);
    (running, sandboxes)
}

/// What is true after any stop.
fn assert_stopped(scratch: &SwarmFixture, sandboxes: &[SandboxHandle]) {
    let state = scratch.state();
    assert_eq!(state.0["status"], "interrupted");
    state.expect(&["pending stopped_by_user", "pending stopped_by_user", "pending -"]);
    for number in [1, 2] {
        assert_eq!(scratch.show(state.salvage(number), "half"), number.to_string());
    }
    for sandbox in sandboxes {
        assert!(docker(&["inspect", &sandbox.0]).is_err(), "it is gone");
    }
    let filter = format!("label={}={}", label::SWARM, state.swarm());
    assert_eq!(docker(&["ps", "-aq", "--filter", &filter]).expect("a list"), "", "no container is left");
    assert_eq!(scratch.git(&["status", "--porcelain"]), "");
    assert!(!scratch.refs().contains(&"refs/heads/feat/stop".to_owned()), "nothing landed");
}

#[test]
fn an_interrupt_salvages_the_work() {
    let scratch = SwarmFixture::new();
    let (running, sandboxes) = start_waiting_swarm(&scratch);
    scratch.longshore(&["status"]).expect(0, &["running", "US-001", "US-003"]);
    scratch.longshore(&["logs", "US-001"]).expect(0, &["US-001 begins"]);
    running.signal("INT");
    running.wait().expect(130, &["stopped_by_user", "refs/longshore/salvage/"]);
    assert_stopped(&scratch, &sandboxes);
    scratch.longshore(&["status"]).expect(0, &["interrupted"]);
    scratch.longshore(&["stop"]).expect(2, &["is not running"]);
}

#[test]
fn longshore_stop_ends_the_swarm() {
    let scratch = SwarmFixture::new();
    let (running, sandboxes) = start_waiting_swarm(&scratch);
    scratch.longshore(&["stop"]).expect(0, &["its sandboxes are asked to finish"]);
    running.wait().expect(130, &[]);
    assert_stopped(&scratch, &sandboxes);
}

#[test]
fn longshore_stop_kill_ends_the_swarm() {
    let scratch = SwarmFixture::new();
    let (running, sandboxes) = start_waiting_swarm(&scratch);
    scratch.longshore(&["stop", "--kill"]).expect(0, &["its sandboxes are killed"]);
    running.wait().expect(130, &[]);
    assert_stopped(&scratch, &sandboxes);
}

#[test]
fn a_sandbox_killed_from_outside_is_retried() {
    let scratch = SwarmFixture::new();
    let command = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then echo half > half; {WAIT_FOR_GO} fi; echo whole > whole");
    let tasks = scratch.tasks("feat/killed", json!([story(1, &command)]));
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let sandbox = &scratch.sandboxes(1)[0];
    docker(&["kill", &sandbox.0]).expect("killed");
    // The machinery's failure costs the story none of its retries.
    running.wait().expect(0, &["1 landed", "killed_outside"]);
    let state = scratch.state();
    assert_eq!(scratch.paths("feat/killed"), ["lines.txt", "whole"]);
    assert_eq!(scratch.show(&format!("refs/longshore/salvage/{}/US-001/1", state.swarm()), "half"), "half");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
