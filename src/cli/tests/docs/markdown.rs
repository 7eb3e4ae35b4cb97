//! The pages, as far as the checks read Markdown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// A page: its path from the package's root, and its text.
pub(super) struct Page {
    pub(super) path: String,
    pub(super) text: String,
}

/// A block of code.
pub(super) struct Fence {
    pub(super) language: String,
    pub(super) text: String,
}

/// The package's root.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README, CONTRIBUTING, CHANGELOG and everything in `docs/`.
pub(super) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = (fs::read_dir(root().join("docs")).expect("there are docs"))
        .map(|entry| PathBuf::from("docs").join(entry.expect("readable").file_name()))
        .collect();
    paths.sort();
    paths.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from));
    paths.iter().map(|path| page(path.to_str().expect("UTF-8"))).collect()
}

pub(super) fn page(path: &str) -> Page {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Page { path: path.to_owned(), text }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a good pattern")
}

fn matches(text: &str, wanted: &str) -> Vec<String> {
    pattern(wanted).captures_iter(text).map(|found| found[1].to_owned()).collect()
}

impl Page {
    fn split(&self) -> (String, Vec<Fence>) {
        let (mut prose, mut fences) = (String::new(), Vec::new());
        let mut open: Option<Fence> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => fences.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Fence { language: language.trim().to_owned(), text: String::new() });
                }
                (None, Some(fence)) => fence.text.push_str(&format!("{line}\n")),
                (None, None) => prose.push_str(&format!("{line}\n")),
            }
        }
        (pattern("(?s)<!--.*?-->").replace_all(&prose, "").into_owned(), fences)
    }

    pub(super) fn fences(&self) -> Vec<Fence> {
        self.split().1
    }

    /// The inline code.
    pub(super) fn spans(&self) -> Vec<String> {
        matches(&self.split().0, "`([^`]+)`").iter().map(|span| span.replace(r"\|", "|")).collect()
    }

    pub(super) fn links(&self) -> Vec<String> {
        matches(&self.split().0, r"\]\(([^)\s]+)\)")
    }

    /// The headings' anchors, as GitHub makes them.
    pub(super) fn anchors(&self) -> BTreeSet<String> {
        let prose = self.split().0;
        let headings = prose.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
        let anchor = |heading: &str| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        };
        headings.map(anchor).collect()
    }

    /// The cells of a column, of all tables that have it.
    pub(super) fn column(&self, name: &str) -> Vec<String> {
        let (mut found, mut place) = (Vec::new(), None);
        let mut in_table = false;
        for line in self.split().0.lines() {
            if !line.starts_with('|') {
                in_table = false;
                continue;
            }
            let cells = cells(line);
            if !in_table {
                place = cells.iter().position(|cell| cell == name);
                in_table = true;
            } else if let Some(cell) = place.and_then(|place| cells.get(place)).filter(|cell| !cell.starts_with("---"))
            {
                found.push(cell.clone());
            }
        }
        found
    }
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace(r"\|", "\0");
    row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// The long flags in a code span.
pub(super) fn flags(span: &str) -> Vec<String> {
    // There are many spans, and compiling a pattern is slow without optimization.
    static FLAG: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:^|[\s\[(|,])(--[a-z][a-z0-9-]*)"));
    FLAG.captures_iter(span).map(|found| found[1].to_owned()).collect()
}

/// The code spans that are words in snake_case.
pub(super) fn snake_case(spans: Vec<String>) -> BTreeSet<String> {
    let word = pattern("^[a-z]+(_[a-z]+)+$");
    spans.into_iter().filter(|span| word.is_match(span)).collect()
}

/// The keys in a cell: `max`, or `[amp] heartbeat` as `amp.heartbeat`.
pub(super) fn keys(cell: &str) -> Vec<String> {
    matches(cell, "`([^`]+)`").iter().map(|key| key.replace('[', "").replace("] ", ".")).collect()
}

/// The `LONGSHORE_*` variables of the pages. `LONGSHORE_ESCALATION_*` and the like stand for several, and are none.
pub(super) fn variables(pages: &[Page]) -> BTreeSet<String> {
    let of_page = |page: &Page| matches(&page.text, r"\b(LONGSHORE_[A-Z0-9_]*[A-Z0-9])\b[^*_]");
    pages.iter().flat_map(of_page).collect()
}

/// The path that a link from a page leads to.
pub(super) fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The words of a line of shell up to the end of its first command. Knows quotes, and nothing else.
pub(super) fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '&' | ';' | '>' | '<') => break,
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn shell_words_end_with_the_command() {
    assert_eq!(shell_words("a 'b c' \"\" --d=e # f"), ["a", "b c", "", "--d=e"]);
    assert_eq!(shell_words("a x > b; c"), ["a", "x"]);
    assert_eq!(resolve("docs/a.md", "../b/c.md"), "b/c.md");
}
