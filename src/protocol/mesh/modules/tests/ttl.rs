//! Tests of `ttl.rs`.

use super::super::super::frame::Frame;
use super::*;
use crate::protocol::mesh::tests::support::{
    expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, ultimate_receiver,
};

#[test]
fn section_1_4_every_hop_decrements_and_the_receiver_accepts_zero() {
    let mut frame = frame(json!({"Header": {"messageId": "m", "ttl": 2}, "Body": {}}));
    for left in [1, 0] {
        frame = expect_relayed(forwarding_intermediary().with_module(Ttl), frame).frame;
        assert_eq!(frame.header.get("ttl"), Some(&json!(left)));
    }
    let ended = expect_fault(forwarding_intermediary().with_module(Ttl), frame.clone());
    assert_eq!((ended.code.as_str(), ended.subcode.as_deref()), ("Sender", Some("amp:TTLExpired")));
    assert_eq!(ended.relates_to.as_deref(), Some("m"));
    expect_processed(ultimate_receiver().with_module(Ttl), frame);
}

#[test]
fn section_1_3_forms_of_one_value_are_equivalent() {
    for form in ["2", "2.0", "20e-1"] {
        let text = |ttl: &str| format!(r#"{{"frame":{{"Header":{{"ttl":{ttl}}},"Body":{{}}}}}}"#);
        let plain = Frame::parse(text(form).as_bytes(), &Default::default()).expect("a valid frame");
        assert_eq!(
            expect_relayed(forwarding_intermediary().with_module(Ttl), plain).frame.header.get("ttl"),
            Some(&json!(1)),
            "{form}"
        );
        let block = text(&format!(r#"{{"role":"next","hops":{form}}}"#));
        let block = Frame::parse(block.as_bytes(), &Default::default()).expect("a valid frame");
        let sent = expect_relayed(forwarding_intermediary().with_module(Ttl), block).frame.to_json();
        assert_eq!(sent["frame"]["Header"]["ttl"]["hops"], json!(1), "{form}");
    }
    let none =
        Frame::parse(br#"{"frame":{"Header":{"ttl":0.0},"Body":{}}}"#, &Default::default()).expect("a valid block");
    assert_eq!(
        expect_fault(forwarding_intermediary().with_module(Ttl), none).subcode.as_deref(),
        Some("amp:TTLExpired")
    );
}

#[test]
fn section_1_5_2_an_expired_message_is_refused_at_any_node() {
    let with = |expires: &str| frame(json!({"Header": {"ttl": {"role": "next", "expires": expires}}, "Body": {}}));
    for late in ["1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T01:00:00+01:00"] {
        assert_eq!(
            expect_fault(ultimate_receiver().with_module(Ttl), with(late)).subcode.as_deref(),
            Some("amp:TTLExpired"),
            "{late}"
        );
        assert_eq!(
            expect_fault(forwarding_intermediary().with_module(Ttl), with(late)).subcode.as_deref(),
            Some("amp:TTLExpired"),
            "{late}"
        );
    }
    expect_processed(ultimate_receiver().with_module(Ttl), with("1970-01-01T00:00:01Z"));
    assert_eq!(
        expect_relayed(forwarding_intermediary().with_module(Ttl), with("1970-01-01T00:00:01Z")).frame,
        with("1970-01-01T00:00:01Z")
    );
}

#[test]
fn section_2_7_1_and_2_7_2_the_block_is_reinserted_with_one_hop_less_in_both_forms() {
    let keyed = json!({"Header": {"ttl": {"role": "next", "hops": 3, "more": 1}}, "Body": {}});
    let sent = expect_relayed(forwarding_intermediary().with_module(Ttl), frame(keyed)).frame.to_json();
    assert_eq!(sent["frame"]["Header"]["ttl"], json!({"role": "next", "hops": 2, "more": 1}));
    let listed =
        json!({"Header": {"headerBlocks": [{"type": "ttl", "role": "next", "content": {"hops": 3}}]}, "Body": {}});
    let sent = expect_relayed(forwarding_intermediary().with_module(Ttl), frame(listed)).frame.to_json();
    let expected = json!([{"type": "ttl", "role": "next", "content": {"hops": 2}}]);
    assert_eq!(sent["frame"]["Header"]["headerBlocks"], expected);
}

#[test]
fn section_2_3_a_block_for_another_role_is_left_unchanged() {
    let value = json!({"Header": {"ttl": {"hops": 0, "expires": "1960-01-01T00:00:00Z"}}, "Body": {}});
    assert_eq!(
        expect_relayed(forwarding_intermediary().with_module(Ttl), frame(value.clone())).frame,
        frame(value.clone())
    );
    assert_eq!(
        expect_fault(ultimate_receiver().with_module(Ttl), frame(value)).subcode.as_deref(),
        Some("amp:TTLExpired")
    );
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for block in [json!({"hops": -1}), json!({"hops": "3"}), json!({"expires": "soon"}), json!({"expires": 7})] {
        let refused =
            expect_fault(ultimate_receiver().with_module(Ttl), frame(json!({"Header": {"ttl": block}, "Body": {}})));
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
    }
}
