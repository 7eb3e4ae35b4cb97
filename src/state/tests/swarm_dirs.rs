//! The folder, its lock, and finding swarms.

use std::time::{Duration, Instant};

use super::*;
use crate::ids::SwarmId;

fn swarm(number: u32) -> SwarmId {
    format!("{number:08x}-e5f6-4a7b-8c9d-0e1f2a3b4c5d").parse().expect("valid")
}

fn repo() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_new_swarm_dir_is_ignored_by_git_and_resolvable() {
    let repo = repo();
    assert!(matches!(SwarmDir::resolve(repo.path(), None), Err(StateError::NoSwarms(_))));
    assert_eq!(SwarmDir::list(repo.path()).expect("none"), []);
    let mut dirs = Vec::new();
    for number in [0xabc1, 0xabc2, 0x1111_0000] {
        let dir = SwarmDir::create(repo.path(), swarm(number)).expect("created");
        let header = JournalHeader { swarm_id: dir.swarm(), ..header(1) };
        SwarmStore::create(dir.clone(), &header).expect("created");
        dirs.push(dir);
    }
    let ignore = std::fs::read_to_string(repo.path().join(".longshore/.gitignore")).expect("there");
    assert_eq!(ignore, "*\n");
    assert!(dirs[0].path().join("logs").is_dir());
    assert_eq!(SwarmDir::latest(repo.path()).expect("found"), Some(dirs[2].clone()));
    assert_eq!(SwarmDir::resolve(repo.path(), None).expect("found"), dirs[2]);
    assert_eq!(SwarmDir::resolve(repo.path(), Some("1111")).expect("found"), dirs[2]);
    assert_eq!(SwarmDir::resolve(repo.path(), Some("0000ABC1")).expect("found"), dirs[0]);
    let error = SwarmDir::resolve(repo.path(), Some("0000abc")).expect_err("two");
    assert!(matches!(&error, StateError::AmbiguousSwarm { matches, .. } if matches.len() == 2), "{error}");
    for unknown in ["", "f", "../x"] {
        assert!(matches!(SwarmDir::resolve(repo.path(), Some(unknown)), Err(StateError::NoSuchSwarm { .. })));
    }
    dirs[1].set_latest().expect("moved");
    assert_eq!(SwarmDir::latest(repo.path()).expect("found"), Some(dirs[1].clone()));
    assert_eq!(SwarmDir::list(repo.path()).expect("three").len(), 3);
}

#[test]
fn latest_is_found_when_the_link_is_missing_or_damaged() {
    let repo = repo();
    let dir = SwarmDir::create(repo.path(), swarm(1)).expect("created");
    SwarmStore::create(dir.clone(), &JournalHeader { swarm_id: dir.swarm(), ..header(1) }).expect("created");
    let latest = repo.path().join(".longshore/latest");
    std::fs::remove_file(&latest).expect("it was there");
    assert_eq!(SwarmDir::latest(repo.path()).expect("found"), Some(dir.clone()));
    std::os::unix::fs::symlink("swarms/gone", &latest).expect("a link");
    assert_eq!(SwarmDir::latest(repo.path()).expect("found"), Some(dir.clone()));
    std::fs::remove_file(&latest).expect("it was there");
    std::fs::write(&latest, format!("{}\n", dir.swarm())).expect("written");
    assert_eq!(SwarmDir::latest(repo.path()).expect("found"), Some(dir));
}

#[test]
fn a_swarm_lock_is_exclusive() {
    let repo = repo();
    let dir = SwarmDir::create(repo.path(), swarm(1)).expect("created");
    assert!(!dir.is_locked().expect("asked"), "no lock file");
    let lock = dir.lock().expect("free");
    assert!(dir.is_locked().expect("asked"));
    let error = dir.lock().expect_err("taken");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(lock);
    assert!(!dir.is_locked().expect("asked"), "the file is still there, and means nothing");
    dir.lock().expect("free again");
}

