//! Agents that never end, and agents that take too much memory.

use super::*;

#[test]
fn time_and_memory_have_ends() {
    let scratch = Scratch::new();
    let tasks = scratch.tasks(
        "feat/limits",
        json!([
            story(1, "echo half > half; sleep 1000"),
            story(2, "echo half > half; trap '' TERM; while :; do sleep 0.1; done"),
            story(3, "echo half > half; tail /dev/zero"),
            story(4, "echo whole > whole"),
        ]),
    );
    let args = ["run", &tasks, "--timeout", "4s", "--grace", "1s", "--memory", "64m", "--retries", "0"];
    scratch.longshore(&args).expect(1, &["1 landed, 3 failed"]);
    let state = scratch.state();
    state.expect(&["failed timeout", "failed timeout", "failed oom", "landed"]);
    for number in [1, 2, 3] {
        assert_eq!(scratch.show(state.salvage(number), "half"), "half");
    }
    assert!(state.story(3)["evidence"]["oomKills"].as_u64() > Some(0), "{}", state.story(3));
    assert_eq!(scratch.paths("feat/limits"), ["lines.txt", "whole"]);
    assert_eq!(scratch.in_engine(), [""; 0]);
}
