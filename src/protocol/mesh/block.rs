//! Header blocks in both forms: a key of `Header` (5.2), or an entry of `headerBlocks` (1.4). MemoryGrams follow the same rules (1.4).
//!
//! A [`HeaderBlock`] of a parsed frame has valid core properties. Must not: know which node looks at it.

use serde_json::{Map, Value};

use super::fault::Fault;
use super::role::{Role, RoleRegistry};
use super::rules;
use super::syntax::{is_camel_case, parse_boolean};
use crate::json::text::excerpt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockForm {
    /// `"name": {..}` in `Header`.
    Keyed,
    /// `{"type": "name", "content": {..}}` in `headerBlocks`.
    Listed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeaderBlock<'f> {
    pub name: &'f str,
    pub form: BlockForm,
    pub properties: &'f Map<String, Value>,
}

impl<'f> HeaderBlock<'f> {
    /// Views a MemoryGram, wrapped in `MemoryGram` (6.0) or not, as a block.
    pub(super) fn from_gram(gram: &'f Map<String, Value>) -> Self {
        Self { name: "memoryGrams", form: BlockForm::Keyed, properties: unwrap_gram(gram) }
    }

    /// The targeted role. Blocks without one are for the ultimate receiver (5.2.2, rule 3).
    pub fn role(&self, registry: &RoleRegistry) -> Role {
        match self.properties.get("role").and_then(Value::as_str) {
            Some(text) => registry.resolve_or_ultimate_receiver(text),
            None => Role::UltimateReceiver,
        }
    }

    /// 5.2.3; defaults to false.
    pub fn must_understand(&self) -> bool {
        self.properties.get("mustUnderstand").and_then(parse_boolean).unwrap_or(false)
    }

    /// Whether a target that does not process the block forwards it (5.2.4); defaults to false.
    pub fn is_relayable(&self) -> bool {
        self.properties.get("relay").and_then(parse_boolean).unwrap_or(false)
    }

    pub fn encoding_style(&self) -> Option<&'f str> {
        self.properties.get("encodingStyle").and_then(Value::as_str)
    }

    /// The object with the module's own fields: `content` of a listed block that has one, otherwise the block itself.
    pub fn content(&self) -> &'f Map<String, Value> {
        match (self.form, self.properties.get("content")) {
            (BlockForm::Listed, Some(Value::Object(content))) => content,
            _ => self.properties,
        }
    }
}

/// The inside of a gram that is wrapped in `MemoryGram` (6.0).
pub(super) fn unwrap_gram(gram: &Map<String, Value>) -> &Map<String, Value> {
    gram.get("MemoryGram").and_then(Value::as_object).unwrap_or(gram)
}

/// Whether a gram is encrypted, so that its graph cannot be read (1.4).
pub(super) fn is_gram_encrypted(gram: &Map<String, Value>) -> bool {
    gram.get("encryption").is_some_and(Value::is_object)
        && !gram.contains_key("nodes")
        && !gram.contains_key("MemoryGram")
}

/// 5.2.1, rule 1.
pub(super) fn check_block_name(name: &str, pointer: &str) -> Result<(), Box<Fault>> {
    if is_camel_case(name) {
        return Ok(());
    }
    let problem = format!("a header block's name must be in camelCase, found `{}`", excerpt(name));
    Fault::reject(rules::BLOCK_NAME, pointer, problem)
}

/// 5.2.1, rule 5. Properties of nested objects have no meaning (5.2.2, 5.2.4).
pub(super) fn check_core_properties(properties: &Map<String, Value>, pointer: &str) -> Result<(), Box<Fault>> {
    let is_boolean = |value: &Value| parse_boolean(value).is_some();
    type Check = fn(&Value) -> bool;
    let checks: [(&str, &str, &str, Check); 4] = [
        ("mustUnderstand", rules::MUST_UNDERSTAND_TYPE, "true or false", is_boolean),
        ("relay", rules::RELAY_TYPE, "true or false", is_boolean),
        ("role", rules::ROLE_TYPE, "a string", Value::is_string),
        ("encodingStyle", rules::ENCODING_STYLE_TYPE, "a string", Value::is_string),
    ];
    for (key, rule, wanted, is_valid) in checks {
        if properties.get(key).is_some_and(|value| !is_valid(value)) {
            let fault = Fault::sender(rule, format!("`{key}` must be {wanted}"));
            return Err(fault.at_pointer(&format!("{pointer}/{key}")));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/block.rs"]
mod tests;
