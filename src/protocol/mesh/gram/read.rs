//! JSON -> [`MemoryGram`], with every rule checked. The first that is broken is told.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::{Uuid, Variant};

use super::{Edge, GramError, HASH, Limits, MemoryGram, Node, hash_of};

/// The members of a node and of an edge that the spec knows.
const NODE: [&str; 4] = ["id", "type", "attributes", "metadata"];
const EDGE: [&str; 4] = ["source", "target", "weight", "context"];

fn wrong<T>(rule: &'static str, place: impl Into<String>, problem: impl Into<String>) -> Result<T, GramError> {
    Err(GramError { rule, place: place.into(), problem: problem.into() })
}

impl MemoryGram {
    /// Reads a gram: `{"MemoryGram": {...}}`, or its inside alone.
    ///
    /// # Errors
    /// [`GramError`], by the first rule that is broken.
    pub fn read(value: &Value, limits: &Limits) -> Result<Self, GramError> {
        match value.as_object() {
            Some(outer) => Self::read_members(outer, limits),
            None => wrong("gram-nodes", "", "a MemoryGram must be an object"),
        }
    }

    fn read_members(outer: &Map<String, Value>, limits: &Limits) -> Result<Self, GramError> {
        let json = match outer.get("MemoryGram") {
            None => outer,
            Some(Value::Object(inner)) if outer.len() == 1 => inner,
            Some(_) => return wrong("gram-nodes", "/MemoryGram", "must be an object, and the only member"),
        };
        Self::of(json.clone(), limits)
    }

    /// Reads an entry of a frame's `MemoryGrams`. A lone node, as the example of 1.4 has one, is no snapshot: it has no time of
    /// its own and no UUID, and comes as [`Err`] of the node.
    ///
    /// # Errors
    /// [`GramError`], by the first rule that is broken.
    pub fn read_entry(entry: &Map<String, Value>, limits: &Limits) -> Result<Result<Self, Node>, GramError> {
        let snapshot = ["MemoryGram", "nodes", "timestamp"].iter().any(|key| entry.contains_key(*key));
        if snapshot || !entry.contains_key("type") {
            return Self::read_members(entry, limits).map(Ok);
        }
        members_bounded(entry, limits)?;
        node(entry, limits, String::new()).map(Err)
    }

    pub(super) fn of(json: Map<String, Value>, limits: &Limits) -> Result<Self, GramError> {
        let nodes = array(&json, "nodes", limits.nodes)?;
        let edges = array(&json, "edges", limits.edges)?;
        members_bounded(&json, limits)?;
        let id = match json.get("id") {
            Some(Value::String(text)) => uuid_v4(text),
            _ => None,
        };
        let Some(id) = id else { return wrong("gram-id", "/id", "must be a UUID v4") };
        let timestamp = match json.get("timestamp") {
            Some(Value::String(text)) => utc(text),
            _ => None,
        };
        let Some(timestamp) = timestamp else {
            return wrong("gram-timestamp", "/timestamp", "must be an ISO 8601 time in UTC, as `2025-06-26T23:00:00Z`");
        };
        let nodes: Vec<Node> = each(nodes, "/nodes", |entry, place| node(entry, limits, place))?;
        let mut ids = HashSet::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if !ids.insert(node.id.as_str()) {
                return wrong("gram-node-twice", format!("/nodes/{index}/id"), format!("`{}` is there twice", node.id));
            }
        }
        let edges: Vec<Edge> = each(edges, "/edges", |entry, place| edge(entry, limits, place))?;
        for (index, edge) in edges.iter().enumerate() {
            for (member, end) in [("source", &edge.source), ("target", &edge.target)] {
                if !ids.contains(end.as_str()) {
                    return wrong(
                        "gram-edge-ref",
                        format!("/edges/{index}/{member}"),
                        format!("no node is called `{end}`"),
                    );
                }
            }
        }
        let said = match json.get("metadata") {
            None => None,
            Some(Value::Object(metadata)) => metadata.get(HASH),
            Some(_) => return wrong("gram-metadata", "/metadata", "must be an object"),
        };
        let hash = hash_of(&json);
        if let Some(said) = said
            && said.as_str() != Some(hash.as_str())
        {
            let problem = format!("the gram was changed after it was made: its hash is `{hash}`, and it says {said}");
            return wrong("gram-hash", format!("/metadata/{HASH}"), problem);
        }
        Ok(Self { json, id, timestamp, nodes, edges, hash })
    }
}

/// A UUID v4 in its hyphenated form.
pub(super) fn uuid_v4(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == 36)?;
    (uuid.get_version_num() == 4 && uuid.get_variant() == Variant::RFC4122).then_some(uuid)
}

