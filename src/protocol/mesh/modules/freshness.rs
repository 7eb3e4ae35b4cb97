//! Replay protection (7.3, rule 1).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:replay-protection`: a message is accepted once within a window |
//! | node state | the window; the node's [`ReplayMemory`](crate::protocol::mesh::replay::ReplayMemory), which the caller updates |
//! | block | none of its own: reads `Header.messageId`, and the nonces and times verified by `authentication` and `signature` |
//! | processing | refuses a message whose id or nonce is remembered for its sender, or whose time is before the window or more than a minute ahead; otherwise adds its ids to the outcome |
//! | fault | `Receiver`, subcode `SecurityViolation.Replay`, `.Stale` or `.NoId`; `ReplayMemoryFull` if no more ids can be remembered |
//! | Body | not read; not processed if the message is not fresh |
//! | other modules | acts after `authentication` and `signature`, so that nobody uses up the ids of another: unsigned messages are remembered apart from signed ones, and a signed message must have an id. Without those modules all messages share one sender |

use jiff::{SignedDuration, Timestamp};

use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::super::replay::ReplayEntry;
use super::super::rules;

#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    window: SignedDuration,
    requires_id: bool,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:freshness:1",
    features: &["urn:longshore:mesh:feature:replay-protection"],
    blocks: &[],
    stage: ModuleStage::Freshness,
};

const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

impl Freshness {
    /// Remembers messages for this long, and refuses messages without an id.
    pub fn within_window(window: SignedDuration) -> Self {
        Self { window, requires_id: true }
    }

    /// Accepts unsigned messages without an id.
    pub fn with_optional_id(mut self) -> Self {
        self.requires_id = false;
        self
    }
}

fn saturating_add(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Module for Freshness {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let sent = context.sent_at.unwrap_or(context.now);
        if saturating_add(sent, self.window) <= context.now {
            return Err(Fault::security_violation("Stale", format!("the message is too old: sent at {sent}")));
        }
        if sent > saturating_add(context.now, MAX_CLOCK_SKEW) {
            return Err(Fault::security_violation("Stale", format!("the message is from the future: sent at {sent}")));
        }
        let message = context.original.header.message_id().map(|id| format!("message {id}"));
        let ids: Vec<String> =
            message.into_iter().chain(context.nonces.iter().map(|nonce| format!("nonce {nonce}"))).collect();
        if ids.is_empty() && (self.requires_id || context.is_intact) {
            return Err(Fault::security_violation("NoId", "the message has neither a `messageId` nor a nonce"));
        }
        // The sender of an unsigned message is unproven: its credential may be copied from another message.
        let sender = match &context.record.sender {
            Some(sender) if context.is_intact => sender.clone(),
            Some(sender) => format!("unsigned {sender}"),
            None => String::new(),
        };
        let memory = &context.node.replay_memory;
        if let Some(id) = ids.iter().find(|id| memory.contains(&sender, id, context.now)) {
            return Err(Fault::security_violation("Replay", format!("the {id} was seen before")));
        }
        if memory.is_full(context.now) {
            return Err(Fault::receiver(rules::REPLAY_MEMORY_FULL, "too many messages within the window"));
        }
        // A message from the future stays fresh for longer.
        let until = saturating_add(sent.max(context.now), self.window);
        context.record.replay_entries.extend(ids.into_iter().map(|id| ReplayEntry {
            expires_at: until,
            sender: sender.clone(),
            id,
        }));
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/freshness.rs"]
mod tests;
