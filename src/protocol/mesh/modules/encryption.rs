//! What only one recipient can read: the Body, or a MemoryGram (7.0 rule 3, 7.2 rule 1). HPKE (RFC 9180), base mode.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:encryption`: nobody on the way reads or changes what is sealed |
//! | node state | the ultimate receiver's key pairs, by id |
//! | block | `encryption: {role: "ultimateReceiver", mustUnderstand: true, scheme, keyId, enc, encrypts: "Body"}`, and the Body is `{sealed: base64}`; a gram is `{id, encryption: {scheme, keyId, enc}, sealed: base64}` with its role and flags |
//! | processing | the ultimate receiver opens what is for a key of its own, within the node's sizes (those of all grams together, too), and goes on with what was inside; intermediaries pass it on as it is. Sealed are canonical JSON texts; the message's or gram's id, the key's and the scheme are bound to them |
//! | fault | `Receiver`, subcode `SecurityViolation.Encryption`, and a person is asked to look: another scheme, a Body for another key, or one that does not open |
//! | Body | replaced by what was sealed, before it is validated and processed; a node without this module refuses it, for the block is mandatory |
//! | other modules | acts after those that say who sent the message and whether it is whole: what is signed is what travels, so seal first and sign then; before `validation` |
//!
//! A gram that is for another key stays sealed, and is no fault unless it is mandatory. Base mode says nothing of the sender: that is
//! for `signature`. Must not: open anything at an intermediary.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::super::canonical::{object_to_canonical_json, to_canonical_json};
use super::super::fault::Fault;
use super::super::frame::{Frame, check_graph_totals};
use super::super::limits::{self, FrameLimits};
use super::super::process::{ProcessingContext, is_gram_encrypted};
use super::block_fields::BlockFields;
use super::{Module, ModuleDescriptor, ModuleStage};

/// The one scheme: X25519, HKDF-SHA256, ChaCha20-Poly1305.
pub const SCHEME: &str = "hpke-x25519-hkdf-sha256-chacha20-poly1305";

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:encryption:1",
    features: &["urn:longshore:mesh:feature:encryption"],
    blocks: &["encryption"],
    stage: ModuleStage::Decryption,
};

type KeyExchange = X25519HkdfSha256;

/// Why something could not be sealed, or there is no such key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncryptionError {
    /// It is not a key.
    #[error("the key `{0}` must be 32 bytes in base64 that are an X25519 key")]
    InvalidKey(String),
    /// The library would not.
    #[error("the message could not be sealed for the key `{0}`")]
    EncryptFailed(String),
    /// It is sealed.
    #[error("it is sealed already")]
    AlreadyEncrypted,
}

/// The key that others seal by.
#[derive(Clone)]
pub struct RecipientKey {
    id: String,
    key: <KeyExchange as Kem>::PublicKey,
}

/// The key that its owner opens by.
#[derive(Clone)]
pub struct RecipientKeyPair {
    id: String,
    secret: <KeyExchange as Kem>::PrivateKey,
}

impl RecipientKey {
    /// A key from its 32 bytes in base64.
    pub fn new(id: &str, public: &str) -> Result<Self, EncryptionError> {
        let bytes = BASE64.decode(public).ok();
        let key = bytes.and_then(|bytes| <KeyExchange as Kem>::PublicKey::from_bytes(&bytes).ok());
        let key = key.ok_or_else(|| EncryptionError::InvalidKey(id.to_owned()))?;
        Ok(Self { id: id.to_owned(), key })
    }

    /// Its 32 bytes in base64.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.key.to_bytes())
    }

    fn encrypt(&self, what: &str, bound: &Value, text: &[u8]) -> Result<(String, String), EncryptionError> {
        let (enc, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, KeyExchange>(
            &OpModeS::Base,
            &self.key,
            &hpke_info(what),
            text,
            &to_canonical_json(bound),
        )
        .map_err(|_| EncryptionError::EncryptFailed(self.id.clone()))?;
        Ok((BASE64.encode(enc.to_bytes()), BASE64.encode(sealed)))
    }
}

