//! The frame: bytes -> a checked [`Frame`], and back (5, 5.1, 5.2, 5.3).
//!
//! Used by everybody who speaks the mesh protocol. What a frame says that nobody here knows is kept, in its place and order: it
//! may be meant for a node further on. Must not: know who looks at it; roles are compared in `process.rs`.

use serde_json::{Map, Value, json};

use super::block::{self, BlockForm, HeaderBlock};
use super::fault::{Fault, FaultCode};
use super::limits::{self, FrameLimits};
use super::rules;
use super::version::SupportedVersions;
use crate::protocol::acp::fields::excerpt;

/// A message. Its JSON is `{"frame": {..}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The version that it conforms to; the latest, if it does not say (5.1.1).
    pub version: Option<String>,
    /// What nodes on the path look at.
    pub header: Header,
    /// What the ultimate receiver is told (5.3).
    pub body: Map<String, Value>,
    /// The snapshots that travel along, as they came; none at all is not the same as an empty list.
    pub memory_grams: Option<Vec<Map<String, Value>>>,
}

/// The header: fields of the message itself, and blocks for nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    entries: Option<Map<String, Value>>,
}

impl Frame {
    /// A frame with a Body and nothing else.
    pub fn new(body: Map<String, Value>) -> Self {
        Self { version: None, header: Header::default(), body, memory_grams: None }
    }

    /// Reads a frame of one of the versions that this build knows.
    pub fn parse(bytes: &[u8], limits: &FrameLimits) -> Result<Self, Box<Fault>> {
        Self::parse_with_versions(bytes, limits, &SupportedVersions::default())
    }

    /// Reads a frame of one of these versions. The version comes first: what a frame of another has beside it is nobody's fault.
    pub fn parse_with_versions(
        bytes: &[u8],
        limits: &FrameLimits,
        versions: &SupportedVersions,
    ) -> Result<Self, Box<Fault>> {
        let Value::Object(mut root) = limits::parse_json(bytes, limits)? else {
            return Err(
                Fault::sender(rules::FRAME_ROOT, "the message must be an object with one `frame`").at_pointer("")
            );
        };
        let mut frame = match root.shift_remove("frame") {
            Some(Value::Object(frame)) => frame,
            Some(_) => return Err(Fault::sender(rules::FRAME_ROOT, "`frame` must be an object").at_pointer("/frame")),
            None => return Err(Fault::sender(rules::FRAME_ROOT, "the message must have one `frame`").at_pointer("")),
        };
        let version = match frame.shift_remove("version") {
            None => None,
            Some(Value::String(version)) => Some(version),
            Some(_) => {
                return Err(
                    Fault::sender(rules::VERSION_TYPE, "`version` must be a string").at_pointer("/frame/version")
                );
            }
        };
        versions.check_supported(version.as_deref()).map_err(|fault| fault.with_message_ids_of(&frame))?;
        if let Some(key) = root.keys().next() {
            return Err(extraneous_key_fault(key, ""));
        }
        let header = Header::parse(frame.shift_remove("Header"), limits)?;
        Self::from_parts(version, header.clone(), frame, limits).map_err(|mut fault| {
            fault.set_message_ids(&header);
            fault
        })
    }

    fn from_parts(
        version: Option<String>,
        header: Header,
        mut frame: Map<String, Value>,
        limits: &FrameLimits,
    ) -> Result<Self, Box<Fault>> {
        let body = match frame.shift_remove("Body") {
            Some(Value::Object(body)) => body,
            Some(_) => return Err(Fault::sender(rules::BODY, "`Body` must be an object").at_pointer("/frame/Body")),
            None => return Err(Fault::sender(rules::BODY, "`frame` must have a `Body`").at_pointer("/frame")),
        };
        let memory_grams = parse_memory_grams(frame.shift_remove("MemoryGrams"), limits)?;
        if frame.contains_key("frame")
            || body.get("frame").is_some_and(looks_like_frame)
            || header.get("frame").is_some_and(looks_like_frame)
        {
            return Err(Fault::sender(rules::NESTED_FRAME, "a frame must not hold another").at_pointer("/frame"));
        }
        if let Some(key) = frame.keys().next() {
            return Err(extraneous_key_fault(key, "/frame"));
        }
        Ok(Self { version, header, body, memory_grams })
    }

