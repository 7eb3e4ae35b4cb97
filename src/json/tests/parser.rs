//! The parser beside `serde_json`, its errors and its spans.

use proptest::prelude::*;
use serde_json::Value;

use crate::json::{JsonNode, JsonSyntaxError, JsonValue, LineIndex, parse};

/// Any JSON value, a few levels deep.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,8}|[\\x00-\\x1f\"\\\\]{0,3}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec(("[a-z]{0,5}", inner), 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

pub(super) fn to_serde_value(node: &JsonNode) -> Value {
    match &node.value {
        JsonValue::Null => Value::Null,
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
        match (parse(&text), serde_json::from_str::<Value>(&text)) {
            (Ok(node), Ok(value)) => prop_assert_eq!(to_serde_value(&node), value),
            (Err(_), Err(_)) => {}
            // The one difference: a number too large for a double is still a number.
            (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{}", error),
            (Err(syntax), Ok(_)) => prop_assert!(false, "{syntax:?}"),
        }
    }

    #[test]
    fn the_parser_reads_serde_json_output(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let node = parse(&text.expect("a value has a text")).expect("valid");
        prop_assert_eq!(to_serde_value(&node), value);
    }
}
