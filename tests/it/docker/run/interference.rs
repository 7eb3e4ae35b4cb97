//! Bad luck: somebody else moves the integration branch, or stands on it; the depot dies. What was finished is kept, and named.

use super::*;

/// One story that lands, and one that waits until the first has.
fn run_to_half(scratch: &SwarmFixture) -> (RunningCommand, SandboxHandle) {
    let tasks =
        scratch.tasks("feat/luck", json!([story(1, "echo 1 > f1"), story(2, &format!("{WAIT_FOR_GO}echo 2 > f2"))]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--retries", "0"]);
    let sandbox = scratch.sandboxes(1).remove(0);
    eventually("the first landed", || {
        let status = scratch.longshore(&["status", "--json"]).expect(0, &[]).out;
        let state: Value = serde_json::from_str(&status).expect("JSON");
        (state["stories"][0]["status"] == "completed").then_some(())
    });
    (running, sandbox)
}

/// The first landed, and the second is finished, under a ref, and waits for the branch.
fn assert_waits_for_branch(scratch: &SwarmFixture) {
    let state = scratch.state();
    assert_eq!((&state.0["status"], &state.story(1)["status"]), (&json!("machinery_failed"), &json!("completed")));
    assert_eq!((&state.story(2)["status"], &state.story(2)["cause"]), (&json!("in_progress"), &json!("host_error")));
    let results = format!("refs/longshore/results/{}/US-002/1", state.swarm());
    assert_eq!(state.salvage(2), results);
    assert_eq!(scratch.show(&results, "f2"), "2");
}

/// `resume` lands it, and runs no story again that is still on the branch.
fn resume_and_land(scratch: &SwarmFixture, attempts: [u64; 2]) {
    scratch.longshore(&["resume"]).expect(0, &["2 landed"]);
    let state = scratch.state();
    state.expect(&["landed", "landed"]);
    assert_eq!([1, 2].map(|number| state.story(number)["attempts"].as_u64().expect("a number")), attempts);
    assert_eq!([scratch.show("feat/luck", "f1"), scratch.show("feat/luck", "f2")], ["1", "2"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn foreign_commits_on_the_branch_are_merged() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let theirs = scratch.git(&["commit-tree", "-p", "feat/luck", "-m", "Theirs", "feat/luck^{tree}"]);
    scratch.git(&["branch", "--force", "feat/luck", &theirs]);
    sandbox.release();
    running.wait().expect(0, &["2 landed"]);
    assert_eq!(scratch.git(&["rev-parse", "feat/luck^1"]), theirs);
    assert_eq!(scratch.show("feat/luck", "f2"), "2");
    let log = std::fs::read_to_string(scratch.latest().join("logs/longshore.log")).expect("a log");
    assert!(log.contains("the branch was moved by somebody else"), "{log}");
}

#[test]
fn a_rewound_branch_is_left_alone() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let theirs = scratch.git(&["commit-tree", "-p", "main", "-m", "Theirs", "main^{tree}"]);
    scratch.git(&["branch", "--force", "feat/luck", &theirs]);
    sandbox.release();
    running.wait().expect(3, &["branch `feat/luck` was moved by somebody else"]);
    assert_eq!(scratch.git(&["rev-parse", "feat/luck"]), theirs);
    assert_waits_for_branch(&scratch);
    // The first story is not on the branch any more, so it has not landed.
    resume_and_land(&scratch, [2, 1]);
    scratch.git(&["merge-base", "--is-ancestor", &theirs, "feat/luck"]);
}

#[test]
fn a_branch_checked_out_meanwhile_is_left_alone() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    scratch.git(&["checkout", "--quiet", "feat/luck"]);
    let head = scratch.git(&["rev-parse", "HEAD"]);
    sandbox.release();
    running.wait().expect(3, &["branch `feat/luck` is checked out"]);
    assert_eq!(scratch.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(scratch.git(&["status", "--porcelain"]), "");
    assert_waits_for_branch(&scratch);
    scratch.longshore(&["resume"]).expect(3, &["is checked out"]);
    scratch.git(&["checkout", "--quiet", "main"]);
    resume_and_land(&scratch, [1, 1]);
}

#[test]
fn a_branch_that_is_deleted_or_locked_for_a_while_gets_its_work_on_resume() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let head = scratch.git(&["rev-parse", "feat/luck"]);
    scratch.git(&["branch", "--quiet", "-D", "feat/luck"]);
    sandbox.release();
    running.wait().expect(3, &[]);
    assert_waits_for_branch(&scratch);
    scratch.git(&["branch", "feat/luck", &head]);
    let lock = scratch.root().join(".git/refs/heads/feat/luck.lock");
    std::fs::write(&lock, "").expect("written");
    scratch.longshore(&["resume"]).expect(3, &["luck.lock"]);
    std::fs::remove_file(&lock).expect("removed");
    resume_and_land(&scratch, [1, 1]);
}

#[test]
fn a_killed_depot_is_replaced_unnoticed() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    docker(&["kill", &depot_container(&scratch)]).expect("killed");
    sandbox.release();
    running.wait().expect(0, &[]);
    scratch.state().expect(&["landed", "landed"]);
    assert_eq!(scratch.show("feat/luck", "f2"), "2");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_frozen_depot_is_replaced_and_finished_work_runs_once() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let depot = depot_container(&scratch);
    docker(&["pause", &depot]).expect("paused");
    let frozen = docker(&["inspect", "--format", "{{.Id}}", &depot]).expect("it is there");
    sandbox.release();
    running.wait().expect(0, &["2 landed"]);
    let state = scratch.state();
    state.expect(&["landed", "landed"]);
    assert_eq!(state.story(2)["attempts"], 1, "it was finished");
    assert!(docker(&["inspect", frozen.trim()]).is_err(), "it is gone");
    let log = std::fs::read_to_string(scratch.latest().join("logs/longshore.log")).expect("a log");
    assert!(log.contains("the engine answers, and it does not"), "{log}");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

fn depot_container(scratch: &SwarmFixture) -> String {
    let swarm = scratch.swarms().pop().expect("a swarm");
    format!("longshore-{}-depot", &swarm[..8])
}

/// The depot is dead, and a container that is none of ours has its name: none can be made.
struct DepotNameTaken(String);

impl DepotNameTaken {
    fn new(scratch: &SwarmFixture) -> Self {
        let name = depot_container(scratch);
        // The name is taken before the depot dies, so that its replacement cannot be quicker.
        docker(&["rename", &name, &format!("{name}-dead")]).expect("renamed");
        docker(&["create", "--name", &name, "longshore/sandbox:latest", "true"]).expect("created");
        docker(&["kill", &format!("{name}-dead")]).expect("killed");
        Self(name)
    }
}

impl Drop for DepotNameTaken {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", &self.0]);
    }
}

#[test]
fn finished_work_lands_without_a_depot() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let _usurped = DepotNameTaken::new(&scratch);
    sandbox.release();
    running.wait().expect(0, &[]);
    scratch.state().expect(&["landed", "landed"]);
    assert_eq!(scratch.show("feat/luck", "f2"), "2");
}

