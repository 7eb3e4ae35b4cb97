//! Changes that an active intermediary makes to the frames it relays, and the `applied` block that records them (2.7.3).
//!
//! Each change is idempotent (rule 2). Must not: trust a record that is already in the frame; anyone on the path may have written it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::frame::Frame;
use super::role::Role;
use super::syntax::escape_pointer_token;

/// Block that records changes (2.7.3, rule 1). Its role is `none`, so it reaches the end of the path.
pub const APPLIED_BLOCK: &str = "applied";

#[derive(Debug, Clone, PartialEq)]
pub struct FrameChange {
    /// URI of the feature that asks for the change.
    pub feature: String,
    pub action: ChangeAction,
}

/// Grams can be added but not changed: they are immutable (6.0, rule 1).
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeAction {
    SetBlock(String, Map<String, Value>),
    RemoveBlock(String),
    SetBodyChild(String, Value),
    RemoveBodyChild(String),
    AddGram(Map<String, Value>),
}

/// Applies changes and records them under the node's URI. Returns whether anything changed; if not, and the node is already on
/// record, no record is added.
pub(super) fn apply_changes(
    frame: &mut Frame,
    changes: &[FrameChange],
    uri: &str,
    now: Timestamp,
) -> Result<bool, Box<Fault>> {
    let (mut features, mut pointers) = (Vec::new(), Vec::new());
    for change in changes {
        let Some(pointer) = apply_change(frame, &change.action)? else { continue };
        if !features.contains(&change.feature) {
            features.push(change.feature.clone());
        }
        pointers.push(pointer);
    }
    let mut content = frame.header.block(APPLIED_BLOCK).map(|block| block.content().clone()).unwrap_or_default();
    let mut records = match content.shift_remove("by") {
        Some(Value::Array(records)) => records,
        _ => Vec::new(),
    };
    let changed = !pointers.is_empty();
    if !changed && records.iter().any(|record| record.get("node").and_then(Value::as_str) == Some(uri)) {
        return Ok(false);
    }
    records.push(json!({"node": uri, "features": features, "changed": pointers, "at": now.to_string()}));
    let block = json!({"role": Role::None.token(), "relay": true, "by": records});
    frame.header.set(APPLIED_BLOCK, block)?;
    Ok(changed)
}

/// Applies one change. Returns its JSON Pointer, or `None` if the frame already is that way.
fn apply_change(frame: &mut Frame, action: &ChangeAction) -> Result<Option<String>, Box<Fault>> {
    let (parent, key, changed) = match action {
        ChangeAction::SetBlock(name, properties) => {
            let before = frame.header.clone();
            frame.header.set_block(name, properties.clone())?;
            ("Header", name, frame.header != before)
        }
        ChangeAction::RemoveBlock(name) => ("Header", name, frame.header.remove(name).is_some()),
        ChangeAction::SetBodyChild(key, value) => {
            ("Body", key, frame.body.insert(key.clone(), value.clone()).as_ref() != Some(value))
        }
        ChangeAction::RemoveBodyChild(key) => ("Body", key, frame.body.shift_remove(key).is_some()),
        ChangeAction::AddGram(gram) => {
            let grams = frame.memory_grams.get_or_insert_default();
            if grams.contains(gram) {
                return Ok(None);
            }
            grams.push(gram.clone());
            return Ok(Some(format!("/frame/MemoryGrams/{}", grams.len() - 1)));
        }
    };
    Ok(changed.then(|| format!("/frame/{parent}/{}", escape_pointer_token(key))))
}
