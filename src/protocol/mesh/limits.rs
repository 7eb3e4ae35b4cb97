//! Size limits of a frame, and the JSON parser that enforces them.
//!
//! Refuses whatever two readers could take for two things: duplicate keys, and numbers that a double cannot hold. Every refusal is a
//! [`Fault`] with a JSON Pointer. Must not: know the structure of a frame.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::canonical;
use super::fault::Fault;
use super::rules;
use super::syntax::escape_pointer_token;
use crate::json::text::excerpt;
use crate::json::{self, JsonNode};

/// Sizes above which a frame is refused (7.0, rule 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of the whole message.
    pub bytes: usize,
    /// Nesting of arrays and objects. Never more than 128.
    pub depth: usize,
    /// JSON values in the whole frame.
    pub values: usize,
    /// Bytes of one text or key.
    pub text: usize,
    /// Entries of `Header` and of `headerBlocks` together.
    pub blocks: usize,
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

/// Parses a text as one JSON value within the limits.
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
    ValueConverter { limits, value_count: 0, path: Vec::new() }.convert_value(root, 0)
}

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
                for (index, item) in items.into_iter().enumerate() {
                    self.path.push(index.to_string());
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
                        let problem = format!("duplicate key `{}`", excerpt(&member.key));
                        return Fault::reject(rules::DUPLICATE_KEY, &self.pointer(), problem);
                    }
                    let value = self.convert_value(member.node, depth + 1)?;
                    self.path.pop();
                    object.insert(member.key, value);
                }
                Value::Object(object)
            }
        })
    }

    /// Accepts an integer that a double holds exactly, and any decimal whose nearest double is finite and is zero only if the decimal
    /// is.
    fn convert_number(&self, text: &str) -> Result<Number, Box<Fault>> {
        let whole = text.parse::<u64>().ok().map(Number::from).or_else(|| text.parse::<i64>().ok().map(Number::from));
        let double = text.parse::<f64>().ok().filter(|double| double.is_finite());
        let is_integer = !text.contains(['.', 'e', 'E']);
        let exact_double = double.filter(|double| {
            let has_zero_digits =
                || !text.split(['e', 'E']).next().unwrap_or(text).contains(|c| ('1'..='9').contains(&c));
            if is_integer {
                double.abs() <= canonical::MAX_SAFE_INTEGER || canonical::format_number(*double) == text
            } else {
                *double != 0.0 || has_zero_digits()
            }
        });
        let number = match (whole, exact_double) {
            (Some(whole), Some(double)) if double.abs() <= canonical::MAX_SAFE_INTEGER && text != "-0" => Some(whole),
            (_, Some(double)) => Number::from_f64(double),
            (_, None) => None,
        };
        number.ok_or_else(|| {
            let problem = format!("the number `{}` cannot be represented as a double", excerpt(text));
            Fault::sender(rules::NUMBER, problem).at_pointer(&self.pointer())
        })
    }
}

#[cfg(test)]
#[path = "tests/limits.rs"]
mod tests;
