//! Whether a message is as it was sent (7.0 rule 3, 7.2 rule 1): Ed25519 over its canonical JSON (RFC 8785).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:signature`: a change to what is signed is seen by every node that has the key |
//! | node state | the keys that it trusts; whether it wants every message signed; the key that it signs again with |
//! | block | `signature: {role: "next", relay: true, algorithm: "Ed25519", keyId, signer: URI, created, sender?: URI, sent?: time, to?: URI, hops: {name: digest}, grams: [digest], value}` |
//! | processing | a node that is targeted makes the signing form of what it has and checks `value`; an intermediary puts the block in again; an active one that changed the message signs it anew, if it has a key and what came was signed: it vouches for its own changes and not for those of others, and says in `sender` and `sent` whose message it had, and of when. `to` is the `routing.to` of the message as it was signed; an ultimate receiver of another name refuses it |
//! | fault | `Receiver`, subcode `SecurityViolation.Signature`, and a person is asked to look: no signature where one must be, an unknown key, a message that is not what was signed, or one for another receiver |
//! | Body | covered whole; not processed unless the signature holds |
//! | other modules | says who the sender is: `sender`, which only one who may change messages may say of another, or else the signer. Acts after `authentication`, whose first credential must be that sender's; before `encryption`, for what is signed is what travels, sealed as it is |
//!
//! # The signing form
//!
//! The frame as it travels, in canonical form, less what nodes on the way may change by the rules of section 2.7:
//! the blocks `signature`, `authentication`, `ttl`, `routing`, `audit` and `applied`; blocks and grams for intermediaries (any role
//! but `ultimateReceiver` and `none`), which are taken out on the way; and the `detail` of a fault (5.4.5). An empty Header or list counts
//! as none. A role token that the spec does not have counts as `ultimateReceiver`, as at the end of the path (5.2.2). Of the blocks and grams for intermediaries, the signature has the SHA-256 of each: those that are still there must be as they
//! were, and grams must be among those. A block that was added may pass a node, but none acts on it (an `authorization` is signed by
//! itself), and at the end of the path it is taken out. The fields of `signature` itself, but `value`, its role and flags, are signed with the rest.
//!
//! Must not: say who may do what; that is `authorization`'s.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::block::HeaderBlock;
use super::super::canonical::{object_to_canonical_json, to_canonical_json};
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::process::{ProcessingContext, gram_as_block};
use super::super::role::{Role, RoleRegistry};
use super::block_fields::BlockFields;
use super::keys::{KeyPermission, KeyRing, SecretKey};
use super::{Module, ModuleDescriptor, ModuleStage};

/// The module.
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
/// Blocks that nodes on the way change.
const MUTABLE_BLOCKS: [&str; 6] = ["signature", "authentication", "ttl", "routing", "audit", "applied"];
/// Properties of the block that may be changed on the way, or are not part of what is signed.
const UNSIGNED_PROPERTIES: [&str; 4] = ["value", "role", "relay", "mustUnderstand"];

impl Signature {
    /// One that checks the signatures that are there.
    pub fn optional(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: false, resigning_key: None }
    }

    /// One that wants every message signed.
    pub fn required(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: true, resigning_key: None }
    }

    /// The same signing anew what an active intermediary changed.
    pub fn with_resigning_key(mut self, key: Arc<SecretKey>) -> Self {
        self.resigning_key = Some(key);
        self
    }
}

/// Whether whoever signs a message answers for that block, or for the Body: no node on the way may change it or put it in.
pub fn is_covered_by_signature(name: &str) -> bool {
    !MUTABLE_BLOCKS.contains(&name) && name != "authorization"
}

