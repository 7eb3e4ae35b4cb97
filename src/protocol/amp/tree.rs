//! Reads the fields of a JSON object one by one, and tells each that is missing, of the wrong type or unknown by its path.
//!
//! Written by hand and not derived: a refusal names rule and field, and a parser's words would not. Used by
//! [`decode`](super::decode) alone. Must not: know which fields a message has.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde_json::Number;

use super::rules::{self, Violation};
use crate::protocol::acp::fields::shown;
use crate::tasks::json::{self, JsonNode, JsonValue, LineIndex, Member};

/// Reads a whole text. Breaks `size`, `json` and `duplicate-key`.
pub(super) fn parse(text: &str) -> Result<JsonNode, Violation> {
    if text.len() > rules::MAX_BYTES {
        return Err(super::envelope::too_large(text.len()));
    }
    let root = json::parse(text).map_err(|syntax| {
        let lines = LineIndex::new(text);
        let (line, column) = (lines.line(syntax.offset), lines.column(syntax.offset));
        Violation::new(rules::JSON, "message", format!("line {line}, column {column}: must be {}", syntax.expected))
    })?;
    no_key_twice(&root).map_err(|path| Violation::new(rules::DUPLICATE_KEY, path, "must not stand twice"))?;
    Ok(root)
}

/// The path of a key that stands twice. It is put together on the way out, so that a deep file costs no more than a flat one.
fn no_key_twice(node: &JsonNode) -> Result<(), String> {
    match &node.value {
        JsonValue::Object(members) => {
            let mut seen = HashSet::new();
            for member in members {
                if !seen.insert(&member.key) {
                    return Err(shown(&member.key));
                }
                no_key_twice(&member.node).map_err(|path| above(&shown(&member.key), &path))?;
            }
            Ok(())
        }
        JsonValue::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(place, item)| no_key_twice(item).map_err(|path| above(&format!("[{place}]"), &path))),
        _ => Ok(()),
    }
}

/// A path that is inside of a field or of an entry.
fn above(outer: &str, path: &str) -> String {
    if path.is_empty() || path.starts_with('[') { format!("{outer}{path}") } else { format!("{outer}.{path}") }
}

/// The path of a field of the object at `path`.
fn below(path: &str, key: &str) -> String {
    if path.is_empty() { shown(key) } else { format!("{path}.{}", shown(key)) }
}

/// What an error calls a value: its kind, never what it says.
fn kind(node: &JsonNode) -> &'static str {
    match &node.value {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "a boolean",
        JsonValue::Number(_) => "a number",
        JsonValue::Text(_) => "a string",
        JsonValue::Array(_) => "a list",
        JsonValue::Object(_) => "an object",
    }
}

fn wrong_type(path: &str, wanted: &str, node: &JsonNode) -> Violation {
    Violation::new(rules::FIELD_TYPE, path, format!("must be {wanted}, found {}", kind(node)))
}

/// A value, and where it stands.
pub(super) struct At<'t> {
    pub(super) node: &'t JsonNode,
    pub(super) path: String,
}

impl<'t> At<'t> {
    /// The value of a whole file.
    pub(super) fn root(node: &'t JsonNode) -> Result<Object<'t>, Violation> {
        match &node.value {
            JsonValue::Object(members) => Ok(Object { members, path: String::new() }),
            _ => {
                let problem = format!("must be an object, found {}", kind(node));
                Err(Violation::new(rules::JSON_OBJECT, "message", problem))
            }
        }
    }

    pub(super) fn text(&self) -> Result<&'t str, Violation> {
        match &self.node.value {
            JsonValue::Text(text) => Ok(text),
            _ => Err(wrong_type(&self.path, "a string", self.node)),
        }
    }

    pub(super) fn owned(self) -> Result<String, Violation> {
        self.text().map(str::to_owned)
    }

    pub(super) fn bool(self) -> Result<bool, Violation> {
        match self.node.value {
            JsonValue::Bool(value) => Ok(value),
            _ => Err(wrong_type(&self.path, "a boolean", self.node)),
        }
    }

