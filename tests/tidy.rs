//! Holds the layer rules and the file rules of the source tree, so that a slip fails the tests and not a review.
//!
//! | rule | why |
//! |---|---|
//! | only `src/engine/docker*` says `bollard` | what is above the engine must not know which engine it is |
//! | only `src/report/progress.rs` says `indicatif` | nothing else may depend on a terminal |
//! | `plan`, `swarm` and `protocol/*/{message,machine}` do no I/O and read no clock | the core is pure |
//! | every file begins with `//!` | it says what it is for, who calls it, what it must not do |
//! | no file has more than 600 lines, `main.rs` and `bin/*.rs` fewer than 30 | one subject a file |
//! | no module is called `util`, `helpers`, `common`, ... | a name says what is in it |
//! | no `#[ignore]`, `todo!`, `unimplemented!` | what is not done is not there |
//! | `kill_point::` and `mod kill_point` stand below `#[cfg(debug_assertions)]` | release builds do not die for tests |
//!
//! Rules look at code only: comments and the insides of literals do not count. The layer rules skip `#[cfg(test)]`
//! modules, in a file or as a file (`tests.rs`, `tests/`).
//!
//! To add a rule: a function from [`Source`] to faults, its place in [`faults`], and a test that it can fail.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 600;
const MAX_MAIN_LINES: usize = 30;
const BANNED_NAMES: [&str; 8] = ["util", "utils", "helper", "helpers", "common", "imp", "misc", "shared"];
/// Paths that a pure module may not name: I/O, other processes and threads, the clock, the environment.
const IMPURE: [&str; 13] = [
    "tokio",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "rustix",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "Uuid::new_v4",
];

/// What a pure module may name all the same: file, path, reason.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("src/plan/branch.rs", "std::fs", "resolves links in the paths of tasks files, and does nothing else there")];

/// A source file: its path from the package's folder with `/`, its text, and its code.
struct Source<'a> {
    path: &'a str,
    text: &'a str,
    /// The text with comments and the insides of literals made blank.
    code: String,
    /// The code without `#[cfg(test)]` modules.
    product: String,
}

impl<'a> Source<'a> {
    fn new(path: &'a str, text: &'a str) -> Self {
        let code = code_of(text);
        let product = without_test_modules(&code);
        Self { path, text, code, product }
    }

    fn stem(&self) -> &str {
        self.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or(self.path)
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.stem() == "tests"
    }

    fn is_pure(&self) -> bool {
        let layer = ["src/plan/", "src/swarm/"].iter().any(|folder| self.path.starts_with(folder))
            || ["src/plan.rs", "src/swarm.rs"].contains(&self.path);
        let protocol =
            self.path.strip_prefix("src/protocol/").and_then(|rest| rest.split_once('/')).is_some_and(|(_, inside)| {
                let part = inside.split('/').next().unwrap_or_default();
                ["message", "message.rs", "machine", "machine.rs"].contains(&part)
            });
        layer || protocol
    }
}

/// All that is wrong with one file.
fn faults(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(path, text);
    let mut found = Vec::new();
    layers(&source, &mut found);
    purity(&source, &mut found);
    shape(&source, &mut found);
    names(&source, &mut found);
    unfinished(&source, &mut found);
    hooks(&source, &mut found);
    found
}

/// Modules that are hooks for tests.
const HOOKS: [&str; 2] = ["kill_point", "test_overrides"];

/// What the hooks for tests are called by is left out of release builds.
fn hooks(source: &Source, found: &mut Vec<String>) {
    let mut before = "";
    for line in source.code.lines().map(str::trim) {
        let named = |hook: &&str| line.contains(&format!("{hook}::")) || line.starts_with(&format!("mod {hook};"));
        if HOOKS.iter().any(named) && before != "#[cfg(debug_assertions)]" {
            found.push(format!("{}: `{line}` must stand below `#[cfg(debug_assertions)]`", source.path));
        }
        before = line;
    }
}

fn layers(source: &Source, found: &mut Vec<String>) {
    if !source.path.starts_with("src/") {
        return;
    }
    if !source.path.starts_with("src/engine/docker") && names_path(&source.product, "bollard") {
        found.push(format!("{}: only src/engine/docker* may use bollard", source.path));
    }
    if source.path != "src/report/progress.rs" && names_path(&source.product, "indicatif") {
        found.push(format!("{}: only src/report/progress.rs may use indicatif", source.path));
    }
}

