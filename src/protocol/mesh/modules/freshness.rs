//! A message is taken once (7.3, rule 1: replay attacks).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:replay-protection`: the same message of the same sender is not taken a second time within a window |
//! | node state | the node's [`ReplayMemory`](crate::protocol::mesh::replay::ReplayMemory), which its caller keeps; the window |
//! | block | none of its own: it reads `Header.messageId` and what `authentication` and `signature` made sure of, their nonce and time |
//! | processing | a message whose id or nonce the node has seen of that sender ends; one whose time is before the window, or more than a minute ahead, too; else its ids are in the outcome, to be remembered |
//! | fault | `Receiver`, subcode `SecurityViolation.Replay`, `.Stale` or `.NoId`; `ReplayMemoryFull` when no more can be remembered |
//! | Body | not looked at; not processed if the message is not new |
//! | other modules | acts after `authentication` and `signature`, so that nobody can use up the ids of another: what nobody signed is remembered apart from what somebody did, and a signed message must have an id; without them the sender is nobody, and anybody can |
//!
//! Must not: remember; that is the caller's, once it took the outcome.

use jiff::{SignedDuration, Timestamp};

use super::super::fault::Fault;
use super::super::process::ProcessingContext;
use super::super::replay::ReplayEntry;
use super::super::rules;
use super::{Module, ModuleDescriptor, ModuleStage};

/// The module.
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

/// How far a sender's clock may be ahead.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

impl Freshness {
    /// One that remembers for so long, and refuses a message without any id.
    pub fn within_window(window: SignedDuration) -> Self {
        Self { window, requires_id: true }
    }

    /// The same letting messages pass that have no id.
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

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let sent = work.sent_at.unwrap_or(work.now);
        if saturating_add(sent, self.window) <= work.now {
            return Err(Fault::security_violation("Stale", format!("the message is of {sent}, too long ago")));
        }
        if sent > saturating_add(work.now, MAX_CLOCK_SKEW) {
            return Err(Fault::security_violation(
                "Stale",
                format!("the message is of {sent}, which is still to come"),
            ));
        }
        let message = work.original.header.message_id().map(|id| format!("message {id}"));
        let ids: Vec<String> =
            message.into_iter().chain(work.nonces.iter().map(|nonce| format!("nonce {nonce}"))).collect();
        if ids.is_empty() && (self.requires_id || work.is_intact) {
            return Err(Fault::security_violation("NoId", "the message has neither a `messageId` nor a nonce"));
        }
        // Of a message that nobody signed the sender is not known for sure: a credential may be taken from another.
        let sender = work
            .sender
            .as_ref()
            .map(|sender| if work.is_intact { sender.clone() } else { format!("unsigned {sender}") });
        let sender = sender.unwrap_or_default();
        let memory = &work.node.replay_memory;
        if let Some(id) = ids.iter().find(|id| memory.contains(&sender, id, work.now)) {
            return Err(Fault::security_violation("Replay", format!("the {id} was here before")));
        }
        if memory.is_full(work.now) {
            return Err(Fault::receiver(rules::REPLAY_MEMORY_FULL, "too many messages came within the window"));
        }
        // A time ahead makes it fresh for longer.
        let until = saturating_add(sent.max(work.now), self.window);
        work.replay_entries.extend(ids.into_iter().map(|id| ReplayEntry {
            expires_at: until,
            sender: sender.clone(),
            id,
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::node::Node;
    use super::super::super::process::{ProcessOutcome, process};
    use super::super::super::replay::ReplayMemory;
    use std::sync::Arc;

    use super::super::authentication::{Authentication, authenticate};
    use super::super::keys::KeyRing;
    use super::super::keys::test_keys::secret_key;
    use super::super::signature::{Signature, sign};
    use super::super::test_support::{NOW, forwarding_intermediary, frame, ultimate_receiver};
    use super::*;

    fn with_freshness(node: Node) -> Node {
        node.with_module(Freshness::within_window(SignedDuration::from_secs(300)))
    }

    fn subcode(outcome: ProcessOutcome) -> Option<String> {
        match outcome {
            ProcessOutcome::Fault(fault) => fault.subcode,
            _ => None,
        }
    }

    #[test]
    fn section_7_3_a_replayed_message_is_refused() {
        let sent = |id: &str| frame(json!({"Header": {"messageId": id}, "Body": {}}));
        for node in [with_freshness(ultimate_receiver()), with_freshness(forwarding_intermediary())] {
            let mut node = node;
            assert_eq!(subcode(node.process_and_remember(sent("m-1"), NOW)), None);
            assert_eq!(
                subcode(node.process_and_remember(sent("m-1"), NOW)).as_deref(),
                Some("SecurityViolation.Replay")
            );
            assert_eq!(subcode(node.process_and_remember(sent("m-2"), NOW)), None);
            // Processing alone remembers nothing: it is pure.
            let third = process(&node, sent("m-3"), NOW);
            assert_eq!(third, process(&node, sent("m-3"), NOW));
            // After the window the id is free: by then a time that is made sure of is too old.
            let later = NOW.checked_add(SignedDuration::from_secs(300)).expect("a time");
            assert_eq!(subcode(node.process_and_remember(sent("m-1"), later)), None);
            assert_eq!(node.replay_memory.len(), 1);
        }
    }

    #[test]
    fn section_7_3_a_message_without_an_id_is_refused_unless_allowed() {
        let sent = frame(json!({"Body": {}}));
        assert_eq!(
            subcode(with_freshness(ultimate_receiver()).process_and_remember(sent.clone(), NOW)).as_deref(),
            Some("SecurityViolation.NoId")
        );
        let mut lax = ultimate_receiver()
            .with_module(Freshness::within_window(SignedDuration::from_secs(300)).with_optional_id());
        assert_eq!(subcode(lax.process_and_remember(sent, NOW)), None);
        assert!(lax.replay_memory.is_empty());
    }

    #[test]
    fn section_7_3_an_unsigned_message_does_not_use_up_a_signed_message_s_id() {
        let key = secret_key(1, "agent://sender");
        let ring: Arc<KeyRing> = Arc::new([key.public_key()].into_iter().collect());
        let mut signed = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "t"}}));
        authenticate(&mut signed, &key, "n", NOW).expect("a good block");
        let mut taken = signed.clone();
        taken.body.insert("task".to_owned(), json!("another"));
        sign(&mut signed, &key, NOW).expect("a good block");
        let node = ultimate_receiver()
            .with_module(Authentication::optional(ring.clone()))
            .with_module(Signature::optional(ring));
        let mut node = with_freshness(node);
        // With the sender's credential, which is no secret, and without a signature.
        assert_eq!(subcode(node.process_and_remember(taken.clone(), NOW)), None);
        assert_eq!(subcode(node.process_and_remember(signed.clone(), NOW)), None);
        for again in [taken, signed] {
            assert_eq!(subcode(node.process_and_remember(again, NOW)).as_deref(), Some("SecurityViolation.Replay"));
        }
    }

    #[test]
    fn section_7_3_a_full_replay_memory_refuses_new_messages() {
        let mut node = with_freshness(ultimate_receiver());
        node.replay_memory = ReplayMemory::with_capacity(1);
        let sent = |id: &str| frame(json!({"Header": {"messageId": id}, "Body": {}}));
        assert_eq!(subcode(node.process_and_remember(sent("m-1"), NOW)), None);
        assert_eq!(subcode(node.process_and_remember(sent("m-2"), NOW)).as_deref(), Some(rules::REPLAY_MEMORY_FULL));
    }
}
