//! Tests of `validation.rs`.

use serde_json::json;

use super::*;
use crate::protocol::mesh::tests::support::{
    expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, ultimate_receiver,
};

fn body() -> Value {
    json!({"task": {"items": [{"quantity": 2}], "name": "é"}, "n": 1.5})
}

#[test]
fn section_7_0_a_body_is_checked_against_its_sender_s_promises() {
    let cases = [
        (json!({"required": ["/task/items/0/quantity", "/n"]}), None),
        (json!({"required": ["/task/items/1"]}), Some("/frame/Body/task/items/1")),
        (
            json!({"types": {"/task": "object", "/task/items/0/quantity": "integer", "/n": "number", "/none": "null"}}),
            None,
        ),
        (json!({"types": {"/n": "integer"}}), Some("/frame/Body/n")),
        (json!({"types": {"/task/name": "array"}}), Some("/frame/Body/task/name")),
        (json!({"maxBytes": 10}), Some("/frame/Body")),
        (json!({"maxBytes": 100}), None),
        (json!({"schemaVersion": "1.2.0"}), None),
        (json!({"schemaVersion": "9"}), Some("/frame/Body")),
    ];
    for (block, refused) in cases {
        let sent = frame(json!({"Header": {"validation": block}, "Body": body()}));
        let node = ultimate_receiver().with_module(Validation::with_schema_versions(["1.2.0"]));
        match refused {
            None => assert_eq!(expect_processed(node, sent).processed_blocks, ["validation"], "{block}"),
            Some(pointer) => {
                let fault = expect_fault(node, sent);
                assert_eq!(fault.subcode.as_deref(), Some(rules::BODY_SCHEMA), "{block}");
                assert_eq!(fault.pointer(), Some(pointer));
            }
        }
    }
    let anything = frame(json!({"Header": {"validation": {"schemaVersion": "9"}}, "Body": {}}));
    expect_processed(ultimate_receiver().with_module(Validation::default()), anything);
    let next = frame(json!({"Header": {"validation": {"role": "next", "required": ["/x"]}}, "Body": {}}));
    assert_eq!(expect_relayed(forwarding_intermediary().with_module(Validation::default()), next.clone()).frame, next);
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for block in
        [json!({"required": "/x"}), json!({"types": {"/x": "date"}}), json!({"types": []}), json!({"maxBytes": -1})]
    {
        let sent = frame(json!({"Header": {"validation": block}, "Body": {}}));
        let refused = expect_fault(ultimate_receiver().with_module(Validation::default()), sent);
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
    }
}
