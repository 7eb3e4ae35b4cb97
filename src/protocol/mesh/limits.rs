//! How large a frame may be, and JSON text -> values within that: the first thing that a frame from outside meets.
//!
//! Used by `frame.rs`. What is over a limit, stands twice, or is a number that not every reader reads the same is a [`Fault`] with
//! the place as a JSON Pointer (1.1). Must not: know what a frame is made of, but for the nodes and edges of its grams.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::canonical;
use super::fault::Fault;
use super::rules;
use crate::protocol::acp::fields::excerpt;
use crate::tasks::json::{self, JsonNode};

/// The sizes above which a frame is refused (7.0, rule 5: sanitise against overflow).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of the whole text.
    pub bytes: usize,
    /// How deep arrays and objects nest. Never more than 128.
    pub depth: usize,
    /// Values of any kind in the whole frame.
    pub values: usize,
    /// Bytes of one text or key.
    pub text: usize,
    /// Entries of `Header`, `headerBlocks` counted in.
    pub blocks: usize,
    /// MemoryGrams.
    pub grams: usize,
    /// Nodes of all MemoryGrams together.
    pub nodes: usize,
    /// Edges of all MemoryGrams together.
    pub edges: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            bytes: 8 << 20,
            depth: 64,
            values: 200_000,
            text: 4 << 20,
            blocks: 128,
            grams: 256,
            nodes: 20_000,
            edges: 40_000,
        }
    }
}

/// Reads a whole text as one JSON value within the limits.
pub(super) fn parse_json(bytes: &[u8], limits: &FrameLimits) -> Result<Value, Box<Fault>> {
    if bytes.len() > limits.bytes {
        return Err(limit_exceeded("", "bytes", bytes.len(), limits.bytes));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Fault::sender(rules::UTF8, format!("the message is not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    let root = json::parse(text).map_err(|syntax| {
        let problem = format!("the message is not JSON: byte {} must be {}", syntax.offset, syntax.expected);
        Fault::sender(rules::JSON, problem)
    })?;
    let mut walk = ValueConverter { limits, value_count: 0, path: Vec::new() };
    walk.convert_value(root, 0)
}

/// What is over a limit.
pub(super) fn limit_exceeded(pointer: &str, what: &str, found: usize, limit: usize) -> Box<Fault> {
    Fault::sender(rules::LIMIT_EXCEEDED, format!("has {found} {what}, {limit} are allowed")).at_pointer(pointer)
}

struct ValueConverter<'l> {
    limits: &'l FrameLimits,
    value_count: usize,
    path: Vec<String>,
}

impl ValueConverter<'_> {
    fn pointer(&self) -> String {
        self.path.iter().map(|key| format!("/{}", escape_pointer_token(key))).collect()
    }

    fn check_text(&self, text: &str) -> Result<(), Box<Fault>> {
        if text.len() > self.limits.text {
            return Err(limit_exceeded(&self.pointer(), "bytes of text", text.len(), self.limits.text));
        }
        Ok(())
    }

    fn convert_value(&mut self, node: JsonNode, depth: usize) -> Result<Value, Box<Fault>> {
        self.value_count += 1;
        if self.value_count > self.limits.values {
            return Err(limit_exceeded("", "values", self.value_count, self.limits.values));
        }
        if depth > self.limits.depth {
            return Err(limit_exceeded(&self.pointer(), "levels", depth, self.limits.depth));
        }
        Ok(match node.value {
            json::JsonValue::Null => Value::Null,
            json::JsonValue::Bool(value) => Value::Bool(value),
            json::JsonValue::Text(text) => {
                self.check_text(&text)?;
                Value::String(text)
            }
            json::JsonValue::Number(text) => Value::Number(self.convert_number(&text)?),
            json::JsonValue::Array(items) => {
                let mut array = Vec::with_capacity(items.len().min(1024));
                for (place, item) in items.into_iter().enumerate() {
                    self.path.push(place.to_string());
                    array.push(self.convert_value(item, depth + 1)?);
                    self.path.pop();
                }
                Value::Array(array)
            }
            json::JsonValue::Object(members) => {
                let mut seen = HashSet::with_capacity(members.len());
                let mut object = Map::with_capacity(members.len().min(1024));
                for member in members {
                    self.check_text(&member.key)?;
                    self.path.push(member.key.clone());
                    if !seen.insert(member.key.clone()) {
                        let problem = format!("the key `{}` stands twice", excerpt(&member.key));
                        return Err(Fault::sender(rules::DUPLICATE_KEY, problem).at_pointer(&self.pointer()));
                    }
                    let value = self.convert_value(member.node, depth + 1)?;
                    self.path.pop();
                    object.insert(member.key, value);
                }
                Value::Object(object)
            }
        })
    }

    /// A number that every reader takes for the same: an integer that a double holds as it is written, or the double that is nearest
    /// to what is written, which is not zero unless that is.
    fn convert_number(&self, text: &str) -> Result<Number, Box<Fault>> {
        let whole = text.parse::<u64>().ok().map(Number::from).or_else(|| text.parse::<i64>().ok().map(Number::from));
        let double = text.parse::<f64>().ok().filter(|double| double.is_finite());
        let is_integer = !text.contains(['.', 'e', 'E']);
        let kept = double.filter(|double| {
            let of_zeros = || !text.split(['e', 'E']).next().unwrap_or(text).contains(|c| ('1'..='9').contains(&c));
            if is_integer {
                double.abs() <= canonical::MAX_SAFE_INTEGER || canonical::format_number(*double) == text
            } else {
                *double != 0.0 || of_zeros()
            }
        });
        let number = match (whole, kept) {
            (Some(whole), Some(double)) if double.abs() <= canonical::MAX_SAFE_INTEGER && text != "-0" => Some(whole),
            (_, Some(double)) => Number::from_f64(double),
            (_, None) => None,
        };
        number.ok_or_else(|| {
            let problem = format!("the number `{}` is not one that every reader reads the same", excerpt(text));
            Fault::sender(rules::NUMBER, problem).at_pointer(&self.pointer())
        })
    }
}

