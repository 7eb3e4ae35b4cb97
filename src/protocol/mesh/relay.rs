//! What an intermediary passes on (2.7): the forwarding table, and what an active one changes and says that it changed.
//!
//! Called by `process.rs` alone. A frame that is relayed is the frame as it came, less what the table takes out, and with what
//! modules and changes put in; all else stays as it is, in its order. Must not: forward a message that ended in a fault, or believe
//! a mark: they say what was done, and whoever had the frame may have written them.

use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::node::NodeKind;
use super::process::{self, ProcessingContext, RelayedFrame};
use super::role::Role;

/// The block by which active intermediaries say what they did (2.7.3, rule 1). It is for nobody, so it goes to the end of the path.
pub const APPLIED_BLOCK: &str = "applied";

/// One thing that an active intermediary does to what it relays.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameChange {
    /// The feature that asks for it, by its URI.
    pub feature: String,
    /// What is changed.
    pub action: ChangeAction,
}

/// What an active intermediary changes. Grams are immutable (6.0, rule 1): one can be added, none be changed.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeAction {
    /// Puts a block in, or another in its place.
    SetBlock(String, Map<String, Value>),
    /// Takes a block out.
    RemoveBlock(String),
    /// Sets a child of the Body.
    SetBodyChild(String, Value),
    /// Takes a child of the Body out.
    RemoveBodyChild(String),
    /// Adds a snapshot.
    AddGram(Map<String, Value>),
}

/// Table 3 (2.7.1), for a block at an intermediary. `targeted`: the node acts in the block's role.
pub fn is_forwarded(targeted: bool, processed: bool, reinserted: bool, relay: bool) -> bool {
    match (targeted, processed) {
        (true, true) => reinserted,
        (true, false) => relay,
        (false, _) => true,
    }
}

/// Makes the frame for the next node.
pub(super) fn build_relayed_frame(mut work: ProcessingContext<'_>) -> Result<RelayedFrame, Box<Fault>> {
    let node = work.node;
    for module in &node.modules {
        module.forward(&mut work)?;
    }
    let mut removed = Vec::new();
    for block in work.original.header.blocks() {
        let name = block.name;
        let targeted = work.targeted_blocks.contains(name) && !process::targets_none(node, &block);
        if !is_forwarded(
            targeted,
            work.processed_blocks.contains(name),
            work.reinserted_blocks.contains(name),
            block.is_relayable(),
        ) {
            work.frame.header.remove(name);
            removed.push(name.to_owned());
        }
    }
    forward_grams(&mut work);
    // 5.4.5, rule 4: a fault's detail is for the next node only.
    if let Some(Value::Object(fault)) = work.frame.body.get_mut("fault") {
        fault.shift_remove("detail");
    }
    let changed = node.kind() == NodeKind::ActiveIntermediary && apply_changes(&mut work)?;
    for module in &node.modules {
        module.finish(&mut work, changed)?;
    }
    Ok(RelayedFrame {
        frame: work.frame,
        next_hop: work.next_hop,
        processed_blocks: work.processed_blocks.into_iter().collect(),
        removed_blocks: removed,
        sender: work.sender,
        replay_entries: work.replay_entries,
        notes: work.notes,
    })
}

/// 1.4: grams follow the same rules. One that this node understands is put in again as it came, for the nodes after it.
fn forward_grams(work: &mut ProcessingContext<'_>) {
    let Some(grams) = work.frame.memory_grams.take() else { return };
    let goes_on = |gram: &Map<String, Value>| {
        let relay = process::gram_as_block(gram).is_relayable();
        let opens = process::can_read_gram(work, gram);
        is_forwarded(process::is_gram_targeted(work.node, gram), opens, true, relay)
    };
    work.frame.memory_grams = Some(grams.into_iter().filter(goes_on).collect());
}

/// Carries out the node's changes, and says so. Each is idempotent (2.7.3, rule 2): what is as it should be stays so and is not marked
/// again. What the frame says was done before is not asked: anybody on the way may have written that. Whether there were any.
fn apply_changes(work: &mut ProcessingContext<'_>) -> Result<bool, Box<Fault>> {
    let own = work.node.uri();
    let (mut features, mut places) = (Vec::new(), Vec::new());
    for change in &work.node.changes {
        let Some(place) = apply_change(&mut work.frame, &change.action)? else { continue };
        if !features.contains(&change.feature) {
            features.push(change.feature.clone());
        }
        places.push(place);
    }
    let mut marks = work.frame.header.block(APPLIED_BLOCK).map(|block| block.content().clone()).unwrap_or_default();
    let mut marks = match marks.shift_remove("by") {
        Some(Value::Array(marks)) => marks,
        _ => Vec::new(),
    };
    let changed = !places.is_empty();
    if !changed && marks.iter().any(|mark| mark.get("node").and_then(Value::as_str) == Some(own)) {
        return Ok(false);
    }
    marks.push(json!({"node": own, "features": features, "changed": places, "at": work.now.to_string()}));
    let mut block = Map::new();
    block.insert("role".to_owned(), json!(Role::None.token()));
    block.insert("relay".to_owned(), json!(true));
    block.insert("by".to_owned(), Value::Array(marks));
    work.frame.header.set_block(APPLIED_BLOCK, block)?;
    Ok(changed)
}

/// Does one thing, and says where as a JSON Pointer; nothing if the frame is so already.
fn apply_change(frame: &mut super::frame::Frame, what: &ChangeAction) -> Result<Option<String>, Box<Fault>> {
    let (above, key, changed) = match what {
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
    Ok(changed.then(|| format!("/frame/{above}/{}", super::limits::escape_pointer_token(key))))
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
