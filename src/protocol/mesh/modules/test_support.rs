//! What the tests of the modules have in common: nodes, frames, and the one outcome that a test expects.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::Node;
use super::super::process::{ProcessOutcome, ProcessedFrame, RelayedFrame, process};

/// When the tests are.
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A frame, from what is in it.
pub fn frame(value: Value) -> Frame {
    Frame::parse(json!({"frame": value}).to_string().as_bytes(), &Default::default()).expect("a good frame")
}

/// The ultimate receiver `agent://last`.
pub fn ultimate_receiver() -> Node {
    Node::ultimate_receiver("agent://last").expect("a node")
}

/// The forwarding intermediary `agent://middle`.
pub fn forwarding_intermediary() -> Node {
    Node::forwarding_intermediary("agent://middle").expect("a node")
}

/// The fault that it must be.
pub fn expect_fault(node: Node, frame: Frame) -> Fault {
    match process(&node, frame, NOW) {
        ProcessOutcome::Fault(fault) => *fault,
        other => panic!("it must be a fault: {other:?}"),
    }
}

/// What must have been processed.
pub fn expect_processed(node: Node, frame: Frame) -> ProcessedFrame {
    match process(&node, frame, NOW) {
        ProcessOutcome::Processed(processed) => *processed,
        other => panic!("it must be processed: {other:?}"),
    }
}

/// What must have been relayed.
pub fn expect_relayed(node: Node, frame: Frame) -> RelayedFrame {
    match process(&node, frame, NOW) {
        ProcessOutcome::Relayed(relayed) => *relayed,
        other => panic!("it must be relayed: {other:?}"),
    }
}
