//! Random frames at random nodes: processing has exactly one outcome, which obeys the rules.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::canonical::to_canonical_json;
use super::super::change::{APPLIED_BLOCK, ChangeAction, FrameChange};
use super::super::fault::{Fault, FaultCode};
use super::super::frame::Frame;
use super::super::modules::audit::Audit;
use super::super::modules::routing::Routing;
use super::super::modules::ttl::Ttl;
use super::super::modules::upgrade::Upgrade;
use super::super::modules::validation::Validation;
use super::super::node::{Node, NodeKind};
use super::super::process::{ProcessOutcome, process};
use super::super::relay::RelayedFrame;
use crate::test_rng::SeededRng;

const BLOCK_NAMES: [&str; 8] =
    ["alertControl", "ttl", "audit", "routing", "Upgrade", "transaction", "strange", "applied"];
const ROLE_NAMES: [&str; 9] = [
    "next",
    "none",
    "ultimateReceiver",
    "intermediary",
    "initialSender",
    "amp://role/next",
    "urn:agentic:mesh:role:none",
    "amp://example.org/cache",
    "someToken",
];

fn random_value(random: &mut SeededRng, depth: u64) -> Value {
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => json!(random.below(5)),
        3 => json!((random.next_u64() as f64) / 1e9),
        4 => json!(random.choose(&["", "x", "é😀\u{1}\"\\", "next", "2025-06-26T15:00:00Z", "agent://a"])),
        5 => (0..random.below(4)).map(|_| random_value(random, depth - 1)).collect(),
        _ => Value::Object((0..random.below(4)).map(|n| (format!("k{n}"), random_value(random, depth - 1))).collect()),
    }
}

fn random_block(random: &mut SeededRng) -> Map<String, Value> {
    let mut block = Map::new();
    if random.chance(70) {
        block.insert("role".to_owned(), json!(random.choose(&ROLE_NAMES)));
    }
    for key in ["mustUnderstand", "relay"] {
        if random.chance(40) {
            block.insert(key.to_owned(), random.choose(&[json!(true), json!(false), json!(1), json!(0)]));
        }
    }
    if random.chance(20) {
        block.insert("hops".to_owned(), json!(random.below(3)));
    }
    if random.chance(10) {
        block.insert("encodingStyle".to_owned(), json!(random.choose(&["application/json", "urn:strange"])));
    }
    for n in 0..random.below(3) {
        block.insert(format!("field{n}"), random_value(random, 2));
    }
    block
}

fn random_frame(random: &mut SeededRng) -> Value {
    let mut header = Map::new();
    let mut listed = Vec::new();
    for name in BLOCK_NAMES {
        match random.below(6) {
            0 | 1 => {
                header.insert(name.to_owned(), Value::Object(random_block(random)));
            }
            2 => {
                let mut entry = random_block(random);
                entry.insert("type".to_owned(), json!(name));
                listed.push(Value::Object(entry));
            }
            _ => {}
        }
    }
    if !listed.is_empty() {
        header.insert("headerBlocks".to_owned(), Value::Array(listed));
    }
    if !header.contains_key("ttl") && random.chance(20) {
        header.insert("ttl".to_owned(), json!(random.below(3)));
    }
    let mut frame = Map::new();
    if random.chance(30) {
        frame.insert("version".to_owned(), json!(random.choose(&["1.0", "1.0.3", "2.0"])));
    }
    frame.insert("Header".to_owned(), Value::Object(header));
    let mut body: Map<String, Value> =
        (0..random.below(4)).map(|n| (format!("child{n}"), random_value(random, 3))).collect();
    if random.chance(10) {
        body.insert("fault".to_owned(), random_value(random, 2));
    }
    frame.insert("Body".to_owned(), Value::Object(body));
    if random.chance(50) {
        let grams = (0..random.below(3)).map(|_| {
            let mut gram = random_block(random);
            if random.chance(30) {
                gram.insert("encryption".to_owned(), json!({"scheme": "strange"}));
            }
            Value::Object(gram)
        });
        frame.insert("MemoryGrams".to_owned(), grams.collect());
    }
    json!({"frame": frame})
}

