//! Valid bundles, and bundles that a hostile sandbox could make.

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, git_in, git_with_input};

const RESULT_REF: &str = "refs/longshore/results/s/US-001/1";

/// A repository, a clone of it on the assigned branch, and the branch's base.
struct ImportFixture {
    host: ScratchRepo,
    sandbox: ScratchRepo,
    base: CommitId,
}

impl ImportFixture {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(init: &[&str]) -> Self {
        let host = ScratchRepo::with_init_args(init);
        let lines: String = (0..2_000).map(|n| format!("line {n} of a file that deltas well\n")).collect();
        host.commit("first", "1\n");
        let base = host.commit("big", &lines);
        let sandbox = host.clone_as_sandbox();
        sandbox.git(&["checkout", "-q", "-b", "work/us-001"]);
        Self { host, sandbox, base }
    }

    fn expected(&self, tip: &CommitId) -> ExpectedBundle {
        ExpectedBundle {
            branch: "work/us-001".parse().expect("valid"),
            base: self.base.clone(),
            merged: None,
            tip: Some(tip.clone()),
            result_ref: RESULT_REF.into(),
            salvage: Vec::new(),
        }
    }

    /// A bundle of the branch as the shim makes it.
    fn bundle(&self) -> PathBuf {
        self.sandbox.bundle(&["refs/heads/work/us-001", &format!("^{}", self.base)])
    }

    /// A bundle with this header and the objects of these revisions.
    fn craft_bundle(&self, header: &str, revisions: &str) -> PathBuf {
        let args = ["pack-objects", "--revs", "--stdout", "-q"];
        let pack = git_with_input(&self.sandbox.root, &args, revisions.as_bytes());
        self.write_bundle(&[format!("# v2 git bundle\n{header}\n").as_bytes(), &pack].concat())
    }

    fn write_bundle(&self, bytes: &[u8]) -> PathBuf {
        let path = self.sandbox.parent_dir().join("crafted.bundle");
        fs::write(&path, bytes).expect("written");
        path
    }

    /// Commits a tree with these `git mktree` entries on the base.
    fn commit_tree(&self, entries: &str) -> CommitId {
        let tree = git_with_input(&self.sandbox.root, &["mktree", "--missing"], entries.as_bytes());
        let tree = String::from_utf8(tree).expect("UTF-8");
        let commit = self.sandbox.git(&["commit-tree", "-m", "x", "-p", self.base.as_str(), tree.trim()]);
        self.sandbox.git(&["update-ref", "refs/heads/work/us-001", &commit]);
        commit.parse().expect("a commit")
    }

