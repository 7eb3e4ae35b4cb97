//! What an agent asked to remember (`acp-shim remember`): part of `out/result.json`, with limits on both sides.
//!
//! Collected by `shim/agent_requests.rs`, read by `coordinator/`. On the host it is hostile input: [`AgentNotes`] deserializes the
//! valid entries of any JSON and drops the rest, so that invalid notes fail no story. `story_knowledge.rs` turns them into grams.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::secrets::{Secrets, redact};

/// The most notes of one story.
pub const MAX_NOTES: usize = 64;
/// The most links of one story.
pub const MAX_LINKS: usize = 128;
/// The most characters of a note's text.
pub const MAX_TEXT_CHARS: usize = 2_000;
/// The most characters of an id or a type.
pub const MAX_NAME_CHARS: usize = 128;
/// The most bytes of all texts and ids of one story.
pub const MAX_TOTAL_BYTES: usize = 32 * 1024;
/// The most nodes that one note is about.
pub const MAX_ABOUT: usize = 16;
/// The prefixes of the ids that longshore assigns. Agents may not use them.
pub const RESERVED_ID_PREFIXES: [&str; 5] = ["story:", "commit:", "attempt:", "finding:", "note:"];
/// The prefix of a file's node id. The path follows.
pub const FILE_ID_PREFIX: &str = "file:";

/// Notes and links in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNotes {
    /// What the agent learned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<AgentNote>,
    /// How the nodes are related.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<NoteLink>,
}

/// A note of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNote {
    /// The node's id, if the agent set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The node type: `note`, `decision`, `pitfall`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of the note.
    pub text: String,
    /// From 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<f64>,
    /// The ids of the nodes that the note is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// When the note was added, RFC 3339.
    pub at: String,
}

/// An edge between two nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoteLink {
    /// The id of a node.
    pub source: String,
    /// The id of a node.
    pub target: String,
    /// From 0 to 1.
    pub weight: f64,
}

impl AgentNotes {
    /// Whether there are no notes and no links.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.links.is_empty()
    }

    /// Adds a note.
    ///
    /// # Errors
    /// The note is invalid, or a limit is reached. Nothing is added then.
    pub fn add_note(&mut self, note: AgentNote) -> Result<(), String> {
        if self.notes.len() >= MAX_NOTES {
            return Err(format!("a story can have at most {MAX_NOTES} notes"));
        }
        if note.text.trim().is_empty() || note.text.chars().count() > MAX_TEXT_CHARS {
            return Err(format!("the text must have from 1 to {MAX_TEXT_CHARS} characters"));
        }
        if note.about.len() > MAX_ABOUT {
            return Err(format!("a note can be about at most {MAX_ABOUT} nodes"));
        }
        check_name("the type", &note.kind)?;
        if let Some(id) = &note.id {
            check_own_id(id)?;
        }
        note.about.iter().try_for_each(|id| check_name("an id", id))?;
        check_fraction("the importance", note.importance.unwrap_or_default())?;
        self.check_capacity(note.text.len() + note.about.iter().map(String::len).sum::<usize>())?;
        self.notes.push(note);
        Ok(())
    }

    /// Adds a link.
    ///
    /// # Errors
    /// As [`add_note`](Self::add_note).
    pub fn add_link(&mut self, link: NoteLink) -> Result<(), String> {
        if self.links.len() >= MAX_LINKS {
            return Err(format!("a story can have at most {MAX_LINKS} edges"));
        }
        check_name("an id", &link.source)?;
        check_name("an id", &link.target)?;
        check_fraction("the weight", link.weight)?;
        self.check_capacity(link.source.len() + link.target.len())?;
        self.links.push(link);
        Ok(())
    }

    /// Replaces the values of variables by their names.
    #[must_use]
    pub fn redacted(mut self, secrets: &Secrets) -> Self {
        if secrets.is_empty() {
            return self;
        }
        for note in &mut self.notes {
            for text in note.about.iter_mut().chain([&mut note.text, &mut note.kind]).chain(&mut note.id) {
                *text = redact(text, secrets);
            }
        }
        for text in self.links.iter_mut().flat_map(|link| [&mut link.source, &mut link.target]) {
            *text = redact(text, secrets);
        }
        self
    }

    fn check_capacity(&self, wanted: usize) -> Result<(), String> {
        let notes = self.notes.iter().map(|note| note.text.len() + note.about.iter().map(String::len).sum::<usize>());
        let links = self.links.iter().map(|link| link.source.len() + link.target.len());
        if notes.chain(links).sum::<usize>() + wanted <= MAX_TOTAL_BYTES {
            return Ok(());
        }
        Err(format!("the notes of a story can have at most {} KB", MAX_TOTAL_BYTES / 1024))
    }
}

fn check_name(what: &str, text: &str) -> Result<(), String> {
    let good = !text.trim().is_empty() && text.chars().count() <= MAX_NAME_CHARS && !text.chars().any(char::is_control);
    if good {
        Ok(())
    } else {
        Err(format!("{what} must have from 1 to {MAX_NAME_CHARS} characters, none of them a control character"))
    }
}

fn check_own_id(id: &str) -> Result<(), String> {
    check_name("the id", id)?;
    match RESERVED_ID_PREFIXES.iter().find(|ours| id.starts_with(*ours)) {
        Some(ours) => Err(format!("ids with the prefix `{ours}` are reserved for longshore")),
        None => Ok(()),
    }
}

/// Whether an importance or a weight is from 0 to 1.
pub fn is_fraction(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

fn check_fraction(what: &str, number: f64) -> Result<(), String> {
    if is_fraction(number) { Ok(()) } else { Err(format!("{what} must be a number from 0 to 1")) }
}

/// Accepts any value, and drops what is not valid.
impl<'de> Deserialize<'de> for AgentNotes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let mut taken = Self::default();
        let entries = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
        for note in entries("notes").filter_map(|note| AgentNote::deserialize(note).ok()).take(2 * MAX_NOTES) {
            let _ = taken.add_note(note);
        }
        for link in entries("links").filter_map(|link| NoteLink::deserialize(link).ok()).take(2 * MAX_LINKS) {
            let _ = taken.add_link(link);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
