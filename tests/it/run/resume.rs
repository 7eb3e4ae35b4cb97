//! Swarms that are taken up again: after the orchestrator's death and after a stop. No story runs twice, none is dropped.

use super::*;

/// Each run of a story's command leaves a line in the story's file, so a second run would be seen.
fn counted(number: usize) -> Value {
    story(number, &format!("echo run >> ran-{number}; {WAIT} echo end >> ran-{number}"))
}

#[test]
fn a_killed_orchestrator_is_replaced() {
    let scratch = Scratch::new();
    let last = after(story(3, "cat ran-1 ran-2 > both"), &[1, 2]);
    let tasks = scratch.tasks("feat/again", json!([counted(1), counted(2), last]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--retries", "0"]);
    let sandboxes = scratch.sandboxes(2);
    running.signal("KILL");
    assert_eq!(running.wait().status.code(), None, "nothing could be said");
    scratch.longshore(&["status"]).expect(0, &["dead"]);

    // One ends while nobody looks, the other only under the new orchestrator.
    sandboxes[0].go();
    eventually("the first sandbox ends", || {
        let running = docker(&["inspect", "--format", "{{.State.Running}}", &sandboxes[0].0]).ok()?;
        (running.trim() == "false").then_some(())
    });
    let resumed = scratch.start(&["resume"]);
    sandboxes[1].go();
    resumed.wait().expect(0, &["3 landed"]);

    let state = scratch.state();
    assert_eq!(state.0["containers"].as_array().map(Vec::len), Some(3), "one sandbox a story");
    assert_eq!(scratch.show("feat/again", "both"), "run\nend\nrun\nend");
    assert_eq!(scratch.in_engine(), [""; 0]);
    scratch.longshore(&["resume"]).expect(0, &["nothing to resume"]);
}

#[test]
fn a_stopped_swarm_goes_on() {
    let scratch = Scratch::new();
    let first = story(1, &format!("echo $LONGSHORE_ATTEMPT >> ran-1; if [ $LONGSHORE_ATTEMPT = 1 ]; then {WAIT} fi"));
    let secret = but(after(story(2, "test \"$WORD\" = secret-word && echo 2 > f"), &[1]), json!({}));
    let tasks = scratch.tasks("feat/on", json!([first, secret]));
    let running = scratch.start(&["run", &tasks, "--grace", "2s", "--env", "WORD=secret-word"]);
    scratch.sandboxes(1);
    running.signal("INT");
    running.wait().expect(130, &["longshore resume"]);
    scratch.state().expect(&["pending stopped_by_user", "pending -"]);

    // The value is kept nowhere, so it has to be given again.
    scratch.longshore(&["resume"]).expect(2, &["WORD"]);
    scratch.longshore(&["resume", "--env", "WORD=secret-word"]).expect(0, &["2 landed"]);
    assert_eq!(scratch.show("feat/on", "ran-1"), "2", "what the stopped attempt left is in its salvage ref alone");
    assert_eq!(scratch.in_engine(), [""; 0]);
}

#[test]
fn fifty_live_sandboxes_are_taken_up_none_lost_and_none_doubled() {
    let scratch = Scratch::new();
    let wait = "until [ -e /tmp/go ]; do sleep 0.5; done; ";
    let stories: Vec<Value> =
        (1..=50).map(|number| story(number, &format!("touch /tmp/begun; {wait} echo {number} > f{number}"))).collect();
    let tasks = scratch.tasks("feat/fifty", json!(stories));
    let running = scratch.start(&["run", &tasks, "--max", "50", "--memory", "64m", "--reserve-memory", "16m"]);
    let sandboxes = scratch.sandboxes(50);
    running.signal("KILL");
    running.wait();
    let running = scratch.start(&["resume"]);
    for sandbox in &sandboxes {
        sandbox.go();
    }
    running.wait().expect(0, &["50 sandboxes still running", "50 landed"]);
    let state = scratch.state();
    for number in 1..=50 {
        assert_eq!(state.story(number)["attempts"], 1, "US-{number:03} ran in one sandbox");
    }
    let history = scratch.git(&["log", "--format=%s", "feat/fifty"]);
    let mut own: Vec<&str> = history.lines().filter(|line| line.starts_with("US-")).collect();
    own.sort_unstable();
    let wanted: Vec<String> = (1..=50).map(|number| format!("US-{number:03}: Story {number}")).collect();
    assert_eq!(own, wanted, "each landed once");
    assert_eq!(scratch.in_engine(), [""; 0], "nothing is left");
}
