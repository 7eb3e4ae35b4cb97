//! What is stopped before it has begun: the orchestrator by a signal while it starts, a sandbox before its task-request. And
//! signals that a terminal sends when it closes.

use super::*;

/// Whether the moment for a signal has come.
type HasCome = fn(&SwarmFixture, &RunningCommand) -> bool;

const SIGHUP: u32 = 1;
const SIGTERM: u32 = 15;

/// Whether a process handles a signal, from its `/proc/<pid>/status`.
fn handles_signal(status: &str, signal: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn containers_of(scratch: &SwarmFixture) -> Vec<String> {
    let Some(swarm) = scratch.swarms().pop() else { return Vec::new() };
    let filter = format!("label={}={swarm}", label::SWARM);
    let listed = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

fn has_begun(scratch: &SwarmFixture) -> bool {
    let journals = scratch.swarms().into_iter();
    let mut journals =
        journals.map(|swarm| scratch.root().join(".longshore/swarms").join(swarm).join("journal.ndjson"));
    journals.any(|journal| std::fs::read_to_string(journal).is_ok_and(|text| text.contains("\"event\":\"began\"")))
}

#[test]
fn a_signal_while_a_swarm_starts_ends_it_in_order() {
    let waits: [(&str, HasCome); 3] = [
        ("it handles signals", |_, running| {
            std::fs::read_to_string(format!("/proc/{}/status", running.id()))
                .is_ok_and(|status| handles_signal(&status, SIGTERM) && handles_signal(&status, SIGHUP))
        }),
        ("its directory is made", |scratch, _| !scratch.swarms().is_empty()),
        ("its depot is made", |scratch, _| !containers_of(scratch).is_empty()),
    ];
    for signal in ["TERM", "HUP", "INT"] {
        for (moment, has_come) in waits {
            let scratch = SwarmFixture::new();
            let tasks = scratch.tasks("feat/early", json!([story(1, "echo 1 > f1")]));
            let running = scratch.start(&["run", &tasks]);
            eventually(moment, || has_come(&scratch, &running).then_some(()));
            running.signal(signal);
            let ran = running.wait().expect(130, &[]);
            let what = format!("SIG{signal} when {moment}: {}{}", ran.out, ran.err);
            if has_begun(&scratch) {
                // The signal came later than meant: what `resume` goes on with is kept.
                assert_eq!(containers_of(&scratch), [""; 0], "{what}");
            } else {
                assert_eq!(scratch.engine_resources(), [""; 0], "{what}");
            }
            assert!(!scratch.refs().contains(&"refs/heads/feat/early".to_owned()), "{what}");
            if scratch.swarms().is_empty() {
                assert!(ran.err.contains("nothing was started"), "{what}");
                continue;
            }
            assert!(ran.out.contains("longshore resume"), "{what}");
            scratch.longshore(&["status"]).expect(0, &["interrupted; `longshore resume` continues it"]);
            scratch.longshore(&["resume"]).expect(0, &["1 landed"]);
            assert_eq!(scratch.show("feat/early", "f1"), "1");
            assert_eq!(scratch.engine_resources(), [""; 0]);
        }
    }
}

#[test]
fn a_closed_terminal_stops_a_swarm_unless_it_ignores_that() {
    let scratch = SwarmFixture::new();
    let tasks =
        scratch.tasks("feat/closed", json!([story(1, &format!("echo half > half; {WAIT_FOR_GO} echo 1 > f1"))]));
    let running = scratch.start(&["run", &tasks, "--grace", "2s"]);
    scratch.sandboxes(1);
    running.signal("HUP");
    running.wait().expect(130, &["SIGHUP", "longshore resume"]);
    let state = scratch.state();
    state.expect(&["pending stopped_by_user"]);
    assert_eq!(scratch.show(state.salvage(1), "half"), "half");

    let mut command = scratch.command("nohup");
    command.args([env!("CARGO_BIN_EXE_longshore"), "resume"]);
    let running = RunningCommand::start(command);
    let sandbox = scratch.sandboxes(1).remove(0);
    running.signal("HUP");
    sandbox.release();
    running.wait().expect(0, &["1 landed"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_sandbox_stopped_before_its_task_request_is_tried_again() {
    let scratch = SwarmFixture::new();
    let tasks =
        scratch.tasks("feat/unasked", json!([story(1, "echo 1 > f1"), depending_on(story(2, "echo 2 > f2"), &[1])]));
    // Right after the record of the first container.
    let ran = scratch.start_with(&["run", &tasks, "--retries", "0"], &[("LONGSHORE_TEST_DIE_AT_RECORD", "2")]).wait();
    assert_eq!(ran.status.code(), None, "{}{}", ran.out, ran.err);
    let swarm = scratch.swarms().pop().expect("a swarm");
    let filter = format!("label={}={swarm}", label::SWARM);
    let sandbox =
        docker(&["ps", "-aq", "--no-trunc", "--filter", &filter, "--filter", SANDBOX_FILTER]).expect("a list");
    let sandbox = sandbox.trim();
    // As far as an orchestrator gets that dies a moment later.
    docker(&["start", sandbox]).expect("started");
    eventually("the shim waits for its task-request", || {
        let status = docker(&["exec", sandbox, "cat", "/proc/1/status"]).ok()?;
        handles_signal(&status, SIGTERM).then_some(())
    });
    docker(&["stop", sandbox]).expect("stopped");
    scratch.longshore(&["resume"]).expect(0, &["connection_lost", "stopped before the task-request", "2 landed"]);
    scratch.state().expect(&["landed", "landed"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
