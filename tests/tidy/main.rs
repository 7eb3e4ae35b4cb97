//! Holds the layer rules and the file rules of the source tree, so that a slip fails the tests and not a review.
//!
//! | rule | why |
//! |---|---|
//! | only `src/engine/docker*` names `bollard` | what is above the engine must not know which engine it is |
//! | only `src/report/progress.rs` names `indicatif` | nothing else may depend on a terminal |
//! | `plan`, `swarm` and `protocol/*/{message,machine}` do no I/O and read no clock | the core is pure |
//! | no two files import each other, directly or round a ring (`circles.rs`) | each file can be read and moved by itself |
//! | no type name is defined twice | a name means one thing everywhere |
//! | every file begins with `//!` | it says what it is for, who calls it, what it must not do |
//! | no file has more than 600 lines, `main.rs` and `bin/*.rs` fewer than 30 | one subject a file |
//! | no module is called `util`, `helpers`, `common`, ... | a name says what is in it |
//! | no `#[ignore]`, `todo!`, `unimplemented!` | unfinished work is not merged |
//! | `kill_point::` and `test_overrides::` stand below `#[cfg(debug_assertions)]` | release builds have no test hooks |
//!
//! Rules look at code only: comments and the contents of literals do not count. The layer rules skip `#[cfg(test)]`
//! modules, in a file or as a file (`tests.rs`, `tests/`).
//!
//! To add a rule: a function from [`Source`] to faults, its place in [`faults`], and a test that it can fail.

mod circles;
mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use circles::ModuleTree;
use tokens::{NamedPath, Token, paths, tokens, without_tests};

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

/// Impure paths that a pure module may name all the same: file, path, reason.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("src/plan/branch.rs", "std::fs", "resolves links in the paths of tasks files, and does nothing else there")];

/// Modules that are hooks for tests.
const HOOKS: [&str; 2] = ["kill_point", "test_overrides"];

/// A source file: its path from the package's directory with `/`, its text, and its tokens.
struct Source<'a> {
    path: &'a str,
    text: &'a str,
    tokens: Vec<Token>,
    /// What the code outside `#[cfg(test)]` modules names.
    product_paths: Vec<NamedPath>,
}

impl<'a> Source<'a> {
    fn new(path: &'a str, text: &'a str) -> Self {
        let tokens = tokens(path, text);
        let product_paths = paths(&without_tests(&tokens).0);
        Self { path, text, tokens, product_paths }
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    fn is_pure(&self) -> bool {
        let layer = ["src/plan/", "src/swarm/"].iter().any(|dir| self.path.starts_with(dir));
        let protocol =
            self.path.strip_prefix("src/protocol/").and_then(|rest| rest.split_once('/')).is_some_and(|(_, inside)| {
                let part = inside.split('/').next().unwrap_or_default();
                ["message", "message.rs", "machine", "machine.rs"].contains(&part)
            });
        layer || protocol
    }

    /// Whether product code names `banned`: a crate where a path begins, a longer path anywhere in one.
    fn names(&self, banned: &str) -> bool {
        let banned: Vec<&str> = banned.split("::").collect();
        self.product_paths.iter().any(|path| match banned.as_slice() {
            [krate] => path.segments[0] == *krate,
            longer => path.segments.windows(longer.len()).any(|part| part == longer),
        })
    }
}

/// All that is wrong with one file.
fn faults(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(path, text);
    let mut found = Vec::new();
    layers(&source, &mut found);
    purity(&source, &mut found);
    shape(&source, &mut found);
    module_names(&source, &mut found);
    unfinished(&source, &mut found);
    hooks(&source, &mut found);
    found
}

fn layers(source: &Source, found: &mut Vec<String>) {
    if !source.path.starts_with("src/") {
        return;
    }
    if !source.path.starts_with("src/engine/docker") && source.names("bollard") {
        found.push(format!("{}: only src/engine/docker* may use bollard", source.path));
    }
    if source.path != "src/report/progress.rs" && source.names("indicatif") {
        found.push(format!("{}: only src/report/progress.rs may use indicatif", source.path));
    }
}

fn purity(source: &Source, found: &mut Vec<String>) {
    if !source.is_pure() || source.is_test() {
        return;
    }
    for banned in IMPURE {
        let excepted = EXCEPTIONS.iter().any(|(path, what, _)| *path == source.path && *what == banned);
        if !excepted && source.names(banned) {
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

fn module_names(source: &Source, found: &mut Vec<String>) {
    for part in source.path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if BANNED_NAMES.contains(&name) {
            found.push(format!("{}: `{name}` says nothing about what is in it", source.path));
        }
    }
    for pair in source.tokens.windows(2).filter(|pair| pair[0].is_word("mod")) {
        if let Some(name) = pair[1].word().filter(|name| BANNED_NAMES.contains(name)) {
            found.push(format!("{}: module `{name}` says nothing about what is in it", source.path));
        }
    }
}

fn unfinished(source: &Source, found: &mut Vec<String>) {
    for three in source.tokens.windows(3) {
        let banned = match three {
            [Token::Punct('#'), Token::Open('['), word] if word.is_word("ignore") => "#[ignore]",
            [word, Token::Punct('!'), _] if word.is_word("todo") => "todo!",
            [word, Token::Punct('!'), _] if word.is_word("unimplemented") => "unimplemented!",
            _ => continue,
        };
        found.push(format!("{}: `{banned}` is not allowed", source.path));
    }
}

/// Test hooks, and calls of them, are left out of release builds.
fn hooks(source: &Source, found: &mut Vec<String>) {
    let mut attribute = "";
    for line in source.text.lines().map(str::trim) {
        let is_hook = |hook: &&str| line.contains(&format!("{hook}::")) || line.starts_with(&format!("mod {hook};"));
        let is_code = !line.starts_with("//") && !source.path.starts_with("tests/");
        if is_code && HOOKS.iter().any(is_hook) && attribute != "#[cfg(debug_assertions)]" {
            found.push(format!("{}: `{line}` must stand below `#[cfg(debug_assertions)]`", source.path));
        }
        attribute = line;
    }
}

/// Types that are defined more than once in product code, each with its files.
fn repeated_types<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut types: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources {
        for pair in without_tests(&tokens(path, text)).0.windows(2) {
            let keyword = ["struct", "enum", "union", "trait"].iter().any(|keyword| pair[0].is_word(keyword));
            if let Some(name) = pair[1].word().filter(|name| keyword && name.starts_with(char::is_uppercase)) {
                types.entry(name.to_owned()).or_default().push(path);
            }
        }
    }
    types.retain(|_, files| files.len() > 1);
    types.into_iter().map(|(name, files)| format!("`{name}` is defined in {}", files.join(" and "))).collect()
}

/// Every Rust file of the package: its path from the package's directory with `/`, and its text.
fn package_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "tests", "benches", "examples"] {
        rust_files(&root.join(dir), &mut files);
    }
    assert!(files.len() > 20, "only {} files were found under {}", files.len(), root.display());
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let path = file.strip_prefix(root).expect("found below the root").to_string_lossy().replace('\\', "/");
        (path, text)
    };
    files.into_iter().map(read).collect()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.expect("an entry of a directory that could be opened").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The library's files, without test files.
