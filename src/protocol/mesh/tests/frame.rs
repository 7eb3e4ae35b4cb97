//! Tests of `frame.rs`.

use serde_json::{Value, json};

use super::super::fault::FaultCode;
use super::super::role::{Role, RoleRegistry};
use super::*;

fn parse(text: &str) -> Result<Frame, Box<Fault>> {
    Frame::parse(text.as_bytes(), &FrameLimits::default())
}

fn rejection(message: Value) -> (FaultCode, String, String) {
    let fault = parse(&message.to_string()).expect_err("must be refused");
    let pointer = fault.pointer().unwrap_or("none").to_owned();
    (fault.code, fault.subcode.unwrap_or_default(), pointer)
}

fn sender_rejection(rule: &str, pointer: &str) -> (FaultCode, String, String) {
    (FaultCode::Sender, rule.to_owned(), pointer.to_owned())
}

#[test]
fn section_5_a_frame_round_trips_in_order() {
    let text = r#"{"frame":{"version":"1.0","Header":{"zulu":{"b":1,"a":2.50},"messageId":"m","headerBlocks":[{"type":"x","content":[]}],"other":[1]},"Body":{"z":null,"a":{}},"MemoryGrams":[{"id":"g"}]}}"#;
    let frame = parse(text).expect("a valid frame");
    assert_eq!(String::from_utf8(frame.to_bytes()).expect("UTF-8"), text.replace("2.50", "2.5"));
    assert_eq!(Frame::parse(&frame.to_bytes(), &FrameLimits::default()), Ok(frame));
    for text in [
        r#"{"frame":{"Body":{}}}"#,
        r#"{"frame":{"Header":{},"Body":{}}}"#,
        r#"{"frame":{"Body":{},"MemoryGrams":[]}}"#,
    ] {
        assert_eq!(String::from_utf8(parse(text).expect("a valid frame").to_bytes()).expect("UTF-8"), text);
    }
}

