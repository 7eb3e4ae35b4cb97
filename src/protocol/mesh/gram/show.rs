//! A gram for people: readable markdown, a table, DOT and Mermaid. What is in it comes from agents, so every text is cleaned of
//! control characters and of what reorders text, and escaped for where it stands.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{Edge, MemoryGram, Node};

/// The most characters of a value in a table, a DOT label or a Mermaid label.
const CELL: usize = 80;
/// Attributes that say in words what a node is, the first of them that is there.
const WORDS: [&str; 6] = ["text", "summary", "title", "name", "path", "status"];

/// The nodes, what is worth most first.
fn by_worth(gram: &MemoryGram) -> Vec<&Node> {
    let now = gram.timestamp();
    let worth = |node: &Node| node.worth(now, now);
    let mut nodes: Vec<&Node> = gram.nodes().iter().collect();
    nodes.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then_with(|| a.id.cmp(&b.id)));
    nodes
}

/// What a node says of itself.
fn words(node: &Node) -> String {
    let said = WORDS.iter().find_map(|name| node.attributes.get(*name));
    said.map(text_of).unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(entries) if entries.iter().all(|entry| !entry.is_object() && !entry.is_array()) => {
            entries.iter().map(text_of).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// On one line, with nothing in it that a terminal or a renderer obeys.
fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_whitespace() || matches!(c, '\u{2028}' | '\u{2029}') => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c if c.is_control() || unseen(c) => {}
            c => out.push(c),
        }
    }
    out.trim().to_owned()
}

/// Marks that reorder or hide text.
fn unseen(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Text within a paragraph of markdown.
fn plain(text: &str) -> String {
    let text = line(text);
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let special = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '&' | '|' | '~' | '$' => true,
            // Within a word it means nothing.
            '_' => !(before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric())),
            _ => false,
        };
        if special {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    // What makes a heading, a list or a rule stands at the beginning.
    match out.chars().next() {
        Some('#' | '-' | '+' | '=' | '!') => out.insert(0, '\\'),
        Some(c) if c.is_ascii_digit() => {
            let digits = out.chars().take_while(char::is_ascii_digit).count();
            if matches!(out[digits..].chars().next(), Some('.' | ')')) {
                out.insert(digits, '\\');
            }
        }
        _ => {}
    }
    out
}

/// A name as code in markdown.
fn code(text: &str) -> String {
    format!("`{}`", line(text).replace('`', "'"))
}

/// For an agent to read: the nodes, what is worth most first, by what they are, with what they have to do with each other. Empty
/// where nothing is remembered.
pub fn markdown(gram: &MemoryGram) -> String {
    let mut edges: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
    for edge in gram.edges() {
        edges.entry(&edge.source).or_default().push(edge);
    }
    let mut text = String::new();
    for node in by_worth(gram).into_iter().filter(|node| !node.is_reference()) {
        let said = words(node);
        text.push_str(&format!("- {} {}", plain(&node.kind), code(&node.id)));
        if !said.is_empty() && said != node.id {
            text.push_str(&format!(": {}", plain(&said)));
        }
        text.push('\n');
        let used = WORDS.iter().find(|name| node.attributes.contains_key(**name)).copied().unwrap_or_default();
        for (name, value) in node.attributes.iter().filter(|(name, _)| *name != used) {
            text.push_str(&format!("  - {}: {}\n", plain(name), plain(&text_of(value))));
        }
        for edge in edges.get(node.id.as_str()).into_iter().flatten() {
            let how = edge.context.as_deref().map_or_else(|| "has to do with".to_owned(), plain);
            text.push_str(&format!("  - {how} {}\n", code(&edge.target)));
        }
    }
    text
}

