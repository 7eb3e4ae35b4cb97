//! JSON as a tree in which every value knows its place in the text. `serde_json` has no places, and both halves of
//! this module need them: errors that name a line, and a write-back that leaves every other byte alone.
//!
//! Strict RFC 8259, at most [`MAX_DEPTH`] deep. Keys and values are kept in the file's order, keys that stand twice
//! twice. Called by `import.rs` and `write_back.rs`. Must not: know what a tasks file is.

use std::ops::Range;

/// How deep arrays and objects may nest.
const MAX_DEPTH: usize = 128;

/// A value and the bytes that it stands in.
#[derive(Debug, PartialEq)]
pub(crate) struct Node {
    /// From its first byte to after its last, in the text that was read.
    pub span: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    Text(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

/// A key and its value.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub key: String,
    /// The key's bytes, quotes included.
    pub key_span: Range<usize>,
    pub node: Node,
}

impl Node {
    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[Member]> {
        if let Value::Object(members) = &self.value { Some(members) } else { None }
    }

    /// The value of an object's key; of the first, where there are several.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.members()?.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// The same, with `null` as absent.
    pub fn present(&self, key: &str) -> Option<&Node> {
        self.get(key).filter(|node| !node.is_null())
    }

    /// What an error says that it found: "the number 5", "an array of 3".
    pub fn found(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Number(text) => format!("the number `{}`", shortened(text)),
            Value::Text(text) if text.is_empty() => "an empty string".to_owned(),
            Value::Text(text) => format!("the string `{}`", shortened(text)),
            Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
            Value::Array(items) => format!("an array of {}", items.len()),
            Value::Object(members) if members.is_empty() => "an empty object".to_owned(),
            Value::Object(members) => {
                let keys: Vec<String> =
                    members.iter().take(12).map(|member| format!("`{}`", shortened(&member.key))).collect();
                let more = if members.len() > keys.len() { ", ..." } else { "" };
                format!("an object with {}{more}", keys.join(", "))
            }
        }
    }
}

/// The first 60 characters, without line breaks and control characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        short.push_str("...");
    }
    short
}

/// Where the text stops being JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct Syntax {
    /// The first byte that does not fit.
    pub offset: usize,
    /// What would fit there.
    pub expected: &'static str,
}

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<Node, Syntax> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0 };
    parser.skip_space();
    let node = parser.value(0)?;
    parser.skip_space();
    if parser.at < text.len() { Err(parser.expected("the end of the file")) } else { Ok(node) }
}

struct Parser<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> Syntax {
        Syntax { offset: self.at, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Syntax> {
        let start = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.expected("a value that is nested at most 128 deep"));
            }
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Node { span: start..self.at, value })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Syntax> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.expected("a value"))
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Syntax> {
        let mut members = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let start = self.at;
            let key = self.string()?;
            let key_span = start..self.at;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.expected("`:`"));
            }
            self.at += 1;
            self.skip_space();
            let node = self.value(depth + 1)?;
            members.push(Member { key, key_span, node });
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(members));
                }
                _ => return Err(self.expected("`,` or `}`")),
            }
            self.skip_space();
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Syntax> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.expected("`,` or `]`")),
            }
            self.skip_space();
        }
    }

    fn string(&mut self) -> Result<String, Syntax> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            match self.peek() {
                None => return Err(self.expected("`\"` at the end of a string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    // Whatever follows belongs to the escape, a quote too; what it means is decided below.
                    match self.peek() {
                        Some(byte) if byte >= 0x20 => self.at += 1,
                        _ => return Err(self.expected("an escape")),
                    }
                }
                Some(0x00..=0x1f) => {
                    return Err(self.expected("`\"` at the end of a string, or the escape of a control character"));
                }
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        if !escaped {
            return Ok(self.text[start + 1..self.at - 1].to_owned());
        }
        serde_json::from_str(&self.text[start..self.at])
            .map_err(|_| Syntax { offset: start, expected: "a string with valid escapes" })
    }

    fn number(&mut self) -> Result<Value, Syntax> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Value::Number(self.text[start..self.at].to_owned()))
    }

    fn digits(&mut self) -> Result<(), Syntax> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }
}

/// From byte offsets to lines and columns.
pub(crate) struct Lines<'t> {
    text: &'t str,
    /// The offset of each line's first byte.
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub fn of(text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The line of a byte, from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The column of a byte in its line, in characters from 1.
    pub fn column(&self, offset: usize) -> usize {
        let start = self.starts[self.line(offset) - 1];
        self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(node: &Node) -> serde_json::Value {
        match &node.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(text) => serde_json::from_str(text).expect("a number"),
            Value::Text(text) => text.clone().into(),
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(members) => members.iter().map(|m| (m.key.clone(), plain(&m.node))).collect(),
        }
    }

    #[test]
    fn spans_are_the_bytes_of_the_value() {
        let text = " { \"a\" : [1, \"ä\\n\"] , \"b\":true}\n";
        let root = parse(text).expect("valid");
        let member = &root.members().expect("an object")[0];
        assert_eq!(&text[root.span.clone()], "{ \"a\" : [1, \"ä\\n\"] , \"b\":true}");
        assert_eq!(&text[member.key_span.clone()], "\"a\"");
        assert_eq!(&text[member.node.span.clone()], "[1, \"ä\\n\"]");
    }

    #[test]
    fn stops_at_the_byte_that_does_not_fit() {
        for (text, offset, expected) in [
            ("", 0, "a value"),
            ("{\"a\":1,}", 7, "a key in double quotes"),
            ("[1,]", 3, "a value"),
            ("{'a':1}", 1, "a key in double quotes"),
            ("{\"a\" 1}", 5, "`:`"),
            ("[1 2]", 3, "`,` or `]`"),
            ("{\"a\":1", 6, "`,` or `}`"),
            ("1 x", 2, "the end of the file"),
            ("\"a", 2, "`\"` at the end of a string"),
            ("\"a\nb\"", 2, "`\"` at the end of a string, or the escape of a control character"),
            ("\"\\ud800\"", 0, "a string with valid escapes"),
            ("-", 1, "a digit"),
            ("nul", 0, "a value"),
        ] {
            assert_eq!(parse(text), Err(Syntax { offset, expected }), "{text:?}");
        }
        assert!(parse(&"[".repeat(200)).is_err());
        assert!(parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    }

    #[test]
    fn lines_and_columns() {
        let lines = Lines::of("ab\nä€c\n");
        assert_eq!((lines.line(0), lines.column(0)), (1, 1));
        assert_eq!((lines.line(8), lines.column(8)), (2, 3));
        assert_eq!((lines.line(9), lines.line(10)), (2, 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The same texts are JSON for this parser and for `serde_json`, and mean the same.
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{}:,\"a\\\\u0-9.eE+ tn\\-\\n]{0,12}|\\PC{0,20}") {
            match (parse(&text), serde_json::from_str::<serde_json::Value>(&text)) {
                (Ok(node), Ok(value)) => prop_assert_eq!(plain(&node), value),
                (Err(_), Err(_)) => {}
                // The one difference: a number too large for a double is still a number.
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{}", error),
                (Err(syntax), Ok(_)) => prop_assert!(false, "{syntax:?}"),
            }
        }

        #[test]
        fn reads_what_serde_json_writes(value in crate::tasks::tests::any_json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let node = parse(&text.expect("a value has a text")).expect("valid");
            prop_assert_eq!(plain(&node), value);
        }
    }
}
