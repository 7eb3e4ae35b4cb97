//! Strict RFC 8259 parser: text -> [`JsonNode`], nested at most [`MAX_DEPTH`] deep.

use super::tree::{JsonNode, JsonValue, Member};

/// How deep arrays and objects may nest.
const MAX_DEPTH: usize = 128;

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
