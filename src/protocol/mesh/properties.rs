//! Random frames at random nodes: whatever comes, processing ends in one outcome that keeps the rules.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::canonical::{canonical, canonical_object};
use super::fault::{Code, Fault};
use super::frame::Frame;
use super::modules::audit::Audit;
use super::modules::routing::Routing;
use super::modules::ttl::Ttl;
use super::modules::upgrade::Upgrade;
use super::modules::validation::Validation;
use super::node::{Node, Place};
use super::process::{Outcome, Relayed, process};
use super::relay::{APPLIED, Change, What};
use crate::test_rng::SeededRng;

const NAMES: [&str; 8] = ["alertControl", "ttl", "audit", "routing", "Upgrade", "transaction", "strange", "applied"];
const ROLES: [&str; 9] = [
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

fn value(random: &mut SeededRng, depth: u64) -> Value {
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => json!(random.below(5)),
        3 => json!((random.next_u64() as f64) / 1e9),
        4 => json!(random.choose(&["", "x", "é😀\u{1}\"\\", "next", "2025-06-26T15:00:00Z", "agent://a"])),
        5 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect(),
        _ => Value::Object((0..random.below(4)).map(|n| (format!("k{n}"), value(random, depth - 1))).collect()),
    }
}

fn block(random: &mut SeededRng) -> Map<String, Value> {
    let mut block = Map::new();
    if random.chance(70) {
        block.insert("role".to_owned(), json!(random.choose(&ROLES)));
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
        block.insert(format!("field{n}"), value(random, 2));
    }
    block
}

