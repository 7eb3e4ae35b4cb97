//! A message with all modules, over a forwarding and an active intermediary to its receiver, and attacks on it.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::audit::Audit;
use super::super::authentication::{Authentication, authenticate};
use super::super::authorization::{Authorization, BODY_ACTION, authorize};
use super::super::encryption::{Encryption, RecipientKeyPair, encrypt_body};
use super::super::freshness::Freshness;
use super::super::keys::{KeyPermission, KeyRing};
use super::super::routing::Routing;
use super::super::signature::{Signature, sign};
use super::super::ttl::Ttl;
use super::super::validation::Validation;
use crate::protocol::mesh::change::{ChangeAction, FrameChange};
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::node::{Node, NodeKind};
use crate::protocol::mesh::process::ProcessOutcome;
use crate::protocol::mesh::tests::support::{NOW, frame, secret_key};

fn keys() -> Arc<KeyRing> {
    let sender = secret_key(1, "agent://sender").public_key().with_permission(KeyPermission::Authorize);
    let active = secret_key(3, "agent://active").public_key().with_permission(KeyPermission::ModifyMessages);
    Arc::new(
        [sender, secret_key(2, "agent://forward").public_key(), active, secret_key(4, "agent://last").public_key()]
            .into_iter()
            .collect(),
    )
}

fn node(n: u8, uri: &str, kind: NodeKind) -> Node {
    let key = Arc::new(secret_key(n, uri));
    Node::new(uri, kind)
        .expect("a node")
        .with_module(Ttl)
        .with_module(Authentication::required(keys()).with_credential_key(key.clone()))
        .with_module(Signature::required(keys()).with_resigning_key(key.clone()))
        .with_module(Freshness::within_window(SignedDuration::from_secs(300)))
        .with_module(
            Authorization::new(keys())
                .with_allowed_actions("agent://sender", [BODY_ACTION])
                .with_required_actions([BODY_ACTION]),
        )
        .with_module(Encryption::with_keys((n == 4).then(|| RecipientKeyPair::new("box", &[7; 32]))))
        .with_module(Validation::default())
        .with_module(Routing)
        .with_module(Audit::starting_log().with_signer(key).with_verifier(keys()))
}

fn message_path() -> [Node; 3] {
    let what =
        ChangeAction::SetBlock("priority".to_owned(), json!({"level": 1}).as_object().expect("an object").clone());
    let change = FrameChange { feature: "urn:x:priority".to_owned(), action: what };
    [
        node(2, "agent://forward", NodeKind::ForwardingIntermediary),
        node(3, "agent://active", NodeKind::ActiveIntermediary).with_changes([change]),
        node(4, "agent://last", NodeKind::UltimateReceiver),
    ]
}

fn sample_message() -> Frame {
    let mut message = frame(json!({
        "version": "1.0",
        "Header": {
            "messageId": "m-1", "traceId": "t-1", "ttl": {"role": "next", "hops": 2},
            "routing": {"role": "next", "relay": true, "to": "agent://last", "path": ["agent://forward", "agent://active"]},
            "validation": {"required": ["/task/id"]}
        },
        "Body": {"task": {"id": 7}},
        "MemoryGrams": [{
            "id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
            "nodes": [{"id": "n", "type": "note", "attributes": {}}], "edges": []
        }]
    }));
    let key = secret_key(1, "agent://sender");
    encrypt_body(&mut message, &RecipientKeyPair::new("box", &[7; 32]).recipient_key()).expect("encrypted");
    let actions: &[&str] = &["routing", "audit"];
    authorize(&mut message, &key, [("agent://forward", actions), ("agent://active", actions)], None)
        .expect("a valid block");
    authenticate(&mut message, &key, "nonce-1", NOW).expect("a valid block");
    sign(&mut message, &key, NOW).expect("a valid block");
    message
}