impl RecipientKeyPair {
    /// A key pair from 32 secret bytes that nobody can guess.
    pub fn new(id: &str, secret: &[u8; 32]) -> Self {
        let (secret, _) = <KeyExchange as Kem>::derive_keypair(secret);
        Self { id: id.to_owned(), secret }
    }

    /// What others need to seal for it.
    pub fn recipient_key(&self) -> RecipientKey {
        RecipientKey { id: self.id.clone(), key: <KeyExchange as Kem>::sk_to_pk(&self.secret) }
    }

    fn decrypt(&self, what: &str, bound: &Value, enc: &str, sealed: &str) -> Option<Vec<u8>> {
        let enc = <KeyExchange as Kem>::EncappedKey::from_bytes(&BASE64.decode(enc).ok()?).ok()?;
        let sealed = BASE64.decode(sealed).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, KeyExchange>(
            &OpModeR::Base,
            &self.secret,
            &enc,
            &hpke_info(what),
            &sealed,
            &to_canonical_json(bound),
        )
        .ok()
    }
}

impl std::fmt::Debug for RecipientKeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("id", &self.id).finish_non_exhaustive()
    }
}

fn hpke_info(what: &str) -> Vec<u8> {
    format!("longshore mesh 1 {what}").into_bytes()
}

fn associated_data(id: Option<&Value>, key_id: &str) -> Value {
    json!({"id": id, "keyId": key_id, "scheme": SCHEME})
}

/// Seals the Body of a frame for one recipient. To be done before it is signed.
pub fn encrypt_body(frame: &mut Frame, recipient: &RecipientKey) -> Result<(), EncryptionError> {
    if frame.header.block("encryption").is_some() {
        return Err(EncryptionError::AlreadyEncrypted);
    }
    let bound = associated_data(frame.header.get("messageId"), &recipient.id);
    let (enc, sealed) = recipient.encrypt("Body", &bound, &object_to_canonical_json(&frame.body))?;
    let block = json!({
        "role": "ultimateReceiver", "mustUnderstand": true,
        "scheme": SCHEME, "keyId": recipient.id, "enc": enc, "encrypts": "Body"
    });
    frame.header.set("encryption", block).map_err(|_| EncryptionError::EncryptFailed(recipient.id.clone()))?;
    frame.body = Map::from_iter([("sealed".to_owned(), json!(sealed))]);
    Ok(())
}

