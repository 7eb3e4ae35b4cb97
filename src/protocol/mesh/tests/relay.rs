//! Tests of Table 3 (2.7.1) in `relay.rs`, and of the changes of active intermediaries.

use serde_json::{Value, json};

use super::super::change::{APPLIED_BLOCK, ChangeAction, FrameChange};
use super::super::tests::support::{expect_processed, expect_relayed, forwarding_intermediary, frame};
use super::*;

/// Whether a block is in the relayed frame; the same for both forms.
fn is_block_forwarded(node: &Node, block: Value) -> bool {
    let mut listed = block.clone();
    listed["type"] = json!("block");
    let keyed = expect_relayed(node, frame(json!({"Header": {"block": block}, "Body": {}})));
    let listed = expect_relayed(node, frame(json!({"Header": {"headerBlocks": [listed]}, "Body": {}})));
    let is_there = |relayed: &RelayedFrame| relayed.frame.header.block("block").is_some();
    assert_eq!(is_there(&keyed), is_there(&listed), "{block}");
    assert_eq!(keyed.removed_blocks.is_empty(), is_there(&keyed));
    is_there(&keyed)
}

#[test]
fn table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    for relay in [json!(true), json!(false)] {
        assert!(!is_block_forwarded(
            &forwarding_intermediary().with_understood_blocks(["block"]),
            json!({"role": "next", "relay": relay})
        ));
        assert!(is_block_forwarded(
            &forwarding_intermediary().with_reinserted_blocks(["block"]),
            json!({"role": "next", "relay": relay})
        ));
    }
}

#[test]
fn table_3_row_2_next_not_processed_is_forwarded_if_relay() {
    assert!(is_block_forwarded(&forwarding_intermediary(), json!({"role": "next", "relay": true})));
    assert!(!is_block_forwarded(&forwarding_intermediary(), json!({"role": "next", "relay": false})));
    assert!(!is_block_forwarded(&forwarding_intermediary(), json!({"role": "next"})));
}

#[test]
fn table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    let node = forwarding_intermediary().with_role("amp://example.org/cache").expect("a role");
    for relay in [json!(true), json!(false)] {
        let block = json!({"role": "amp://example.org/cache", "relay": relay});
        assert!(!is_block_forwarded(&node.clone().with_understood_blocks(["block"]), block.clone()));
        assert!(is_block_forwarded(&node.clone().with_reinserted_blocks(["block"]), block));
    }
}

#[test]
fn table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay() {
    let node = forwarding_intermediary().with_role("amp://example.org/cache").expect("a role");
    assert!(is_block_forwarded(&node, json!({"role": "amp://example.org/cache", "relay": true})));
    assert!(!is_block_forwarded(&node, json!({"role": "amp://example.org/cache", "relay": false})));
}

#[test]
fn table_3_row_4_user_defined_not_assumed_is_forwarded_and_relay_has_no_effect() {
    for relay in [json!(true), json!(false)] {
        let block = json!({"role": "amp://example.org/cache", "relay": relay, "mustUnderstand": true});
        assert!(is_block_forwarded(&forwarding_intermediary().with_understood_blocks(["block"]), block.clone()));
        assert!(is_block_forwarded(&forwarding_intermediary(), block));
    }
}

#[test]
fn table_3_row_5_ultimate_receiver_is_never_assumed_by_an_intermediary() {
    for role in [json!("ultimateReceiver"), json!("amp://role/ultimateReceiver"), json!("notRecognised")] {
        assert!(is_block_forwarded(
            &forwarding_intermediary().with_understood_blocks(["block"]),
            json!({"role": role, "mustUnderstand": true})
        ));
    }
    assert!(is_block_forwarded(&forwarding_intermediary().with_understood_blocks(["block"]), json!({})));
    let last = Node::ultimate_receiver("agent://last").expect("a node").with_understood_blocks(["block"]);
    let processed =
        expect_processed(last, frame(json!({"Header": {"block": {"role": "ultimateReceiver"}}, "Body": {}})));
    assert_eq!(processed.processed_blocks, ["block"]);
}

#[test]
fn table_3_row_6_none_is_always_relayed() {
    for relay in [json!(true), json!(false)] {
        assert!(is_block_forwarded(
            &forwarding_intermediary().with_understood_blocks(["block"]),
            json!({"role": "none", "relay": relay, "mustUnderstand": true})
        ));
        assert!(is_block_forwarded(&forwarding_intermediary(), json!({"role": "amp://role/none", "relay": relay})));
    }
}

