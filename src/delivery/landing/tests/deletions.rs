//! Landings while somebody deletes whatever no ref reaches.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// Lands 30 stories while these commands run in a loop. Half of the landings are merges.
async fn land_while_deleting(commands: &'static [&'static [&'static str]]) {
    let fixture = LandingRepo::new().await;
    let tips: Vec<CommitId> = (0..30)
        .map(|number| fixture.commit_story(&fixture.base, &format!("dir{number}/file"), "1\n", "a story"))
        .collect();
    let (over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let root = fixture.scratch.root.clone();
    let mut head = fixture.base.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for args in commands {
                    let mut command = git_command(&root);
                    // A deletion may itself meet an object that another one deleted.
                    let _ = command.args(*args).stdout(Stdio::null()).stderr(Stdio::null()).status();
                }
                rounds.fetch_add(1, Ordering::Relaxed);
                // Back to back, they would take every temporary file of git's own.
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let landing = async {
            for tip in &tips {
                head = fixture.land(&head, fixture.candidate(&fixture.base, tip, &["US-001"])).await;
            }
        };
        // The other thread must be told even after a panic.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(landing));
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(rounds.load(Ordering::Relaxed) > 3, "{rounds:?}");
    fixture.scratch.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(fixture.scratch.git(&["fsck", "--strict", "--connectivity-only"]), "");
    fixture.scratch.git(&["fsck", "--strict"]);
    let listed = fixture.scratch.git(&["ls-tree", "--name-only", head.as_str()]);
    assert_eq!(listed.lines().filter(|name| name.starts_with("dir")).count(), 30);
    let crashes = fs::read_dir(fixture.scratch.root.join(".git")).expect("a directory");
    let crashes = crashes.filter(|entry| {
        entry.as_ref().expect("an entry").file_name().to_string_lossy().starts_with("fast_import_crash")
    });
    assert_eq!(crashes.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_to_a_gc() {
    land_while_deleting(&[&["gc", "-q", "--prune=now"]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_to_prune_and_repack() {
    land_while_deleting(&[&["prune", "--expire=now"], &["repack", "-a", "-d", "-q"]]).await;
}

#[tokio::test]
async fn an_overwritten_preparation_is_let_go() {
    let fixture = LandingRepo::new().await;
    let [one, two] = ["a", "b"].map(|name| fixture.commit_story(&fixture.base, name, "1\n", name));
    let mut kept = Vec::new();
    for tip in [&one, &two] {
        let candidate = fixture.candidate(&fixture.base, tip, &["US-001"]);
        kept.push(fixture.prepare(&fixture.base, &[candidate]).await.expect("prepared").commits.remove(0).commit);
    }
    assert_eq!(fixture.repo.read_ref(&fixture.keep_ref).await.expect("read").as_ref(), Some(&kept[1]));
    fixture.repo.delete_ref(&fixture.keep_ref).await.expect("deleted");
    fixture.scratch.git(&["gc", "-q", "--prune=now"]);
    let gone = fixture.move_to(Some(&fixture.base), &kept[1]).await;
    assert!(matches!(&gone, Err(DeliveryError::MissingCommit { commit }) if *commit == kept[1]), "{gone:?}");
    assert_eq!(fixture.head(), fixture.base);
}
