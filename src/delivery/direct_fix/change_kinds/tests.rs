//! Which changes each kind explains.

use super::*;

#[test]
fn respellings_are_distinguished_from_different_words() {
    for (old, new) in [
        ("teh", "the"),
        ("recieve", "receive"),
        ("occured", "occurred"),
        ("dont", "don't"),
        ("english", "English"),
        ("json", "JSON"),
        ("cafe", "café"),
        ("implementaion", "implementation"),
        ("seperatley", "separately"),
        ("привте", "привет"),
    ] {
        assert!(is_respelling(old, new), "{old} {new}");
    }
    for (old, new) in [
        ("true", "false"),
        ("max", "min"),
        ("add", "sub"),
        ("allow", "deny"),
        ("scope", "sc\u{43e}pe"), // a Cyrillic o
        ("read", "write"),
        ("not", ""),
        ("", "unsafe"),
    ] {
        assert!(!is_respelling(old, new), "{old} {new}");
    }
    assert!(!is_respelling(&"a".repeat(100), &"a".repeat(99)), "no word is that long");
}

#[test]
fn a_line_is_tokenized_into_words_and_separators() {
    use LineToken::{Separator, Word};
    assert_eq!(tokenize(""), [Separator("")]);
    assert_eq!(tokenize("a"), [Separator(""), Word("a"), Separator("")]);
    assert_eq!(tokenize("it's 'x'2b"), {
        [Separator(""), Word("it's"), Separator(" '"), Word("x"), Separator("'2"), Word("b"), Separator("")]
    });
}

#[test]
fn a_patch_is_parsed_from_its_first_hunk() {
    let patch =
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@ fn\n--- x\n+++ y\n\\ No newline\n@@ -9 +8,0 @@\n-\n";
    let hunks = parse_hunks(patch);
    assert_eq!(hunks.len(), 2);
    assert_eq!(hunks[0], Hunk { removed: vec![b"-- x".to_vec()], added: vec![b"++ y".to_vec()] });
    assert_eq!(hunks[1], Hunk { removed: vec![vec![]], added: vec![] });
    assert_eq!(parse_hunks(b""), []);
}