    /// The import must be refused and leave neither an object nor a ref.
    async fn assert_refused(&self, bundle: &Path, expected: &ExpectedBundle) -> BundleError {
        let (objects, refs) = (self.host.object_files(), self.host.git(&["for-each-ref"]));
        let repo = self.host.repo().await;
        let error = match repo.import_bundle(bundle, expected).await {
            Err(DeliveryError::BundleRefused(error)) => error,
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(self.host.object_files(), objects, "{error}");
        assert_eq!(self.host.git(&["for-each-ref"]), refs, "{error}");
        error
    }
}

async fn assert_result_is_imported(fixture: ImportFixture) {
    let first = fixture.sandbox.commit("one\n\"odd\" ü", "1\n");
    let changed = fs::read_to_string(fixture.sandbox.root.join("big")).expect("read") + "one more\n";
    let tip = fixture.sandbox.commit("big", &changed);
    let bundle = fixture.bundle();
    assert!(fs::metadata(&bundle).expect("there").len() < 2_000, "thin: the big file is a delta against the base");
    let repo = fixture.host.repo().await;
    let status = fixture.host.git(&["status", "--porcelain"]);
    repo.import_bundle(&bundle, &fixture.expected(&tip)).await.expect("imported");
    assert_eq!(fixture.host.git(&["rev-list", RESULT_REF, &format!("^{}", fixture.base)]), format!("{tip}\n{first}"));
    assert_eq!(fixture.host.git(&["for-each-ref", "--format=%(refname)"]), format!("refs/heads/main\n{RESULT_REF}"));
    assert_eq!(fixture.host.git(&["status", "--porcelain"]), status);
    fixture.host.git(&["fsck", "--strict", "--full"]);
    let left = |name: &str| name.contains("tmp_") || name.contains(".keep");
    assert!(!fixture.host.object_files().iter().any(|path| left(&path.to_string_lossy())));
    assert!(!fixture.host.root.join(".git/FETCH_HEAD").exists());
    // Again, as after a crash between the import and its record.
    repo.import_bundle(&bundle, &fixture.expected(&tip)).await.expect("imported again");
}

#[tokio::test]
async fn a_result_is_imported() {
    assert_result_is_imported(ImportFixture::new()).await;
}

#[tokio::test]
async fn a_sha256_result_is_imported() {
    assert_result_is_imported(ImportFixture::with(&["--object-format=sha256"])).await;
}

#[tokio::test]
async fn salvage_is_imported_with_or_without_the_branch() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("one", "1\n");
    let left = fixture.sandbox.commit("two", "half\n");
    fixture.sandbox.git(&["reset", "-q", "--hard", tip.as_str()]);
    let story: StoryId = "US-002".parse().expect("valid");
    let in_bundle = layout::salvage_ref(&story);
    fixture.sandbox.git(&["update-ref", &in_bundle, left.as_str()]);
    let not_base = format!("^{}", fixture.base);
    let both = ["refs/heads/work/us-001", &in_bundle, &not_base];
    let bundle = fixture.sandbox.bundle(&both);
    let kept = "refs/longshore/salvage/s/US-002/1";
    let expected = ExpectedBundle { salvage: vec![(story, left.clone(), kept.into())], ..fixture.expected(&tip) };
    let repo = fixture.host.repo().await;
    repo.import_bundle(&bundle, &expected).await.expect("imported");
    assert_eq!(fixture.host.git(&["rev-parse", RESULT_REF, kept]), format!("{tip}\n{left}"));
    let refs = format!("refs/heads/main\n{RESULT_REF}\n{kept}");
    assert_eq!(fixture.host.git(&["for-each-ref", "--format=%(refname)"]), refs);

    let alone = fixture.sandbox.bundle(&[&in_bundle, &not_base]);
    let expected = ExpectedBundle { tip: None, result_ref: "refs/longshore/none".into(), ..expected };
    repo.import_bundle(&alone, &expected).await.expect("imported");
    assert_eq!(fixture.host.git(&["for-each-ref", "--format=%(refname)"]), refs, "no other ref is created");
    assert!(matches!(
        fixture.assert_refused(&fixture.sandbox.bundle(&both), &expected).await,
        BundleError::UnexpectedRef { .. }
    ));
}

#[tokio::test]
async fn salvage_of_a_dead_sandbox_is_imported() {
    let fixture = ImportFixture::new();
    fixture.sandbox.git(&["checkout", "-q", "--orphan", "elsewhere"]);
    let left = fixture.sandbox.commit("two", "half\n");
    fixture.sandbox.git(&["update-ref", "refs/longshore/left", left.as_str()]);
    let bundle = fixture.sandbox.bundle(&["refs/longshore/left", &format!("^{}", fixture.base)]);
    let repo = fixture.host.repo().await;
    let to = "refs/longshore/salvage/s/US-001/1";
    let wrong = repo.import_salvage(&bundle, "refs/longshore/other", &left, to).await;
    assert!(matches!(wrong, Err(DeliveryError::BundleRefused(BundleError::UnexpectedRef { .. }))));
    let outside = repo.import_salvage(&bundle, "refs/longshore/left", &left, "refs/heads/main").await;
    assert!(matches!(outside, Err(DeliveryError::ForbiddenRef { .. })));
    repo.import_salvage(&bundle, "refs/longshore/left", &left, to).await.expect("imported");
    assert_eq!(fixture.host.git(&["rev-parse", to]), left.as_str());
    // Again: an orchestrator may have died before it wrote down that it came in.
    repo.import_salvage(&bundle, "refs/longshore/left", &left, to).await.expect("the same again");
    let other = "refs/longshore/salvage/s/US-001/2";
    repo.import_salvage(&bundle, "refs/longshore/left", &left, other).await.expect("under another name");
    assert_eq!(fixture.host.git(&["rev-parse", to, other]), format!("{left}\n{left}"));
    let tree = fixture.sandbox.git(&["rev-parse", &format!("{left}^{{tree}}")]);
    let of_tree = fixture.craft_bundle(&format!("{tree} refs/longshore/left\n"), &format!("{left}\n"));
    let tree = tree.parse().expect("an id");
    let tree = repo.import_salvage(&of_tree, "refs/longshore/left", &tree, "refs/longshore/salvage/s/US-001/3").await;
    assert!(matches!(tree, Err(DeliveryError::BundleRefused(BundleError::NotACommit { .. }))), "{tree:?}");

    let crafted = fixture.craft_bundle(&format!("{left} refs/longshore/left\n"), &format!("{left}^{{tree}}\n"));
    let again = ImportFixture::new();
    let missing = again.host.repo().await.import_salvage(&crafted, "refs/longshore/left", &left, to).await;
    assert!(matches!(missing, Err(DeliveryError::BundleRefused(BundleError::Incomplete { .. }))), "{missing:?}");
}

