//! `run` beside an earlier swarm of the same tasks file.

use super::*;

#[test]
fn run_refuses_to_start_beside_an_unfinished_swarm() {
    let scratch = SwarmFixture::new();
    let first = story(1, "echo 1 > f1");
    let tasks =
        scratch.tasks("feat/again", json!([first, depending_on(story(2, &format!("{WAIT_FOR_GO}echo 2 > f2")), &[1])]));
    let running = scratch.start(&["run", &tasks]);
    let sandbox = scratch.sandboxes(1).remove(0);
    running.signal("KILL");
    running.wait();
    let old = scratch.swarms().remove(0);
    let short = &old[..8];
    let refused = scratch.longshore(&["run", &tasks]).expect(2, &["did not finish: 1 of 2 stories are undecided"]);
    assert!(refused.err.contains("sandboxes of it may still be running"), "{}", refused.err);
    assert!(refused.err.contains(&format!("`longshore resume {short}`")) && refused.err.contains("`--new`"));
    assert_eq!(scratch.swarms().len(), 1, "nothing was made");

    // Another file is no business of it; the same text under another name is.
    let other =
        scratch.tasks_with("other.json", json!({ "branchName": "feat/other" }), json!([story(1, "echo 3 > f3")]));
    scratch.longshore(&["run", &other]).expect(0, &["1 landed"]);
    std::fs::copy(scratch.root().join(&tasks), scratch.folder.path().join("copy.json")).expect("copied");
    scratch.longshore(&["run", "../copy.json"]).expect(2, &["`../copy.json` did not finish"]);

    // The file may have been edited since.
    let tasks = scratch.tasks("feat/again", json!([story(1, "echo other > f1")]));
    scratch.longshore(&["run", &tasks]).expect(2, &["did not finish"]);
    let ran = scratch.longshore(&["run", &tasks, "--new"]).expect(0, &["1 landed"]);
    assert!(
        ran.err.contains("stays as it is") && ran.err.contains(&format!("`longshore resume {short}`")),
        "{}",
        ran.err
    );
    // The newest swarm of the file finished; the old one can be resumed all the same.
    scratch.longshore(&["run", &tasks, "--again"]).expect(1, &["no_changes"]);
    let resumed = scratch.start(&["resume", short]);
    sandbox.release();
    resumed.wait().expect(0, &["2 landed"]);
    assert_eq!(
        (scratch.show("feat/again", "f1"), scratch.show("feat/again", "f2")),
        ("other".to_owned(), "2".to_owned())
    );
}

#[test]
fn of_two_concurrent_runs_one_is_refused() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks("feat/once", json!([story(1, &format!("{WAIT_FOR_GO}echo 1 > f1"))]));
    let mut all: Vec<RunningCommand> = (0..3).map(|_| scratch.start(&["run", &tasks])).collect();
    let sandbox = eventually("one begins, and the others have ended", || {
        let mut found = scratch.sandboxes(1);
        all.iter_mut().map(RunningCommand::has_exited).filter(|ended| *ended).count().eq(&2).then(|| found.remove(0))
    });
    sandbox.release();
    let ended: Vec<CommandResult> = all.into_iter().map(RunningCommand::wait).collect();
    let mut codes: Vec<Option<i32>> = ended.iter().map(|ran| ran.status.code()).collect();
    codes.sort();
    let errors: String = ended.iter().map(|ran| ran.err.as_str()).collect();
    assert_eq!(codes, [Some(0), Some(2), Some(2)], "{errors}");
    assert_eq!(scratch.swarms().len(), 1);
}
