//! MemoryGrams: what agents learned, as graphs that travel (spec, 6.0 and appendix A). Read, checked, merged, cut to size, shown.
//!
//! A gram is JSON that somebody else made: [`MemoryGram::parse`] checks every rule once, and keeps the JSON as it came, members
//! that it does not know included. Nothing changes a gram: what is made of several is a [`GramDraft`], and a new gram once it is
//! sealed. Used by `protocol/mesh/frame.rs`, `handoff/`, `coordinator/`, `shim/` and `cli/`. Must not: do I/O or read a clock.
//!
//! | file | what |
//! |---|---|
//! | this | [`MemoryGram`], [`GramNode`], [`GramEdge`], [`GramLimits`]: the model |
//! | `read.rs` | JSON -> gram, and every rule |
//! | [`draft`] | grams made: merged, pruned, sealed with their hash |
//! | [`render`] | as markdown, table, DOT and Mermaid, every text escaped |
//!
//! # Rules
//!
//! | rule | section | what must be |
//! |---|---|---|
//! | `gram-id` | 6.0, 2 | `id` is a UUID v4 |
//! | `gram-timestamp` | 6.0, 2 | `timestamp` is ISO 8601, in UTC |
//! | `gram-nodes` | 6.0, 3 | `nodes` and `edges` are arrays of objects |
//! | `gram-node` | 6.0, 3; A.1 | a node has an `id` and a `type`; its `attributes` and `metadata`, if there, are objects |
//! | `gram-node-twice` | 6.0, 5 | node ids are unique |
//! | `gram-edge` | 6.0, 3; A.1 | an edge has `source`, `target` and a `weight` from 0 to 1; its `context`, if there, is a text |
//! | `gram-edge-ref` | 6.0, 5 | both ends of an edge are nodes of the same gram |
//! | `gram-metadata` | 6.0, 4; A.1 | `metadata` is an object; `importance` and `decay` of a node are from 0 to 1 |
//! | `gram-limit` | 7, 5 | the sizes of [`GramLimits`] |
//! | `gram-immutable` | 6.0, 1 | of the grams of a message, two that have one id are the same |
//! | `gram-hash` | 6.0, 1 | a gram that says its hash has not been changed since |
//!
//! # Choices
//!
//! - **The hash.** A gram of ours has `metadata.contentHash`: `sha256:` and the SHA-256 of its RFC 8785 form without that member.
//!   A gram without one is taken; its hash can be kept beside it.
//! - **Both forms of 1.4 and 6.0 are read**: `{"MemoryGram": {...}}`, and its inside alone. The example of 1.4 has a lone node in
//!   `MemoryGrams`, with neither nodes nor a timestamp: see [`MemoryGram::from_entry`].
//! - **The id of a gram that is made of others** is made of its hash, in the form of a UUID v4: the same memory is the same gram,
//!   whoever makes it again, and after whatever crash.
//! - **Weights, importance and decay** are held to 0 to 1, which only the appendix says (A.1, not normative): an edge with a weight of 2
//!   is refused, so that grams of several agents can be weighed against each other.
//! - **Decay** is the share of its importance that a node loses in an hour: `importance * (1 - decay) ^ hours`, by the node's
//!   `metadata.at`, or else the gram's time. A node that does not say is worth [`DEFAULT_IMPORTANCE`], and keeps it.

mod parse;
pub mod draft;
pub mod render;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

pub use draft::{ALSO_SAID_KEY, GramDraft, NOTE_TYPE, PrunedCounts};

/// The importance of a node that does not say.
pub const DEFAULT_IMPORTANCE: f64 = 0.5;
/// The type of a node that only stands for one of another gram, so that an edge can end there.
pub const REFERENCE_TYPE: &str = "reference";
/// The member of a gram's metadata that has its hash.
pub const HASH_KEY: &str = "contentHash";

/// How large a gram may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GramLimits {
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// Bytes of an id, a type or a context.
    pub name: usize,
    /// Bytes of any one text in it.
    pub text: usize,
    /// Objects and arrays in each other.
    pub depth: usize,
}

impl Default for GramLimits {
    fn default() -> Self {
        Self { nodes: 10_000, edges: 50_000, name: 512, text: 64 * 1024, depth: 32 }
    }
}

/// What is wrong with a gram.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{pointer}: {problem} (rule `{rule}`)")]
pub struct GramError {
    /// The rule's name.
    pub rule: &'static str,
    /// Where, as a JSON pointer (RFC 6901) into the gram.
    pub pointer: String,
    /// What was found, and what was wanted.
    pub problem: String,
}

impl GramError {
    /// Two grams of a message have one id, and differ.
    pub(super) fn conflicting_id() -> Self {
        let problem = "is that of another MemoryGram in the message".to_owned();
        Self { rule: "gram-immutable", pointer: "/id".to_owned(), problem }
    }
}

/// A snapshot of memory. It is what it was when it was made.
#[derive(Debug, Clone)]
pub struct MemoryGram {
    /// As it came.
    json: Map<String, Value>,
    id: Uuid,
    timestamp: Timestamp,
    nodes: Vec<GramNode>,
    edges: Vec<GramEdge>,
    hash: String,
}

