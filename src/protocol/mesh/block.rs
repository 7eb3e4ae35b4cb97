//! A header block, whichever of the two forms it came in: a key of `Header` (5.2), or an entry of `headerBlocks` (1.4).
//!
//! Used by `frame.rs`, `process.rs`, `relay.rs` and the modules. A [`HeaderBlock`] exists in checked frames only, so what it says of
//! role, `mustUnderstand` and `relay` is valid. Must not: know which node looks at it.

use serde_json::{Map, Value};

use super::fault::Fault;
use super::role::{Role, RoleRegistry};
use super::rules;
use crate::protocol::acp::fields::excerpt;

/// How a block stands in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockForm {
    /// `"name": {..}` in `Header`.
    Keyed,
    /// `{"type": "name", "content": {..}}` in `headerBlocks`.
    Listed,
}

/// A header block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeaderBlock<'f> {
    /// Its name: what a node must know to understand it.
    pub name: &'f str,
    /// How it stands in the header.
    pub form: BlockForm,
    /// All of its properties, as they came.
    pub properties: &'f Map<String, Value>,
}

impl<'f> HeaderBlock<'f> {
    /// The role that it is targeted at. One that names none is for the ultimate receiver (5.2.2, rule 3).
    pub fn role(&self, vocabulary: &RoleRegistry) -> Role {
        match self.properties.get("role").and_then(Value::as_str) {
            Some(text) => vocabulary.resolve_or_ultimate_receiver(text),
            None => Role::UltimateReceiver,
        }
    }

    /// Whether its target must understand it (5.2.3); false if it does not say.
    pub fn must_understand(&self) -> bool {
        self.properties.get("mustUnderstand").and_then(parse_boolean).unwrap_or(false)
    }

    /// Whether it is relayed by a target that does not understand it (5.2.4); false if it does not say.
    pub fn is_relayable(&self) -> bool {
        self.properties.get("relay").and_then(parse_boolean).unwrap_or(false)
    }

    /// How its payload is encoded, if it says (5.2.1, rule 3).
    pub fn encoding_style(&self) -> Option<&'f str> {
        self.properties.get("encodingStyle").and_then(Value::as_str)
    }

    /// Where its module's own fields are: `content` of a listed block that has one, the block itself otherwise.
    pub fn content(&self) -> &'f Map<String, Value> {
        match (self.form, self.properties.get("content")) {
            (BlockForm::Listed, Some(Value::Object(content))) => content,
            _ => self.properties,
        }
    }
}

/// A boolean. 1 and 0 are forms of the same values (1.3); a text is not.
pub(super) fn parse_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_f64() {
            Some(1.0) => Some(true),
            Some(0.0) => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a text is in camelCase, as keys of `Header` must be; `Upgrade` is the spec's own exception (5.4.6).
pub(super) fn is_camel_case(name: &str) -> bool {
    let camel = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
    (camel || name == "Upgrade") && name.len() <= 128
}

/// 5.2.1, rule 1.
pub(super) fn check_block_name(name: &str, pointer: &str) -> Result<(), Box<Fault>> {
    if is_camel_case(name) {
        return Ok(());
    }
    let problem = format!("a header block's name must be in camelCase, found `{}`", excerpt(name));
    Err(Fault::sender(rules::BLOCK_NAME, problem).at_pointer(pointer))
}

/// 5.2.1, rule 5: the properties that every block shares. Those of nested objects are none of ours (5.2.2, 5.2.4).
pub(super) fn check_core_properties(properties: &Map<String, Value>, pointer: &str) -> Result<(), Box<Fault>> {
    for (key, rule) in [("mustUnderstand", rules::MUST_UNDERSTAND_TYPE), ("relay", rules::RELAY_TYPE)] {
        if properties.get(key).is_some_and(|value| parse_boolean(value).is_none()) {
            return Err(
                Fault::sender(rule, format!("`{key}` must be true or false")).at_pointer(&format!("{pointer}/{key}"))
            );
        }
    }
    for (key, rule) in [("role", rules::ROLE_TYPE), ("encodingStyle", rules::ENCODING_STYLE_TYPE)] {
        if properties.get(key).is_some_and(|value| !value.is_string()) {
            return Err(
                Fault::sender(rule, format!("`{key}` must be a string")).at_pointer(&format!("{pointer}/{key}"))
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        for bad in
            ["", "Routing", "alert-control", "alert_control", "alert control", "1a", "älter", "urn:x", "upgrade/x"]
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
}