#[tokio::test]
async fn unexpected_refs_are_refused() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("one", "1\n");
    fixture.sandbox.git(&["update-ref", "refs/heads/main", tip.as_str()]);
    fixture.sandbox.git(&["tag", "v1"]);
    let base = format!("^{}", fixture.base);
    for extra in ["refs/heads/main", "refs/tags/v1", "HEAD"] {
        let bundle = fixture.sandbox.bundle(&["refs/heads/work/us-001", extra, &base]);
        assert!(
            matches!(fixture.assert_refused(&bundle, &fixture.expected(&tip)).await, BundleError::UnexpectedRef { name } if name == extra)
        );
    }
    // The same ref twice, and a name that differs in case alone.
    let line = format!("{tip} refs/heads/work/us-001\n");
    for (header, revisions) in
        [(format!("{line}{line}"), format!("{tip}\n")), (format!("{tip} refs/heads/Work/us-001\n"), format!("{tip}\n"))]
    {
        let bundle = fixture.craft_bundle(&header, &revisions);
        assert!(matches!(
            fixture.assert_refused(&bundle, &fixture.expected(&tip)).await,
            BundleError::UnexpectedRef { .. }
        ));
    }
}

#[tokio::test]
async fn a_wrong_or_missing_tip_is_refused() {
    let fixture = ImportFixture::new();
    let claimed = fixture.sandbox.commit("one", "1\n");
    let story: StoryId = "US-002".parse().expect("valid");
    let salvage = vec![(story, claimed.clone(), "refs/longshore/salvage/s/US-002/1".to_owned())];
    let lacking = ExpectedBundle { salvage, ..fixture.expected(&claimed) };
    assert!(matches!(fixture.assert_refused(&fixture.bundle(), &lacking).await, BundleError::MissingRef { .. }));
    let tip = fixture.sandbox.commit("one", "2\n");
    let bundle = fixture.bundle();
    assert!(matches!(
        fixture.assert_refused(&bundle, &fixture.expected(&claimed)).await,
        BundleError::WrongTip { found, .. } if found == tip
    ));
    let without_tip = ExpectedBundle { tip: None, ..fixture.expected(&claimed) };
    assert!(matches!(fixture.assert_refused(&bundle, &without_tip).await, BundleError::UnexpectedRef { .. }));
}