fn library(files: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    files.filter(|(path, _)| path.starts_with("src/") && !path.contains("/tests/") && !path.ends_with("/tests.rs"))
}

#[test]
fn every_file_keeps_the_rules() {
    let all: Vec<String> = package_files().iter().flat_map(|(path, text)| faults(path, text)).collect();
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let files = package_files();
    let tree = ModuleTree::new(library(&files));
    let circles: Vec<String> = tree.circles().iter().map(|circle| circle.join("\n  ")).collect();
    assert!(circles.is_empty(), "{} circles of imports:\n  {}", circles.len(), circles.join("\n\n  "));
}

#[test]
fn no_type_name_is_defined_twice() {
    assert_eq!(repeated_types(library(&package_files())), [""; 0]);
    let twice = [
        ("src/a.rs", "struct A;"),
        ("src/b.rs", "enum A {} #[cfg(test)] mod tests { struct B; }"),
        ("src/c.rs", "struct B;"),
    ];
    assert_eq!(repeated_types(twice), ["`A` is defined in src/a.rs and src/b.rs"]);
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
        "pub(crate) use bollard::{Docker, errors};",
    ] {
        assert_eq!(check("src/coordinator/mod.rs", body).len(), 1, "{body}");
        assert!(check("src/engine/docker.rs", body).is_empty(), "{body}");
        assert!(check("src/engine/docker/attach.rs", body).is_empty(), "{body}");
    }
    for body in ["// bollard::Docker", "/* use bollard; */", r#"const A: &str = "bollard::x";"#, "use my::bollard;"] {
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
        "fn f() { some_macro!(std::fs::read); }",
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
        "// Instant::now()\n/// `tokio::spawn`\nfn f() {}",
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
        assert!(Source::new(path, &text).names(what), "{path} no longer names `{what}` ({reason})");
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
fn module_names_say_something() {
    assert_eq!(check("src/util.rs", "").len(), 1);
    assert_eq!(check("src/engine/helpers/mod.rs", "").len(), 1);
    assert_eq!(check("tests/common/mod.rs", "").len(), 1);
    assert_eq!(check("src/a.rs", "pub mod misc { }").len(), 1);
    assert!(check("src/a.rs", "// mod util\nmod utility_bill;").is_empty());
}

#[test]
fn unfinished_code_is_refused() {
    for body in
        ["#[ignore]\nfn f() {}", "#[ignore = \"slow\"] fn f() {}", "fn f() { todo!() }", "fn f() { unimplemented! () }"]
    {
        assert_eq!(check("tests/a.rs", body).len(), 1, "{body}");
    }
    assert!(check("tests/a.rs", "// todo!()\nfn f() { my_todo!(); s(\"#[ignore]\") }").is_empty());
}

#[test]
fn test_hooks_are_not_in_release_builds() {
    for (body, count) in [
        ("#[cfg(debug_assertions)]\nmod kill_point;", 0),
        ("mod kill_point;", 1),
        ("#[cfg(debug_assertions)]\nmod test_overrides;", 0),
        ("mod test_overrides;", 1),
        ("fn f() { if let Some(it) = super::test_overrides::it() {} }", 1),
        ("fn f() {\n#[cfg(debug_assertions)]\nsuper::kill_point::at();\n}", 0),
        ("fn f() {\n#[cfg(debug_assertions)]\ng();\nsuper::kill_point::at();\n}", 1),
    ] {
        assert_eq!(check("src/state/journal.rs", body).len(), count, "{body}");
    }
}
