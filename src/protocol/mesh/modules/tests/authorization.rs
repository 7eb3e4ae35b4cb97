//! Tests of `authorization.rs`.

use super::super::super::change::{ChangeAction, FrameChange};
use super::super::super::node::Node;
use super::super::super::rules;
use super::super::audit::Audit;
use super::super::authentication::{Authentication, authenticate};
use super::super::routing::Routing;
use super::super::signature::{Signature, sign};
use super::*;
use crate::protocol::mesh::tests::support::{
    NOW, RejectAnyBody, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, secret_key,
    ultimate_receiver,
};

fn keys() -> Arc<KeyRing> {
    let issuer = secret_key(2, "agent://issuer").public_key().with_permission(KeyPermission::Authorize);
    let active = secret_key(3, "agent://active").public_key().with_permission(KeyPermission::ModifyMessages);
    Arc::new([secret_key(1, "agent://sender").public_key(), issuer, active].into_iter().collect())
}

fn signed_frame(header: Value) -> Frame {
    let mut frame = frame(json!({"Header": header, "Body": {"task": "t"}}));
    authenticate(&mut frame, &secret_key(1, "agent://sender"), "n", NOW).expect("a valid block");
    sign(&mut frame, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
    frame
}

fn with_trusted_keys(node: Node) -> Node {
    node.with_module(Authentication::optional(keys())).with_module(Signature::optional(keys()))
}

fn last(authorization: Authorization) -> Node {
    with_trusted_keys(ultimate_receiver()).with_module(authorization).with_understood_blocks(["deploy"])
}

fn authorization_required() -> Authorization {
    Authorization::new(keys()).with_required_actions([BODY_ACTION, "deploy"])
}

fn assert_refused(node: Node, frame: Frame) {
    let fault = expect_fault(node, frame);
    assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Authorization"), "{fault}");
    assert!(fault.escalate_to_human);
}

#[test]
fn section_7_0_privileges_are_checked_before_sensitive_blocks_and_the_body() {
    let message = || signed_frame(json!({"messageId": "m", "deploy": {}}));
    assert_refused(last(authorization_required()).with_body_schema(RejectAnyBody), message());
    assert_refused(last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])), message());
    assert_refused(
        last(authorization_required().with_allowed_actions("agent://other", [BODY_ACTION, "deploy"])),
        message(),
    );
    expect_processed(
        last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION, "deploy"])),
        message(),
    );
    expect_processed(
        last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])),
        signed_frame(json!({"messageId": "m"})),
    );
    // An unauthenticated sender has no privileges.
    assert_refused(
        last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])),
        frame(json!({"Header": {"messageId": "m"}, "Body": {}})),
    );
}

#[test]
fn section_7_0_authorized_content_must_be_signed_by_its_sender() {
    let node = || last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION, "deploy"]));
    let good = signed_frame(json!({"messageId": "m", "deploy": {"to": "test"}}));
    expect_processed(node(), good.clone());
    // A valid credential does not cover the changed Body.
    let mut stripped = good.clone();
    stripped.header.remove("signature");
    stripped.body.insert("task".to_owned(), json!("steal"));
    let fault = expect_fault(node(), stripped.clone());
    assert!(fault.reason_text().contains("`Body` is not signed by agent://sender"), "{fault}");
    assert_refused(node(), stripped.clone());
    // A grant does not help.
    let issuer = secret_key(2, "agent://issuer");
    authorize(&mut stripped, &issuer, [("agent://sender", &[BODY_ACTION, "deploy"] as &[&str])], None)
        .expect("a valid block");
    assert_refused(node(), stripped);
    // A signature for another role counts as missing.
    let mut hidden = good;
    let mut block = hidden.header.block("signature").expect("there").properties.clone();
    block.insert("role".to_owned(), json!("none"));
    hidden.header.set_block("signature", block).expect("a valid block");
    assert_refused(node(), hidden);
}

#[test]
fn section_7_0_authorization_survives_only_trusted_intermediaries() {
    let node = || last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION]));
    let active = || {
        let change = FrameChange {
            feature: "urn:x:e".to_owned(),
            action: ChangeAction::SetBodyChild("more".to_owned(), json!(1)),
        };
        let again = Signature::optional(keys()).with_resigning_key(Arc::new(secret_key(3, "agent://active")));
        let node = Node::active_intermediary("agent://active").expect("a node").with_changes([change]);
        node.with_module(Authentication::optional(keys())).with_module(again)
    };
    let good = signed_frame(json!({"messageId": "m"}));
    let passed = expect_relayed(with_trusted_keys(forwarding_intermediary()), good.clone()).frame;
    let changed = expect_processed(node(), expect_relayed(active(), passed).frame);
    assert_eq!((changed.record.sender.as_deref(), &changed.frame.body["more"]), (Some("agent://sender"), &json!(1)));
    // An active intermediary does not sign a message that was received without a signature.
    let mut stripped = good;
    stripped.header.remove("signature");
    stripped.body.insert("task".to_owned(), json!("steal"));
    let passed = expect_relayed(active(), stripped).frame;
    assert!(passed.header.block("signature").is_none());
    assert_refused(node(), passed);
}