/// Two grams are the same where their hashes are.
impl PartialEq for MemoryGram {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct GramNode {
    /// Unique in its gram.
    pub id: String,
    /// `entity`, `state`, `note`, `file`, ...
    pub kind: String,
    /// What is known of it.
    pub attributes: Map<String, Value>,
    /// How much it matters, and whatever else is said about it.
    pub metadata: Map<String, Value>,
    /// Members that the spec does not know.
    pub extra_members: Map<String, Value>,
}

/// How one thing has to do with another.
#[derive(Debug, Clone, PartialEq)]
pub struct GramEdge {
    /// The id of a node.
    pub source: String,
    /// The id of a node.
    pub target: String,
    /// From 0 to 1.
    pub weight: f64,
    /// A label.
    pub context: Option<String>,
    /// Members that the spec does not know.
    pub extra_members: Map<String, Value>,
}

impl GramNode {
    /// A node with no attributes, that matters so much.
    pub fn new(id: impl Into<String>, kind: impl Into<String>, importance: f64) -> Self {
        let mut metadata = Map::new();
        metadata.insert("importance".to_owned(), importance.into());
        Self { id: id.into(), kind: kind.into(), attributes: Map::new(), metadata, extra_members: Map::new() }
    }

    /// The same with this attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }

    /// The same, known since then.
    #[must_use]
    pub fn with_known_since(mut self, at: Timestamp) -> Self {
        self.metadata.insert("at".to_owned(), at.to_string().into());
        self
    }

    /// The same, losing this share of its importance an hour.
    #[must_use]
    pub fn with_decay(mut self, decay: f64) -> Self {
        self.metadata.insert("decay".to_owned(), decay.into());
        self
    }

    /// From 0 to 1.
    pub fn importance(&self) -> f64 {
        self.metadata.get("importance").and_then(Value::as_f64).unwrap_or(DEFAULT_IMPORTANCE)
    }

    /// The share of its importance that it loses in an hour.
    pub fn decay(&self) -> f64 {
        self.metadata.get("decay").and_then(Value::as_f64).unwrap_or_default()
    }

    /// Since when it is known, where it says.
    pub fn known_since(&self) -> Option<Timestamp> {
        self.metadata.get("at").and_then(Value::as_str).and_then(parse::parse_utc_timestamp)
    }

    /// What it is worth then. What is known since later than that has lost nothing.
    pub fn importance_at(&self, now: Timestamp, otherwise: Timestamp) -> f64 {
        let age = now.as_second() - self.known_since().unwrap_or(otherwise).as_second();
        let hours = age.max(0) as f64 / 3600.0;
        self.importance() * (1.0 - self.decay()).powf(hours)
    }

    /// Whether it stands for a node of another gram.
    pub fn is_reference(&self) -> bool {
        self.kind == REFERENCE_TYPE
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("id".to_owned(), self.id.clone().into());
        json.insert("type".to_owned(), self.kind.clone().into());
        for (name, object) in [("attributes", &self.attributes), ("metadata", &self.metadata)] {
            if !object.is_empty() {
                json.insert(name.to_owned(), Value::Object(object.clone()));
            }
        }
        json.extend(self.extra_members.clone());
        Value::Object(json)
    }
}

impl GramEdge {
    /// An edge with no label.
    pub fn new(source: impl Into<String>, target: impl Into<String>, weight: f64) -> Self {
        Self { source: source.into(), target: target.into(), weight, context: None, extra_members: Map::new() }
    }

    /// The same with this label.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("source".to_owned(), self.source.clone().into());
        json.insert("target".to_owned(), self.target.clone().into());
        json.insert("weight".to_owned(), self.weight.into());
        if let Some(context) = &self.context {
            json.insert("context".to_owned(), context.clone().into());
        }
        json.extend(self.extra_members.clone());
        Value::Object(json)
    }
}

impl MemoryGram {
    /// The snapshot's id: a UUID v4.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// When it was made.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// What is remembered.
    pub fn nodes(&self) -> &[GramNode] {
        &self.nodes
    }

    /// How it hangs together.
    pub fn edges(&self) -> &[GramEdge] {
        &self.edges
    }

    /// What is said of the snapshot; empty where nothing is.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.json.get("metadata").and_then(Value::as_object)
    }

    /// `metadata.sourceAgent`: who made it.
    pub fn source_agent(&self) -> Option<&str> {
        self.metadata()?.get("sourceAgent")?.as_str()
    }

    /// `sha256:` and 64 digits, over all of it but the hash that it says itself.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Its members, as they came.
    pub fn members(&self) -> &Map<String, Value> {
        &self.json
    }

    /// `{"MemoryGram": {...}}`, as 6.0 has it.
    pub fn to_json(&self) -> Value {
        let mut outer = Map::new();
        outer.insert("MemoryGram".to_owned(), Value::Object(self.json.clone()));
        Value::Object(outer)
    }
}

/// RFC 8785.
pub(super) fn to_canonical_json(json: &Map<String, Value>) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(json).expect("JSON that was read or made has string keys and finite numbers")
}

/// The hash of a gram's members, but for the one that has it.
fn content_hash(json: &Map<String, Value>) -> String {
    let said = json.get("metadata").and_then(Value::as_object).is_some_and(|metadata| metadata.contains_key(HASH_KEY));
    let bytes = if said {
        let mut without = json.clone();
        if let Some(Value::Object(metadata)) = without.get_mut("metadata") {
            metadata.shift_remove(HASH_KEY);
        }
        to_canonical_json(&without)
    } else {
        to_canonical_json(json)
    };
    let mut hash = String::from("sha256:");
    for byte in Sha256::digest(&bytes) {
        hash.push_str(&format!("{byte:02x}"));
    }
    hash
}