fn purity(source: &Source, found: &mut Vec<String>) {
    if !source.is_pure() || source.is_test() {
        return;
    }
    for banned in IMPURE {
        let excepted = EXCEPTIONS.iter().any(|(path, what, _)| *path == source.path && *what == banned);
        if !excepted && names_path(&source.product, banned) {
            found.push(format!("{}: a pure module may not name `{banned}`", source.path));
        }
    }
}

fn shape(source: &Source, found: &mut Vec<String>) {
    if !source.text.starts_with("//!") {
        found.push(format!("{}: must begin with `//!`", source.path));
    }
    let lines = source.text.lines().count();
    let is_main = source.path == "src/main.rs" || source.path.starts_with("src/bin/");
    if lines > MAX_LINES {
        found.push(format!("{}: has {lines} lines, {MAX_LINES} are allowed", source.path));
    }
    if is_main && lines >= MAX_MAIN_LINES {
        found.push(format!("{}: has {lines} lines, a program's file has fewer than {MAX_MAIN_LINES}", source.path));
    }
}

fn names(source: &Source, found: &mut Vec<String>) {
    for part in source.path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if BANNED_NAMES.contains(&name) {
            found.push(format!("{}: `{name}` says nothing about what is in it", source.path));
        }
    }
    let words: Vec<&str> = words(&source.code).collect();
    for pair in words.windows(2) {
        if pair[0] == "mod" && BANNED_NAMES.contains(&pair[1]) {
            found.push(format!("{}: module `{}` says nothing about what is in it", source.path, pair[1]));
        }
    }
}

fn unfinished(source: &Source, found: &mut Vec<String>) {
    let tight: String = source.code.chars().filter(|c| !c.is_whitespace()).collect();
    for banned in ["#[ignore]", "#[ignore=", "todo!", "unimplemented!"] {
        let whole = tight.match_indices(banned).any(|(at, _)| !ends_in_word(&tight[..at]));
        if whole {
            found.push(format!("{}: `{banned}` is not allowed", source.path));
        }
    }
}

/// Whether code names a path, on its own or as an import in braces: `std::fs` is named by `std::fs::read` and by
/// `use std::{fs, io}`; `bollard` by `use bollard::Docker` and not by `my_bollard` or `x.bollard`.
fn names_path(code: &str, path: &str) -> bool {
    let tight = tighten(code);
    let plain = tight.match_indices(path).any(|(at, _)| {
        let after = &tight[at + path.len()..];
        let before = &tight[..at];
        // A crate is named where a path begins and goes on, a deeper path wherever it stands.
        let is_crate = !path.contains("::");
        let begins = !(ends_in_word(before) || before.ends_with('.') || is_crate && before.ends_with("::"));
        let goes_on = !is_crate || after.starts_with("::") || before.ends_with("extern crate ");
        begins && goes_on && !starts_with_word(after)
    });
    plain || imports(&tight).iter().any(|import| import == path || import.starts_with(&format!("{path}::")))
}

/// Every path that `use` statements bring in, with braces taken apart.
fn imports(tight: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in tight.match_indices("use") {
        let after = &tight[at + 3..];
        if ends_in_word(&tight[..at]) || starts_with_word(after) {
            continue;
        }
        if let Some(end) = after.find(';') {
            expand("", after[..end].trim().trim_start_matches("::"), &mut found);
        }
    }
    found
}

fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let (head, group) = match tree.find('{') {
        Some(open) => (&tree[..open], tree[open + 1..].strip_suffix('}')),
        None => (tree, None),
    };
    let Some(group) = group else {
        let name = head.split(" as ").next().unwrap_or_default().trim();
        found.push(format!("{prefix}{name}").trim_end_matches("::self").to_owned());
        return;
    };
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = group[start..at].trim();
                if !part.is_empty() {
                    expand(&format!("{prefix}{head}"), part, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The code with no blanks but single ones between two words.
fn tighten(code: &str) -> String {
    let mut tight = String::with_capacity(code.len());
    for part in code.split_whitespace() {
        if ends_in_word(&tight) && starts_with_word(part) {
            tight.push(' ');
        }
        tight.push_str(part);
    }
    tight
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

fn starts_with_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

/// Makes comments and the insides of string and character literals blank; line ends stay.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => {
                chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| at + n)
            }
            '/' if chars.get(at + 1) == Some(&'*') => end_of_block(&chars, at),
            '"' => end_of_string(&chars, at),
            'r' | 'b' | 'c' if !ends_in_word(&code) => end_of_prefixed(&chars, at).unwrap_or(at),
            '\'' => end_of_char(&chars, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().copied().map(blank));
            at = end;
        }
    }
    code
}

