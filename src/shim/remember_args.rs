//! `acp-shim remember`: its arguments.
//!
//! Read by `socket_client.rs`. What is too long or too much is refused by the shim, which says so. Must not: send anything.

use super::agent_requests::AgentRequest;
use crate::handoff::agent_notes::{FILE_ID_PREFIX, MAX_TEXT_CHARS, NoteLink, RESERVED_ID_PREFIXES};

/// How it is called.
pub const USAGE: &str = "remember TEXT [--type TYPE] [--importance 0..1] [--id NODE] [--about NODE|FILE]... \
                         [--edge FROM:TO[:WEIGHT]]...";

/// Reads the arguments behind `remember`.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: &[String]) -> Result<AgentRequest, String> {
    let (mut words, mut kind, mut importance, mut id) = (Vec::new(), None, None, None);
    let (mut about, mut links) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("`{arg}` wants a value"));
        match arg.as_str() {
            "--type" => kind = Some(value()?),
            "--importance" => importance = Some(parse_fraction(&value()?)?),
            "--id" => id = Some(value()?),
            "--about" => about.push(to_node_id(&value()?)),
            "--edge" => links.push(parse_edge(&value()?)?),
            "--" => words.extend(args.by_ref().cloned()),
            flag if flag.starts_with("--") => return Err(format!("there is no `{flag}`")),
            _ => words.push(arg.clone()),
        }
    }
    let text = words.join(" ");
    if text.trim().is_empty() && links.is_empty() {
        return Err("there is nothing to remember".to_owned());
    }
    if text.trim().is_empty() && (id.is_some() || kind.is_some() || importance.is_some() || !about.is_empty()) {
        return Err("a note needs a text".to_owned());
    }
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(format!("the text has more than {MAX_TEXT_CHARS} characters: say it shorter, or in several notes"));
    }
    Ok(AgentRequest::Remember { text, kind, importance, id, about, links })
}

/// A number from 0 to 1.
fn parse_fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

/// A node's id; a path of a file that is there stands for the file's node.
fn to_node_id(text: &str) -> String {
    let path = text.strip_prefix("./").unwrap_or(text);
    let named = text.starts_with(FILE_ID_PREFIX) || RESERVED_ID_PREFIXES.iter().any(|ours| text.starts_with(ours));
    if !named && std::path::Path::new(path).is_file() { format!("{FILE_ID_PREFIX}{path}") } else { text.to_owned() }
}

/// `FROM:TO`, `FROM:TO:WEIGHT`; `file:a.rs` and the like are one id each.
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
        _ => Err(format!("`{text}` is not FROM:TO or FROM:TO:WEIGHT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<AgentRequest, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn parses_a_note_with_every_option() {
        let line = "the parser is slow --type pitfall --importance 0.8 --id parser --about file:src/p.rs --edge parser:lexer:0.5";
        let Ok(AgentRequest::Remember { text, kind, importance, id, about, links }) = parsed(line) else {
            panic!("{line}")
        };
        assert_eq!((text.as_str(), kind.as_deref(), importance), ("the parser is slow", Some("pitfall"), Some(0.8)));
        assert_eq!((id.as_deref(), about), (Some("parser"), vec!["file:src/p.rs".to_owned()]));
        assert_eq!(links, [NoteLink { source: "parser".into(), target: "lexer".into(), weight: 0.5 }]);
    }

    #[test]
    fn parses_edges_and_file_nodes() {
        let edge = |text: &str| parse_edge(text).map(|link| (link.source, link.target, link.weight));
        let is = |source: &str, target: &str, weight| Ok((source.to_owned(), target.to_owned(), weight));
        assert_eq!(edge("a:b"), is("a", "b", 1.0));
        assert_eq!(edge("file:src/a.rs:story:US-001:0.25"), is("file:src/a.rs", "story:US-001", 0.25));
        assert_eq!(edge("Cargo.toml:b"), is("file:Cargo.toml", "b", 1.0), "a file that is there");
        for wrong in ["a", "a:", ":b", "a:b:c", "a:b:2", "a:b:0.5:1", "file:a"] {
            assert!(edge(wrong).is_err(), "{wrong}");
        }
        assert_eq!(to_node_id("./Cargo.toml"), "file:Cargo.toml");
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for wrong in ["", "--type", "x --importance 2", "x --all", "--id a", "--type note --edge a:b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(parsed(&"x".repeat(MAX_TEXT_CHARS + 1)).is_err());
        assert!(parsed("--edge a:b").is_ok());
        let Ok(AgentRequest::Remember { text, .. }) = parsed("-- --type is a flag") else { panic!("words") };
        assert_eq!(text, "--type is a flag");
    }
}
