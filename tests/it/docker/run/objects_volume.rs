//! The objects volume, which outlives swarms and is shared by those of one repository: what a killed depot left in it, and a repository
//! that has moved away from it.

use super::*;

async fn repo_hash_of(root: &Path) -> String {
    Repo::discover(root).await.expect("a repository").hash()
}

fn repo_hash(root: &Path) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(repo_hash_of(root))
}

fn objects_volume(scratch: &SwarmFixture) -> String {
    format!("longshore-objects-{}", repo_hash(&scratch.root()))
}

#[test]
fn lock_files_of_a_killed_depot_stop_no_later_swarm() {
    let scratch = SwarmFixture::new();
    let run = |number: usize| {
        let tasks = scratch.tasks("feat/locked", json!([story(number, &format!("echo {number} > f{number}"))]));
        scratch.longshore(&["run", &tasks]).expect(0, &["1 landed"]);
    };
    run(1);
    let volume = format!("{}:/objects", objects_volume(&scratch));
    let locks = "cd /objects/repo.git && touch HEAD.lock packed-refs.lock config.lock && \
        for ref in $(find refs/longshore -type f); do touch $ref.lock; done && ls refs/longshore/tips";
    let listed = docker(&["run", "--rm", "-v", &volume, "longshore/sandbox:latest", "sh", "-c", locks]).expect("made");
    assert!(listed.contains("feat--locked.lock"), "{listed}");
    run(2);
    assert_eq!(scratch.paths("feat/locked"), ["f1", "f2", "lines.txt"]);
}

#[test]
fn a_repository_that_was_renamed_is_resumed() {
    let scratch = SwarmFixture::new();
    // The second builds upon the merge of the first, which no new objects volume has.
    let command = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then echo half > half; {WAIT_FOR_GO} fi; cat f1 > f2");
    let tasks = scratch.tasks(
        "feat/moved",
        json!([
            story(1, "echo 1 > f1"),
            depending_on(story(2, &command), &[1]),
            depending_on(story(3, "cat f2 > f3"), &[2])
        ]),
    );
    let running = scratch.start(&["run", &tasks]);
    let sandbox = scratch.sandboxes(1).remove(0);
    running.signal("KILL");
    running.wait();
    let old_volume = objects_volume(&scratch);
    std::fs::rename(scratch.root(), scratch.moved_root()).expect("renamed");
    docker(&["kill", &sandbox.0]).expect("killed");
    let resumed = scratch.longshore(&["resume"]);
    let _ = docker(&["volume", "rm", &old_volume]);
    resumed.expect(0, &["killed_outside", "3 landed"]);
    let state = scratch.state();
    state.expect(&["landed", "landed", "landed"]);
    assert_eq!(scratch.show("feat/moved", "f3"), "1");
    let salvage = format!("refs/longshore/salvage/{}/US-002/1", state.swarm());
    assert_eq!(scratch.show(&salvage, "half"), "half");
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
