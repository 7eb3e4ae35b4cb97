//! What the sender promises of the Body, checked before it is processed (7.0, rule 5).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:content-rules`: a Body that is not what its sender says it is ends |
//! | node state | the schema versions that the node knows; any, if it names none |
//! | block | `validation: {schemaVersion?: "1.2.0", required?: [JSON Pointer], types?: {JSON Pointer: "object"}, maxBytes?: 1024}` |
//! | processing | the ultimate receiver looks at every place that `required` and `types` name, in the Body; types are those of JSON Schema |
//! | fault | `Sender`, subcode `BodySchema`, with the place |
//! | Body | not changed; the node's own schema is held, too, after this |
//! | other modules | acts after `encryption`, on what was opened; its promises count only as much as `signature` makes sure of them |
//!
//! Must not: trust the promise; it only ever refuses more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::canonical::object_to_canonical_json;
use super::super::fault::Fault;
use super::super::process::ProcessingContext;
use super::super::rules;
use super::block_fields::BlockFields;
use super::{Module, ModuleDescriptor, ModuleStage};
use crate::protocol::acp::fields::excerpt;

/// The module.
#[derive(Debug, Clone, Default)]
pub struct Validation {
    schema_versions: BTreeSet<String>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:validation:1",
    features: &["urn:longshore:mesh:feature:content-rules"],
    blocks: &["validation"],
    stage: ModuleStage::Content,
};

const JSON_TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

fn is_json_type(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    }
}

impl Validation {
    /// One that takes these versions of schemas alone.
    pub fn with_schema_versions<'v>(versions: impl IntoIterator<Item = &'v str>) -> Self {
        Self { schema_versions: versions.into_iter().map(str::to_owned).collect() }
    }
}

impl Module for Validation {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = work.targeted_block("validation").filter(|_| !work.is_intermediary()) else { return Ok(()) };
        let content = BlockFields::new("validation", block);
        let bad = |pointer: &str, problem: String| {
            Fault::sender(rules::BODY_SCHEMA, problem).at_pointer(&format!("/frame/Body{pointer}"))
        };
        if let Some(version) = content.text("schemaVersion")?
            && !self.schema_versions.is_empty()
            && !self.schema_versions.contains(version)
        {
            return Err(bad("", format!("the schema's version `{}` is not known", excerpt(version))));
        }
        let bytes = object_to_canonical_json(&work.frame.body).len();
        if let Some(most) = content.whole_number("maxBytes")?
            && u64::try_from(bytes).is_ok_and(|bytes| bytes > most)
        {
            return Err(bad("", format!("the Body has {bytes} bytes, and its sender promised {most}")));
        }
        let body = Value::Object(work.frame.body.clone());
        for pointer in content.texts("required")?.unwrap_or_default() {
            if body.pointer(&pointer).is_none() {
                return Err(bad(&pointer, "must be there".to_owned()));
            }
        }
        for (pointer, kind) in content.object("types")?.into_iter().flatten() {
            let kind = content.require("types", kind.as_str().filter(|kind| JSON_TYPES.contains(kind)))?;
            if body.pointer(pointer).is_some_and(|value| !is_json_type(value, kind)) {
                return Err(bad(pointer, format!("must be of type {kind}")));
            }
        }
        Ok(())
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("validation").is_some() { work.reinsert("validation", None) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_support::{
        expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, ultimate_receiver,
    };
    use super::*;

    fn body() -> Value {
        json!({"task": {"items": [{"quantity": 2}], "name": "é"}, "n": 1.5})
    }

    #[test]
    fn section_7_0_a_body_is_checked_against_its_sender_s_promises() {
        let cases = [
            (json!({"required": ["/task/items/0/quantity", "/n"]}), None),
            (json!({"required": ["/task/items/1"]}), Some("/frame/Body/task/items/1")),
            (
                json!({"types": {"/task": "object", "/task/items/0/quantity": "integer", "/n": "number", "/none": "null"}}),
                None,
            ),
            (json!({"types": {"/n": "integer"}}), Some("/frame/Body/n")),
            (json!({"types": {"/task/name": "array"}}), Some("/frame/Body/task/name")),
            (json!({"maxBytes": 10}), Some("/frame/Body")),
            (json!({"maxBytes": 100}), None),
            (json!({"schemaVersion": "1.2.0"}), None),
            (json!({"schemaVersion": "9"}), Some("/frame/Body")),
        ];
        for (block, refused) in cases {
            let sent = frame(json!({"Header": {"validation": block}, "Body": body()}));
            let node = ultimate_receiver().with_module(Validation::with_schema_versions(["1.2.0"]));
            match refused {
                None => assert_eq!(expect_processed(node, sent).processed_blocks, ["validation"], "{block}"),
                Some(pointer) => {
                    let fault = expect_fault(node, sent);
                    assert_eq!(fault.subcode.as_deref(), Some(rules::BODY_SCHEMA), "{block}");
                    assert_eq!(fault.pointer(), Some(pointer));
                }
            }
        }
        let anything = frame(json!({"Header": {"validation": {"schemaVersion": "9"}}, "Body": {}}));
        expect_processed(ultimate_receiver().with_module(Validation::default()), anything);
        let next = frame(json!({"Header": {"validation": {"role": "next", "required": ["/x"]}}, "Body": {}}));
        assert_eq!(
            expect_relayed(forwarding_intermediary().with_module(Validation::default()), next.clone()).frame,
            next
        );
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in
            [json!({"required": "/x"}), json!({"types": {"/x": "date"}}), json!({"types": []}), json!({"maxBytes": -1})]
        {
            let sent = frame(json!({"Header": {"validation": block}, "Body": {}}));
            let refused = expect_fault(ultimate_receiver().with_module(Validation::default()), sent);
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
    }
}
