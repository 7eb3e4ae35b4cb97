//! A line -> a wire record: the fields of every message type as they stand in the JSON, with no rule checked but those of
//! JSON itself.
//!
//! One pass, whatever the order of the keys, and texts without escapes are borrowed from the line. It is written by hand
//! and not derived for three reasons: a field of the wrong type must be told by its name and not by a parser's words,
//! which would quote the value; a key that stands twice must be seen even where it is unknown; and all types share one
//! record, because no two of them use a name in two ways.
//!
//! Used by [`decode`](super::decode) alone. Must not: know which fields a message needs.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::message::BadRecord;
use super::rules;

/// What stands where a text is expected.
#[derive(Debug, Default)]
pub(super) enum Field<'a> {
    /// Nothing: the key is not there.
    #[default]
    Absent,
    /// A text.
    Text(Cow<'a, str>),
    /// Something else, by its kind: "a number".
    Other(&'static str),
}

/// What stands where a list or an object of texts is expected.
#[derive(Debug, Default)]
pub(super) enum Many<T> {
    /// Nothing: the key is not there.
    #[default]
    Absent,
    /// A list or an object.
    Entries(Vec<T>),
    /// Something else, by its kind.
    Other(&'static str),
}

/// Any message, not checked.
#[derive(Debug, Default)]
pub(super) struct WireRecord<'a> {
    pub(super) kind: Field<'a>,
    pub(super) timestamp: Field<'a>,
    pub(super) swarm_id: Field<'a>,
    pub(super) container_id: Field<'a>,
    /// `Entries` of nothing where the payload is an object: its fields are below.
    pub(super) payload: Many<()>,
    pub(super) task_file_path: Field<'a>,
    pub(super) branch_name: Field<'a>,
    pub(super) repo_url: Field<'a>,
    pub(super) env_vars: Many<(Cow<'a, str>, Field<'a>)>,
    pub(super) story_id: Field<'a>,
    pub(super) status: Field<'a>,
    pub(super) output: Field<'a>,
    pub(super) pr_url: Field<'a>,
    pub(super) errors: Many<Field<'a>>,
    pub(super) code: Field<'a>,
    pub(super) message: Field<'a>,
    /// The first key of the message or its payload that stands twice.
    twice: Option<String>,
}

/// The kind of a null, as [`Field::Other`] says it.
pub(super) const NULL: &str = "null";

impl<'a> WireRecord<'a> {
    /// Reads one line. Breaks `json`, `json-object` and `duplicate-key`.
    pub(super) fn read(text: &'a str) -> Result<Self, BadRecord> {
        let bad = |rule, problem| BadRecord { rule, field: "line".to_owned(), problem };
        let mut record = WireRecord::default();
        let mut parser = serde_json::Deserializer::from_str(text);
        // What serde_json says of broken syntax is a place and what was expected there; it quotes nothing.
        let root = Members { record: &mut record, level: Level::Message }
            .deserialize(&mut parser)
            .and_then(|root| parser.end().map(|()| root))
            .map_err(|error| bad(rules::JSON, error.to_string()))?;
        if let Some(kind) = root {
            return Err(bad(rules::JSON_OBJECT, format!("must be an object, found {kind}")));
        }
        match record.twice.take() {
            Some(field) => {
                Err(BadRecord { rule: rules::DUPLICATE_KEY, field, problem: "must not stand twice".to_owned() })
            }
            None => Ok(record),
        }
    }
}

/// Which object is being read.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Message,
    Payload,
}

/// The members of the message or of its payload. Gives the kind of what is there instead of an object.
struct Members<'r, 'a> {
    record: &'r mut WireRecord<'a>,
    level: Level,
}

/// Whether a field of the record has not been read yet.
trait IsAbsent {
    fn is_absent(&self) -> bool;
}

impl IsAbsent for Field<'_> {
    fn is_absent(&self) -> bool {
        matches!(self, Field::Absent)
    }
}

impl<T> IsAbsent for Many<T> {
    fn is_absent(&self) -> bool {
        matches!(self, Many::Absent)
    }
}