    /// Its JSON.
    pub fn to_json(&self) -> Value {
        let mut frame = Map::new();
        frame.extend(self.version.iter().map(|version| ("version".to_owned(), json!(version))));
        frame.extend(self.header.entries.iter().map(|header| ("Header".to_owned(), Value::Object(header.clone()))));
        frame.insert("Body".to_owned(), Value::Object(self.body.clone()));
        let list = |grams: &Vec<Map<String, Value>>| Value::Array(grams.iter().cloned().map(Value::Object).collect());
        frame.extend(self.memory_grams.iter().map(|grams| ("MemoryGrams".to_owned(), list(grams))));
        json!({"frame": frame})
    }

    /// Its JSON as UTF-8 text (5, rule 6), without white space.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    /// The snapshots that travel along.
    pub fn memory_grams_or_empty(&self) -> &[Map<String, Value>] {
        self.memory_grams.as_deref().unwrap_or_default()
    }

    /// Whether it tells a fault: whoever gets it never answers with another.
    pub fn is_fault(&self) -> bool {
        self.body.contains_key("fault")
    }
}

impl Fault {
    /// The same with the ids of the message, read with care from a frame that was not understood.
    fn with_message_ids_of(mut self: Box<Self>, frame: &Map<String, Value>) -> Box<Self> {
        if self.code == FaultCode::VersionMismatch {
            self.set_message_ids(&Header { entries: frame.get("Header").and_then(Value::as_object).cloned() });
        }
        self
    }

    /// Takes the ids of the message that it is about.
    pub(super) fn set_message_ids(&mut self, header: &Header) {
        let id = |id: Option<&str>| id.filter(|id| id.len() <= 1024).map(str::to_owned);
        self.relates_to = self.relates_to.take().or_else(|| id(header.message_id()));
        self.trace_id = self.trace_id.take().or_else(|| id(header.trace_id()));
    }
}

