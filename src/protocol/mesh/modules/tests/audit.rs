//! Tests of `audit.rs`.

use super::super::super::frame::Frame;
use super::super::super::node::Node;
use super::super::super::rules;
use super::super::ttl::Ttl;
use super::*;
use crate::protocol::mesh::tests::support::{expect_fault, expect_processed, expect_relayed, frame, ultimate_receiver};

fn logging_intermediary(uri: &str) -> Node {
    Node::forwarding_intermediary(uri)
        .expect("a node")
        .with_module(Audit::starting_log())
        .with_module(Ttl)
        .with_authorized_blocks(["audit"])
}

fn frame_after_two_hops() -> Frame {
    let sent = frame(json!({"Header": {"ttl": {"role": "next", "hops": 5}}, "Body": {}}));
    expect_relayed(logging_intermediary("agent://two"), expect_relayed(logging_intermediary("agent://one"), sent).frame)
        .frame
}

#[test]
fn section_7_2_each_hop_adds_an_entry() {
    let last = expect_processed(ultimate_receiver().with_module(Audit::default()), frame_after_two_hops());
    let block = last.frame.header.block("audit").expect("a log");
    let entries = block.content()["entries"].as_array().expect("a list");
    let of = |index: usize, key: &str| entries[index][key].clone();
    assert_eq!(
        [of(0, "agentUri"), of(1, "agentUri"), of(2, "agentUri")],
        ["agent://one", "agent://two", "agent://last"]
    );
    assert_eq!(of(0, "actions"), json!(["processed ttl", "relayed"]));
    assert_eq!(of(2, "actions"), json!(["received"]));
    assert_eq!(of(1, "timestamp"), json!("1970-01-01T00:00:00Z"));
}

#[test]
fn section_7_2_a_modified_log_is_refused() {
    let good = frame_after_two_hops().to_json();
    type Tampering = fn(&mut Value);
    let changes: [(&str, Tampering); 5] = [
        ("another agent", |log| log[0]["agentUri"] = json!("agent://evil")),
        ("another action", |log| log[1]["actions"] = json!([])),
        ("one less", |log| drop(log.as_array_mut().map(|log| log.remove(0)))),
        ("the other way", |log| log.as_array_mut().expect("a list").reverse()),
        ("no chain", |log| drop(log[1].as_object_mut().map(|entry| entry.shift_remove("chain")))),
    ];
    for (what, change) in changes {
        let mut bad = good.clone();
        change(bad.pointer_mut("/frame/Header/audit/entries").expect("a log"));
        let refused = expect_fault(ultimate_receiver().with_module(Audit::default()), frame(bad["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Audit"), "{what}");
    }
}

#[test]
fn section_7_2_an_unauthorized_intermediary_adds_no_entry() {
    let stranger = Node::forwarding_intermediary("agent://one").expect("a node").with_module(Audit::starting_log());
    let passed = expect_relayed(stranger, frame_after_two_hops()).frame;
    assert_eq!(passed.header.block("audit"), frame_after_two_hops().header.block("audit"));
}

#[test]
fn section_5_2_2_the_spec_s_example_blocks_are_empty_logs() {
    let sent =
        frame(json!({"Header": {"audit": {"mustUnderstand": true, "timestamp": "2025-06-26T15:30:00Z"}}, "Body": {}}));
    let last = expect_processed(ultimate_receiver().with_module(Audit::default()), sent);
    let block = last.frame.header.block("audit").expect("a log");
    assert_eq!(block.content()["timestamp"], json!("2025-06-26T15:30:00Z"));
    assert_eq!(block.content()["entries"].as_array().map(Vec::len), Some(1));
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for entries in [json!({}), json!([1])] {
        let sent = frame(json!({"Header": {"audit": {"entries": entries}}, "Body": {}}));
        let refused = expect_fault(ultimate_receiver().with_module(Audit::default()), sent);
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT));
    }
}
