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

use super::message::AcpViolation;
use super::rules;

/// What stands where a text is expected.
#[derive(Debug, Default)]
pub(super) enum FieldValue<'a> {
    /// Nothing: the key is not there.
    #[default]
    Absent,
    /// A text.
    Text(Cow<'a, str>),
    /// Something else, by its kind: "a number".
    WrongType(&'static str),
}

/// What stands where a list or an object of texts is expected.
#[derive(Debug, Default)]
pub(super) enum CollectionField<T> {
    /// Nothing: the key is not there.
    #[default]
    Absent,
    /// A list or an object.
    Entries(Vec<T>),
    /// Something else, by its kind.
    WrongType(&'static str),
}

/// Any message, not checked.
#[derive(Debug, Default)]
pub(super) struct WireRecord<'a> {
    pub(super) kind: FieldValue<'a>,
    pub(super) timestamp: FieldValue<'a>,
    pub(super) swarm_id: FieldValue<'a>,
    pub(super) container_id: FieldValue<'a>,
    /// `Entries` of nothing where the payload is an object: its fields are below.
    pub(super) payload: CollectionField<()>,
    pub(super) task_file_path: FieldValue<'a>,
    pub(super) branch_name: FieldValue<'a>,
    pub(super) repo_url: FieldValue<'a>,
    pub(super) env_vars: CollectionField<(Cow<'a, str>, FieldValue<'a>)>,
    pub(super) story_id: FieldValue<'a>,
    pub(super) status: FieldValue<'a>,
    pub(super) output: FieldValue<'a>,
    pub(super) pr_url: FieldValue<'a>,
    pub(super) errors: CollectionField<FieldValue<'a>>,
    pub(super) code: FieldValue<'a>,
    pub(super) message: FieldValue<'a>,
    /// The first key of the message or its payload that stands twice.
    duplicate_key: Option<String>,
}

/// The kind of a null, as [`FieldValue::WrongType`] says it.
pub(super) const NULL_TYPE: &str = "null";

impl<'a> WireRecord<'a> {
    /// Reads one line. Breaks `json`, `json-object` and `duplicate-key`.
    pub(super) fn parse(text: &'a str) -> Result<Self, AcpViolation> {
        let bad = |rule, problem| AcpViolation { rule, field: "line".to_owned(), problem };
        let mut record = WireRecord::default();
        let mut parser = serde_json::Deserializer::from_str(text);
        // What serde_json says of broken syntax is a place and what was expected there; it quotes nothing.
        let root = ObjectSeed { record: &mut record, level: ObjectLevel::Message }
            .deserialize(&mut parser)
            .and_then(|root| parser.end().map(|()| root))
            .map_err(|error| bad(rules::JSON, error.to_string()))?;
        if let Some(kind) = root {
            return Err(bad(rules::JSON_OBJECT, format!("must be an object, found {kind}")));
        }
        match record.duplicate_key.take() {
            Some(field) => {
                Err(AcpViolation { rule: rules::DUPLICATE_KEY, field, problem: "must not stand twice".to_owned() })
            }
            None => Ok(record),
        }
    }
}

/// Which object is being read.
#[derive(Clone, Copy, PartialEq)]
enum ObjectLevel {
    Message,
    Payload,
}

/// The members of the message or of its payload. Gives the kind of what is there instead of an object.
struct ObjectSeed<'r, 'a> {
    record: &'r mut WireRecord<'a>,
    level: ObjectLevel,
}

/// Whether a field of the record has not been read yet.
trait IsAbsent {
    fn is_absent(&self) -> bool;
}

impl IsAbsent for FieldValue<'_> {
    fn is_absent(&self) -> bool {
        matches!(self, FieldValue::Absent)
    }
}

impl<T> IsAbsent for CollectionField<T> {
    fn is_absent(&self) -> bool {
        matches!(self, CollectionField::Absent)
    }
}

