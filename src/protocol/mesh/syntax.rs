//! Lexical forms that several parts of the protocol share: names, IRIs, booleans, whole numbers and JSON Pointer tokens.

use serde_json::Value;

use super::canonical::MAX_SAFE_INTEGER;

/// Whether a text is an absolute IRI: a scheme, a colon, and a rest without white space.
pub fn is_iri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let bad = |c: char| c.is_whitespace() || c.is_control() || "<>\"{}|\\^`".contains(c);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(in_scheme)
        && !rest.is_empty()
        && text.len() <= 2048
        && !rest.contains(bad)
}

/// Whether a key of `Header` is in camelCase; `Upgrade` is the spec's own exception (5.4.6).
pub(super) fn is_camel_case(name: &str) -> bool {
    let camel = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
    (camel || name == "Upgrade") && name.len() <= 128
}

/// Reads a boolean. 1 and 0 are forms of the same values (1.3); a text is not.
pub(super) fn parse_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) if number.as_f64() == Some(1.0) => Some(true),
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(false),
        _ => None,
    }
}

/// Reads a non-negative integer however it is written: `3`, `3.0` and `3e0` are forms of one value (1.3).
pub(super) fn parse_whole_number(value: &Value) -> Option<u64> {
    let double = value.as_f64().filter(|double| double.fract() == 0.0 && (0.0..=MAX_SAFE_INTEGER).contains(double));
    double.map(|double| double as u64)
}

/// Escapes a key for use in a JSON Pointer (RFC 6901).
pub(super) fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
