//! Encryption of the Body or of MemoryGrams for one recipient (7.0 rule 3, 7.2 rule 1), with HPKE (RFC 9180) in base mode.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:encryption`: no node on the path reads or changes encrypted content |
//! | node state | the ultimate receiver's key pairs, by id |
//! | block | `encryption: {role: "ultimateReceiver", mustUnderstand: true, scheme, keyId, enc, encrypts: "Body"}` with the Body `{sealed: base64}`; a gram is `{id, encryption: {scheme, keyId, enc}, sealed: base64}` with its role and flags |
//! | processing | the ultimate receiver decrypts content for its own keys within its limits, for all grams together, and continues with the plaintext, a canonical JSON text. Message or gram id, key id and scheme are authenticated with it. Intermediaries forward it unchanged |
//! | fault | `Receiver`, subcode `SecurityViolation.Encryption`, escalated to a human: unknown scheme, Body for another key, or failed decryption |
//! | Body | replaced by its plaintext before validation; a node without this module refuses it, as the block is mandatory |
//! | other modules | acts after the modules that establish sender and integrity, as signatures cover the ciphertext: encrypt first, then sign; before `validation` |
//!
//! A gram for another key stays encrypted, which is a fault only if the gram is mandatory. Base mode does not authenticate the sender;
//! `signature` does. Must not: decrypt at an intermediary.

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

use super::super::block::{is_gram_encrypted, unwrap_gram};
use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::frame::{Frame, check_graph_totals};
use super::super::limits::{self, FrameLimits};
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::block_fields::BlockFields;

/// The only scheme: X25519, HKDF-SHA256, ChaCha20-Poly1305.
pub const SCHEME: &str = "hpke-x25519-hkdf-sha256-chacha20-poly1305";

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:encryption:1",
    features: &["urn:longshore:mesh:feature:encryption"],
    blocks: &["encryption"],
    stage: ModuleStage::Decryption,
};

type KeyExchange = X25519HkdfSha256;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncryptionError {
    #[error("the key `{0}` must be an X25519 key of 32 bytes in base64")]
    InvalidKey(String),
    #[error("encryption for the key `{0}` failed")]
    EncryptFailed(String),
    #[error("the content is already encrypted")]
    AlreadyEncrypted,
}

/// Public key to encrypt for.
#[derive(Clone)]
pub struct RecipientKey {
    id: String,
    key: <KeyExchange as Kem>::PublicKey,
}

/// Key pair to decrypt with.
#[derive(Clone)]
pub struct RecipientKeyPair {
    id: String,
    secret: <KeyExchange as Kem>::PrivateKey,
}

impl RecipientKey {
    /// Parses 32 bytes in base64.
    pub fn new(id: &str, public: &str) -> Result<Self, EncryptionError> {
        let bytes = BASE64.decode(public).ok();
        let key = bytes.and_then(|bytes| <KeyExchange as Kem>::PublicKey::from_bytes(&bytes).ok());
        let key = key.ok_or_else(|| EncryptionError::InvalidKey(id.to_owned()))?;
        Ok(Self { id: id.to_owned(), key })
    }

    pub fn to_base64(&self) -> String {
        BASE64.encode(self.key.to_bytes())
    }

    fn encrypt(&self, what: &str, associated_data: &Value, text: &[u8]) -> Result<(String, String), EncryptionError> {
        let (enc, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, KeyExchange>(
            &OpModeS::Base,
            &self.key,
            &hpke_info(what),
            text,
            &to_canonical_json(associated_data),
        )
        .map_err(|_| EncryptionError::EncryptFailed(self.id.clone()))?;
        Ok((BASE64.encode(enc.to_bytes()), BASE64.encode(sealed)))
    }
}

impl RecipientKeyPair {
    /// Derives a key pair from 32 random bytes.
    pub fn new(id: &str, secret: &[u8; 32]) -> Self {
        let (secret, _) = <KeyExchange as Kem>::derive_keypair(secret);
        Self { id: id.to_owned(), secret }
    }

    pub fn recipient_key(&self) -> RecipientKey {
        RecipientKey { id: self.id.clone(), key: <KeyExchange as Kem>::sk_to_pk(&self.secret) }
    }

    fn decrypt(&self, what: &str, associated_data: &Value, enc: &str, sealed: &str) -> Option<Vec<u8>> {
        let enc = <KeyExchange as Kem>::EncappedKey::from_bytes(&BASE64.decode(enc).ok()?).ok()?;
        let sealed = BASE64.decode(sealed).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, KeyExchange>(
            &OpModeR::Base,
            &self.secret,
            &enc,
            &hpke_info(what),
            &sealed,
            &to_canonical_json(associated_data),
        )
        .ok()
    }
}

impl std::fmt::Debug for RecipientKeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecipientKeyPair").field("id", &self.id).finish_non_exhaustive()
    }
}

fn hpke_info(what: &str) -> Vec<u8> {
    format!("longshore mesh 1 {what}").into_bytes()
}

fn associated_data(id: Option<&Value>, key_id: &str) -> Value {
    json!({"id": id, "keyId": key_id, "scheme": SCHEME})
}

