//! [`MemoryGram`]: a validated snapshot. Parsing reports the first broken rule.

use std::borrow::Cow;
use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::{Uuid, Variant};

use super::super::canonical::{sha256_hex, to_canonical_json};
use super::super::syntax::escape_pointer_token;
use super::model::{GramEdge, GramError, GramLimits, GramNode, HASH_KEY, parse_utc_timestamp};

/// Members that the spec defines.
const NODE_MEMBERS: [&str; 4] = ["id", "type", "attributes", "metadata"];
const EDGE_MEMBERS: [&str; 4] = ["source", "target", "weight", "context"];

fn gram_error<T>(rule: &'static str, pointer: impl Into<String>, problem: impl Into<String>) -> Result<T, GramError> {
    Err(GramError { rule, pointer: pointer.into(), problem: problem.into() })
}

/// An immutable snapshot of memory.
#[derive(Debug, Clone)]
pub struct MemoryGram {
    json: Map<String, Value>,
    id: Uuid,
    timestamp: Timestamp,
    nodes: Vec<GramNode>,
    edges: Vec<GramEdge>,
    hash: String,
}

/// Compares by hash.
impl PartialEq for MemoryGram {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

/// An entry of a frame's `MemoryGrams`.
#[derive(Debug)]
pub enum GramEntry {
    Gram(MemoryGram),
    /// A node outside of a gram, as in the example of 1.4: not a snapshot, as it has neither a timestamp nor a UUID.
    LoneNode(GramNode),
}

impl MemoryGram {
    pub fn id(&self) -> Uuid {
        self.id
    }

    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    pub fn nodes(&self) -> &[GramNode] {
        &self.nodes
    }

    pub fn edges(&self) -> &[GramEdge] {
        &self.edges
    }

    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.json.get("metadata").and_then(Value::as_object)
    }

    /// `metadata.sourceAgent`.
    pub fn source_agent(&self) -> Option<&str> {
        self.metadata()?.get("sourceAgent")?.as_str()
    }

    /// `sha256:` and 64 hexadecimal digits, over everything but `metadata.contentHash`.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The JSON members as received.
    pub fn members(&self) -> &Map<String, Value> {
        &self.json
    }

    /// `{"MemoryGram": {...}}` (6.0).
    pub fn to_json(&self) -> Value {
        let mut outer = Map::new();
        outer.insert("MemoryGram".to_owned(), Value::Object(self.json.clone()));
        Value::Object(outer)
    }