#[test]
fn section_2_7_and_2_7_2_a_frame_is_relayed_unchanged_except_for_removed_blocks() {
    let value = json!({
        "version": "1.0",
        "Header": {
            "messageId": "m-1", "done": {"role": "next"}, "strange": {"role": "next"}, "strangeKept": {"role": "next", "relay": true},
            "far": {"a": [1, 2.5, {"z": null, "a": "é"}]},
            "headerBlocks": [{"type": "doneToo", "role": "intermediary"}, {"type": "farToo", "content": {"x": 1}}]
        },
        "Body": {"task": "alert", "context": {"z": 1, "a": 2}},
        "MemoryGrams": [{"id": "g", "nodes": []}]
    });
    let relayed =
        expect_relayed(forwarding_intermediary().with_understood_blocks(["done", "doneToo"]), frame(value.clone()));
    assert_eq!(relayed.processed_blocks, ["done", "doneToo"]);
    assert_eq!(relayed.removed_blocks, ["done", "strange", "doneToo"]);
    let mut expected = value;
    let header = expected["Header"].as_object_mut().expect("an object");
    header.shift_remove("done");
    header.shift_remove("strange");
    header["headerBlocks"].as_array_mut().expect("a list").remove(0);
    assert_eq!(relayed.frame.to_bytes(), json!({"frame": expected}).to_string().into_bytes());
}

#[test]
fn section_2_7_a_forwarding_intermediary_ignores_its_changes() {
    let change =
        FrameChange { feature: "urn:x:mask".to_owned(), action: ChangeAction::RemoveBodyChild("secret".to_owned()) };
    let value = json!({"Body": {"secret": 1}});
    let relayed = expect_relayed(forwarding_intermediary().with_changes([change]), frame(value.clone()));
    assert_eq!(relayed.frame.to_json()["frame"], value);
}

#[test]
fn section_5_4_5_a_fault_is_relayed_unchanged_except_for_its_detail() {
    let fault = json!({"code": {"value": "Sender", "subcode": "X"}, "reason": [{"text": "No.", "lang": "en"}], "detail": {"a": 1}, "node": "agent://last"});
    let value = json!({"Body": {"fault": fault}});
    let mut expected = value.clone();
    expected["Body"]["fault"].as_object_mut().expect("an object").shift_remove("detail");
    assert_eq!(expect_relayed(forwarding_intermediary(), frame(value)).frame.to_json()["frame"], expected);
}

fn sample_changes() -> Vec<FrameChange> {
    let block = json!({"level": "high"}).as_object().expect("an object").clone();
    let what = [
        ChangeAction::SetBlock("priority".to_owned(), block),
        ChangeAction::RemoveBlock("old".to_owned()),
        ChangeAction::SetBodyChild("extra".to_owned(), json!([1])),
        ChangeAction::RemoveBodyChild("secret".to_owned()),
        ChangeAction::AddGram(json!({"id": "new"}).as_object().expect("an object").clone()),
    ];
    what.into_iter().map(|what| FrameChange { feature: "urn:x:enrich".to_owned(), action: what }).collect()
}

#[test]
fn section_2_7_3_an_active_intermediary_records_its_changes() {
    let node = Node::active_intermediary("agent://active").expect("a node").with_changes(sample_changes());
    let value = json!({"Header": {"old": {}}, "Body": {"secret": 1, "task": "t"}, "MemoryGrams": [{"id": "g"}]});
    let first = expect_relayed(&node, frame(value));
    let expected = json!({
        "Header": {
            "priority": {"level": "high"},
            "applied": {"role": "none", "relay": true, "by": [{
                "node": "agent://active",
                "features": ["urn:x:enrich"],
                "changed": ["/frame/Header/priority", "/frame/Header/old", "/frame/Body/extra", "/frame/Body/secret", "/frame/MemoryGrams/1"],
                "at": "1970-01-01T00:00:00Z"
            }]}
        },
        "Body": {"task": "t", "extra": [1]},
        "MemoryGrams": [{"id": "g"}, {"id": "new"}]
    });
    assert_eq!(first.frame.to_json()["frame"], expected);
    // Idempotent (rule 2): a second pass neither changes nor records anything.
    assert_eq!(expect_relayed(&node, first.frame.clone()).frame, first.frame);
    // Another node appends its own record.
    let other = Node::active_intermediary("agent://other").expect("a node");
    let second = expect_relayed(&other, first.frame).frame.to_json();
    assert_eq!(second.pointer("/frame/Header/applied/by/1/node"), Some(&json!("agent://other")));
    assert_eq!(second.pointer("/frame/Header/applied/by/1/features"), Some(&json!([])));
}