impl Header {
    fn parse(value: Option<Value>, limits: &FrameLimits) -> Result<Self, Box<Fault>> {
        let entries = match value {
            None => return Ok(Self::default()),
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                return Err(Fault::sender(rules::HEADER, "`Header` must be an object").at_pointer("/frame/Header"));
            }
        };
        let header = Self { entries: Some(entries) };
        header.validate(limits).map_err(|mut fault| {
            fault.set_message_ids(&header);
            fault
        })?;
        Ok(header)
    }

    fn validate(&self, limits: &FrameLimits) -> Result<(), Box<Fault>> {
        let entries = self.entries.iter().flatten();
        let listed = self.get("headerBlocks");
        let count = entries.clone().count() + listed.and_then(Value::as_array).map_or(0, Vec::len);
        if count > limits.blocks {
            return Err(limits::limit_exceeded("/frame/Header", "entries", count, limits.blocks));
        }
        for (key, value) in entries {
            let pointer = format!("/frame/Header/{}", limits::escape_pointer_token(key));
            block::check_block_name(key, &pointer)?;
            if let Value::Object(properties) = value {
                block::check_core_properties(properties, &pointer)?;
            }
            check_message_field(key, value, &pointer)?;
        }
        let Some(listed) = listed else { return Ok(()) };
        let problem =
            |pointer: String, problem: &str| Fault::sender(rules::HEADER_BLOCKS, problem).at_pointer(&pointer);
        let base = "/frame/Header/headerBlocks";
        let entries = listed.as_array().ok_or_else(|| problem(base.to_owned(), "`headerBlocks` must be a list"))?;
        let mut names: Vec<&str> = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let pointer = format!("{base}/{place}");
            let entry =
                entry.as_object().ok_or_else(|| problem(pointer.clone(), "a header block must be an object"))?;
            let name = entry.get("type").and_then(Value::as_str);
            let name = name.ok_or_else(|| problem(pointer.clone(), "a header block must have a `type`, a string"))?;
            block::check_block_name(name, &pointer)?;
            block::check_core_properties(entry, &pointer)?;
            if names.contains(&name) || self.get(name).is_some() {
                let problem = format!("the header block `{}` stands twice", excerpt(name));
                return Err(Fault::sender(rules::BLOCK_TWICE, problem).at_pointer(&pointer));
            }
            names.push(name);
        }
        Ok(())
    }

    /// An entry of the object, be it a field or a block.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.as_ref()?.get(key)
    }

    /// The message's id (1.4).
    pub fn message_id(&self) -> Option<&str> {
        self.get("messageId").and_then(Value::as_str)
    }

    /// The trace that the message is part of (1.4).
    pub fn trace_id(&self) -> Option<&str> {
        self.get("traceId").and_then(Value::as_str)
    }

    /// The blocks, those of the object first. An entry that is no object is a field of the message, not a block.
    pub fn blocks(&self) -> Vec<HeaderBlock<'_>> {
        let keyed = self.entries.iter().flatten().filter_map(|(name, value)| {
            Some(HeaderBlock { name, form: BlockForm::Keyed, properties: value.as_object()? })
        });
        let listed = self.get("headerBlocks").and_then(Value::as_array).into_iter().flatten().filter_map(|entry| {
            let properties = entry.as_object()?;
            Some(HeaderBlock { name: properties.get("type")?.as_str()?, form: BlockForm::Listed, properties })
        });
        keyed.chain(listed).collect()
    }

    /// A block by its name.
    pub fn block(&self, name: &str) -> Option<HeaderBlock<'_>> {
        self.blocks().into_iter().find(|block| block.name == name)
    }

    /// Sets a block, in its place if it is there, in the form it has there. Refuses what [`Frame::parse_json`] would.
    pub fn set_block(&mut self, name: &str, properties: Map<String, Value>) -> Result<(), Box<Fault>> {
        let pointer = format!("/frame/Header/{}", limits::escape_pointer_token(name));
        block::check_block_name(name, &pointer)?;
        block::check_core_properties(&properties, &pointer)?;
        check_message_field(name, &Value::Object(properties.clone()), &pointer)?;
        match self.header_blocks_mut().and_then(|list| list.iter_mut().find(|entry| has_type(entry, name))) {
            Some(entry) => *entry = to_listed_entry(name, properties),
            None => self.set_field(name, Value::Object(properties)),
        }
        Ok(())
    }

    /// Sets a field of the message; the header is there from then on.
    pub(super) fn set_field(&mut self, key: &str, value: Value) {
        self.entries.get_or_insert_default().insert(key.to_owned(), value);
    }

    /// Sets a field of the message, such as `messageId`. Refuses what [`Frame::parse_json`] would.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), Box<Fault>> {
        match value {
            Value::Object(properties) => self.set_block(key, properties),
            value => {
                let pointer = format!("/frame/Header/{}", limits::escape_pointer_token(key));
                block::check_block_name(key, &pointer)?;
                check_message_field(key, &value, &pointer)?;
                self.set_field(key, value);
                Ok(())
            }
        }
    }

    /// Takes a block or field out. The order of the others stays.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        if let Some(list) = self.header_blocks_mut()
            && let Some(place) = list.iter().position(|entry| has_type(entry, name))
        {
            return Some(list.remove(place));
        }
        self.entries.as_mut()?.shift_remove(name)
    }

    fn header_blocks_mut(&mut self) -> Option<&mut Vec<Value>> {
        self.entries.as_mut()?.get_mut("headerBlocks")?.as_array_mut()
    }
}

fn has_type(entry: &Value, name: &str) -> bool {
    entry.get("type").and_then(Value::as_str) == Some(name)
}