fn random_node(random: &mut SeededRng) -> Node {
    let kind =
        random.choose(&[NodeKind::UltimateReceiver, NodeKind::ForwardingIntermediary, NodeKind::ActiveIntermediary]);
    let mut node = Node::new("agent://node", kind).expect("a node");
    if random.chance(50) {
        node = node.with_role("amp://example.org/cache").expect("a role");
    }
    for module in 0..5 {
        node = match (random.chance(50), module) {
            (true, 0) => node.with_module(Ttl),
            (true, 1) => node.with_module(Upgrade),
            (true, 2) => node.with_module(Routing),
            (true, 3) => node.with_module(Validation::default()),
            (true, _) => node.with_module(Audit::default()),
            (false, _) => node,
        };
    }
    for name in BLOCK_NAMES {
        node = match random.below(4) {
            0 => node.with_understood_blocks([name]),
            1 => node.with_reinserted_blocks([name]),
            _ => node,
        };
    }
    if random.chance(30) {
        node = node.with_authorized_blocks(["audit", "routing"]);
    }
    node.with_changes([FrameChange {
        feature: "urn:x".to_owned(),
        action: ChangeAction::SetBodyChild("extra".to_owned(), json!(1)),
    }])
}

/// Blocks by name, with their canonical properties.
fn canonical_blocks(frame: &Frame) -> Vec<(String, Vec<u8>)> {
    let block =
        |block: super::super::block::HeaderBlock<'_>| (block.name.to_owned(), to_canonical_json(block.properties));
    frame.header.blocks().into_iter().map(block).collect()
}

/// Mandatory blocks for this node that it does not understand.
fn expected_not_understood(node: &Node, frame: &Frame) -> BTreeSet<String> {
    let trusted = |name: &str| node.kind() == NodeKind::UltimateReceiver || node.authorized_blocks.contains(name);
    let known = |name: &str| {
        let side_effects = ["audit", "routing"].contains(&name);
        node.understands(name) && (!side_effects || trusted(name))
    };
    let all = frame.header.blocks().into_iter();
    all.filter(|block| {
        node.acts_in_role(&block.role(&node.role_registry)) && block.must_understand() && !known(block.name)
    })
    .map(|block| block.name.to_owned())
    .collect()
}

fn check_relayed(node: &Node, before: &Frame, relayed: &RelayedFrame) {
    assert_ne!(node.kind(), NodeKind::UltimateReceiver);
    let after = canonical_blocks(&relayed.frame);
    for (name, properties) in canonical_blocks(before) {
        let block = before.header.block(&name).expect("present");
        let targeted = node.acts_in_role(&block.role(&node.role_registry));
        // Active intermediaries change the `applied` block.
        if !targeted && (node.kind() == NodeKind::ForwardingIntermediary || name != APPLIED_BLOCK) {
            assert!(after.contains(&(name.clone(), properties)), "`{name}` is not for this node");
        }
        if targeted && !relayed.processed_blocks.contains(&name) && name != APPLIED_BLOCK {
            assert_eq!(after.iter().any(|(other, _)| *other == name), block.is_relayable(), "`{name}`: Table 3");
        }
    }
    let mut without_detail = before.clone();
    without_detail.remove_fault_detail();
    if node.kind() == NodeKind::ForwardingIntermediary {
        assert_eq!(to_canonical_json(&relayed.frame.body), to_canonical_json(&without_detail.body));
        assert!(relayed.frame.header.blocks().len() <= before.header.blocks().len());
    } else {
        let mark = relayed.frame.header.block(APPLIED_BLOCK).expect("an active intermediary records its changes");
        assert!(mark.content().contains_key("by"));
    }
    for gram in relayed.frame.memory_grams_or_empty() {
        assert!(before.memory_grams_or_empty().contains(gram), "a gram is immutable");
    }
}