#[test]
fn section_2_7_3_a_forged_record_does_not_prevent_changes() {
    let node = Node::active_intermediary("agent://active").expect("a node").with_changes(sample_changes());
    let forged = json!({"role": "none", "relay": true, "by": [
        {"node": "agent://active", "features": ["urn:x:enrich"], "changed": ["/frame/Body/secret"], "at": "1970-01-01T00:00:00Z"}
    ]});
    let hidden = json!({"type": "priority", "role": "none", "content": {"level": "high"}});
    let value = json!({"Header": {"applied": forged, "old": {}, "headerBlocks": [hidden]}, "Body": {"secret": 1}});
    let first = expect_relayed(&node, frame(value)).frame;
    let json = first.to_json();
    assert_eq!(json["frame"]["Body"], json!({"extra": [1]}));
    assert!(first.header.block("old").is_none());
    assert_eq!(json["frame"]["MemoryGrams"], json!([{"id": "new"}]));
    assert_eq!(
        first.header.block("priority").map(|block| block.role(&node.role_registry)),
        Some(Role::UltimateReceiver)
    );
    assert_eq!(json["frame"]["Header"]["applied"]["by"][1]["changed"].as_array().map(Vec::len), Some(5));
    // Without changes, no record is added.
    assert_eq!(expect_relayed(&node, first.clone()).frame, first);
    // A reverted change is applied and recorded again.
    let mut again = first;
    again.body.insert("secret".to_owned(), json!(2));
    let third = expect_relayed(&node, again).frame.to_json();
    assert!(third["frame"]["Body"].get("secret").is_none());
    assert_eq!(third["frame"]["Header"]["applied"]["by"][2]["changed"], json!(["/frame/Body/secret"]));
    assert_eq!(third["frame"]["MemoryGrams"].as_array().map(Vec::len), Some(1));
}

#[test]
fn section_2_7_2_processed_and_ignored_blocks_are_removed_and_relayable_ones_retained() {
    let node = forwarding_intermediary().with_role("amp://example.org/cache").expect("a role");
    for role in ["next", "intermediary", "amp://example.org/cache"] {
        for relay in [json!(true), json!(false), json!(null)] {
            let is = relay == json!(true);
            let mut block = json!({"role": role, "relay": relay});
            if relay.is_null() {
                block.as_object_mut().expect("an object").shift_remove("relay");
            }
            assert!(
                !is_block_forwarded(&node.clone().with_understood_blocks(["block"]), block.clone()),
                "processed: {block}"
            );
            assert_eq!(is_block_forwarded(&node, block.clone()), is, "ignored: {block}");
        }
    }
}

#[test]
fn section_5_2_1_and_5_2_4_an_unrecognised_relayable_block_is_forwarded() {
    for role in ["next", "intermediary"] {
        for relay in [json!(true), json!(1)] {
            let value = json!({"Header": {"block": {"role": role, "relay": relay, "x": [1]}}, "Body": {}});
            let sent = expect_relayed(forwarding_intermediary(), frame(value.clone()));
            assert_eq!((sent.frame.to_json()["frame"].clone(), sent.processed_blocks.len()), (value, 0));
        }
    }
}

#[test]
fn section_2_7_3_the_applied_block_is_forwarded_by_every_node() {
    let active = Node::active_intermediary("agent://active").expect("a node").with_changes(sample_changes());
    let marked = expect_relayed(&active, frame(json!({"Body": {}}))).frame;
    assert_eq!(
        expect_relayed(forwarding_intermediary().with_understood_blocks([APPLIED_BLOCK]), marked.clone()).frame,
        marked
    );
}

#[test]
fn section_6_0_grams_are_relayed_unchanged() {
    let gram = json!({"MemoryGram": {"id": "550e8400-e29b-41d4-a716-446655440000", "nodes": [{"z": 1, "a": 2}]}});
    let value = json!({"Body": {}, "MemoryGrams": [gram]});
    let active = Node::active_intermediary("agent://active").expect("a node").with_changes(sample_changes());
    assert_eq!(
        expect_relayed(&active, frame(value.clone())).frame.to_json()["frame"]["MemoryGrams"][0],
        value["MemoryGrams"][0]
    );
}
