//! The frame: parses bytes into a validated [`Frame`], and serializes it (5, 5.1, 5.2, 5.3).
//!
//! Keeps unknown content in its place and order: it may be for a node further on. Must not: compare roles; that is up to `process.rs`.

use serde_json::{Map, Value, json};

use super::block::{self, BlockForm, HeaderBlock};
use super::fault::Fault;
use super::limits::{self, FrameLimits};
use super::rules;
use super::syntax::{escape_pointer_token, is_camel_case, parse_whole_number};
use super::version::SupportedVersions;
use crate::json::text::excerpt;

/// A message: `{"frame": {..}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// `None` means the latest version (5.1.1).
    pub version: Option<String>,
    pub header: FrameHeader,
    /// Content for the ultimate receiver (5.3).
    pub body: Map<String, Value>,
    /// Unparsed MemoryGrams. `None` and an empty list serialize differently.
    pub memory_grams: Option<Vec<Map<String, Value>>>,
}

/// Message fields, and blocks for nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FrameHeader {
    entries: Option<Map<String, Value>>,
}

impl Frame {
    pub fn new(body: Map<String, Value>) -> Self {
        Self { version: None, header: FrameHeader::default(), body, memory_grams: None }
    }

    /// Parses a frame of a version that this build supports.
    pub fn parse(bytes: &[u8], limits: &FrameLimits) -> Result<Self, Box<Fault>> {
        Self::parse_with_versions(bytes, limits, &SupportedVersions::default())
    }

    /// Parses a frame of one of these versions. Checks the version first: other rules do not apply to a frame of another version.
    pub fn parse_with_versions(
        bytes: &[u8],
        limits: &FrameLimits,
        versions: &SupportedVersions,
    ) -> Result<Self, Box<Fault>> {
        let Value::Object(mut root) = limits::parse_json(bytes, limits)? else {
            return Fault::reject(rules::FRAME_ROOT, "", "the message must be an object with one `frame`");
        };
        let mut frame = match root.shift_remove("frame") {
            Some(Value::Object(frame)) => frame,
            Some(_) => return Fault::reject(rules::FRAME_ROOT, "/frame", "`frame` must be an object"),
            None => return Fault::reject(rules::FRAME_ROOT, "", "the message must have one `frame`"),
        };
        let version = match frame.shift_remove("version") {
            None => None,
            Some(Value::String(version)) => Some(version),
            Some(_) => {
                return Fault::reject(rules::VERSION_TYPE, "/frame/version", "`version` must be a string");
            }
        };
        versions.check_supported(version.as_deref()).map_err(|fault| {
            let id = |key: &str| frame.get("Header")?.get(key)?.as_str();
            fault.with_message_ids(id("messageId"), id("traceId"))
        })?;
        if let Some(key) = root.keys().next() {
            return Err(extraneous_key_fault(key, ""));
        }
        let header = FrameHeader::parse(frame.shift_remove("Header"), limits)?;
        Self::from_parts(version, header.clone(), frame, limits)
            .map_err(|fault| fault.with_message_ids(header.message_id(), header.trace_id()))
    }

    fn from_parts(
        version: Option<String>,
        header: FrameHeader,
        mut frame: Map<String, Value>,
        limits: &FrameLimits,
    ) -> Result<Self, Box<Fault>> {
        let body = match frame.shift_remove("Body") {
            Some(Value::Object(body)) => body,
            Some(_) => return Fault::reject(rules::BODY, "/frame/Body", "`Body` must be an object"),
            None => return Fault::reject(rules::BODY, "/frame", "`frame` must have a `Body`"),
        };
        let memory_grams = parse_memory_grams(frame.shift_remove("MemoryGrams"), limits)?;
        if frame.contains_key("frame")
            || body.get("frame").is_some_and(looks_like_frame)
            || header.get("frame").is_some_and(looks_like_frame)
        {
            return Fault::reject(rules::NESTED_FRAME, "/frame", "a frame must not contain another frame");
        }
        if let Some(key) = frame.keys().next() {
            return Err(extraneous_key_fault(key, "/frame"));
        }
        Ok(Self { version, header, body, memory_grams })
    }

