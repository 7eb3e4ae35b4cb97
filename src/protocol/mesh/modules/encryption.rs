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

use super::super::canonical::{canonical, canonical_object};
use super::super::fault::Fault;
use super::super::frame::{Frame, check_totals};
use super::super::limits::{self, Limits};
use super::super::process::{Work, is_sealed};
use super::content::Content;
use super::{About, Module, Stage};

/// The one scheme: X25519, HKDF-SHA256, ChaCha20-Poly1305.
pub const SCHEME: &str = "hpke-x25519-hkdf-sha256-chacha20-poly1305";

const ABOUT: About = About {
    uri: "urn:longshore:mesh:module:encryption:1",
    features: &["urn:longshore:mesh:feature:encryption"],
    blocks: &["encryption"],
    stage: Stage::Opening,
};

type Curve = X25519HkdfSha256;

/// Why something could not be sealed, or there is no such key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncryptionError {
    /// It is not a key.
    #[error("the key `{0}` must be 32 bytes in base64 that are an X25519 key")]
    Key(String),
    /// The library would not.
    #[error("the message could not be sealed for the key `{0}`")]
    Seal(String),
    /// It is sealed.
    #[error("it is sealed already")]
    Sealed,
}

/// The key that others seal by.
#[derive(Clone)]
pub struct Recipient {
    id: String,
    key: <Curve as Kem>::PublicKey,
}

/// The key that its owner opens by.
#[derive(Clone)]
pub struct KeyPair {
    id: String,
    secret: <Curve as Kem>::PrivateKey,
}

impl Recipient {
    /// A key from its 32 bytes in base64.
    pub fn new(id: &str, public: &str) -> Result<Self, EncryptionError> {
        let bytes = BASE64.decode(public).ok();
        let key = bytes.and_then(|bytes| <Curve as Kem>::PublicKey::from_bytes(&bytes).ok());
        let key = key.ok_or_else(|| EncryptionError::Key(id.to_owned()))?;
        Ok(Self { id: id.to_owned(), key })
    }

    /// Its 32 bytes in base64.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.key.to_bytes())
    }

    fn seal(&self, what: &str, bound: &Value, text: &[u8]) -> Result<(String, String), EncryptionError> {
        let (enc, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Curve>(
            &OpModeS::Base,
            &self.key,
            &info(what),
            text,
            &canonical(bound),
        )
        .map_err(|_| EncryptionError::Seal(self.id.clone()))?;
        Ok((BASE64.encode(enc.to_bytes()), BASE64.encode(sealed)))
    }
}

impl KeyPair {
    /// A key pair from 32 secret bytes that nobody can guess.
    pub fn new(id: &str, secret: &[u8; 32]) -> Self {
        let (secret, _) = <Curve as Kem>::derive_keypair(secret);
        Self { id: id.to_owned(), secret }
    }

    /// What others need to seal for it.
    pub fn recipient(&self) -> Recipient {
        Recipient { id: self.id.clone(), key: <Curve as Kem>::sk_to_pk(&self.secret) }
    }

    fn open(&self, what: &str, bound: &Value, enc: &str, sealed: &str) -> Option<Vec<u8>> {
        let enc = <Curve as Kem>::EncappedKey::from_bytes(&BASE64.decode(enc).ok()?).ok()?;
        let sealed = BASE64.decode(sealed).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Curve>(
            &OpModeR::Base,
            &self.secret,
            &enc,
            &info(what),
            &sealed,
            &canonical(bound),
        )
        .ok()
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("id", &self.id).finish_non_exhaustive()
    }
}

fn info(what: &str) -> Vec<u8> {
    format!("longshore mesh 1 {what}").into_bytes()
}

fn bound(id: Option<&Value>, key_id: &str) -> Value {
    json!({"id": id, "keyId": key_id, "scheme": SCHEME})
}

/// Seals the Body of a frame for one recipient. To be done before it is signed.
pub fn seal_body(frame: &mut Frame, recipient: &Recipient) -> Result<(), EncryptionError> {
    if frame.header.block("encryption").is_some() {
        return Err(EncryptionError::Sealed);
    }
    let bound = bound(frame.header.get("messageId"), &recipient.id);
    let (enc, sealed) = recipient.seal("Body", &bound, &canonical_object(&frame.body))?;
    let block = json!({
        "role": "ultimateReceiver", "mustUnderstand": true,
        "scheme": SCHEME, "keyId": recipient.id, "enc": enc, "encrypts": "Body"
    });
    frame.header.set("encryption", block).map_err(|_| EncryptionError::Seal(recipient.id.clone()))?;
    frame.body = Map::from_iter([("sealed".to_owned(), json!(sealed))]);
    Ok(())
}

