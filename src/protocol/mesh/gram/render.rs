//! Renders grams as markdown, table, DOT and Mermaid.
//!
//! Texts come from agents: every text is stripped of control and bidirectional characters and escaped for its format.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::memory_gram::MemoryGram;
use super::model::{GramEdge, GramNode, HASH_KEY};

/// Maximum length of a table cell, a DOT label or a Mermaid label.
const MAX_CELL_CHARS: usize = 80;
/// Attributes that describe a node; the first one present is its summary.
const SUMMARY_ATTRIBUTES: [&str; 6] = ["text", "summary", "title", "name", "path", "status"];

fn nodes_by_importance(gram: &MemoryGram) -> Vec<&GramNode> {
    let now = gram.timestamp();
    let importance = |node: &GramNode| node.importance_at(now, now);
    let mut nodes: Vec<&GramNode> = gram.nodes().iter().collect();
    nodes.sort_by(|a, b| importance(b).total_cmp(&importance(a)).then_with(|| a.id.cmp(&b.id)));
    nodes
}

fn node_summary(node: &GramNode) -> String {
    let summary = SUMMARY_ATTRIBUTES.iter().find_map(|name| node.attributes.get(*name));
    summary.map(value_text).unwrap_or_default()
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(entries) if entries.iter().all(|entry| !entry.is_object() && !entry.is_array()) => {
            entries.iter().map(value_text).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Collapses white space and removes characters that a terminal or renderer interprets.
fn single_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_whitespace() || matches!(c, '\u{2028}' | '\u{2029}') => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c if c.is_control() || is_invisible(c) => {}
            c => out.push(c),
        }
    }
    out.trim().to_owned()
}

