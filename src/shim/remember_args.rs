//! The arguments of `acp-shim remember`.
//!
//! Parsed for `socket_client.rs`. The shim checks the limits that depend on earlier notes. Must not: send anything.

use super::agent_requests::AgentRequest;
use crate::handoff::agent_notes::{FILE_ID_PREFIX, MAX_TEXT_CHARS, NoteLink, RESERVED_ID_PREFIXES, is_fraction};

pub const USAGE: &str = "remember TEXT [--type TYPE] [--importance 0..1] [--id NODE] [--about NODE|FILE]... \
                         [--edge FROM:TO[:WEIGHT]]...";

pub fn parse(args: &[String]) -> Result<AgentRequest, String> {
    let (mut words, mut kind, mut importance, mut id) = (Vec::new(), None, None, None);
    let (mut about, mut links) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--type" => kind = Some(value()?),
            "--importance" => importance = Some(parse_fraction(&value()?)?),
            "--id" => id = Some(value()?),
            "--about" => about.push(to_node_id(&value()?)),
            "--edge" => links.push(parse_edge(&value()?)?),
            "--" => words.extend(args.by_ref().cloned()),
            flag if flag.starts_with("--") => return Err(format!("unexpected argument `{flag}`")),
            _ => words.push(arg.clone()),
        }
    }
    let text = words.join(" ");
    if text.trim().is_empty() && links.is_empty() {
        return Err("there is no text and no edge to remember".to_owned());
    }
    if text.trim().is_empty() && (id.is_some() || kind.is_some() || importance.is_some() || !about.is_empty()) {
        return Err("a note needs a text".to_owned());
    }
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(format!(
            "the text has more than {MAX_TEXT_CHARS} characters: shorten it, or split it into several notes"
        ));
    }
    Ok(AgentRequest::Remember { text, kind, importance, id, about, links })
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| is_fraction(*number));
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

/// A node's id. The path of an existing file stands for the file's node.
fn to_node_id(text: &str) -> String {
    let path = text.strip_prefix("./").unwrap_or(text);
    let named = text.starts_with(FILE_ID_PREFIX) || RESERVED_ID_PREFIXES.iter().any(|ours| text.starts_with(ours));
    if !named && std::path::Path::new(path).is_file() { format!("{FILE_ID_PREFIX}{path}") } else { text.to_owned() }
}

/// Parses `FROM:TO` or `FROM:TO:WEIGHT`. A prefix such as `file:` belongs to its id.
fn parse_edge(text: &str) -> Result<NoteLink, String> {
    let mut parts: Vec<String> = Vec::new();
    let mut prefix: Option<String> = None;
    for part in text.split(':') {
        match prefix.take() {
            Some(prefix) => parts.push(format!("{prefix}:{part}")),
            None if RESERVED_ID_PREFIXES.contains(&format!("{part}:").as_str())
                || format!("{part}:") == FILE_ID_PREFIX =>
            {
                prefix = Some(part.to_owned());
            }
            None => parts.push(part.to_owned()),
        }
    }
    parts.extend(prefix);
    match parts.as_slice() {
        [source, target] if !source.is_empty() && !target.is_empty() => {
            Ok(NoteLink { source: to_node_id(source), target: to_node_id(target), weight: 1.0 })
        }
        [source, target, weight] if !source.is_empty() && !target.is_empty() => {
            Ok(NoteLink { source: to_node_id(source), target: to_node_id(target), weight: parse_fraction(weight)? })
        }
        _ => Err(format!("`{text}` is not of the form `FROM:TO` or `FROM:TO:WEIGHT`")),
    }
}

#[cfg(test)]
mod tests;
