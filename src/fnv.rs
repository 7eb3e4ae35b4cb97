//! FNV-1a, 64 bits: a checksum against accidents, and a short name for a path. Not for secrets.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of `bytes`. `seed` 0 gives plain FNV-1a; the hash of what came before chains records.
pub(crate) fn fnv1a(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS ^ seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    #[test]
    fn hashes_match_published_values() {
        assert_eq!(super::fnv1a(0, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a(0, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
