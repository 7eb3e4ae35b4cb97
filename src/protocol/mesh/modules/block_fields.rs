//! The fields of a module's block, read with the rule and place of what is wrong (5.2.1, rule 5: modules validate their own fields).
//!
//! Used by the modules. A field that a module does not know is let be. Must not: know which fields a block has.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::fault::Fault;
use super::super::limits::{escape_pointer_token, parse_whole_number};
use super::super::role::is_iri;
use super::super::rules;
use crate::protocol::acp::decode::parse_timestamp;

/// A list of objects, as a field has it.
pub(super) type ObjectList<'c> = Vec<&'c Map<String, Value>>;

/// A block's fields, and where they stand.
pub(super) struct BlockFields {
    fields: Map<String, Value>,
    pointer: String,
}

impl BlockFields {
    /// The fields of a block.
    pub(super) fn new(name: &str, fields: Map<String, Value>) -> Self {
        Self { fields, pointer: format!("/frame/Header/{}", escape_pointer_token(name)) }
    }

    fn invalid_field(&self, key: &str, wanted: &str) -> Box<Fault> {
        let pointer = format!("{}/{}", self.pointer, escape_pointer_token(key));
        Fault::sender(rules::BLOCK_CONTENT, format!("`{key}` must be {wanted}")).at_pointer(&pointer)
    }

    fn parse_field<'c, T>(
        &'c self,
        key: &str,
        wanted: &str,
        read: impl Fn(&'c Value) -> Option<T>,
    ) -> Result<Option<T>, Box<Fault>> {
        let value = self.fields.get(key);
        value.map(|value| read(value).ok_or_else(|| self.invalid_field(key, wanted))).transpose()
    }

    /// What must be there.
    pub(super) fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, Box<Fault>> {
        value.ok_or_else(|| self.invalid_field(key, "there"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, Box<Fault>> {
        self.parse_field(key, "a text", Value::as_str)
    }

    pub(super) fn whole_number(&self, key: &str) -> Result<Option<u64>, Box<Fault>> {
        self.parse_field(key, "a whole number from 0", parse_whole_number)
    }

    pub(super) fn timestamp(&self, key: &str) -> Result<Option<Timestamp>, Box<Fault>> {
        self.parse_field(key, "a time, as `2025-06-26T15:00:00Z`", |value| parse_timestamp(value.as_str()?))
    }

    pub(super) fn uri(&self, key: &str) -> Result<Option<&str>, Box<Fault>> {
        self.parse_field(key, "an absolute URI", |value| value.as_str().filter(|text| is_iri(text)))
    }

    pub(super) fn uris(&self, key: &str) -> Result<Option<Vec<String>>, Box<Fault>> {
        let uri = |value: &Value| value.as_str().filter(|text| is_iri(text)).map(str::to_owned);
        self.parse_field(key, "a list of absolute URIs", |value| value.as_array()?.iter().map(uri).collect())
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Box<Fault>> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.parse_field(key, "a list of texts", |value| value.as_array()?.iter().map(text).collect())
    }

    pub(super) fn objects(&self, key: &str) -> Result<Option<ObjectList<'_>>, Box<Fault>> {
        self.parse_field(key, "a list of objects", |value| value.as_array()?.iter().map(Value::as_object).collect())
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<&Map<String, Value>>, Box<Fault>> {
        self.parse_field(key, "an object", Value::as_object)
    }
}

/// Sets one of a module's own fields, wherever the block has them.
pub(super) fn set_block_field(block: &mut Map<String, Value>, key: &str, value: Value) {
    match (block.contains_key("type"), block.get_mut("content")) {
        (true, Some(Value::Object(content))) => content.insert(key.to_owned(), value),
        _ => block.insert(key.to_owned(), value),
    };
}
