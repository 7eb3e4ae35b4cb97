//! Typed access to the fields of a module's block (5.2.1, rule 5: modules validate their own fields). Ignores unknown fields.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::fault::Fault;
use super::super::rules;
use super::super::syntax::{escape_pointer_token, is_iri, parse_whole_number};
use crate::protocol::timestamp::parse_timestamp;

pub(super) type ObjectList<'c> = Vec<&'c Map<String, Value>>;

pub(super) struct BlockFields {
    fields: Map<String, Value>,
    pointer: String,
}

impl BlockFields {
    pub(super) fn new(name: &str, fields: Map<String, Value>) -> Self {
        Self { fields, pointer: format!("/frame/Header/{}", escape_pointer_token(name)) }
    }

    fn fault(&self, key: &str, problem: &str) -> Box<Fault> {
        let pointer = format!("{}/{}", self.pointer, escape_pointer_token(key));
        Fault::sender(rules::BLOCK_CONTENT, format!("`{key}` {problem}")).at_pointer(&pointer)
    }

    fn parse_field<'c, T>(
        &'c self,
        key: &str,
        wanted: &str,
        read: impl Fn(&'c Value) -> Option<T>,
    ) -> Result<Option<T>, Box<Fault>> {
        let value = self.fields.get(key);
        value.map(|value| read(value).ok_or_else(|| self.fault(key, &format!("must be {wanted}")))).transpose()
    }

    fn list<'c, T>(
        &'c self,
        key: &str,
        wanted: &str,
        read: impl Fn(&'c Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Box<Fault>> {
        self.parse_field(key, &format!("a list of {wanted}"), |value| value.as_array()?.iter().map(&read).collect())
    }

    /// Refuses an absent field.
    pub(super) fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, Box<Fault>> {
        value.ok_or_else(|| self.fault(key, "is missing"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, Box<Fault>> {
        self.parse_field(key, "a string", Value::as_str)
    }

    pub(super) fn whole_number(&self, key: &str) -> Result<Option<u64>, Box<Fault>> {
        self.parse_field(key, "a non-negative integer", parse_whole_number)
    }

    pub(super) fn timestamp(&self, key: &str) -> Result<Option<Timestamp>, Box<Fault>> {
        self.parse_field(key, "a timestamp like `2025-06-26T15:00:00Z`", |value| parse_timestamp(value.as_str()?))
    }

    pub(super) fn uri(&self, key: &str) -> Result<Option<&str>, Box<Fault>> {
        self.parse_field(key, "an absolute URI", |value| value.as_str().filter(|text| is_iri(text)))
    }

    pub(super) fn uris(&self, key: &str) -> Result<Option<Vec<String>>, Box<Fault>> {
        self.list(key, "absolute URIs", |value| value.as_str().filter(|text| is_iri(text)).map(str::to_owned))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Box<Fault>> {
        self.list(key, "strings", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn objects(&self, key: &str) -> Result<Option<ObjectList<'_>>, Box<Fault>> {
        self.list(key, "objects", Value::as_object)
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<&Map<String, Value>>, Box<Fault>> {
        self.parse_field(key, "an object", Value::as_object)
    }
}

/// Sets one of a module's own fields, in `content` if the block has one.
pub(super) fn set_block_field(block: &mut Map<String, Value>, key: &str, value: Value) {
    match (block.contains_key("type"), block.get_mut("content")) {
        (true, Some(Value::Object(content))) => content.insert(key.to_owned(), value),
        _ => block.insert(key.to_owned(), value),
    };
}
