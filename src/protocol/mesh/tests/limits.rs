//! Tests of `limits.rs`.

use super::*;

fn rejection(text: &str, limits: &FrameLimits) -> (String, String) {
    let fault = parse_json(text.as_bytes(), limits).expect_err("must be refused");
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
    for text in [
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
        let read = parse_json(text.as_bytes(), &FrameLimits::default()).expect("a valid number");
        assert_eq!(read.as_f64(), text.parse().ok(), "{text}");
    }
    // A decimal becomes the shortest form of the nearest double, and -0 keeps its sign.
    let written =
        |text: &str| parse_json(text.as_bytes(), &FrameLimits::default()).expect("a valid number").to_string();
    assert_eq!(written("0.1234567890123456789012"), "0.12345678901234568");
    assert_eq!((written("-0"), written("9007199254740991")), ("-0.0".to_owned(), "9007199254740991".to_owned()));
    for refused in
        ["9007199254740993", "18446744073709551615", "1e400", "123456789012345678901234567890", "1e-400", "-0.01e-330"]
    {
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
