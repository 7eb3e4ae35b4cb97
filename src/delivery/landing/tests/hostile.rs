//! Commits and configs that want more than to land.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::delivery::tests::scratch_repo::git_with_input;

#[tokio::test]
async fn what_a_commit_claims_does_not_land() {
    let fixture = LandingRepo::new().await;
    let tree = fixture.tree(&fixture.commit_story(&fixture.base, "a", "1\n", "a"));
    let raw = format!(
        "tree {tree}\nparent {}\nauthor Somebody Else <boss@example.com> 1 +1400\ncommitter Somebody Else <boss@example.com> 1 +1400\n\
         gpgsig -----BEGIN PGP SIGNATURE-----\n \n nonsense\n -----END PGP SIGNATURE-----\nx-odd: 1\nencoding ISO-8859-1\n\n\
         subject \u{7}\x1b[31mred\n\nLongshore-Swarm: {SWARM}\nLONGSHORE-story : US-007\n US-008\nLongshore-Content=abc\n\
         Long\u{1}shore-Story: US-009\nSigned-off-by: A <a@b.c>\n",
        fixture.base
    );
    let tip = git_with_input(
        &fixture.scratch.root,
        &["hash-object", "-t", "commit", "-w", "--stdin", "--literally"],
        raw.as_bytes(),
    );
    let tip: CommitId = String::from_utf8_lossy(&tip).trim().parse().expect("a commit");
    for stories in [&["US-001"][..], &["US-001", "US-002"]] {
        let candidate = fixture.candidate(&fixture.base, &tip, stories);
        let prepared = fixture.prepare(&fixture.base, &[candidate]).await.expect("prepared");
        let landed = &prepared.commits[0].commit;
        let written = if stories.len() == 1 { landed.clone() } else { fixture.parents(landed)[1].clone() };
        let text = fixture.scratch.git(&["cat-file", "commit", written.as_str()]);
        let (headers, message) = text.split_once("\n\n").expect("a message");
        let names: Vec<_> = headers.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["tree", "parent", "author", "committer"]);
        assert!(headers.contains("author An Agent <agent@example.com> "), "{headers}");
        let age = jiff::Timestamp::now().as_second() - fixture.show(&written, "%at").parse::<i64>().expect("a time");
        assert!((0..300).contains(&age), "{age}");
        assert!(message.starts_with("subject [31mred\n\nSigned-off-by: A <a@b.c>"), "{message}");
        for forged in ["US-007", "US-008", "US-009", "abc"] {
            assert!(!message.contains(forged), "{message}");
        }
        assert_eq!(message.matches(SWARM).count(), usize::from(stories.len() == 1));
    }
}

#[tokio::test]
async fn hooks_drivers_and_filters_are_not_run() {
    let fixture = LandingRepo::new().await;
    let ran = fixture.scratch.parent_dir().join("ran");
    let script = fixture.scratch.parent_dir().join("script");
    fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\nexit 0\n", ran.display())).expect("written");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("made executable");
    let path = script.to_str().expect("UTF-8");
    for hook in
        ["reference-transaction", "post-merge", "pre-merge-commit", "post-commit", "commit-msg", "post-checkout"]
    {
        std::os::unix::fs::symlink(&script, fixture.scratch.root.join(".git/hooks").join(hook)).expect("linked");
    }
    let attributes = "shared merge=mine filter=mine diff=mine\n";
    let base = fixture.commit_story(&fixture.base, ".gitattributes", attributes, "attributes");
    fixture.scratch.git(&["update-ref", "refs/heads/feat/all", base.as_str()]);
    let one = fixture.commit_story(&base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a");
    let two = fixture.commit_story(&base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b");
    fixture.scratch.git(&["config", "merge.mine.driver", &format!("{path} %A")]);
    fixture.scratch.git(&["config", "merge.od=d \"one.driver", path]);
    for key in [
        "filter.mine.clean",
        "filter.mine.smudge",
        "diff.mine.textconv",
        "diff.external",
        "core.fsmonitor",
        "gpg.program",
    ] {
        fixture.scratch.git(&["config", key, path]);
    }
    fixture.scratch.git(&["config", "commit.gpgSign", "true"]);
    fixture.scratch.git(&["config", "log.showSignature", "true"]);
    // The checkout has the attributes too.
    fixture.scratch.write(".gitattributes", "shared merge=mine\n");
    let _ = fs::remove_file(&ran);

    // With the config as it is now.
    let fixture = LandingRepo { repo: fixture.scratch.repo().await, ..fixture };
    let head = fixture.land(&base, fixture.candidate(&base, &one, &["US-001"])).await;
    let prepared = fixture.prepare(&head, &[fixture.candidate(&base, &two, &["US-001"])]).await.expect("tried");
    match &prepared.conflict {
        // A git that reads the branch's attributes: the file that wants the driver conflicts.
        Some(paths) => assert_eq!(*paths, ["shared"]),
        // An older one: merged as text.
        None => {
            let merged = fixture.scratch.git(&["show", &format!("{}:shared", prepared.commits[0].commit)]);
            assert_eq!(merged, "1!\n2\n3\n4\n5\n6\n7!");
        }
    }
    fixture.repo.diff_stat(&base, &two).await.expect("read");
    fixture.repo.commits_between(&base, &two).await.expect("read");
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap_or_default());
    let names: Vec<_> =
        fs::read_dir(&fixture.scratch.root).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".merge_file")));
}

#[tokio::test]
async fn long_messages_land_truncated() {
    let fixture = LandingRepo::new().await;
    let long = format!("subject\n\n{}", "é".repeat(100_000));
    let tree = fixture.tree(&fixture.commit_story(&fixture.base, "a", "1\n", "a"));
    let args = ["commit-tree", "-F", "-", "-p", fixture.base.as_str(), &tree];
    let tip = git_with_input(&fixture.scratch.root, &args, long.as_bytes());
    let tip: CommitId = String::from_utf8_lossy(&tip).trim().parse().expect("a commit");
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    let text = fixture.show(&head, "%B");
    assert!((60_000..70_000).contains(&text.len()), "{}", text.len());
    assert!(text.ends_with("Longshore-Content: hash-of-US-001"));
}
