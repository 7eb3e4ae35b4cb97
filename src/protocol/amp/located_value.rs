//! Reads the fields of a JSON object one by one, and tells each that is missing, of the wrong type or unknown by its path.
//!
//! Written by hand and not derived: a refusal names rule and field, and a parser's words would not. Used by
//! [`decode`](super::decode) alone. Must not: know which fields a message has.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde_json::Number;

use super::rules::{self, AmpViolation};
use crate::json::text::excerpt;
use crate::json::{self, JsonNode, JsonValue, LineIndex, Member};

/// Reads a whole text. Breaks `size`, `json` and `duplicate-key`.
pub(super) fn parse(text: &str) -> Result<JsonNode, AmpViolation> {
    if text.len() > rules::MAX_MESSAGE_BYTES {
        return Err(super::envelope::size_violation(text.len()));
    }
    let root = json::parse(text).map_err(|syntax| {
        let lines = LineIndex::new(text);
        let (line, column) = (lines.line(syntax.offset), lines.column(syntax.offset));
        AmpViolation::new(rules::JSON, "message", format!("line {line}, column {column}: must be {}", syntax.expected))
    })?;
    check_duplicate_keys(&root)
        .map_err(|path| AmpViolation::new(rules::DUPLICATE_KEY, path, "must not stand twice"))?;
    Ok(root)
}

/// The path of a key that stands twice. It is put together on the way out, so that a deep file costs no more than a flat one.
fn check_duplicate_keys(node: &JsonNode) -> Result<(), String> {
    match &node.value {
        JsonValue::Object(members) => {
            let mut seen = HashSet::new();
            for member in members {
                if !seen.insert(&member.key) {
                    return Err(excerpt(&member.key));
                }
                check_duplicate_keys(&member.node).map_err(|path| prepend_path(&excerpt(&member.key), &path))?;
            }
            Ok(())
        }
        JsonValue::Array(items) => items.iter().enumerate().try_for_each(|(place, item)| {
            check_duplicate_keys(item).map_err(|path| prepend_path(&format!("[{place}]"), &path))
        }),
        _ => Ok(()),
    }
}

/// A path that is inside of a field or of an entry.
fn prepend_path(outer: &str, path: &str) -> String {
    if path.is_empty() || path.starts_with('[') { format!("{outer}{path}") } else { format!("{outer}.{path}") }
}

/// The path of a field of the object at `path`.
fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() { excerpt(key) } else { format!("{path}.{}", excerpt(key)) }
}

/// What an error calls a value: its kind, never what it says.
fn json_type_name(node: &JsonNode) -> &'static str {
    match &node.value {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "a boolean",
        JsonValue::Number(_) => "a number",
        JsonValue::Text(_) => "a string",
        JsonValue::Array(_) => "a list",
        JsonValue::Object(_) => "an object",
    }
}

fn wrong_type(path: &str, wanted: &str, node: &JsonNode) -> AmpViolation {
    AmpViolation::new(rules::FIELD_TYPE, path, format!("must be {wanted}, found {}", json_type_name(node)))
}

/// A value, and where it stands.
pub(super) struct LocatedValue<'t> {
    pub(super) node: &'t JsonNode,
    pub(super) path: String,
}

impl<'t> LocatedValue<'t> {
    /// The value of a whole file.
    pub(super) fn root(node: &'t JsonNode) -> Result<LocatedObject<'t>, AmpViolation> {
        match &node.value {
            JsonValue::Object(members) => Ok(LocatedObject { members, path: String::new() }),
            _ => {
                let problem = format!("must be an object, found {}", json_type_name(node));
                Err(AmpViolation::new(rules::JSON_OBJECT, "message", problem))
            }
        }
    }

    pub(super) fn as_str(&self) -> Result<&'t str, AmpViolation> {
        match &self.node.value {
            JsonValue::Text(text) => Ok(text),
            _ => Err(wrong_type(&self.path, "a string", self.node)),
        }
    }

    pub(super) fn into_string(self) -> Result<String, AmpViolation> {
        self.as_str().map(str::to_owned)
    }

    pub(super) fn into_bool(self) -> Result<bool, AmpViolation> {
        match self.node.value {
            JsonValue::Bool(value) => Ok(value),
            _ => Err(wrong_type(&self.path, "a boolean", self.node)),
        }
    }