/// Seals a gram for one recipient. Its id and, if it has them, its role and flags stay to be seen.
pub fn seal_gram(gram: &Map<String, Value>, recipient: &Recipient) -> Result<Map<String, Value>, EncryptionError> {
    let inner = gram.get("MemoryGram").and_then(Value::as_object).unwrap_or(gram);
    if is_sealed(gram) {
        return Err(EncryptionError::Sealed);
    }
    let (enc, sealed) =
        recipient.seal("MemoryGram", &bound(inner.get("id"), &recipient.id), &canonical_object(inner))?;
    let mut outer = Map::new();
    for key in ["id", "role", "mustUnderstand", "relay"] {
        outer.extend(inner.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    outer.insert("encryption".to_owned(), json!({"scheme": SCHEME, "keyId": recipient.id, "enc": enc}));
    outer.insert("sealed".to_owned(), json!(sealed));
    Ok(outer)
}

/// Seals all MemoryGrams of a frame for one recipient, but those that are sealed already. To be done before it is signed.
pub fn seal_grams(frame: &mut Frame, recipient: &Recipient) -> Result<(), EncryptionError> {
    for gram in frame.memory_grams.iter_mut().flatten().filter(|gram| !is_sealed(gram)) {
        *gram = seal_gram(gram, recipient)?;
    }
    Ok(())
}

/// The module.
#[derive(Debug, Clone, Default)]
pub struct Encryption {
    keys: Arc<BTreeMap<String, KeyPair>>,
}

impl Encryption {
    /// One that opens by these keys.
    pub fn with(keys: impl IntoIterator<Item = KeyPair>) -> Self {
        Self { keys: Arc::new(keys.into_iter().map(|key| (key.id.clone(), key)).collect()) }
    }

    /// The key that a gram is sealed for, if it is of this node, and what it is sealed with.
    fn key_of<'g>(&self, gram: &'g Map<String, Value>) -> Option<(&KeyPair, &'g str, &'g str)> {
        let encryption = gram.get("encryption")?;
        let text = |key: &str| encryption.get(key).and_then(Value::as_str);
        let sealed = gram.get("sealed").and_then(Value::as_str)?;
        let key = self.keys.get(text("keyId")?).filter(|_| text("scheme") == Some(SCHEME))?;
        Some((key, text("enc")?, sealed))
    }
}

fn violation(pointer: &str, problem: &str) -> Box<Fault> {
    Fault::security("Encryption", problem).at(pointer).escalated()
}

/// What was sealed: an object within the node's sizes.
fn object(bytes: &[u8], limits: &Limits, pointer: &str) -> Result<Map<String, Value>, Box<Fault>> {
    match limits::parse(bytes, limits)? {
        Value::Object(object) => Ok(object),
        _ => Err(violation(pointer, "what was sealed is not an object")),
    }
}

impl Encryption {
    fn open_body(&self, work: &mut Work<'_>, block: Map<String, Value>) -> Result<(), Box<Fault>> {
        let pointer = "/frame/Header/encryption";
        let content = Content::of("encryption", block);
        let scheme = content.must("scheme", content.text("scheme")?)?;
        let key_id = content.must("keyId", content.text("keyId")?)?;
        let enc = content.must("enc", content.text("enc")?)?;
        if scheme != SCHEME || content.text("encrypts")? != Some("Body") {
            return Err(violation(pointer, "the scheme is not known"));
        }
        let key = self.keys.get(key_id).ok_or_else(|| violation(pointer, "the Body is sealed for another key"))?;
        let sealed = work.frame.body.get("sealed").and_then(Value::as_str).unwrap_or_default();
        let bound = bound(work.original.header.get("messageId"), key_id);
        let text =
            key.open("Body", &bound, enc, sealed).ok_or_else(|| violation("/frame/Body", "the Body does not open"))?;
        work.frame.body = object(&text, &work.node.limits, "/frame/Body")?;
        work.actions.push("opened the Body".to_owned());
        Ok(())
    }

    fn open_grams(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let limits = &work.node.limits;
        for (place, gram) in work.frame.memory_grams.iter_mut().flatten().enumerate() {
            let Some((key, enc, sealed)) = self.key_of(gram) else { continue };
            let pointer = format!("/frame/MemoryGrams/{place}");
            let text = key.open("MemoryGram", &bound(gram.get("id"), &key.id), enc, sealed);
            let text = text.ok_or_else(|| violation(&pointer, "the MemoryGram does not open"))?;
            let mut inner = object(&text, limits, &pointer)?;
            std::mem::swap(gram, &mut inner);
        }
        check_totals(work.frame.grams(), limits)
    }
}

impl Module for Encryption {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        if work.relays() {
            return Ok(());
        }
        if let Some(block) = work.block("encryption") {
            self.open_body(work, block)?;
        }
        self.open_grams(work)
    }

    fn forward(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        if work.block("encryption").is_some() { work.reinsert("encryption", None) } else { Ok(()) }
    }

    fn opens(&self, gram: &Map<String, Value>) -> bool {
        self.key_of(gram).is_some()
    }
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
