//! Checks of the Body against rules that its sender declares (7.0, rule 5).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:content-rules`: a Body that breaks its sender's declaration is refused |
//! | node state | known schema versions; any version if there are none |
//! | block | `validation: {schemaVersion?: "1.2.0", required?: [JSON Pointer], types?: {JSON Pointer: "object"}, maxBytes?: 1024}` |
//! | processing | the ultimate receiver checks every location in `required` and `types`; types are those of JSON Schema |
//! | fault | `Sender`, subcode `BodySchema`, with the location |
//! | Body | not changed; the node's own schema applies afterwards |
//! | other modules | acts after `encryption`, on the plaintext; the declaration is trustworthy only if `signature` covers it |
//!
//! Must not: accept more because of a declaration.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::super::rules;
use super::block_fields::BlockFields;
use crate::json::text::excerpt;

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
    /// Accepts only these schema versions.
    pub fn with_schema_versions<'v>(versions: impl IntoIterator<Item = &'v str>) -> Self {
        Self { schema_versions: versions.into_iter().map(str::to_owned).collect() }
    }
}

impl Module for Validation {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = context.targeted_block("validation").filter(|_| !context.is_intermediary()) else {
            return Ok(());
        };
        let content = BlockFields::new("validation", block);
        let bad = |pointer: &str, problem: String| {
            Fault::sender(rules::BODY_SCHEMA, problem).at_pointer(&format!("/frame/Body{pointer}"))
        };
        if let Some(version) = content.text("schemaVersion")?
            && !self.schema_versions.is_empty()
            && !self.schema_versions.contains(version)
        {
            return Err(bad("", format!("the schema version `{}` is not known", excerpt(version))));
        }
        let bytes = to_canonical_json(&context.frame.body).len();
        if let Some(most) = content.whole_number("maxBytes")?
            && u64::try_from(bytes).is_ok_and(|bytes| bytes > most)
        {
            return Err(bad("", format!("the Body has {bytes} bytes, more than the declared {most}")));
        }
        let body = Value::Object(context.frame.body.clone());
        for pointer in content.texts("required")?.unwrap_or_default() {
            if body.pointer(&pointer).is_none() {
                return Err(bad(&pointer, "is missing".to_owned()));
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
}

#[cfg(test)]
#[path = "tests/validation.rs"]
mod tests;
