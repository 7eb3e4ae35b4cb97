//! Tests of `encryption.rs`.

use super::super::super::fault::Code;
use super::super::super::node::Node;
use super::super::super::rules;
use super::super::keys::testing::secret;
use super::super::keys::{KeyRing, Right};
use super::super::signature::{Signature, sign};
use super::super::testing::{NOW, fault, forwarding, frame, processed, relayed, ultimate};
use super::*;

fn pair(n: u8) -> KeyPair {
    KeyPair::new(&format!("box-{n}"), &[n; 32])
}

fn last() -> Node {
    ultimate().with(Encryption::with([pair(1)]))
}

fn gram() -> Map<String, Value> {
    let gram = json!({
        "id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n", "type": "note", "attributes": {"text": "a secret"}}], "edges": [], "role": "ultimateReceiver"
    });
    gram.as_object().expect("an object").clone()
}

fn sealed() -> Frame {
    let mut frame = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "a secret", "n": [1, 2.5]}}));
    seal_body(&mut frame, &pair(1).recipient()).expect("it seals");
    frame.memory_grams = Some(vec![seal_gram(&gram(), &pair(1).recipient()).expect("it seals")]);
    frame
}

#[test]
fn section_7_2_only_the_recipient_reads_the_body_and_the_gram() {
    let sent = sealed();
    assert!(!sent.to_json().to_string().contains("a secret"));
    let passed = relayed(forwarding().with(Encryption::with([pair(1)])), sent.clone());
    assert_eq!(passed.frame, sent, "an intermediary opens nothing, even with the key");
    let opened = processed(last(), passed.frame);
    assert_eq!(Value::Object(opened.frame.body.clone()), json!({"task": "a secret", "n": [1, 2.5]}));
    assert_eq!(opened.grams.len(), 1);
    assert_eq!(opened.frame.grams(), [gram()]);
}