#[test]
fn without_depot_and_result_the_work_location_is_reported() {
    let scratch = SwarmFixture::new();
    let (running, sandbox) = run_to_half(&scratch);
    let usurped = DepotNameTaken::new(&scratch);
    docker(&["kill", &sandbox.0]).expect("killed");
    let ran = running.wait().expect(3, &["its container ended with code 137; it cannot be started again"]);
    let state = scratch.state();
    state.expect(&["landed", "failed engine_error"]);
    let folder = format!("{}-1", as_text(&state.story(2)["assignment"]));
    assert!(ran.out.contains(&format!("folder {folder} of the work volume is kept")), "{}", ran.out);
    drop(usurped);
    // It is there, with the clone in it, and not to be collected.
    scratch.longshore(&["gc"]).expect(0, &["it may hold work that is nowhere else"]);
    let work = format!("longshore-{}-work:/work", &state.swarm()[..8]);
    let path = format!("/work/{folder}/repo/.git/HEAD");
    assert!(docker(&["run", "--rm", "-v", &work, "longshore/sandbox:latest", "cat", &path]).is_ok());
}

#[test]
fn a_full_event_stream_is_reported_and_harmless() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks("feat/full", json!([story(1, "echo 1 > f1")]));
    let mut command = scratch.command("sh");
    command.args(["-c", "exec \"$0\" run \"$1\" --json >/dev/full", env!("CARGO_BIN_EXE_longshore"), &tasks]);
    RunningCommand::start(command)
        .wait()
        .expect(3, &["1 landed", "error: events could not be written", "No space left"]);
    assert_eq!(scratch.show("feat/full", "f1"), "1");
}
