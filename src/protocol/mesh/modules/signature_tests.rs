//! Tests of `signature.rs`: what is covered, and what may change on the way.

use super::super::super::node::{BodyProblem, BodySchema, Node};
use super::super::super::relay::{Change, What};
use super::super::super::rules;
use super::super::audit::Audit;
use super::super::authentication::{Authentication, authenticate};
use super::super::freshness::Freshness;
use super::super::keys::testing::secret;
use super::super::routing::Routing;
use super::super::testing::{NOW, fault, forwarding, frame, processed, relayed, ultimate};
use super::super::ttl::Ttl;
use super::*;

fn keys() -> Arc<KeyRing> {
    let changer = secret(2, "agent://active").public().with(Right::Change);
    Arc::new([secret(1, "agent://sender").public(), changer, secret(3, "agent://other").public()].into_iter().collect())
}

fn gram(id: &str) -> Value {
    json!({"id": id, "timestamp": "2025-06-26T23:00:00Z", "nodes": [{"id": "n", "type": "note", "attributes": {"text": "true"}}], "edges": []})
}

fn signed() -> Frame {
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
    sign(&mut frame, &secret(1, "agent://sender"), NOW).expect("a good block");
    frame
}

fn last() -> Node {
    ultimate().with(Signature::requiring(keys()))
}

fn refused(frame: Frame) -> String {
    let fault = fault(last(), frame);
    assert!(fault.subcode.as_deref() == Some(rules::BLOCK_CONTENT) || fault.escalate_to_human, "{fault}");
    fault.subcode.unwrap_or_default()
}

#[test]
fn section_7_0_a_signed_message_is_taken_and_its_signer_known() {
    let taken = processed(last(), signed());
    assert_eq!(taken.sender.as_deref(), Some("agent://sender"));
    assert!(taken.processed.contains(&"signature".to_owned()));
}

#[test]
fn section_7_0_a_message_that_was_tampered_with_is_refused() {
    let good = signed().to_json();
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
        assert_eq!(refused(frame(bad["frame"].clone())), "SecurityViolation.Signature", "{pointer}");
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
        assert_eq!(refused(frame(bad["frame"].clone())), "SecurityViolation.Signature", "{pointer} {key}");
    }
}

#[test]
fn section_7_2_a_signature_outlives_what_forwarding_intermediaries_do() {
    let hop = |uri: &str| {
        let node = Node::forwarding(uri).expect("a node").authorized(["audit", "routing"]);
        node.with(Ttl).with(Audit::default()).with(Routing).with(Signature::requiring(keys()))
    };
    let first = relayed(hop("agent://one").understanding(["forHops"]), signed());
    assert_eq!(first.removed, ["forHops"]);
    let second = relayed(hop("agent://two"), first.frame);
    assert_eq!(processed(last(), second.frame.clone()).sender.as_deref(), Some("agent://sender"));
    // One that does not know the block passes it on, for it is relayable.
    assert_eq!(processed(last(), relayed(forwarding(), second.frame).frame).notes, [""; 0]);
}

#[test]
fn section_7_0_nobody_acts_on_a_block_that_was_added_on_the_way() {
    let mut added = signed();
    added.header.set("deploy", json!({"role": "next", "relay": true})).expect("a good block");
    let passed = relayed(forwarding().with(Signature::requiring(keys())), added.clone());
    assert_eq!(passed.notes, ["the block `deploy` was added on the way and is not signed"]);
    let knows = last().understanding(["deploy"]);
    assert_eq!(fault(knows.clone(), added.clone()).subcode.as_deref(), Some("SecurityViolation.Signature"));
    // Nor does whoever is given the message: it is not in it any more.
    assert!(processed(last(), added.clone()).frame.header.block("deploy").is_none());
    added.header.remove("deploy");
    processed(knows, added);
}

#[test]
fn section_7_0_a_message_must_be_signed_by_a_key_that_is_known() {
    let unsigned = frame(json!({"Body": {}}));
    assert_eq!(refused(unsigned.clone()), "SecurityViolation.Signature");
    processed(ultimate().with(Signature::checking(keys())), unsigned.clone());
    let mut stranger = unsigned;
    sign(&mut stranger, &secret(9, "agent://sender"), NOW).expect("a good block");
    assert_eq!(refused(stranger), "SecurityViolation.Signature");
}