/// Seals a gram for one recipient. Its id and, if it has them, its role and flags stay to be seen.
pub fn encrypt_gram(
    gram: &Map<String, Value>,
    recipient: &RecipientKey,
) -> Result<Map<String, Value>, EncryptionError> {
    let inner = gram.get("MemoryGram").and_then(Value::as_object).unwrap_or(gram);
    if is_gram_encrypted(gram) {
        return Err(EncryptionError::AlreadyEncrypted);
    }
    let (enc, sealed) = recipient.encrypt(
        "MemoryGram",
        &associated_data(inner.get("id"), &recipient.id),
        &object_to_canonical_json(inner),
    )?;
    let mut outer = Map::new();
    for key in ["id", "role", "mustUnderstand", "relay"] {
        outer.extend(inner.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    outer.insert("encryption".to_owned(), json!({"scheme": SCHEME, "keyId": recipient.id, "enc": enc}));
    outer.insert("sealed".to_owned(), json!(sealed));
    Ok(outer)
}

/// Seals all MemoryGrams of a frame for one recipient, but those that are sealed already. To be done before it is signed.
pub fn encrypt_grams(frame: &mut Frame, recipient: &RecipientKey) -> Result<(), EncryptionError> {
    for gram in frame.memory_grams.iter_mut().flatten().filter(|gram| !is_gram_encrypted(gram)) {
        *gram = encrypt_gram(gram, recipient)?;
    }
    Ok(())
}

/// The module.
#[derive(Debug, Clone, Default)]
pub struct Encryption {
    keys: Arc<BTreeMap<String, RecipientKeyPair>>,
}

impl Encryption {
    /// One that opens by these keys.
    pub fn with_keys(keys: impl IntoIterator<Item = RecipientKeyPair>) -> Self {
        Self { keys: Arc::new(keys.into_iter().map(|key| (key.id.clone(), key)).collect()) }
    }

    /// The key that a gram is sealed for, if it is of this node, and what it is sealed with.
    fn matching_key<'g>(&self, gram: &'g Map<String, Value>) -> Option<(&RecipientKeyPair, &'g str, &'g str)> {
        let encryption = gram.get("encryption")?;
        let text = |key: &str| encryption.get(key).and_then(Value::as_str);
        let sealed = gram.get("sealed").and_then(Value::as_str)?;
        let key = self.keys.get(text("keyId")?).filter(|_| text("scheme") == Some(SCHEME))?;
        Some((key, text("enc")?, sealed))
    }
}

fn violation(pointer: &str, problem: &str) -> Box<Fault> {
    Fault::security_violation("Encryption", problem).at_pointer(pointer).with_escalation()
}

/// What was sealed: an object within the node's sizes.
fn parse_object(bytes: &[u8], limits: &FrameLimits, pointer: &str) -> Result<Map<String, Value>, Box<Fault>> {
    match limits::parse_json(bytes, limits)? {
        Value::Object(object) => Ok(object),
        _ => Err(violation(pointer, "what was sealed is not an object")),
    }
}

impl Encryption {
    fn decrypt_body(&self, work: &mut ProcessingContext<'_>, block: Map<String, Value>) -> Result<(), Box<Fault>> {
        let pointer = "/frame/Header/encryption";
        let content = BlockFields::new("encryption", block);
        let scheme = content.require("scheme", content.text("scheme")?)?;
        let key_id = content.require("keyId", content.text("keyId")?)?;
        let enc = content.require("enc", content.text("enc")?)?;
        if scheme != SCHEME || content.text("encrypts")? != Some("Body") {
            return Err(violation(pointer, "the scheme is not known"));
        }
        let key = self.keys.get(key_id).ok_or_else(|| violation(pointer, "the Body is sealed for another key"))?;
        let sealed = work.frame.body.get("sealed").and_then(Value::as_str).unwrap_or_default();
        let bound = associated_data(work.original.header.get("messageId"), key_id);
        let text = key
            .decrypt("Body", &bound, enc, sealed)
            .ok_or_else(|| violation("/frame/Body", "the Body does not open"))?;
        work.frame.body = parse_object(&text, &work.node.limits, "/frame/Body")?;
        work.audit_actions.push("opened the Body".to_owned());
        Ok(())
    }

    fn decrypt_grams(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let limits = &work.node.limits;
        for (place, gram) in work.frame.memory_grams.iter_mut().flatten().enumerate() {
            let Some((key, enc, sealed)) = self.matching_key(gram) else { continue };
            let pointer = format!("/frame/MemoryGrams/{place}");
            let text = key.decrypt("MemoryGram", &associated_data(gram.get("id"), &key.id), enc, sealed);
            let text = text.ok_or_else(|| violation(&pointer, "the MemoryGram does not open"))?;
            let mut inner = parse_object(&text, limits, &pointer)?;
            std::mem::swap(gram, &mut inner);
        }
        check_graph_totals(work.frame.memory_grams_or_empty(), limits)
    }
}

impl Module for Encryption {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.is_intermediary() {
            return Ok(());
        }
        if let Some(block) = work.targeted_block("encryption") {
            self.decrypt_body(work, block)?;
        }
        self.decrypt_grams(work)
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("encryption").is_some() { work.reinsert("encryption", None) } else { Ok(()) }
    }

    fn can_decrypt(&self, gram: &Map<String, Value>) -> bool {
        self.matching_key(gram).is_some()
    }
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
