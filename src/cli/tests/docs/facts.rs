//! What the code has, from the declarations themselves; from the sources where there is no list.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::CommandFactory;
use regex::Regex;
use serde_json::Value;

use super::markdown::{flags as flags_of, root};
use crate::cli::args::Cli;
use crate::cli::settings::declaration::Config;
use crate::cli::settings::tests::info::{SettingInfo, settings as declared_settings};
use crate::verdict::Cause;

/// A command without subcommands.
pub(super) struct Leaf {
    /// `salvage list`.
    pub(super) path: String,
}

/// A setting.
pub(super) struct SettingFacts {
    /// `--max N`.
    pub(super) flag: Option<String>,
    pub(super) variable: String,
    /// `amp.heartbeat`.
    pub(super) key: String,
    pub(super) default: String,
    pub(super) help: String,
}

/// A cause.
pub(super) struct CauseFacts {
    pub(super) word: String,
    pub(super) class: String,
    pub(super) help: String,
}

/// The variables in the code.
pub(super) struct Variables {
    /// Those of the programs.
    pub(super) required: BTreeSet<String>,
    /// The same, and those of tests.
    pub(super) known: BTreeSet<String>,
}

/// The command tree, complete.
pub(super) fn tree() -> clap::Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// A command's own subcommands, without `help`.
pub(super) fn subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help")
}

/// A command's own arguments, without `--help`, `--version` and what every command takes.
pub(super) fn arguments(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    let own = |arg: &&clap::Arg| !matches!(arg.get_id().as_str(), "help" | "version") && !arg.is_global_set();
    command.get_arguments().filter(own).filter(|arg| !arg.is_hide_set())
}

pub(super) fn leaves() -> Vec<Leaf> {
    fn walk(command: &clap::Command, path: &str, found: &mut Vec<Leaf>) {
        for sub in subcommands(command) {
            let path = format!("{path} {}", sub.get_name()).trim().to_owned();
            if !sub.has_subcommands() {
                found.push(Leaf { path: path.clone() });
            }
            walk(sub, &path, found);
        }
    }
    let mut found = Vec::new();
    walk(&tree(), "", &mut found);
    found
}

/// All long flags.
pub(super) fn flags() -> BTreeSet<String> {
    fn walk(command: &clap::Command, found: &mut BTreeSet<String>) {
        let long = |arg: &clap::Arg| arg.get_long().map(|long| format!("--{long}"));
        found.extend(command.get_arguments().filter_map(long));
        command.get_subcommands().for_each(|sub| walk(sub, found));
    }
    let mut found = BTreeSet::new();
    walk(&tree(), &mut found);
    // Every command has them, and no page has to say so.
    found.remove("--help");
    found.remove("--version");
    found
}

/// The declared settings that have a variable.
pub(super) fn settings() -> Vec<SettingFacts> {
    let root = tree();
    let run = root.find_subcommand("run").expect("there is a command `run`");
    let flag_of = |name: &str| arguments(run).find(|arg| arg.get_long() == name.strip_prefix("--")).map(flag_text);
    let fact = |info: SettingInfo| {
        let (flag, help) = (info.flag.and_then(flag_of), without_default(info.help).0);
        let (key, default) = (info.key.to_owned(), info.default);
        info.env.map(|variable| SettingFacts { flag, variable, key, default, help })
    };
    declared_settings().into_iter().filter_map(fact).collect()
}

/// `--max N`.
pub(super) fn flag_text(arg: &clap::Arg) -> String {
    let names: Vec<String> = (arg.get_value_names().unwrap_or_default()).iter().map(ToString::to_string).collect();
    let takes = arg.get_action().takes_values();
    let long = arg.get_long().map(|long| format!("--{long}"));
    match long {
        Some(long) if takes => format!("{long} {}", names.join(" ")),
        Some(long) => long,
        None => names.join(" "),
    }
}

pub(super) fn help(arg: &clap::Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ")
}

/// A help text, and the default that it names.
pub(super) fn without_default(help: &str) -> (String, Option<String>) {
    match help.strip_suffix(']').and_then(|help| help.split_once(" [default: ")) {
        Some((help, default)) => (help.to_owned(), Some(default.to_owned())),
        None => (help.to_owned(), None),
    }
}

/// What a key's schema points at, if it points.
fn target<'a>(schema: &'a Value, mut node: &'a Value) -> &'a Value {
    while let Some(name) = node.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/")) {
        node = &schema["$defs"][name];
    }
    node
}