/// Signs a frame, in the place of whoever signed it before. It is for the receiver that its `routing` block names, if it has one.
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
        .filter(|gram| !is_for_end_of_path(&gram_as_block(gram)))
        .map(|gram| json!(object_digest(gram)))
        .collect();
    for (key, value) in [
        ("role", json!("next")),
        ("relay", json!(true)),
        ("algorithm", json!(ALGORITHM)),
        ("keyId", json!(key.id())),
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

/// What is signed: the canonical bytes of the frame's lasting parts and of the signature's own fields.
fn signing_form(frame: &Frame, signature: &Map<String, Value>) -> Vec<u8> {
    let mut lasting = frame.clone();
    for name in MUTABLE_BLOCKS {
        lasting.header.remove(name);
    }
    let gone: Vec<String> = blocks_for_intermediaries(&lasting).iter().map(|block| block.name.to_owned()).collect();
    for name in gone {
        lasting.header.remove(&name);
    }
    if let Some(Value::Object(fault)) = lasting.body.get_mut("fault") {
        fault.shift_remove("detail");
    }
    let grams: Vec<_> =
        frame.memory_grams_or_empty().iter().filter(|gram| is_for_end_of_path(&gram_as_block(gram))).cloned().collect();
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

/// Whether a block or gram goes on to the end of the path, whoever relays it: it is for the ultimate receiver, or for nobody.
fn is_for_end_of_path(block: &HeaderBlock<'_>) -> bool {
    let role = block.properties.get("role").and_then(Value::as_str).map(|role| RoleRegistry::default().resolve(role));
    matches!(role, None | Some(None | Some(Role::UltimateReceiver | Role::None)))
}

fn blocks_for_intermediaries(frame: &Frame) -> Vec<HeaderBlock<'_>> {
    let blocks = frame.header.blocks().into_iter();
    blocks.filter(|block| !MUTABLE_BLOCKS.contains(&block.name) && !is_for_end_of_path(block)).collect()
}

fn object_digest(object: &Map<String, Value>) -> String {
    Sha256::digest(object_to_canonical_json(object)).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn violation(problem: impl Into<String>) -> Box<Fault> {
    Fault::security_violation("Signature", problem).at_pointer("/frame/Header/signature").with_escalation()
}

impl Signature {
    fn verify(&self, work: &mut ProcessingContext<'_>, block: Map<String, Value>) -> Result<(), Box<Fault>> {
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
        let frame = work.original;
        let key = self.keys.verify(key_id, PURPOSE, &signing_form(frame, &block), value);
        let key = key.ok_or_else(|| violation("the message is not as it was signed, or by a key that is not known"))?;
        if key.agent() != signer {
            return Err(violation("the key is not the signer's"));
        }
        if let Some(to) = content.uri("to")?.filter(|to| !work.is_intermediary() && *to != work.node.uri()) {
            return Err(violation(format!("the message was signed for `{to}`, and this is `{}`", work.node.uri())));
        }
        for block in blocks_for_intermediaries(frame) {
            match hops.get(block.name).and_then(Value::as_str) {
                Some(signed) if signed != object_digest(block.properties) => {
                    return Err(violation(format!("the block `{}` is not as it was signed", block.name)));
                }
                Some(_) => {}
                None if block.name != "authorization" && work.will_process(block.name) => {
                    return Err(violation(format!(
                        "the block `{}` was added on the way and is not signed",
                        block.name
                    )));
                }
                None => {
                    work.notes.push(format!("the block `{}` was added on the way and is not signed", block.name));
                    if !work.is_intermediary() && block.name != "authorization" {
                        work.frame.header.remove(block.name);
                    }
                }
            }
        }
        let unsigned = |gram: &&Map<String, Value>| {
            !is_for_end_of_path(&gram_as_block(gram)) && !grams.contains(&object_digest(gram))
        };
        if frame.memory_grams_or_empty().iter().any(|gram| unsigned(&gram)) {
            return Err(violation("a MemoryGram was changed or added on the way"));
        }
        if work.sender.as_deref().is_some_and(|presented| presented != sender) {
            return Err(violation("the message is signed as another's than who presents themselves as its sender"));
        }
        if sender != signer && !key.has_permission(KeyPermission::ModifyMessages) {
            return Err(violation("the message is signed by another than its sender, who may not change it"));
        }
        work.sender = Some(sender.to_owned());
        work.sent_at = Some(work.sent_at.map_or(sent, |stamp| stamp.min(sent)));
        work.is_intact = true;
        work.audit_actions.push(format!("verified the signature of {signer}"));
        Ok(())
    }
}

impl Module for Signature {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        match work.targeted_block("signature") {
            Some(block) => self.verify(work, block),
            None if self.required => Err(violation("the message is not signed")),
            None => Ok(()),
        }
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("signature").is_some() { work.reinsert("signature", None) } else { Ok(()) }
    }

    fn finish(&self, work: &mut ProcessingContext<'_>, changed: bool) -> Result<(), Box<Fault>> {
        match &self.resigning_key {
            // What nobody signed is passed on as such: whoever stripped a signature must not be given another.
            Some(key) if changed && work.is_intact => {
                // Whose it was, and of when, stays.
                let block = work.targeted_block("signature").unwrap_or_default();
                let field = |keys: [&str; 2]| keys.iter().find_map(|key| block.get(*key)).cloned();
                let more = [
                    ("sender", field(["sender", "signer"])),
                    ("sent", field(["sent", "created"])),
                    ("to", field(["to"; 2])),
                ];
                let more = more.into_iter().filter_map(|(key, value)| Some((key, value?)));
                sign_with_fields(&mut work.frame, key, work.now, more)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
