//! Tests of `authentication.rs`.

use jiff::SignedDuration;

use super::super::super::node::Node;
use super::super::super::process::ProcessOutcome;
use super::super::super::rules;
use super::super::freshness::Freshness;
use super::*;
use crate::protocol::mesh::tests::support::{
    NOW, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, secret_key, ultimate_receiver,
};

fn keys() -> Arc<KeyRing> {
    Arc::new(
        [secret_key(1, "agent://sender").public_key(), secret_key(2, "agent://middle").public_key()]
            .into_iter()
            .collect(),
    )
}

fn signed_frame(id: &str, nonce: &str) -> Frame {
    let mut frame = frame(json!({"Header": {"messageId": id}, "Body": {"task": "t"}}));
    authenticate(&mut frame, &secret_key(1, "agent://sender"), nonce, NOW).expect("a valid block");
    frame
}

fn last() -> Node {
    ultimate_receiver().with_module(Authentication::required(keys()))
}

#[test]
fn section_7_0_the_sender_and_presenting_intermediaries_are_authenticated() {
    assert_eq!(expect_processed(last(), signed_frame("m", "n")).record.sender.as_deref(), Some("agent://sender"));
    let middle = forwarding_intermediary()
        .with_module(Authentication::required(keys()).with_credential_key(Arc::new(secret_key(2, "agent://middle"))));
    let passed = expect_relayed(middle, signed_frame("m", "n")).frame;
    let block = passed.header.block("authentication").expect("present").content().clone();
    assert_eq!(block["credentials"].as_array().map(Vec::len), Some(2));
    assert_eq!(expect_processed(last(), passed).record.sender.as_deref(), Some("agent://sender"));
}

#[test]
fn section_7_0_an_invalid_credential_is_refused() {
    let good = signed_frame("m", "n").to_json();
    let changes = [
        ("/frame/Header/messageId", json!("other")),
        ("/frame/Header/authentication/credentials/0/agent", json!("agent://middle")),
        ("/frame/Header/authentication/credentials/0/keyId", json!("key-2")),
        ("/frame/Header/authentication/credentials/0/nonce", json!("other")),
        ("/frame/Header/authentication/credentials/0/created", json!("1970-01-01T00:00:01Z")),
        ("/frame/Header/authentication/credentials/0/value", json!("AAAA")),
        ("/frame/Header/authentication/credentials", json!([])),
    ];
    for (pointer, value) in changes {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        let refused = expect_fault(last(), frame(bad["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Authentication"), "{pointer}");
        assert!(refused.escalate_to_human);
    }
    let unauthenticated = frame(json!({"Body": {}}));
    assert_eq!(
        expect_fault(last(), unauthenticated.clone()).subcode.as_deref(),
        Some("SecurityViolation.Authentication")
    );
    assert_eq!(
        expect_processed(ultimate_receiver().with_module(Authentication::optional(keys())), unauthenticated)
            .record
            .sender,
        None
    );
}

#[test]
fn section_7_2_reordered_credentials_are_refused() {
    let middle = forwarding_intermediary()
        .with_module(Authentication::required(keys()).with_credential_key(Arc::new(secret_key(2, "agent://middle"))));
    let passed = expect_relayed(middle, signed_frame("m", "n")).frame.to_json();
    let mut turned = passed.clone();
    let list = turned.pointer_mut("/frame/Header/authentication/credentials").and_then(Value::as_array_mut);
    list.expect("a list").reverse();
    let refused = expect_fault(last(), frame(turned["frame"].clone()));
    assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Authentication"));
}

#[test]
fn section_7_3_a_replayed_frame_is_refused_by_message_id_and_by_nonce() {
    let mut node = last().with_module(Freshness::within_window(SignedDuration::from_secs(300)));
    let subcode = |outcome: ProcessOutcome| match outcome {
        ProcessOutcome::Fault(fault) => fault.subcode.unwrap_or_default(),
        _ => "taken".to_owned(),
    };
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), NOW)), "taken");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), NOW)), "SecurityViolation.Replay");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-2"), NOW)), "SecurityViolation.Replay");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-2", "n-1"), NOW)), "SecurityViolation.Replay");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-2", "n-2"), NOW)), "taken");
    let later = NOW.checked_add(SignedDuration::from_secs(300)).expect("a time");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), later)), "SecurityViolation.Stale");
    let before = NOW.checked_sub(SignedDuration::from_secs(61)).expect("a time");
    assert_eq!(subcode(node.process_and_remember(signed_frame("m-3", "n-3"), before)), "SecurityViolation.Stale");
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for block in [
        json!({}),
        json!({"credentials": {}}),
        json!({"credentials": [{"agent": "agent://a"}]}),
        json!({"credentials": [1]}),
    ] {
        let refused = expect_fault(last(), frame(json!({"Header": {"authentication": block}, "Body": {}})));
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
    }
}