/// The keys of the config file: `max`, `amp.heartbeat`, `agents.NAME.argv`.
pub(super) fn config_keys() -> BTreeSet<String> {
    fn walk(schema: &Value, node: &Value, path: &str, found: &mut BTreeSet<String>) {
        for (key, node) in target(schema, node)["properties"].as_object().into_iter().flatten() {
            let node = target(schema, node);
            if node["properties"].is_object() {
                walk(schema, node, &format!("{path}{key}."), found);
            } else if node["additionalProperties"].is_object() {
                walk(schema, &node["additionalProperties"], &format!("{path}{key}.NAME."), found);
            } else {
                found.insert(format!("{path}{key}"));
            }
        }
    }
    let schema = serde_json::to_value(schemars::schema_for!(Config)).expect("JSON");
    let mut found = BTreeSet::new();
    walk(&schema, &schema, "", &mut found);
    found
}

pub(super) fn causes() -> Vec<CauseFacts> {
    let schema = serde_json::to_value(schemars::schema_for!(Cause)).expect("JSON");
    let variants = schema["oneOf"].as_array().expect("every cause has a description");
    let fact = |variant: &Value| {
        let cause: Cause = serde_json::from_value(variant["const"].clone()).expect("a cause");
        let class = format!("{:?}", cause.class()).to_lowercase();
        let help = variant["description"].as_str().unwrap_or_default().replace('\n', " ");
        CauseFacts { word: variant["const"].as_str().unwrap_or_default().to_owned(), class, help }
    };
    let mut causes: Vec<CauseFacts> = variants.iter().map(fact).collect();
    let order = |class: &str| ["story", "machinery", "user"].iter().position(|known| *known == class);
    causes.sort_by_key(|cause| order(&cause.class));
    causes
}

/// Every number that a `fn exit_code` of the command line or the machine gives.
pub(super) fn exit_codes() -> BTreeSet<String> {
    let variants = Regex::new(r"(?s)enum ExitStatus \{(.*?)\n\}").expect("a good pattern");
    let number = Regex::new(r"= (\d+),").expect("a good pattern");
    let text = fs::read_to_string(root().join("src/cli/exit_status.rs")).expect("the source is there");
    let variants = variants.captures(&text).expect("the enum is there");
    number.captures_iter(&variants[1]).map(|code| code[1].to_owned()).collect()
}

/// The numbers that `longshore --help` explains.
pub(super) fn exit_codes_in_help() -> BTreeSet<String> {
    let help = tree().get_after_help().map(ToString::to_string).unwrap_or_default();
    let codes = help.split_once("Exit codes: ").map_or("", |(_, codes)| codes).split("; ");
    codes.filter_map(|code| code.split(' ').next()).map(str::to_owned).collect()
}

/// The flags of `acp-shim`'s commands: the literals of the files that read arguments.
pub(super) fn shim_flags() -> BTreeSet<String> {
    let mut files = sources("src/shim");
    files.retain(|(path, _)| !is_test(path) && path.ends_with("args.rs"));
    assert!(!files.is_empty(), "the arguments of `acp-shim` are read in files called `*args.rs`");
    literals(&files, r#""(--[a-z][a-z-]*)""#)
}

/// The flags in the comments of the scripts.
pub(super) fn script_flags() -> BTreeSet<String> {
    let files = files("scripts", ".sh");
    let comments = files.iter().flat_map(|(_, text)| text.lines()).filter(|line| line.starts_with('#'));
    comments.flat_map(flags_of).collect()
}

pub(super) fn variables() -> Variables {
    let all: Vec<(String, String)> = [sources("src"), sources("tests")].concat();
    let (tests, programs): (Vec<_>, Vec<_>) = all.into_iter().partition(|(path, _)| is_test(path));
    let variable = r#""(LONGSHORE_[A-Z0-9_]*[A-Z0-9])""#;
    let mut required = literals(&programs, variable);
    required.extend(settings().into_iter().map(|setting| setting.variable));
    let known = required.iter().cloned().chain(literals(&tests, variable)).collect();
    Variables { required, known }
}

fn literals(files: &[(String, String)], pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a good pattern");
    files.iter().flat_map(|(_, text)| pattern.captures_iter(text)).map(|found| found[1].to_owned()).collect()
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs")
}

fn sources(dir: &str) -> Vec<(String, String)> {
    files(dir, ".rs")
}

/// The files below a directory: path from the root, and text.
fn files(dir: &str, ending: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, ending: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.to_string_lossy().ends_with(ending) {
                let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(dir), ending, &mut found);
    found
}
