//! Holds README and docs to the code: commands, flags, variables, config keys, causes, exit codes, examples and links.
//!
//! | file | what |
//! |---|---|
//! | `facts.rs` | what the code has |
//! | `generate.rs` | the blocks between `<!-- generated: NAME -->` and `<!-- end -->` |
//! | `markdown.rs` | pages, their code spans, fences, headings and links |
//!
//! `LONGSHORE_UPDATE_DOCS=1` rewrites the generated blocks. Each check is a function from pages to faults, so that
//! [`checks_can_fail`] can show it a bad page.

mod facts;
mod generate;
mod markdown;

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;
use regex::Regex;

use crate::cli::args::Cli;
use facts::Leaf;
use markdown::{Fence, Page};

/// The most bytes of README.md.
const README_BYTES: usize = 5_120;
/// The most bytes of a page below `docs/`.
const PAGE_BYTES: usize = 10_240;

#[track_caller]
fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "the docs and the code differ:\n{}", faults.join("\n"));
}

#[test]
fn generated_blocks_are_current() {
    let update = std::env::var_os("LONGSHORE_UPDATE_DOCS").is_some_and(|value| value == "1");
    let mut faults = Vec::new();
    for page in markdown::pages() {
        let (fresh, unknown) = generate::refresh(&page.text);
        faults.extend(unknown.iter().map(|name| format!("{}: no block is called `{name}`", page.path)));
        if update && fresh != page.text {
            std::fs::write(markdown::root().join(&page.path), fresh).expect("the page can be written");
        } else if fresh != page.text {
            faults
                .push(format!("{}: a generated block is out of date; LONGSHORE_UPDATE_DOCS=1 rewrites it", page.path));
        }
    }
    none(faults);
}

#[test]
fn every_command_and_flag_is_documented_and_no_other() {
    let pages = markdown::pages();
    let leaves = facts::leaves();
    none(undocumented_commands(&pages, &leaves));
    none(missing(&spans_flags(&pages), &facts::flags(), "flag"));
    none(missing(&spans_flags(&pages), &facts::shim_flags(), "flag of `acp-shim`"));
    none(unknown_flags(&pages));
    none(unknown_commands(&pages));
}

#[test]
fn every_variable_is_documented_and_no_other() {
    let variables = facts::variables();
    let documented = markdown::variables(&markdown::pages());
    none(missing(&documented, &variables.required, "variable"));
    none(missing(&variables.known, &documented, "variable in the code"));
}

#[test]
fn every_config_key_is_documented_and_no_other() {
    let page = markdown::page("docs/settings.md");
    let documented: BTreeSet<String> = page.column("key").iter().flat_map(|cell| markdown::keys(cell)).collect();
    let keys = facts::config_keys();
    none(missing(&documented, &keys, "config key"));
    none(missing(&keys, &documented, "config key in the code"));
}

#[test]
fn every_cause_and_exit_code_is_documented_and_no_other() {
    let page = markdown::page("docs/causes.md");
    let causes: BTreeSet<String> = facts::causes().into_iter().map(|cause| cause.word).collect();
    let rows: BTreeSet<String> = page.column("cause").iter().map(|cell| cell.replace('`', "")).collect();
    none(missing(&rows, &causes, "cause"));
    none(missing(&causes, &rows, "cause in the code"));
    none(missing(&causes, &markdown::snake_case(page.spans()), "cause in the code"));
    let documented: BTreeSet<String> = page.column("code").into_iter().collect();
    for (what, codes) in [("code", facts::exit_codes()), ("help", facts::exit_codes_in_help())] {
        assert_eq!(documented, codes, "exit codes of the docs, and of the {what}");
    }
}

#[test]
fn examples_are_valid() {
    none(bad_examples(&markdown::pages()));
}

#[test]
fn links_resolve() {
    let pages = markdown::pages();
    none(dead_links(&pages, |path| markdown::root().join(path).exists()));
    none(unlinked(&pages));
}

#[test]
fn pages_have_a_size_and_say_for_whom_they_are() {
    none(misshapen(&markdown::pages()));
}

/// What is wanted and not there.
fn missing(there: &BTreeSet<String>, wanted: &BTreeSet<String>, what: &str) -> Vec<String> {
    wanted.difference(there).map(|name| format!("no {what} `{name}`")).collect()
}

