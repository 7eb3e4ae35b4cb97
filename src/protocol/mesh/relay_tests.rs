//! Tests of `relay.rs`: the rows of Table 3 (2.7.1), and what active intermediaries do.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::frame::Frame;
use super::super::node::Node;
use super::super::process::{Outcome, Relayed, process};
use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn frame(value: Value) -> Frame {
    Frame::parse(json!({"frame": value}).to_string().as_bytes(), &Default::default()).expect("a good frame")
}

fn node() -> Node {
    Node::forwarding("agent://middle").expect("a node")
}

fn relayed(node: &Node, frame: Frame) -> Relayed {
    match process(node, frame, NOW) {
        Outcome::Relayed(relayed) => *relayed,
        other => panic!("it must be relayed: {other:?}"),
    }
}

/// Whether a block, in both of its forms, is in the frame that goes on.
fn forwarded(node: &Node, block: Value) -> bool {
    let mut listed = block.clone();
    listed["type"] = json!("block");
    let keyed = relayed(node, frame(json!({"Header": {"block": block}, "Body": {}})));
    let listed = relayed(node, frame(json!({"Header": {"headerBlocks": [listed]}, "Body": {}})));
    let is_there = |relayed: &Relayed| relayed.frame.header.block("block").is_some();
    assert_eq!(is_there(&keyed), is_there(&listed), "{block}");
    assert_eq!(keyed.removed.is_empty(), is_there(&keyed));
    is_there(&keyed)
}

#[test]
fn table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    for relay in [json!(true), json!(false)] {
        assert!(!forwarded(&node().understanding(["block"]), json!({"role": "next", "relay": relay})));
        assert!(forwarded(&node().reinserting(["block"]), json!({"role": "next", "relay": relay})));
    }
}

#[test]
fn table_3_row_2_next_not_processed_is_forwarded_if_relay() {
    assert!(forwarded(&node(), json!({"role": "next", "relay": true})));
    assert!(!forwarded(&node(), json!({"role": "next", "relay": false})));
    assert!(!forwarded(&node(), json!({"role": "next"})));
}

#[test]
fn table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    let node = node().acting_as("amp://example.org/cache").expect("a role");
    for relay in [json!(true), json!(false)] {
        let block = json!({"role": "amp://example.org/cache", "relay": relay});
        assert!(!forwarded(&node.clone().understanding(["block"]), block.clone()));
        assert!(forwarded(&node.clone().reinserting(["block"]), block));
    }
}

#[test]
fn table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay() {
    let node = node().acting_as("amp://example.org/cache").expect("a role");
    assert!(forwarded(&node, json!({"role": "amp://example.org/cache", "relay": true})));
    assert!(!forwarded(&node, json!({"role": "amp://example.org/cache", "relay": false})));
}

#[test]
fn table_3_row_4_user_defined_not_assumed_is_forwarded_and_relay_has_no_effect() {
    for relay in [json!(true), json!(false)] {
        let block = json!({"role": "amp://example.org/cache", "relay": relay, "mustUnderstand": true});
        assert!(forwarded(&node().understanding(["block"]), block.clone()));
        assert!(forwarded(&node(), block));
    }
}

#[test]
fn table_3_row_5_ultimate_receiver_is_never_assumed_by_an_intermediary() {
    for role in [json!("ultimateReceiver"), json!("amp://role/ultimateReceiver"), json!("notRecognised")] {
        assert!(forwarded(&node().understanding(["block"]), json!({"role": role, "mustUnderstand": true})));
    }
    assert!(forwarded(&node().understanding(["block"]), json!({})));
    let last = Node::ultimate("agent://last").expect("a node").understanding(["block"]);
    let outcome = process(&last, frame(json!({"Header": {"block": {"role": "ultimateReceiver"}}, "Body": {}})), NOW);
    assert!(matches!(outcome, Outcome::Processed(processed) if processed.processed == ["block"]));
}

#[test]
fn table_3_row_6_none_is_always_relayed() {
    for relay in [json!(true), json!(false)] {
        assert!(forwarded(
            &node().understanding(["block"]),
            json!({"role": "none", "relay": relay, "mustUnderstand": true})
        ));
        assert!(forwarded(&node(), json!({"role": "amp://role/none", "relay": relay})));
    }
}

#[test]
fn section_2_7_and_2_7_2_what_is_relayed_is_what_came_less_what_the_table_takes_out() {
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
    let relayed = relayed(&node().understanding(["done", "doneToo"]), frame(value.clone()));
    assert_eq!(relayed.processed, ["done", "doneToo"]);
    assert_eq!(relayed.removed, ["done", "strange", "doneToo"]);
    let mut expected = value;
    let header = expected["Header"].as_object_mut().expect("an object");
    header.shift_remove("done");
    header.shift_remove("strange");
    header["headerBlocks"].as_array_mut().expect("a list").remove(0);
    assert_eq!(relayed.frame.to_bytes(), json!({"frame": expected}).to_string().into_bytes());
}

#[test]
fn section_2_7_a_forwarding_intermediary_changes_nothing_of_its_own() {
    let change = Change { feature: "urn:x:mask".to_owned(), what: What::RemoveBody("secret".to_owned()) };
    let value = json!({"Body": {"secret": 1}});
    let relayed = relayed(&node().changing([change]), frame(value.clone()));
    assert_eq!(relayed.frame.to_json()["frame"], value);
}

