//! `acp-shim remember`: its arguments.
//!
//! Read by `ask.rs`. What is too long or too much is refused by the shim, which says so. Must not: send anything.

use super::socket::Ask;
use crate::handoff::remembered::{FILE, Link, OURS, TEXT};

/// How it is called.
pub const USAGE: &str = "remember TEXT [--type TYPE] [--importance 0..1] [--id NODE] [--about NODE|FILE]... \
                         [--edge FROM:TO[:WEIGHT]]...";

/// Reads the arguments behind `remember`.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: &[String]) -> Result<Ask, String> {
    let (mut words, mut kind, mut importance, mut id) = (Vec::new(), None, None, None);
    let (mut about, mut links) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("`{arg}` wants a value"));
        match arg.as_str() {
            "--type" => kind = Some(value()?),
            "--importance" => importance = Some(share(&value()?)?),
            "--id" => id = Some(value()?),
            "--about" => about.push(node(&value()?)),
            "--edge" => links.push(edge(&value()?)?),
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
    if text.chars().count() > TEXT {
        return Err(format!("the text has more than {TEXT} characters: say it shorter, or in several notes"));
    }
    Ok(Ask::Remember { text, kind, importance, id, about, links })
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

/// A node's id; a path of a file that is there stands for the file's node.
fn node(text: &str) -> String {
    let path = text.strip_prefix("./").unwrap_or(text);
    let named = text.starts_with(FILE) || OURS.iter().any(|ours| text.starts_with(ours));
    if !named && std::path::Path::new(path).is_file() { format!("{FILE}{path}") } else { text.to_owned() }
}

/// `FROM:TO`, `FROM:TO:WEIGHT`; `file:a.rs` and the like are one id each.
fn edge(text: &str) -> Result<Link, String> {
    let mut parts: Vec<String> = Vec::new();
    let mut prefix: Option<String> = None;
    for part in text.split(':') {
        match prefix.take() {
            Some(prefix) => parts.push(format!("{prefix}:{part}")),
            None if OURS.contains(&format!("{part}:").as_str()) || format!("{part}:") == FILE => {
                prefix = Some(part.to_owned());
            }
            None => parts.push(part.to_owned()),
        }
    }
    parts.extend(prefix);
    match parts.as_slice() {
        [source, target] if !source.is_empty() && !target.is_empty() => {
            Ok(Link { source: node(source), target: node(target), weight: 1.0 })
        }
        [source, target, weight] if !source.is_empty() && !target.is_empty() => {
            Ok(Link { source: node(source), target: node(target), weight: share(weight)? })
        }
        _ => Err(format!("`{text}` is not FROM:TO or FROM:TO:WEIGHT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Ask, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_note_with_all_there_is() {
        let line = "the parser is slow --type pitfall --importance 0.8 --id parser --about file:src/p.rs --edge parser:lexer:0.5";
        let Ok(Ask::Remember { text, kind, importance, id, about, links }) = parsed(line) else { panic!("{line}") };
        assert_eq!((text.as_str(), kind.as_deref(), importance), ("the parser is slow", Some("pitfall"), Some(0.8)));
        assert_eq!((id.as_deref(), about), (Some("parser"), vec!["file:src/p.rs".to_owned()]));
        assert_eq!(links, [Link { source: "parser".into(), target: "lexer".into(), weight: 0.5 }]);
    }

    #[test]
    fn edges_and_files() {
        let edge = |text: &str| edge(text).map(|link| (link.source, link.target, link.weight));
        let is = |source: &str, target: &str, weight| Ok((source.to_owned(), target.to_owned(), weight));
        assert_eq!(edge("a:b"), is("a", "b", 1.0));
        assert_eq!(edge("file:src/a.rs:story:US-001:0.25"), is("file:src/a.rs", "story:US-001", 0.25));
        assert_eq!(edge("Cargo.toml:b"), is("file:Cargo.toml", "b", 1.0), "a file that is there");
        for wrong in ["a", "a:", ":b", "a:b:c", "a:b:2", "a:b:0.5:1", "file:a"] {
            assert!(edge(wrong).is_err(), "{wrong}");
        }
        assert_eq!(node("./Cargo.toml"), "file:Cargo.toml");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in ["", "--type", "x --importance 2", "x --all", "--id a", "--type note --edge a:b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(parsed(&"x".repeat(TEXT + 1)).is_err());
        assert!(parsed("--edge a:b").is_ok());
        let Ok(Ask::Remember { text, .. }) = parsed("-- --type is a flag") else { panic!("words") };
        assert_eq!(text, "--type is a flag");
    }
}
