//! A bundle's header, read by us before git sees any of it. The file is hostile.
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

/// The most bytes of header that are read. An attempt's bundle has one branch and at most a salvage ref a story.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;
/// The least that a pack needs for an object: a byte of header and an empty zlib stream.
const MIN_OBJECT_BYTES: u64 = 9;

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BundleHeader {
    /// Commits that the pack builds on.
    pub(super) prerequisites: Vec<CommitId>,
    /// Ref names with their commits, in order.
    pub(super) refs: Vec<(String, CommitId)>,
    /// Where the pack begins, in bytes.
    pub(super) pack_offset: u64,
    /// The number of objects that the pack claims to have.
    pub(super) object_count: u32,
}

/// Reads the header and the first words of the pack. `size` is the size of the whole file, `format` the repo's object format.
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
        if line.pop() == Some(b'\n') { Ok(()) } else { Err(wrong("it ends early, or is too long")) }
    };

    next(&mut reader, &mut line)?;
    let version = match line.as_slice() {
        b"# v2 git bundle" => 2,
        b"# v3 git bundle" => 3,
        _ => return Err(wrong("it does not begin as one")),
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
                found_format = text
                    .strip_prefix("@object-format=")
                    .ok_or_else(|| wrong("it asks for something that is not known"))?
                    .to_owned();
            }
            b'-' if header.refs.is_empty() => {
                // The comment is the commit's subject: not needed.
                let text = &text[1..];
                header.prerequisites.push(id(text.split(' ').next().unwrap_or(text))?);
            }
            _ => {
                let (commit, name) = text.split_once(' ').ok_or_else(|| wrong("a line is no ref"))?;
                header.refs.push((name.to_owned(), id(commit)?));
            }
        }
    }
    if found_format != format {
        return Err(wrong("it has another object format than the repository"));
    }

    let mut start = [0; 12];
    reader.read_exact(&mut start).map_err(|_| wrong("it has no pack"))?;
    let word = |at: usize| u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if &start[..4] != b"PACK" || word(4) != 2 {
        return Err(wrong("it has no pack"));
    }
    header.object_count = word(8);
    // Git makes a table of that many entries before it reads the first.
    if u64::from(header.object_count) * MIN_OBJECT_BYTES > size.saturating_sub(header.pack_offset) {
        return Err(wrong("its pack claims more objects than it has room for"));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn parse(header: &str, objects: u32, rest: usize) -> Result<BundleHeader, BundleError> {
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(b"PACK\0\0\0\x02");
        bytes.extend_from_slice(&objects.to_be_bytes());
        bytes.extend(std::iter::repeat_n(0, rest));
        read_header(bytes.as_slice(), bytes.len() as u64, "sha1")
    }

    #[test]
    fn bundle_versions_2_and_3_are_parsed() {
        let expected = BundleHeader {
            prerequisites: vec![A.parse().expect("valid")],
            refs: vec![("refs/heads/x".into(), B.parse().expect("valid"))],
            pack_offset: 0,
            object_count: 3,
        };
        for start in ["# v2 git bundle\n", "# v3 git bundle\n@object-format=sha1\n"] {
            let header = format!("{start}-{A} a subject\n{B} refs/heads/x\n\n");
            let found = parse(&header, 3, 100).expect("valid");
            assert_eq!(found, BundleHeader { pack_offset: header.len() as u64, ..expected.clone() });
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = "x".repeat(2 * MAX_HEADER_BYTES as usize);
        for header in [
            String::new(),
            "# v4 git bundle\n\n".into(),
            format!("# v2 git bundle\n@object-format=sha1\n{B} refs/heads/x\n\n"),
            format!("# v3 git bundle\n@filter=blob:none\n{B} refs/heads/x\n\n"),
            format!("# v3 git bundle\n@object-format=sha256\n{B} refs/heads/x\n\n"),
            "# v2 git bundle\nabc refs/heads/x\n\n".into(),
            format!("# v2 git bundle\n{}\n\n", B),
            format!("# v2 git bundle\n{} refs/heads/x\n\n", B.to_uppercase()),
            format!("# v2 git bundle\n{B} refs/heads/x"),
            format!("# v2 git bundle\n{B} {long}\n\n"),
            format!("# v2 git bundle\n{B} refs/heads/x\n-{A} late\n\n"),
        ] {
            assert!(matches!(parse(&header, 1, 100), Err(BundleError::MalformedHeader { .. })), "{header:.80}");
        }
    }

    #[test]
    fn a_pack_claiming_more_objects_than_fit_is_refused() {
        let header = format!("# v2 git bundle\n{B} refs/heads/x\n\n");
        assert!(parse(&header, 10, 100).is_ok());
        assert!(matches!(parse(&header, u32::MAX, 100), Err(BundleError::MalformedHeader { .. })));
        assert!(matches!(read_header(header.as_bytes(), 100, "sha1"), Err(BundleError::MalformedHeader { .. })));
    }
}
