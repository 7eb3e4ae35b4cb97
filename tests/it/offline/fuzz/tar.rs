//! The tar by which an engine gives out what a sandbox left, where the depot is gone.

use std::io::{self, Cursor, Read};
use std::path::Path;

use longshore::coordinator::collect::archive::extract_result;
use longshore::handoff::result::MAX_RESULT_BYTES;
use tar::{EntryType, Header};

use super::{run_target, scratch_path};

const BLOCK: usize = 512;
/// The most that a bundle may have here, in bytes.
const MAX_BUNDLE_BYTES: u64 = 3000;
/// What may be read of a tar without an end: a result, a bundle, what stands around them, and the reader's buffers.
const MAX_READ_BYTES: u64 = MAX_RESULT_BYTES + MAX_BUNDLE_BYTES + 2 * 1024 * 1024;

/// Counts what is read.
struct CountingReader<'a, R> {
    inner: R,
    count: &'a mut u64,
    /// The most that one call gives.
    piece: usize,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.piece);
        let count = self.inner.read(&mut buffer[..length])?;
        *self.count += count as u64;
        Ok(count)
    }
}

/// The result and the bundle.
type Taken = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What comes of an archive, and what it did to the folder around it.
fn extract(tar: impl Read, piece: usize) -> Option<Taken> {
    let place = scratch_path("tar");
    let folder = place.join("incoming");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&folder).expect("made");
    let bundle = folder.join("bundle");
    let mut count = 0;
    let collected = extract_result(CountingReader { inner: tar, count: &mut count, piece }, MAX_BUNDLE_BYTES, &bundle);
    assert!(count <= MAX_READ_BYTES, "{count} bytes were read");
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder is still there");
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(&place), ["incoming"]);
    let left = names(&folder);
    let collected =
        collected.inspect_err(|_| assert!(left.is_empty(), "left of a tar that is refused: {left:?}")).ok()?;
    assert_eq!(left, if collected.has_bundle { vec!["bundle"] } else { Vec::new() });
    let bundle = collected.has_bundle.then(|| {
        let kind = std::fs::symlink_metadata(&bundle).expect("there").file_type();
        assert!(kind.is_file(), "{kind:?}");
        std::fs::read(&bundle).expect("read")
    });
    assert!(bundle.as_ref().is_none_or(|bytes| bytes.len() as u64 <= MAX_BUNDLE_BYTES));
    assert!(collected.result.as_ref().is_none_or(|bytes| bytes.len() as u64 <= MAX_RESULT_BYTES && !bytes.is_empty()));
    Some((collected.result, bundle))
}

/// The archive with the checksums that its headers would have, so that what comes after them is reached.
fn with_header_checksums(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    for block in out.chunks_exact_mut(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0)) {
        // Only what looks like a header: the contents of files stay.
        if block[257..262] == *b"ustar" {
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(block);
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
    }
    out
}

pub fn fuzz_tar(data: &[u8]) -> bool {
    let mut good = false;
    for tar in [data.to_vec(), with_header_checksums(data)] {
        let found = extract(&tar[..], usize::MAX);
        let piece = 1 + tar.iter().fold(0, |sum: usize, byte| sum + usize::from(*byte)) % 701;
        assert_eq!(extract(&tar[..], piece), found, "in pieces of {piece} bytes");
        good |= found.is_some_and(|(result, bundle)| result.is_some() || bundle.is_some());
    }
    // Seldom: it is long.
    if data.len().is_multiple_of(101) {
        assert_endless_archive_is_refused(data);
    }
    good
}

/// The archive as one that does not end, whatever sizes its headers claim.
fn assert_endless_archive_is_refused(data: &[u8]) {
    let byte = data.first().copied().unwrap_or_default();
    extract(Cursor::new(with_header_checksums(data)).chain(io::repeat(byte)), usize::MAX);
}

/// One entry, as an attacker writes it: the builder refuses names that an attacker would not.
fn entry(name: &str, kind: EntryType, claimed: u64, data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(claimed);
    header.set_mode(0o644);
    if kind.is_symlink() || kind.is_hard_link() {
        header.set_link_name_literal("../../outside").expect("it is short");
    }
    header.set_cksum();
    let mut out = [header.as_bytes(), data].concat();
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    entry(name, EntryType::Regular, data.len() as u64, data)
}

#[test]
fn result_tar() {
    let end = vec![0; 2 * BLOCK];
    let folder = entry("out/", EntryType::Directory, 0, b"");
    let result = file("out/result.json", br#"{"schemaVersion":1}"#);
    let bundle = file("out/result.bundle", &[7; 1300]);
    let link = |name: &str| entry(name, EntryType::Symlink, 0, b"");
    let corpus = vec![
        [&folder[..], &bundle, &result, &end].concat(),
        [&result[..], &file("out/agent.log", &[b'x'; 700]), &bundle, &end].concat(),
        [&folder[..], &file("../../outside", b"x"), &file("/tmp/outside", b"x"), &result, &end].concat(),
        [&link("out/result.bundle")[..], &link("out"), &bundle, &result, &end].concat(),
        [&entry("out/result.json", EntryType::Link, 0, b"")[..], &result, &end].concat(),
        [&file("out/result.bundle", &[7; MAX_BUNDLE_BYTES as usize + 1])[..], &result, &end].concat(),
        [&file("out/result.bundle", &[7; MAX_BUNDLE_BYTES as usize])[..], &result, &end].concat(),
        [&entry("out/result.bundle", EntryType::Regular, u64::MAX, b"x")[..], &end].concat(),
        entry("out/result.bundle", EntryType::Regular, 1 << 33, b"x"),
        entry("out/agent.log", EntryType::Regular, 1 << 33, b"x"),
        [&entry("out/result.json", EntryType::Regular, MAX_RESULT_BYTES, b"x")[..], &end].concat(),
        [&entry("././@LongLink", EntryType::GNULongName, 1 << 40, b"out/result.json")[..], &result, &end].concat(),
        [&entry("x", EntryType::XHeader, 19, b"19 size=9999999999\n")[..], &result, &bundle, &end].concat(),
        [&entry("out/result.bundle", EntryType::GNUSparse, 1 << 40, b"")[..], &bundle, &end].concat(),
    ];
    for data in &corpus {
        assert_endless_archive_is_refused(data);
    }
    run_target("tar", 4_000, &corpus, fuzz_tar);
}
