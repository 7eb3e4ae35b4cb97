//! Accepted and refused fixes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::delivery::tests::scratch_repo::ScratchRepo;

const SOURCE: &str = "use a::A;\nuse b::B;\n\nfn main() {\n    // Recieves teh thing.\n    run(1);\n}\n";

/// A repository with files to fix.
fn fix_repo() -> (ScratchRepo, CommitId) {
    let scratch = ScratchRepo::new();
    scratch.write("src/lib.rs", SOURCE);
    scratch.write("main.go", "import (\n\t\"b\"\n\tx \"a\"\n)\n");
    scratch.write("list.json", "[\n\"b\",\n\"a\"\n]\n");
    scratch.write("no-newline", "one\ntwo");
    scratch.write("bin", "\0\u{1}\n");
    scratch.write("run.sh", "echo helo\n");
    scratch.write("odd \"name\"\n.txt", "helo\n");
    std::os::unix::fs::symlink("run.sh", scratch.root.join("link")).expect("linked");
    let base = scratch.commit("other.txt", "1\n2\n3\n4\n5\n");
    (scratch, base)
}

fn declared(fixes: &[(&str, ChangeType)]) -> Vec<DirectFix> {
    let fix = |(file, change_type): &(&str, ChangeType)| DirectFix {
        file: (*file).to_owned(),
        change_type: *change_type,
        diff_lines: 1,
    };
    fixes.iter().map(fix).collect()
}

/// The size of the fix, or reason it is refused.
async fn verify(repo: &Repo, from: &CommitId, to: &CommitId, fixes: &[DirectFix]) -> Result<FixSize, String> {
    match repo.verify_direct_fix(from, to, fixes).await.expect("git answers") {
        FixVerdict::Accepted(size) => Ok(size),
        FixVerdict::Refused(reason) => Err(reason),
    }
}

/// Verifies a change that `make` makes in one commit.
async fn verify_change(fixes: &[(&str, ChangeType)], make: impl FnOnce(&ScratchRepo)) -> Result<FixSize, String> {
    let (scratch, base) = fix_repo();
    make(&scratch);
    scratch.git(&["add", "-A"]);
    scratch.git(&["commit", "-q", "--allow-empty", "-m", "fix"]);
    verify(&scratch.repo().await, &base, &scratch.head(), &declared(fixes)).await
}

/// Verifies a change of a file's text.
async fn verify_replacement(file: &str, kind: ChangeType, from: &str, to: &str) -> Result<FixSize, String> {
    verify_change(&[(file, kind)], |scratch| {
        let text = fs::read_to_string(scratch.root.join(file)).expect("read");
        assert!(text.contains(from), "{file} has no {from:?}");
        scratch.write(file, &text.replacen(from, to, 1));
    })
    .await
}

