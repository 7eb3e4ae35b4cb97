//! Tests of `encryption.rs`.

use super::super::super::fault::FaultCode;
use super::super::super::node::Node;
use super::super::super::rules;
use super::super::keys::{KeyPermission, KeyRing};
use super::super::signature::{Signature, sign};
use super::*;
use crate::protocol::mesh::tests::support::{
    NOW, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, secret_key, ultimate_receiver,
};

fn key_pair(n: u8) -> RecipientKeyPair {
    RecipientKeyPair::new(&format!("box-{n}"), &[n; 32])
}

fn last() -> Node {
    ultimate_receiver().with_module(Encryption::with_keys([key_pair(1)]))
}

fn gram() -> Map<String, Value> {
    let gram = json!({
        "id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n", "type": "note", "attributes": {"text": "a secret"}}], "edges": [], "role": "ultimateReceiver"
    });
    gram.as_object().expect("an object").clone()
}

fn encrypted_frame() -> Frame {
    let mut frame = frame(json!({"Header": {"messageId": "m-1"}, "Body": {"task": "a secret", "n": [1, 2.5]}}));
    encrypt_body(&mut frame, &key_pair(1).recipient_key()).expect("encrypted");
    frame.memory_grams = Some(vec![encrypt_gram(&gram(), &key_pair(1).recipient_key()).expect("encrypted")]);
    frame
}

#[test]
fn section_7_2_only_the_recipient_decrypts_the_body_and_the_gram() {
    let sent = encrypted_frame();
    assert!(!sent.to_json().to_string().contains("a secret"));
    let passed =
        expect_relayed(forwarding_intermediary().with_module(Encryption::with_keys([key_pair(1)])), sent.clone());
    assert_eq!(passed.frame, sent, "an intermediary does not decrypt, even with the key");
    let opened = expect_processed(last(), passed.frame);
    assert_eq!(Value::Object(opened.frame.body.clone()), json!({"task": "a secret", "n": [1, 2.5]}));
    assert_eq!(opened.grams.len(), 1);
    assert_eq!(opened.frame.memory_grams_or_empty(), [gram()]);
}

#[test]
fn section_7_0_a_decryption_failure_is_refused_before_the_body_is_processed() {
    let good = encrypted_frame().to_json();
    let other = {
        let mut other = frame(json!({"Header": {"messageId": "m-1"}, "Body": {}}));
        encrypt_body(&mut other, &key_pair(1).recipient_key()).expect("encrypted");
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
        let refused = expect_fault(last(), frame(bad["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Encryption"), "{pointer}");
        assert!(refused.escalate_to_human);
    }
    let stranger =
        expect_fault(ultimate_receiver().with_module(Encryption::with_keys([key_pair(2)])), encrypted_frame());
    assert_eq!(stranger.subcode.as_deref(), Some("SecurityViolation.Encryption"));
}

#[test]
fn section_7_0_a_node_without_the_module_refuses_an_encrypted_body() {
    let refused = expect_fault(ultimate_receiver(), encrypted_frame());
    assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec!["encryption".to_owned()]));
}

#[test]
fn section_1_4_an_optional_gram_for_another_key_stays_encrypted() {
    let with = |more: Value| {
        let mut gram = gram();
        gram.extend(more.as_object().expect("an object").clone());
        let mut frame = frame(json!({"Body": {}}));
        frame.memory_grams = Some(vec![encrypt_gram(&gram, &key_pair(2).recipient_key()).expect("encrypted")]);
        frame
    };
    let processed = expect_processed(last(), with(json!({})));
    assert!(processed.grams.is_empty() && processed.frame.memory_grams_or_empty().len() == 1);
    let refused = expect_fault(last(), with(json!({"mustUnderstand": true})));
    assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec!["memoryGrams".to_owned()]));
    expect_processed(
        ultimate_receiver().with_module(Encryption::with_keys([key_pair(2)])),
        with(json!({"mustUnderstand": true})),
    );
}

#[test]
fn section_6_0_a_gram_is_validated_after_decryption() {
    let mut bad = gram();
    bad.insert("timestamp".to_owned(), json!("yesterday"));
    let mut frame = frame(json!({"Body": {}}));
    frame.memory_grams = Some(vec![encrypt_gram(&bad, &key_pair(1).recipient_key()).expect("encrypted")]);
    assert_eq!(expect_fault(last(), frame).subcode.as_deref(), Some(rules::GRAM));
}