/// Commands without a generated block, or with two.
fn undocumented_commands(pages: &[Page], leaves: &[Leaf]) -> Vec<String> {
    let blocks: Vec<String> = pages.iter().flat_map(|page| generate::names(&page.text)).collect();
    let count = |path: &str| {
        let covers = |block: &&String| {
            block.strip_prefix("command ").is_some_and(|root| path == root || path.starts_with(&format!("{root} ")))
        };
        blocks.iter().filter(covers).count()
    };
    let faults = leaves.iter().filter_map(|leaf| match count(&leaf.path) {
        1 => None,
        0 => Some(format!("no page has a generated block for `longshore {}`", leaf.path)),
        more => Some(format!("{more} generated blocks have `longshore {}`", leaf.path)),
    });
    faults.collect()
}

/// The flags in code spans.
fn spans_flags(pages: &[Page]) -> BTreeSet<String> {
    pages.iter().flat_map(Page::spans).flat_map(|span| markdown::flags(&span)).collect()
}

/// Flags in code spans that no program has.
fn unknown_flags(pages: &[Page]) -> Vec<String> {
    let mut known = facts::flags();
    known.extend([facts::shim_flags(), facts::script_flags()].into_iter().flatten());
    known.extend(["--help", "--version"].map(str::to_owned));
    let mut faults = Vec::new();
    for page in pages {
        for span in page.spans() {
            let unknown = markdown::flags(&span).into_iter().filter(|flag| !known.contains(flag));
            faults.extend(unknown.map(|flag| format!("{}: there is no flag `{flag}`", page.path)));
        }
    }
    faults
}

/// Code spans that name a command of longshore that is not there.
fn unknown_commands(pages: &[Page]) -> Vec<String> {
    let root = facts::tree();
    let mut faults = Vec::new();
    for page in pages {
        for span in page.spans() {
            let mut words = span.split_whitespace();
            if words.next() != Some("longshore") {
                continue;
            }
            let mut command = &root;
            for word in words {
                if !command.has_subcommands() || !word.starts_with(|c: char| c.is_ascii_lowercase()) {
                    break;
                }
                let Some(next) = command.find_subcommand(word) else {
                    faults.push(format!("{}: `{span}`: there is no command `{word}`", page.path));
                    break;
                };
                command = next;
            }
        }
    }
    faults
}

/// Examples that the program would refuse: command lines, config files, tasks files, JSON.
fn bad_examples(pages: &[Page]) -> Vec<String> {
    let mut faults = Vec::new();
    for page in pages {
        for Fence { language, text } in page.fences() {
            let fault = match language.as_str() {
                "toml" => crate::cli::settings::config_file::parse_config(&text, Path::new("example")).err().map(|e| e.to_string()),
                "json" if text.contains("\"userStories\"") => {
                    crate::tasks::parse(text.as_bytes(), Path::new("example")).err().map(|error| error.to_string())
                }
                "json" => serde_json::from_str::<serde_json::Value>(&text).err().map(|error| error.to_string()),
                _ => None,
            };
            faults.extend(fault.map(|fault| format!("{}: an example of {language}: {fault}", page.path)));
            for line in text.lines() {
                let words = markdown::shell_words(line.trim().trim_start_matches("$ "));
                if words.first().is_some_and(|word| word == "longshore")
                    && let Err(error) = Cli::command().try_get_matches_from(&words)
                {
                    let error = error.to_string();
                    faults.push(format!("{}: `{line}`: {}", page.path, error.lines().next().unwrap_or_default()));
                }
            }
        }
    }
    faults
}

/// Relative links to files or headings that are not there.
fn dead_links(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for page in pages {
        for link in page.links() {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, a)| (file, Some(a)));
            let target = if file.is_empty() { page.path.clone() } else { markdown::resolve(&page.path, file) };
            let sound = match anchor {
                None => exists(&target),
                Some(anchor) => pages.iter().any(|page| page.path == target && page.anchors().contains(anchor)),
            };
            if !sound {
                faults.push(format!("{}: the link `{link}` leads nowhere", page.path));
            }
        }
    }
    faults
}