#[test]
fn section_5_4_5_a_fault_is_relayed_without_its_detail_and_otherwise_as_it_is() {
    let fault = json!({"code": {"value": "Sender", "subcode": "X"}, "reason": [{"text": "No.", "lang": "en"}], "detail": {"a": 1}, "node": "agent://last"});
    let value = json!({"Body": {"fault": fault}});
    let mut expected = value.clone();
    expected["Body"]["fault"].as_object_mut().expect("an object").shift_remove("detail");
    assert_eq!(relayed(&node(), frame(value)).frame.to_json()["frame"], expected);
}

fn changes() -> Vec<Change> {
    let block = json!({"level": "high"}).as_object().expect("an object").clone();
    let what = [
        What::SetBlock("priority".to_owned(), block),
        What::RemoveBlock("old".to_owned()),
        What::SetBody("extra".to_owned(), json!([1])),
        What::RemoveBody("secret".to_owned()),
        What::AddGram(json!({"id": "new"}).as_object().expect("an object").clone()),
    ];
    what.into_iter().map(|what| Change { feature: "urn:x:enrich".to_owned(), what }).collect()
}

#[test]
fn section_2_7_3_an_active_intermediary_marks_what_it_changed() {
    let node = Node::active("agent://active").expect("a node").changing(changes());
    let value = json!({"Header": {"old": {}}, "Body": {"secret": 1, "task": "t"}, "MemoryGrams": [{"id": "g"}]});
    let first = relayed(&node, frame(value));
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
    // Idempotent (rule 2): coming by again, it does nothing and marks nothing.
    assert_eq!(relayed(&node, first.frame.clone()).frame, first.frame);
    // Another node adds its own mark behind.
    let other = Node::active("agent://other").expect("a node");
    let second = relayed(&other, first.frame).frame.to_json();
    assert_eq!(second.pointer("/frame/Header/applied/by/1/node"), Some(&json!("agent://other")));
    assert_eq!(second.pointer("/frame/Header/applied/by/1/features"), Some(&json!([])));
}

#[test]
fn section_2_7_3_a_mark_that_somebody_forged_keeps_nothing_from_being_changed() {
    let node = Node::active("agent://active").expect("a node").changing(changes());
    let forged = json!({"role": "none", "relay": true, "by": [
        {"node": "agent://active", "features": ["urn:x:enrich"], "changed": ["/frame/Body/secret"], "at": "1970-01-01T00:00:00Z"}
    ]});
    let hidden = json!({"type": "priority", "role": "none", "content": {"level": "high"}});
    let value = json!({"Header": {"applied": forged, "old": {}, "headerBlocks": [hidden]}, "Body": {"secret": 1}});
    let first = relayed(&node, frame(value)).frame;
    let json = first.to_json();
    assert_eq!(json["frame"]["Body"], json!({"extra": [1]}));
    assert!(first.header.block("old").is_none());
    assert_eq!(json["frame"]["MemoryGrams"], json!([{"id": "new"}]));
    assert_eq!(first.header.block("priority").map(|block| block.role(&node.vocabulary)), Some(Role::UltimateReceiver));
    assert_eq!(json["frame"]["Header"]["applied"]["by"][1]["changed"].as_array().map(Vec::len), Some(5));
    // The mark is not doubled where nothing is left to be done.
    assert_eq!(relayed(&node, first.clone()).frame, first);
    // What somebody puts in again behind is taken out again, and said.
    let mut again = first;
    again.body.insert("secret".to_owned(), json!(2));
    let third = relayed(&node, again).frame.to_json();
    assert!(third["frame"]["Body"].get("secret").is_none());
    assert_eq!(third["frame"]["Header"]["applied"]["by"][2]["changed"], json!(["/frame/Body/secret"]));
    assert_eq!(third["frame"]["MemoryGrams"].as_array().map(Vec::len), Some(1));
}

#[test]
fn section_2_7_2_the_processed_and_the_ignored_are_removed_and_the_relayable_retained() {
    let node = node().acting_as("amp://example.org/cache").expect("a role");
    for role in ["next", "intermediary", "amp://example.org/cache"] {
        for relay in [json!(true), json!(false), json!(null)] {
            let is = relay == json!(true);
            let mut block = json!({"role": role, "relay": relay});
            if relay.is_null() {
                block.as_object_mut().expect("an object").shift_remove("relay");
            }
            assert!(!forwarded(&node.clone().understanding(["block"]), block.clone()), "processed: {block}");
            assert_eq!(forwarded(&node, block.clone()), is, "ignored: {block}");
        }
    }
}

#[test]
fn section_5_2_1_and_5_2_4_an_unrecognised_block_that_is_relayable_is_forwarded() {
    for role in ["next", "intermediary"] {
        for relay in [json!(true), json!(1)] {
            let value = json!({"Header": {"block": {"role": role, "relay": relay, "x": [1]}}, "Body": {}});
            let sent = relayed(&node(), frame(value.clone()));
            assert_eq!((sent.frame.to_json()["frame"].clone(), sent.processed.len()), (value, 0));
        }
    }
}

#[test]
fn section_2_7_3_the_mark_goes_past_every_node() {
    let active = Node::active("agent://active").expect("a node").changing(changes());
    let marked = relayed(&active, frame(json!({"Body": {}}))).frame;
    assert_eq!(relayed(&node().understanding([APPLIED]), marked.clone()).frame, marked);
}

#[test]
fn section_6_0_grams_are_relayed_as_they_came() {
    let gram = json!({"MemoryGram": {"id": "550e8400-e29b-41d4-a716-446655440000", "nodes": [{"z": 1, "a": 2}]}});
    let value = json!({"Body": {}, "MemoryGrams": [gram]});
    let active = Node::active("agent://active").expect("a node").changing(changes());
    assert_eq!(
        relayed(&active, frame(value.clone())).frame.to_json()["frame"]["MemoryGrams"][0],
        value["MemoryGrams"][0]
    );
}