#[test]
fn section_7_0_limits_apply_to_all_decrypted_grams_together() {
    let mut frame = frame(json!({"Body": {}}));
    let mut second = gram();
    second.insert("id".to_owned(), json!("550e8400-e29b-41d4-a716-446655440001"));
    frame.memory_grams = Some(vec![gram(), second]);
    encrypt_grams(&mut frame, &key_pair(1).recipient_key()).expect("encrypted");
    let mut node = last();
    node.limits.nodes = 2;
    assert_eq!(expect_processed(node.clone(), frame.clone()).grams.len(), 2);
    node.limits.nodes = 1;
    let refused = expect_fault(node, frame);
    assert_eq!(
        (refused.subcode.as_deref(), refused.pointer()),
        (Some(rules::LIMIT_EXCEEDED), Some("/frame/MemoryGrams"))
    );
}

#[test]
fn section_7_2_all_grams_of_a_frame_are_encrypted_once() {
    let mut frame = frame(json!({"Body": {}}));
    let other = encrypt_gram(&gram(), &key_pair(2).recipient_key()).expect("encrypted");
    let mut second = gram();
    second.insert("id".to_owned(), json!("550e8400-e29b-41d4-a716-446655440001"));
    frame.memory_grams =
        Some(vec![json!({"MemoryGram": second}).as_object().expect("an object").clone(), other.clone()]);
    encrypt_grams(&mut frame, &key_pair(1).recipient_key()).expect("encrypted");
    assert!(!frame.to_json().to_string().contains("a secret"));
    assert_eq!(frame.memory_grams_or_empty()[1], other);
    let opened = expect_processed(last(), frame);
    assert_eq!((opened.grams.len(), &opened.frame.memory_grams_or_empty()[0]), (1, &second));
}

#[test]
fn section_7_0_the_signature_covers_the_encrypted_form() {
    let ring: KeyRing = [secret_key(1, "agent://sender").public_key().with_permission(KeyPermission::ModifyMessages)]
        .into_iter()
        .collect();
    let ring = Arc::new(ring);
    let mut sent = encrypted_frame();
    sign(&mut sent, &secret_key(1, "agent://sender"), NOW).expect("a valid block");
    // An intermediary verifies the signature of the ciphertext.
    let passed = expect_relayed(forwarding_intermediary().with_module(Signature::required(ring.clone())), sent).frame;
    let opened = expect_processed(last().with_module(Signature::required(ring)), passed);
    assert_eq!(opened.frame.body["task"], json!("a secret"));
}

#[test]
fn section_7_0_limits_apply_to_the_decrypted_body() {
    let mut node = last();
    node.limits.depth = 3;
    let mut deep = frame(json!({"Body": {"a": [[[[1]]]]}}));
    encrypt_body(&mut deep, &key_pair(1).recipient_key()).expect("encrypted");
    assert_eq!(expect_fault(node, deep).subcode.as_deref(), Some(rules::LIMIT_EXCEEDED));
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for key in ["scheme", "keyId", "enc"] {
        let mut bad = encrypted_frame().to_json();
        bad.pointer_mut("/frame/Header/encryption").and_then(Value::as_object_mut).expect("there").shift_remove(key);
        assert_eq!(
            expect_fault(last(), frame(bad["frame"].clone())).subcode.as_deref(),
            Some(rules::BLOCK_CONTENT),
            "{key}"
        );
    }
}

#[test]
fn keys_parse_from_base64_and_nothing_is_encrypted_twice() {
    let public = key_pair(1).recipient_key().to_base64();
    assert_eq!(RecipientKey::new("box-1", &public).map(|key| key.to_base64()), Ok(public));
    assert!(RecipientKey::new("box-1", "AAAA").is_err() && RecipientKey::new("box-1", "no base64").is_err());
    assert!(!format!("{:?}", key_pair(1)).contains("secret"));
    let mut sent = encrypted_frame();
    assert_eq!(encrypt_body(&mut sent, &key_pair(1).recipient_key()), Err(EncryptionError::AlreadyEncrypted));
    assert_eq!(
        encrypt_gram(&sent.memory_grams_or_empty()[0], &key_pair(1).recipient_key()),
        Err(EncryptionError::AlreadyEncrypted)
    );
}