/// A time in UTC: one that says so.
pub(super) fn utc(text: &str) -> Option<Timestamp> {
    let utc = text.ends_with(['Z', 'z']) || ["+00:00", "+0000", "+00"].iter().any(|end| text.ends_with(end));
    // Ten characters of a date, then the time: what else a parser may take is no ISO 8601.
    let shaped =
        text.as_bytes().get(10).is_none_or(|at| matches!(at, b'T' | b't')) || text.as_bytes().get(8) == Some(&b'T');
    if utc && shaped && text.len() <= 40 { text.parse().ok() } else { None }
}

fn array<'a>(json: &'a Map<String, Value>, name: &str, most: usize) -> Result<&'a Vec<Value>, GramError> {
    match json.get(name) {
        Some(Value::Array(entries)) if entries.len() > most => {
            wrong("gram-limit", format!("/{name}"), format!("has {} entries, and may have {most}", entries.len()))
        }
        Some(Value::Array(entries)) => Ok(entries),
        _ => wrong("gram-nodes", format!("/{name}"), "must be an array of objects"),
    }
}

fn each<T>(
    entries: &[Value],
    place: &str,
    read: impl Fn(&Map<String, Value>, String) -> Result<T, GramError>,
) -> Result<Vec<T>, GramError> {
    let one = |(index, entry): (usize, &Value)| match entry {
        Value::Object(entry) => read(entry, format!("{place}/{index}")),
        _ => wrong("gram-nodes", format!("{place}/{index}"), "must be an object"),
    };
    entries.iter().enumerate().map(one).collect()
}

fn node(entry: &Map<String, Value>, limits: &Limits, place: String) -> Result<Node, GramError> {
    let node = Node {
        id: name(entry, "id", "gram-node", limits, &place)?,
        kind: name(entry, "type", "gram-node", limits, &place)?,
        attributes: object(entry, "attributes", "gram-node", &place)?,
        metadata: object(entry, "metadata", "gram-metadata", &place)?,
        rest: rest(entry, &NODE),
    };
    for member in ["importance", "decay"] {
        if node.metadata.get(member).is_some_and(|value| share(value).is_none()) {
            return wrong("gram-metadata", format!("{place}/metadata/{member}"), "must be a number from 0 to 1");
        }
    }
    Ok(node)
}

fn edge(entry: &Map<String, Value>, limits: &Limits, place: String) -> Result<Edge, GramError> {
    let Some(weight) = entry.get("weight").and_then(share) else {
        return wrong("gram-edge", format!("{place}/weight"), "must be a number from 0 to 1");
    };
    let context = match entry.get("context") {
        None => None,
        Some(Value::String(text)) if text.len() <= limits.name => Some(text.clone()),
        Some(Value::String(_)) => return too_long(format!("{place}/context"), limits.name),
        Some(_) => return wrong("gram-edge", format!("{place}/context"), "must be a text"),
    };
    Ok(Edge {
        source: name(entry, "source", "gram-edge", limits, &place)?,
        target: name(entry, "target", "gram-edge", limits, &place)?,
        weight,
        context,
        rest: rest(entry, &EDGE),
    })
}

fn share(value: &Value) -> Option<f64> {
    value.as_f64().filter(|share| (0.0..=1.0).contains(share))
}

fn name(
    entry: &Map<String, Value>,
    member: &str,
    rule: &'static str,
    limits: &Limits,
    place: &str,
) -> Result<String, GramError> {
    match entry.get(member) {
        Some(Value::String(text)) if text.len() > limits.name => too_long(format!("{place}/{member}"), limits.name),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        _ => wrong(rule, format!("{place}/{member}"), "must be a text that is not empty"),
    }
}

fn object(
    entry: &Map<String, Value>,
    member: &str,
    rule: &'static str,
    place: &str,
) -> Result<Map<String, Value>, GramError> {
    match entry.get(member) {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => wrong(rule, format!("{place}/{member}"), "must be an object"),
    }
}

fn rest(entry: &Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    let unknown = entry.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn too_long<T>(place: String, most: usize) -> Result<T, GramError> {
    wrong("gram-limit", place, format!("is longer than {most} bytes"))
}

fn members_bounded(json: &Map<String, Value>, limits: &Limits) -> Result<(), GramError> {
    json.iter().try_for_each(|(name, value)| bounded(value, limits, 1, &mut format!("/{}", escaped(name))))
}

/// No text too long, nothing too deep.
fn bounded(value: &Value, limits: &Limits, depth: usize, place: &mut String) -> Result<(), GramError> {
    if depth > limits.depth {
        return wrong("gram-limit", place.as_str(), format!("is deeper than {} objects and arrays", limits.depth));
    }
    let length = place.len();
    let mut inside = |name: &str, value: &Value| {
        place.push('/');
        place.push_str(&escaped(name));
        bounded(value, limits, depth + 1, place)?;
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
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
