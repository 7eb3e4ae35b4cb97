//! Which stories run when, and what becomes of them together: retries, conflicts, `touches`, priority, cascades.

use super::*;

#[test]
fn retries_priority_and_skipped_dependents() {
    let scratch = SwarmFixture::new();
    let priority = |story, priority: i64| with_fields(story, json!({ "priority": priority }));
    let tasks = scratch.tasks(
        "feat/order",
        json!([
            priority(story(1, "echo a > a"), 5),
            priority(story(2, "echo b > b"), 3),
            priority(story(3, "echo $LONGSHORE_ATTEMPT >> c; [ $LONGSHORE_ATTEMPT = 2 ]"), 4),
            priority(story(4, "echo d > d; exit 1"), 6),
            priority(depending_on(story(5, "echo never > never"), &[4]), 1),
            priority(depending_on(story(6, "echo never > never"), &[5, 1]), 1),
        ]),
    );
    let ran = scratch.longshore(&["run", &tasks, "--max", "1"]).expect(1, &["3 landed, 1 failed, 2 skipped"]);
    let state = scratch.state();
    state.expect(&[
        "landed",
        "landed",
        "landed",
        "failed agent_failed",
        "skipped dependency_failed",
        "skipped dependency_failed",
    ]);
    let attempts: Vec<u64> =
        (1..=6).map(|number| state.story(number)["attempts"].as_u64().expect("a number")).collect();
    assert_eq!(attempts, [1, 1, 2, 2, 0, 0]);
    assert_eq!(scratch.show("feat/order", "c"), "2", "the second attempt began with a clean clone");
    assert_eq!(scratch.show(&state.salvage(4).replace("/US-004/2", "/US-003/1"), "c"), "1");
    // What each attempt left is told of, also of a story that landed in the end.
    let reference = |rest: &str| format!("refs/longshore/salvage/{}/{rest}", state.swarm());
    assert_eq!(state.story(4)["salvaged"], json!([reference("US-004/1"), reference("US-004/2")]));
    for line in [
        format!("  kept in   {}", reference("US-004/2")),
        format!("  and in    {}", reference("US-004/1")),
        format!("kept      US-003 in {}", reference("US-003/1")),
    ] {
        assert!(ran.out.lines().any(|printed| printed == line), "{line}\n{}", ran.out);
    }
    assert_eq!((&state.story(5)["because"], &state.story(6)["because"]), (&json!("US-004"), &json!("US-004")));
    let mut starts: Vec<(&str, usize)> =
        (1..=4).map(|number| (as_text(&state.story(number)["startedAt"]), number)).collect();
    starts.sort();
    assert_eq!(starts.into_iter().map(|(_, number)| number).collect::<Vec<_>>(), [2, 3, 1, 4]);
}

#[test]
fn conflicting_edits_do_not_both_land() {
    let scratch = SwarmFixture::new();
    let (state, won, lost) = conflict(&scratch);
    let verdicts = state.verdicts();
    assert_eq!(verdicts[&format!("US-{lost:03}")], "failed no_changes");
    assert_eq!(verdicts[&format!("US-{won:03}")], "landed");
    assert_eq!(scratch.show("feat/conflict", "lines.txt"), format!("one\n{won}\nthree"));
    let reference = as_text(&state.story(lost)["salvaged"][0]);
    assert_eq!(scratch.show(reference, "lines.txt"), format!("one\n{lost}\nthree"));
    scratch.git(&["fsck", "--strict"]);
}

#[test]
fn a_conflicting_story_runs_again_on_the_landed_work() {
    let scratch = SwarmFixture::new();
    let first = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then {WAIT_FOR_GO}fi; ");
    let find_conflict = "grep -o 'conflict in `lines.txt`' \"$LONGSHORE_PROMPT_FILE\" > why";
    let append = |number| story(number, &format!("{first}{find_conflict}; echo {number} >> lines.txt; true"));
    let tasks = scratch.tasks("feat/again", json!([append(1), append(2)]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--retries", "0"]);
    scratch.sandboxes(2).iter().for_each(SandboxHandle::release);
    running.wait().expect(0, &["2 landed"]);
    let state = scratch.state();
    let mut tries = [1, 2].map(|number| state.story(number)["attempts"].as_u64());
    tries.sort();
    // The merge in progress is nothing that these commands know; then they run on what landed.
    assert_eq!(tries, [Some(1), Some(3)]);
    assert_eq!(scratch.show("feat/again", "lines.txt").lines().count(), 5);
    assert_eq!(scratch.show("feat/again", "why"), "conflict in `lines.txt`", "it is told what it ran into");
}

#[test]
fn stories_with_overlapping_touches_run_one_after_the_other() {
    let scratch = SwarmFixture::new();
    let touching = |number, glob: &str| {
        with_fields(story(number, &format!("echo {number} >> lines.txt")), json!({ "touches": [glob] }))
    };
    let tasks = scratch.tasks("feat/touch", json!([touching(1, "lines.txt"), touching(2, "*.txt"), touching(3, "l*")]));
    scratch.longshore(&["run", &tasks, "--max", "3", "--retries", "0"]).expect(0, &["3 landed"]);
    let mut lines: Vec<String> = scratch.show("feat/touch", "lines.txt").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1", "2", "3", "one", "three", "two"]);
}
