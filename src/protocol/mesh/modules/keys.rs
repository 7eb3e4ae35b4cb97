//! Keys: whose they are, what they may do, and how they sign (Ed25519, RFC 8032).
//!
//! Used by `signature`, `authentication`, `authorization` and `audit`. What is signed begins with what it is signed for, so that a
//! signature of one kind is never taken for one of another. Must not: show or write a secret key.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use thiserror::Error;

use super::super::role::is_iri;
use super::{MessageSigner, SignatureVerifier};

/// What the agent of a key may do beside speaking for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyPermission {
    /// Say what others may do: its `authorization` blocks count.
    Authorize,
    /// Change what others sent: its `signature` stands for that of the sender.
    ModifyMessages,
}

/// Why there is no such key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// An agent is named by a URI.
    #[error("a key's agent must be an absolute URI, found `{0}`")]
    InvalidAgent(String),
    /// It is not a key, or a weak one.
    #[error("the key `{0}` must be 32 bytes in base64 that are a strong Ed25519 key")]
    InvalidKey(String),
}

/// A key that an agent signs with.
#[derive(Clone)]
pub struct SecretKey {
    id: String,
    agent: String,
    key: SigningKey,
}

/// A key that an agent is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: String,
    agent: String,
    key: VerifyingKey,
    rights: BTreeSet<KeyPermission>,
}

/// The keys that a node trusts, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRing(BTreeMap<String, PublicKey>);

impl SecretKey {
    /// A key from its 32 secret bytes.
    pub fn new(id: &str, agent: &str, secret: &[u8; 32]) -> Result<Self, KeyError> {
        if !is_iri(agent) {
            return Err(KeyError::InvalidAgent(agent.to_owned()));
        }
        Ok(Self { id: id.to_owned(), agent: agent.to_owned(), key: SigningKey::from_bytes(secret) })
    }

    /// The id that others know it by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whose it is.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// What others need to check its signatures.
    pub fn public_key(&self) -> PublicKey {
        let (id, agent) = (self.id.clone(), self.agent.clone());
        PublicKey { id, agent, key: self.key.verifying_key(), rights: BTreeSet::new() }
    }

    pub(super) fn sign(&self, purpose: &str, bytes: &[u8]) -> String {
        BASE64.encode(self.key.sign(&domain_separated(purpose, bytes)).to_bytes())
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// A key from its 32 bytes in base64.
    pub fn new(id: &str, agent: &str, public: &str) -> Result<Self, KeyError> {
        if !is_iri(agent) {
            return Err(KeyError::InvalidAgent(agent.to_owned()));
        }
        let bytes = BASE64.decode(public).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()).filter(|key| !key.is_weak());
        let key = key.ok_or_else(|| KeyError::InvalidKey(id.to_owned()))?;
        Ok(Self { id: id.to_owned(), agent: agent.to_owned(), key, rights: BTreeSet::new() })
    }

    /// The same with a right.
    pub fn with_permission(mut self, right: KeyPermission) -> Self {
        self.rights.insert(right);
        self
    }

    /// Its 32 bytes in base64.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.key.as_bytes())
    }

    /// Whose it is.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Whether its agent may do that.
    pub fn has_permission(&self, right: KeyPermission) -> bool {
        self.rights.contains(&right)
    }
}

impl FromIterator<PublicKey> for KeyRing {
    fn from_iter<T: IntoIterator<Item = PublicKey>>(keys: T) -> Self {
        Self(keys.into_iter().map(|key| (key.id.clone(), key)).collect())
    }
}

impl KeyRing {
    /// The key that made a signature; none if it is not known, or the signature not its.
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
        self.sign(purpose, bytes)
    }
}

impl SignatureVerifier for KeyRing {
    fn verify_signer(&self, key_id: &str, purpose: &str, bytes: &[u8], value: &str) -> Option<String> {
        self.verify(key_id, purpose, bytes, value).map(|key| key.agent.clone())
    }
}

#[cfg(test)]
pub(super) mod test_keys {
    use super::*;

    /// The key `key-<n>` of an agent.
    pub(in super::super) fn secret_key(n: u8, agent: &str) -> SecretKey {
        SecretKey::new(&format!("key-{n}"), agent, &[n; 32]).expect("a key")
    }
}

#[cfg(test)]
mod tests {
    use super::test_keys::secret_key;
    use super::*;

    #[test]
    fn rfc_8032_section_7_1_test_2() {
        let hex = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("hex")).collect()
        };
        let bytes: [u8; 32] =
            hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").try_into().expect("32 bytes");
        let key = SecretKey::new("k", "agent://a", &bytes).expect("a key");
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        assert_eq!(BASE64.decode(key.public_key().to_base64()).expect("base64"), public);
        let signature = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                         085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        assert_eq!(key.key.sign(&[0x72]).to_bytes().to_vec(), hex(&signature.replace(char::is_whitespace, "")));
    }

    #[test]
    fn a_signature_is_bound_to_one_key_and_one_purpose() {
        let (one, two) = (secret_key(1, "agent://one"), secret_key(2, "agent://two"));
        let ring: KeyRing = [one.public_key(), two.public_key()].into_iter().collect();
        let value = one.sign("frame", b"text");
        assert_eq!(ring.verify("key-1", "frame", b"text", &value).map(PublicKey::agent), Some("agent://one"));
        for (key, purpose, bytes, value) in [
            ("key-2", "frame", b"text", value.as_str()),
            ("key-3", "frame", b"text", &value),
            ("key-1", "audit", b"text", &value),
            ("key-1", "frame", b"next", &value),
            ("key-1", "frame", b"text", "AAAA"),
            ("key-1", "frame", b"text", "no base64"),
        ] {
            assert!(ring.verify(key, purpose, bytes, value).is_none(), "{key} {purpose}");
        }
        assert!(!format!("{one:?}").contains("key:"));
    }

    #[test]
    fn keys_parse_from_base64_and_weak_keys_are_refused() {
        let public = secret_key(1, "agent://one").public_key();
        assert_eq!(PublicKey::new("key-1", "agent://one", &public.to_base64()), Ok(public));
        let weak = BASE64.encode([0_u8; 32]);
        for bad in [weak.as_str(), "", "AAAA", "no base64"] {
            assert_eq!(PublicKey::new("k", "agent://a", bad), Err(KeyError::InvalidKey("k".to_owned())), "{bad}");
        }
        assert!(PublicKey::new("k", "not a uri", "").is_err() && SecretKey::new("k", "a", &[1; 32]).is_err());
    }
}