#[tokio::test]
async fn a_branch_not_descended_from_its_base_is_refused() {
    let fixture = ImportFixture::new();
    fixture.sandbox.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let beside = fixture.sandbox.commit("one", "1\n");
    assert!(matches!(
        fixture.assert_refused(&fixture.bundle(), &fixture.expected(&beside)).await,
        BundleError::NotDescendedFromBase { .. }
    ));

    fixture.sandbox.git(&["checkout", "-q", "--orphan", "fresh"]);
    let orphan = fixture.sandbox.commit("one", "1\n");
    fixture.sandbox.git(&["update-ref", "refs/heads/work/us-001", orphan.as_str()]);
    assert!(matches!(
        fixture.assert_refused(&fixture.bundle(), &fixture.expected(&orphan)).await,
        BundleError::NotDescendedFromBase { .. }
    ));
    // Neither a message nor a file name makes the base a parent.
    fixture.sandbox.git(&["checkout", "-q", "-B", "older", &format!("{}~1", fixture.base)]);
    let parent = fixture.sandbox.head();
    for line in ["\n ", "\r", "\n", "\n\t\n"]
        .map(|gap| format!("x\n\nLongshore-Story: US-001{gap}: {parent}|{}|", fixture.base))
    {
        let tip = fixture.sandbox.commit_with_message("one", "1\n", &line);
        let bundle = fixture.craft_bundle(&format!("{tip} refs/heads/work/us-001\n"), &format!("{tip}\n^{parent}\n"));
        assert!(
            matches!(
                fixture.assert_refused(&bundle, &fixture.expected(&tip)).await,
                BundleError::NotDescendedFromBase { .. }
            ),
            "{line:?}"
        );
        fixture.sandbox.git(&["reset", "-q", "--hard", parent.as_str()]);
    }
    fixture.sandbox.git(&["checkout", "-q", "fresh"]);
    let orphan = fixture.sandbox.commit(fixture.base.as_str(), "1\n");
    let bundle = fixture.craft_bundle(&format!("{orphan} refs/heads/work/us-001\n"), &format!("{orphan}\n"));
    assert!(matches!(
        fixture.assert_refused(&bundle, &fixture.expected(&orphan)).await,
        BundleError::NotDescendedFromBase { .. }
    ));
}

#[tokio::test]
async fn a_tip_that_is_not_a_new_commit_is_refused() {
    let fixture = ImportFixture::new();
    fixture.sandbox.commit("one", "1\n");
    fixture.sandbox.git(&["tag", "-a", "-m", "x", "t"]);
    for name in ["refs/tags/t", "HEAD^{tree}", "HEAD:one"] {
        let tip: CommitId = fixture.sandbox.git(&["rev-parse", name]).parse().expect("an id");
        let bundle = fixture.craft_bundle(&format!("{tip} refs/heads/work/us-001\n"), "refs/tags/t\n");
        let error = fixture.assert_refused(&bundle, &fixture.expected(&tip)).await;
        assert!(matches!(error, BundleError::NotACommit { .. } | BundleError::NotDescendedFromBase { .. }), "{error}");
    }
    // A commit that was there before: not the sandbox's work.
    let old: CommitId = fixture.host.git(&["rev-parse", "HEAD~1"]).parse().expect("a commit");
    let bundle = fixture.craft_bundle(&format!("{old} refs/heads/work/us-001\n"), "HEAD\n^HEAD~1\n");
    assert!(matches!(fixture.assert_refused(&bundle, &fixture.expected(&old)).await, BundleError::NotACommit { .. }));
}

#[tokio::test]
async fn prerequisites_outside_the_base_history_are_refused() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("one", "1\n");
    let base = &fixture.base;
    let refs = format!("{tip} refs/heads/work/us-001\n");
    let unknown = "1".repeat(40);
    let bundle = fixture.craft_bundle(&format!("-{unknown} x\n{refs}"), &format!("{tip}\n^{base}\n"));
    assert!(matches!(fixture.assert_refused(&bundle, &fixture.expected(&tip)).await, BundleError::Incomplete { .. }));
    // The host has it, but the assignment has nothing to do with it.
    fixture.host.git(&["checkout", "-q", "-b", "private"]);
    let private = fixture.host.commit("secret", "1\n");
    fixture.host.git(&["checkout", "-q", "main"]);
    let bundle = fixture.craft_bundle(&format!("-{private} x\n{refs}"), &format!("{tip}\n^{base}\n"));
    assert!(matches!(
        fixture.assert_refused(&bundle, &fixture.expected(&tip)).await,
        BundleError::ForeignPrerequisite { .. }
    ));
    // An ancestor of the base is fine.
    let old = fixture.host.git(&["rev-parse", "HEAD~1"]);
    let bundle = fixture.craft_bundle(&format!("-{old} x\n{refs}"), &format!("{tip}\n^{old}\n"));
    fixture.host.repo().await.import_bundle(&bundle, &fixture.expected(&tip)).await.expect("imported");
}