/// Sends a frame along the path. `tamper` may change it before the node of that index.
fn send_along_path(path: &mut [Node; 3], mut message: Frame, tamper: impl Fn(usize, &mut Value)) -> ProcessOutcome {
    for (index, node) in path.iter_mut().enumerate() {
        let mut json = message.to_json();
        tamper(index, &mut json);
        message = Frame::parse(json.to_string().as_bytes(), &node.limits).expect("a valid frame");
        match node.process_and_remember(message, NOW) {
            ProcessOutcome::Relayed(relayed) => {
                let next = ["agent://active", "agent://last"][index];
                assert_eq!(relayed.next_hop.as_deref(), Some(next));
                message = relayed.frame;
            }
            outcome => return outcome,
        }
    }
    panic!("the last node does not relay")
}

#[test]
fn section_7_a_message_with_all_modules_is_delivered() {
    let mut path = message_path();
    let ProcessOutcome::Processed(last) = send_along_path(&mut path, sample_message(), |_, _| ()) else {
        panic!("must be delivered")
    };
    assert_eq!(last.record.sender.as_deref(), Some("agent://sender"));
    assert_eq!(last.frame.body["task"], json!({"id": 7}));
    assert_eq!(last.grams.len(), 1);
    let json = last.frame.to_json();
    let header = &json["frame"]["Header"];
    assert_eq!(header["ttl"]["hops"], json!(0));
    assert_eq!(header["priority"], json!({"level": 1}));
    assert_eq!(header["applied"]["by"][0]["changed"], json!(["/frame/Header/priority"]));
    assert_eq!(header["signature"]["signer"], json!("agent://active"));
    let log = header["audit"]["entries"].as_array().expect("a log");
    let agents: Vec<&Value> = log.iter().map(|entry| &entry["agentUri"]).collect();
    assert_eq!(agents, [&json!("agent://forward"), &json!("agent://active"), &json!("agent://last")]);
    assert!(log[2]["actions"].as_array().is_some_and(|actions| actions.contains(&json!("opened the Body"))));
    // A replay.
    let ProcessOutcome::Fault(fault) = send_along_path(&mut path, sample_message(), |_, _| ()) else {
        panic!("must be refused")
    };
    assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Replay"));
    assert_eq!((fault.relates_to.as_deref(), fault.trace_id.as_deref()), (Some("m-1"), Some("t-1")));
}

#[test]
fn section_7_tampering_is_detected_at_the_next_node() {
    let nodes = ["agent://forward", "agent://active", "agent://last"];
    let changes: [(&str, Value); 6] = [
        ("/frame/Body/sealed", json!("AAAA")),
        ("/frame/MemoryGrams/0/nodes/0/id", json!("other")),
        ("/frame/Header/messageId", json!("m-2")),
        ("/frame/Header/validation/required", json!([])),
        ("/frame/Header/authorization/grants", json!([])),
        ("/frame/Header/authentication/credentials/0/agent", json!("agent://last")),
    ];
    for (at, node) in nodes.into_iter().enumerate() {
        for (pointer, value) in &changes {
            let tamper = |index: usize, message: &mut Value| {
                if index == at {
                    *message.pointer_mut(pointer).expect(pointer) = value.clone();
                }
            };
            let ProcessOutcome::Fault(fault) = send_along_path(&mut message_path(), sample_message(), tamper) else {
                panic!("{pointer} before {at}")
            };
            assert_eq!(fault.node.as_deref(), Some(node), "{pointer}");
            assert!(
                fault.subcode.as_deref().is_some_and(|subcode| subcode.starts_with("SecurityViolation.")),
                "{fault}"
            );
        }
    }
}

#[test]
fn section_7_2_a_modified_log_and_an_expired_ttl_are_refused() {
    let cut = |index: usize, message: &mut Value| {
        if index == 2 {
            message["frame"]["Header"]["audit"]["entries"][0]["actions"] = json!([]);
        }
    };
    let ProcessOutcome::Fault(fault) = send_along_path(&mut message_path(), sample_message(), cut) else {
        panic!("must be refused")
    };
    assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Audit"));
    let old = |index: usize, message: &mut Value| {
        if index == 1 {
            message["frame"]["Header"]["ttl"]["hops"] = json!(0);
        }
    };
    let ProcessOutcome::Fault(fault) = send_along_path(&mut message_path(), sample_message(), old) else {
        panic!("must be refused")
    };
    assert_eq!((fault.subcode.as_deref(), fault.node.as_deref()), (Some("amp:TTLExpired"), Some("agent://active")));
}
