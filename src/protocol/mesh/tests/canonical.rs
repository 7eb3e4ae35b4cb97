//! Tests of `canonical.rs`.

use serde_json::{Value, json};

use super::*;

fn canonical_text(value: &Value) -> String {
    String::from_utf8(to_canonical_json(value)).expect("canonical JSON is UTF-8")
}

fn parse_json(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn rfc_8785_section_3_2_2_and_3_2_4_sample_object() {
    let input = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
                    \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical_text(&parse_json(input)), expected);
}

#[test]
fn rfc_8785_section_3_2_3_keys_are_sorted_by_utf_16_units() {
    let input = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
        "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let sorted = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ];
    let written = canonical_text(&parse_json(input));
    let places: Vec<usize> = sorted.iter().map(|name| written.find(name).expect("present")).collect();
    assert!(places.is_sorted(), "{written}");
}

#[test]
fn rfc_8785_appendix_b_number_samples() {
    let samples: [(u64, &str); 24] = [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];
    for (bits, expected) in samples {
        assert_eq!(format_number(f64::from_bits(bits)), expected, "{bits:016x}");
        assert_eq!(canonical_text(&json!(f64::from_bits(bits))), expected, "{bits:016x}");
    }
    // NaN and infinities are errors in the RFC; a JSON value cannot hold them.
    for bits in [0x7fffffffffffffff_u64, 0x7ff0000000000000] {
        assert!(serde_json::Number::from_f64(f64::from_bits(bits)).is_none());
    }
}

#[test]
fn integers_and_strings_are_canonical() {
    assert_eq!(canonical_text(&json!({"b": 10, "a": -5, "": [], "c": {}})), r#"{"":[],"a":-5,"b":10,"c":{}}"#);
    assert_eq!(
        canonical_text(&json!("\u{8}\t\n\u{c}\r\"\\/\u{1}\u{7f}é")),
        "\"\\b\\t\\n\\f\\r\\\"\\\\/\\u0001\u{7f}é\""
    );
}
