//! Faults that come from outside: a container that somebody kills, a sandbox whose memory is used up to the last process, an
//! orchestrator that stands still, a damaged record, a host folder without space. Each has its cause, and costs nothing that was
//! finished.

use super::*;

#[test]
fn a_container_killed_from_outside_is_reported_and_salvaged() {
    let scratch = SwarmFixture::new();
    let first = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then echo half > half; {WAIT_FOR_GO} fi; echo whole > whole");
    let tasks = scratch.tasks("feat/killed", json!([story(1, &first)]));
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let sandbox = scratch.sandboxes(1).remove(0);
    docker(&["kill", &sandbox.0]).expect("killed");
    running.wait().expect(0, &["killed_outside", "1 landed"]);
    let state = scratch.state();
    state.expect(&["landed"]);
    // It is the machinery's doing: the story's one attempt is not used up by it.
    let salvage = format!("refs/longshore/salvage/{}/US-001/1", state.swarm());
    assert_eq!(scratch.show(&salvage, "half"), "half");
    assert_eq!(scratch.paths("feat/killed"), ["lines.txt", "whole"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn oom_of_pid_1_is_reported_and_salvaged() {
    let scratch = SwarmFixture::new();
    // What is in a tmpfs stays when its writer is killed: the kernel goes on until nothing is left to kill.
    let fill =
        "echo half > half; cat /dev/zero > /tmp/fill & cat /dev/zero > /tmp/more; cat /dev/zero > /tmp/most; wait";
    let tasks = scratch.tasks("feat/oom", json!([story(1, fill), story(2, "echo 2 > f2")]));
    let args = ["run", &tasks, "--memory", "48m", "--retries", "0", "--timeout", "60s", "--grace", "1s"];
    scratch.longshore(&args).expect(1, &["1 landed, 1 failed"]);
    let state = scratch.state();
    state.expect(&["failed oom", "landed"]);
    assert_eq!(scratch.show(state.salvage(1), "half"), "half");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_stopped_orchestrator_process_loses_nothing() {
    let scratch = SwarmFixture::new();
    // More than all pipes and sockets on the way can hold: the sandbox cannot end meanwhile. (What one that ended had not got rid
    // of within two seconds is lost in Docker itself.) And so little that a log takes it twice: a stream that broke is read again.
    const LINES: usize = 560_000;
    let command = format!("{WAIT_FOR_GO} seq 1 {LINES} >&2; echo 1 > f1");
    let tasks = scratch.tasks("feat/slow", json!([story(1, &command)]));
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let sandbox = scratch.sandboxes(1).remove(0);
    sandbox.release();
    running.signal("STOP");
    // The time is the fault itself: nobody reads, and all that is between the agent and the orchestrator is full.
    std::thread::sleep(Duration::from_secs(4));
    running.signal("CONT");
    running.wait().expect(0, &["1 landed"]);
    let state = scratch.state();
    let log = scratch.latest().join(format!("logs/{}.log", as_text(&state.story(1)["assignment"])));
    let log = String::from_utf8(std::fs::read(log).expect("a log")).expect("text");
    // A stream that broke meanwhile was read again from its beginning, which the log says.
    let log = log.rsplit("from its beginning").next().expect("the end of a text");
    let numbers: Vec<usize> = log.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert!(numbers.iter().copied().eq(1..=LINES), "{} lines of {LINES} are there", numbers.len());
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_damaged_journal_is_reported() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks(
        "feat/damaged",
        json!([story(1, "echo 1 > f1"), depending_on(story(2, &format!("{WAIT_FOR_GO} echo 2 > f2")), &[1])]),
    );
    let running = scratch.start(&["run", &tasks]);
    let sandbox = scratch.sandboxes(1).remove(0);
    running.signal("KILL");
    running.wait();
    let swarm = scratch.swarms().pop().expect("a swarm");
    let path = scratch.root().join(".longshore/swarms").join(&swarm).join("journal.ndjson");
    let whole = std::fs::read(&path).expect("a journal");
    let before = scratch.longshore(&["status", "--json"]).expect(0, &[]).out;

    let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    for at in (0..last_line).step_by(last_line / 12) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, &damaged).expect("written");
        scratch.longshore(&["status"]).expect(3, &["journal.ndjson", "is damaged", "hint:"]);
        scratch.longshore(&["resume"]).expect(3, &["journal.ndjson", "is damaged", "hint:"]);
        assert_eq!(std::fs::read(&path).expect("read"), damaged, "what is damaged is left for whoever mends it");
        // Its things are nobody's to remove, for nobody knows what is in them.
        scratch.longshore(&["gc"]);
        assert!(sandbox.inspect()["State"]["Running"] == true);
    }
    // Half a record at the end is what a crash leaves.
    let torn = [&whole[..], &whole[last_line..last_line + 40]].concat();
    std::fs::write(&path, torn).expect("written");
    assert_eq!(scratch.longshore(&["status", "--json"]).expect(0, &[]).out, before);
    // And so is a state file that is gone, or is nonsense.
    std::fs::write(path.with_file_name("swarm-state.json"), "{\"schemaVersion\":").expect("written");
    assert_eq!(scratch.longshore(&["status", "--json"]).expect(0, &[]).out, before);
    let resumed = scratch.start(&["resume"]);
    sandbox.release();
    resumed.wait().expect(0, &["2 landed"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

/// The state folder is on a small file system that only the test's own processes see.
#[test]
fn a_full_host_disk_stops_the_swarm_until_resumed() {
    let scratch = SwarmFixture::new();
    // Its log alone takes more than there is.
    let chatty = "seq 1 200000 >&2; echo 1 > f1";
    let tasks = scratch.tasks("feat/space", json!([story(1, chatty), story(2, "echo 2 > f2")]));
    std::fs::create_dir(scratch.root().join(".longshore")).expect("made");
    let script = format!(
        "set -u
        mount -t tmpfs -o size=160k none .longshore || exit 99
        \"$0\" run {tasks} --retries 0; echo \"run: $?\"
        \"$0\" status >/dev/null; echo \"status: $?\"
        mount -o remount,size=64m .longshore || exit 99
        \"$0\" resume; echo \"resume: $?\"
        \"$0\" gc >/dev/null; echo \"gc: $?\"
        ls .longshore/swarms"
    );
    let mut command = scratch.command("unshare");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_longshore")]);
    let ran = RunningCommand::start(command).wait().expect(0, &["run: 3", "status: 0", "resume: 0", "gc: 0"]);
    assert!(ran.err.contains("no space left") || ran.err.contains("No space left"), "{}", ran.err);
    assert_eq!(scratch.paths("feat/space"), ["f1", "f2", "lines.txt"]);
    let swarm = ran.out.lines().last().expect("a swarm").trim().to_owned();
    assert_eq!(resources_with_label(&format!("{}={swarm}", label::SWARM)), []);
}
