//! The parser against archives that a sandbox may have had made.

use tar::{EntryType, Header};

use super::*;

/// An archive, entry by entry.
#[derive(Default)]
struct TarBuilder(Vec<u8>);

impl TarBuilder {
    fn header(mut self, name: &str, kind: EntryType, size: u64) -> Self {
        let mut header = Header::new_gnu();
        // As bytes: the builder refuses names that an attacker would not.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name_literal("/etc/shadow").unwrap();
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self
    }

    fn data(mut self, data: &[u8]) -> Self {
        self.0.extend_from_slice(data);
        let padding = self.0.len().next_multiple_of(512);
        self.0.resize(padding, 0);
        self
    }

    fn file(self, name: &str, data: &[u8]) -> Self {
        self.header(name, EntryType::Regular, data.len() as u64).data(data)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

const MAX_BUNDLE: u64 = 100_000;

fn extract(tar: &[u8]) -> (Result<CollectedFiles, ArchiveError>, Option<Vec<u8>>) {
    let temp_dir = tempfile::tempdir().unwrap();
    let bundle = temp_dir.path().join("bundle");
    let taken = extract_result(tar, MAX_BUNDLE, &bundle);
    let left = std::fs::read_dir(temp_dir.path()).unwrap().count();
    let bundle = std::fs::read(&bundle).ok();
    assert_eq!(left, usize::from(bundle.is_some()), "nothing but the bundle");
    (taken, bundle)
}

fn valid_archive() -> TarBuilder {
    TarBuilder::default()
        .header("out/", EntryType::Directory, 0)
        .file("out/result.bundle", &[7; 70_000])
        .file("out/result.json", b"{}")
}

#[test]
fn result_and_bundle_are_extracted_in_any_order() {
    let (collected, bundle) = extract(&valid_archive().end());
    assert_eq!(collected.unwrap(), CollectedFiles { result: Some(b"{}".to_vec()), has_bundle: true });
    assert_eq!(bundle.unwrap(), [7; 70_000]);
    let other =
        TarBuilder::default().file("out/result.json", b"[]").file("out/x", b"x").file("out/result.bundle", b"b");
    let (collected, bundle) = extract(&other.end());
    assert_eq!(collected.unwrap(), CollectedFiles { result: Some(b"[]".to_vec()), has_bundle: true });
    assert_eq!(bundle.unwrap(), b"b");
}

#[test]
fn empty_archive_yields_nothing() {
    for tar in
        [Vec::new(), TarBuilder::default().end(), TarBuilder::default().header("out/", EntryType::Directory, 0).end()]
    {
        let (collected, bundle) = extract(&tar);
        assert_eq!((collected.unwrap(), bundle), (CollectedFiles { result: None, has_bundle: false }, None));
    }
}

#[test]
fn other_entries_are_skipped() {
    let kinds = [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::GNUSparse,
        EntryType::Continuous,
    ];
    for kind in kinds {
        let tar = TarBuilder::default().header("out/result.json", kind, 0).header("out/result.bundle", kind, 0);
        let (collected, bundle) = extract(&tar.end());
        assert_eq!(
            (collected.unwrap(), bundle),
            (CollectedFiles { result: None, has_bundle: false }, None),
            "{kind:?}"
        );
    }
    let names = [
        "/out/result.json",
        "../out/result.json",
        "out/../out/result.json",
        "out/../../result.bundle",
        "./out/result.json",
        "out//result.json",
        "out/out/result.bundle",
        "result.json",
        "out/result.json/",
        "out/result.jso",
        "out/RESULT.JSON",
    ];
    for name in names {
        let (collected, bundle) = extract(&TarBuilder::default().file(name, b"{}").end());
        assert_eq!((collected.unwrap(), bundle), (CollectedFiles { result: None, has_bundle: false }, None), "{name}");
    }
}

#[test]
fn tar_extensions_are_ignored() {
    // A long name that would make another file of the next entry, and a PAX record that would make it larger.
    let pax = b"19 path=out/nothing\n";
    let tar = TarBuilder::default()
        .header("././@LongLink", EntryType::GNULongName, 10)
        .data(b"out/other\0")
        .file("out/result.json", b"{}")
        .header("x", EntryType::XHeader, pax.len() as u64)
        .data(pax)
        .file("out/result.bundle", b"b");
    let (collected, bundle) = extract(&tar.end());
    assert_eq!(collected.unwrap(), CollectedFiles { result: Some(b"{}".to_vec()), has_bundle: true });
    assert_eq!(bundle.unwrap(), b"b");
}

#[test]
fn oversized_entries_are_refused_before_reading() {
    let huge = 1 << 40;
    for (name, size) in [
        ("out/result.json", MAX_RESULT_BYTES + 1),
        ("out/result.bundle", MAX_BUNDLE + 1),
        ("out/result.json", huge),
        ("out/result.bundle", huge),
    ] {
        let tar = TarBuilder::default().header(name, EntryType::Regular, size).data(b"x");
        let (collected, bundle) = extract(&tar.0);
        assert!(matches!(collected, Err(ArchiveError::Refused(_))), "{name}: {collected:?}");
        assert_eq!(bundle, None);
    }
    let twice = valid_archive().file("out/result.json", b"[]");
    let (collected, bundle) = extract(&twice.end());
    assert!(matches!(collected, Err(ArchiveError::Refused(_))), "{collected:?}");
    assert_eq!(bundle, None);
    // What is passed over counts too, and a long name of a terabyte is not read to memory.
    for kind in [EntryType::Regular, EntryType::GNULongName, EntryType::XHeader, EntryType::XGlobalHeader] {
        let header = TarBuilder::default().header("out/junk", kind, huge).0;
        let temp_dir = tempfile::tempdir().unwrap();
        let collected =
            extract_result(Read::chain(&header[..], io::repeat(0)), MAX_BUNDLE, &temp_dir.path().join("bundle"));
        assert!(matches!(collected, Err(ArchiveError::Refused(_))), "{kind:?}: {collected:?}");
    }
}

#[test]
fn truncated_archive_is_complete_or_an_error() {
    let tar = TarBuilder::default().file("out/result.bundle", &[7; 600]).file("out/result.json", b"{}").end();
    for length in 0..tar.len() {
        let (collected, bundle) = extract(&tar[..length]);
        match collected {
            Err(ArchiveError::Corrupt(_)) => assert_eq!(bundle, None, "{length}"),
            Ok(CollectedFiles { result, has_bundle: has }) => {
                assert!(result.is_none_or(|result| result == b"{}"), "{length}");
                assert_eq!(bundle, has.then(|| vec![7; 600]), "{length}");
            }
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn corrupt_archive_never_panics_or_leaves_a_partial_bundle() {
    let tar = TarBuilder::default().file("out/result.bundle", &[7; 600]).file("out/result.json", b"{}").end();
    for at in 0..tar.len() {
        for value in [0, 0x80, 0xff, b'9'] {
            let mut damaged = tar.clone();
            damaged[at] = value;
            let (collected, bundle) = extract(&damaged);
            assert_eq!(bundle.is_some(), collected.is_ok_and(|collected| collected.has_bundle), "{at}");
        }
    }
}

#[tokio::test]
async fn archive_is_fetched_from_a_stopped_container() {
    use crate::engine::fake::{FakeEngine, container_spec};

    let engine = FakeEngine::new(|_| async { 0 });
    let id = engine.create(&container_spec("sandbox", &[])).await.unwrap();
    let temp_dir = tempfile::tempdir().unwrap();
    let bundle = temp_dir.path().join("bundle");
    let nothing = fetch(&engine, &id, "T-1", MAX_BUNDLE, &bundle).await.unwrap();
    assert_eq!(nothing, CollectedFiles { result: None, has_bundle: false });
    engine.set_archive("sandbox", "/longshore/work/T-1/out", valid_archive().end());
    let collected = fetch(&engine, &id, "T-1", MAX_BUNDLE, &bundle).await.unwrap();
    assert_eq!(collected, CollectedFiles { result: Some(b"{}".to_vec()), has_bundle: true });
    assert_eq!(std::fs::read(&bundle).unwrap(), [7; 70_000]);
    let refused = fetch(&engine, &id, "T-1", 10, &bundle).await;
    assert!(matches!(refused, Err(ArchiveError::Refused(_))), "{refused:?}");
    assert!(!bundle.exists());
    engine.go_down();
    let unreachable = fetch(&engine, &id, "T-1", MAX_BUNDLE, &bundle).await;
    assert!(matches!(unreachable, Err(ArchiveError::Engine(error)) if error.is_unreachable()));
}
