//! Parses the header of a hostile bundle before git reads any of it.
//!
//! ```text
//! # v2 git bundle              or v3, then
//! @object-format=sha256        capabilities, v3 only
//! -<commit> <comment>          prerequisites
//! <commit> <ref name>          refs
//!                              an empty line, then the pack: "PACK", version, number of objects
//! ```
//! Used by `import.rs`. Must not: run git.

use std::io::{BufRead, BufReader, Read};

use super::error::BundleError;
use crate::ids::CommitId;

/// The largest header, in bytes. An attempt's bundle has one branch and at most one salvage ref per story.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;
/// The smallest object in a pack: one byte of header and an empty zlib stream.
const MIN_OBJECT_BYTES: u64 = 9;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BundleHeader {
    /// The commits that the pack builds on.
    pub(super) prerequisites: Vec<CommitId>,
    /// The ref names with their commits, in order.
    pub(super) refs: Vec<(String, CommitId)>,
    /// The offset of the pack in the file.
    pub(super) pack_offset: u64,
    /// The number of objects that the pack claims to hold.
    pub(super) object_count: u32,
}

/// Parses the header and the start of the pack. `size` is the size of the whole file, `format` the repository's object format.
pub(super) fn read_header(file: impl Read, size: u64, format: &str) -> Result<BundleHeader, BundleError> {
    let wrong = |problem: &str| BundleError::MalformedHeader { problem: problem.to_owned() };
    let digits = if format == "sha256" { 64 } else { 40 };
    let mut reader = BufReader::new(file.take(MAX_HEADER_BYTES));
    let mut header = BundleHeader { prerequisites: Vec::new(), refs: Vec::new(), pack_offset: 0, object_count: 0 };
    let mut line = Vec::new();
    let mut next = |reader: &mut BufReader<_>, line: &mut Vec<u8>| {
        line.clear();
        let count = reader.read_until(b'\n', line).map_err(|error| wrong(&error.to_string()))?;
        header.pack_offset += count as u64;
        if line.pop() == Some(b'\n') { Ok(()) } else { Err(wrong("it ends early or is too long")) }
    };

    next(&mut reader, &mut line)?;
    let version = match line.as_slice() {
        b"# v2 git bundle" => 2,
        b"# v3 git bundle" => 3,
        _ => return Err(wrong("unknown signature")),
    };
    let mut found_format = "sha1".to_owned();
    loop {
        next(&mut reader, &mut line)?;
        if line.is_empty() {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong("a line is not UTF-8"))?;
        let id = |id: &str| match id.parse::<CommitId>() {
            Ok(commit) if id.len() == digits => Ok(commit),
            _ => Err(wrong("an object id is malformed")),
        };
        match text.as_bytes()[0] {
            b'@' if version == 3 && header.refs.is_empty() && header.prerequisites.is_empty() => {
                found_format =
                    text.strip_prefix("@object-format=").ok_or_else(|| wrong("unknown capability"))?.to_owned();
            }
            b'-' if header.refs.is_empty() => {
                // The rest of the line is a comment.
                let text = &text[1..];
                header.prerequisites.push(id(text.split(' ').next().unwrap_or(text))?);
            }
            _ => {
                let (commit, name) = text.split_once(' ').ok_or_else(|| wrong("a line is not a ref"))?;
                header.refs.push((name.to_owned(), id(commit)?));
            }
        }
    }
    if found_format != format {
        return Err(wrong("its object format is not the repository's"));
    }

    let mut start = [0; 12];
    reader.read_exact(&mut start).map_err(|_| wrong("it has no pack"))?;
    let word = |at: usize| u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if &start[..4] != b"PACK" || word(4) != 2 {
        return Err(wrong("it has no pack"));
    }
    header.object_count = word(8);
    // Git allocates a table of that many entries before it reads the first object.
    if u64::from(header.object_count) * MIN_OBJECT_BYTES > size.saturating_sub(header.pack_offset) {
        return Err(wrong("its pack claims more objects than it has room for"));
    }
    Ok(header)
}

#[cfg(test)]
mod tests;