fn frame(random: &mut SeededRng) -> Value {
    let mut header = Map::new();
    let mut listed = Vec::new();
    for name in NAMES {
        match random.below(6) {
            0 | 1 => {
                header.insert(name.to_owned(), Value::Object(block(random)));
            }
            2 => {
                let mut entry = block(random);
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
    let mut body: Map<String, Value> = (0..random.below(4)).map(|n| (format!("child{n}"), value(random, 3))).collect();
    if random.chance(10) {
        body.insert("fault".to_owned(), value(random, 2));
    }
    frame.insert("Body".to_owned(), Value::Object(body));
    if random.chance(50) {
        let grams = (0..random.below(3)).map(|_| {
            let mut gram = block(random);
            if random.chance(30) {
                gram.insert("encryption".to_owned(), json!({"scheme": "strange"}));
            }
            Value::Object(gram)
        });
        frame.insert("MemoryGrams".to_owned(), grams.collect());
    }
    json!({"frame": frame})
}

fn node(random: &mut SeededRng) -> Node {
    let place = random.choose(&[Place::Ultimate, Place::Forwarding, Place::Active]);
    let mut node = Node::new("agent://node", place).expect("a node");
    if random.chance(50) {
        node = node.acting_as("amp://example.org/cache").expect("a role");
    }
    for module in 0..5 {
        node = match (random.chance(50), module) {
            (true, 0) => node.with(Ttl),
            (true, 1) => node.with(Upgrade),
            (true, 2) => node.with(Routing),
            (true, 3) => node.with(Validation::default()),
            (true, _) => node.with(Audit::default()),
            (false, _) => node,
        };
    }
    for name in NAMES {
        node = match random.below(4) {
            0 => node.understanding([name]),
            1 => node.reinserting([name]),
            _ => node,
        };
    }
    if random.chance(30) {
        node = node.authorized(["audit", "routing"]);
    }
    node.changing([Change { feature: "urn:x".to_owned(), what: What::SetBody("extra".to_owned(), json!(1)) }])
}

/// The blocks of a frame by name, with what they say in canonical form.
fn blocks(frame: &Frame) -> Vec<(String, Vec<u8>)> {
    let block = |block: super::block::Block<'_>| (block.name.to_owned(), canonical_object(block.properties));
    frame.header.blocks().into_iter().map(block).collect()
}

/// What is mandatory for this node, and beyond it.
fn not_understood(node: &Node, frame: &Frame) -> BTreeSet<String> {
    let trusted = |name: &str| node.place() == Place::Ultimate || node.allowed.contains(name);
    let known = |name: &str| {
        let side_effects = ["audit", "routing"].contains(&name);
        (node.understands.contains_key(name) || node.module(name).is_some()) && (!side_effects || trusted(name))
    };
    let all = frame.header.blocks().into_iter();
    all.filter(|block| node.acts_as(&block.role(&node.vocabulary)) && block.must_understand() && !known(block.name))
        .map(|block| block.name.to_owned())
        .collect()
}

fn check_relayed(node: &Node, before: &Frame, relayed: &Relayed) {
    assert_ne!(node.place(), Place::Ultimate);
    let after = blocks(&relayed.frame);
    for (name, said) in blocks(before) {
        let block = before.header.block(&name).expect("it is there");
        let targeted = node.acts_as(&block.role(&node.vocabulary));
        // The mark of active intermediaries is theirs.
        if !targeted && (node.place() == Place::Forwarding || name != APPLIED) {
            assert!(after.contains(&(name.clone(), said)), "`{name}` is not for this node");
        }
        if targeted && !relayed.processed.contains(&name) && name != APPLIED {
            assert_eq!(after.iter().any(|(other, _)| *other == name), block.relay(), "`{name}`: Table 3");
        }
    }
    let mut body = before.body.clone();
    if let Some(Value::Object(fault)) = body.get_mut("fault") {
        fault.shift_remove("detail");
    }
    if node.place() == Place::Forwarding {
        assert_eq!(canonical_object(&relayed.frame.body), canonical_object(&body));
        assert!(relayed.frame.header.blocks().len() <= before.header.blocks().len());
    } else {
        let mark = relayed.frame.header.block(APPLIED).expect("an active intermediary says so");
        assert!(mark.content().contains_key("by"));
    }
    for gram in relayed.frame.grams() {
        assert!(before.grams().contains(gram), "a gram is immutable");
    }
}

fn check_fault(node: &Node, frame: &Frame, fault: &Fault) {
    assert_eq!(fault.node.as_deref(), Some(node.uri()));
    let told = fault.frame();
    assert_eq!(Fault::read(&told).as_ref(), Ok(&Some(Box::new(fault.clone()))), "a fault of ours is valid");
    assert_eq!(told.body.len(), 1, "one fault a message");
    assert_eq!(fault.code == Code::VersionMismatch, frame.version.as_deref() == Some("2.0"));
}

#[test]
fn section_2_1_and_2_6_and_2_7_any_frame_at_any_node_ends_in_one_outcome() {
    let (mut processed_frames, mut relayed_frames, mut faults) = (0, 0, BTreeSet::new());
    for seed in 0..4_000 {
        let mut random = SeededRng(seed);
        let (value, node) = (frame(&mut random), node(&mut random));
        let Ok(frame) = Frame::parse_as(
            value.to_string().as_bytes(),
            &node.limits,
            &["1.0", "2.0"].map(str::to_owned).into_iter().collect(),
        ) else {
            continue;
        };
        assert_eq!(canonical(&frame.to_json()), canonical(&value), "seed {seed}");
        let missing = not_understood(&node, &frame);
        let outcome = process(&node, frame.clone(), Timestamp::UNIX_EPOCH);
        assert_eq!(outcome, process(&node, frame.clone(), Timestamp::UNIX_EPOCH), "seed {seed}: it is pure");
        match &outcome {
            Outcome::Processed(processed) => {
                assert!(missing.is_empty(), "seed {seed}: {missing:?}");
                assert_eq!(node.place(), Place::Ultimate);
                let without = |frame: &Frame| {
                    let mut frame = frame.clone();
                    frame.header.remove("audit");
                    canonical(&frame.to_json())
                };
                assert_eq!(without(&processed.frame), without(&frame), "seed {seed}");
                processed_frames += 1;
            }
            Outcome::Relayed(relayed) => {
                assert!(missing.is_empty(), "seed {seed}: {missing:?}");
                check_relayed(&node, &frame, relayed);
                assert!(Frame::parse(&relayed.frame.to_bytes(), &node.limits).is_ok(), "seed {seed}");
                relayed_frames += 1;
            }
            Outcome::Fault(fault) => {
                check_fault(&node, &frame, fault);
                if fault.code == Code::MustUnderstand {
                    let told: BTreeSet<String> =
                        fault.not_understood.iter().filter(|name| *name != "memoryGrams").cloned().collect();
                    assert!(told.is_subset(&missing), "seed {seed}: {told:?} of {missing:?}");
                }
                faults.insert(fault.code);
            }
        }
    }
    assert!(processed_frames > 100 && relayed_frames > 300, "{processed_frames} {relayed_frames}");
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn random_bytes_are_frames_or_faults() {
    let good = json!({"frame": {"Header": {"a": {"role": "next"}, "headerBlocks": [{"type": "b"}]}, "Body": {"x": [1, "é"]}, "MemoryGrams": [{}]}});
    let node = Node::ultimate("agent://node").expect("a node");
    for seed in 0..4_000 {
        let mut random = SeededRng(seed);
        let mut bytes = good.to_string().into_bytes();
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[place] = random.next_u64() as u8,
                1 => drop(bytes.remove(place)),
                _ => bytes.insert(place, random.choose(b"{}[]\",:\\0x")),
            }
        }
        match node.receive(&bytes, Timestamp::UNIX_EPOCH) {
            Outcome::Processed(processed) => {
                let again = Frame::parse(&processed.frame.to_bytes(), &node.limits);
                assert_eq!(again.as_ref(), Ok(&processed.frame), "seed {seed}");
            }
            Outcome::Fault(fault) => assert_eq!(Fault::read(&fault.frame()), Ok(Some(fault)), "seed {seed}"),
            Outcome::Relayed(_) => panic!("seed {seed}: an ultimate receiver relays nothing"),
        }
    }
}
