//! Typed reads of JSON values that report what does not fit and go on, so that a file's problems are all found at once.
//!
//! Called by `import.rs`. A field that is `null` is absent. Must not: know which fields a tasks file has.

use std::fmt;

use super::json::{Lines, Node, Value, shortened};
use super::problem::{Defect, Problem};

/// A place in the JSON: a chain back to the root, made into text only when there is something to report.
#[derive(Clone, Copy)]
pub(super) enum At<'p> {
    Root,
    Key(&'p At<'p>, &'p str),
    Index(&'p At<'p>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Collects problems.
pub(super) struct Checker<'t> {
    pub lines: Lines<'t>,
    pub problems: Vec<Problem>,
    /// The story that is being read, by its id in the file.
    pub story: Option<String>,
}

impl<'t> Checker<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { lines: Lines::of(text), problems: Vec::new(), story: None }
    }

    /// Notes what is wrong with the value at `at`.
    pub fn report(&mut self, at: &At<'_>, node: &Node, defect: Defect) {
        self.problems.push(Problem {
            place: at.to_string(),
            line: Some(self.lines.line(node.span.start)),
            story: self.story.clone(),
            defect,
        });
    }

    fn wrong_type(&mut self, at: &At<'_>, node: &Node, expected: &'static str) {
        self.report(at, node, Defect::WrongType { expected, found: node.found() });
    }

    /// Reports keys of ours that stand twice in an object: which of them is meant cannot be known.
    pub fn unique_keys(&mut self, at: &At<'_>, object: &Node, ours: &[&str]) {
        let members = object.members().unwrap_or_default();
        for key in ours {
            let mut same = members.iter().filter(|member| member.key == *key);
            let (Some(_), Some(second)) = (same.next(), same.next()) else { continue };
            let count = 2 + same.count();
            self.report(&At::Key(at, key), &second.node, Defect::KeyTwice { key: (*key).to_owned(), count });
        }
    }

    /// Reports keys that an object of ours has none of, or has twice: what a slip of the pen would lose.
    pub fn keys(&mut self, at: &At<'_>, object: &Node, ours: &'static [&'static str]) {
        self.unique_keys(at, object, ours);
        for member in object.members().unwrap_or_default().iter().filter(|member| !ours.contains(&member.key.as_str()))
        {
            let (found, allowed) = (shortened(&member.key), ours.join("`, `"));
            self.report(&At::Key(at, &member.key), &member.node, Defect::UnknownKey { found, allowed });
        }
    }

    /// A string.
    pub fn text(&mut self, at: &At<'_>, object: &Node, key: &str) -> Option<String> {
        let node = object.present(key)?;
        self.text_value(&At::Key(at, key), node, "a string")
    }

    fn text_value(&mut self, at: &At<'_>, node: &Node, expected: &'static str) -> Option<String> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => self.report(at, node, Defect::Nul),
            Value::Text(text) => return Some(text.clone()),
            _ => self.wrong_type(at, node, expected),
        }
        None
    }

    /// A string, or nothing where it is blank.
    pub fn filled(&mut self, at: &At<'_>, object: &Node, key: &str) -> Option<String> {
        self.text(at, object, key).filter(|text| !text.trim().is_empty())
    }

    /// A string that must be there: one line, white space and control characters made single spaces.
    pub fn heading(&mut self, at: &At<'_>, object: &Node, key: &str, what: &'static str) -> Option<String> {
        let Some(node) = object.present(key) else {
            self.report(&At::Key(at, key), object, Defect::Absent { what });
            return None;
        };
        let text = self.text_value(&At::Key(at, key), node, "a string")?;
        let line = one_line(&text);
        if line.is_empty() {
            self.report(&At::Key(at, key), node, Defect::Absent { what });
            return None;
        }
        Some(line)
    }

    /// A boolean.
    pub fn flag(&mut self, at: &At<'_>, object: &Node, key: &str) -> Option<bool> {
        let node = object.present(key)?;
        if let Value::Bool(value) = node.value {
            return Some(value);
        }
        self.wrong_type(&At::Key(at, key), node, "`true` or `false`");
        None
    }

    /// A whole number of at least 1.
    pub fn count(&mut self, at: &At<'_>, object: &Node, key: &str) -> Option<usize> {
        let node = object.present(key)?;
        let at = At::Key(at, key);
        match whole_number(node) {
            Some(number) if number < 1 => self.report(&at, node, Defect::BelowOne { found: number.to_string() }),
            Some(number) => return usize::try_from(number).ok(),
            None => self.wrong_type(&at, node, "a whole number"),
        }
        None
    }

    /// An identifier: a string that is not blank, or a whole number. Any other text is kept as it is.
    pub fn id(&mut self, at: &At<'_>, node: &Node) -> Option<String> {
        let expected = "an id (a string, or a whole number)";
        match &node.value {
            Value::Text(text) if !text.trim().is_empty() => self.text_value(at, node, expected),
            Value::Number(text) if whole_number(node).is_some() => Some(text.clone()),
            _ => {
                self.wrong_type(at, node, expected);
                None
            }
        }
    }

    /// The items of an array; none where the key is absent.
    pub fn items<'a>(&mut self, at: &At<'_>, object: &'a Node, key: &str, expected: &'static str) -> &'a [Node] {
        let Some(node) = object.present(key) else { return &[] };
        if let Value::Array(items) = &node.value {
            return items;
        }
        self.wrong_type(&At::Key(at, key), node, expected);
        &[]
    }

    /// An array of strings; blank ones are dropped.
    pub fn texts(&mut self, at: &At<'_>, object: &Node, key: &str) -> Vec<String> {
        let items = self.items(at, object, key, "an array of strings");
        let at = At::Key(at, key);
        let texts = items.iter().enumerate();
        texts
            .filter_map(|(index, item)| self.text_value(&At::Index(&at, index), item, "a string"))
            .filter(|text| !text.trim().is_empty())
            .collect()
    }

    /// A string, or an array of strings; blank ones are dropped.
    pub fn one_or_more(&mut self, at: &At<'_>, object: &Node, key: &str) -> Vec<String> {
        match object.present(key).map(|node| (node, &node.value)) {
            None => Vec::new(),
            Some((_, Value::Text(_))) => self.filled(at, object, key).into_iter().collect(),
            Some((_, Value::Array(_))) => self.texts(at, object, key),
            Some((node, _)) => {
                self.wrong_type(&At::Key(at, key), node, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    /// One of a list of words.
    pub fn word<T: Copy>(&mut self, at: &At<'_>, object: &Node, key: &str, words: &[(&str, T)]) -> Option<T> {
        let node = object.present(key)?;
        let at = At::Key(at, key);
        let text = self.text_value(&at, node, "a string")?;
        let meaning = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if meaning.is_none() {
            let allowed: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.report(&at, node, Defect::UnknownWord { found: shortened(&text), allowed: allowed.join(", ") });
        }
        meaning
    }

    /// A whole number, or one of a list of words that stand for numbers.
    pub fn number_or_word(&mut self, at: &At<'_>, object: &Node, key: &str, words: &[(&str, i64)]) -> Option<i64> {
        let node = object.present(key)?;
        if let Value::Text(_) = node.value {
            return self.word(at, object, key, words);
        }
        let number = whole_number(node);
        if number.is_none() {
            self.wrong_type(&At::Key(at, key), node, "a whole number");
        }
        number
    }
}

fn whole_number(node: &Node) -> Option<i64> {
    if let Value::Number(text) = &node.value { text.parse().ok() } else { None }
}

/// The text as one line: runs of white space and control characters made single spaces, none at the ends.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}