    /// Parses a gram: `{"MemoryGram": {...}}`, or its inside alone.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn from_json(value: &Value, limits: &GramLimits) -> Result<Self, GramError> {
        match value.as_object() {
            Some(outer) => Self::from_wrapped_members(outer, limits),
            None => gram_error("gram-nodes", "", "a MemoryGram must be an object"),
        }
    }

    fn from_wrapped_members(outer: &Map<String, Value>, limits: &GramLimits) -> Result<Self, GramError> {
        let json = match outer.get("MemoryGram") {
            None => outer,
            Some(Value::Object(inner)) if outer.len() == 1 => inner,
            Some(_) => return gram_error("gram-nodes", "/MemoryGram", "must be an object, and the only member"),
        };
        Self::from_members(json.clone(), limits)
    }

    /// Parses an entry of a frame's `MemoryGrams`.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn from_entry(entry: &Map<String, Value>, limits: &GramLimits) -> Result<GramEntry, GramError> {
        let snapshot = ["MemoryGram", "nodes", "timestamp"].iter().any(|key| entry.contains_key(*key));
        if snapshot || !entry.contains_key("type") {
            return Self::from_wrapped_members(entry, limits).map(GramEntry::Gram);
        }
        check_member_limits(entry, limits)?;
        parse_node(entry, limits, String::new()).map(GramEntry::LoneNode)
    }

    pub(super) fn from_members(json: Map<String, Value>, limits: &GramLimits) -> Result<Self, GramError> {
        let nodes = parse_array(&json, "nodes", limits.nodes)?;
        let edges = parse_array(&json, "edges", limits.edges)?;
        check_member_limits(&json, limits)?;
        let text = |member: &str| json.get(member).and_then(Value::as_str);
        let Some(id) = text("id").and_then(parse_uuid_v4) else {
            return gram_error("gram-id", "/id", "must be a UUID v4");
        };
        let Some(timestamp) = text("timestamp").and_then(parse_utc_timestamp) else {
            return gram_error("gram-timestamp", "/timestamp", "must be a UTC timestamp like `2025-06-26T23:00:00Z`");
        };
        let nodes: Vec<GramNode> = parse_entries(nodes, "/nodes", |entry, pointer| parse_node(entry, limits, pointer))?;
        let mut ids = HashSet::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if !ids.insert(node.id.as_str()) {
                let problem = format!("duplicate id `{}`", node.id);
                return gram_error("gram-node-twice", format!("/nodes/{index}/id"), problem);
            }
        }
        let edges: Vec<GramEdge> = parse_entries(edges, "/edges", |entry, pointer| parse_edge(entry, limits, pointer))?;
        for (index, edge) in edges.iter().enumerate() {
            for (member, end) in [("source", &edge.source), ("target", &edge.target)] {
                if !ids.contains(end.as_str()) {
                    let problem = format!("no node has the id `{end}`");
                    return gram_error("gram-edge-ref", format!("/edges/{index}/{member}"), problem);
                }
            }
        }
        let claimed = match json.get("metadata") {
            None => None,
            Some(Value::Object(metadata)) => metadata.get(HASH_KEY),
            Some(_) => return gram_error("gram-metadata", "/metadata", "must be an object"),
        };
        let hash = content_hash(&json);
        if let Some(claimed) = claimed
            && claimed.as_str() != Some(hash.as_str())
        {
            let problem = format!("the gram was modified: its hash is `{hash}`, but it claims {claimed}");
            return gram_error("gram-hash", format!("/metadata/{HASH_KEY}"), problem);
        }
        Ok(Self { json, id, timestamp, nodes, edges, hash })
    }
}

/// Hash of a gram's members without `metadata.contentHash`.
pub(super) fn content_hash(json: &Map<String, Value>) -> String {
    let mut json = Cow::Borrowed(json);
    if json.get("metadata").and_then(Value::as_object).is_some_and(|metadata| metadata.contains_key(HASH_KEY))
        && let Some(Value::Object(metadata)) = json.to_mut().get_mut("metadata")
    {
        metadata.shift_remove(HASH_KEY);
    }
    format!("sha256:{}", sha256_hex(to_canonical_json(&*json)))
}

/// Parses a UUID v4 in its hyphenated form.
fn parse_uuid_v4(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == 36)?;
    (uuid.get_version_num() == 4 && uuid.get_variant() == Variant::RFC4122).then_some(uuid)
}

fn parse_array<'a>(json: &'a Map<String, Value>, name: &str, most: usize) -> Result<&'a Vec<Value>, GramError> {
    match json.get(name) {
        Some(Value::Array(entries)) if entries.len() > most => {
            gram_error("gram-limit", format!("/{name}"), format!("has {} entries, {most} are allowed", entries.len()))
        }
        Some(Value::Array(entries)) => Ok(entries),
        _ => gram_error("gram-nodes", format!("/{name}"), "must be an array of objects"),
    }
}

fn parse_entries<T>(
    entries: &[Value],
    pointer: &str,
    read: impl Fn(&Map<String, Value>, String) -> Result<T, GramError>,
) -> Result<Vec<T>, GramError> {
    let one = |(index, entry): (usize, &Value)| match entry {
        Value::Object(entry) => read(entry, format!("{pointer}/{index}")),
        _ => gram_error("gram-nodes", format!("{pointer}/{index}"), "must be an object"),
    };
    entries.iter().enumerate().map(one).collect()
}

