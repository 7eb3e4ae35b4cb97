//! JSON -> [`MemoryGram`], with every rule checked. The first that is broken is told.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::{Uuid, Variant};

use super::{GramEdge, GramError, GramLimits, GramNode, HASH_KEY, MemoryGram, content_hash};

/// The members of a node and of an edge that the spec knows.
const NODE_MEMBERS: [&str; 4] = ["id", "type", "attributes", "metadata"];
const EDGE_MEMBERS: [&str; 4] = ["source", "target", "weight", "context"];

fn gram_error<T>(rule: &'static str, place: impl Into<String>, problem: impl Into<String>) -> Result<T, GramError> {
    Err(GramError { rule, pointer: place.into(), problem: problem.into() })
}

impl MemoryGram {
    /// Reads a gram: `{"MemoryGram": {...}}`, or its inside alone.
    ///
    /// # Errors
    /// [`GramError`], by the first rule that is broken.
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

    /// Reads an entry of a frame's `MemoryGrams`. A lone node, as the example of 1.4 has one, is no snapshot: it has no time of
    /// its own and no UUID, and comes as [`Err`] of the node.
    ///
    /// # Errors
    /// [`GramError`], by the first rule that is broken.
    pub fn from_entry(entry: &Map<String, Value>, limits: &GramLimits) -> Result<Result<Self, GramNode>, GramError> {
        let snapshot = ["MemoryGram", "nodes", "timestamp"].iter().any(|key| entry.contains_key(*key));
        if snapshot || !entry.contains_key("type") {
            return Self::from_wrapped_members(entry, limits).map(Ok);
        }
        check_member_limits(entry, limits)?;
        parse_node(entry, limits, String::new()).map(Err)
    }

    pub(super) fn from_members(json: Map<String, Value>, limits: &GramLimits) -> Result<Self, GramError> {
        let nodes = parse_array(&json, "nodes", limits.nodes)?;
        let edges = parse_array(&json, "edges", limits.edges)?;
        check_member_limits(&json, limits)?;
        let id = match json.get("id") {
            Some(Value::String(text)) => parse_uuid_v4(text),
            _ => None,
        };
        let Some(id) = id else { return gram_error("gram-id", "/id", "must be a UUID v4") };
        let timestamp = match json.get("timestamp") {
            Some(Value::String(text)) => parse_utc_timestamp(text),
            _ => None,
        };
        let Some(timestamp) = timestamp else {
            return gram_error(
                "gram-timestamp",
                "/timestamp",
                "must be an ISO 8601 time in UTC, as `2025-06-26T23:00:00Z`",
            );
        };
        let nodes: Vec<GramNode> = parse_entries(nodes, "/nodes", |entry, place| parse_node(entry, limits, place))?;
        let mut ids = HashSet::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if !ids.insert(node.id.as_str()) {
                return gram_error(
                    "gram-node-twice",
                    format!("/nodes/{index}/id"),
                    format!("`{}` is there twice", node.id),
                );
            }
        }
        let edges: Vec<GramEdge> = parse_entries(edges, "/edges", |entry, place| parse_edge(entry, limits, place))?;
        for (index, edge) in edges.iter().enumerate() {
            for (member, end) in [("source", &edge.source), ("target", &edge.target)] {
                if !ids.contains(end.as_str()) {
                    return gram_error(
                        "gram-edge-ref",
                        format!("/edges/{index}/{member}"),
                        format!("no node is called `{end}`"),
                    );
                }
            }
        }
        let said = match json.get("metadata") {
            None => None,
            Some(Value::Object(metadata)) => metadata.get(HASH_KEY),
            Some(_) => return gram_error("gram-metadata", "/metadata", "must be an object"),
        };
        let hash = content_hash(&json);
        if let Some(said) = said
            && said.as_str() != Some(hash.as_str())
        {
            let problem = format!("the gram was changed after it was made: its hash is `{hash}`, and it says {said}");
            return gram_error("gram-hash", format!("/metadata/{HASH_KEY}"), problem);
        }
        Ok(Self { json, id, timestamp, nodes, edges, hash })
    }
}

/// A UUID v4 in its hyphenated form.
pub(super) fn parse_uuid_v4(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == 36)?;
    (uuid.get_version_num() == 4 && uuid.get_variant() == Variant::RFC4122).then_some(uuid)
}

/// A time in UTC: one that says so.
pub(super) fn parse_utc_timestamp(text: &str) -> Option<Timestamp> {
    let utc = text.ends_with(['Z', 'z']) || ["+00:00", "+0000", "+00"].iter().any(|end| text.ends_with(end));
    // Ten characters of a date, then the time: what else a parser may take is no ISO 8601.
    let shaped =
        text.as_bytes().get(10).is_none_or(|at| matches!(at, b'T' | b't')) || text.as_bytes().get(8) == Some(&b'T');
    if utc && shaped && text.len() <= 40 { text.parse().ok() } else { None }
}