/// Characters that reorder or hide text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Escapes text for a markdown paragraph.
fn escape_markdown(text: &str) -> String {
    let text = single_line(text);
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let special = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '&' | '|' | '~' | '$' => true,
            // No emphasis within a word.
            '_' => !(before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric())),
            _ => false,
        };
        if special {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    // Headings, lists and rules are recognized at the beginning only.
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

fn markdown_code(text: &str) -> String {
    format!("`{}`", single_line(text).replace('`', "'"))
}

/// Lists nodes and their relations for an agent, the most important first. Empty for a gram without nodes.
pub fn markdown(gram: &MemoryGram) -> String {
    let mut edges: BTreeMap<&str, Vec<&GramEdge>> = BTreeMap::new();
    for edge in gram.edges() {
        edges.entry(&edge.source).or_default().push(edge);
    }
    let mut text = String::new();
    for node in nodes_by_importance(gram).into_iter().filter(|node| !node.is_reference()) {
        let summary = node_summary(node);
        text.push_str(&format!("- {} {}", escape_markdown(&node.kind), markdown_code(&node.id)));
        if !summary.is_empty() && summary != node.id {
            text.push_str(&format!(": {}", escape_markdown(&summary)));
        }
        text.push('\n');
        let used =
            SUMMARY_ATTRIBUTES.iter().find(|name| node.attributes.contains_key(**name)).copied().unwrap_or_default();
        for (name, value) in node.attributes.iter().filter(|(name, _)| *name != used) {
            text.push_str(&format!("  - {}: {}\n", escape_markdown(name), escape_markdown(&value_text(value))));
        }
        for edge in edges.get(node.id.as_str()).into_iter().flatten() {
            let how = edge.context.as_deref().map_or_else(|| "has to do with".to_owned(), escape_markdown);
            text.push_str(&format!("  - {how} {}\n", markdown_code(&edge.target)));
        }
    }
    text
}

/// Shows metadata, nodes and edges for a terminal.
pub fn table(gram: &MemoryGram) -> String {
    let mut text = format!("MemoryGram {} of {}\n{}\n", gram.id(), gram.timestamp(), gram.hash());
    for (name, value) in gram.metadata().into_iter().flatten().filter(|(name, _)| *name != HASH_KEY) {
        text.push_str(&format!(
            "{}: {}\n",
            single_line(name),
            truncate(&single_line(&value_text(value)), 4 * MAX_CELL_CHARS)
        ));
    }
    let now: Timestamp = gram.timestamp();
    let nodes = nodes_by_importance(gram).into_iter().map(|node| {
        let worth = format!("{:.2}", node.importance_at(now, now));
        [single_line(&node.id), single_line(&node.kind), worth, single_line(&node_summary(node))]
    });
    text.push('\n');
    push_columns(&mut text, ["NODE", "TYPE", "WORTH", "WHAT"], nodes);
    if !gram.edges().is_empty() {
        let edges = gram.edges().iter().map(|edge| {
            let context = single_line(edge.context.as_deref().unwrap_or_default());
            [single_line(&edge.source), single_line(&edge.target), format!("{:.2}", edge.weight), context]
        });
        text.push('\n');
        push_columns(&mut text, ["FROM", "TO", "WEIGHT", "HOW"], edges);
    }
    text
}

fn push_columns(text: &mut String, head: [&str; 4], rows: impl Iterator<Item = [String; 4]>) {
    let rows: Vec<[String; 4]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let rows: Vec<[String; 4]> = rows.into_iter().map(|row| row.map(|cell| truncate(&cell, MAX_CELL_CHARS))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    for [a, b, c, d] in &rows {
        let row = format!("{a:<0$}  {b:<1$}  {c:<2$}  {d}", widths[0], widths[1], widths[2]);
        text.push_str(row.trim_end());
        text.push('\n');
    }
}

fn node_label(node: &GramNode) -> String {
    let summary = node_summary(node);
    let summary = if summary == node.id { String::new() } else { truncate(&single_line(&summary), MAX_CELL_CHARS) };
    let name = truncate(&single_line(&node.id), MAX_CELL_CHARS);
    if summary.is_empty() {
        format!("{}: {name}", single_line(&node.kind))
    } else {
        format!("{}: {name}\n{summary}", single_line(&node.kind))
    }
}

/// Renders a graph for Graphviz.
pub fn dot(gram: &MemoryGram) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let mut text = String::from("digraph memory {\n  rankdir=LR;\n  node [shape=box];\n");
    let indexes = node_indexes(gram);
    for (index, node) in gram.nodes().iter().enumerate() {
        text.push_str(&format!("  n{index} [label={}];\n", quoted(&node_label(node))));
    }
    for edge in gram.edges() {
        let context = truncate(&single_line(edge.context.as_deref().unwrap_or_default()), MAX_CELL_CHARS);
        let (source, target) = (indexes[edge.source.as_str()], indexes[edge.target.as_str()]);
        text.push_str(&format!("  n{source} -> n{target} [label={}, weight={:.2}];\n", quoted(&context), edge.weight));
    }
    text.push_str("}\n");
    text
}

/// Renders a graph for Mermaid.
pub fn mermaid(gram: &MemoryGram) -> String {
    // Other characters become numeric entities.
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
    let indexes = node_indexes(gram);
    for (index, node) in gram.nodes().iter().enumerate() {
        text.push_str(&format!("  n{index}[{}]\n", quoted(&node_label(node))));
    }
    for edge in gram.edges() {
        let (source, target) = (indexes[edge.source.as_str()], indexes[edge.target.as_str()]);
        match truncate(&single_line(edge.context.as_deref().unwrap_or_default()), MAX_CELL_CHARS).as_str() {
            "" => text.push_str(&format!("  n{source} --> n{target}\n")),
            context => text.push_str(&format!("  n{source} -->|{}| n{target}\n", quoted(context))),
        }
    }
    text
}

/// Graph names are indexes: ids from agents are not valid names in these languages.
fn node_indexes(gram: &MemoryGram) -> BTreeMap<&str, usize> {
    gram.nodes().iter().enumerate().map(|(index, node)| (node.id.as_str(), index)).collect()
}