fn end_of_block(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"..."`, `r#"..."#`, `b"..."`, `br#"..."#`, `c"..."`, `b'x'`; none of these if it is a plain word or `r#name`.
fn end_of_prefixed(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    let mut raw = false;
    while let Some(c @ ('r' | 'b' | 'c')) = chars.get(at) {
        raw |= *c == 'r';
        at += 1;
        if at - start > 2 {
            return None;
        }
    }
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    match chars.get(at + hashes) {
        Some('"') if raw => {
            let mut close = at + hashes + 1;
            while close < chars.len() {
                let tail = &chars[close + 1..];
                if chars[close] == '"' && tail.len() >= hashes && tail[..hashes].iter().all(|c| *c == '#') {
                    return Some(close + 1 + hashes);
                }
                close += 1;
            }
            Some(chars.len())
        }
        Some('"') if hashes == 0 => Some(end_of_string(chars, at)),
        Some('\'') if hashes == 0 => end_of_char(chars, at),
        _ => None,
    }
}

/// The end of a character literal; none for a lifetime.
fn end_of_char(chars: &[char], quote: usize) -> Option<usize> {
    match chars.get(quote + 1)? {
        '\\' => {
            let close = chars[quote + 3..].iter().position(|c| *c == '\'')?;
            Some(quote + 3 + close + 1)
        }
        _ => (chars.get(quote + 2) == Some(&'\'')).then_some(quote + 3),
    }
}

/// Makes `#[cfg(test)] mod name { ... }` blank.
fn without_test_modules(code: &str) -> String {
    let mut rest = code;
    let mut product = String::with_capacity(code.len());
    while let Some(at) = rest.find("#[cfg(test)]") {
        product.push_str(&rest[..at]);
        let after = &rest[at..];
        let open = after.find('{');
        let semicolon = after.find(';');
        let is_module = words(&after["#[cfg(test)]".len()..]).find(|word| *word != "pub") == Some("mod");
        rest = match open {
            Some(open) if is_module && semicolon.is_none_or(|semicolon| open < semicolon) => {
                &after[closing_brace(after, open)..]
            }
            _ => {
                product.push_str("#[cfg(test)]");
                &after["#[cfg(test)]".len()..]
            }
        };
    }
    product.push_str(rest);
    product
}

fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry of a folder that could be opened").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        rust_files(&root.join(folder), &mut files);
    }
    assert!(files.len() > 20, "only {} files were found under {}", files.len(), root.display());
    let mut all = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let path = file.strip_prefix(root).expect("found below the root").to_string_lossy().replace('\\', "/");
        all.extend(faults(&path, &text));
    }
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

/// The faults of a file that begins as it must.
fn check(path: &str, body: &str) -> Vec<String> {
    faults(path, &format!("//! Words.\n{body}\n"))
}

