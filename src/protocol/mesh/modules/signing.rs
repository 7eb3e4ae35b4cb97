//! Traits by which modules sign and verify without depending on a key type.

use std::fmt::Debug;

pub trait MessageSigner: Debug + Send + Sync {
    fn key_id(&self) -> &str;

    /// Signs bytes for a purpose.
    fn sign(&self, purpose: &str, bytes: &[u8]) -> String;
}

pub trait SignatureVerifier: Debug + Send + Sync {
    /// The agent of a valid signature.
    fn verify_signer(&self, key_id: &str, purpose: &str, bytes: &[u8], value: &str) -> Option<String>;
}
