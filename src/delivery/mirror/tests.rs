//! The mirror branch in a real repository.

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, identity};

fn files(of: &[(&str, bool)]) -> Vec<MirrorFile> {
    of.iter().map(|(path, once)| MirrorFile { path: (*path).to_owned(), write_once: *once }).collect()
}

#[tokio::test]
async fn mirror_commits_a_directory_to_its_own_branch() {
    let scratch = ScratchRepo::new();
    let base = scratch.commit("a", "1");
    scratch.write("a", "changed");
    scratch.write("staged", "x");
    scratch.git(&["add", "staged"]);
    let dir = scratch.parent_dir().join("ssot dir");
    for path in ["tmp", "messages/T-1", "tasks"] {
        fs::create_dir_all(dir.join(path)).expect("made");
    }
    let write = |path: &str, text: &str| fs::write(dir.join(path), text).expect("written");
    write("messages/T-1/m.json", "{\"é\":\r\n1}\n");
    write("tasks/T-1.json", "{\"n\": 1}\n");
    // A filter of the user's would change what is mirrored.
    scratch.git(&["config", "filter.x.clean", "tr a-z A-Z"]);
    scratch.write(".git/info/attributes", "* filter=x\n");
    let status = scratch.git(&["status", "--porcelain"]);
    let repo = scratch.repo().await;
    let at = Timestamp::from_second(1_795_348_800).expect("a time");
    let both = files(&[("messages/T-1/m.json", true), ("tasks/T-1.json", false), ("a b", true)]);
    let first = repo.mirror(&dir, &both, &identity(), at).await.expect("mirrored").expect("a commit");
    let show = |path: &str| scratch.git(&["cat-file", "blob", &format!("longshore/ssot:{path}")]);
    assert_eq!(
        (show("messages/T-1/m.json").as_str(), show("tasks/T-1.json").as_str()),
        ("{\"é\":\r\n1}", "{\"n\": 1}")
    );
    assert_eq!(
        scratch.git(&["log", "--format=%cn <%ce> %ct %P", "longshore/ssot"]),
        "Long Shore <longshore@example.com> 1795348800"
    );

    // Nothing is new: no commit. The same size, and written again: one.
    assert_eq!(repo.mirror(&dir, &both, &identity(), at).await.expect("mirrored"), None);
    write("tasks/T-1.json", "{\"n\": 2}\n");
    let second = repo.mirror(&dir, &both, &identity(), at).await.expect("mirrored").expect("a commit");
    assert_eq!(show("tasks/T-1.json"), "{\"n\": 2}");
    assert_eq!(scratch.git(&["rev-parse", "longshore/ssot", "longshore/ssot^"]), format!("{second}\n{first}"));
    // What was torn when it was mirrored, and is gone from the dir.
    write("messages/T-1/m.json", "{}\n");
    repo.mirror(&dir, &both[..1], &identity(), at).await.expect("mirrored").expect("a commit");
    assert_eq!(scratch.git(&["ls-tree", "-r", "--name-only", "longshore/ssot"]), "messages/T-1/m.json");
    assert_eq!(show("messages/T-1/m.json"), "{}");

    assert_eq!((scratch.head(), scratch.git(&["status", "--porcelain"])), (base, status));
    assert_eq!(fs::read_dir(dir.join("tmp")).expect("a dir").count(), 0);
    scratch.git(&["stash", "-q"]);
    scratch.git(&["switch", "-q", "longshore/ssot"]);
    let refused = repo.mirror(&dir, &both, &identity(), at).await;
    assert!(matches!(refused, Err(DeliveryError::BranchCheckedOut { .. })), "{refused:?}");
}

#[test]
fn only_plain_paths_are_mirrored() {
    assert!(is_plain_path("messages/T-2026-001/escalation-T-2026-001-5.json"));
    for wrong in ["a b", "a\nb", "../x", "a//b", "\"a\"", "é", "", "a/./b"] {
        assert!(!is_plain_path(wrong), "{wrong}");
    }
}
