//! Frames, nodes and keys for tests, and the outcome that a test expects.

use std::borrow::Borrow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::{BodyProblem, BodySchema, Node};
use super::super::process::{ProcessOutcome, ProcessedFrame, process};
use super::super::relay::RelayedFrame;

pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub fn frame(value: Value) -> Frame {
    Frame::parse(json!({"frame": value}).to_string().as_bytes(), &Default::default()).expect("a valid frame")
}

/// The ultimate receiver `agent://last`.
pub fn ultimate_receiver() -> Node {
    Node::ultimate_receiver("agent://last").expect("a node")
}

/// The forwarding intermediary `agent://middle`.
pub fn forwarding_intermediary() -> Node {
    Node::forwarding_intermediary("agent://middle").expect("a node")
}

/// The key `key-<n>` of an agent.
#[cfg(feature = "orchestrator")]
pub fn secret_key(n: u8, agent: &str) -> super::super::modules::keys::SecretKey {
    super::super::modules::keys::SecretKey::new(&format!("key-{n}"), agent, &[n; 32]).expect("a key")
}

/// A schema that no Body matches.
pub struct RejectAnyBody;

impl BodySchema for RejectAnyBody {
    fn check(&self, _body: &Map<String, Value>) -> Result<(), BodyProblem> {
        Err(BodyProblem { pointer: String::new(), problem: "is never valid".to_owned() })
    }
}

pub fn into_fault(outcome: ProcessOutcome) -> Fault {
    match outcome {
        ProcessOutcome::Fault(fault) => *fault,
        other => panic!("expected a fault: {other:?}"),
    }
}

pub fn into_processed(outcome: ProcessOutcome) -> ProcessedFrame {
    match outcome {
        ProcessOutcome::Processed(processed) => *processed,
        other => panic!("expected a processed frame: {other:?}"),
    }
}

pub fn into_relayed(outcome: ProcessOutcome) -> RelayedFrame {
    match outcome {
        ProcessOutcome::Relayed(relayed) => *relayed,
        other => panic!("expected a relayed frame: {other:?}"),
    }
}

pub fn expect_fault(node: impl Borrow<Node>, frame: Frame) -> Fault {
    into_fault(process(node.borrow(), frame, NOW))
}

pub fn expect_processed(node: impl Borrow<Node>, frame: Frame) -> ProcessedFrame {
    into_processed(process(node.borrow(), frame, NOW))
}

pub fn expect_relayed(node: impl Borrow<Node>, frame: Frame) -> RelayedFrame {
    into_relayed(process(node.borrow(), frame, NOW))
}