    pub fn to_json(&self) -> Value {
        let mut frame = Map::new();
        frame.extend(self.version.iter().map(|version| ("version".to_owned(), json!(version))));
        frame.extend(self.header.entries.iter().map(|header| ("Header".to_owned(), Value::Object(header.clone()))));
        frame.insert("Body".to_owned(), Value::Object(self.body.clone()));
        let list = |grams: &Vec<Map<String, Value>>| Value::Array(grams.iter().cloned().map(Value::Object).collect());
        frame.extend(self.memory_grams.iter().map(|grams| ("MemoryGrams".to_owned(), list(grams))));
        json!({"frame": frame})
    }

    /// Serializes the frame as UTF-8 JSON (5, rule 6) without white space.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    pub fn memory_grams_or_empty(&self) -> &[Map<String, Value>] {
        self.memory_grams.as_deref().unwrap_or_default()
    }

    /// Whether the Body carries a fault. Such a frame is never answered with a fault.
    pub fn is_fault(&self) -> bool {
        self.body.contains_key("fault")
    }

    /// 5.4.5, rule 4: a fault's detail is only for the next node.
    pub(super) fn remove_fault_detail(&mut self) {
        if let Some(Value::Object(fault)) = self.body.get_mut("fault") {
            fault.shift_remove("detail");
        }
    }
}

