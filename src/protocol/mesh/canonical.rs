//! Canonical JSON (RFC 8785), the form that is signed and hashed (2.7.2.1, rule 9), and SHA-256 digests as hexadecimal text.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Every integer up to this one is a double of its own.
pub(super) const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Canonical bytes of a JSON value or object.
pub(crate) fn to_canonical_json(json: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(json).expect("JSON values have string keys and finite numbers")
}

/// Formats a finite number as ECMAScript does.
pub(super) fn format_number(double: f64) -> String {
    serde_json_canonicalizer::to_string(&double).unwrap_or_default()
}

/// SHA-256 as 64 hexadecimal digits.
pub(crate) fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "tests/canonical.rs"]
mod tests;