impl<'a> Members<'_, 'a> {
    fn read<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Members { record, level } = self;
        let mut unknown: HashSet<Cow<'a, str>> = HashSet::new();
        while let Some(key) = map.next_key_seed(Text)? {
            // A field is read into its place; its key's second coming is remembered and the first value stays.
            macro_rules! place {
                ($field:ident, $seed:expr) => {
                    if record.$field.is_absent() {
                        record.$field = map.next_value_seed($seed)?;
                    } else {
                        record.came_twice(level, &key);
                        map.next_value::<IgnoredAny>()?;
                    }
                };
            }
            match (level, key.as_ref()) {
                (Level::Message, "type") => place!(kind, AnyField),
                (Level::Message, "timestamp") => place!(timestamp, AnyField),
                (Level::Message, "swarmId") => place!(swarm_id, AnyField),
                (Level::Message, "containerId") => place!(container_id, AnyField),
                (Level::Message, "payload") if record.payload.is_absent() => {
                    let payload = map.next_value_seed(Members { record: &mut *record, level: Level::Payload })?;
                    record.payload = payload.map_or(Many::Entries(Vec::new()), Many::Other);
                }
                (Level::Payload, "storyId") => place!(story_id, AnyField),
                (Level::Payload, "status") => place!(status, AnyField),
                (Level::Payload, "output") => place!(output, AnyField),
                (Level::Payload, "prUrl") => place!(pr_url, AnyField),
                (Level::Payload, "errors") => place!(errors, List),
                (Level::Payload, "code") => place!(code, AnyField),
                (Level::Payload, "message") => place!(message, AnyField),
                (Level::Payload, "taskFilePath") => place!(task_file_path, AnyField),
                (Level::Payload, "branchName") => place!(branch_name, AnyField),
                (Level::Payload, "repoUrl") => place!(repo_url, AnyField),
                (Level::Payload, "envVars") => place!(env_vars, Pairs),
                (_, name) => {
                    if name == "payload" && level == Level::Message || unknown.contains(name) {
                        record.came_twice(level, name);
                    } else {
                        unknown.insert(key);
                    }
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl WireRecord<'_> {
    fn came_twice(&mut self, level: Level, name: &str) {
        let name = super::fields::shown(name);
        let field = if level == Level::Payload { format!("payload.{name}") } else { name };
        self.twice.get_or_insert(field);
    }
}

/// The visitor methods that give the kind of a value that is not what was expected.
macro_rules! other_kinds {
    ($made:expr; $($kind:ident)*) => { $(other_kinds!(@ $kind $made);)* };
    (@ scalars $made:expr) => {
        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> { Ok($made("a boolean")) }
        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> { Ok($made("a number")) }
        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> { Ok($made("a number")) }
        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> { Ok($made("a number")) }
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> { Ok($made(NULL)) }
    };
    (@ text $made:expr) => {
        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> { Ok($made("a string")) }
    };
    (@ list $made:expr) => {
        fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok($made("a list"))
        }
    };
    (@ object $made:expr) => {
        fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($made("an object"))
        }
    };
}

macro_rules! seed {
    ($($of:lifetime)? $seed:ty, $value:ty) => {
        impl<$($of,)? 'a> DeserializeSeed<'a> for $seed {
            type Value = $value;
            fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<$value, D::Error> {
                from.deserialize_any(self)
            }
        }
    };
}

impl<'a> DeserializeSeed<'a> for Members<'_, 'a> {
    type Value = Option<&'static str>;
    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Members<'_, 'a> {
    type Value = Option<&'static str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<M: MapAccess<'a>>(self, map: M) -> Result<Self::Value, M::Error> {
        self.read(map).map(|()| None)
    }
    other_kinds!(Some; scalars text list);
}

/// A key.
struct Text;

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Cow<'a, str>;
    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Cow<'a, str>, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A field that should be a text.
struct AnyField;

seed!(AnyField, Field<'a>);

impl<'a> Visitor<'a> for AnyField {
    type Value = Field<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Field<'a>, E> {
        Ok(Field::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Field<'a>, E> {
        Ok(Field::Text(Cow::Owned(text.to_owned())))
    }
    other_kinds!(Field::Other; scalars list object);
}

/// `errors`.
struct List;

seed!(List, Many<Field<'a>>);

impl<'a> Visitor<'a> for List {
    type Value = Many<Field<'a>>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element_seed(AnyField)? {
            entries.push(entry);
        }
        Ok(Many::Entries(entries))
    }
    other_kinds!(Many::Other; scalars text object);
}

/// `envVars`.
struct Pairs;

seed!(Pairs, Many<(Cow<'a, str>, Field<'a>)>);

impl<'a> Visitor<'a> for Pairs {
    type Value = Many<(Cow<'a, str>, Field<'a>)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            entries.push((key, map.next_value_seed(AnyField)?));
        }
        Ok(Many::Entries(entries))
    }
    other_kinds!(Many::Other; scalars text list);
}