#[test]
fn section_7_0_what_does_not_open_is_refused_before_the_body_is_processed() {
    let good = sealed().to_json();
    let other = {
        let mut other = frame(json!({"Header": {"messageId": "m-1"}, "Body": {}}));
        seal_body(&mut other, &pair(1).recipient()).expect("it seals");
        other.to_json()
    };
    let changes = [
        ("/frame/Header/messageId", json!("m-2")),
        ("/frame/Header/encryption/enc", other["frame"]["Header"]["encryption"]["enc"].clone()),
        ("/frame/Header/encryption/scheme", json!("homomorphic")),
        ("/frame/Header/encryption/keyId", json!("box-2")),
        ("/frame/Body/sealed", other["frame"]["Body"]["sealed"].clone()),
        ("/frame/Body/sealed", json!("no base64")),
        ("/frame/Body", json!({"task": "in the open"})),
        ("/frame/MemoryGrams/0/id", json!("550e8400-e29b-41d4-a716-446655440001")),
        ("/frame/MemoryGrams/0/sealed", json!("AAAA")),
    ];
    for (pointer, value) in changes {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        let refused = fault(last(), frame(bad["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Encryption"), "{pointer}");
        assert!(refused.escalate_to_human);
    }
    let stranger = fault(ultimate().with(Encryption::with([pair(2)])), sealed());
    assert_eq!(stranger.subcode.as_deref(), Some("SecurityViolation.Encryption"));
}

#[test]
fn section_7_0_a_node_without_the_module_does_not_take_a_sealed_body_for_a_body() {
    let refused = fault(ultimate(), sealed());
    assert_eq!((refused.code, refused.not_understood), (Code::MustUnderstand, vec!["encryption".to_owned()]));
}

#[test]
fn section_1_4_a_gram_for_another_key_stays_sealed_unless_it_is_mandatory() {
    let with = |more: Value| {
        let mut gram = gram();
        gram.extend(more.as_object().expect("an object").clone());
        let mut frame = frame(json!({"Body": {}}));
        frame.memory_grams = Some(vec![seal_gram(&gram, &pair(2).recipient()).expect("it seals")]);
        frame
    };
    let kept = processed(last(), with(json!({})));
    assert!(kept.grams.is_empty() && kept.frame.grams().len() == 1);
    let refused = fault(last(), with(json!({"mustUnderstand": true})));
    assert_eq!((refused.code, refused.not_understood), (Code::MustUnderstand, vec!["memoryGrams".to_owned()]));
    processed(ultimate().with(Encryption::with([pair(2)])), with(json!({"mustUnderstand": true})));
}

#[test]
fn section_6_0_a_gram_is_validated_when_it_is_opened() {
    let mut bad = gram();
    bad.insert("timestamp".to_owned(), json!("yesterday"));
    let mut frame = frame(json!({"Body": {}}));
    frame.memory_grams = Some(vec![seal_gram(&bad, &pair(1).recipient()).expect("it seals")]);
    assert_eq!(fault(last(), frame).subcode.as_deref(), Some(rules::GRAM));
}

#[test]
fn section_7_0_the_sizes_hold_for_all_grams_together_when_they_are_open() {
    let mut frame = frame(json!({"Body": {}}));
    let mut second = gram();
    second.insert("id".to_owned(), json!("550e8400-e29b-41d4-a716-446655440001"));
    frame.memory_grams = Some(vec![gram(), second]);
    seal_grams(&mut frame, &pair(1).recipient()).expect("it seals");
    let mut node = last();
    node.limits.nodes = 2;
    assert_eq!(processed(node.clone(), frame.clone()).grams.len(), 2);
    node.limits.nodes = 1;
    let refused = fault(node, frame);
    assert_eq!(
        (refused.subcode.as_deref(), refused.pointer()),
        (Some(rules::LIMIT_EXCEEDED), Some("/frame/MemoryGrams"))
    );
}

#[test]
fn section_7_2_all_grams_of_a_frame_are_sealed_and_none_twice() {
    let mut frame = frame(json!({"Body": {}}));
    let other = seal_gram(&gram(), &pair(2).recipient()).expect("it seals");
    let mut second = gram();
    second.insert("id".to_owned(), json!("550e8400-e29b-41d4-a716-446655440001"));
    frame.memory_grams =
        Some(vec![json!({"MemoryGram": second}).as_object().expect("an object").clone(), other.clone()]);
    seal_grams(&mut frame, &pair(1).recipient()).expect("it seals");
    assert!(!frame.to_json().to_string().contains("a secret"));
    assert_eq!(frame.grams()[1], other);
    let opened = processed(last(), frame);
    assert_eq!((opened.grams.len(), &opened.frame.grams()[0]), (1, &second));
}

#[test]
fn section_7_0_what_is_signed_is_what_travels_sealed() {
    let ring: KeyRing = [secret(1, "agent://sender").public().with(Right::Change)].into_iter().collect();
    let ring = Arc::new(ring);
    let mut sent = sealed();
    sign(&mut sent, &secret(1, "agent://sender"), NOW).expect("a good block");
    // An intermediary checks the signature of what it cannot read.
    let passed = relayed(forwarding().with(Signature::requiring(ring.clone())), sent).frame;
    let opened = processed(last().with(Signature::requiring(ring)), passed);
    assert_eq!(opened.frame.body["task"], json!("a secret"));
}

#[test]
fn section_7_0_what_was_sealed_is_held_to_the_same_sizes() {
    let mut node = last();
    node.limits.depth = 3;
    let mut deep = frame(json!({"Body": {"a": [[[[1]]]]}}));
    seal_body(&mut deep, &pair(1).recipient()).expect("it seals");
    assert_eq!(fault(node, deep).subcode.as_deref(), Some(rules::LIMIT_EXCEEDED));
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for key in ["scheme", "keyId", "enc"] {
        let mut bad = sealed().to_json();
        bad.pointer_mut("/frame/Header/encryption").and_then(Value::as_object_mut).expect("there").shift_remove(key);
        assert_eq!(fault(last(), frame(bad["frame"].clone())).subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{key}");
    }
}

#[test]
fn keys_are_read_from_base64_and_nothing_is_sealed_twice() {
    let public = pair(1).recipient().to_base64();
    assert_eq!(Recipient::new("box-1", &public).map(|key| key.to_base64()), Ok(public));
    assert!(Recipient::new("box-1", "AAAA").is_err() && Recipient::new("box-1", "no base64").is_err());
    assert!(!format!("{:?}", pair(1)).contains("secret"));
    let mut sent = sealed();
    assert_eq!(seal_body(&mut sent, &pair(1).recipient()), Err(EncryptionError::Sealed));
    assert_eq!(seal_gram(&sent.grams()[0], &pair(1).recipient()), Err(EncryptionError::Sealed));
}
