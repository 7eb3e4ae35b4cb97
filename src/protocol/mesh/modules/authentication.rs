//! Authentication of the sender and of the intermediaries (7.0 rule 1, 7.2 rule 2), by signed credentials.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:authentication`: the sender, and each intermediary with a credential, is who it claims to be |
//! | node state | trusted keys; whether every message needs a credential; the node's own key |
//! | block | `authentication: {role: "next", relay: true, credentials: [{agent: URI, keyId, nonce, created, value}]}`, the sender's first |
//! | processing | each credential must be signed with its agent's key, over the message id and the previous credential; an intermediary with a key adds its own |
//! | fault | `Receiver`, subcode `SecurityViolation.Authentication`, escalated to a human |
//! | Body | not read; not processed if a credential is invalid. Credentials do not cover the Body: `signature` does |
//! | other modules | the first security module: `signature` compares its signer with the sender, `freshness` uses nonce and time, `authorization` the sender; `signature` does not cover `authentication`, as hops add to it |
//!
//! Must not: generate random nonces. A sender supplies one; an intermediary derives its own from the previous credential.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::canonical::{sha256_hex, to_canonical_json};
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::block_fields::{BlockFields, set_block_field};
use super::keys::{KeyRing, SecretKey};
use super::signing::MessageSigner;

#[derive(Debug, Clone)]
pub struct Authentication {
    keys: Arc<KeyRing>,
    required: bool,
    credential_key: Option<Arc<SecretKey>>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:authentication:1",
    features: &["urn:longshore:mesh:feature:authentication"],
    blocks: &["authentication"],
    stage: ModuleStage::Identity,
};

const PURPOSE: &str = "credential";

impl Authentication {
    /// Checks credentials if present.
    pub fn optional(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: false, credential_key: None }
    }

    /// Requires credentials.
    pub fn required(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: true, credential_key: None }
    }

    /// Adds a credential of this key when relaying.
    pub fn with_credential_key(mut self, key: Arc<SecretKey>) -> Self {
        self.credential_key = Some(key);
        self
    }
}

/// Adds the sender's credential. The nonce must be unique.
pub fn authenticate(frame: &mut Frame, key: &SecretKey, nonce: &str, now: Timestamp) -> Result<(), Box<Fault>> {
    let credential = new_credential(frame, key, nonce, now, "");
    let block = json!({"role": "next", "relay": true, "credentials": [credential]});
    frame.header.set("authentication", block)
}

fn new_credential(frame: &Frame, key: &SecretKey, nonce: &str, now: Timestamp, previous: &str) -> Value {
    let mut credential =
        json!({"agent": key.agent(), "keyId": key.key_id(), "nonce": nonce, "created": now.to_string()});
    let value = key.sign(PURPOSE, &signed_bytes(frame, &credential, previous));
    credential["value"] = json!(value);
    credential
}

/// A credential covers its own fields, the message id and the previous credential.
fn signed_bytes(frame: &Frame, credential: &Value, previous: &str) -> Vec<u8> {
    let mut fields = credential.as_object().cloned().unwrap_or_default();
    fields.shift_remove("value");
    to_canonical_json(&json!({"credential": fields, "messageId": frame.header.message_id(), "previous": previous}))
}

fn violation(problem: &str) -> Box<Fault> {
    Fault::security_violation("Authentication", problem).at_pointer("/frame/Header/authentication").with_escalation()
}

impl Authentication {
    fn verify_credentials(
        &self,
        context: &mut ProcessingContext<'_>,
        block: Map<String, Value>,
    ) -> Result<(), Box<Fault>> {
        let content = BlockFields::new("authentication", block);
        let credentials = content.require("credentials", content.objects("credentials")?)?;
        let mut previous = String::new();
        for (index, fields) in credentials.iter().enumerate() {
            let credential = BlockFields::new("authentication", (*fields).clone());
            let agent = credential.require("agent", credential.uri("agent")?)?;
            let key_id = credential.require("keyId", credential.text("keyId")?)?;
            let nonce = credential.require("nonce", credential.text("nonce")?.filter(|nonce| !nonce.is_empty()))?;
            let created = credential.require("created", credential.timestamp("created")?)?;
            let value = credential.require("value", credential.text("value")?)?;
            let bytes = signed_bytes(context.original, &Value::Object((*fields).clone()), &previous);
            let key = self.keys.verify(key_id, PURPOSE, &bytes, value);
            if key.is_none_or(|key| key.agent() != agent) {
                return Err(violation("a credential is not signed by its agent for this message"));
            }
            if index == 0 {
                context.record.sender = Some(agent.to_owned());
                context.nonces.push(nonce.to_owned());
                context.sent_at = Some(created);
            }
            previous = value.to_owned();
        }
        let Some(sender) = &context.record.sender else { return Err(violation("the message has no credential")) };
        context.audit_actions.push(format!("authenticated {sender}"));
        Ok(())
    }
}

impl Module for Authentication {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        match context.targeted_block("authentication") {
            Some(block) => self.verify_credentials(context, block),
            None if self.required => Err(violation("the message has no sender")),
            None => Ok(()),
        }
    }

    fn forward(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = context.targeted_block("authentication") else { return Ok(()) };
        let Some(key) = &self.credential_key else { return context.reinsert("authentication", None) };
        let mut credentials = block.get("credentials").and_then(Value::as_array).cloned().unwrap_or_default();
        let previous = credentials.last().and_then(|last| last.get("value")?.as_str()).unwrap_or_default();
        let nonce = &sha256_hex(previous)[..32];
        credentials.push(new_credential(context.original, key, nonce, context.now, previous));
        let mut properties = context.block_properties("authentication");
        set_block_field(&mut properties, "credentials", Value::Array(credentials));
        context.reinsert("authentication", Some(properties))
    }
}

#[cfg(test)]
#[path = "tests/authentication.rs"]
mod tests;