#[test]
fn layers_are_held() {
    for body in [
        "use bollard::Docker;",
        "fn f(d: bollard::Docker) {}",
        "use {bollard, std::io};",
        "use bollard as engine;",
        "extern crate bollard;",
    ] {
        assert_eq!(check("src/coordinator/mod.rs", body).len(), 1, "{body}");
        assert!(check("src/engine/docker.rs", body).is_empty(), "{body}");
        assert!(check("src/engine/docker/attach.rs", body).is_empty(), "{body}");
    }
    for body in ["// bollard::Docker", "/* use bollard; */", r#"const A: &str = "bollard::x";"#, "let my_bollard = 1;"]
    {
        assert!(check("src/coordinator/mod.rs", body).is_empty(), "{body}");
    }
    assert_eq!(check("src/report/text.rs", "use indicatif::ProgressBar;").len(), 1);
    assert!(check("src/report/progress.rs", "use indicatif::ProgressBar;").is_empty());
}

#[test]
fn the_core_stays_pure() {
    let impure = [
        "use tokio::sync::mpsc;",
        "use std::{collections::BTreeMap, fs};",
        "use std::{io::{self, Read}, net::{TcpStream}};",
        "fn f() { let x = std :: fs :: read(p); }",
        "fn f() { Instant::now(); }",
        "fn f() { std::time::SystemTime::now(); }",
        "fn f() { jiff::Timestamp\n::now(); }",
        "use std::process::Command;",
        "#[cfg(test)]\nmod tests;\nuse std::fs;",
    ];
    for path in [
        "src/plan/mod.rs",
        "src/swarm/machine/merge.rs",
        "src/protocol/acp/message.rs",
        "src/protocol/amp/machine/x.rs",
    ] {
        for body in impure {
            assert_eq!(check(path, body).len(), 1, "{path}: {body}");
        }
    }
    let pure = [
        "use std::time::Duration;",
        "use std::collections::{BTreeMap, BTreeSet};",
        "fn f(fs: u8) { let now = fs; }",
        "// Instant::now()\n/// `tokio::spawn`",
        r##"const A: &str = r#"std::fs " tokio::x"#;"##,
        "#[cfg(test)]\nmod tests { use std::fs; fn f() { '{'; } }",
        "use crate::tokio_free::X;",
    ];
    for body in pure {
        assert!(check("src/plan/mod.rs", body).is_empty(), "{body}: {:?}", check("src/plan/mod.rs", body));
    }
    assert!(check("src/swarm/tests.rs", "use std::fs;").is_empty());
    assert!(check("src/protocol/acp/store.rs", "use std::fs;").is_empty());
    assert!(check("src/wire/mod.rs", "use tokio::io;").is_empty());
}

#[test]
fn exceptions_are_still_needed() {
    for (path, what, reason) in EXCEPTIONS {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(names_path(&Source::new(path, &text).product, what), "{path} no longer names `{what}` ({reason})");
    }
    assert_eq!(check("src/plan/graph.rs", "use std::fs;").len(), 1);
    assert_eq!(check("src/plan/branch.rs", "use std::net;").len(), 1);
}

#[test]
fn files_have_a_shape() {
    assert_eq!(faults("src/a.rs", "fn f() {}\n").len(), 1);
    assert!(faults("src/a.rs", "//! Words.\n").is_empty());
    assert_eq!(faults("src/a.rs", &format!("//! Words.{}", "\n".repeat(MAX_LINES + 1))).len(), 1);
    assert!(faults("src/a.rs", &format!("//! Words.{}", "\n".repeat(MAX_LINES))).is_empty());
    assert_eq!(faults("src/main.rs", &"//! Words.\n".repeat(30)).len(), 1);
    assert_eq!(faults("src/bin/acp-shim.rs", &"//! Words.\n".repeat(30)).len(), 1);
    assert!(faults("src/main.rs", &"//! Words.\n".repeat(29)).is_empty());
}

#[test]
fn names_say_something() {
    assert_eq!(check("src/util.rs", "").len(), 1);
    assert_eq!(check("src/engine/helpers/mod.rs", "").len(), 1);
    assert_eq!(check("tests/common/mod.rs", "").len(), 1);
    assert_eq!(check("src/a.rs", "pub mod misc { }").len(), 1);
    assert!(check("src/a.rs", "// mod util\nmod utility_bill;").is_empty());
}

#[test]
fn what_is_not_done_is_not_there() {
    for body in
        ["#[ignore]\nfn f() {}", "#[ignore = \"slow\"] fn f() {}", "fn f() { todo!() }", "fn f() { unimplemented! () }"]
    {
        assert_eq!(check("tests/a.rs", body).len(), 1, "{body}");
    }
    assert!(check("tests/a.rs", "// todo!()\nfn f() { my_todo!(); s(\"#[ignore]\") }").is_empty());
}

#[test]
fn code_is_told_from_literals_and_comments() {
    let kept = |text: &str| code_of(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(kept("a /* b /* c */ d */ e // f\ng"), "a e g");
    assert_eq!(kept(r#"a "b \" c" d"#), "a d");
    assert_eq!(kept(r###"a r#"b " c"# d br"e\" f b"g" b'"' h"###), "a d f h");
    assert_eq!(kept("fn f<'a>(x: &'a str) { '{' '\\'' '\\u{7b}' }"), "fn f<'a>(x: &'a str) { }");
    assert_eq!(kept("let r#type = r; bar\"x\""), "let r#type = r; bar");
    assert_eq!(code_of("\"a\nb\"\nc").lines().count(), 3, "line ends stay");
}

#[test]
fn hooks_for_tests_are_not_in_release_builds() {
    for (body, count) in [
        ("#[cfg(debug_assertions)]\nmod kill_point;", 0),
        ("mod kill_point;", 1),
        ("#[cfg(debug_assertions)]\nmod test_overrides;", 0),
        ("mod test_overrides;", 1),
        ("if let Some(it) = super::test_overrides::it() {}", 1),
        ("fn f() {\n#[cfg(debug_assertions)]\nsuper::kill_point::at();\n}", 0),
        ("fn f() {\n#[cfg(debug_assertions)]\ng();\nsuper::kill_point::at();\n}", 1),
    ] {
        assert_eq!(check("src/state/journal.rs", body).len(), count, "{body}");
    }
}
