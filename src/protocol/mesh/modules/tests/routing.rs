//! Tests of `routing.rs`.

use super::super::super::frame::Frame;
use super::super::super::node::Node;
use super::*;
use crate::protocol::mesh::tests::support::{expect_fault, expect_processed, expect_relayed, frame, ultimate_receiver};

fn routed_frame() -> Frame {
    let block =
        json!({"role": "next", "to": "agent://last", "path": ["agent://one", "agent://two"], "mustUnderstand": true});
    frame(json!({"Header": {"routing": block}, "Body": {}}))
}

fn routing_intermediary(uri: &str) -> Node {
    Node::forwarding_intermediary(uri).expect("a node").with_module(Routing).with_authorized_blocks(["routing"])
}

#[test]
fn section_2_7_rule_4_the_message_follows_the_path_in_its_header() {
    let one = expect_relayed(routing_intermediary("agent://one"), routed_frame());
    assert_eq!(one.next_hop.as_deref(), Some("agent://two"));
    let two = expect_relayed(routing_intermediary("agent://two"), one.frame);
    assert_eq!(two.next_hop.as_deref(), Some("agent://last"));
    let expected = json!({
        "role": "next", "to": "agent://last", "path": [], "mustUnderstand": true, "visited": ["agent://one", "agent://two"]
    });
    assert_eq!(two.frame.to_json()["frame"]["Header"]["routing"], expected);
    assert_eq!(expect_processed(ultimate_receiver().with_module(Routing), two.frame).processed_blocks, ["routing"]);
}

#[test]
fn looped_and_misrouted_messages_are_refused() {
    let one = expect_relayed(routing_intermediary("agent://one"), routed_frame()).frame;
    assert_eq!(
        expect_fault(routing_intermediary("agent://one"), one.clone()).subcode.as_deref(),
        Some(rules::ROUTING_LOOP)
    );
    let other = Node::ultimate_receiver("agent://other").expect("a node").with_module(Routing);
    assert_eq!(expect_fault(other, one).subcode.as_deref(), Some(rules::MISROUTED));
}

#[test]
fn section_7_2_an_unauthorized_intermediary_ignores_the_block() {
    let mut optional = routed_frame();
    let mut block = optional.header.block("routing").expect("present").properties.clone();
    block.insert("mustUnderstand".to_owned(), json!(false));
    block.insert("relay".to_owned(), json!(true));
    optional.header.set_block("routing", block).expect("a valid block");
    let stranger = Node::forwarding_intermediary("agent://one").expect("a node").with_module(Routing);
    let passed = expect_relayed(stranger.clone(), optional.clone());
    assert_eq!((passed.next_hop, passed.frame), (None, optional));
    assert_eq!(expect_fault(stranger, routed_frame()).not_understood, ["routing"]);
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for block in [json!({"to": "last"}), json!({"path": "agent://a"}), json!({"path": [1]}), json!({"visited": ["x"]})]
    {
        let refused = expect_fault(
            ultimate_receiver().with_module(Routing),
            frame(json!({"Header": {"routing": block}, "Body": {}})),
        );
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
    }
}
