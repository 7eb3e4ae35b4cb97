//! Locks of `git gc`.

use super::*;

#[test]
fn a_lock_counts_while_its_process_lives() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    assert!(!is_gc_running(dir.path()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let lock = |text: &str| fs::write(dir.path().join("gc.pid"), text).expect("written");
    lock(&format!("{} {host}", std::process::id()));
    assert!(is_gc_running(dir.path()));
    let mut child = std::process::Command::new("true").spawn().expect("it runs");
    child.wait().expect("it ends");
    lock(&format!("{} {host}", child.id()));
    assert!(!is_gc_running(dir.path()));
    lock(&format!("{} elsewhere", child.id()));
    assert!(is_gc_running(dir.path()), "another host's, and new");
    let old = std::time::SystemTime::now() - ABANDONED_AFTER * 2;
    let file = fs::File::options().write(true).open(dir.path().join("gc.pid")).expect("opened");
    file.set_modified(old).expect("set");
    assert!(!is_gc_running(dir.path()));
}