    /// A value, or none for null.
    pub(super) fn nullable<T>(self, read: fn(Self) -> Result<T, AmpViolation>) -> Result<Option<T>, AmpViolation> {
        if self.node.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    /// A whole number from 0 that fits.
    pub(super) fn into_unsigned<T: TryFrom<u64>>(self) -> Result<T, AmpViolation> {
        let whole = "a whole number from 0";
        let JsonValue::Number(text) = &self.node.value else { return Err(wrong_type(&self.path, whole, self.node)) };
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            let problem = format!("must be {whole}, found `{}`", excerpt(text));
            return Err(AmpViolation::new(rules::FIELD_TYPE, self.path, problem));
        }
        let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            AmpViolation::new(rules::NUMBER_RANGE, self.path, format!("is too large a number: `{}`", excerpt(text)))
        })
    }

    pub(super) fn into_f64(self) -> Result<f64, AmpViolation> {
        let JsonValue::Number(text) = &self.node.value else {
            return Err(wrong_type(&self.path, "a number", self.node));
        };
        parse_finite(text).map_err(|problem| AmpViolation::new(rules::NUMBER_RANGE, self.path, problem))
    }

    /// One of a few words, which the type knows.
    pub(super) fn into_enum<T: Deserialize<'t>>(self, words: &str) -> Result<T, AmpViolation> {
        self.into_enum_with_rule(rules::ENUM_WORD, words)
    }

    /// The same, with a rule of its own.
    pub(super) fn into_enum_with_rule<T: Deserialize<'t>>(
        self,
        rule: &'static str,
        words: &str,
    ) -> Result<T, AmpViolation> {
        let word = self.as_str()?;
        let deserializer: StrDeserializer<'t, Error> = word.into_deserializer();
        T::deserialize(deserializer)
            .map_err(|_| AmpViolation::new(rule, self.path, format!("must be {words}, found `{}`", excerpt(word))))
    }

    pub(super) fn into_list<T>(self, read: impl Fn(Self) -> Result<T, AmpViolation>) -> Result<Vec<T>, AmpViolation> {
        let JsonValue::Array(items) = &self.node.value else { return Err(wrong_type(&self.path, "a list", self.node)) };
        super::check::check_list_length(items.len(), &self.path)?;
        let at = |(place, node)| LocatedValue { node, path: format!("{}[{place}]", self.path) };
        items.iter().enumerate().map(at).map(read).collect()
    }

    /// An object with these fields and no others.
    pub(super) fn into_object(self, fields: &[&str]) -> Result<LocatedObject<'t>, AmpViolation> {
        let JsonValue::Object(members) = &self.node.value else {
            return Err(wrong_type(&self.path, "an object", self.node));
        };
        let object = LocatedObject { members, path: self.path };
        object.deny_unknown_fields(fields)?;
        Ok(object)
    }

    /// An object that may have any fields, with any values.
    pub(super) fn into_json_map(self) -> Result<serde_json::Map<String, serde_json::Value>, AmpViolation> {
        let JsonValue::Object(members) = &self.node.value else {
            return Err(wrong_type(&self.path, "an object", self.node));
        };
        to_json_map(members)
            .map_err(|(path, problem)| AmpViolation::new(rules::NUMBER_RANGE, prepend_path(&self.path, &path), problem))
    }
}

/// What is wrong with a number, and its path, put together on the way out.
type NumberProblem = (String, String);

fn to_json_map(members: &[Member]) -> Result<serde_json::Map<String, serde_json::Value>, NumberProblem> {
    let inside = |key: &str, (path, problem): NumberProblem| (prepend_path(&excerpt(key), &path), problem);
    members.iter().map(|m| Ok((m.key.clone(), to_json_value(&m.node).map_err(|bad| inside(&m.key, bad))?))).collect()
}

fn to_json_value(node: &JsonNode) -> Result<serde_json::Value, NumberProblem> {
    use serde_json::Value as Free;
    Ok(match &node.value {
        JsonValue::Null => Free::Null,
        JsonValue::Bool(value) => Free::Bool(*value),
        JsonValue::Text(text) => Free::String(text.clone()),
        JsonValue::Array(items) => {
            let inside =
                |place: usize, (path, problem): NumberProblem| (prepend_path(&format!("[{place}]"), &path), problem);
            let item = |(place, item)| to_json_value(item).map_err(|bad| inside(place, bad));
            items.iter().enumerate().map(item).collect::<Result<_, _>>().map(Free::Array)?
        }
        JsonValue::Object(members) => Free::Object(to_json_map(members)?),
        JsonValue::Number(text) => match (text.parse::<u64>(), text.parse::<i64>()) {
            (Ok(number), _) => Free::from(number),
            (_, Ok(number)) => Free::from(number),
            _ => Number::from_f64(parse_finite(text).map_err(|problem| (String::new(), problem))?)
                .map_or(Free::Null, Free::Number),
        },
    })
}

/// Read by the standard library, which rounds to the nearest double, so that what is written comes back the same.
fn parse_finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("is too large a number: `{}`", excerpt(text)))
}

/// An object, and where it stands.
pub(super) struct LocatedObject<'t> {
    members: &'t [Member],
    path: String,
}

impl<'t> LocatedObject<'t> {
    /// Refuses fields but these.
    pub(super) fn deny_unknown_fields(&self, fields: &[&str]) -> Result<(), AmpViolation> {
        match self.members.iter().find(|member| !fields.contains(&member.key.as_str())) {
            Some(member) => {
                let path = child_path(&self.path, &member.key);
                Err(AmpViolation::new(rules::UNKNOWN_FIELD, path, "is not a field of the spec"))
            }
            None => Ok(()),
        }
    }

    /// A field that may be there.
    pub(super) fn optional(&self, key: &str) -> Option<LocatedValue<'t>> {
        let member = self.members.iter().find(|member| member.key == key)?;
        Some(LocatedValue { node: &member.node, path: child_path(&self.path, key) })
    }

    /// A field that must be there.
    pub(super) fn required(&self, key: &str) -> Result<LocatedValue<'t>, AmpViolation> {
        self.optional(key)
            .ok_or_else(|| AmpViolation::new(rules::REQUIRED, child_path(&self.path, key), "must be there"))
    }
}
