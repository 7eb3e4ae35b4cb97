//! Limits of notes, and lenient deserialization.

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
    let mut notes = AgentNotes::default();
    let taken = (0..100_000).filter(|n| notes.add_note(note(&format!("note {n}"))).is_ok()).count();
    assert_eq!((taken, notes.notes.len()), (MAX_NOTES, MAX_NOTES));
    let mut notes = AgentNotes::default();
    assert!(
        (0..20).filter(|_| notes.add_note(note(&"x".repeat(MAX_TEXT_CHARS))).is_ok()).count()
            == MAX_TOTAL_BYTES / MAX_TEXT_CHARS
    );
    assert!(notes.add_note(note(&"x".repeat(MAX_TEXT_CHARS + 1))).is_err());
    let mut notes = AgentNotes::default();
    let link = |weight| NoteLink { source: "a".into(), target: "b".into(), weight };
    assert_eq!((0..1000).filter(|_| notes.add_link(link(1.0)).is_ok()).count(), MAX_LINKS);
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
