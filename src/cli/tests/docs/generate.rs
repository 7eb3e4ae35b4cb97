//! The generated blocks of the docs.

use regex::{Captures, Regex};

use super::facts::{self, arguments, flag_text, help, subcommands, without_default};

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
        let flag = setting.flag.map(|flag| format!("`{}`", cell(&flag))).unwrap_or_default();
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

/// A command with its arguments, and those below it.
fn command(path: &str) -> Option<String> {
    let root = facts::tree();
    let command = path.split(' ').try_fold(&root, |command, name| command.find_subcommand(name))?;
    Some(described(command, path))
}

fn described(command: &clap::Command, path: &str) -> String {
    if command.has_subcommands() {
        let below = subcommands(command).map(|sub| described(sub, &format!("{path} {}", sub.get_name())));
        return below.collect::<Vec<_>>().join("\n");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().next().unwrap_or_default().trim().to_owned();
    let mut out = format!("**`{usage}`**\\\n{}\n", about(command));
    // What `plan` and `run` take of the settings is in the table of settings.
    let settings: Vec<String> = facts::settings().into_iter().filter_map(|setting| setting.flag).collect();
    let in_settings = |arg: &clap::Arg| ["plan", "run"].contains(&path) && settings.contains(&flag_text(arg));
    let mut rows = String::new();
    for arg in arguments(command).filter(|arg| !in_settings(arg)) {
        let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        rows.push_str(&format!("| {short}`{}` | {} |\n", cell(&flag_text(arg)), meaning(arg)));
    }
    if !rows.is_empty() {
        out.push_str(&format!("\n| argument | meaning |\n|---|---|\n{rows}"));
    }
    out
}

fn about(command: &clap::Command) -> String {
    sentence(&command.get_about().map(ToString::to_string).unwrap_or_default())
}

/// What an argument is for, its values, and its default.
fn meaning(arg: &clap::Arg) -> String {
    let (text, said) = without_default(&help(arg));
    let mut text = sentence(&text);
    let takes = arg.get_action().takes_values();
    let values: Vec<String> =
        (arg.get_possible_values().iter().filter(|_| takes)).map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        text.push_str(&format!(" One of {}.", values.join(", ")));
    }
    let declared = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).next();
    if let Some(default) = said.or(declared.filter(|_| takes)) {
        text.push_str(&format!(" Default: {}.", cell(&default)));
    }
    text
}

fn sentence(text: &str) -> String {
    let text = cell(text.trim());
    if text.is_empty() || text.ends_with('.') { text } else { format!("{text}.") }
}

/// Text as a table's cell has it.
fn cell(text: &str) -> String {
    text.replace('|', r"\|").replace('<', "&lt;")
}
