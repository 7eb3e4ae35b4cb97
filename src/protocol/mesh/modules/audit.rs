//! Audit log: which nodes had a message, when, and what they did with it (7.0 rule 6, 7.2 rule 4).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:audit`: each hop adds an entry, and nobody can remove or change the entries of others |
//! | node state | the node's URI; whether it may process `audit` (7.2, rule 3); for signed entries, its key and the keys of others |
//! | block | `audit: {role: "next", entries: [{agentUri, timestamp, actions: [text], chain, keyId?, value?}]}` |
//! | processing | `chain` is the SHA-256 of the previous entry's `chain` and the entry's own fields in canonical form, and is verified. An intermediary adds an entry when it relays, the ultimate receiver when it is done. A node may be configured to start a log |
//! | fault | `Receiver`, subcode `SecurityViolation.Audit`, for a broken chain or a missing signature |
//! | Body | not read; not processed if the log was tampered with |
//! | other modules | acts last, and records what the security modules verified; `signature` does not cover `audit`, as every hop adds to it: entries are signed one by one |
//!
//! Without keys, the chain reveals accidental changes; with keys, any change. Truncation is only visible to a node that knows the hops.
//! Must not: record message content.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::canonical::{sha256_hex, to_canonical_json};
use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::block_fields::{BlockFields, set_block_field};
use super::signing::{MessageSigner, SignatureVerifier};

#[derive(Debug, Clone, Default)]
pub struct Audit {
    starts_log: bool,
    signer: Option<Arc<dyn MessageSigner>>,
    verifier: Option<Arc<dyn SignatureVerifier>>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:audit:1",
    features: &["urn:longshore:mesh:feature:audit"],
    blocks: &["audit"],
    stage: ModuleStage::Audit,
};

const PURPOSE: &str = "audit";

impl Audit {
    /// Starts a log if a message has none.
    pub fn starting_log() -> Self {
        Self { starts_log: true, ..Self::default() }
    }

    /// Signs the node's entries.
    pub fn with_signer(mut self, key: Arc<dyn MessageSigner>) -> Self {
        self.signer = Some(key);
        self
    }

    /// Requires every entry to be signed by its agent.
    pub fn with_verifier(mut self, keys: Arc<dyn SignatureVerifier>) -> Self {
        self.verifier = Some(keys);
        self
    }

    fn should_append(&self, context: &ProcessingContext<'_>) -> bool {
        let has_log = context.original.header.block("audit").is_some();
        context.is_authorized_for("audit")
            && if has_log { context.targeted_block("audit").is_some() } else { self.starts_log }
    }

    fn new_entry(&self, context: &ProcessingContext<'_>, changed: bool, previous: &str) -> Value {
        let mut actions = context.audit_actions.clone();
        actions.extend(
            context.processed_blocks.iter().filter(|name| *name != "audit").map(|name| format!("processed {name}")),
        );
        if changed {
            actions.push("changed the message".to_owned());
        }
        actions.push(if context.is_intermediary() { "relayed" } else { "received" }.to_owned());
        let mut entry =
            json!({"agentUri": context.node.uri(), "timestamp": context.now.to_string(), "actions": actions});
        let chain = chain_hash(previous, &entry);
        if let Some(key) = &self.signer {
            entry["keyId"] = json!(key.key_id());
            entry["value"] = json!(key.sign(PURPOSE, chain.as_bytes()));
        }
        entry["chain"] = json!(chain);
        entry
    }
}

/// Hash of the previous chain and the entry without its chain and signature.
fn chain_hash(previous: &str, entry: &Value) -> String {
    let mut fields = entry.as_object().cloned().unwrap_or_default();
    for key in ["chain", "keyId", "value"] {
        fields.shift_remove(key);
    }
    sha256_hex(to_canonical_json(&json!({"previous": previous, "entry": fields})))
}

fn violation(index: usize, problem: &str) -> Box<Fault> {
    Fault::security_violation("Audit", problem).at_pointer(&format!("/frame/Header/audit/entries/{index}"))
}

impl Module for Audit {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = context.targeted_block("audit").filter(|_| context.is_authorized_for("audit")) else {
            return Ok(());
        };
        let content = BlockFields::new("audit", block);
        let mut previous = String::new();
        for (index, entry) in content.objects("entries")?.unwrap_or_default().into_iter().enumerate() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str);
            let chain = chain_hash(&previous, &Value::Object(entry.clone()));
            if text("chain") != Some(&chain) {
                return Err(violation(index, "the chain of the log is broken"));
            }
            if let Some(verifier) = &self.verifier {
                let signed = text("keyId").zip(text("value"));
                let agent =
                    signed.and_then(|(key, value)| verifier.verify_signer(key, PURPOSE, chain.as_bytes(), value));
                if agent.is_none() || agent.as_deref() != text("agentUri") {
                    return Err(violation(index, "the entry is not signed by its agent"));
                }
            }
            previous = chain;
        }
        Ok(())
    }

    fn forward(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if context.targeted_block("audit").is_some() && context.is_authorized_for("audit") {
            context.reinsert("audit", None)
        } else {
            Ok(())
        }
    }

    fn finish(&self, context: &mut ProcessingContext<'_>, changed: bool) -> Result<(), Box<Fault>> {
        if !self.should_append(context) {
            return Ok(());
        }
        let block = context.frame.header.block("audit");
        let mut entries =
            block.and_then(|block| block.content().get("entries")?.as_array().cloned()).unwrap_or_default();
        let previous = entries.last().and_then(|entry| entry.get("chain")?.as_str()).unwrap_or_default().to_owned();
        entries.push(self.new_entry(context, changed, &previous));
        let mut properties = context.block_properties("audit");
        if properties.is_empty() {
            properties = Map::from_iter([("role".to_owned(), json!("next")), ("relay".to_owned(), json!(true))]);
        }
        set_block_field(&mut properties, "entries", Value::Array(entries));
        context.frame.header.set_block("audit", properties)
    }
}

#[cfg(test)]
#[path = "tests/audit.rs"]
mod tests;
