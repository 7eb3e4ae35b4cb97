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
pub(crate) struct JsonNode {
    /// From its first byte to after its last, in the text that was read.
    pub span: Range<usize>,
    /// What it is.
    pub value: JsonValue,
}

/// What a value is.
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

/// A key and its value.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub key: String,
    /// The key's bytes, quotes included.
    pub key_span: Range<usize>,
    pub node: JsonNode,
}

impl JsonNode {
    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.value == JsonValue::Null
    }

    /// The members of an object.
    pub fn members(&self) -> Option<&[Member]> {
        if let JsonValue::Object(members) = &self.value { Some(members) } else { None }
    }

    /// The value of an object's key; of the first, where there are several.
    pub fn get(&self, key: &str) -> Option<&JsonNode> {
        self.members()?.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// The same, with `null` as absent.
    pub fn get_non_null(&self, key: &str) -> Option<&JsonNode> {
        self.get(key).filter(|node| !node.is_null())
    }

    /// What an error says that it found: "the number 5", "an array of 3".
    pub fn describe(&self) -> String {
        match &self.value {
            JsonValue::Null => "null".to_owned(),
            JsonValue::Bool(value) => format!("`{value}`"),
            JsonValue::Number(text) => format!("the number `{}`", truncate(text)),
            JsonValue::Text(text) if text.is_empty() => "an empty string".to_owned(),
            JsonValue::Text(text) => format!("the string `{}`", truncate(text)),
            JsonValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
            JsonValue::Array(items) => format!("an array of {}", items.len()),
            JsonValue::Object(members) if members.is_empty() => "an empty object".to_owned(),
            JsonValue::Object(members) => {
                let keys: Vec<String> =
                    members.iter().take(12).map(|member| format!("`{}`", truncate(&member.key))).collect();
                let more = if members.len() > keys.len() { ", ..." } else { "" };
                format!("an object with {}{more}", keys.join(", "))
            }
        }
    }
}

/// The first 60 characters, without line breaks and control characters.
pub(crate) fn truncate(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        short.push_str("...");
    }
    short
}

/// Where the text stops being JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct JsonSyntaxError {
    /// The first byte that does not fit.
    pub offset: usize,
    /// What would fit there.
    pub expected: &'static str,
}

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<JsonNode, JsonSyntaxError> {
    let mut parser = JsonParser { text, bytes: text.as_bytes(), position: 0 };
    parser.skip_whitespace();
    let node = parser.parse_value(0)?;
    parser.skip_whitespace();
    if parser.position < text.len() { Err(parser.error_expecting("the end of the file")) } else { Ok(node) }
}

struct JsonParser<'t> {
    text: &'t str,
    bytes: &'t [u8],
    position: usize,
}

impl JsonParser<'_> {
    fn error_expecting(&self, expected: &'static str) -> JsonSyntaxError {
        JsonSyntaxError { offset: self.position, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    fn parse_value(&mut self, depth: usize) -> Result<JsonNode, JsonSyntaxError> {
        let start = self.position;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.error_expecting("a value that is nested at most 128 deep"));
            }
            Some(b'{') => self.parse_object(depth)?,
            Some(b'[') => self.parse_array(depth)?,
            Some(b'"') => JsonValue::Text(self.parse_string()?),
            Some(b'-' | b'0'..=b'9') => self.parse_number()?,
            Some(b't') => self.parse_literal("true", JsonValue::Bool(true))?,
            Some(b'f') => self.parse_literal("false", JsonValue::Bool(false))?,
            Some(b'n') => self.parse_literal("null", JsonValue::Null)?,
            _ => return Err(self.error_expecting("a value")),
        };
        Ok(JsonNode { span: start..self.position, value })
    }

    fn parse_literal(&mut self, word: &str, value: JsonValue) -> Result<JsonValue, JsonSyntaxError> {
        if self.bytes[self.position..].starts_with(word.as_bytes()) {
            self.position += word.len();
            Ok(value)
        } else {
            Err(self.error_expecting("a value"))
        }
    }

    fn parse_object(&mut self, depth: usize) -> Result<JsonValue, JsonSyntaxError> {
        let mut members = Vec::new();
        self.position += 1;
        self.skip_whitespace();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(JsonValue::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.error_expecting("a key in double quotes"));
            }
            let start = self.position;
            let key = self.parse_string()?;
            let key_span = start..self.position;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.error_expecting("`:`"));
            }
            self.position += 1;
            self.skip_whitespace();
            let node = self.parse_value(depth + 1)?;
            members.push(Member { key, key_span, node });
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {
                    self.position += 1;
                    return Ok(JsonValue::Object(members));
                }
                _ => return Err(self.error_expecting("`,` or `}`")),
            }
            self.skip_whitespace();
        }
    }

    fn parse_array(&mut self, depth: usize) -> Result<JsonValue, JsonSyntaxError> {
        let mut items = Vec::new();
        self.position += 1;
        self.skip_whitespace();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(JsonValue::Array(items));
        }
        loop {
            items.push(self.parse_value(depth + 1)?);
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.position += 1;
                    return Ok(JsonValue::Array(items));
                }
                _ => return Err(self.error_expecting("`,` or `]`")),
            }
            self.skip_whitespace();
        }
    }

    fn parse_string(&mut self) -> Result<String, JsonSyntaxError> {
        let start = self.position;
        self.position += 1;
        let mut escaped = false;
        loop {
            match self.peek() {
                None => return Err(self.error_expecting("`\"` at the end of a string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.position += 1;
                    // Whatever follows belongs to the escape, a quote too; what it means is decided below.
                    match self.peek() {
                        Some(byte) if byte >= 0x20 => self.position += 1,
                        _ => return Err(self.error_expecting("an escape")),
                    }
                }
                Some(0x00..=0x1f) => {
                    return Err(
                        self.error_expecting("`\"` at the end of a string, or the escape of a control character")
                    );
                }
                Some(_) => self.position += 1,
            }
        }
        self.position += 1;
        if !escaped {
            return Ok(self.text[start + 1..self.position - 1].to_owned());
        }
        serde_json::from_str(&self.text[start..self.position])
            .map_err(|_| JsonSyntaxError { offset: start, expected: "a string with valid escapes" })
    }

    fn parse_number(&mut self) -> Result<JsonValue, JsonSyntaxError> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        if self.peek() == Some(b'0') {
            self.position += 1;
        } else {
            self.skip_digits()?;
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.skip_digits()?;
        }
        Ok(JsonValue::Number(self.text[start..self.position].to_owned()))
    }

    fn skip_digits(&mut self) -> Result<(), JsonSyntaxError> {
        let start = self.position;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
        if self.position == start { Err(self.error_expecting("a digit")) } else { Ok(()) }
    }
}

