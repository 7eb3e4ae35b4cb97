//! Tests of `freshness.rs`.

use serde_json::json;

use super::super::super::node::Node;
use super::super::super::process::{ProcessOutcome, process};
use super::super::super::replay::ReplayMemory;
use std::sync::Arc;

use super::super::authentication::{Authentication, authenticate};
use super::super::keys::KeyRing;
use super::super::signature::{Signature, sign};
use super::*;
use crate::protocol::mesh::tests::support::{NOW, forwarding_intermediary, frame, secret_key, ultimate_receiver};

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
        assert_eq!(subcode(node.process_and_remember(sent("m-1"), NOW)).as_deref(), Some("SecurityViolation.Replay"));
        assert_eq!(subcode(node.process_and_remember(sent("m-2"), NOW)), None);
        // Processing is pure: it does not remember the message.
        let third = process(&node, sent("m-3"), NOW);
        assert_eq!(third, process(&node, sent("m-3"), NOW));
        // After the window the id is free again; a verified time is stale by then.
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
    let mut lax =
        ultimate_receiver().with_module(Freshness::within_window(SignedDuration::from_secs(300)).with_optional_id());
    assert_eq!(subcode(lax.process_and_remember(sent, NOW)), None);
    assert!(lax.replay_memory.len() == 0);
}

#[test]
fn section_7_3_an_unsigned_message_does_not_use_up_a_signed_message_s_id() {
    let key = secret_key(1, "agent://sender");
    let ring: Arc<KeyRing> = Arc::new([key.public_key()].into_iter().collect());
    let mut signed = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "t"}}));
    authenticate(&mut signed, &key, "n", NOW).expect("a valid block");
    let mut taken = signed.clone();
    taken.body.insert("task".to_owned(), json!("another"));
    sign(&mut signed, &key, NOW).expect("a valid block");
    let node =
        ultimate_receiver().with_module(Authentication::optional(ring.clone())).with_module(Signature::optional(ring));
    let mut node = with_freshness(node);
    // Unsigned, with the sender's credential, which is not secret.
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
