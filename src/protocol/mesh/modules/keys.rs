//! Ed25519 keys (RFC 8032), their agents and permissions.
//!
//! Signed bytes begin with their purpose, so that a signature of one kind is never valid as another kind. Must not: print a secret key.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::super::syntax::is_iri;
use super::signing::{MessageSigner, SignatureVerifier};

/// What the agent of a key may do besides signing its own messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyPermission {
    /// Issue `authorization` blocks.
    Authorize,
    /// Sign messages of other senders after changing them.
    #[serde(rename = "change")]
    ModifyMessages,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("a key's agent must be an absolute URI, found `{0}`")]
    InvalidAgent(String),
    #[error("the key `{0}` must be a strong Ed25519 key of 32 bytes in base64")]
    InvalidKey(String),
}

#[derive(Clone)]
pub struct SecretKey {
    id: String,
    agent: String,
    key: SigningKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: String,
    agent: String,
    key: VerifyingKey,
    permissions: BTreeSet<KeyPermission>,
}

/// Trusted keys by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRing(BTreeMap<String, PublicKey>);

impl SecretKey {
    pub fn new(id: &str, agent: &str, secret: &[u8; 32]) -> Result<Self, KeyError> {
        if !is_iri(agent) {
            return Err(KeyError::InvalidAgent(agent.to_owned()));
        }
        Ok(Self { id: id.to_owned(), agent: agent.to_owned(), key: SigningKey::from_bytes(secret) })
    }

    pub fn agent(&self) -> &str {
        &self.agent
    }

    pub fn public_key(&self) -> PublicKey {
        let (id, agent) = (self.id.clone(), self.agent.clone());
        PublicKey { id, agent, key: self.key.verifying_key(), permissions: BTreeSet::new() }
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// Parses 32 bytes in base64.
    pub fn new(id: &str, agent: &str, public: &str) -> Result<Self, KeyError> {
        if !is_iri(agent) {
            return Err(KeyError::InvalidAgent(agent.to_owned()));
        }
        let bytes = BASE64.decode(public).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()).filter(|key| !key.is_weak());
        let key = key.ok_or_else(|| KeyError::InvalidKey(id.to_owned()))?;
        Ok(Self { id: id.to_owned(), agent: agent.to_owned(), key, permissions: BTreeSet::new() })
    }

    pub fn with_permission(mut self, permission: KeyPermission) -> Self {
        self.permissions.insert(permission);
        self
    }

    pub fn to_base64(&self) -> String {
        BASE64.encode(self.key.as_bytes())
    }

    pub fn agent(&self) -> &str {
        &self.agent
    }

    pub fn has_permission(&self, permission: KeyPermission) -> bool {
        self.permissions.contains(&permission)
    }
}

impl FromIterator<PublicKey> for KeyRing {
    fn from_iter<T: IntoIterator<Item = PublicKey>>(keys: T) -> Self {
        Self(keys.into_iter().map(|key| (key.id.clone(), key)).collect())
    }
}

impl KeyRing {
    /// The key of a valid signature.
    pub(super) fn verify(&self, key_id: &str, purpose: &str, bytes: &[u8], value: &str) -> Option<&PublicKey> {
        let key = self.0.get(key_id)?;
        let signature = Signature::from_slice(&BASE64.decode(value).ok()?).ok()?;
        key.key.verify_strict(&domain_separated(purpose, bytes), &signature).ok()?;
        Some(key)
    }
}

fn domain_separated(purpose: &str, bytes: &[u8]) -> Vec<u8> {
    [b"longshore mesh 1 ", purpose.as_bytes(), b"\n", bytes].concat()
}

impl MessageSigner for SecretKey {
    fn key_id(&self) -> &str {
        &self.id
    }

    fn sign(&self, purpose: &str, bytes: &[u8]) -> String {
        BASE64.encode(self.key.sign(&domain_separated(purpose, bytes)).to_bytes())
    }
}

impl SignatureVerifier for KeyRing {
    fn verify_signer(&self, key_id: &str, purpose: &str, bytes: &[u8], value: &str) -> Option<String> {
        self.verify(key_id, purpose, bytes, value).map(|key| key.agent.clone())
    }
}

#[cfg(test)]
#[path = "tests/keys.rs"]
mod tests;
