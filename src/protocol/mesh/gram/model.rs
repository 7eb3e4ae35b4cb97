//! Parts of a gram: nodes, edges, limits and errors.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Importance of a node that does not declare one.
pub const DEFAULT_IMPORTANCE: f64 = 0.5;
/// Type of a node that stands for a node of another gram, so that an edge can end there.
pub const REFERENCE_TYPE: &str = "reference";
/// Member of a gram's metadata with its hash.
pub const HASH_KEY: &str = "contentHash";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GramLimits {
    pub nodes: usize,
    pub edges: usize,
    /// Bytes of an id, a type or a context.
    pub name: usize,
    /// Bytes of any text.
    pub text: usize,
    /// Nesting of objects and arrays.
    pub depth: usize,
}

impl Default for GramLimits {
    fn default() -> Self {
        Self { nodes: 10_000, edges: 50_000, name: 512, text: 64 * 1024, depth: 32 }
    }
}

/// A broken rule of a gram.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{pointer}: {problem} (rule `{rule}`)")]
pub struct GramError {
    pub rule: &'static str,
    /// JSON Pointer (RFC 6901) into the gram.
    pub pointer: String,
    pub problem: String,
}

impl GramError {
    /// Two different grams of a message have one id.
    pub(in super::super) fn conflicting_id() -> Self {
        let problem = "is the id of a different MemoryGram in the message".to_owned();
        Self { rule: "gram-immutable", pointer: "/id".to_owned(), problem }
    }
}

/// One remembered thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GramNode {
    /// Unique in its gram.
    pub id: String,
    /// `entity`, `state`, `note`, `file`, ...
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// `importance`, `decay`, `at`, `sources` and others.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Members that the spec does not define.
    #[serde(flatten)]
    pub extra_members: Map<String, Value>,
}

/// A relation between two nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GramEdge {
    pub source: String,
    pub target: String,
    /// From 0 to 1.
    pub weight: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Members that the spec does not define.
    #[serde(flatten)]
    pub extra_members: Map<String, Value>,
}

impl GramNode {
    /// Creates a node without attributes.
    pub fn new(id: impl Into<String>, kind: impl Into<String>, importance: f64) -> Self {
        let mut metadata = Map::new();
        metadata.insert("importance".to_owned(), importance.into());
        Self { id: id.into(), kind: kind.into(), attributes: Map::new(), metadata, extra_members: Map::new() }
    }

    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn with_known_since(mut self, at: Timestamp) -> Self {
        self.metadata.insert("at".to_owned(), at.to_string().into());
        self
    }

    #[must_use]
    pub fn with_decay(mut self, decay: f64) -> Self {
        self.metadata.insert("decay".to_owned(), decay.into());
        self
    }

    /// From 0 to 1.
    pub fn importance(&self) -> f64 {
        self.metadata.get("importance").and_then(Value::as_f64).unwrap_or(DEFAULT_IMPORTANCE)
    }

    /// Share of the importance that the node loses per hour.
    pub fn decay(&self) -> f64 {
        self.metadata.get("decay").and_then(Value::as_f64).unwrap_or_default()
    }

    pub fn known_since(&self) -> Option<Timestamp> {
        self.metadata.get("at").and_then(Value::as_str).and_then(parse_utc_timestamp)
    }

    /// Importance after decay since `known_since`, or else since `otherwise`.
    pub fn importance_at(&self, now: Timestamp, otherwise: Timestamp) -> f64 {
        let age = now.as_second() - self.known_since().unwrap_or(otherwise).as_second();
        let hours = age.max(0) as f64 / 3600.0;
        self.importance() * (1.0 - self.decay()).powf(hours)
    }

    pub fn is_reference(&self) -> bool {
        self.kind == REFERENCE_TYPE
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

impl GramEdge {
    pub fn new(source: impl Into<String>, target: impl Into<String>, weight: f64) -> Self {
        Self { source: source.into(), target: target.into(), weight, context: None, extra_members: Map::new() }
    }

    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

/// Parses an ISO 8601 timestamp that is explicitly in UTC.
pub(super) fn parse_utc_timestamp(text: &str) -> Option<Timestamp> {
    let utc = text.ends_with(['Z', 'z']) || ["+00:00", "+0000", "+00"].iter().any(|end| text.ends_with(end));
    // jiff accepts more than ISO 8601: require ten characters of a date (or eight) and a `T`.
    let shaped =
        text.as_bytes().get(10).is_none_or(|at| matches!(at, b'T' | b't')) || text.as_bytes().get(8) == Some(&b'T');
    if utc && shaped && text.len() <= 40 { text.parse().ok() } else { None }
}