/// The declared fixes, the change, and a part of the refusal.
type FixCase<'a> = (&'a [(&'a str, ChangeType)], fn(&ScratchRepo), &'a str);

use ChangeType::{ImportOrder, Lint, Typo, Whitespace};

#[tokio::test]
async fn allowed_direct_fixes_are_accepted() {
    let code = "src/lib.rs";
    for (file, kind, from, to, lines) in [
        (code, Typo, "Recieves", "Receives", 2),
        (code, Typo, "Recieves teh", "Receives the", 2),
        (code, Whitespace, "    run(1);", "\trun( 1 );", 2),
        (code, Whitespace, "\n\nfn", "\nfn", 1),
        (code, Whitespace, "run(1);\n", "run(1);\r\n", 2),
        ("no-newline", Whitespace, "two", "two\n", 2),
        (code, ImportOrder, "use a::A;\nuse b::B;\n", "use b::B;\nuse a::A;\n", 2),
        ("main.go", ImportOrder, "\t\"b\"\n\tx \"a\"\n", "\tx \"a\"\n\t\"b\"\n", 2),
        (code, Lint, "run(1);", "run(1)", 2),
        (code, Lint, "use a::A;\n", "", 1),
        (code, Lint, "    run(1);", "  run( 1 ); ", 2),
        ("run.sh", Typo, "helo", "hello", 2),
        ("odd \"name\"\n.txt", Typo, "helo", "hello", 2),
        ("./run.sh", Typo, "helo", "hello", 2),
    ] {
        let seen = verify_replacement(file, kind, from, to).await;
        let files = vec![file.trim_start_matches("./").to_owned()];
        assert_eq!(seen, Ok(FixSize { files, lines }), "{kind:?} {from:?} -> {to:?}");
    }
}

#[tokio::test]
async fn one_file_may_have_several_kinds_of_fix() {
    let change =
        |scratch: &ScratchRepo| scratch.write("src/lib.rs", &SOURCE.replace("teh", "the").replace("run(1)", "run( 1)"));
    let both = [("src/lib.rs", Typo), ("src/lib.rs", Whitespace)];
    // Next to each other they are one hunk.
    assert_eq!(verify_change(&both, change).await.map(|seen| seen.lines), Ok(4));
    let apart =
        |scratch: &ScratchRepo| scratch.write("src/lib.rs", &SOURCE.replace("teh", "the").replace("use a", "use  a"));
    assert_eq!(verify_change(&both, apart).await.map(|seen| seen.lines), Ok(4));
    let other =
        |scratch: &ScratchRepo| scratch.write("src/lib.rs", &SOURCE.replace("teh", "the").replace("run", "stop"));
    assert!(verify_change(&both, other).await.expect_err("another word").contains("different words"));
    assert!(verify_change(&[("src/lib.rs", Typo)], apart).await.is_err(), "one of them was not declared");
}

#[tokio::test]
async fn disallowed_direct_fixes_are_refused() {
    let code = "src/lib.rs";
    for (file, kind, from, to, expected) in [
        // The kind does not explain it.
        (code, Typo, "run(1)", "run(2)", "more than the letters"),
        (code, Typo, "run", "stop", "different words"),
        (code, Typo, "run(1)", "evil(1)", "different words"),
        (code, Typo, "    run(1);\n", "", "within its line"),
        (code, Typo, "run(1);", "run(1); run(1);", "more than the letters"),
        (code, Lint, "run(1);", "rm -rf /", "punctuation, comments and imports"),
        (code, Lint, "run(1)", "run(2)", "punctuation, comments and imports"),
        (code, Lint, "    run(1);\n", "", "punctuation, comments and imports"),
        (code, Whitespace, "run(1)", "run(2)", "more than white space"),
        (code, Whitespace, "thing.\n    run", "thing. run", "more than white space"),
        (code, ImportOrder, "use a::A;\nuse b::B;\n", "use b::B;\nuse a::C;\n", "not the same imports"),
        (code, ImportOrder, "thing.\n    run(1);\n", "thing.\n}\n    run(1);\n", "not the same imports"),
        ("list.json", ImportOrder, "\"b\",\n\"a\"\n", "\"a\"\n\"b\",\n", "not the same imports"),
        // Nothing was moved: white space is not order.
        (code, ImportOrder, "use a::A;", "use  a::A;", "not the same imports"),
        // Too much.
        ("other.txt", Lint, "1\n2\n3\n", "one\ntwo\nthree\n", "6 lines"),
        ("other.txt", Lint, "1\n2\n3\n4\n5\n", "", "5 lines"),
        ("other.txt", Whitespace, "1\n2\n3\n", " 1\n 2\n 3\n", "6 lines"),
        (code, Typo, "run(1)", "\0run(1)", "binary"),
        ("bin", Lint, "\n", "\n\n", "binary"),
    ] {
        let reason = verify_replacement(file, kind, from, to).await.expect_err(to);
        assert!(reason.contains(expected), "{kind:?} {from:?} -> {to:?}: {reason}");
    }
}

#[tokio::test]
async fn only_declared_regular_files_may_change() {
    let typo = |scratch: &ScratchRepo| scratch.write("run.sh", "echo hello\n");
    let run = ("run.sh", Typo);
    assert!(verify_change(&[run], typo).await.is_ok());
    let table: [FixCase; 13] = [
        (&[run], |_| {}, "nothing was changed"),
        (&[], |s| s.write("run.sh", "echo hello\n"), "does not declare it"),
        (&[("RUN.sh", Typo)], |s| s.write("run.sh", "echo hello\n"), "does not declare it"),
        (&[run, ("src/lib.rs", Typo)], |s| s.write("run.sh", "echo hello\n"), "`src/lib.rs` is declared as fixed"),
        (&[run, ("new", Lint)], |s| s.write("new", "x\n"), "`new` was added"),
        (&[("run.sh", Lint)], |s| fs::remove_file(s.root.join("run.sh")).expect("removed"), "was deleted"),
        (&[("run.sh", Lint), ("go.sh", Lint)], |s| drop(s.git(&["mv", "run.sh", "go.sh"])), "was added"),
        (
            &[("run.sh", Lint)],
            |s| fs::set_permissions(s.root.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("set"),
            "the mode of `run.sh`",
        ),
        (
            &[("link", Lint)],
            |s| {
                fs::remove_file(s.root.join("link")).expect("removed");
                std::os::unix::fs::symlink("/etc/passwd", s.root.join("link")).expect("linked");
            },
            "`link` is not a regular file",
        ),
        (
            &[("run.sh", Lint)],
            |s| {
                fs::remove_file(s.root.join("run.sh")).expect("removed");
                std::os::unix::fs::symlink("other.txt", s.root.join("run.sh")).expect("linked");
            },
            "run.sh",
        ),
        (
            &[("sub", Lint)],
            |s| drop(s.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", "1".repeat(40))])),
            "`sub` was added",
        ),
        (
            &[("run.sh", Lint), ("other.txt", Lint)],
            |s| {
                s.write("run.sh", "1\n2\n");
                s.write("other.txt", "1\n2\n3\nx\n5\n");
            },
            "5 lines",
        ),
        (
            &[("other.txt", Lint)],
            |s| s.write("other.txt", &format!("{}\n2\n3\n4\n5\n", "x".repeat(2_000_000))),
            "too long",
        ),
    ];
    for (fixes, make, expected) in table {
        // `git add` would take a submodule that has no directory out again.
        let reason = if expected.contains("sub") {
            let (scratch, base) = fix_repo();
            make(&scratch);
            scratch.git(&["commit", "-q", "-m", "fix"]);
            verify(&scratch.repo().await, &base, &scratch.head(), &declared(fixes)).await
        } else {
            verify_change(fixes, make).await
        };
        let reason = reason.expect_err(expected);
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[tokio::test]
async fn fix_history_is_linear_short_and_small() {
    let run = declared(&[("run.sh", Typo)]);
    // Two commits that are one fix together.
    let (scratch, base) = fix_repo();
    scratch.commit("run.sh", "echo heloo\n");
    let two = scratch.commit("run.sh", "echo hello\n");
    let repo = scratch.repo().await;
    let check = async |to: &CommitId, fixes: &[DirectFix]| verify(&repo, &base, to, fixes).await;
    assert_eq!(check(&two, &run).await, Ok(FixSize { files: vec!["run.sh".into()], lines: 2 }));
    // A file that was added and removed again would be in the history.
    scratch.commit("secret", "x\n");
    scratch.git(&["rm", "-q", "secret"]);
    let hidden = scratch.commit("run.sh", "echo hello\n");
    assert!(check(&hidden, &run).await.expect_err("hidden").contains("`secret` was added"));
    scratch.git(&["reset", "-q", "--hard", two.as_str()]);
    scratch.commit("run.sh", &"x\n".repeat(100));
    let grown = scratch.commit("run.sh", "echo hello\n");
    let reason = check(&grown, &run).await.expect_err("grown");
    assert!(reason.starts_with("in commit ") && reason.contains("101 lines"), "{reason}");
    // Too many.
    scratch.git(&["reset", "-q", "--hard", two.as_str()]);
    for text in ["echo hallo\n", "echo hello\n", "echo hallo\n"] {
        scratch.commit("run.sh", text);
    }
    assert!(check(&scratch.head(), &run).await.expect_err("many").contains("more than 4 commits"));
    // A merge, a sibling, an ancestor, and a commit that the repo does not have.
    scratch.git(&["checkout", "-q", "-b", "side", base.as_str()]);
    let side = scratch.commit("run.sh", "echo help\n");
    scratch.git(&["checkout", "-q", "-b", "merged", two.as_str()]);
    scratch.git(&["merge", "-q", "-s", "ours", "-m", "both", "side"]);
    assert!(check(&scratch.head(), &run).await.expect_err("merged").contains("not a line"));
    assert!(verify(&repo, &side, &two, &run).await.expect_err("a sibling").contains("does not begin"));
    assert!(verify(&repo, &two, &base, &run).await.expect_err("older").contains("nothing"));
    assert!(repo.verify_direct_fix(&base, &"1".repeat(40).parse().expect("40 digits"), &run).await.is_err());
}
