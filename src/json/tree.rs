//! JSON as a tree in which every value knows its bytes in the text. Keys keep the text's order, and duplicate keys stay.

use std::collections::HashSet;
use std::ops::Range;

use super::path::JsonPath;
use super::text::excerpt;

/// A value and the bytes it occupies.
#[derive(Debug, PartialEq)]
pub(crate) struct JsonNode {
    /// From the value's first byte to after its last, in the parsed text.
    pub span: Range<usize>,
    pub value: JsonValue,
}

#[derive(Debug, PartialEq)]
pub(crate) enum JsonValue {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    Text(String),
    Array(Vec<JsonNode>),
    Object(Vec<Member>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub key: String,
    /// The key's bytes, quotes included.
    pub key_span: Range<usize>,
    pub node: JsonNode,
}

impl JsonNode {
    pub fn is_null(&self) -> bool {
        self.value == JsonValue::Null
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[Member]> {
        if let JsonValue::Object(members) = &self.value { Some(members) } else { None }
    }

    /// The value of an object's key; the first one if the key is duplicated.
    pub fn get(&self, key: &str) -> Option<&JsonNode> {
        self.members()?.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// Like [`get`](Self::get), with `null` as absent.
    pub fn get_non_null(&self, key: &str) -> Option<&JsonNode> {
        self.get(key).filter(|node| !node.is_null())
    }

    /// The value's type, without its content: "a number".
    pub fn type_name(&self) -> &'static str {
        match &self.value {
            JsonValue::Null => "null",
            JsonValue::Bool(_) => "a boolean",
            JsonValue::Number(_) => "a number",
            JsonValue::Text(_) => "a string",
            JsonValue::Array(_) => "an array",
            JsonValue::Object(_) => "an object",
        }
    }

    /// The value as an error message shows it: "the number `5`", "an array of 3".
    pub fn describe(&self) -> String {
        match &self.value {
            JsonValue::Null => "null".to_owned(),
            JsonValue::Bool(value) => format!("`{value}`"),
            JsonValue::Number(text) => format!("the number `{}`", excerpt(text)),
            JsonValue::Text(text) if text.is_empty() => "an empty string".to_owned(),
            JsonValue::Text(text) => format!("the string `{}`", excerpt(text)),
            JsonValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
            JsonValue::Array(items) => format!("an array of {}", items.len()),
            JsonValue::Object(members) if members.is_empty() => "an empty object".to_owned(),
            JsonValue::Object(members) => {
                let keys: Vec<String> =
                    members.iter().take(12).map(|member| format!("`{}`", excerpt(&member.key))).collect();
                let more = if members.len() > keys.len() { ", ..." } else { "" };
                format!("an object with {}{more}", keys.join(", "))
            }
        }
    }

    /// Checks that no object has a key twice.
    ///
    /// # Errors
    /// The path of the first duplicate key.
    pub fn check_unique_keys(&self, at: &JsonPath<'_>) -> Result<(), String> {
        match &self.value {
            JsonValue::Object(members) => {
                let mut seen = HashSet::with_capacity(members.len());
                members.iter().try_for_each(|member| {
                    let at = JsonPath::Key(at, &member.key);
                    if seen.insert(&member.key) { member.node.check_unique_keys(&at) } else { Err(at.to_string()) }
                })
            }
            JsonValue::Array(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| item.check_unique_keys(&JsonPath::Index(at, index)))
            }
            _ => Ok(()),
        }
    }
}
