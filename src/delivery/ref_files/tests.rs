//! Refs in files, as git writes them.

use super::*;
use crate::delivery::tests::scratch_repo::ScratchRepo;

#[test]
fn refs_are_read_as_git_reads_them() {
    let scratch = ScratchRepo::new();
    let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
    let dir = scratch.root.join(".git");
    for (name, at) in [("feat/x", &first), ("feat/y", &first), ("x", &second)] {
        scratch.git(&["update-ref", &format!("refs/heads/{name}"), at.as_str()]);
    }
    scratch.git(&["tag", "-a", "-m", "tag", "feat/x", "HEAD"]);
    let check = || {
        for (name, at) in
            [("feat/x", Some(&first)), ("x", Some(&second)), ("feat", None), ("feat/x/y", None), ("none", None)]
        {
            assert_eq!(read_ref(&dir, &format!("refs/heads/{name}")), Some(at.cloned()), "{name}");
        }
    };
    check();
    scratch.git(&["pack-refs", "--all"]);
    check();
    scratch.git(&["update-ref", "refs/heads/feat/y", second.as_str()]);
    assert_eq!(read_ref(&dir, "refs/heads/feat/y"), Some(Some(second)), "the loose one is newer");
    scratch.git(&["symbolic-ref", "refs/heads/link", "refs/heads/x"]);
    assert_eq!(read_ref(&dir, "refs/heads/link"), None, "for git to follow");
    fs::write(dir.join("refs/heads/cut"), "").expect("written");
    assert_eq!(read_ref(&dir, "refs/heads/cut"), None, "for git to report");
}