#[test]
fn section_7_0_a_signer_is_the_agent_of_the_key() {
    let mut forged = frame(json!({"Body": {}}));
    sign(&mut forged, &secret(3, "agent://sender"), NOW).expect("a good block");
    assert_eq!(refused(forged), "SecurityViolation.Signature");
}

#[test]
fn section_7_3_a_message_that_was_signed_for_one_receiver_is_no_other_s() {
    let other = || Node::ultimate("agent://other").expect("a node").with(Signature::requiring(keys()));
    let refusal = fault(other(), signed());
    assert_eq!(refusal.subcode.as_deref(), Some("SecurityViolation.Signature"));
    assert!(refusal.text().contains("was signed for `agent://last`"), "{refusal}");
    // Neither another `routing` block nor an intermediary that signs anew makes it the other's.
    let mut diverted = signed();
    diverted.header.set("routing", json!({"role": "next", "to": "agent://other"})).expect("a good block");
    assert!(fault(other(), diverted.clone()).text().contains("agent://last"));
    let change = Change { feature: "urn:x:mask".to_owned(), what: What::SetBody("extra".to_owned(), json!(1)) };
    let key = Arc::new(secret(2, "agent://active"));
    let active = Node::active("agent://active").expect("a node").changing([change]);
    let again = relayed(active.with(Signature::requiring(keys()).signing_again(key)), diverted).frame;
    assert!(fault(other(), again).text().contains("agent://last"));
    let mut bad = signed().to_json();
    bad["frame"]["Header"]["signature"]["to"] = json!("agent://other");
    assert!(fault(other(), frame(bad["frame"].clone())).text().contains("not as it was signed"));
}

#[test]
fn section_2_7_3_an_active_intermediary_that_changes_the_body_signs_anew_or_is_refused() {
    let change = Change { feature: "urn:x:mask".to_owned(), what: What::SetBody("extra".to_owned(), json!(1)) };
    let active = || Node::active("agent://active").expect("a node").changing([change.clone()]);
    let without = relayed(active().with(Signature::requiring(keys())), signed()).frame;
    assert_eq!(refused(without), "SecurityViolation.Signature");
    let key = Arc::new(secret(2, "agent://active"));
    let again = relayed(active().with(Signature::requiring(keys()).signing_again(key)), signed()).frame;
    let taken = processed(last(), again);
    assert_eq!((taken.sender.as_deref(), &taken.frame.body["extra"]), (Some("agent://sender"), &json!(1)));
}

/// One that changes what passes, and signs it anew; it trusts who sends to it, and nobody to say of others what they sent.
fn gateway() -> Node {
    let ring: Arc<KeyRing> =
        Arc::new([secret(1, "agent://sender").public(), secret(3, "agent://other").public()].into_iter().collect());
    let change = Change { feature: "urn:x:mask".to_owned(), what: What::SetBody("extra".to_owned(), json!(1)) };
    let signature = Signature::requiring(ring.clone()).signing_again(Arc::new(secret(2, "agent://active")));
    let node = Node::active("agent://active").expect("a node").changing([change]);
    node.with(signature).with(Authentication::checking(ring))
}

