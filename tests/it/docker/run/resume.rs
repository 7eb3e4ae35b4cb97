//! Swarms that are taken up again: after the orchestrator's death and after a stop. No story runs twice, none is dropped.

use super::*;

/// Each run of a story's command leaves a line in the story's file, so a second run would be seen.
fn counting_story(number: usize) -> Value {
    story(number, &format!("echo run >> ran-{number}; {WAIT_FOR_GO} echo end >> ran-{number}"))
}

#[test]
fn resume_continues_a_killed_swarm() {
    let scratch = SwarmFixture::new();
    let last = depending_on(story(3, "cat ran-1 ran-2 > both"), &[1, 2]);
    let tasks = scratch.tasks("feat/again", json!([counting_story(1), counting_story(2), last]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--retries", "0"]);
    let sandboxes = scratch.sandboxes(2);
    running.signal("KILL");
    assert_eq!(running.wait().status.code(), None, "nothing could be said");
    scratch.longshore(&["status"]).expect(0, &["dead"]);

    // One ends while nobody looks, the other only under the new orchestrator.
    sandboxes[0].release();
    eventually("the first sandbox ends", || {
        let running = docker(&["inspect", "--format", "{{.State.Running}}", &sandboxes[0].0]).ok()?;
        (running.trim() == "false").then_some(())
    });
    let resumed = scratch.start(&["resume"]);
    sandboxes[1].release();
    resumed.wait().expect(0, &["3 landed"]);

    let state = scratch.state();
    assert_eq!(state.0["containers"].as_array().map(Vec::len), Some(3), "one sandbox a story");
    assert_eq!(scratch.show("feat/again", "both"), "run\nend\nrun\nend");
    assert_eq!(scratch.engine_resources(), [""; 0]);
    scratch.longshore(&["resume"]).expect(0, &["nothing to resume"]);
}

#[test]
fn resume_continues_a_stopped_swarm() {
    let scratch = SwarmFixture::new();
    let first =
        story(1, &format!("echo $LONGSHORE_ATTEMPT >> ran-1; if [ $LONGSHORE_ATTEMPT = 1 ]; then {WAIT_FOR_GO} fi"));
    let secret = with_fields(depending_on(story(2, "test \"$WORD\" = secret-word && echo 2 > f"), &[1]), json!({}));
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
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn resume_adopts_fifty_live_sandboxes_exactly_once() {
    let scratch = SwarmFixture::new();
    let wait = "until [ -e /tmp/go ]; do sleep 0.5; done; ";
    let stories: Vec<Value> =
        (1..=50).map(|number| story(number, &format!("touch /tmp/begun; {wait} echo {number} > f{number}"))).collect();
    let tasks = scratch.tasks("feat/fifty", json!(stories));
    let running = scratch.start(&["run", &tasks, "--max", "50", "--memory", "64m", "--reserve-memory", "16m"]);
    let sandboxes = scratch.sandboxes(50);
    running.signal("KILL");
    running.wait();
    let running = scratch.start(&["resume"]);
    // None may end before the machine has counted those that still run.
    let journal = scratch.latest().join("journal.ndjson");
    eventually("the swarm is resumed", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"resumed\"")).then_some(())
    });
    for sandbox in &sandboxes {
        sandbox.release();
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
    assert_eq!(scratch.engine_resources(), [""; 0], "nothing is left");
}