#[tokio::test]
async fn damaged_and_truncated_packs_are_refused() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("one", &"some text\n".repeat(50));
    let whole = fs::read(fixture.bundle()).expect("read");
    let refused =
        |error: &BundleError| matches!(error, BundleError::InvalidObjects { .. } | BundleError::MalformedHeader { .. });
    for cut in [whole.len() - 1, whole.len() - 25, whole.len() / 2, 60, 10, 0] {
        let bundle = fixture.write_bundle(&whole[..cut]);
        let error = fixture.assert_refused(&bundle, &fixture.expected(&tip)).await;
        assert!(refused(&error), "cut to {cut}: {error}");
    }
    for at in [whole.len() - 5, whole.len() - 40, whole.len() - 80] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        let error = fixture.assert_refused(&fixture.write_bundle(&bytes), &fixture.expected(&tip)).await;
        assert!(refused(&error), "damaged at {at}: {error}");
    }
}

#[tokio::test]
async fn bundles_with_missing_objects_are_refused() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("dir/one", "nowhere else\n");
    let header = format!("-{} x\n{tip} refs/heads/work/us-001\n", fixture.base);
    let name = |what: &str| fixture.sandbox.git(&["rev-parse", what]);
    let (tree, dir, blob) = (name("HEAD^{tree}"), name("HEAD:dir"), name("HEAD:dir/one"));
    // All but one: the file, the directory, the tree, the commit.
    for (lacking, revisions) in [
        ("blob", format!("{tip}\n^{}\n^{blob}\n", fixture.base)),
        ("directory", format!("{tip}\n^{}\n^{dir}\n", fixture.base)),
        ("tree", format!("{tip}\n^{}\n^{tree}\n", fixture.base)),
        ("commit", format!("{tree}\n^{}\n", fixture.base)),
    ] {
        let bundle = fixture.craft_bundle(&header, &revisions);
        let error = fixture.assert_refused(&bundle, &fixture.expected(&tip)).await;
        assert!(
            matches!(error, BundleError::InvalidObjects { .. } | BundleError::Incomplete { .. }),
            "{lacking}: {error}"
        );
    }
}

#[tokio::test]
async fn trees_with_dangerous_paths_are_refused() {
    let fixture = ImportFixture::new();
    fixture.sandbox.commit("x", "#!/bin/sh\n");
    let (blob, tree) =
        (fixture.sandbox.git(&["rev-parse", "HEAD:x"]), fixture.sandbox.git(&["rev-parse", "HEAD^{tree}"]));
    for entries in [
        format!("040000 tree {tree}\t.git\n"),
        format!("040000 tree {tree}\t.GIT\n"),
        format!("040000 tree {tree}\tgit~1\n"),
        format!("040000 tree {tree}\t..\n"),
        format!("100644 blob {blob}\t..\n"),
        format!("040000 tree {tree}\t.\n"),
        format!("120000 blob {blob}\t.gitmodules\n"),
    ] {
        let tip = fixture.commit_tree(&entries);
        let error = fixture.assert_refused(&fixture.bundle(), &fixture.expected(&tip)).await;
        assert!(matches!(error, BundleError::InvalidObjects { .. }), "{entries}: {error}");
    }
    // A module whose URL is an option, the way CVE-2018-17456 went.
    let tip = fixture.sandbox.commit(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = -u./payload\n");
    let bundle = fixture.sandbox.bundle(&["refs/heads/work/us-001", &format!("^{}", fixture.base)]);
    assert!(matches!(
        fixture.assert_refused(&bundle, &fixture.expected(&tip)).await,
        BundleError::InvalidObjects { .. }
    ));
}

#[tokio::test]
async fn a_pack_over_the_memory_limit_is_refused() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("x", "1\n");
    // One commit of 3 GiB, by its header: more than the limit, and little enough for a system to promise.
    let mut pack = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
    pack.extend([0x90, 0x80, 0x80, 0x80, 0x60]);
    pack.extend([0x78, 0x9c, 0x03, 0, 0, 0, 0, 1]);
    pack.extend([0; 20]);
    let header = format!("# v2 git bundle\n{tip} refs/heads/work/us-001\n\n");
    let bundle = fixture.write_bundle(&[header.as_bytes(), &pack].concat());
    let error = fixture.assert_refused(&bundle, &fixture.expected(&tip)).await;
    if cfg!(target_os = "linux") {
        assert!(matches!(error, BundleError::TooMuchMemory { .. }), "{error}");
    } else {
        assert!(matches!(error, BundleError::InvalidObjects { .. }), "{error}");
    }
}