/// A whole number from 0, however it is written: `3`, `3.0` and `3e0` are forms of one value (1.3).
pub(super) fn parse_whole_number(value: &Value) -> Option<u64> {
    let double =
        value.as_f64().filter(|double| double.fract() == 0.0 && (0.0..=canonical::MAX_SAFE_INTEGER).contains(double));
    double.map(|double| double as u64)
}

/// A key as a part of a JSON Pointer (RFC 6901).
pub(super) fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(text: &str, limits: &FrameLimits) -> (String, String) {
        let fault = parse_json(text.as_bytes(), limits).expect_err("it must be refused");
        let pointer = fault.detail.get("pointer").and_then(Value::as_str).unwrap_or_default().to_owned();
        (fault.subcode.clone().unwrap_or_default(), pointer)
    }

    #[test]
    fn exceeded_limits_are_refused_with_a_pointer() {
        let all = FrameLimits::default();
        let case = |text: &str, limits: FrameLimits, pointer: &str| {
            assert_eq!(rejection(text, &limits), (rules::LIMIT_EXCEEDED.to_owned(), pointer.to_owned()), "{text}");
            assert!(parse_json(text.as_bytes(), &FrameLimits::default()).is_ok(), "{text}");
        };
        case(r#"{"a":1}"#, FrameLimits { bytes: 6, ..all.clone() }, "");
        case(r#"{"a":[[1]]}"#, FrameLimits { depth: 2, ..all.clone() }, "/a/0/0");
        case(r#"{"a":[1,2]}"#, FrameLimits { values: 3, ..all.clone() }, "");
        case(r#"{"a/b":{"c":"long"}}"#, FrameLimits { text: 3, ..all.clone() }, "/a~1b/c");
        case(r#"{"longKey":1}"#, FrameLimits { text: 3, ..all }, "");
    }

    #[test]
    fn nesting_never_exhausts_the_stack() {
        let deep = "[".repeat(500_000);
        assert!(parse_json(deep.as_bytes(), &FrameLimits { depth: usize::MAX, ..FrameLimits::default() }).is_err());
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        let (subcode, pointer) = rejection(r#"{"frame":{"Body":{"a":[{"b":1,"b":1}]}}}"#, &FrameLimits::default());
        assert_eq!((subcode.as_str(), pointer.as_str()), (rules::DUPLICATE_KEY, "/frame/Body/a/0/b"));
        assert_eq!(rejection(r#"{"a":1,"\u0061":2}"#, &FrameLimits::default()).0, rules::DUPLICATE_KEY);
    }

    #[test]
    fn numbers_keep_their_value_or_are_refused() {
        for kept in [
            "0",
            "-1",
            "9007199254740991",
            "-9007199254740991",
            "100000000000000000000",
            "1.5",
            "1e30",
            "-0",
            "0.0",
            "0e9",
            "-0.00E-999",
            "5e-324",
            "0.1234567890123456789012",
            "3.0",
        ] {
            let read = parse_json(kept.as_bytes(), &FrameLimits::default()).expect("a good number");
            assert_eq!(read.as_f64(), kept.parse().ok(), "{kept}");
        }
        // A decimal goes on as the shortest text of the nearest double, and -0 keeps its sign: forms of the same value.
        let written =
            |text: &str| parse_json(text.as_bytes(), &FrameLimits::default()).expect("a good number").to_string();
        assert_eq!(written("0.1234567890123456789012"), "0.12345678901234568");
        assert_eq!((written("-0"), written("9007199254740991")), ("-0.0".to_owned(), "9007199254740991".to_owned()));
        for refused in [
            "9007199254740993",
            "18446744073709551615",
            "1e400",
            "123456789012345678901234567890",
            "1e-400",
            "-0.01e-330",
        ] {
            assert_eq!(rejection(refused, &FrameLimits::default()).0, rules::NUMBER, "{refused}");
        }
    }

    #[test]
    fn invalid_json_and_invalid_utf8_are_refused() {
        for text in ["", "{", "{}x", "{'a':1}", "{\"a\":1,}", "// no\n{}", "\u{feff}{}"] {
            assert_eq!(rejection(text, &FrameLimits::default()).0, rules::JSON, "{text}");
        }
        let subcode = parse_json(b"\"\xff\"", &FrameLimits::default()).expect_err("not UTF-8").subcode;
        assert_eq!(subcode.as_deref(), Some(rules::UTF8));
    }
}
