//! The disk under the engine's volumes is full to the last byte, by an agent's doing: on a daemon of the test's own, whose disk is
//! small.

use super::*;
use crate::docker::second_daemon::SecondDaemon;

/// At its first attempt the first story fills the disk with what comes from `from`; the second waits for its end.
fn stories(scratch: &SwarmFixture, name: &str, from: &str) -> String {
    let fills = format!("echo half > half; dd if={from} of=big bs=1M; exit 1");
    let first = story(1, &format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then {fills}; fi; echo whole > whole"));
    let metadata = json!({ "branchName": format!("feat/{name}") });
    scratch.tasks_with(&format!("{name}.json"), metadata, json!([first, story(2, "echo 2 > f2")]))
}

#[test]
fn a_full_work_volume_is_reported_and_loses_nothing() {
    let daemon = SecondDaemon::start_on_a_small_disk(45);
    let host = daemon.host();
    let host: &[(&str, &str)] = &[("DOCKER_HOST", &host)];
    let scratch = SwarmFixture::new();
    let limits = ["--max", "1", "--retries", "0", "--reserve-disk", "15m", "--memory", "1g"];
    let saved = |state: &StateFile, file: &str| {
        let object = format!("refs/longshore/salvage/{}/US-001/1:{file}", state.swarm());
        let size: u64 = scratch.git(&["cat-file", "-s", &object]).parse().expect("a size");
        assert!(size > if file == "big" { 20 << 20 } else { 4 }, "{object} has {size} bytes");
    };

    // What git makes small can be saved in what the sandbox's end has set free; then there is room again, and all go on.
    let tasks = stories(&scratch, "zeros", "/dev/zero");
    let ran = scratch.start_with(&[&["run", &tasks], &limits[..]].concat(), host).wait();
    ran.expect(0, &["disk_full: the agent exited 1, and no space is left; 0 KB of", "No space left", "2 landed"]);
    let state = scratch.state();
    state.expect(&["landed", "landed"]);
    assert_eq!(state.story(1)["attempts"], 2, "a disk that is full is the machinery's failure, and costs no retry");
    ["half", "big"].iter().for_each(|file| saved(&state, file));

    // What it cannot make small stays where it is, and the next sandbox waits for room.
    let tasks = stories(&scratch, "noise", "/dev/urandom");
    let known = scratch.swarms();
    let running = scratch.start_with(&[&["run", &tasks], &limits[..]].concat(), host);
    eventually("the work folder is kept, and a sandbox waits", || {
        let swarm = scratch.swarms().into_iter().find(|swarm| !known.contains(swarm))?;
        let folder = scratch.root().join(".longshore/swarms").join(swarm);
        let journal = std::fs::read_to_string(folder.join("journal.ndjson")).ok()?;
        let has_kept_work = std::fs::read_to_string(folder.join("swarm-state.json")).ok()?.contains("workKept");
        (has_kept_work && journal.contains("start_held")).then_some(())
    });
    running.signal("INT");
    let ran = running.wait().expect(130, &["disk_full", "MB of disk left, and 15 MB are wanted", "longshore resume"]);
    let state = scratch.state();
    assert_eq!(state.verdicts()["US-001"], "pending disk_full");
    let containers = state.0["containers"].as_array().expect("containers");
    let folder = as_text(&containers[0]["workKept"]);
    let message = format!("work could not be salvaged: all of it is kept in the work volume, folder {folder}");
    assert!(ran.err.contains(&message), "{}", ran.err);

    daemon.leave_free_space(200);
    scratch.start_with(&["resume"], host).wait().expect(0, &["2 landed", folder]);
    assert_eq!(scratch.paths("feat/noise"), ["f2", "lines.txt", "whole"]);
    // What could not be saved then can be now.
    scratch.start_with(&["gc", state.swarm()], host).wait().expect(0, &["refs/longshore/salvage/"]);
    ["half", "big"].iter().for_each(|file| saved(&state, file));
    let left = daemon.docker(&["ps", "-aq"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "no container is left");
}