#[tokio::test]
async fn import_does_not_overwrite_an_existing_ref() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("x", "1\n");
    fixture.host.git(&["update-ref", RESULT_REF, fixture.base.as_str()]);
    let taken = fixture.host.repo().await.import_bundle(&fixture.bundle(), &fixture.expected(&tip)).await;
    assert!(matches!(taken, Err(DeliveryError::RefExists { .. })));
    assert_eq!(fixture.host.git(&["rev-parse", RESULT_REF]), fixture.base.as_str());
}

#[tokio::test]
async fn a_base_missing_on_the_host_is_a_host_error() {
    let fixture = ImportFixture::new();
    let tip = fixture.sandbox.commit("x", "1\n");
    let bundle = fixture.sandbox.bundle(&["refs/heads/work/us-001"]);
    let gone: CommitId = "1".repeat(40).parse().expect("valid");
    let failed = fixture
        .host
        .repo()
        .await
        .import_bundle(&bundle, &ExpectedBundle { base: gone.clone(), ..fixture.expected(&tip) })
        .await;
    assert!(matches!(failed, Err(DeliveryError::MissingCommit { commit }) if commit == gone));
}

#[tokio::test]
async fn results_are_imported_into_a_shallow_repo() {
    let full = ImportFixture::new();
    let url = format!("file://{}", full.host.root.display());
    git_in(full.host.parent_dir(), &["clone", "-q", "--depth=1", &url, "shallow"]);
    let repo = Repo::discover(&full.host.parent_dir().join("shallow")).await.expect("a repo");
    let tip = full.sandbox.commit("x", "1\n");
    repo.import_bundle(&full.bundle(), &full.expected(&tip)).await.expect("imported");
}

#[tokio::test]
async fn hooks_are_not_run() {
    let fixture = ImportFixture::new();
    fixture.host.write(".git/hooks/reference-transaction", "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\nexit 1\n");
    let hook = fixture.host.root.join(".git/hooks/reference-transaction");
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("made executable");
    let tip = fixture.sandbox.commit("x", "1\n");
    fixture.host.repo().await.import_bundle(&fixture.bundle(), &fixture.expected(&tip)).await.expect("imported");
    assert!(!fixture.host.root.join(".git/hooks/ran").exists());
}

#[test]
fn alternate_paths_are_quoted() {
    assert_eq!(quote_path(Path::new("/a b/c:d \"e\"\\")), OsString::from(r#""/a b/c:d \"e\"\\""#));
}

#[tokio::test]
async fn a_merge_of_the_integration_branch_is_imported() {
    let fixture = ImportFixture::new();
    let repo = fixture.host.repo().await;
    let earlier = fixture.sandbox.commit("mine", "1\n");
    repo.import_bundle(&fixture.bundle(), &fixture.expected(&earlier)).await.expect("imported");
    let head = fixture.host.commit("theirs", "1\n");
    fixture.sandbox.git(&["fetch", "-q", &fixture.host.root.to_string_lossy(), "main"]);
    let unmerged = fixture.sandbox.commit("more", "1\n");
    let revisions = ["refs/heads/work/us-001", &format!("^{earlier}"), &format!("^{head}")];
    let expected = |tip: &CommitId| ExpectedBundle {
        base: earlier.clone(),
        merged: Some(head.clone()),
        result_ref: "refs/longshore/results/merged".to_owned(),
        ..fixture.expected(tip)
    };
    let refused = fixture.assert_refused(&fixture.sandbox.bundle(&revisions), &expected(&unmerged)).await;
    assert!(matches!(&refused, BundleError::NotDescendedFromBase { base, .. } if *base == head), "{refused}");

    fixture.sandbox.git(&["merge", "-q", "-m", "merge", head.as_str()]);
    let tip = fixture.sandbox.head();
    let bundle = fixture.sandbox.bundle(&revisions);
    let not_known = ExpectedBundle { merged: None, ..expected(&tip) };
    assert!(matches!(fixture.assert_refused(&bundle, &not_known).await, BundleError::ForeignPrerequisite { .. }));
    repo.import_bundle(&bundle, &expected(&tip)).await.expect("imported");
    assert_eq!(fixture.host.git(&["rev-parse", "refs/longshore/results/merged"]), tip.as_str());
}
