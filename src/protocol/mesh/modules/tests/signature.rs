//! Tests of `signature.rs`.

use super::super::super::change::{ChangeAction, FrameChange};
use super::super::super::node::Node;
use super::super::super::rules;
use super::super::audit::Audit;
use super::super::authentication::{Authentication, authenticate};
use super::super::freshness::Freshness;
use super::super::routing::Routing;
use super::super::ttl::Ttl;
use super::*;
use crate::protocol::mesh::tests::support::{
    NOW, RejectAnyBody, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, secret_key,
    ultimate_receiver,
};

fn keys() -> Arc<KeyRing> {
    let changer = secret_key(2, "agent://active").public_key().with_permission(KeyPermission::ModifyMessages);
    Arc::new(
        [secret_key(1, "agent://sender").public_key(), changer, secret_key(3, "agent://other").public_key()]
            .into_iter()
            .collect(),
    )
}

fn gram(id: &str) -> Value {
    json!({"id": id, "timestamp": "2025-06-26T23:00:00Z", "nodes": [{"id": "n", "type": "note", "attributes": {"text": "true"}}], "edges": []})
}

fn signed_frame() -> Frame {
    let mut hop = gram("550e8400-e29b-41d4-a716-446655440001");
    hop["role"] = json!("next");
    let mut frame = frame(json!({
        "version": "1.0",
        "Header": {
            "messageId": "m-1", "ttl": {"role": "next", "hops": 4}, "audit": {"role": "next", "relay": true},
            "routing": {"role": "next", "relay": true, "to": "agent://last"},
            "priority": {"level": 1}, "forHops": {"role": "next", "relay": true, "level": 2},
            "headerBlocks": [{"type": "listed", "role": "none", "content": {"x": 1}}]
        },
        "Body": {"task": {"id": 7, "text": "é"}},
        "MemoryGrams": [gram("550e8400-e29b-41d4-a716-446655440000"), hop]
    }));
    sign(&mut frame, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
    frame
}

fn last() -> Node {
    ultimate_receiver().with_module(Signature::required(keys()))
}

fn refused_subcode(frame: Frame) -> String {
    let fault = expect_fault(last(), frame);
    assert!(fault.subcode.as_deref() == Some(rules::BLOCK_CONTENT) || fault.escalate_to_human, "{fault}");
    fault.subcode.unwrap_or_default()
}

#[test]
fn section_7_0_a_signed_message_is_accepted_and_its_signer_known() {
    let taken = expect_processed(last(), signed_frame());
    assert_eq!(taken.record.sender.as_deref(), Some("agent://sender"));
    assert!(taken.processed_blocks.contains(&"signature".to_owned()));
}

#[test]
fn section_7_0_a_tampered_message_is_refused() {
    let good = signed_frame().to_json();
    let changes: [(&str, Value); 13] = [
        ("/frame/version", json!("1.0.0")),
        ("/frame/Body/task/id", json!(8)),
        ("/frame/Body/task", json!({"id": 7})),
        ("/frame/Body", json!({"task": {"id": 7, "text": "é"}, "more": 1})),
        ("/frame/Header/messageId", json!("m-2")),
        ("/frame/Header/priority/level", json!(9)),
        ("/frame/Header/forHops/level", json!(9)),
        ("/frame/Header/headerBlocks/0/content/x", json!(2)),
        ("/frame/MemoryGrams/0/nodes/0/attributes/text", json!("false")),
        ("/frame/MemoryGrams/1/nodes/0/attributes/text", json!("false")),
        ("/frame/MemoryGrams", json!([])),
        ("/frame/Header/signature/created", json!("1970-01-01T00:00:01Z")),
        ("/frame/Header/signature/keyId", json!("key-3")),
    ];
    for (pointer, value) in changes {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        assert_eq!(refused_subcode(frame(bad["frame"].clone())), "SecurityViolation.Signature", "{pointer}");
    }
    let added: [(&str, &str, Value); 2] = [
        ("/frame/Header", "extra", json!({})),
        ("/frame/MemoryGrams", "", gram("550e8400-e29b-41d4-a716-446655440002")),
    ];
    for (pointer, key, value) in added {
        let mut bad = good.clone();
        match bad.pointer_mut(pointer) {
            Some(Value::Object(object)) => drop(object.insert(key.to_owned(), value)),
            Some(Value::Array(list)) => list.push(value),
            _ => panic!("{pointer}"),
        }
        assert_eq!(refused_subcode(frame(bad["frame"].clone())), "SecurityViolation.Signature", "{pointer} {key}");
    }
}

#[test]
fn section_7_2_a_signature_survives_forwarding_intermediaries() {
    let hop = |uri: &str| {
        let node = Node::forwarding_intermediary(uri).expect("a node").with_authorized_blocks(["audit", "routing"]);
        node.with_module(Ttl)
            .with_module(Audit::default())
            .with_module(Routing)
            .with_module(Signature::required(keys()))
    };
    let first = expect_relayed(hop("agent://one").with_understood_blocks(["forHops"]), signed_frame());
    assert_eq!(first.removed_blocks, ["forHops"]);
    let second = expect_relayed(hop("agent://two"), first.frame);
    assert_eq!(expect_processed(last(), second.frame.clone()).record.sender.as_deref(), Some("agent://sender"));
    // An intermediary without the module forwards the relayable block.
    assert_eq!(
        expect_processed(last(), expect_relayed(forwarding_intermediary(), second.frame).frame).record.notes,
        [""; 0]
    );
}

#[test]
fn section_7_0_an_unsigned_added_block_is_not_processed() {
    let mut added = signed_frame();
    added.header.set("deploy", json!({"role": "next", "relay": true})).expect("a valid block");
    let passed = expect_relayed(forwarding_intermediary().with_module(Signature::required(keys())), added.clone());
    assert_eq!(passed.record.notes, ["the block `deploy` was added after signing"]);
    let knows = last().with_understood_blocks(["deploy"]);
    assert_eq!(expect_fault(knows.clone(), added.clone()).subcode.as_deref(), Some("SecurityViolation.Signature"));
    // The delivered frame does not have the block.
    assert!(expect_processed(last(), added.clone()).frame.header.block("deploy").is_none());
    added.header.remove("deploy");
    expect_processed(knows, added);
}

#[test]
fn section_7_0_a_message_must_be_signed_by_a_known_key() {
    let unsigned = frame(json!({"Body": {}}));
    assert_eq!(refused_subcode(unsigned.clone()), "SecurityViolation.Signature");
    expect_processed(ultimate_receiver().with_module(Signature::optional(keys())), unsigned.clone());
    let mut stranger = unsigned;
    sign(&mut stranger, &secret_key(9, "agent://sender"), NOW).expect("a valid block");
    assert_eq!(refused_subcode(stranger), "SecurityViolation.Signature");
}

#[test]
fn section_7_0_the_signer_must_be_the_agent_of_the_key() {
    let mut forged = frame(json!({"Body": {}}));
    sign(&mut forged, &secret_key(3, "agent://sender"), NOW).expect("a valid block");
    assert_eq!(refused_subcode(forged), "SecurityViolation.Signature");
}

#[test]
fn section_7_3_a_message_signed_for_one_receiver_is_refused_by_others() {
    let other = || Node::ultimate_receiver("agent://other").expect("a node").with_module(Signature::required(keys()));
    let refusal = expect_fault(other(), signed_frame());
    assert_eq!(refusal.subcode.as_deref(), Some("SecurityViolation.Signature"));
    assert!(refusal.reason_text().contains("was signed for `agent://last`"), "{refusal}");
    // Neither another `routing` block nor a new signature changes the receiver.
    let mut diverted = signed_frame();
    diverted.header.set("routing", json!({"role": "next", "to": "agent://other"})).expect("a valid block");
    assert!(expect_fault(other(), diverted.clone()).reason_text().contains("agent://last"));
    let change = FrameChange {
        feature: "urn:x:mask".to_owned(),
        action: ChangeAction::SetBodyChild("extra".to_owned(), json!(1)),
    };
    let key = Arc::new(secret_key(2, "agent://active"));
    let active = Node::active_intermediary("agent://active").expect("a node").with_changes([change]);
    let again = expect_relayed(active.with_module(Signature::required(keys()).with_resigning_key(key)), diverted).frame;
    assert!(expect_fault(other(), again).reason_text().contains("agent://last"));
    let mut bad = signed_frame().to_json();
    bad["frame"]["Header"]["signature"]["to"] = json!("agent://other");
    assert!(expect_fault(other(), frame(bad["frame"].clone())).reason_text().contains("the signature is invalid"));
}

#[test]
fn section_2_7_3_an_active_intermediary_must_sign_its_changes_again() {
    let change = FrameChange {
        feature: "urn:x:mask".to_owned(),
        action: ChangeAction::SetBodyChild("extra".to_owned(), json!(1)),
    };
    let active = || Node::active_intermediary("agent://active").expect("a node").with_changes([change.clone()]);
    let without = expect_relayed(active().with_module(Signature::required(keys())), signed_frame()).frame;
    assert_eq!(refused_subcode(without), "SecurityViolation.Signature");
    let key = Arc::new(secret_key(2, "agent://active"));
    let again =
        expect_relayed(active().with_module(Signature::required(keys()).with_resigning_key(key)), signed_frame()).frame;
    let taken = expect_processed(last(), again);
    assert_eq!((taken.record.sender.as_deref(), &taken.frame.body["extra"]), (Some("agent://sender"), &json!(1)));
}

/// An active intermediary that signs its changes, and trusts no agent to modify messages.
fn resigning_intermediary() -> Node {
    let ring: Arc<KeyRing> = Arc::new(
        [secret_key(1, "agent://sender").public_key(), secret_key(3, "agent://other").public_key()]
            .into_iter()
            .collect(),
    );
    let change = FrameChange {
        feature: "urn:x:mask".to_owned(),
        action: ChangeAction::SetBodyChild("extra".to_owned(), json!(1)),
    };
    let signature = Signature::required(ring.clone()).with_resigning_key(Arc::new(secret_key(2, "agent://active")));
    let node = Node::active_intermediary("agent://active").expect("a node").with_changes([change]);
    node.with_module(signature).with_module(Authentication::optional(ring))
}

#[test]
fn section_7_0_signing_again_preserves_the_original_sender() {
    let presented = |agent: &str, number: u8| {
        let mut frame = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "t"}}));
        authenticate(&mut frame, &secret_key(number, agent), "n", NOW).expect("a valid block");
        frame
    };
    let end = || last().with_module(Authentication::optional(keys()));
    let honest = {
        let mut frame = presented("agent://sender", 1);
        sign(&mut frame, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
        expect_relayed(resigning_intermediary(), frame).frame
    };
    assert_eq!(expect_processed(end(), honest.clone()).record.sender.as_deref(), Some("agent://sender"));
    // Without the credential the sender stays the same, so that a replay is detected.
    let mut stripped = honest.clone();
    stripped.header.remove("authentication");
    assert_eq!(expect_processed(end(), stripped).record.sender.as_deref(), Some("agent://sender"));
    // Another agent's message with the sender's credential, for a role that the intermediary does not act in.
    for role in ["ultimateReceiver", "monitor", "urn:agentic:mesh:role:ultimateReceiver"] {
        let mut forged = presented("agent://sender", 1);
        forged.body.insert("task".to_owned(), json!("steal"));
        let mut credential = forged.header.block("authentication").expect("present").properties.clone();
        credential.insert("role".to_owned(), json!(role));
        forged.header.set_block("authentication", credential).expect("a valid block");
        sign(&mut forged, &secret_key(3, "agent://other"), NOW).expect("a valid block");
        let passed = expect_relayed(resigning_intermediary(), forged).frame;
        let fault = expect_fault(end(), passed);
        assert!(fault.reason_text().contains("for another sender than the credential"), "{role}: {fault}");
    }
    let mut own = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "steal"}}));
    sign(&mut own, &secret_key(3, "agent://other"), NOW).expect("a valid block");
    let mut passed = expect_relayed(resigning_intermediary(), own).frame;
    assert_eq!(
        expect_processed(end(), passed.clone()).record.sender.as_deref(),
        Some("agent://other"),
        "not the gateway's"
    );
    let credential = honest.header.block("authentication").expect("present").properties.clone();
    passed.header.set_block("authentication", credential).expect("a valid block");
    assert_eq!(refused_subcode_at(end(), passed), "SecurityViolation.Signature");
    // A key without the permission cannot name another sender.
    let mut claimed = presented("agent://sender", 1);
    let more = [("sender", json!("agent://sender"))];
    sign_with_fields(&mut claimed, &secret_key(3, "agent://other"), NOW, more).expect("a valid block");
    assert!(expect_fault(end(), claimed).reason_text().contains("may not change messages of another sender"));
}