/// From byte offsets to lines and columns.
pub(crate) struct LineIndex<'t> {
    text: &'t str,
    /// The offset of each line's first byte.
    starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub fn new(text: &'t str) -> Self {
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

    fn to_serde_value(node: &JsonNode) -> serde_json::Value {
        match &node.value {
            JsonValue::Null => serde_json::Value::Null,
            JsonValue::Bool(value) => (*value).into(),
            JsonValue::Number(text) => serde_json::from_str(text).expect("a number"),
            JsonValue::Text(text) => text.clone().into(),
            JsonValue::Array(items) => items.iter().map(to_serde_value).collect(),
            JsonValue::Object(members) => members.iter().map(|m| (m.key.clone(), to_serde_value(&m.node))).collect(),
        }
    }

    #[test]
    fn spans_cover_exactly_the_value() {
        let text = " { \"a\" : [1, \"ä\\n\"] , \"b\":true}\n";
        let root = parse(text).expect("valid");
        let member = &root.members().expect("an object")[0];
        assert_eq!(&text[root.span.clone()], "{ \"a\" : [1, \"ä\\n\"] , \"b\":true}");
        assert_eq!(&text[member.key_span.clone()], "\"a\"");
        assert_eq!(&text[member.node.span.clone()], "[1, \"ä\\n\"]");
    }

    #[test]
    fn syntax_errors_point_at_the_first_invalid_byte() {
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
            assert_eq!(parse(text), Err(JsonSyntaxError { offset, expected }), "{text:?}");
        }
        assert!(parse(&"[".repeat(200)).is_err());
        assert!(parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    }

    #[test]
    fn offsets_map_to_lines_and_columns() {
        let lines = LineIndex::new("ab\nä€c\n");
        assert_eq!((lines.line(0), lines.column(0)), (1, 1));
        assert_eq!((lines.line(8), lines.column(8)), (2, 3));
        assert_eq!((lines.line(9), lines.line(10)), (2, 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The same texts are JSON for this parser and for `serde_json`, and mean the same.
        #[test]
        fn the_parser_agrees_with_serde_json(text in "[\\[\\]{}:,\"a\\\\u0-9.eE+ tn\\-\\n]{0,12}|\\PC{0,20}") {
            match (parse(&text), serde_json::from_str::<serde_json::Value>(&text)) {
                (Ok(node), Ok(value)) => prop_assert_eq!(to_serde_value(&node), value),
                (Err(_), Err(_)) => {}
                // The one difference: a number too large for a double is still a number.
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{}", error),
                (Err(syntax), Ok(_)) => prop_assert!(false, "{syntax:?}"),
            }
        }

        #[test]
        fn the_parser_reads_serde_json_output(value in crate::tasks::tests::any_json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let node = parse(&text.expect("a value has a text")).expect("valid");
            prop_assert_eq!(to_serde_value(&node), value);
        }
    }
}
