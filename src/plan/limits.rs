//! How much a plan may hold. Checked by `build.rs`, named by `error.rs`.

/// The most bytes that one sandbox gets of its tasks file, as a JSON string: with the rest of what is delivered, it has to fit
/// one frame of the depot ([`MAX_PAYLOAD`](crate::handoff::depot::frames::MAX_PAYLOAD)).
pub(super) const MAX_DELIVERED_BYTES: usize = 640 * 1024;
/// The most bytes of the header blocks for one sandbox, as JSON.
pub(super) const MAX_HEADER_BYTES: usize = 32 * 1024;
/// The most tasks files in one plan.
pub const MAX_FILES: usize = 100;

/// The length of a text as a JSON string.
pub(super) fn json_string_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 2
}
