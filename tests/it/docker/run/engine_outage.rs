//! The engine goes away in the middle of a swarm, and comes back: a daemon of the test's own is killed or told to end.

use super::*;
use crate::docker::second_daemon::SecondDaemon;

/// At its first attempt a story writes a file and waits for ever; at its second it is done at once.
fn two_step_story(number: usize) -> Value {
    let once = "if [ $LONGSHORE_ATTEMPT = 1 ]; then echo half > half; touch /tmp/begun; sleep 1000; fi; ";
    story(number, &format!("{once}echo {number} > f{number}"))
}

/// Takes the daemon away from two running sandboxes by `end`, gives it back, and expects that nothing was lost by it.
fn assert_survives(end: impl Fn(&SecondDaemon)) {
    let daemon = SecondDaemon::start();
    let host = daemon.host();
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks(
        "feat/outage",
        json!([two_step_story(1), two_step_story(2), depending_on(story(3, "cat f1 f2 > f3"), &[1, 2])]),
    );
    let args = ["run", &tasks, "--max", "2", "--retries", "0", "--grace", "2s"];
    let running = scratch.start_with(&args, &[("DOCKER_HOST", &host)]);
    eventually("both sandboxes run their stories", || {
        let listed = daemon.docker(&["ps", "-q", "--filter", SANDBOX_FILTER]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let has_begun = |id: &&str| daemon.docker(&["exec", id, "test", "-e", "/tmp/begun"]).status.success();
        (listed.split_whitespace().filter(has_begun).count() == 2).then_some(())
    });
    end(&daemon);
    daemon.restart();
    let ran = running.wait().expect(0, &["the engine does not answer", "the engine answers again"]);
    assert!(ran.err.contains("engine_error"), "the engine's end is the cause: {}", ran.err);
    let state = scratch.state();
    state.expect(&["landed", "landed", "landed"]);
    for number in [1, 2] {
        assert_eq!(state.story(number)["attempts"], 2, "once before, once after");
    }
    assert_eq!(scratch.show("feat/outage", "f3"), "1\n2");
    let history = scratch.git(&["log", "--format=%s", "feat/outage"]);
    for number in [1, 2, 3] {
        let subject = format!("US-00{number}: Story {number}");
        assert_eq!(history.lines().filter(|line| **line == subject).count(), 1, "landed once: {history}");
    }
    // What the first attempts had is kept.
    for number in [1, 2] {
        let salvage = format!("refs/longshore/salvage/{}/US-00{number}/1", state.swarm());
        assert_eq!(scratch.show(&salvage, "half"), "half");
    }
    let left = daemon.docker(&["ps", "-aq"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "no container is left");
}

#[test]
fn a_killed_and_restarted_daemon_costs_no_attempt() {
    assert_survives(SecondDaemon::kill);
}

#[test]
fn a_terminated_and_restarted_daemon_costs_no_attempt() {
    assert_survives(SecondDaemon::terminate);
}

#[test]
fn a_swarm_interrupted_without_its_engine_can_be_resumed() {
    let daemon = SecondDaemon::start();
    let host = daemon.host();
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks("feat/outage", json!([two_step_story(1)]));
    let running = scratch.start_with(&["run", &tasks, "--grace", "2s"], &[("DOCKER_HOST", &host)]);
    eventually("the sandbox runs", || {
        let listed = daemon.docker(&["ps", "-q", "--filter", SANDBOX_FILTER]);
        let id = String::from_utf8_lossy(&listed.stdout).trim().to_owned();
        (!id.is_empty() && daemon.docker(&["exec", &id, "test", "-e", "/tmp/begun"]).status.success()).then_some(())
    });
    daemon.kill();
    running.signal("INT");
    running.wait().expect(130, &["the engine does not answer"]);
    scratch.start_with(&["resume"], &[("DOCKER_HOST", &host)]).wait().expect(3, &["no engine answers"]);
    daemon.restart();
    scratch.start_with(&["resume"], &[("DOCKER_HOST", &host)]).wait().expect(0, &["US-001"]);
    let state = scratch.state();
    state.expect(&["landed"]);
    let salvage = format!("refs/longshore/salvage/{}/US-001/1", state.swarm());
    assert_eq!(scratch.show(&salvage, "half"), "half");
    assert_eq!(scratch.show("feat/outage", "f1"), "1");
}