#[test]
fn section_7_0_who_signs_anew_says_whose_message_it_was() {
    let presented = |agent: &str, number: u8| {
        let mut frame = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "t"}}));
        authenticate(&mut frame, &secret(number, agent), "n", NOW).expect("a good block");
        frame
    };
    let end = || last().with(Authentication::checking(keys()));
    let honest = {
        let mut frame = presented("agent://sender", 1);
        sign(&mut frame, &secret(1, "agent://sender"), NOW).expect("a good block");
        relayed(gateway(), frame).frame
    };
    assert_eq!(processed(end(), honest.clone()).sender.as_deref(), Some("agent://sender"));
    // Without the credential it is still the sender's, so that it is known when it comes again.
    let mut stripped = honest.clone();
    stripped.header.remove("authentication");
    assert_eq!(processed(end(), stripped).sender.as_deref(), Some("agent://sender"));
    // Another's message with the sender's credential, which the gateway does not look at, or which comes behind it.
    for role in ["ultimateReceiver", "monitor", "urn:agentic:mesh:role:ultimateReceiver"] {
        let mut forged = presented("agent://sender", 1);
        forged.body.insert("task".to_owned(), json!("steal"));
        let mut credential = forged.header.block("authentication").expect("it is there").properties.clone();
        credential.insert("role".to_owned(), json!(role));
        forged.header.set_block("authentication", credential).expect("a good block");
        sign(&mut forged, &secret(3, "agent://other"), NOW).expect("a good block");
        let passed = relayed(gateway(), forged).frame;
        let told = fault(end(), passed);
        assert!(told.text().contains("as another's than who presents themselves"), "{role}: {told}");
    }
    let mut own = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "steal"}}));
    sign(&mut own, &secret(3, "agent://other"), NOW).expect("a good block");
    let mut passed = relayed(gateway(), own).frame;
    assert_eq!(processed(end(), passed.clone()).sender.as_deref(), Some("agent://other"), "not the gateway's");
    let credential = honest.header.block("authentication").expect("it is there").properties.clone();
    passed.header.set_block("authentication", credential).expect("a good block");
    assert_eq!(refused_by(end(), passed), "SecurityViolation.Signature");
    // Nobody says so who may not change messages.
    let mut claimed = presented("agent://sender", 1);
    let more = [("sender", json!("agent://sender"))];
    sign_with(&mut claimed, &secret(3, "agent://other"), NOW, more).expect("a good block");
    assert!(fault(end(), claimed).text().contains("who may not change it"));
}

fn refused_by(node: Node, frame: Frame) -> String {
    fault(node, frame).subcode.unwrap_or_default()
}

#[test]
fn section_7_3_a_message_is_as_old_as_it_was_before_it_was_signed_anew() {
    let mut old = frame(json!({"Header": {"messageId": "m-1"}, "Body": {}}));
    sign(&mut old, &secret(1, "agent://sender"), NOW - jiff::SignedDuration::from_secs(3000)).expect("a good block");
    let fresh = |node: Node| node.with(Freshness::within(jiff::SignedDuration::from_secs(300)));
    let passed = relayed(gateway(), old).frame;
    assert_eq!(refused_by(fresh(last()), passed), "SecurityViolation.Stale");
    // And one that has no id can be told from its copy by nobody.
    let mut nameless = frame(json!({"Body": {}}));
    sign(&mut nameless, &secret(1, "agent://sender"), NOW).expect("a good block");
    let window = Freshness::within(jiff::SignedDuration::from_secs(300)).or_without_id();
    assert_eq!(
        refused_by(ultimate().with(Signature::checking(keys())).with(window), nameless),
        "SecurityViolation.NoId"
    );
}

#[test]
fn section_5_2_2_a_role_that_nobody_knows_is_the_end_s_and_cannot_be_taken_out() {
    let mut limits =
        frame(json!({"Header": {"messageId": "m-1", "limits": {"role": "monitor", "most": 3}}, "Body": {}}));
    sign(&mut limits, &secret(1, "agent://sender"), NOW).expect("a good block");
    processed(last(), limits.clone());
    limits.header.remove("limits");
    assert_eq!(refused(limits), "SecurityViolation.Signature");
}

struct Nothing;

impl BodySchema for Nothing {
    fn check(&self, _body: &Map<String, Value>) -> Result<(), BodyProblem> {
        Err(BodyProblem { pointer: String::new(), problem: "is never good".to_owned() })
    }
}

#[test]
fn section_7_0_a_signature_is_checked_before_the_body() {
    let mut bad = signed();
    bad.body.insert("encodingStyle".to_owned(), json!("urn:strange"));
    assert_eq!(fault(last().agreeing(Nothing), bad).subcode.as_deref(), Some("SecurityViolation.Signature"));
    assert_eq!(fault(last().agreeing(Nothing), signed()).subcode.as_deref(), Some(rules::BODY_SCHEMA));
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for key in ["algorithm", "keyId", "signer", "created", "value"] {
        let mut bad = signed().to_json();
        bad.pointer_mut("/frame/Header/signature")
            .and_then(Value::as_object_mut)
            .expect("it is there")
            .shift_remove(key);
        assert_eq!(refused(frame(bad["frame"].clone())), rules::BLOCK_CONTENT, "{key}");
    }
    let mut bad = signed().to_json();
    *bad.pointer_mut("/frame/Header/signature/algorithm").expect("it is there") = json!("none");
    assert_eq!(refused(frame(bad["frame"].clone())), "SecurityViolation.Signature");
}
