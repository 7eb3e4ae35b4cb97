//! What an agent said that it learned (`acp-shim remember`): part of `out/result.json`, and bounded wherever it comes from.
//!
//! Collected by `shim/socket.rs`, read by `coordinator/`. On the host it is hostile: [`Remembered`] takes from any JSON whatever
//! is sound and within the bounds, and leaves out the rest, so that rubbish here costs nobody a story. Must not: make grams of
//! it; that is `learned.rs`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::secrets::{Secrets, without};

/// The most notes of one story.
pub const NOTES: usize = 64;
/// The most edges of one story.
pub const LINKS: usize = 128;
/// The most characters of a note's text.
pub const TEXT: usize = 2_000;
/// The most characters of an id, a type and a label.
pub const NAME: usize = 128;
/// The most bytes of text that one story's notes and edges have together.
pub const BYTES: usize = 32 * 1024;
/// The most things that one note is about.
pub const ABOUT: usize = 16;
/// What ids that longshore gives begin with: nobody else may.
pub const OURS: [&str; 5] = ["story:", "commit:", "attempt:", "finding:", "note:"];
/// What the id of a file's node begins with; the rest is its path.
pub const FILE: &str = "file:";

/// What was said, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// What is known now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// How it hangs together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// Something that an agent learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
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
pub struct Link {
    /// The id of a node.
    pub source: String,
    /// The id of a node.
    pub target: String,
    /// From 0 to 1.
    pub weight: f64,
}

impl Remembered {
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.links.is_empty()
    }

    /// Adds a note.
    ///
    /// # Errors
    /// What is wrong with it, or that there are enough; nothing is added then.
    pub fn note(&mut self, note: Note) -> Result<(), String> {
        if self.notes.len() >= NOTES {
            return Err(format!("there are {NOTES} notes of this story, and no more are kept"));
        }
        if note.text.trim().is_empty() || note.text.chars().count() > TEXT {
            return Err(format!("the text must have from 1 to {TEXT} characters"));
        }
        if note.about.len() > ABOUT {
            return Err(format!("a note can be about {ABOUT} things"));
        }
        name("the type", &note.kind)?;
        if let Some(id) = &note.id {
            own_id(id)?;
        }
        note.about.iter().try_for_each(|id| name("an id", id))?;
        share("the importance", note.importance.unwrap_or_default())?;
        self.room(note.text.len() + note.about.iter().map(String::len).sum::<usize>())?;
        self.notes.push(note);
        Ok(())
    }

    /// Adds an edge.
    ///
    /// # Errors
    /// As [`note`](Self::note).
    pub fn link(&mut self, link: Link) -> Result<(), String> {
        if self.links.len() >= LINKS {
            return Err(format!("there are {LINKS} edges of this story, and no more are kept"));
        }
        name("an id", &link.source)?;
        name("an id", &link.target)?;
        share("the weight", link.weight)?;
        self.room(link.source.len() + link.target.len())?;
        self.links.push(link);
        Ok(())
    }

    /// The same with the names of variables in the place of their values.
    #[must_use]
    pub fn without(mut self, secrets: &Secrets) -> Self {
        if secrets.is_empty() {
            return self;
        }
        for note in &mut self.notes {
            for text in note.about.iter_mut().chain([&mut note.text, &mut note.kind]).chain(&mut note.id) {
                *text = without(text, secrets);
            }
        }
        for text in self.links.iter_mut().flat_map(|link| [&mut link.source, &mut link.target]) {
            *text = without(text, secrets);
        }
        self
    }

    fn room(&self, wanted: usize) -> Result<(), String> {
        let notes = self.notes.iter().map(|note| note.text.len() + note.about.iter().map(String::len).sum::<usize>());
        let links = self.links.iter().map(|link| link.source.len() + link.target.len());
        if notes.chain(links).sum::<usize>() + wanted <= BYTES {
            return Ok(());
        }
        Err(format!("what is remembered of a story has at most {} KB", BYTES / 1024))
    }
}

fn name(what: &str, text: &str) -> Result<(), String> {
    let good = !text.trim().is_empty() && text.chars().count() <= NAME && !text.chars().any(char::is_control);
    if good {
        Ok(())
    } else {
        Err(format!("{what} must have from 1 to {NAME} characters, none of them a control character"))
    }
}

fn own_id(id: &str) -> Result<(), String> {
    name("the id", id)?;
    match OURS.iter().find(|ours| id.starts_with(*ours)) {
        Some(ours) => Err(format!("ids that begin with `{ours}` are longshore's own")),
        None => Ok(()),
    }
}

fn share(what: &str, share: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(format!("{what} must be a number from 0 to 1")) }
}

/// Takes what is sound, and nothing else, whatever it is.
impl<'de> Deserialize<'de> for Remembered {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let mut taken = Self::default();
        let entries = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
        for note in entries("notes").filter_map(|note| Note::deserialize(note).ok()).take(2 * NOTES) {
            let _ = taken.note(note);
        }
        for link in entries("links").filter_map(|link| Link::deserialize(link).ok()).take(2 * LINKS) {
            let _ = taken.link(link);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn note(text: &str) -> Note {
        Note {
            id: None,
            kind: "note".into(),
            text: text.into(),
            importance: None,
            about: Vec::new(),
            at: String::new(),
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let mut said = Remembered::default();
        let taken = (0..100_000).filter(|n| said.note(note(&format!("note {n}"))).is_ok()).count();
        assert_eq!((taken, said.notes.len()), (NOTES, NOTES));
        let mut said = Remembered::default();
        assert!((0..20).filter(|_| said.note(note(&"x".repeat(TEXT))).is_ok()).count() == BYTES / TEXT);
        assert!(said.note(note(&"x".repeat(TEXT + 1))).is_err());
        let mut said = Remembered::default();
        let link = |weight| Link { source: "a".into(), target: "b".into(), weight };
        assert_eq!((0..1000).filter(|_| said.link(link(1.0)).is_ok()).count(), LINKS);
        for weight in [1.1, -0.1, f64::NAN, f64::INFINITY] {
            assert!(Remembered::default().link(link(weight)).is_err(), "{weight}");
        }
        for id in ["story:US-001", "note:x", "", "a\nb", "commit:1"] {
            let note = Note { id: Some(id.to_owned()), ..note("x") };
            assert!(Remembered::default().note(note).is_err(), "{id}");
        }
        let about_file =
            Note { id: Some("file:a".into()), about: vec!["file:b".into(), "story:US-001".into()], ..note("x") };
        assert!(Remembered::default().note(about_file).is_ok());
    }

    #[test]
    fn of_rubbish_what_is_sound_is_taken() {
        for rubbish in [json!(null), json!(1), json!("x"), json!([1]), json!({"notes": 1, "links": {}})] {
            assert_eq!(serde_json::from_value::<Remembered>(rubbish).unwrap(), Remembered::default());
        }
        let mut notes: Vec<Value> = vec![json!(1), json!({"text": 5}), json!({"type": "t", "text": "", "at": ""})];
        notes.push(json!({"type": "t", "text": "good", "at": "now", "more": 1}));
        notes.push(json!({"type": "t", "text": "x", "at": "", "importance": 7}));
        let read: Remembered = serde_json::from_value(json!({
            "notes": notes, "links": [{"source": "a", "target": "b", "weight": 0.5}, {"source": "a"}, null],
        }))
        .unwrap();
        assert_eq!((read.notes.len(), read.links.len()), (1, 1));
        assert_eq!(read.notes[0].text, "good");
        let again: Remembered = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}
