//! A message is taken once (7.3, rule 1: replay attacks).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:replay-protection`: the same message of the same sender is not taken a second time within a window |
//! | node state | the node's [`Memory`](crate::protocol::mesh::replay::Memory), which its caller keeps; the window |
//! | block | none of its own: it reads `Header.messageId` and what `authentication` and `signature` made sure of, their nonce and time |
//! | processing | a message whose id or nonce the node has seen of that sender ends; one whose time is before the window, or more than a minute ahead, too; else its ids are in the outcome, to be remembered |
//! | fault | `Receiver`, subcode `SecurityViolation.Replay`, `.Stale` or `.NoId`; `ReplayMemoryFull` when no more can be remembered |
//! | Body | not looked at; not processed if the message is not new |
//! | other modules | acts after `authentication` and `signature`, so that nobody can use up the ids of another: what nobody signed is remembered apart from what somebody did, and a signed message must have an id; without them the sender is nobody, and anybody can |
//!
//! Must not: remember; that is the caller's, once it took the outcome.

use jiff::{SignedDuration, Timestamp};

use super::super::fault::Fault;
use super::super::process::Work;
use super::super::replay::Seen;
use super::super::rules;
use super::{About, Module, Stage};

/// The module.
#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    window: SignedDuration,
    needs_id: bool,
}

const ABOUT: About = About {
    uri: "urn:longshore:mesh:module:freshness:1",
    features: &["urn:longshore:mesh:feature:replay-protection"],
    blocks: &[],
    stage: Stage::Freshness,
};

/// How far a sender's clock may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_secs(60);

impl Freshness {
    /// One that remembers for so long, and refuses a message without any id.
    pub fn within(window: SignedDuration) -> Self {
        Self { window, needs_id: true }
    }

    /// The same letting messages pass that have no id.
    pub fn or_without_id(mut self) -> Self {
        self.needs_id = false;
        self
    }
}

fn plus(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Module for Freshness {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let sent = work.stamp.unwrap_or(work.now);
        if plus(sent, self.window) <= work.now {
            return Err(Fault::security("Stale", format!("the message is of {sent}, too long ago")));
        }
        if sent > plus(work.now, AHEAD) {
            return Err(Fault::security("Stale", format!("the message is of {sent}, which is still to come")));
        }
        let message = work.original.header.message_id().map(|id| format!("message {id}"));
        let ids: Vec<String> =
            message.into_iter().chain(work.nonces.iter().map(|nonce| format!("nonce {nonce}"))).collect();
        if ids.is_empty() && (self.needs_id || work.intact) {
            return Err(Fault::security("NoId", "the message has neither a `messageId` nor a nonce"));
        }
        // Of a message that nobody signed the sender is not known for sure: a credential may be taken from another.
        let sender =
            work.sender.as_ref().map(|sender| if work.intact { sender.clone() } else { format!("unsigned {sender}") });
        let sender = sender.unwrap_or_default();
        let memory = &work.node.memory;
        if let Some(id) = ids.iter().find(|id| memory.has(&sender, id, work.now)) {
            return Err(Fault::security("Replay", format!("the {id} was here before")));
        }
        if memory.is_full(work.now) {
            return Err(Fault::receiver(rules::REPLAY_MEMORY_FULL, "too many messages came within the window"));
        }
        // A time ahead makes it fresh for longer.
        let until = plus(sent.max(work.now), self.window);
        work.seen.extend(ids.into_iter().map(|id| Seen { until, sender: sender.clone(), id }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::node::Node;
    use super::super::super::process::{Outcome, process};
    use super::super::super::replay::Memory;
    use std::sync::Arc;

    use super::super::authentication::{Authentication, authenticate};
    use super::super::keys::KeyRing;
    use super::super::keys::testing::secret;
    use super::super::signature::{Signature, sign};
    use super::super::testing::{NOW, forwarding, frame, ultimate};
    use super::*;

    fn fresh(node: Node) -> Node {
        node.with(Freshness::within(SignedDuration::from_secs(300)))
    }

    fn subcode(outcome: Outcome) -> Option<String> {
        match outcome {
            Outcome::Fault(fault) => fault.subcode,
            _ => None,
        }
    }

    #[test]
    fn section_7_3_a_message_that_comes_again_is_refused() {
        let sent = |id: &str| frame(json!({"Header": {"messageId": id}, "Body": {}}));
        for node in [fresh(ultimate()), fresh(forwarding())] {
            let mut node = node;
            assert_eq!(subcode(node.take(sent("m-1"), NOW)), None);
            assert_eq!(subcode(node.take(sent("m-1"), NOW)).as_deref(), Some("SecurityViolation.Replay"));
            assert_eq!(subcode(node.take(sent("m-2"), NOW)), None);
            // Processing alone remembers nothing: it is pure.
            let third = process(&node, sent("m-3"), NOW);
            assert_eq!(third, process(&node, sent("m-3"), NOW));
            // After the window the id is free: by then a time that is made sure of is too old.
            let later = NOW.checked_add(SignedDuration::from_secs(300)).expect("a time");
            assert_eq!(subcode(node.take(sent("m-1"), later)), None);
            assert_eq!(node.memory.len(), 1);
        }
    }

    #[test]
    fn section_7_3_a_message_without_an_id_cannot_be_told_from_its_replay() {
        let sent = frame(json!({"Body": {}}));
        assert_eq!(subcode(fresh(ultimate()).take(sent.clone(), NOW)).as_deref(), Some("SecurityViolation.NoId"));
        let mut lax = ultimate().with(Freshness::within(SignedDuration::from_secs(300)).or_without_id());
        assert_eq!(subcode(lax.take(sent, NOW)), None);
        assert!(lax.memory.is_empty());
    }

    #[test]
    fn section_7_3_nobody_uses_up_an_id_of_another() {
        let key = secret(1, "agent://sender");
        let ring: Arc<KeyRing> = Arc::new([key.public()].into_iter().collect());
        let mut signed = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "t"}}));
        authenticate(&mut signed, &key, "n", NOW).expect("a good block");
        let mut taken = signed.clone();
        taken.body.insert("task".to_owned(), json!("another"));
        sign(&mut signed, &key, NOW).expect("a good block");
        let node = ultimate().with(Authentication::checking(ring.clone())).with(Signature::checking(ring));
        let mut node = fresh(node);
        // With the sender's credential, which is no secret, and without a signature.
        assert_eq!(subcode(node.take(taken.clone(), NOW)), None);
        assert_eq!(subcode(node.take(signed.clone(), NOW)), None);
        for again in [taken, signed] {
            assert_eq!(subcode(node.take(again, NOW)).as_deref(), Some("SecurityViolation.Replay"));
        }
    }

    #[test]
    fn section_7_3_a_full_memory_refuses_what_is_new() {
        let mut node = fresh(ultimate());
        node.memory = Memory::with_room_for(1);
        let sent = |id: &str| frame(json!({"Header": {"messageId": id}, "Body": {}}));
        assert_eq!(subcode(node.take(sent("m-1"), NOW)), None);
        assert_eq!(subcode(node.take(sent("m-2"), NOW)).as_deref(), Some(rules::REPLAY_MEMORY_FULL));
    }
}