impl<'a> ObjectSeed<'_, 'a> {
    fn read_members<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let ObjectSeed { record, level } = self;
        let mut unknown: HashSet<Cow<'a, str>> = HashSet::new();
        while let Some(key) = map.next_key_seed(KeySeed)? {
            // A field is read into its place; its key's second coming is remembered and the first value stays.
            macro_rules! place {
                ($field:ident, $seed:expr) => {
                    if record.$field.is_absent() {
                        record.$field = map.next_value_seed($seed)?;
                    } else {
                        record.note_duplicate_key(level, &key);
                        map.next_value::<IgnoredAny>()?;
                    }
                };
            }
            match (level, key.as_ref()) {
                (ObjectLevel::Message, "type") => place!(kind, FieldSeed),
                (ObjectLevel::Message, "timestamp") => place!(timestamp, FieldSeed),
                (ObjectLevel::Message, "swarmId") => place!(swarm_id, FieldSeed),
                (ObjectLevel::Message, "containerId") => place!(container_id, FieldSeed),
                (ObjectLevel::Message, "payload") if record.payload.is_absent() => {
                    let payload =
                        map.next_value_seed(ObjectSeed { record: &mut *record, level: ObjectLevel::Payload })?;
                    record.payload = payload.map_or(CollectionField::Entries(Vec::new()), CollectionField::WrongType);
                }
                (ObjectLevel::Payload, "storyId") => place!(story_id, FieldSeed),
                (ObjectLevel::Payload, "status") => place!(status, FieldSeed),
                (ObjectLevel::Payload, "output") => place!(output, FieldSeed),
                (ObjectLevel::Payload, "prUrl") => place!(pr_url, FieldSeed),
                (ObjectLevel::Payload, "errors") => place!(errors, ListSeed),
                (ObjectLevel::Payload, "code") => place!(code, FieldSeed),
                (ObjectLevel::Payload, "message") => place!(message, FieldSeed),
                (ObjectLevel::Payload, "taskFilePath") => place!(task_file_path, FieldSeed),
                (ObjectLevel::Payload, "branchName") => place!(branch_name, FieldSeed),
                (ObjectLevel::Payload, "repoUrl") => place!(repo_url, FieldSeed),
                (ObjectLevel::Payload, "envVars") => place!(env_vars, PairsSeed),
                (_, name) => {
                    if name == "payload" && level == ObjectLevel::Message || unknown.contains(name) {
                        record.note_duplicate_key(level, name);
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
    fn note_duplicate_key(&mut self, level: ObjectLevel, name: &str) {
        let name = crate::json::text::excerpt(name);
        let field = if level == ObjectLevel::Payload { format!("payload.{name}") } else { name };
        self.duplicate_key.get_or_insert(field);
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
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> { Ok($made(NULL_TYPE)) }
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

impl<'a> DeserializeSeed<'a> for ObjectSeed<'_, 'a> {
    type Value = Option<&'static str>;
    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for ObjectSeed<'_, 'a> {
    type Value = Option<&'static str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<M: MapAccess<'a>>(self, map: M) -> Result<Self::Value, M::Error> {
        self.read_members(map).map(|()| None)
    }
    other_kinds!(Some; scalars text list);
}

/// A key.
struct KeySeed;

impl<'a> DeserializeSeed<'a> for KeySeed {
    type Value = Cow<'a, str>;
    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Cow<'a, str>, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for KeySeed {
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
struct FieldSeed;

seed!(FieldSeed, FieldValue<'a>);

impl<'a> Visitor<'a> for FieldSeed {
    type Value = FieldValue<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Text(Cow::Owned(text.to_owned())))
    }
    other_kinds!(FieldValue::WrongType; scalars list object);
}

/// `errors`.
struct ListSeed;

seed!(ListSeed, CollectionField<FieldValue<'a>>);

impl<'a> Visitor<'a> for ListSeed {
    type Value = CollectionField<FieldValue<'a>>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element_seed(FieldSeed)? {
            entries.push(entry);
        }
        Ok(CollectionField::Entries(entries))
    }
    other_kinds!(CollectionField::WrongType; scalars text object);
}

/// `envVars`.
struct PairsSeed;

seed!(PairsSeed, CollectionField<(Cow<'a, str>, FieldValue<'a>)>);

impl<'a> Visitor<'a> for PairsSeed {
    type Value = CollectionField<(Cow<'a, str>, FieldValue<'a>)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(KeySeed)? {
            entries.push((key, map.next_value_seed(FieldSeed)?));
        }
        Ok(CollectionField::Entries(entries))
    }
    other_kinds!(CollectionField::WrongType; scalars text list);
}