fn refused_subcode_at(node: Node, frame: Frame) -> String {
    expect_fault(node, frame).subcode.unwrap_or_default()
}

#[test]
fn section_7_3_signing_again_preserves_the_message_s_age() {
    let mut old = frame(json!({"Header": {"messageId": "m-1"}, "Body": {}}));
    sign(&mut old, &secret_key(1, "agent://sender"), NOW - jiff::SignedDuration::from_secs(3000))
        .expect("a valid block");
    let fresh = |node: Node| node.with_module(Freshness::within_window(jiff::SignedDuration::from_secs(300)));
    let passed = expect_relayed(resigning_intermediary(), old).frame;
    assert_eq!(refused_subcode_at(fresh(last()), passed), "SecurityViolation.Stale");
    // A signed message without an id cannot be fault from its copy.
    let mut nameless = frame(json!({"Body": {}}));
    sign(&mut nameless, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
    let window = Freshness::within_window(jiff::SignedDuration::from_secs(300)).with_optional_id();
    assert_eq!(
        refused_subcode_at(ultimate_receiver().with_module(Signature::optional(keys())).with_module(window), nameless),
        "SecurityViolation.NoId"
    );
}

#[test]
fn section_5_2_2_a_block_with_an_unknown_role_cannot_be_removed() {
    let mut limits =
        frame(json!({"Header": {"messageId": "m-1", "limits": {"role": "monitor", "most": 3}}, "Body": {}}));
    sign(&mut limits, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
    expect_processed(last(), limits.clone());
    limits.header.remove("limits");
    assert_eq!(refused_subcode(limits), "SecurityViolation.Signature");
}

#[test]
fn section_7_0_a_signature_is_checked_before_the_body() {
    let mut bad = signed_frame();
    bad.body.insert("encodingStyle".to_owned(), json!("urn:strange"));
    assert_eq!(
        expect_fault(last().with_body_schema(RejectAnyBody), bad).subcode.as_deref(),
        Some("SecurityViolation.Signature")
    );
    assert_eq!(
        expect_fault(last().with_body_schema(RejectAnyBody), signed_frame()).subcode.as_deref(),
        Some(rules::BODY_SCHEMA)
    );
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for key in ["algorithm", "keyId", "signer", "created", "value"] {
        let mut bad = signed_frame().to_json();
        bad.pointer_mut("/frame/Header/signature").and_then(Value::as_object_mut).expect("present").shift_remove(key);
        assert_eq!(refused_subcode(frame(bad["frame"].clone())), rules::BLOCK_CONTENT, "{key}");
    }
    let mut bad = signed_frame().to_json();
    *bad.pointer_mut("/frame/Header/signature/algorithm").expect("present") = json!("none");
    assert_eq!(refused_subcode(frame(bad["frame"].clone())), "SecurityViolation.Signature");
}
