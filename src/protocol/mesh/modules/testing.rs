//! What the tests of the modules have in common: nodes, frames, and the one outcome that a test expects.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::Node;
use super::super::process::{Outcome, Processed, Relayed, process};

/// When the tests are.
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A frame, from what is in it.
pub fn frame(value: Value) -> Frame {
    Frame::parse(json!({"frame": value}).to_string().as_bytes(), &Default::default()).expect("a good frame")
}

/// The ultimate receiver `agent://last`.
pub fn ultimate() -> Node {
    Node::ultimate("agent://last").expect("a node")
}

/// The forwarding intermediary `agent://middle`.
pub fn forwarding() -> Node {
    Node::forwarding("agent://middle").expect("a node")
}

/// The fault that it must be.
pub fn fault(node: Node, frame: Frame) -> Fault {
    match process(&node, frame, NOW) {
        Outcome::Fault(fault) => *fault,
        other => panic!("it must be a fault: {other:?}"),
    }
}

/// What must have been processed.
pub fn processed(node: Node, frame: Frame) -> Processed {
    match process(&node, frame, NOW) {
        Outcome::Processed(processed) => *processed,
        other => panic!("it must be processed: {other:?}"),
    }
}

/// What must have been relayed.
pub fn relayed(node: Node, frame: Frame) -> Relayed {
    match process(&node, frame, NOW) {
        Outcome::Relayed(relayed) => *relayed,
        other => panic!("it must be relayed: {other:?}"),
    }
}
