//! What an intermediary forwards (2.7): the forwarding table, and the frame for the next node.
//!
//! A relayed frame is the received frame without the blocks that the table removes, and with what modules and changes add; everything
//! else keeps its content and order. Called by `process.rs` alone.

use serde_json::{Map, Value};

use super::block::{HeaderBlock, is_gram_encrypted};
use super::change;
use super::fault::Fault;
use super::frame::Frame;
use super::node::{Node, NodeKind, ProcessingContext, ProcessingRecord};
use super::role::Role;

/// A frame for the next node.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedFrame {
    pub frame: Frame,
    /// URI of the next node, if a module chose it.
    pub next_hop: Option<String>,
    pub processed_blocks: Vec<String>,
    /// Blocks that are not forwarded.
    pub removed_blocks: Vec<String>,
    pub record: ProcessingRecord,
}

/// Table 3 (2.7.1) for a block at an intermediary. `targeted`: the node acts in the block's role.
pub fn is_forwarded(targeted: bool, processed: bool, reinserted: bool, relay: bool) -> bool {
    match (targeted, processed) {
        (true, true) => reinserted,
        (true, false) => relay,
        (false, _) => true,
    }
}

/// Builds the frame for the next node.
pub(super) fn build_relayed_frame(mut context: ProcessingContext<'_>) -> Result<RelayedFrame, Box<Fault>> {
    let node = context.node;
    for module in &node.modules {
        module.forward(&mut context)?;
    }
    let mut removed_blocks = Vec::new();
    for block in context.original.header.blocks() {
        let name = block.name;
        let targeted = context.targeted_blocks.contains(name) && block.role(&node.role_registry) != Role::None;
        let processed = context.processed_blocks.contains(name);
        if !is_forwarded(targeted, processed, context.reinserted_blocks.contains(name), block.is_relayable()) {
            context.frame.header.remove(name);
            removed_blocks.push(name.to_owned());
        }
    }
    forward_grams(&mut context);
    context.frame.remove_fault_detail();
    let is_active = node.kind() == NodeKind::ActiveIntermediary;
    let changed = is_active && change::apply_changes(&mut context.frame, &node.changes, node.uri(), context.now)?;
    for module in &node.modules {
        module.finish(&mut context, changed)?;
    }
    Ok(RelayedFrame {
        frame: context.frame,
        next_hop: context.next_hop,
        processed_blocks: context.processed_blocks.into_iter().collect(),
        removed_blocks,
        record: context.record,
    })
}

/// 1.4: grams follow the same rules. A node reinserts unchanged every gram that it understands.
fn forward_grams(context: &mut ProcessingContext<'_>) {
    let node = context.node;
    if let Some(grams) = &mut context.frame.memory_grams {
        grams.retain(|gram| {
            let relay = HeaderBlock::from_gram(gram).is_relayable();
            is_forwarded(is_gram_targeted(node, gram), can_read_gram(node, gram), true, relay)
        });
    }
}

/// Whether a gram names a role that the node acts in. A gram without a role is for every node.
pub(super) fn is_gram_targeted(node: &Node, gram: &Map<String, Value>) -> bool {
    let block = HeaderBlock::from_gram(gram);
    block.properties.contains_key("role") && node.acts_in_role(&block.role(&node.role_registry))
}

/// Whether a gram is in clear text, or a module of the node decrypts it.
pub(super) fn can_read_gram(node: &Node, gram: &Map<String, Value>) -> bool {
    !is_gram_encrypted(gram) || node.modules.iter().any(|module| module.can_decrypt(gram))
}

#[cfg(test)]
#[path = "tests/relay.rs"]
mod tests;
