//! One sandbox for a whole tasks file, and several tasks files in one swarm.

use super::*;

#[test]
fn fan_out_file_lands_finished_stories() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks(
        "feat/file",
        json!([
            depending_on(story(1, "cat two > one; echo $LONGSHORE_STORY >> one"), &[2]),
            story(2, "echo two > two"),
            story(3, "test ! -e junk; echo broken > junk; exit 3"),
            depending_on(story(4, "echo never > never"), &[3]),
            depending_on(story(5, "echo never > never"), &[4]),
            story(6, "test ! -e junk && echo six > six"),
        ]),
    );
    scratch
        .longshore(&["run", &tasks, "--fan-out", "file", "--retries", "0"])
        .expect(1, &["3 landed, 1 failed, 2 skipped"]);
    let state = scratch.state();
    state.expect(&[
        "landed",
        "landed",
        "failed agent_failed",
        "skipped dependency_failed",
        "skipped dependency_failed",
        "landed",
    ]);
    assert_eq!(state.0["containers"].as_array().map(Vec::len), Some(1), "one sandbox");
    assert_eq!((&state.story(4)["because"], &state.story(5)["because"]), (&json!("US-003"), &json!("US-003")));
    assert_eq!(scratch.paths("feat/file"), ["lines.txt", "one", "six", "two"]);
    assert_eq!(scratch.show("feat/file", "one"), "two\nUS-001");
    assert_eq!(scratch.paths(state.salvage(3)).iter().filter(|path| *path == "junk").count(), 1);
    let subjects = scratch.git(&["log", "--reverse", "--no-merges", "--format=%s", "main..feat/file"]);
    assert_eq!(subjects, "US-002: Story 2\nUS-001: Story 1\nUS-006: Story 6");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn tasks_files_with_equal_story_ids_run_together() {
    let scratch = SwarmFixture::new();
    let stories =
        |word: &str| json!([story(1, &format!("echo {word} > a")), depending_on(story(2, "cat a a > b"), &[1])]);
    let left = scratch.tasks_with("left.json", json!({ "branchName": "feat/left" }), stories("left"));
    let right = scratch.tasks_with("right.json", json!({ "branchName": "feat/right" }), stories("right"));
    let again =
        scratch.tasks_with("again.json", json!({ "branchName": "feat/left" }), json!([story(1, "echo again > c")]));
    scratch.longshore(&["run", &left, &right, &again]).expect(0, &["5 landed", "left/US-001", "right/US-001"]);
    assert_eq!(scratch.show("feat/left", "b"), "left\nleft");
    assert_eq!(scratch.show("feat/left", "c"), "again");
    assert_eq!(scratch.show("feat/right", "b"), "right\nright");
    assert_eq!(scratch.paths("feat/right"), ["a", "b", "lines.txt"]);
    let swarm = scratch.state().swarm().to_owned();
    assert!(scratch.refs().contains(&format!("refs/longshore/results/{swarm}/right/US-002/1")));
    scratch.longshore(&["logs", "right/US-002"]).expect(0, &["US-002 begins"]);
    scratch.longshore(&["logs", "US-002"]).expect(2, &["left/US-002, right/US-002"]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