/// Locks the swarm the way a child does that a dead orchestrator has just forked: the file names a process that has exited.
fn lock_with_dead_holder(dir: &SwarmDir) -> (std::fs::File, u32) {
    let mut child = std::process::Command::new("true").spawn().expect("it starts");
    let holder = child.id();
    child.wait().expect("it ends");
    let path = dir.path().join("lock");
    std::fs::write(&path, format!("{holder}\n")).expect("written");
    let file = std::fs::File::open(path).expect("opened");
    file.lock().expect("locked");
    (file, holder)
}

#[test]
fn a_lock_waits_until_a_dead_holders_child_releases_it() {
    let repo = repo();
    let dir = SwarmDir::create(repo.path(), swarm(1)).expect("created");
    let (file, _) = lock_with_dead_holder(&dir);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(file);
    });
    let _lock = dir.lock().expect("it is free before the timeout");
    release.join().expect("released");
    let text = std::fs::read_to_string(dir.path().join("lock")).expect("read");
    assert_eq!(text, format!("{}\n", std::process::id()), "the lock names its new holder");
}

#[test]
fn a_lock_that_outlives_its_dead_holder_is_refused_after_the_timeout() {
    let repo = repo();
    let dir = SwarmDir::create(repo.path(), swarm(1)).expect("created");
    let (_file, holder) = lock_with_dead_holder(&dir);
    let begin = Instant::now();
    let error = dir.lock().expect_err("it is never released");
    assert!(error.to_string().contains(&format!("process {holder}")), "{error}");
    assert!(begin.elapsed() >= Duration::from_secs(2), "refused after {:?}", begin.elapsed());
}

#[test]
fn symlinks_and_files_in_place_of_the_state_dir_are_rejected() {
    let (repo, elsewhere) = (repo(), repo());
    std::os::unix::fs::symlink(elsewhere.path(), repo.path().join(".longshore")).expect("a link");
    assert!(matches!(SwarmDir::create(repo.path(), swarm(1)), Err(StateError::Symlink(_))));
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("read").count(), 0, "nothing was written there");
    std::fs::remove_file(repo.path().join(".longshore")).expect("removed");
    std::fs::write(repo.path().join(".longshore"), "x").expect("written");
    assert!(matches!(SwarmDir::create(repo.path(), swarm(1)), Err(StateError::NotADirectory(_))));
    let error = SwarmDir::create(std::path::Path::new("/proc/self"), swarm(1)).expect_err("not writable");
    assert!(error.to_string().starts_with("cannot create the directory `/proc/self/.longshore`"), "{error}");
}

#[test]
fn a_store_is_reopened_and_recovered() {
    let repo = repo();
    let dir = SwarmDir::create(repo.path(), spec(1).swarm).expect("created");
    let mut store = SwarmStore::create(dir.clone(), &header(3)).expect("created");
    let mut play = SimulatedSwarm::new(3);
    for _ in 0..10 {
        let (event, at) = play.next_event().expect("more");
        store.append(&[(event, at)], started()).expect("appended");
    }
    let snapshot = store.snapshot(&play.machine, play.now).expect("made");
    snapshot.write().expect("written");
    drop(store);
    let recovered = recover(&dir).expect("recovered");
    assert!(recovered.machine == play.machine);
    assert_eq!((recovered.event_count, recovered.elapsed), (10, play.machine.last_event_at()));
    assert_eq!(recovered.header, header(3));
    let from_journal = recovery::current_state(&dir).expect("recovered");
    assert_eq!(SwarmState::read(&dir.state_file()).expect("read"), from_journal);
    let (mut store, contents) = SwarmStore::open(dir.clone()).expect("opened");
    assert_eq!(contents.records.len(), 10);
    store.append(&[play.next_event().expect("more")], started()).expect("appended");
    assert!(recover(&dir).expect("recovered").machine == play.machine);
}