    /// A value, or none for null.
    pub(super) fn or_null<T>(self, read: fn(Self) -> Result<T, Violation>) -> Result<Option<T>, Violation> {
        if self.node.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    /// A whole number from 0 that fits.
    pub(super) fn count<T: TryFrom<u64>>(self) -> Result<T, Violation> {
        let whole = "a whole number from 0";
        let JsonValue::Number(text) = &self.node.value else { return Err(wrong_type(&self.path, whole, self.node)) };
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            let problem = format!("must be {whole}, found `{}`", shown(text));
            return Err(Violation::new(rules::FIELD_TYPE, self.path, problem));
        }
        let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            Violation::new(rules::NUMBER_RANGE, self.path, format!("is too large a number: `{}`", shown(text)))
        })
    }

    pub(super) fn float(self) -> Result<f64, Violation> {
        let JsonValue::Number(text) = &self.node.value else {
            return Err(wrong_type(&self.path, "a number", self.node));
        };
        finite(text).map_err(|problem| Violation::new(rules::NUMBER_RANGE, self.path, problem))
    }

    /// One of a few words, which the type knows.
    pub(super) fn word<T: Deserialize<'t>>(self, words: &str) -> Result<T, Violation> {
        self.word_by(rules::ENUM_WORD, words)
    }

    /// The same, with a rule of its own.
    pub(super) fn word_by<T: Deserialize<'t>>(self, rule: &'static str, words: &str) -> Result<T, Violation> {
        let word = self.text()?;
        let deserializer: StrDeserializer<'t, Error> = word.into_deserializer();
        T::deserialize(deserializer)
            .map_err(|_| Violation::new(rule, self.path, format!("must be {words}, found `{}`", shown(word))))
    }

    pub(super) fn list<T>(self, read: impl Fn(Self) -> Result<T, Violation>) -> Result<Vec<T>, Violation> {
        let JsonValue::Array(items) = &self.node.value else { return Err(wrong_type(&self.path, "a list", self.node)) };
        super::check::entries(items.len(), &self.path)?;
        let at = |(place, node)| At { node, path: format!("{}[{place}]", self.path) };
        items.iter().enumerate().map(at).map(read).collect()
    }

    /// An object with these fields and no others.
    pub(super) fn object(self, fields: &[&str]) -> Result<Object<'t>, Violation> {
        let JsonValue::Object(members) = &self.node.value else {
            return Err(wrong_type(&self.path, "an object", self.node));
        };
        let object = Object { members, path: self.path };
        object.only(fields)?;
        Ok(object)
    }

    /// An object that may have any fields, with any values.
    pub(super) fn free(self) -> Result<serde_json::Map<String, serde_json::Value>, Violation> {
        let JsonValue::Object(members) = &self.node.value else {
            return Err(wrong_type(&self.path, "an object", self.node));
        };
        free_members(members)
            .map_err(|(path, problem)| Violation::new(rules::NUMBER_RANGE, above(&self.path, &path), problem))
    }
}

/// What is wrong with a number, and its path, put together on the way out.
type BadNumber = (String, String);

fn free_members(members: &[Member]) -> Result<serde_json::Map<String, serde_json::Value>, BadNumber> {
    let inside = |key: &str, (path, problem): BadNumber| (above(&shown(key), &path), problem);
    members.iter().map(|m| Ok((m.key.clone(), free(&m.node).map_err(|bad| inside(&m.key, bad))?))).collect()
}

fn free(node: &JsonNode) -> Result<serde_json::Value, BadNumber> {
    use serde_json::Value as Free;
    Ok(match &node.value {
        JsonValue::Null => Free::Null,
        JsonValue::Bool(value) => Free::Bool(*value),
        JsonValue::Text(text) => Free::String(text.clone()),
        JsonValue::Array(items) => {
            let inside = |place: usize, (path, problem): BadNumber| (above(&format!("[{place}]"), &path), problem);
            let item = |(place, item)| free(item).map_err(|bad| inside(place, bad));
            items.iter().enumerate().map(item).collect::<Result<_, _>>().map(Free::Array)?
        }
        JsonValue::Object(members) => Free::Object(free_members(members)?),
        JsonValue::Number(text) => match (text.parse::<u64>(), text.parse::<i64>()) {
            (Ok(number), _) => Free::from(number),
            (_, Ok(number)) => Free::from(number),
            _ => Number::from_f64(finite(text).map_err(|problem| (String::new(), problem))?)
                .map_or(Free::Null, Free::Number),
        },
    })
}

/// Read by the standard library, which rounds to the nearest double, so that what is written comes back the same.
fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("is too large a number: `{}`", shown(text)))
}

/// An object, and where it stands.
pub(super) struct Object<'t> {
    members: &'t [Member],
    path: String,
}

impl<'t> Object<'t> {
    /// Refuses fields but these.
    pub(super) fn only(&self, fields: &[&str]) -> Result<(), Violation> {
        match self.members.iter().find(|member| !fields.contains(&member.key.as_str())) {
            Some(member) => {
                let path = below(&self.path, &member.key);
                Err(Violation::new(rules::UNKNOWN_FIELD, path, "is not a field of the spec"))
            }
            None => Ok(()),
        }
    }

    /// A field that may be there.
    pub(super) fn optional(&self, key: &str) -> Option<At<'t>> {
        let member = self.members.iter().find(|member| member.key == key)?;
        Some(At { node: &member.node, path: below(&self.path, key) })
    }

    /// A field that must be there.
    pub(super) fn field(&self, key: &str) -> Result<At<'t>, Violation> {
        self.optional(key).ok_or_else(|| Violation::new(rules::REQUIRED, below(&self.path, key), "must be there"))
    }
}