fn parse_array<'a>(json: &'a Map<String, Value>, name: &str, most: usize) -> Result<&'a Vec<Value>, GramError> {
    match json.get(name) {
        Some(Value::Array(entries)) if entries.len() > most => {
            gram_error("gram-limit", format!("/{name}"), format!("has {} entries, and may have {most}", entries.len()))
        }
        Some(Value::Array(entries)) => Ok(entries),
        _ => gram_error("gram-nodes", format!("/{name}"), "must be an array of objects"),
    }
}

fn parse_entries<T>(
    entries: &[Value],
    place: &str,
    read: impl Fn(&Map<String, Value>, String) -> Result<T, GramError>,
) -> Result<Vec<T>, GramError> {
    let one = |(index, entry): (usize, &Value)| match entry {
        Value::Object(entry) => read(entry, format!("{place}/{index}")),
        _ => gram_error("gram-nodes", format!("{place}/{index}"), "must be an object"),
    };
    entries.iter().enumerate().map(one).collect()
}

fn parse_node(entry: &Map<String, Value>, limits: &GramLimits, place: String) -> Result<GramNode, GramError> {
    let node = GramNode {
        id: parse_name(entry, "id", "gram-node", limits, &place)?,
        kind: parse_name(entry, "type", "gram-node", limits, &place)?,
        attributes: parse_object(entry, "attributes", "gram-node", &place)?,
        metadata: parse_object(entry, "metadata", "gram-metadata", &place)?,
        extra_members: unknown_members(entry, &NODE_MEMBERS),
    };
    for member in ["importance", "decay"] {
        if node.metadata.get(member).is_some_and(|value| parse_unit_fraction(value).is_none()) {
            return gram_error("gram-metadata", format!("{place}/metadata/{member}"), "must be a number from 0 to 1");
        }
    }
    Ok(node)
}

fn parse_edge(entry: &Map<String, Value>, limits: &GramLimits, place: String) -> Result<GramEdge, GramError> {
    let Some(weight) = entry.get("weight").and_then(parse_unit_fraction) else {
        return gram_error("gram-edge", format!("{place}/weight"), "must be a number from 0 to 1");
    };
    let context = match entry.get("context") {
        None => None,
        Some(Value::String(text)) if text.len() <= limits.name => Some(text.clone()),
        Some(Value::String(_)) => return too_long(format!("{place}/context"), limits.name),
        Some(_) => return gram_error("gram-edge", format!("{place}/context"), "must be a text"),
    };
    Ok(GramEdge {
        source: parse_name(entry, "source", "gram-edge", limits, &place)?,
        target: parse_name(entry, "target", "gram-edge", limits, &place)?,
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
    place: &str,
) -> Result<String, GramError> {
    match entry.get(member) {
        Some(Value::String(text)) if text.len() > limits.name => too_long(format!("{place}/{member}"), limits.name),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        _ => gram_error(rule, format!("{place}/{member}"), "must be a text that is not empty"),
    }
}

fn parse_object(
    entry: &Map<String, Value>,
    member: &str,
    rule: &'static str,
    place: &str,
) -> Result<Map<String, Value>, GramError> {
    match entry.get(member) {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => gram_error(rule, format!("{place}/{member}"), "must be an object"),
    }
}

fn unknown_members(entry: &Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    let unknown = entry.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn too_long<T>(place: String, most: usize) -> Result<T, GramError> {
    gram_error("gram-limit", place, format!("is longer than {most} bytes"))
}

fn check_member_limits(json: &Map<String, Value>, limits: &GramLimits) -> Result<(), GramError> {
    json.iter().try_for_each(|(name, value)| {
        check_value_limits(value, limits, 1, &mut format!("/{}", escape_pointer_token(name)))
    })
}

/// No text too long, nothing too deep.
fn check_value_limits(value: &Value, limits: &GramLimits, depth: usize, place: &mut String) -> Result<(), GramError> {
    if depth > limits.depth {
        return gram_error("gram-limit", place.as_str(), format!("is deeper than {} objects and arrays", limits.depth));
    }
    let length = place.len();
    let mut inside = |name: &str, value: &Value| {
        place.push('/');
        place.push_str(&escape_pointer_token(name));
        check_value_limits(value, limits, depth + 1, place)?;
        place.truncate(length);
        Ok(())
    };
    match value {
        Value::String(text) if text.len() > limits.text => too_long(place.clone(), limits.text),
        Value::Array(entries) => {
            entries.iter().enumerate().try_for_each(|(index, entry)| inside(&index.to_string(), entry))
        }
        Value::Object(entries) => entries.iter().try_for_each(|(name, entry)| {
            if name.len() > limits.name {
                let place = "a member's name".to_owned();
                return too_long(place, limits.name);
            }
            inside(name, entry)
        }),
        _ => Ok(()),
    }
}

/// A member's name in a JSON pointer (RFC 6901, section 3).
fn escape_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
