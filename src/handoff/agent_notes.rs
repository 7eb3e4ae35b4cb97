//! What an agent said that it learned (`acp-shim remember`): part of `out/result.json`, and bounded wherever it comes from.
//!
//! Collected by `shim/socket.rs`, read by `coordinator/`. On the host it is hostile: [`AgentNotes`] takes from any JSON whatever
//! is sound and within the bounds, and leaves out the rest, so that rubbish here costs nobody a story. Must not: make grams of
//! it; that is `story_knowledge.rs`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::secrets::{Secrets, redact};

/// The most notes of one story.
pub const MAX_NOTES: usize = 64;
/// The most edges of one story.
pub const MAX_LINKS: usize = 128;
/// The most characters of a note's text.
pub const MAX_TEXT_CHARS: usize = 2_000;
/// The most characters of an id, a type and a label.
pub const MAX_NAME_CHARS: usize = 128;
/// The most bytes of text that one story's notes and edges have together.
pub const MAX_TOTAL_BYTES: usize = 32 * 1024;
/// The most things that one note is about.
pub const MAX_ABOUT: usize = 16;
/// What ids that longshore gives begin with: nobody else may.
pub const RESERVED_ID_PREFIXES: [&str; 5] = ["story:", "commit:", "attempt:", "finding:", "note:"];
/// What the id of a file's node begins with; the rest is its path.
pub const FILE_ID_PREFIX: &str = "file:";

/// What was said, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNotes {
    /// What is known now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<AgentNote>,
    /// How it hangs together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<NoteLink>,
}

/// Something that an agent learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNote {
    /// The node's id, where the agent gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What kind of thing it is: `note`, `decision`, `pitfall`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// In words.
    pub text: String,
    /// From 0 to 1, where the agent said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<f64>,
    /// The ids of nodes that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// When it was said, RFC 3339.
    pub at: String,
}

/// An edge.
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
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.links.is_empty()
    }

    /// Adds a note.
    ///
    /// # Errors
    /// What is wrong with it, or that there are enough; nothing is added then.
    pub fn add_note(&mut self, note: AgentNote) -> Result<(), String> {
        if self.notes.len() >= MAX_NOTES {
            return Err(format!("there are {MAX_NOTES} notes of this story, and no more are kept"));
        }
        if note.text.trim().is_empty() || note.text.chars().count() > MAX_TEXT_CHARS {
            return Err(format!("the text must have from 1 to {MAX_TEXT_CHARS} characters"));
        }
        if note.about.len() > MAX_ABOUT {
            return Err(format!("a note can be about {MAX_ABOUT} things"));
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

    /// Adds an edge.
    ///
    /// # Errors
    /// As [`add_note`](Self::add_note).
    pub fn add_link(&mut self, link: NoteLink) -> Result<(), String> {
        if self.links.len() >= MAX_LINKS {
            return Err(format!("there are {MAX_LINKS} edges of this story, and no more are kept"));
        }
        check_name("an id", &link.source)?;
        check_name("an id", &link.target)?;
        check_fraction("the weight", link.weight)?;
        self.check_capacity(link.source.len() + link.target.len())?;
        self.links.push(link);
        Ok(())
    }

    /// The same with the names of variables in the place of their values.
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
        Err(format!("what is remembered of a story has at most {} KB", MAX_TOTAL_BYTES / 1024))
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
        Some(ours) => Err(format!("ids that begin with `{ours}` are longshore's own")),
        None => Ok(()),
    }
}

fn check_fraction(what: &str, share: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(format!("{what} must be a number from 0 to 1")) }
}

/// Takes what is sound, and nothing else, whatever it is.
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
mod tests {
    use super::*;
    use serde_json::json;

    fn note(text: &str) -> AgentNote {
        AgentNote {
            id: None,
            kind: "note".into(),
            text: text.into(),
            importance: None,
            about: Vec::new(),
            at: String::new(),
        }
    }

    #[test]
    fn notes_and_links_beyond_the_limits_are_rejected() {
        let mut said = AgentNotes::default();
        let taken = (0..100_000).filter(|n| said.add_note(note(&format!("note {n}"))).is_ok()).count();
        assert_eq!((taken, said.notes.len()), (MAX_NOTES, MAX_NOTES));
        let mut said = AgentNotes::default();
        assert!(
            (0..20).filter(|_| said.add_note(note(&"x".repeat(MAX_TEXT_CHARS))).is_ok()).count()
                == MAX_TOTAL_BYTES / MAX_TEXT_CHARS
        );
        assert!(said.add_note(note(&"x".repeat(MAX_TEXT_CHARS + 1))).is_err());
        let mut said = AgentNotes::default();
        let link = |weight| NoteLink { source: "a".into(), target: "b".into(), weight };
        assert_eq!((0..1000).filter(|_| said.add_link(link(1.0)).is_ok()).count(), MAX_LINKS);
        for weight in [1.1, -0.1, f64::NAN, f64::INFINITY] {
            assert!(AgentNotes::default().add_link(link(weight)).is_err(), "{weight}");
        }
        for id in ["story:US-001", "note:x", "", "a\nb", "commit:1"] {
            let note = AgentNote { id: Some(id.to_owned()), ..note("x") };
            assert!(AgentNotes::default().add_note(note).is_err(), "{id}");
        }
        let about_file =
            AgentNote { id: Some("file:a".into()), about: vec!["file:b".into(), "story:US-001".into()], ..note("x") };
        assert!(AgentNotes::default().add_note(about_file).is_ok());
    }

    #[test]
    fn deserialize_keeps_valid_notes_and_drops_the_rest() {
        for rubbish in [json!(null), json!(1), json!("x"), json!([1]), json!({"notes": 1, "links": {}})] {
            assert_eq!(serde_json::from_value::<AgentNotes>(rubbish).unwrap(), AgentNotes::default());
        }
        let mut notes: Vec<Value> = vec![json!(1), json!({"text": 5}), json!({"type": "t", "text": "", "at": ""})];
        notes.push(json!({"type": "t", "text": "good", "at": "now", "more": 1}));
        notes.push(json!({"type": "t", "text": "x", "at": "", "importance": 7}));
        let read: AgentNotes = serde_json::from_value(json!({
            "notes": notes, "links": [{"source": "a", "target": "b", "weight": 0.5}, {"source": "a"}, null],
        }))
        .unwrap();
        assert_eq!((read.notes.len(), read.links.len()), (1, 1));
        assert_eq!(read.notes[0].text, "good");
        let again: AgentNotes = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}