/// A block as `headerBlocks` has it: what is not a core property goes into `content`, unless it is there already.
fn to_listed_entry(name: &str, mut properties: Map<String, Value>) -> Value {
    let mut entry = Map::new();
    entry.insert("type".to_owned(), json!(name));
    properties.shift_remove("type");
    for key in ["role", "mustUnderstand", "relay", "encodingStyle"] {
        entry.extend(properties.shift_remove(key).map(|value| (key.to_owned(), value)));
    }
    match properties.shift_remove("content") {
        Some(content) => {
            entry.insert("content".to_owned(), content);
            entry.extend(properties);
        }
        None => {
            entry.insert("content".to_owned(), Value::Object(properties));
        }
    }
    Value::Object(entry)
}

/// The fields of the message that the spec's example has (1.4, 5.4.8). The same key may be a block of a module.
fn check_message_field(key: &str, value: &Value, pointer: &str) -> Result<(), Box<Fault>> {
    let texts = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let (good, wanted) = match key {
        "messageId" | "traceId" | "relatesTo" => (value.as_str().is_some_and(|id| !id.is_empty()), "a string"),
        "routingIntent" => (value.is_string(), "a string"),
        "roles" => (texts(value), "a list of strings"),
        "notUnderstood" => {
            let names = value
                .as_array()
                .is_some_and(|list| list.iter().all(|name| name.as_str().is_some_and(block::is_camel_case)));
            (names, "a list of names in camelCase")
        }
        "ttl" => {
            (value.is_object() || limits::parse_whole_number(value).is_some(), "a whole number from 0, or a block")
        }
        "headerBlocks" => (value.is_array(), "a list"),
        _ => return Ok(()),
    };
    if good {
        return Ok(());
    }
    Err(Fault::sender(rules::HEADER_FIELD, format!("`{key}` must be {wanted}")).at_pointer(pointer))
}

fn parse_memory_grams(
    value: Option<Value>,
    limits: &FrameLimits,
) -> Result<Option<Vec<Map<String, Value>>>, Box<Fault>> {
    let base = "/frame/MemoryGrams";
    let list = match value {
        None => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Fault::sender(rules::MEMORY_GRAMS, "`MemoryGrams` must be a list").at_pointer(base)),
    };
    if list.len() > limits.grams {
        return Err(limits::limit_exceeded(base, "MemoryGrams", list.len(), limits.grams));
    }
    let mut grams = Vec::with_capacity(list.len());
    for (place, gram) in list.into_iter().enumerate() {
        let pointer = format!("{base}/{place}");
        let Value::Object(gram) = gram else {
            return Err(Fault::sender(rules::MEMORY_GRAMS, "a MemoryGram must be an object").at_pointer(&pointer));
        };
        block::check_core_properties(unwrapped_gram(&gram), &pointer)?;
        grams.push(gram);
    }
    check_graph_totals(&grams, limits)?;
    Ok(Some(grams))
}

fn unwrapped_gram(gram: &Map<String, Value>) -> &Map<String, Value> {
    gram.get("MemoryGram").and_then(Value::as_object).unwrap_or(gram)
}

/// Whether all grams of a frame together are within the limits: when it comes, and when those that were sealed are open.
pub(super) fn check_graph_totals(grams: &[Map<String, Value>], limits: &FrameLimits) -> Result<(), Box<Fault>> {
    for (what, limit) in [("nodes", limits.nodes), ("edges", limits.edges)] {
        let count = grams.iter().filter_map(|gram| unwrapped_gram(gram).get(what)?.as_array()).map(Vec::len).sum();
        if count > limit {
            return Err(limits::limit_exceeded("/frame/MemoryGrams", what, count, limit));
        }
    }
    Ok(())
}

/// Whether a value looks like a frame and not like something that an application calls so.
fn looks_like_frame(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| ["Header", "Body", "MemoryGrams"].iter().any(|key| object.contains_key(*key)))
}

fn extraneous_key_fault(key: &str, above: &str) -> Box<Fault> {
    let problem = format!("there is no place for the key `{}`", excerpt(key));
    Fault::sender(rules::EXTRANEOUS_KEY, problem).at_pointer(&format!("{above}/{}", limits::escape_pointer_token(key)))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
