//! Tree -> any type with `serde::Deserialize`.
//!
//! The errors of `serde_json` are a text that quotes the value; a protocol needs an error's kind, to name the broken rule,
//! and its path. Strict: `null` is accepted by an `Option` only, and a number is never rounded to an integer.

use std::fmt::Display;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::path::JsonPath;
use super::text::{excerpt, single_line, truncate};
use super::tree::{JsonNode, JsonValue, Member};

/// Reads a `T` from the node; `at` is the node's own path.
pub(crate) fn from_node<'de, T: Deserialize<'de>>(
    node: &'de JsonNode,
    at: &JsonPath<'_>,
) -> Result<T, DeserializeError> {
    T::deserialize(NodeDeserializer { node, at }).map_err(|error| error.located(at))
}

/// For `#[serde(default, deserialize_with)]`: the field may be absent, but not `null`.
pub(crate) fn non_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: the field may be `null`, but not absent.
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeserializeErrorKind {
    MissingField,
    UnknownField,
    WrongType,
    /// A number that is too large for its type.
    NumberRange,
    UnknownVariant,
    /// Refused by the type's own `Deserialize`.
    Invalid,
}

/// The first value that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeserializeError {
    pub kind: DeserializeErrorKind,
    /// `payload.subtasks[0].subtask_id`; empty for the root.
    pub path: String,
    /// A fragment on one line: "must be a string, found null".
    pub problem: String,
    is_located: bool,
}

impl DeserializeError {
    fn new(kind: DeserializeErrorKind, problem: String) -> Self {
        Self { kind, path: String::new(), problem, is_located: false }
    }

    /// An error of the object's field `name`; the object's own path is not known yet.
    fn for_field(kind: DeserializeErrorKind, name: &str, problem: &str) -> Self {
        Self { path: name.to_owned(), ..Self::new(kind, problem.to_owned()) }
    }

    fn too_large(number: impl Display) -> Self {
        Self::new(
            DeserializeErrorKind::NumberRange,
            format!("is too large a number: `{}`", excerpt(&number.to_string())),
        )
    }

    /// Completes the path, unless a value further inside did.
    fn located(mut self, at: &JsonPath<'_>) -> Self {
        if !self.is_located {
            self.is_located = true;
            self.path = match self.path.as_str() {
                "" => at.to_string(),
                field => JsonPath::Key(at, field).to_string(),
            };
        }
        self
    }
}

impl Display for DeserializeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for DeserializeError {}

impl de::Error for DeserializeError {
    fn custom<T: Display>(problem: T) -> Self {
        let problem = truncate(&single_line(&problem.to_string()), 300, "…").into_owned();
        Self::new(DeserializeErrorKind::Invalid, problem)
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(DeserializeErrorKind::WrongType, format!("must be {expected}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unsigned(number) => Self::too_large(number),
            found => Self::invalid_type(found, expected),
        }
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let problem = format!("must be one of `{}`, found `{}`", expected.join("`, `"), excerpt(found));
        Self::new(DeserializeErrorKind::UnknownVariant, problem)
    }

    fn unknown_field(name: &str, _: &'static [&'static str]) -> Self {
        Self::for_field(DeserializeErrorKind::UnknownField, name, "is not a known field")
    }

    fn missing_field(name: &'static str) -> Self {
        Self::for_field(DeserializeErrorKind::MissingField, name, "is required and missing")
    }
}

struct NodeDeserializer<'de, 'p> {
    node: &'de JsonNode,
    at: &'p JsonPath<'p>,
}

impl<'de> NodeDeserializer<'de, '_> {
    fn wrong_type(&self, expected: &str) -> DeserializeError {
        let problem = format!("must be {expected}, found {}", self.node.type_name());
        DeserializeError::new(DeserializeErrorKind::WrongType, problem)
    }

    fn as_number(&self, expected: &str) -> Result<&'de str, DeserializeError> {
        if let JsonValue::Number(text) = &self.node.value { Ok(text) } else { Err(self.wrong_type(expected)) }
    }

    fn as_text(&self) -> Result<&'de str, DeserializeError> {
        if let JsonValue::Text(text) = &self.node.value { Ok(text) } else { Err(self.wrong_type("a string")) }
    }
}

/// Rounds to the nearest double, so that the number reads back the same when it is written.
fn parse_double(text: &str) -> Result<f64, DeserializeError> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| DeserializeError::too_large(text))
}

macro_rules! deserialize_unsigned {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
            let expected = "a whole number from 0";
            let text = self.as_number(expected)?;
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                let problem = format!("must be {expected}, found `{}`", excerpt(text));
                return Err(DeserializeError::new(DeserializeErrorKind::WrongType, problem));
            }
            visitor.visit_u64(text.parse().map_err(|_| DeserializeError::too_large(text))?)
        }
    )* };
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de, '_> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match &self.node.value {
            JsonValue::Null => visitor.visit_unit(),
            JsonValue::Bool(value) => visitor.visit_bool(*value),
            JsonValue::Number(text) => match (text.parse(), text.parse()) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(parse_double(text)?),
            },
            JsonValue::Text(text) => visitor.visit_borrowed_str(text),
            JsonValue::Array(items) => visitor.visit_seq(Items { items: items.iter().enumerate(), at: self.at }),
            JsonValue::Object(members) => {
                visitor.visit_map(Members { members: members.iter(), current: None, at: self.at })
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if let JsonValue::Bool(value) = self.node.value {
            visitor.visit_bool(value)
        } else {
            Err(self.wrong_type("a boolean"))
        }
    }

    deserialize_unsigned! { deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_f64(parse_double(self.as_number("a number")?)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_borrowed_str(self.as_text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if !matches!(self.node.value, JsonValue::Array(_)) {
            return Err(self.wrong_type("an array"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if !matches!(self.node.value, JsonValue::Object(_)) {
            return Err(self.wrong_type("an object"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        self.deserialize_map(visitor)
    }

    /// Variants without data only, as a string.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let variant: StrDeserializer<'_, DeserializeError> = self.as_text()?.into_deserializer();
        visitor.visit_enum(variant)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items<'de, 'p> {
    items: std::iter::Enumerate<std::slice::Iter<'de, JsonNode>>,
    at: &'p JsonPath<'p>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = DeserializeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DeserializeError> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        let at = &JsonPath::Index(self.at, index);
        seed.deserialize(NodeDeserializer { node, at }).map(Some).map_err(|error| error.located(at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Members<'de, 'p> {
    members: std::slice::Iter<'de, Member>,
    current: Option<&'de Member>,
    at: &'p JsonPath<'p>,
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = DeserializeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DeserializeError> {
        self.current = self.members.next();
        let Some(member) = self.current else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(&member.key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeserializeError> {
        let member = self.current.expect("serde asks for a value after its key");
        let at = &JsonPath::Key(self.at, &member.key);
        seed.deserialize(NodeDeserializer { node: &member.node, at }).map_err(|error| error.located(at))
    }
}
