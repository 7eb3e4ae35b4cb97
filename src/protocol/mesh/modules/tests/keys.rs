//! Tests of `keys.rs`.

use super::*;
use crate::protocol::mesh::tests::support::secret_key;

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