/// For a terminal: what it is, its nodes, its edges.
pub fn table(gram: &MemoryGram) -> String {
    let mut text = format!("MemoryGram {} of {}\n{}\n", gram.id(), gram.timestamp(), gram.hash());
    for (name, value) in gram.metadata().into_iter().flatten().filter(|(name, _)| *name != super::HASH) {
        text.push_str(&format!("{}: {}\n", line(name), cut(&line(&text_of(value)), 4 * CELL)));
    }
    let now: Timestamp = gram.timestamp();
    let nodes = by_worth(gram).into_iter().map(|node| {
        let worth = format!("{:.2}", node.worth(now, now));
        [line(&node.id), line(&node.kind), worth, line(&words(node))]
    });
    text.push('\n');
    columns(&mut text, ["NODE", "TYPE", "WORTH", "WHAT"], nodes);
    if !gram.edges().is_empty() {
        let edges = gram.edges().iter().map(|edge| {
            let context = line(edge.context.as_deref().unwrap_or_default());
            [line(&edge.source), line(&edge.target), format!("{:.2}", edge.weight), context]
        });
        text.push('\n');
        columns(&mut text, ["FROM", "TO", "WEIGHT", "HOW"], edges);
    }
    text
}

fn columns(text: &mut String, head: [&str; 4], rows: impl Iterator<Item = [String; 4]>) {
    let rows: Vec<[String; 4]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let rows: Vec<[String; 4]> = rows.into_iter().map(|row| row.map(|cell| cut(&cell, CELL))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    for [a, b, c, d] in &rows {
        let row = format!("{a:<0$}  {b:<1$}  {c:<2$}  {d}", widths[0], widths[1], widths[2]);
        text.push_str(row.trim_end());
        text.push('\n');
    }
}

fn label(node: &Node) -> String {
    let said = words(node);
    let said = if said == node.id { String::new() } else { cut(&line(&said), CELL) };
    let name = cut(&line(&node.id), CELL);
    if said.is_empty() {
        format!("{}: {name}", line(&node.kind))
    } else {
        format!("{}: {name}\n{said}", line(&node.kind))
    }
}

/// For Graphviz.
pub fn dot(gram: &MemoryGram) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let mut text = String::from("digraph memory {\n  rankdir=LR;\n  node [shape=box];\n");
    let places = places(gram);
    for (place, node) in gram.nodes().iter().enumerate() {
        text.push_str(&format!("  n{place} [label={}];\n", quoted(&label(node))));
    }
    for edge in gram.edges() {
        let context = cut(&line(edge.context.as_deref().unwrap_or_default()), CELL);
        let (source, target) = (places[edge.source.as_str()], places[edge.target.as_str()]);
        text.push_str(&format!("  n{source} -> n{target} [label={}, weight={:.2}];\n", quoted(&context), edge.weight));
    }
    text.push_str("}\n");
    text
}

/// For Mermaid.
pub fn mermaid(gram: &MemoryGram) -> String {
    // What is no letter, digit or space is written as Mermaid's entity of its number.
    let quoted = |text: &str| {
        let mut out = String::from("\"");
        for c in text.chars() {
            match c {
                '\n' => out.push_str("<br/>"),
                c if c.is_alphanumeric() || matches!(c, ' ' | '.' | ',' | '-' | '/' | ':' | '_' | '…') => out.push(c),
                c => out.push_str(&format!("#{};", u32::from(c))),
            }
        }
        out.push('"');
        out
    };
    let mut text = String::from("graph LR\n");
    let places = places(gram);
    for (place, node) in gram.nodes().iter().enumerate() {
        text.push_str(&format!("  n{place}[{}]\n", quoted(&label(node))));
    }
    for edge in gram.edges() {
        let (source, target) = (places[edge.source.as_str()], places[edge.target.as_str()]);
        match cut(&line(edge.context.as_deref().unwrap_or_default()), CELL).as_str() {
            "" => text.push_str(&format!("  n{source} --> n{target}\n")),
            context => text.push_str(&format!("  n{source} -->|{}| n{target}\n", quoted(context))),
        }
    }
    text
}

/// Nodes by their place: an id of an agent's is no name in these languages.
fn places(gram: &MemoryGram) -> BTreeMap<&str, usize> {
    gram.nodes().iter().enumerate().map(|(place, node)| (node.id.as_str(), place)).collect()
}
