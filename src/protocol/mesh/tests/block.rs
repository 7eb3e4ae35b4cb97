//! Tests of `block.rs`.

use serde_json::json;

use super::*;

fn properties(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

#[test]
fn section_5_2_2_to_5_2_4_absent_properties_have_defaults() {
    let properties = properties(json!({"amount": 5}));
    let block = HeaderBlock { name: "transaction", form: BlockForm::Keyed, properties: &properties };
    assert_eq!(block.role(&RoleRegistry::default()), Role::UltimateReceiver);
    assert!(!block.must_understand() && !block.is_relayable());
    assert_eq!((block.encoding_style(), block.content()), (None, &properties));
}

#[test]
fn section_1_3_and_5_2_3_and_5_2_4_one_and_zero_count_as_booleans() {
    for (value, is) in
        [(json!(true), true), (json!(1), true), (json!(1.0), true), (json!(false), false), (json!(0), false)]
    {
        let properties = properties(json!({"mustUnderstand": value, "relay": value}));
        assert!(check_core_properties(&properties, "").is_ok());
        let block = HeaderBlock { name: "b", form: BlockForm::Keyed, properties: &properties };
        assert_eq!((block.must_understand(), block.is_relayable()), (is, is), "{value}");
    }
}

#[test]
fn section_5_2_1_core_properties_are_validated() {
    for (key, rule) in [
        ("mustUnderstand", rules::MUST_UNDERSTAND_TYPE),
        ("relay", rules::RELAY_TYPE),
        ("role", rules::ROLE_TYPE),
        ("encodingStyle", rules::ENCODING_STYLE_TYPE),
    ] {
        for value in [json!(null), json!(2), json!([]), json!({})] {
            let fault = check_core_properties(&properties(json!({key: value})), "/x").expect_err("a wrong type");
            assert_eq!(fault.subcode.as_deref(), Some(rule));
            assert_eq!(fault.detail["pointer"], json!(format!("/x/{key}")));
        }
    }
    assert!(check_core_properties(&properties(json!({"mustUnderstand": "true"})), "").is_err());
}

#[test]
fn section_5_2_1_names_are_camel_case() {
    for good in ["routing", "ttl", "alertControl", "a1", "Upgrade"] {
        assert!(is_camel_case(good), "{good}");
    }
    for bad in ["", "Routing", "alert-control", "alert_control", "alert control", "1a", "älter", "urn:x", "upgrade/x"]
    {
        assert!(!is_camel_case(bad), "{bad}");
    }
}

#[test]
fn section_1_4_a_listed_block_keeps_its_fields_in_content() {
    let properties =
        properties(json!({"type": "alertControl", "role": "next", "content": {"priority": 1, "role": "none"}}));
    let block = HeaderBlock { name: "alertControl", form: BlockForm::Listed, properties: &properties };
    assert_eq!(block.content()["priority"], json!(1));
    assert_eq!(block.role(&RoleRegistry::default()), Role::Next);
}
