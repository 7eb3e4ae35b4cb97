//! Typed reads of JSON values that report problems and continue, so that all problems of a file are found at once.
//!
//! Used by `import.rs`. A field that is `null` is absent. Must not: know the fields of a tasks file.

use super::error::{TasksProblem, TasksProblemKind};
use crate::json::text::{excerpt, single_line};
use crate::json::{JsonNode, JsonPath, JsonValue, LineIndex};

pub(super) struct FieldReader<'t> {
    pub line_index: LineIndex<'t>,
    pub problems: Vec<TasksProblem>,
    /// The id, in the file, of the story being read.
    pub current_story: Option<String>,
}

impl<'t> FieldReader<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { line_index: LineIndex::new(text), problems: Vec::new(), current_story: None }
    }

    /// Records a problem with the value at `at`.
    pub fn report(&mut self, at: &JsonPath<'_>, node: &JsonNode, kind: TasksProblemKind) {
        self.problems.push(TasksProblem {
            location: at.to_string(),
            line: Some(self.line_index.line(node.span.start)),
            story: self.current_story.clone(),
            kind,
        });
    }

    pub fn report_wrong_type(&mut self, at: &JsonPath<'_>, node: &JsonNode, expected: &'static str) {
        self.report(at, node, TasksProblemKind::WrongType { expected, found: node.describe() });
    }

    /// Reports known keys that the object has twice: which one is meant cannot be known.
    pub fn check_unique_keys(&mut self, at: &JsonPath<'_>, object: &JsonNode, known: &[&str]) {
        let members = object.members().unwrap_or_default();
        for key in known {
            let mut same = members.iter().filter(|member| member.key == *key);
            let (Some(_), Some(second)) = (same.next(), same.next()) else { continue };
            let count = 2 + same.count();
            let kind = TasksProblemKind::DuplicateKey { key: (*key).to_owned(), count };
            self.report(&JsonPath::Key(at, key), &second.node, kind);
        }
    }

    /// Reports unknown and duplicate keys, in objects where a typo would be lost otherwise.
    pub fn check_keys(&mut self, at: &JsonPath<'_>, object: &JsonNode, known: &'static [&'static str]) {
        self.check_unique_keys(at, object, known);
        let members = object.members().unwrap_or_default().iter();
        for member in members.filter(|member| !known.contains(&member.key.as_str())) {
            let (found, allowed) = (excerpt(&member.key), known.join("`, `"));
            self.report(&JsonPath::Key(at, &member.key), &member.node, TasksProblemKind::UnknownKey { found, allowed });
        }
    }

    pub fn string(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Option<String> {
        let node = object.get_non_null(key)?;
        self.string_value(&JsonPath::Key(at, key), node, "a string")
    }

    fn string_value(&mut self, at: &JsonPath<'_>, node: &JsonNode, expected: &'static str) -> Option<String> {
        match &node.value {
            JsonValue::Text(text) if text.contains('\0') => self.report(at, node, TasksProblemKind::NulCharacter),
            JsonValue::Text(text) => return Some(text.clone()),
            _ => self.report_wrong_type(at, node, expected),
        }
        None
    }

    /// A string that is not blank.
    pub fn non_blank_string(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Option<String> {
        self.string(at, object, key).filter(|text| !text.trim().is_empty())
    }

    /// A required string, on one line.
    pub fn required_line(
        &mut self,
        at: &JsonPath<'_>,
        object: &JsonNode,
        key: &str,
        what: &'static str,
    ) -> Option<String> {
        let Some(node) = object.get_non_null(key) else {
            self.report(&JsonPath::Key(at, key), object, TasksProblemKind::Missing { what });
            return None;
        };
        let text = self.string_value(&JsonPath::Key(at, key), node, "a string")?;
        let line = single_line(&text);
        if line.is_empty() {
            self.report(&JsonPath::Key(at, key), node, TasksProblemKind::Missing { what });
            return None;
        }
        Some(line)
    }

    pub fn boolean(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Option<bool> {
        let node = object.get_non_null(key)?;
        if let JsonValue::Bool(value) = node.value {
            return Some(value);
        }
        self.report_wrong_type(&JsonPath::Key(at, key), node, "`true` or `false`");
        None
    }

    /// A whole number from 1.
    pub fn positive_integer(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Option<usize> {
        let node = object.get_non_null(key)?;
        let at = JsonPath::Key(at, key);
        match as_integer(node) {
            Some(number) if number < 1 => {
                self.report(&at, node, TasksProblemKind::NotPositive { found: number.to_string() });
            }
            Some(number) => return usize::try_from(number).ok(),
            None => self.report_wrong_type(&at, node, "a whole number"),
        }
        None
    }

    /// An identifier: a string that is not blank, or a whole number.
    pub fn id(&mut self, at: &JsonPath<'_>, node: &JsonNode) -> Option<String> {
        let expected = "an id (a string, or a whole number)";
        match &node.value {
            JsonValue::Text(text) if !text.trim().is_empty() => self.string_value(at, node, expected),
            JsonValue::Number(text) if as_integer(node).is_some() => Some(text.clone()),
            _ => {
                self.report_wrong_type(at, node, expected);
                None
            }
        }
    }

    /// The items of an array; empty if the key is absent.
    pub fn array<'a>(
        &mut self,
        at: &JsonPath<'_>,
        object: &'a JsonNode,
        key: &str,
        expected: &'static str,
    ) -> &'a [JsonNode] {
        let Some(node) = object.get_non_null(key) else { return &[] };
        if let JsonValue::Array(items) = &node.value {
            return items;
        }
        self.report_wrong_type(&JsonPath::Key(at, key), node, expected);
        &[]
    }

    /// An array of strings; blank ones are dropped.
    pub fn strings(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Vec<String> {
        let items = self.array(at, object, key, "an array of strings");
        let at = JsonPath::Key(at, key);
        let texts = items.iter().enumerate();
        texts
            .filter_map(|(index, item)| self.string_value(&JsonPath::Index(&at, index), item, "a string"))
            .filter(|text| !text.trim().is_empty())
            .collect()
    }

    /// A string, or an array of strings; blank ones are dropped.
    pub fn string_or_strings(&mut self, at: &JsonPath<'_>, object: &JsonNode, key: &str) -> Vec<String> {
        match object.get_non_null(key).map(|node| (node, &node.value)) {
            None => Vec::new(),
            Some((_, JsonValue::Text(_))) => self.non_blank_string(at, object, key).into_iter().collect(),
            Some((_, JsonValue::Array(_))) => self.strings(at, object, key),
            Some((node, _)) => {
                self.report_wrong_type(&JsonPath::Key(at, key), node, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    /// One of a list of words.
    pub fn keyword<T: Copy>(
        &mut self,
        at: &JsonPath<'_>,
        object: &JsonNode,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let node = object.get_non_null(key)?;
        let at = JsonPath::Key(at, key);
        let text = self.string_value(&at, node, "a string")?;
        let meaning = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if meaning.is_none() {
            let allowed: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.report(
                &at,
                node,
                TasksProblemKind::UnknownKeyword { found: excerpt(&text), allowed: allowed.join(", ") },
            );
        }
        meaning
    }

    /// A whole number, or one of a list of words that stand for numbers.
    pub fn integer_or_keyword(
        &mut self,
        at: &JsonPath<'_>,
        object: &JsonNode,
        key: &str,
        words: &[(&str, i64)],
    ) -> Option<i64> {
        let node = object.get_non_null(key)?;
        if let JsonValue::Text(_) = node.value {
            return self.keyword(at, object, key, words);
        }
        let number = as_integer(node);
        if number.is_none() {
            self.report_wrong_type(&JsonPath::Key(at, key), node, "a whole number");
        }
        number
    }
}

fn as_integer(node: &JsonNode) -> Option<i64> {
    if let JsonValue::Number(text) = &node.value { text.parse().ok() } else { None }
}
