//! Writes the outcome of a swarm into the user's tasks file, in the file's own shape: `--write-back`.
//!
//! | shape | what is written |
//! |---|---|
//! | canonical | `status` |
//! | passes | `passes`; `skipped` if it is present or true |
//! | Ralph | `passes` |
//!
//! If a story has others of these three keys, they are changed too, so that all agree. An absent key is appended to the
//! story, if its absence means something else. Every other byte stays: BOM, line ends, indentation, order, numbers, unknown
//! fields.
//!
//! Used at the end of a swarm; the caller writes the bytes atomically. Must not: touch the file system.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::error::{TasksError, TasksProblem, TasksProblemKind};
use super::import;
use super::tasks_file::Shape;
use crate::ids::StoryId;
use crate::json::{JsonNode, JsonValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBackStatus {
    /// The story landed.
    Completed,
    /// The story ran and did not land. Shapes with `passes` alone cannot distinguish this from pending.
    Failed,
    /// A person decided to skip the story. A story that was skipped because a dependency failed is `Pending`: the next
    /// swarm would count a skipped one as done. The Ralph shape cannot distinguish this from pending.
    Skipped,
    Pending,
}

/// A replacement of bytes of the text.
struct Edit {
    span: Range<usize>,
    text: String,
}

/// Returns the file with the outcomes; stories without an outcome stay as they are. `original` is the whole tasks file, `path` is
/// for messages.
///
/// # Errors
/// As [`parse`](super::parse), and if an outcome is of a story that the file does not have.
pub fn apply_outcomes(
    original: &[u8],
    path: &Path,
    outcomes: &BTreeMap<StoryId, WriteBackStatus>,
) -> Result<Vec<u8>, TasksError> {
    let imported = import::import(original, path)?;
    let missing: Vec<TasksProblem> = outcomes
        .keys()
        .filter(|id| !imported.file.stories.iter().any(|story| story.id == **id))
        .map(|id| TasksProblem::for_file(TasksProblemKind::NoSuchStory { id: id.clone() }))
        .collect();
    if !missing.is_empty() {
        return Err(TasksError::new(path, missing));
    }
    let (bom, text) = original.split_at(imported.text_start);
    let items: &[JsonNode] = match imported.root.get_non_null("userStories").map(|node| &node.value) {
        Some(JsonValue::Array(items)) => items,
        _ => &[],
    };
    let mut written = Vec::with_capacity(original.len() + 64);
    written.extend_from_slice(bom);
    let mut copied = 0;
    for (story, node) in imported.file.stories.iter().zip(items) {
        let Some(outcome) = outcomes.get(&story.id) else { continue };
        for edit in edits(text, node, imported.file.shape, *outcome) {
            written.extend_from_slice(&text[copied..edit.span.start]);
            written.extend_from_slice(edit.text.as_bytes());
            copied = edit.span.end;
        }
    }
    written.extend_from_slice(&text[copied..]);
    Ok(written)
}

/// The edits of one story, in the order of the text.
fn edits(text: &[u8], story: &JsonNode, shape: Shape, outcome: WriteBackStatus) -> Vec<Edit> {
    let (status, passes, skipped) = match outcome {
        WriteBackStatus::Completed => ("\"completed\"", "true", "false"),
        WriteBackStatus::Failed => ("\"failed\"", "false", "false"),
        WriteBackStatus::Skipped => ("\"skipped\"", "false", "true"),
        WriteBackStatus::Pending => ("\"pending\"", "false", "false"),
    };
    // Key, whether the shape has it, value, whether absence means the same.
    let wanted = [
        ("status", shape == Shape::Canonical, status, outcome == WriteBackStatus::Pending),
        ("passes", shape != Shape::Canonical, passes, passes == "false"),
        ("skipped", shape == Shape::Passes, skipped, skipped == "false"),
    ];
    let mut edits = Vec::new();
    for (key, in_shape, value, same_as_absent) in wanted {
        match story.get(key) {
            Some(old) if text[old.span.clone()] == *value.as_bytes() => {}
            Some(old) if old.is_null() && same_as_absent => {}
            Some(old) => edits.push(Edit { span: old.span.clone(), text: value.to_owned() }),
            None if in_shape && !same_as_absent => edits.extend(insert_member(text, story, key, value)),
            None => {}
        }
    }
    edits.sort_by_key(|edit| edit.span.start);
    edits
}

/// Appends a member to an object, spaced like the member before it.
fn insert_member(text: &[u8], object: &JsonNode, key: &str, value: &str) -> Option<Edit> {
    let last = object.members()?.last()?;
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let before = text[..last.key_span.start].iter().rev().take_while(|byte| is_space(byte)).count();
    let space = String::from_utf8_lossy(&text[last.key_span.start - before..last.key_span.start]);
    let colon = String::from_utf8_lossy(&text[last.key_span.end..last.node.span.start]);
    let end = last.node.span.end;
    Some(Edit { span: end..end, text: format!(",{space}\"{key}\"{colon}{value}") })
}
