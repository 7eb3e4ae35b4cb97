//! Commit ranges and line counts against real git output.

use crate::delivery::tests::scratch_repo::ScratchRepo;

#[tokio::test]
async fn a_commit_range_is_described() {
    let scratch = ScratchRepo::new();
    let base = scratch.commit("a", "1\n2\n");
    scratch.write("a", "1\n3\n4\n");
    scratch.write("odd\n\"ü\"\t-x", "x\n");
    scratch.write("-n", "y\n");
    scratch.write("bin", "\0\0");
    scratch.git(&["add", "-A"]);
    scratch.git(&["commit", "-q", "-m", "first \u{1b}[31mred\n\nbody\nmore"]);
    let first = scratch.head();
    let tip = scratch.commit("c", "1\n");
    let repo = scratch.repo().await;

    let commits = repo.commits_between(&base, &tip).await.expect("read");
    assert_eq!(commits.iter().map(|note| &note.id).collect::<Vec<_>>(), [&first, &tip]);
    assert_eq!((commits[0].subject.as_str(), commits[0].body.as_str()), ("first \u{fffd}[31mred", "body\nmore"));
    let stats = repo.diff_stat(&base, &first).await.expect("read");
    let found: Vec<_> = stats.iter().map(|stat| (stat.path.as_str(), stat.added, stat.removed)).collect();
    assert_eq!(
        found,
        [("-n", Some(1), Some(0)), ("a", Some(2), Some(1)), ("bin", None, None), ("odd\n\"ü\"\t-x", Some(1), Some(0))]
    );
}

#[tokio::test]
async fn diff_stat_lists_renames_and_odd_names() {
    let scratch = ScratchRepo::new();
    scratch.write("keep", "1\n");
    scratch.write("old-name", "1\n2\n3\n");
    scratch.write("gone", "1\n2\n");
    let base = scratch.commit("changed", "1\n2\n");
    scratch.git(&["mv", "old-name", "new-name"]);
    scratch.git(&["rm", "-q", "gone"]);
    scratch.write("bin", "\0\0\n\n");
    scratch.write("changed", "1\nzwei\n");
    std::fs::write(scratch.root.join(std::ffi::OsStr::new("caf\u{e9}")), "x\n").expect("written");
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    std::fs::write(scratch.root.join(odd), "x\n").expect("written");
    let tip = scratch.commit("z", "1\n");
    let repo = scratch.repo().await;

    let stats = repo.diff_stat(&base, &tip).await.expect("counted");
    let found: Vec<_> = stats.iter().map(|stat| (stat.path.as_str(), stat.added, stat.removed)).collect();
    // Renames are not followed, and a binary file has no lines.
    let expected = [
        ("bin", None, None),
        ("caf\u{e9}", Some(1), Some(0)),
        ("changed", Some(1), Some(1)),
        ("gone", Some(0), Some(2)),
        ("new-name", Some(3), Some(0)),
        ("old-name", Some(0), Some(3)),
        ("z", Some(1), Some(0)),
        ("\u{fffd}", Some(1), Some(0)),
    ];
    assert_eq!(found, expected);
    assert!(repo.diff_stat(&tip, &tip).await.expect("counted").is_empty());
    assert!(repo.diff_stat(&base, &"0".repeat(40).parse().expect("40 digits")).await.is_err());
}
