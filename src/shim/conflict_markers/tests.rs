//! Markers in files, and indexes that may differ from the work tree.

use super::*;
use std::process::Command;

#[test]
fn index_with_flags_or_another_version_may_differ() {
    let dir = tempfile::tempdir().expect("a directory");
    let git = |args: &[&str]| {
        let status = Command::new("git").current_dir(dir.path()).args(args).status().expect("git runs");
        assert!(status.success(), "{args:?}");
    };
    git(&["init", "-q", "--object-format=sha1"]);
    for name in ["a", "bb.txt", "dir-1234567", "very/deeply/nested.md"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, name).expect("written");
    }
    git(&["add", "-A"]);
    let git_dir = dir.path().join(".git");
    assert!(!index_may_differ(&git_dir));
    for (on, off) in [
        (["update-index", "--assume-unchanged", "bb.txt"], ["update-index", "--no-assume-unchanged", "bb.txt"]),
        (["update-index", "--skip-worktree", "a"], ["update-index", "--no-skip-worktree", "a"]),
        (["update-index", "--index-version", "4"], ["update-index", "--index-version", "2"]),
    ] {
        git(&on);
        assert!(index_may_differ(&git_dir), "{on:?}");
        git(&off);
        assert!(!index_may_differ(&git_dir), "{off:?}");
    }
    git(&["update-index", "--split-index"]);
    assert!(index_may_differ(&git_dir));
    fs::remove_file(git_dir.join("index")).expect("removed");
    assert!(index_may_differ(&git_dir));
}

#[test]
fn file_may_have_markers_needs_both_markers_at_line_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let may = |text: &str| {
        fs::write(dir.path().join("f"), text).expect("written");
        file_may_have_markers(&dir.path().join("f"))
    };
    assert!(may("<<<<<<< a\n=======\n>>>>>>> b\n"));
    assert!(may("x\r\n<<<<<<< a\r\n>>>>>>> b"));
    assert!(!may("<<<<<<< a\n") && !may(" <<<<<<< a\n >>>>>>> b\n") && !may("<<<<<<<\n>>>>>>>\n"));
    assert!(file_may_have_markers(&dir.path().join("gone")));
}
