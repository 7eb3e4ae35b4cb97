//! Message integrity (7.0 rule 3, 7.2 rule 1): Ed25519 signatures over canonical JSON (RFC 8785).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:signature`: every node with the key detects changes to signed content |
//! | node state | trusted keys; whether every message must be signed; the key for signing again |
//! | block | `signature: {role: "next", relay: true, algorithm: "Ed25519", keyId, signer: URI, created, sender?: URI, sent?: time, to?: URI, hops: {name: digest}, grams: [digest], value}` |
//! | processing | a targeted node verifies `value` over the signing form; an intermediary reinserts the block. An active intermediary with a key signs again what it changed, if the received message was signed: it answers for its own changes only, and names the original sender and time in `sender` and `sent`. `to` is `routing.to` at signing; an ultimate receiver with another name refuses the message |
//! | fault | `Receiver`, subcode `SecurityViolation.Signature`, escalated to a human: missing signature, unknown key, changed message, or another receiver |
//! | Body | covered completely; not processed unless the signature is valid |
//! | other modules | establishes the sender: `sender`, which only a key with [`KeyPermission::ModifyMessages`] may set to another agent, or else the signer. Acts after `authentication`, whose first credential must be that sender's, and before `encryption`, as the ciphertext is signed |
//!
//! # The signing form
//!
//! The canonical form of the frame without what nodes on the path may change by section 2.7: the blocks `signature`, `authentication`,
//! `ttl`, `routing`, `audit` and `applied`; blocks and grams for intermediaries (any known role but `ultimateReceiver` and `none`), which
//! are removed on the path; and the `detail` of a fault (5.4.5). An empty Header or list counts as absent. Unknown role tokens count as
//! `ultimateReceiver` (5.2.2). For blocks and grams of intermediaries the signature lists SHA-256 digests: those still present must match,
//! and no gram may be added. An added block may pass a node but is not processed (an `authorization` has its own signature), and is
//! removed at the end of the path. The block's own fields are signed too, except `value`, role and flags.
//!
//! Must not: decide on permissions; that is up to `authorization`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::block::HeaderBlock;
use super::super::canonical::{sha256_hex, to_canonical_json};
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::super::role::{Role, RoleRegistry};
use super::block_fields::BlockFields;
use super::keys::{KeyPermission, KeyRing, SecretKey};
use super::signing::MessageSigner;

#[derive(Debug, Clone)]
pub struct Signature {
    keys: Arc<KeyRing>,
    required: bool,
    resigning_key: Option<Arc<SecretKey>>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:signature:1",
    features: &["urn:longshore:mesh:feature:signature"],
    blocks: &["signature"],
    stage: ModuleStage::Integrity,
};

const PURPOSE: &str = "frame";
const ALGORITHM: &str = "Ed25519";
/// Blocks that nodes on the path may change.
const MUTABLE_BLOCKS: [&str; 6] = ["signature", "authentication", "ttl", "routing", "audit", "applied"];
/// Properties of the signature block that are not signed.
const UNSIGNED_PROPERTIES: [&str; 4] = ["value", "role", "relay", "mustUnderstand"];

impl Signature {
    /// Checks signatures if present.
    pub fn optional(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: false, resigning_key: None }
    }

    /// Requires signatures.
    pub fn required(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: true, resigning_key: None }
    }

    /// Signs again what an active intermediary changed.
    pub fn with_resigning_key(mut self, key: Arc<SecretKey>) -> Self {
        self.resigning_key = Some(key);
        self
    }
}

/// Whether signatures cover a block, or the Body: no node on the path may change or add it.
pub fn is_covered_by_signature(name: &str) -> bool {
    !MUTABLE_BLOCKS.contains(&name) && name != "authorization"
}

/// Signs a frame for the receiver in its `routing` block, if any, and replaces an existing signature.
pub fn sign(frame: &mut Frame, key: &SecretKey, now: Timestamp) -> Result<(), Box<Fault>> {
    let to = frame.header.block("routing").and_then(|block| block.content().get("to").cloned());
    sign_with_fields(frame, key, now, to.map(|to| ("to", to)))
}