#[test]
fn section_7_0_blocks_that_hops_may_change_cannot_be_authorized() {
    for name in ["routing", "audit", "ttl"] {
        let node = last(
            Authorization::new(keys()).with_required_actions([name]).with_allowed_actions("agent://sender", [name]),
        );
        expect_processed(node.clone(), signed_frame(json!({"messageId": "m"})));
        assert_refused(node, signed_frame(json!({"messageId": "m", name: {"role": "next"}})));
    }
}

#[test]
fn section_7_0_a_grant_needs_an_authorized_issuer_and_this_message() {
    let with = |key: &SecretKey, expires: Option<Timestamp>| {
        let mut message = signed_frame(json!({"messageId": "m"}));
        authorize(&mut message, key, [("agent://sender", &[BODY_ACTION] as &[&str])], expires).expect("a valid block");
        message
    };
    let issuer = secret_key(2, "agent://issuer");
    expect_processed(last(authorization_required()), with(&issuer, None));
    expect_processed(last(authorization_required()), with(&issuer, Timestamp::from_second(1).ok()));
    assert_refused(last(authorization_required()), with(&issuer, Some(NOW)));
    assert_refused(last(authorization_required()), with(&secret_key(1, "agent://sender"), None));
    assert_refused(last(authorization_required()), with(&secret_key(9, "agent://issuer"), None));
    let good = with(&issuer, None).to_json();
    for (pointer, value) in [
        ("/frame/Header/messageId", json!("other")),
        ("/frame/Header/authorization/grants/0/agent", json!("agent://other")),
        ("/frame/Header/authorization/grants/0/actions", json!([BODY_ACTION, "deploy"])),
        ("/frame/Header/authorization/issuer", json!("agent://sender")),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        let node = ultimate_receiver().with_module(authorization_required());
        assert_refused(node, frame(bad["frame"].clone()));
    }
    let mut nameless = frame(json!({"Body": {}}));
    authorize(&mut nameless, &issuer, [("agent://sender", &[BODY_ACTION] as &[&str])], None).expect("a valid block");
    assert_refused(ultimate_receiver().with_module(authorization_required()), nameless);
}

#[test]
fn section_7_2_an_intermediary_with_a_validated_authorization_handles_side_effects() {
    let mut message = signed_frame(
        json!({"messageId": "m", "routing": {"role": "next", "relay": true, "to": "agent://last"}, "audit": {"role": "next", "relay": true}}),
    );
    let grants: [(&str, &[&str]); 1] = [("agent://middle", &["routing", "audit"])];
    let node = || {
        forwarding_intermediary()
            .with_module(Routing)
            .with_module(Audit::default())
            .with_module(Authorization::new(keys()))
    };
    let ignored = expect_relayed(node(), message.clone());
    assert_eq!((ignored.next_hop, ignored.frame), (None, message.clone()));
    authorize(&mut message, &secret_key(2, "agent://issuer"), grants, None).expect("a valid block");
    let handled = expect_relayed(node(), message.clone());
    assert_eq!(handled.next_hop.as_deref(), Some("agent://last"));
    let block = handled.frame.header.block("audit").expect("a log");
    assert_eq!(block.content()["entries"][0]["agentUri"], json!("agent://middle"));
    assert!(handled.frame.header.block("authorization").is_some());
    // Without the module the block has no effect.
    let blind = forwarding_intermediary().with_module(Routing).with_understood_blocks(["authorization"]);
    assert_eq!(expect_relayed(blind, message).next_hop, None);
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    let mut message = signed_frame(json!({"messageId": "m"}));
    authorize(&mut message, &secret_key(2, "agent://issuer"), [("agent://sender", &[BODY_ACTION] as &[&str])], None)
        .expect("a valid block");
    for key in ["issuer", "keyId", "grants", "value"] {
        let mut bad = message.to_json();
        bad.pointer_mut("/frame/Header/authorization").and_then(Value::as_object_mut).expect("there").shift_remove(key);
        let refused = expect_fault(last(authorization_required()), frame(bad["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{key}");
    }
}
