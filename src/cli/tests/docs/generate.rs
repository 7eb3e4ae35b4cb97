//! The generated blocks of the docs.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::facts::{self, arguments, flag_text, help, subcommands, without_default};

/// An argument that so many commands of a group have is listed once.
const SHARED: usize = 3;

fn blocks() -> Regex {
    Regex::new(r"(?s)<!-- generated: ([^\n]*?) -->\n(.*?)<!-- end -->").expect("a good pattern")
}

/// The names of a page's blocks.
pub(super) fn names(text: &str) -> Vec<String> {
    blocks().captures_iter(text).map(|block| block[1].to_owned()).collect()
}

/// A page's text with fresh blocks, and the names that mean nothing.
pub(super) fn refresh(text: &str) -> (String, Vec<String>) {
    let mut unknown = Vec::new();
    let fresh = blocks().replace_all(text, |block: &Captures<'_>| match generate(&block[1]) {
        Some(content) => format!("<!-- generated: {} -->\n{content}<!-- end -->", &block[1]),
        None => {
            unknown.push(block[1].to_owned());
            block[0].to_owned()
        }
    });
    (fresh.into_owned(), unknown)
}

fn generate(name: &str) -> Option<String> {
    match name {
        "settings" => Some(settings()),
        "causes" => Some(causes()),
        "commands" => Some(commands()),
        _ => command(name.strip_prefix("command ")?),
    }
}

fn settings() -> String {
    let mut out = String::from("| flag | variable | key | default | meaning |\n|---|---|---|---|---|\n");
    for setting in facts::settings() {
        let flag = setting.flag.map(|flag| format!("`{}`", flag.replace('|', r"\|"))).unwrap_or_default();
        let key = match setting.key.split_once('.') {
            Some((table, key)) => format!("[{table}] {key}"),
            None => setting.key,
        };
        let (default, help) = (cell(&setting.default), sentence(&setting.help));
        out.push_str(&format!("| {flag} | `{}` | `{key}` | {default} | {help} |\n", setting.variable));
    }
    out
}

fn causes() -> String {
    let mut out = String::from("| cause | class | meaning |\n|---|---|---|\n");
    for cause in facts::causes() {
        out.push_str(&format!("| `{}` | {} | {} |\n", cause.word, cause.class, sentence(&cause.help)));
    }
    out
}

fn commands() -> String {
    let mut out = String::from("| command | what it does |\n|---|---|\n");
    for command in subcommands(&facts::tree()) {
        out.push_str(&format!("| `longshore {}` | {} |\n", command.get_name(), about(command)));
    }
    out
}

/// A command with its arguments. Of a group: its commands, then the arguments that several of them have.
fn command(path: &str) -> Option<String> {
    let root = facts::tree();
    let command = path.split(' ').try_fold(&root, |command, name| command.find_subcommand(name))?;
    let group: Vec<&clap::Command> = subcommands(command).collect();
    if group.is_empty() {
        return Some(described(command, &rows(command, path)));
    }
    let all: Vec<(&str, Vec<String>)> =
        group.iter().map(|sub| (sub.get_name(), rows(sub, &format!("{path} {}", sub.get_name())))).collect();
    let owners = |row: &String| -> Vec<&str> {
        all.iter().filter(|(_, rows)| rows.contains(row)).map(|(name, _)| *name).collect()
    };
    let mut shared: Vec<(&String, Vec<&str>)> = Vec::new();
    let mut out = String::new();
    for (sub, (_, rows)) in group.iter().zip(&all) {
        for row in rows {
            if owners(row).len() >= SHARED && !shared.iter().any(|(known, _)| *known == row) {
                shared.push((row, owners(row)));
            }
        }
        let own: Vec<String> = rows.iter().filter(|row| owners(row).len() < SHARED).cloned().collect();
        out.push_str(&format!("{}\n", described(sub, &own)));
    }
    if shared.is_empty() {
        out.pop();
        return Some(out);
    }
    out.push_str("Arguments that several of these commands have:\n\n| argument | meaning | of |\n|---|---|---|\n");
    for (row, owners) in shared {
        let of = if owners.len() == group.len() {
            "all".to_owned()
        } else {
            owners.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        out.push_str(&format!("{} {of} |\n", row.trim_end()));
    }
    Some(out)
}

fn described(command: &clap::Command, rows: &[String]) -> String {
    let usage = command.clone().render_usage().to_string();
    let mut usage = usage.trim_start_matches("Usage: ").lines().next().unwrap_or_default().trim().to_owned();
    if arguments(command).all(clap::Arg::is_positional) {
        // What is left of the options is `--help` and `--repo`.
        usage = usage.replace(" [OPTIONS]", "");
    }
    let mut out = format!("**`{usage}`**\\\n{}\n", about(command));
    if !rows.is_empty() {
        out.push_str(&format!("\n| argument | meaning |\n|---|---|\n{}", rows.concat()));
    }
    out
}

/// The rows of a command's arguments. What `plan` and `run` take of the settings is in the table of settings.
fn rows(command: &clap::Command, path: &str) -> Vec<String> {
    let settings: Vec<String> = facts::settings().into_iter().filter_map(|setting| setting.flag).collect();
    let in_settings = |arg: &clap::Arg| ["plan", "run"].contains(&path) && settings.contains(&flag_text(arg));
    let row = |arg: &clap::Arg| {
        let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        format!("| {short}`{}` | {} |\n", flag_text(arg).replace('|', r"\|"), meaning(arg))
    };
    arguments(command).filter(|arg| !in_settings(arg)).map(row).collect()
}

fn about(command: &clap::Command) -> String {
    sentence(&command.get_about().map(ToString::to_string).unwrap_or_default())
}

/// What an argument is for, its values, and its default.
fn meaning(arg: &clap::Arg) -> String {
    let (text, documented_default) = without_default(&help(arg));
    let mut text = sentence(&text);
    let takes = arg.get_action().takes_values();
    let values: Vec<String> =
        (arg.get_possible_values().iter().filter(|_| takes)).map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        text.push_str(&format!(" One of {}.", values.join(", ")));
    }
    let declared_default = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).next();
    if let Some(default) = documented_default.or(declared_default.filter(|_| takes)) {
        text.push_str(&format!(" Default: {}.", cell(&default)));
    }
    text
}

fn sentence(text: &str) -> String {
    let text = cell(text.trim());
    if text.is_empty() || text.ends_with('.') { text } else { format!("{text}.") }
}

/// Text as a table's cell has it: flags become code.
fn cell(text: &str) -> String {
    static FLAG: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(^|[\s(])(--[a-z][a-z0-9-]*)").expect("a good pattern"));
    let text = text.replace('|', r"\|").replace('<', "&lt;");
    let parts: Vec<String> = (text.split('`').enumerate())
        .map(
            |(place, part)| {
                if place % 2 == 0 { FLAG.replace_all(part, "$1`$2`").into_owned() } else { part.to_owned() }
            },
        )
        .collect();
    parts.join("`")
}