fn sign_with_fields(
    frame: &mut Frame,
    key: &SecretKey,
    now: Timestamp,
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> Result<(), Box<Fault>> {
    frame.header.remove("signature");
    let mut block = Map::new();
    let hops = |block: &HeaderBlock<'_>| (block.name.to_owned(), json!(object_digest(block.properties)));
    let hops: Map<String, Value> = blocks_for_intermediaries(frame).iter().map(hops).collect();
    let grams: Vec<Value> = frame
        .memory_grams_or_empty()
        .iter()
        .filter(|gram| !is_for_end_of_path(&HeaderBlock::from_gram(gram)))
        .map(|gram| json!(object_digest(gram)))
        .collect();
    for (key, value) in [
        ("role", json!("next")),
        ("relay", json!(true)),
        ("algorithm", json!(ALGORITHM)),
        ("keyId", json!(key.key_id())),
        ("signer", json!(key.agent())),
        ("created", json!(now.to_string())),
        ("hops", Value::Object(hops)),
        ("grams", Value::Array(grams)),
    ] {
        block.insert(key.to_owned(), value);
    }
    block.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let value = key.sign(PURPOSE, &signing_form(frame, &block));
    block.insert("value".to_owned(), json!(value));
    frame.header.set_block("signature", block)
}

/// Canonical bytes of the frame's immutable parts and the signature's own fields.
fn signing_form(frame: &Frame, signature: &Map<String, Value>) -> Vec<u8> {
    let mut lasting = frame.clone();
    for name in MUTABLE_BLOCKS {
        lasting.header.remove(name);
    }
    for block in blocks_for_intermediaries(frame) {
        lasting.header.remove(block.name);
    }
    lasting.remove_fault_detail();
    let grams: Vec<_> = frame
        .memory_grams_or_empty()
        .iter()
        .filter(|gram| is_for_end_of_path(&HeaderBlock::from_gram(gram)))
        .cloned()
        .collect();
    lasting.memory_grams = (!grams.is_empty()).then_some(grams);
    let mut form = lasting.to_json();
    if let Some(Value::Object(frame)) = form.get_mut("frame") {
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        if let Some(Value::Object(header)) = frame.get_mut("Header")
            && header.get("headerBlocks").and_then(Value::as_array).is_some_and(Vec::is_empty)
        {
            header.shift_remove("headerBlocks");
        }
        if frame.get("Header").is_some_and(is_empty) {
            frame.shift_remove("Header");
        }
    }
    let own: Map<String, Value> = signature
        .iter()
        .filter(|(key, _)| !UNSIGNED_PROPERTIES.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    form["signature"] = Value::Object(own);
    to_canonical_json(&form)
}

/// Whether a block or gram reaches the end of the path: its role is the ultimate receiver or `none`.
fn is_for_end_of_path(block: &HeaderBlock<'_>) -> bool {
    let role = block.properties.get("role").and_then(Value::as_str).map(|role| RoleRegistry::default().resolve(role));
    matches!(role, None | Some(None | Some(Role::UltimateReceiver | Role::None)))
}

fn blocks_for_intermediaries(frame: &Frame) -> Vec<HeaderBlock<'_>> {
    let blocks = frame.header.blocks().into_iter();
    blocks.filter(|block| !MUTABLE_BLOCKS.contains(&block.name) && !is_for_end_of_path(block)).collect()
}

fn object_digest(object: &Map<String, Value>) -> String {
    sha256_hex(to_canonical_json(object))
}

/// Note or fault for a block without a digest in the signature.
fn unsigned_block_note(name: &str) -> String {
    format!("the block `{name}` was added after signing")
}

fn violation(problem: impl Into<String>) -> Box<Fault> {
    Fault::security_violation("Signature", problem).at_pointer("/frame/Header/signature").with_escalation()
}

impl Signature {
    fn verify(&self, context: &mut ProcessingContext<'_>, block: Map<String, Value>) -> Result<(), Box<Fault>> {
        let content = BlockFields::new("signature", block.clone());
        let algorithm = content.require("algorithm", content.text("algorithm")?)?;
        if algorithm != ALGORITHM {
            return Err(violation("the algorithm is not known"));
        }
        let key_id = content.require("keyId", content.text("keyId")?)?;
        let signer = content.require("signer", content.uri("signer")?)?;
        let created = content.require("created", content.timestamp("created")?)?;
        let sender = content.uri("sender")?.unwrap_or(signer);
        let sent = content.timestamp("sent")?.unwrap_or(created);
        let value = content.require("value", content.text("value")?)?;
        let hops = content.object("hops")?.cloned().unwrap_or_default();
        let grams = content.texts("grams")?.unwrap_or_default();
        let frame = context.original;
        let key = self.keys.verify(key_id, PURPOSE, &signing_form(frame, &block), value);
        let key = key.ok_or_else(|| violation("the signature is invalid or by an unknown key"))?;
        if key.agent() != signer {
            return Err(violation("the key does not belong to the signer"));
        }
        if let Some(to) = content.uri("to")?.filter(|to| !context.is_intermediary() && *to != context.node.uri()) {
            return Err(violation(format!("the message was signed for `{to}`, this node is `{}`", context.node.uri())));
        }
        for block in blocks_for_intermediaries(frame) {
            match hops.get(block.name).and_then(Value::as_str) {
                Some(signed) if signed != object_digest(block.properties) => {
                    return Err(violation(format!("the block `{}` was changed after signing", block.name)));
                }
                Some(_) => {}
                None if block.name != "authorization" && context.will_process(block.name) => {
                    return Err(violation(unsigned_block_note(block.name)));
                }
                None => {
                    context.record.notes.push(unsigned_block_note(block.name));
                    if !context.is_intermediary() && block.name != "authorization" {
                        context.frame.header.remove(block.name);
                    }
                }
            }
        }
        let unsigned = |gram: &&Map<String, Value>| {
            !is_for_end_of_path(&HeaderBlock::from_gram(gram)) && !grams.contains(&object_digest(gram))
        };
        if frame.memory_grams_or_empty().iter().any(|gram| unsigned(&gram)) {
            return Err(violation("a MemoryGram was changed or added after signing"));
        }
        if context.record.sender.as_deref().is_some_and(|presented| presented != sender) {
            return Err(violation("the signature is for another sender than the credential"));
        }
        if sender != signer && !key.has_permission(KeyPermission::ModifyMessages) {
            return Err(violation("the signer may not change messages of another sender"));
        }
        context.record.sender = Some(sender.to_owned());
        context.sent_at = Some(context.sent_at.map_or(sent, |stamp| stamp.min(sent)));
        context.is_intact = true;
        context.audit_actions.push(format!("verified the signature of {signer}"));
        Ok(())
    }
}

impl Module for Signature {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        match context.targeted_block("signature") {
            Some(block) => self.verify(context, block),
            None if self.required => Err(violation("the message is not signed")),
            None => Ok(()),
        }
    }

    fn finish(&self, context: &mut ProcessingContext<'_>, changed: bool) -> Result<(), Box<Fault>> {
        match &self.resigning_key {
            // An unsigned message stays unsigned: a stripped signature must not be replaced.
            Some(key) if changed && context.is_intact => {
                // The original sender and time stay.
                let block = context.targeted_block("signature").unwrap_or_default();
                let field = |keys: [&str; 2]| keys.iter().find_map(|key| block.get(*key)).cloned();
                let more = [
                    ("sender", field(["sender", "signer"])),
                    ("sent", field(["sent", "created"])),
                    ("to", field(["to"; 2])),
                ];
                let more = more.into_iter().filter_map(|(key, value)| Some((key, value?)));
                sign_with_fields(&mut context.frame, key, context.now, more)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "tests/signature.rs"]
mod tests;
