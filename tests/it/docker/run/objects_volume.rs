//! The objects volume, which outlives swarms and is shared by those of one repository: what a killed depot left in it.

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