/// Pages below `docs/` that README.md does not link to.
fn unlinked(pages: &[Page]) -> Vec<String> {
    let readme: Vec<String> = pages.iter().filter(|page| page.path == "README.md").flat_map(Page::links).collect();
    let unlinked = pages.iter().filter(|page| page.path.starts_with("docs/") && !readme.contains(&page.path));
    unlinked.map(|page| format!("README.md does not link to {}", page.path)).collect()
}

/// Pages that are too long, or do not begin with a title and a sentence that says for whom they are.
fn misshapen(pages: &[Page]) -> Vec<String> {
    let opening = Regex::new(r"\A# .+\n\nFor [^\n]").expect("a good pattern");
    let mut faults = Vec::new();
    for page in pages {
        let most = match page.path.as_str() {
            "README.md" => README_BYTES,
            path if path.starts_with("docs/") => PAGE_BYTES,
            _ => continue,
        };
        if page.text.len() > most {
            faults.push(format!("{}: has {} bytes, {most} are allowed", page.path, page.text.len()));
        }
        if page.path.starts_with("docs/") && !opening.is_match(&page.text) {
            faults.push(format!("{}: must begin with a title and `For ...`", page.path));
        }
    }
    faults
}

#[test]
fn checks_can_fail() {
    let page = |text: &str| vec![Page { path: "docs/bad.md".to_owned(), text: text.to_owned() }];
    let one = |faults: Vec<String>, part: &str| {
        assert!(matches!(&faults[..], [fault] if fault.contains(part)), "{part}: {faults:?}");
    };
    let leaf = [Leaf { path: "gc".to_owned() }];
    one(undocumented_commands(&page("`longshore gc`"), &leaf), "no page");
    let block = "<!-- generated: command gc -->\n<!-- end -->\n";
    assert!(undocumented_commands(&page(block), &leaf).is_empty());
    one(undocumented_commands(&page(&format!("{block}{block}")), &leaf), "2 generated");
    one(unknown_flags(&page("Use `run --no-such-flag`, and `--max 3`.")), "--no-such-flag");
    one(unknown_commands(&page("`longshore admin forget US-001` and `longshore logs US-001`")), "forget");
    one(bad_examples(&page("```sh\nlongshore run a.json --maximum 3\n```\n")), "--maximum");
    one(bad_examples(&page("```\n$ longshore stop now please | tee x\n```\n")), "please");
    one(bad_examples(&page("```toml\nimgae = 'x'\n```\n")), "imgae");
    one(bad_examples(&page("```json\n{\"userStories\": 3}\n```\n")), "json");
    one(bad_examples(&page("```json\n{\"a\": }\n```\n")), "json");
    one(dead_links(&page("[a](gone.md) [b](there.md)"), |path| path == "docs/there.md"), "gone.md");
    one(dead_links(&page("# A title\n\n[a](#a-title) [b](bad.md#no-title)"), |_| true), "#no-title");
    one(unlinked(&page("[itself](bad.md)")), "docs/bad.md");
    one(misshapen(&page("# Title\n\nThis page is for nobody.\n")), "For ...");
    one(misshapen(&page(&format!("# Title\n\nFor all: {}\n", "x".repeat(PAGE_BYTES)))), "bytes");
    let variables = markdown::variables(&page("`LONGSHORE_NOWHERE` and `LONGSHORE_ESCALATION_*`"));
    assert_eq!(variables, BTreeSet::from(["LONGSHORE_NOWHERE".to_owned()]));
    let table = page("| key | what |\n|---|---|\n| `[amp] heart` | `no_such` |\n").remove(0);
    assert_eq!(table.column("key").iter().flat_map(|cell| markdown::keys(cell)).collect::<Vec<_>>(), ["amp.heart"]);
    assert_eq!(markdown::snake_case(table.spans()), BTreeSet::from(["no_such".to_owned()]));
    one(missing(&["--a".to_owned()].into(), &["--a".to_owned(), "--b".to_owned()].into(), "flag"), "--b");
    assert_ne!(generate::refresh("<!-- generated: causes -->\nold\n<!-- end -->\n").0.lines().nth(1), Some("old"));
    assert_eq!(generate::refresh("<!-- generated: nothing -->\n<!-- end -->\n").1, ["nothing"]);
}