fn parse_node(entry: &Map<String, Value>, limits: &GramLimits, pointer: String) -> Result<GramNode, GramError> {
    let node = GramNode {
        id: parse_name(entry, "id", "gram-node", limits, &pointer)?,
        kind: parse_name(entry, "type", "gram-node", limits, &pointer)?,
        attributes: parse_object(entry, "attributes", "gram-node", &pointer)?,
        metadata: parse_object(entry, "metadata", "gram-metadata", &pointer)?,
        extra_members: unknown_members(entry, &NODE_MEMBERS),
    };
    for member in ["importance", "decay"] {
        if node.metadata.get(member).is_some_and(|value| parse_unit_fraction(value).is_none()) {
            return gram_error("gram-metadata", format!("{pointer}/metadata/{member}"), "must be a number from 0 to 1");
        }
    }
    Ok(node)
}

fn parse_edge(entry: &Map<String, Value>, limits: &GramLimits, pointer: String) -> Result<GramEdge, GramError> {
    let Some(weight) = entry.get("weight").and_then(parse_unit_fraction) else {
        return gram_error("gram-edge", format!("{pointer}/weight"), "must be a number from 0 to 1");
    };
    let context = match entry.get("context") {
        None => None,
        Some(Value::String(text)) if text.len() <= limits.name => Some(text.clone()),
        Some(Value::String(_)) => return too_long(format!("{pointer}/context"), limits.name),
        Some(_) => return gram_error("gram-edge", format!("{pointer}/context"), "must be a string"),
    };
    Ok(GramEdge {
        source: parse_name(entry, "source", "gram-edge", limits, &pointer)?,
        target: parse_name(entry, "target", "gram-edge", limits, &pointer)?,
        weight,
        context,
        extra_members: unknown_members(entry, &EDGE_MEMBERS),
    })
}

fn parse_unit_fraction(value: &Value) -> Option<f64> {
    value.as_f64().filter(|share| (0.0..=1.0).contains(share))
}

fn parse_name(
    entry: &Map<String, Value>,
    member: &str,
    rule: &'static str,
    limits: &GramLimits,
    pointer: &str,
) -> Result<String, GramError> {
    match entry.get(member) {
        Some(Value::String(text)) if text.len() > limits.name => too_long(format!("{pointer}/{member}"), limits.name),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        _ => gram_error(rule, format!("{pointer}/{member}"), "must be a non-empty string"),
    }
}

fn parse_object(
    entry: &Map<String, Value>,
    member: &str,
    rule: &'static str,
    pointer: &str,
) -> Result<Map<String, Value>, GramError> {
    match entry.get(member) {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => gram_error(rule, format!("{pointer}/{member}"), "must be an object"),
    }
}

fn unknown_members(entry: &Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    let unknown = entry.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn too_long<T>(pointer: String, most: usize) -> Result<T, GramError> {
    gram_error("gram-limit", pointer, format!("is longer than {most} bytes"))
}

fn check_member_limits(json: &Map<String, Value>, limits: &GramLimits) -> Result<(), GramError> {
    json.iter().try_for_each(|(name, value)| {
        check_value_limits(value, limits, 1, &mut format!("/{}", escape_pointer_token(name)))
    })
}

fn check_value_limits(value: &Value, limits: &GramLimits, depth: usize, pointer: &mut String) -> Result<(), GramError> {
    if depth > limits.depth {
        return gram_error("gram-limit", pointer.as_str(), format!("is nested deeper than {} levels", limits.depth));
    }
    let length = pointer.len();
    let mut inside = |name: &str, value: &Value| {
        pointer.push('/');
        pointer.push_str(&escape_pointer_token(name));
        check_value_limits(value, limits, depth + 1, pointer)?;
        pointer.truncate(length);
        Ok(())
    };
    match value {
        Value::String(text) if text.len() > limits.text => too_long(pointer.clone(), limits.text),
        Value::Array(entries) => {
            entries.iter().enumerate().try_for_each(|(index, entry)| inside(&index.to_string(), entry))
        }
        Value::Object(entries) => entries.iter().try_for_each(|(name, entry)| {
            if name.len() > limits.name {
                return too_long("a member's name".to_owned(), limits.name);
            }
            inside(name, entry)
        }),
        _ => Ok(()),
    }
}