impl FrameHeader {
    fn parse(value: Option<Value>, limits: &FrameLimits) -> Result<Self, Box<Fault>> {
        let entries = match value {
            None => return Ok(Self::default()),
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                return Fault::reject(rules::HEADER, "/frame/Header", "`Header` must be an object");
            }
        };
        let header = Self { entries: Some(entries) };
        match header.validate(limits) {
            Ok(()) => Ok(header),
            Err(fault) => Err(fault.with_message_ids(header.message_id(), header.trace_id())),
        }
    }

    fn validate(&self, limits: &FrameLimits) -> Result<(), Box<Fault>> {
        let entries = self.entries.iter().flatten();
        let listed = self.get("headerBlocks");
        let count = entries.clone().count() + listed.and_then(Value::as_array).map_or(0, Vec::len);
        if count > limits.blocks {
            return Err(limits::limit_exceeded("/frame/Header", "entries", count, limits.blocks));
        }
        for (key, value) in entries {
            let pointer = format!("/frame/Header/{}", escape_pointer_token(key));
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
        for (index, entry) in entries.iter().enumerate() {
            let pointer = format!("{base}/{index}");
            let entry =
                entry.as_object().ok_or_else(|| problem(pointer.clone(), "a header block must be an object"))?;
            let name = entry.get("type").and_then(Value::as_str);
            let name = name.ok_or_else(|| problem(pointer.clone(), "a header block must have a `type`, a string"))?;
            block::check_block_name(name, &pointer)?;
            block::check_core_properties(entry, &pointer)?;
            if names.contains(&name) || self.get(name).is_some() {
                let problem = format!("duplicate header block `{}`", excerpt(name));
                return Fault::reject(rules::BLOCK_TWICE, &pointer, problem);
            }
            names.push(name);
        }
        Ok(())
    }

    /// A field or keyed block.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.as_ref()?.get(key)
    }

    pub fn message_id(&self) -> Option<&str> {
        self.get("messageId").and_then(Value::as_str)
    }

    pub fn trace_id(&self) -> Option<&str> {
        self.get("traceId").and_then(Value::as_str)
    }

    /// All blocks, keyed ones first. An entry that is not an object is a message field, not a block.
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

    pub fn block(&self, name: &str) -> Option<HeaderBlock<'_>> {
        self.blocks().into_iter().find(|block| block.name == name)
    }

    /// Sets a block, keeping place and form of an existing one. Enforces the rules of [`Frame::parse`].
    pub fn set_block(&mut self, name: &str, properties: Map<String, Value>) -> Result<(), Box<Fault>> {
        let pointer = format!("/frame/Header/{}", escape_pointer_token(name));
        block::check_block_name(name, &pointer)?;
        block::check_core_properties(&properties, &pointer)?;
        check_message_field(name, &Value::Object(properties.clone()), &pointer)?;
        match self.header_blocks_mut().and_then(|list| list.iter_mut().find(|entry| has_type(entry, name))) {
            Some(entry) => *entry = to_listed_entry(name, properties),
            None => self.set_field(name, Value::Object(properties)),
        }
        Ok(())
    }

    /// Sets a message field without validation.
    pub(super) fn set_field(&mut self, key: &str, value: Value) {
        self.entries.get_or_insert_default().insert(key.to_owned(), value);
    }

    /// Sets a message field or block. Enforces the rules of [`Frame::parse`].
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), Box<Fault>> {
        match value {
            Value::Object(properties) => self.set_block(key, properties),
            value => {
                let pointer = format!("/frame/Header/{}", escape_pointer_token(key));
                block::check_block_name(key, &pointer)?;
                check_message_field(key, &value, &pointer)?;
                self.set_field(key, value);
                Ok(())
            }
        }
    }

    /// Removes a block or field and keeps the order of the others.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        if let Some(list) = self.header_blocks_mut()
            && let Some(index) = list.iter().position(|entry| has_type(entry, name))
        {
            return Some(list.remove(index));
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

/// Converts a block to an entry of `headerBlocks`: other than core properties go into `content`, unless the block has one.
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

/// Types of the message fields in the spec's examples (1.4, 5.4.8). The same key may be a module's block.
fn check_message_field(key: &str, value: &Value, pointer: &str) -> Result<(), Box<Fault>> {
    let texts = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let (good, wanted) = match key {
        "messageId" | "traceId" | "relatesTo" => (value.as_str().is_some_and(|id| !id.is_empty()), "a string"),
        "routingIntent" => (value.is_string(), "a string"),
        "roles" => (texts(value), "a list of strings"),
        "notUnderstood" => {
            let names =
                value.as_array().is_some_and(|list| list.iter().all(|name| name.as_str().is_some_and(is_camel_case)));
            (names, "a list of names in camelCase")
        }
        "ttl" => (value.is_object() || parse_whole_number(value).is_some(), "a non-negative integer, or a block"),
        "headerBlocks" => (value.is_array(), "a list"),
        _ => return Ok(()),
    };
    if good {
        return Ok(());
    }
    Fault::reject(rules::HEADER_FIELD, pointer, format!("`{key}` must be {wanted}"))
}

fn parse_memory_grams(
    value: Option<Value>,
    limits: &FrameLimits,
) -> Result<Option<Vec<Map<String, Value>>>, Box<Fault>> {
    let base = "/frame/MemoryGrams";
    let list = match value {
        None => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(_) => return Fault::reject(rules::MEMORY_GRAMS, base, "`MemoryGrams` must be a list"),
    };
    if list.len() > limits.grams {
        return Err(limits::limit_exceeded(base, "MemoryGrams", list.len(), limits.grams));
    }
    let mut grams = Vec::with_capacity(list.len());
    for (index, gram) in list.into_iter().enumerate() {
        let pointer = format!("{base}/{index}");
        let Value::Object(gram) = gram else {
            return Fault::reject(rules::MEMORY_GRAMS, &pointer, "a MemoryGram must be an object");
        };
        block::check_core_properties(block::unwrap_gram(&gram), &pointer)?;
        grams.push(gram);
    }
    check_graph_totals(&grams, limits)?;
    Ok(Some(grams))
}

/// Checks the limits for all grams of a frame together, on parsing and after decryption.
pub(super) fn check_graph_totals(grams: &[Map<String, Value>], limits: &FrameLimits) -> Result<(), Box<Fault>> {
    for (what, limit) in [("nodes", limits.nodes), ("edges", limits.edges)] {
        let count = grams.iter().filter_map(|gram| block::unwrap_gram(gram).get(what)?.as_array()).map(Vec::len).sum();
        if count > limit {
            return Err(limits::limit_exceeded("/frame/MemoryGrams", what, count, limit));
        }
    }
    Ok(())
}

/// Distinguishes a nested frame from an application's own `frame` field.
fn looks_like_frame(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| ["Header", "Body", "MemoryGrams"].iter().any(|key| object.contains_key(*key)))
}

fn extraneous_key_fault(key: &str, parent: &str) -> Box<Fault> {
    let problem = format!("unexpected key `{}`", excerpt(key));
    Fault::sender(rules::EXTRANEOUS_KEY, problem).at_pointer(&format!("{parent}/{}", escape_pointer_token(key)))
}

#[cfg(test)]
#[path = "tests/frame.rs"]
mod tests;