fn check_fault(node: &Node, frame: &Frame, fault: &Fault) {
    assert_eq!(fault.node.as_deref(), Some(node.uri()));
    let reported = fault.to_frame();
    assert_eq!(Fault::from_frame(&reported).as_ref(), Ok(&Some(Box::new(fault.clone()))), "own faults are valid");
    assert_eq!(reported.body.len(), 1, "one fault a message");
    assert_eq!(fault.code == FaultCode::VersionMismatch, frame.version.as_deref() == Some("2.0"));
}

#[test]
fn section_2_1_and_2_6_and_2_7_every_frame_at_every_node_has_one_outcome() {
    let (mut processed_frames, mut relayed_frames, mut faults) = (0, 0, BTreeSet::new());
    for seed in 0..4_000 {
        let mut random = SeededRng(seed);
        let (value, node) = (random_frame(&mut random), random_node(&mut random));
        let Ok(frame) = Frame::parse_with_versions(
            value.to_string().as_bytes(),
            &node.limits,
            &["1.0", "2.0"].map(str::to_owned).into_iter().collect(),
        ) else {
            continue;
        };
        assert_eq!(to_canonical_json(&frame.to_json()), to_canonical_json(&value), "seed {seed}");
        let missing = expected_not_understood(&node, &frame);
        let outcome = process(&node, frame.clone(), Timestamp::UNIX_EPOCH);
        assert_eq!(outcome, process(&node, frame.clone(), Timestamp::UNIX_EPOCH), "seed {seed}: not deterministic");
        match &outcome {
            ProcessOutcome::Processed(processed) => {
                assert!(missing.is_empty(), "seed {seed}: {missing:?}");
                assert_eq!(node.kind(), NodeKind::UltimateReceiver);
                let without = |frame: &Frame| {
                    let mut frame = frame.clone();
                    frame.header.remove("audit");
                    to_canonical_json(&frame.to_json())
                };
                assert_eq!(without(&processed.frame), without(&frame), "seed {seed}");
                processed_frames += 1;
            }
            ProcessOutcome::Relayed(relayed) => {
                assert!(missing.is_empty(), "seed {seed}: {missing:?}");
                check_relayed(&node, &frame, relayed);
                assert!(Frame::parse(&relayed.frame.to_bytes(), &node.limits).is_ok(), "seed {seed}");
                relayed_frames += 1;
            }
            ProcessOutcome::Fault(fault) => {
                check_fault(&node, &frame, fault);
                if fault.code == FaultCode::MustUnderstand {
                    let reported: BTreeSet<String> =
                        fault.not_understood.iter().filter(|name| *name != "memoryGrams").cloned().collect();
                    assert!(reported.is_subset(&missing), "seed {seed}: {reported:?} of {missing:?}");
                }
                faults.insert(fault.code);
            }
        }
    }
    assert!(processed_frames > 100 && relayed_frames > 300, "{processed_frames} {relayed_frames}");
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn random_bytes_parse_or_fault() {
    let good = json!({"frame": {"Header": {"a": {"role": "next"}, "headerBlocks": [{"type": "b"}]}, "Body": {"x": [1, "é"]}, "MemoryGrams": [{}]}});
    let node = Node::ultimate_receiver("agent://node").expect("a node");
    for seed in 0..4_000 {
        let mut random = SeededRng(seed);
        let mut bytes = good.to_string().into_bytes();
        for _ in 0..=random.below(4) {
            let index = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[index] = random.next_u64() as u8,
                1 => drop(bytes.remove(index)),
                _ => bytes.insert(index, random.choose(b"{}[]\",:\\0x")),
            }
        }
        match node.process_bytes(&bytes, Timestamp::UNIX_EPOCH) {
            ProcessOutcome::Processed(processed) => {
                let again = Frame::parse(&processed.frame.to_bytes(), &node.limits);
                assert_eq!(again.as_ref(), Ok(&processed.frame), "seed {seed}");
            }
            ProcessOutcome::Fault(fault) => {
                assert_eq!(Fault::from_frame(&fault.to_frame()), Ok(Some(fault)), "seed {seed}")
            }
            ProcessOutcome::Relayed(_) => panic!("seed {seed}: an ultimate receiver does not relay"),
        }
    }
}
