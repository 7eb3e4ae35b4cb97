//! One message with all modules, from its sender over a forwarding and an active intermediary to its receiver; and what is refused.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::audit::Audit;
use super::authentication::{Authentication, authenticate};
use super::authorization::{Authorization, BODY, authorize};
use super::encryption::{Encryption, KeyPair, seal_body};
use super::freshness::Freshness;
use super::keys::testing::secret;
use super::keys::{KeyRing, Right};
use super::routing::Routing;
use super::signature::{Signature, sign};
use super::testing::{NOW, frame};
use super::ttl::Ttl;
use super::validation::Validation;
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::node::{Node, Place};
use crate::protocol::mesh::process::Outcome;
use crate::protocol::mesh::relay::{Change, What};

fn keys() -> Arc<KeyRing> {
    let sender = secret(1, "agent://sender").public().with(Right::Authorize);
    let active = secret(3, "agent://active").public().with(Right::Change);
    Arc::new(
        [sender, secret(2, "agent://forward").public(), active, secret(4, "agent://last").public()]
            .into_iter()
            .collect(),
    )
}

fn node(n: u8, uri: &str, place: Place) -> Node {
    let key = Arc::new(secret(n, uri));
    Node::new(uri, place)
        .expect("a node")
        .with(Ttl)
        .with(Authentication::requiring(keys()).presenting(key.clone()))
        .with(Signature::requiring(keys()).signing_again(key.clone()))
        .with(Freshness::within(SignedDuration::from_secs(300)))
        .with(Authorization::new(keys()).allowing("agent://sender", [BODY]).needing([BODY]))
        .with(Encryption::with((n == 4).then(|| KeyPair::new("box", &[7; 32]))))
        .with(Validation::default())
        .with(Routing)
        .with(Audit::beginning().sealing(key).checking(keys()))
}

fn path() -> [Node; 3] {
    let what = What::SetBlock("priority".to_owned(), json!({"level": 1}).as_object().expect("an object").clone());
    let change = Change { feature: "urn:x:priority".to_owned(), what };
    [
        node(2, "agent://forward", Place::Forwarding),
        node(3, "agent://active", Place::Active).changing([change]),
        node(4, "agent://last", Place::Ultimate),
    ]
}

fn message() -> Frame {
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
    let key = secret(1, "agent://sender");
    seal_body(&mut message, &KeyPair::new("box", &[7; 32]).recipient()).expect("it seals");
    let actions: &[&str] = &["routing", "audit"];
    authorize(&mut message, &key, [("agent://forward", actions), ("agent://active", actions)], None)
        .expect("a good block");
    authenticate(&mut message, &key, "nonce-1", NOW).expect("a good block");
    sign(&mut message, &key, NOW).expect("a good block");
    message
}

/// Sends a frame down the path. `tamper` has it between any two nodes, before the node of that number.
fn sent(path: &mut [Node; 3], mut message: Frame, tamper: impl Fn(usize, &mut Value)) -> Outcome {
    for (place, node) in path.iter_mut().enumerate() {
        let mut json = message.to_json();
        tamper(place, &mut json);
        message = Frame::parse(json.to_string().as_bytes(), &node.limits).expect("a good frame");
        match node.take(message, NOW) {
            Outcome::Relayed(relayed) => {
                let next = ["agent://active", "agent://last"][place];
                assert_eq!(relayed.next.as_deref(), Some(next));
                message = relayed.frame;
            }
            outcome => return outcome,
        }
    }
    panic!("the last node relays nothing")
}

#[test]
fn section_7_a_message_with_all_modules_arrives() {
    let mut path = path();
    let Outcome::Processed(last) = sent(&mut path, message(), |_, _| ()) else { panic!("it must arrive") };
    assert_eq!(last.sender.as_deref(), Some("agent://sender"));
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
    // The same once more.
    let Outcome::Fault(fault) = sent(&mut path, message(), |_, _| ()) else { panic!("it must be refused") };
    assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Replay"));
    assert_eq!((fault.relates_to.as_deref(), fault.trace.as_deref()), (Some("m-1"), Some("t-1")));
}

#[test]
fn section_7_whoever_tampers_on_the_way_is_seen_at_the_next_node() {
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
            let tamper = |place: usize, message: &mut Value| {
                if place == at {
                    *message.pointer_mut(pointer).expect(pointer) = value.clone();
                }
            };
            let Outcome::Fault(fault) = sent(&mut path(), message(), tamper) else { panic!("{pointer} before {at}") };
            assert_eq!(fault.node.as_deref(), Some(node), "{pointer}");
            assert!(
                fault.subcode.as_deref().is_some_and(|subcode| subcode.starts_with("SecurityViolation.")),
                "{fault}"
            );
        }
    }
}

#[test]
fn section_7_2_the_log_is_tamper_proof_and_the_way_has_an_end() {
    let cut = |place: usize, message: &mut Value| {
        if place == 2 {
            message["frame"]["Header"]["audit"]["entries"][0]["actions"] = json!([]);
        }
    };
    let Outcome::Fault(fault) = sent(&mut path(), message(), cut) else { panic!("it must be refused") };
    assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Audit"));
    let old = |place: usize, message: &mut Value| {
        if place == 1 {
            message["frame"]["Header"]["ttl"]["hops"] = json!(0);
        }
    };
    let Outcome::Fault(fault) = sent(&mut path(), message(), old) else { panic!("it must be refused") };
    assert_eq!((fault.subcode.as_deref(), fault.node.as_deref()), (Some("amp:TTLExpired"), Some("agent://active")));
}
