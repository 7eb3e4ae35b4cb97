//! What an intermediary passes on (2.7): the forwarding table, and what an active one changes and says that it changed.
//!
//! Called by `process.rs` alone. A frame that is relayed is the frame as it came, less what the table takes out, and with what
//! modules and changes put in; all else stays as it is, in its order. Must not: forward a message that ended in a fault.

use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::node::Place;
use super::process::{self, Relayed, Work};
use super::role::Role;

/// The block by which active intermediaries say what they did (2.7.3, rule 1). It is for nobody, so it goes to the end of the path.
pub const APPLIED: &str = "applied";

/// One thing that an active intermediary does to what it relays.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The feature that asks for it, by its URI.
    pub feature: String,
    /// What is changed.
    pub what: What,
}

/// What an active intermediary changes. Grams are immutable (6.0, rule 1): one can be added, none be changed.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Puts a block in, or another in its place.
    SetBlock(String, Map<String, Value>),
    /// Takes a block out.
    RemoveBlock(String),
    /// Sets a child of the Body.
    SetBody(String, Value),
    /// Takes a child of the Body out.
    RemoveBody(String),
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
pub(super) fn relay(mut work: Work<'_>) -> Result<Relayed, Box<Fault>> {
    let node = work.node;
    for module in &node.modules {
        module.forward(&mut work)?;
    }
    let mut removed = Vec::new();
    for block in work.original.header.blocks() {
        let name = block.name;
        let targeted = work.targeted.contains(name) && !process::is_for_nobody(node, &block);
        if !is_forwarded(targeted, work.processed.contains(name), work.kept.contains(name), block.relay()) {
            work.frame.header.remove(name);
            removed.push(name.to_owned());
        }
    }
    forward_grams(&mut work);
    // 5.4.5, rule 4: a fault's detail is for the next node only.
    if let Some(Value::Object(fault)) = work.frame.body.get_mut("fault") {
        fault.shift_remove("detail");
    }
    let changed = node.place() == Place::Active && apply(&mut work)?;
    for module in &node.modules {
        module.finish(&mut work, changed)?;
    }
    Ok(Relayed {
        frame: work.frame,
        next: work.next,
        processed: work.processed.into_iter().collect(),
        removed,
        sender: work.sender,
        seen: work.seen,
        notes: work.notes,
    })
}

/// 1.4: grams follow the same rules. One that this node understands is put in again as it came, for the nodes after it.
fn forward_grams(work: &mut Work<'_>) {
    let Some(grams) = work.frame.memory_grams.take() else { return };
    let goes_on = |gram: &Map<String, Value>| {
        let relay = process::as_block(gram).relay();
        let opens = process::opens(work, gram);
        is_forwarded(process::gram_is_targeted(work.node, gram), opens, true, relay)
    };
    work.frame.memory_grams = Some(grams.into_iter().filter(goes_on).collect());
}

/// Carries out the node's changes, but those of features that the frame says it applied before (2.7.3, rule 2), and says so.
/// Whether there were any.
fn apply(work: &mut Work<'_>) -> Result<bool, Box<Fault>> {
    let own = work.node.uri();
    let before = work.frame.header.block(APPLIED).map(|block| block.content().clone()).unwrap_or_default();
    let mut marks = before.get("by").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_own = |mark: &Value| mark.get("node").and_then(Value::as_str) == Some(own);
    let done: Vec<String> = marks
        .iter()
        .filter(|mark| is_own(mark))
        .flat_map(|mark| mark.get("features").and_then(Value::as_array).into_iter().flatten())
        .filter_map(|feature| feature.as_str().map(str::to_owned))
        .collect();
    let (mut features, mut places) = (Vec::new(), Vec::new());
    for change in work.node.changes.iter().filter(|change| !done.contains(&change.feature)) {
        let place = carry_out(&mut work.frame, &change.what)?;
        if !features.contains(&change.feature) {
            features.push(change.feature.clone());
        }
        places.push(place);
    }
    if features.is_empty() && marks.iter().any(is_own) {
        return Ok(false);
    }
    let changed = !places.is_empty();
    marks.push(json!({"node": own, "features": features, "changed": places, "at": work.now.to_string()}));
    let mut block = Map::new();
    block.insert("role".to_owned(), json!(Role::None.token()));
    block.insert("relay".to_owned(), json!(true));
    block.insert("by".to_owned(), Value::Array(marks));
    work.frame.header.set_block(APPLIED, block)?;
    Ok(changed)
}

/// Does one thing, and says where as a JSON Pointer.
fn carry_out(frame: &mut super::frame::Frame, what: &What) -> Result<String, Box<Fault>> {
    let header = |name: &str| format!("/frame/Header/{}", super::limits::escaped(name));
    let body = |key: &str| format!("/frame/Body/{}", super::limits::escaped(key));
    Ok(match what {
        What::SetBlock(name, properties) => {
            frame.header.set_block(name, properties.clone())?;
            header(name)
        }
        What::RemoveBlock(name) => {
            frame.header.remove(name);
            header(name)
        }
        What::SetBody(key, value) => {
            frame.body.insert(key.clone(), value.clone());
            body(key)
        }
        What::RemoveBody(key) => {
            frame.body.shift_remove(key);
            body(key)
        }
        What::AddGram(gram) => {
            let grams = frame.memory_grams.get_or_insert_default();
            grams.push(gram.clone());
            format!("/frame/MemoryGrams/{}", grams.len() - 1)
        }
    })
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
