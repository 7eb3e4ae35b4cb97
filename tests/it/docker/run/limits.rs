//! Agents that never end, and agents that take too much memory.

use super::*;

#[test]
fn time_and_memory_limits_end_a_story() {
    let scratch = SwarmFixture::new();
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
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn starts_wait_for_reserves_and_report_it() {
    for (flag, what) in [("--reserve-memory", "of memory left"), ("--reserve-disk", "of disk left")] {
        let scratch = SwarmFixture::new();
        let tasks = scratch.tasks("feat/short", json!([story(1, "echo 1 > f")]));
        let running = scratch.start(&["run", &tasks, flag, "900000g", "--json"]);
        let journal = || {
            let swarm = scratch.swarms().pop()?;
            let file = scratch.root().join(".longshore/swarms").join(swarm).join("journal.ndjson");
            std::fs::read_to_string(file).ok().filter(|text| text.contains("start_held"))
        };
        eventually("the start is held", journal);
        running.signal("INT");
        let ran = running.wait().expect(130, &[]);
        assert!(ran.out.contains("\"type\":\"start_held\"") && ran.out.contains(what), "{}", ran.out);
        scratch.state().expect(&["pending stopped_by_user"]);
        // What it was set to stays with it: nothing but a stop ends the wait.
        assert_eq!(scratch.engine_resources().len(), 2, "its volumes, for `resume`");
    }
}