/// Encrypts the Body of a frame for one recipient. Must precede signing.
pub fn encrypt_body(frame: &mut Frame, recipient: &RecipientKey) -> Result<(), EncryptionError> {
    if frame.header.block("encryption").is_some() {
        return Err(EncryptionError::AlreadyEncrypted);
    }
    let bound = associated_data(frame.header.get("messageId"), &recipient.id);
    let (enc, sealed) = recipient.encrypt("Body", &bound, &to_canonical_json(&frame.body))?;
    let block = json!({
        "role": "ultimateReceiver", "mustUnderstand": true,
        "scheme": SCHEME, "keyId": recipient.id, "enc": enc, "encrypts": "Body"
    });
    frame.header.set("encryption", block).map_err(|_| EncryptionError::EncryptFailed(recipient.id.clone()))?;
    frame.body = Map::from_iter([("sealed".to_owned(), json!(sealed))]);
    Ok(())
}

/// Encrypts a gram for one recipient. Id, role and flags stay in clear text.
pub fn encrypt_gram(
    gram: &Map<String, Value>,
    recipient: &RecipientKey,
) -> Result<Map<String, Value>, EncryptionError> {
    let inner = unwrap_gram(gram);
    if is_gram_encrypted(gram) {
        return Err(EncryptionError::AlreadyEncrypted);
    }
    let (enc, sealed) =
        recipient.encrypt("MemoryGram", &associated_data(inner.get("id"), &recipient.id), &to_canonical_json(inner))?;
    let mut outer = Map::new();
    for key in ["id", "role", "mustUnderstand", "relay"] {
        outer.extend(inner.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    outer.insert("encryption".to_owned(), json!({"scheme": SCHEME, "keyId": recipient.id, "enc": enc}));
    outer.insert("sealed".to_owned(), json!(sealed));
    Ok(outer)
}

/// Encrypts all clear-text MemoryGrams of a frame for one recipient. Must precede signing.
pub fn encrypt_grams(frame: &mut Frame, recipient: &RecipientKey) -> Result<(), EncryptionError> {
    for gram in frame.memory_grams.iter_mut().flatten().filter(|gram| !is_gram_encrypted(gram)) {
        *gram = encrypt_gram(gram, recipient)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Default)]
pub struct Encryption {
    keys: Arc<BTreeMap<String, RecipientKeyPair>>,
}

impl Encryption {
    pub fn with_keys(keys: impl IntoIterator<Item = RecipientKeyPair>) -> Self {
        Self { keys: Arc::new(keys.into_iter().map(|key| (key.id.clone(), key)).collect()) }
    }

    /// The node's key for an encrypted gram, with `enc` and ciphertext.
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

/// Parses a plaintext as an object within the node's limits.
fn parse_object(bytes: &[u8], limits: &FrameLimits, pointer: &str) -> Result<Map<String, Value>, Box<Fault>> {
    match limits::parse_json(bytes, limits)? {
        Value::Object(object) => Ok(object),
        _ => Err(violation(pointer, "the decrypted content is not an object")),
    }
}

impl Encryption {
    fn decrypt_body(&self, context: &mut ProcessingContext<'_>, block: Map<String, Value>) -> Result<(), Box<Fault>> {
        let pointer = "/frame/Header/encryption";
        let content = BlockFields::new("encryption", block);
        let scheme = content.require("scheme", content.text("scheme")?)?;
        let key_id = content.require("keyId", content.text("keyId")?)?;
        let enc = content.require("enc", content.text("enc")?)?;
        if scheme != SCHEME || content.text("encrypts")? != Some("Body") {
            return Err(violation(pointer, "the scheme is not known"));
        }
        let key = self.keys.get(key_id).ok_or_else(|| violation(pointer, "the Body is encrypted for another key"))?;
        let sealed = context.frame.body.get("sealed").and_then(Value::as_str).unwrap_or_default();
        let bound = associated_data(context.original.header.get("messageId"), key_id);
        let text = key
            .decrypt("Body", &bound, enc, sealed)
            .ok_or_else(|| violation("/frame/Body", "the Body cannot be decrypted"))?;
        context.frame.body = parse_object(&text, &context.node.limits, "/frame/Body")?;
        context.audit_actions.push("opened the Body".to_owned());
        Ok(())
    }

    fn decrypt_grams(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let limits = &context.node.limits;
        for (index, gram) in context.frame.memory_grams.iter_mut().flatten().enumerate() {
            let Some((key, enc, sealed)) = self.matching_key(gram) else { continue };
            let pointer = format!("/frame/MemoryGrams/{index}");
            let text = key.decrypt("MemoryGram", &associated_data(gram.get("id"), &key.id), enc, sealed);
            let text = text.ok_or_else(|| violation(&pointer, "the MemoryGram cannot be decrypted"))?;
            let mut inner = parse_object(&text, limits, &pointer)?;
            std::mem::swap(gram, &mut inner);
        }
        check_graph_totals(context.frame.memory_grams_or_empty(), limits)
    }
}

impl Module for Encryption {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if context.is_intermediary() {
            return Ok(());
        }
        if let Some(block) = context.targeted_block("encryption") {
            self.decrypt_body(context, block)?;
        }
        self.decrypt_grams(context)
    }

    fn can_decrypt(&self, gram: &Map<String, Value>) -> bool {
        self.matching_key(gram).is_some()
    }
}

#[cfg(test)]
#[path = "tests/encryption.rs"]
mod tests;