#[test]
fn section_5_a_message_has_one_frame_root() {
    assert_eq!(rejection(json!([])), sender_rejection(rules::FRAME_ROOT, ""));
    assert_eq!(rejection(json!({})), sender_rejection(rules::FRAME_ROOT, ""));
    assert_eq!(rejection(json!({"Frame": {"Body": {}}})), sender_rejection(rules::FRAME_ROOT, ""));
    assert_eq!(rejection(json!({"frame": [{"Body": {}}]})), sender_rejection(rules::FRAME_ROOT, "/frame"));
    let twice = parse(r#"{"frame":{"Body":{}},"frame":{"Body":{}}}"#).expect_err("two frames");
    assert_eq!(twice.subcode.as_deref(), Some(rules::DUPLICATE_KEY));
    assert_eq!(
        rejection(json!({"frame": {"Body": {}, "frame": {"Body": {}}}})),
        sender_rejection(rules::NESTED_FRAME, "/frame")
    );
    assert_eq!(
        rejection(json!({"frame": {"Body": {"frame": {"Body": {}}}}})),
        sender_rejection(rules::NESTED_FRAME, "/frame")
    );
    assert!(parse(r#"{"frame":{"Body":{"frame":{"width":3}}}}"#).is_ok());
}

#[test]
fn section_5_extraneous_keys_are_refused() {
    assert_eq!(
        rejection(json!({"frame": {"Body": {}}, "extra": 1})),
        sender_rejection(rules::EXTRANEOUS_KEY, "/extra")
    );
    assert_eq!(
        rejection(json!({"frame": {"Body": {}, "headers": []}})),
        sender_rejection(rules::EXTRANEOUS_KEY, "/frame/headers")
    );
    assert_eq!(
        rejection(json!({"frame": {"Body": {}, "a/b": 1}})),
        sender_rejection(rules::EXTRANEOUS_KEY, "/frame/a~1b")
    );
}

#[test]
fn section_1_3_and_5_header_body_and_memory_grams_are_present_and_typed() {
    assert_eq!(rejection(json!({"frame": {}})), sender_rejection(rules::BODY, "/frame"));
    for body in [json!(null), json!([]), json!("x"), json!(1)] {
        assert_eq!(rejection(json!({"frame": {"Body": body}})), sender_rejection(rules::BODY, "/frame/Body"));
    }
    for header in [json!(null), json!([]), json!("x")] {
        assert_eq!(
            rejection(json!({"frame": {"Header": header, "Body": {}}})),
            sender_rejection(rules::HEADER, "/frame/Header")
        );
    }
    for grams in [json!(null), json!({}), json!("x")] {
        let message = json!({"frame": {"Body": {}, "MemoryGrams": grams}});
        assert_eq!(rejection(message), sender_rejection(rules::MEMORY_GRAMS, "/frame/MemoryGrams"));
    }
    let message = json!({"frame": {"Body": {}, "MemoryGrams": [{}, []]}});
    assert_eq!(rejection(message), sender_rejection(rules::MEMORY_GRAMS, "/frame/MemoryGrams/1"));
}

#[test]
fn section_2_8_the_version_is_checked_before_the_rest_of_the_frame() {
    for frame in [
        json!({"version": "2.0"}),
        json!({"version": "2.0", "Header": 1, "Body": 2, "other": 3}),
        json!({"version": "2.0", "Body": {}, "frame": {"Body": {}}}),
    ] {
        let fault = parse(&json!({"frame": frame, "beside": 1}).to_string()).expect_err("another version");
        assert_eq!((fault.code, fault.supported_versions.len()), (FaultCode::VersionMismatch, 1));
    }
    assert_eq!(
        rejection(json!({"frame": {"version": 1.0, "Body": {}}})),
        sender_rejection(rules::VERSION_TYPE, "/frame/version")
    );
    assert!(parse(r#"{"frame":{"version":"1.0.0","Body":{}}}"#).is_ok());
}

#[test]
fn section_5_2_1_keys_are_camel_case_and_unique() {
    for name in ["Routing", "alert-control", "", "urn:x"] {
        let pointer = format!("/frame/Header/{name}");
        assert_eq!(
            rejection(json!({"frame": {"Header": {name: {}}, "Body": {}}})),
            sender_rejection(rules::BLOCK_NAME, &pointer)
        );
        let listed = json!({"frame": {"Header": {"headerBlocks": [{"type": name}]}, "Body": {}}});
        assert_eq!(rejection(listed), sender_rejection(rules::BLOCK_NAME, "/frame/Header/headerBlocks/0"));
    }
    let twice = parse(r#"{"frame":{"Header":{"a":{},"a":{}},"Body":{}}}"#).expect_err("twice");
    assert_eq!(twice.subcode.as_deref(), Some(rules::DUPLICATE_KEY));
    let both = json!({"frame": {"Header": {"a": {}, "headerBlocks": [{"type": "b"}, {"type": "a"}]}, "Body": {}}});
    assert_eq!(rejection(both), sender_rejection(rules::BLOCK_TWICE, "/frame/Header/headerBlocks/1"));
    let listed = json!({"frame": {"Header": {"headerBlocks": [{"type": "b"}, {"type": "b"}]}, "Body": {}}});
    assert_eq!(rejection(listed), sender_rejection(rules::BLOCK_TWICE, "/frame/Header/headerBlocks/1"));
}

#[test]
fn section_5_3_1_body_keys_are_unique() {
    let twice = parse(r#"{"frame":{"Body":{"task":1,"task":2}}}"#).expect_err("twice");
    assert_eq!((twice.code, twice.subcode.as_deref()), (FaultCode::Sender, Some(rules::DUPLICATE_KEY)));
}

#[test]
fn section_5_2_1_core_properties_are_validated_in_both_forms() {
    for (key, rule) in
        [("mustUnderstand", rules::MUST_UNDERSTAND_TYPE), ("relay", rules::RELAY_TYPE), ("role", rules::ROLE_TYPE)]
    {
        let keyed = json!({"frame": {"Header": {"a": {key: []}}, "Body": {}}});
        assert_eq!(rejection(keyed), sender_rejection(rule, &format!("/frame/Header/a/{key}")));
        let listed = json!({"frame": {"Header": {"headerBlocks": [{"type": "a", key: []}]}, "Body": {}}});
        assert_eq!(rejection(listed), sender_rejection(rule, &format!("/frame/Header/headerBlocks/0/{key}")));
    }
}

#[test]
fn section_5_2_2_and_5_2_4_nested_role_and_relay_are_ignored() {
    let text = r#"{"frame":{"Header":{"relay":7,"role":"none","audit":{"deep":{"role":5,"relay":"x","mustUnderstand":[]}}},"Body":{"role":1}}}"#;
    let frame = parse(text).expect("they mean nothing there");
    let blocks = frame.header.blocks();
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].role(&RoleRegistry::default()), Role::UltimateReceiver);
    assert!(!blocks[0].is_relayable() && !blocks[0].must_understand());
    assert_eq!(String::from_utf8(frame.to_bytes()).expect("UTF-8"), text);
}

#[test]
fn section_1_4_message_fields_have_the_right_types() {
    let bad = [
        ("messageId", json!(5)),
        ("messageId", json!("")),
        ("traceId", json!(null)),
        ("roles", json!("monitor")),
        ("roles", json!([1])),
        ("routingIntent", json!(1)),
        ("ttl", json!(-1)),
        ("ttl", json!(1.5)),
        ("ttl", json!("3")),
        ("notUnderstood", json!(["Not-Camel"])),
        ("notUnderstood", json!("x")),
    ];
    for (key, value) in bad {
        let message = json!({"frame": {"Header": {key: value}, "Body": {}}});
        assert_eq!(
            rejection(message),
            sender_rejection(rules::HEADER_FIELD, &format!("/frame/Header/{key}")),
            "{key} {value}"
        );
    }
    for blocks in [json!({}), json!("x")] {
        let message = json!({"frame": {"Header": {"headerBlocks": blocks}, "Body": {}}});
        assert_eq!(rejection(message).1, rules::HEADER_FIELD);
    }
    for block in [json!(1), json!({}), json!({"type": 1})] {
        let message = json!({"frame": {"Header": {"headerBlocks": [block]}, "Body": {}}});
        assert_eq!(rejection(message), sender_rejection(rules::HEADER_BLOCKS, "/frame/Header/headerBlocks/0"));
    }
}

#[test]
fn section_7_0_sizes_are_limited() {
    let limits = FrameLimits { blocks: 2, grams: 1, nodes: 2, edges: 1, ..FrameLimits::default() };
    let refused = |frame: Value| {
        let fault = Frame::parse(json!({"frame": frame}).to_string().as_bytes(), &limits).expect_err("too much");
        (fault.subcode.clone().unwrap_or_default(), fault.pointer().unwrap_or_default().to_owned())
    };
    let over = |pointer: &str| (rules::LIMIT_EXCEEDED.to_owned(), pointer.to_owned());
    assert_eq!(refused(json!({"Header": {"a": {}, "b": {}, "c": {}}, "Body": {}})), over("/frame/Header"));
    let listed = json!({"Header": {"headerBlocks": [{"type": "a"}, {"type": "b"}]}, "Body": {}});
    assert_eq!(refused(listed), over("/frame/Header"));
    assert_eq!(refused(json!({"Body": {}, "MemoryGrams": [{}, {}]})), over("/frame/MemoryGrams"));
    assert_eq!(refused(json!({"Body": {}, "MemoryGrams": [{"nodes": [1, 2, 3]}]})), over("/frame/MemoryGrams"));
    let wrapped = json!({"Body": {}, "MemoryGrams": [{"MemoryGram": {"nodes": [], "edges": [1, 2]}}]});
    assert_eq!(refused(wrapped), over("/frame/MemoryGrams"));
    assert!(
        Frame::parse(
            br#"{"frame":{"Header":{"a":{},"b":{}},"Body":{},"MemoryGrams":[{"nodes":[1,2],"edges":[1]}]}}"#,
            &limits
        )
        .is_ok()
    );
}

#[test]
fn a_fault_for_a_malformed_frame_names_its_message() {
    let text = r#"{"frame":{"Header":{"messageId":"m-1","traceId":"t-1"},"Body":[]}}"#;
    let fault = parse(text).expect_err("a bad Body");
    assert_eq!((fault.relates_to.as_deref(), fault.trace_id.as_deref()), (Some("m-1"), Some("t-1")));
    let text = r#"{"frame":{"version":"7.0","Header":{"messageId":"m-2"}}}"#;
    assert_eq!(parse(text).expect_err("another version").relates_to.as_deref(), Some("m-2"));
}

#[test]
fn section_2_7_2_1_a_missing_header_is_created_and_blocks_keep_their_form() {
    let mut frame = parse(r#"{"frame":{"Body":{}}}"#).expect("a valid frame");
    let block = json!({"role": "next", "hops": 3}).as_object().expect("an object").clone();
    frame.header.set_block("ttl", block.clone()).expect("a valid block");
    assert_eq!(frame.to_json(), json!({"frame": {"Header": {"ttl": {"role": "next", "hops": 3}}, "Body": {}}}));
    let mut frame = parse(r#"{"frame":{"Header":{"headerBlocks":[{"type":"a"},{"type":"ttl"}]},"Body":{}}}"#)
        .expect("a valid block");
    frame.header.set_block("ttl", block).expect("a valid block");
    assert_eq!(frame.header.block("ttl").expect("present").content()["hops"], json!(3));
    assert_eq!(frame.header.block("ttl").expect("present").form, BlockForm::Listed);
    assert_eq!(frame.header.remove("a").map(|entry| entry["type"].clone()), Some(json!("a")));
    assert_eq!(frame.header.blocks().len(), 1);
    assert!(frame.header.set_block("Bad-Name", Map::new()).is_err());
    assert!(frame.header.set("messageId", json!(5)).is_err());
    assert!(frame.header.set("messageId", json!("m")).is_ok());
}
