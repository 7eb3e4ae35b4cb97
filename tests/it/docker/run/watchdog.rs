//! Agents that do nothing any more, and agents that ask the shim itself to end.

use super::*;

#[test]
fn a_hung_story_is_retried_once_and_salvaged() {
    let scratch = SwarmFixture::new();
    // The second does as little, and says something now and then.
    let hang = "echo half > half; echo the last words; mkfifo /tmp/line; exec 3<>/tmp/line; cat </tmp/line";
    let slow = "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done; echo x > x";
    let tasks = scratch.tasks("feat/hang", json!([story(1, hang), story(2, slow)]));
    let args = ["run", &tasks, "--idle-timeout", "3s", "--grace", "1s", "--retries", "3"];
    let ran =
        scratch.longshore(&args).expect(1, &["1 landed, 1 failed", "no output and no CPU use for", "`cat` (pid "]);
    let state = scratch.state();
    state.expect(&["failed hung", "landed"]);
    let hung = state.story(1);
    assert_eq!(hung["attempts"], 2, "{hung}");
    let evidence = &hung["evidence"];
    assert_eq!(evidence["tail"], json!(["the last words"]));
    assert!(as_text(&evidence["summary"]).contains("waits in "), "{evidence}");
    let lines = |name: &str| {
        let lines = evidence[name].as_array().unwrap_or_else(|| panic!("no {name} in {evidence}"));
        lines.iter().map(|line| as_text(line).to_owned()).collect::<Vec<_>>().join("\n")
    };
    assert!(lines("processes").contains(" cat"), "{evidence}");
    assert!(lines("pipes").contains("fifo /tmp/line: read by cat ("), "{evidence}");
    assert!(lines("pipes").contains("read by acp-shim (1)"), "{evidence}");
    assert_eq!(scratch.show(state.salvage(1), "half"), "half");
    assert!(ran.out.contains("fifo /tmp/line"), "the summary shows it\n{}", ran.out);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_signal_from_inside_the_sandbox_is_refused() {
    let scratch = SwarmFixture::new();
    let command = "kill -TERM 1 || kill -INT 1 || kill -KILL 1 || echo x > x";
    let tasks = scratch.tasks("feat/signal", json!([story(1, command)]));
    scratch.longshore(&["run", &tasks, "--retries", "0"]).expect(0, &["1 landed"]);
    scratch.state().expect(&["landed"]);
    assert_eq!(scratch.show("feat/signal", "x"), "x");
}

#[test]
fn a_signal_from_outside_stops_the_sandbox() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks("feat/outside", json!([story(1, "echo half > half; touch /tmp/begun; sleep 1000")]));
    let running = scratch.start(&["run", &tasks, "--retries", "0", "--grace", "5s"]);
    let sandbox = &scratch.sandboxes(1)[0];
    docker(&["kill", "--signal", "TERM", &sandbox.0]).expect("it runs");
    // The machinery's failure: it is tried again, and killed again until its tries are over.
    let next = eventually("the next try runs", || {
        let found = scratch.sandboxes(1);
        found.into_iter().find(|found| found.0 != sandbox.0)
    });
    running.signal("INT");
    running.wait().expect(130, &[]);
    drop(next);
    let state = scratch.state();
    let containers = state.0["containers"].as_array().expect("containers");
    assert!(containers.len() >= 2, "{:#}", state.0);
}

#[test]
fn a_paused_sandbox_is_reported_salvaged_and_retried() {
    let scratch = SwarmFixture::new();
    // It says something all the time, so that its silence can only be the frost.
    let noisy = "echo half > half; touch /tmp/begun; while :; do echo alive; sleep 0.2; done";
    let command = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then {noisy}; fi; echo whole > whole");
    let tasks = scratch.tasks("feat/frozen", json!([story(1, &command)]));
    let short = [("LONGSHORE_TEST_LIVENESS_SECS", "8")];
    let running = scratch.start_with(&["run", &tasks, "--retries", "0"], &short);
    let sandbox = scratch.sandboxes(1).remove(0);
    docker(&["pause", &sandbox.0]).expect("it runs");
    let expected =
        ["was paused, but not by longshore", "longshore ends it if it stays paused", "connection_lost", "1 landed"];
    let ran = running.wait().expect(0, &expected);
    let state = scratch.state();
    state.expect(&["landed"]);
    assert_eq!(state.story(1)["attempts"], 2, "it is the machinery's failure, and costs no retry");
    let containers = state.0["containers"].as_array().expect("containers");
    assert!(as_text(&containers[0]["error"]).contains("paused"), "{:#}", containers[0]);
    let salvage = format!("refs/longshore/salvage/{}/US-001/1", state.swarm());
    assert!(ran.err.contains(&salvage), "{}", ran.err);
    assert_eq!(scratch.show(&salvage, "half"), "half");
    assert_eq!(scratch.paths("feat/frozen"), ["lines.txt", "whole"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
