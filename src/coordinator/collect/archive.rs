//! Fetches a result without the depot: a sandbox's stopped container still has its volumes, and the engine returns files of it as a
//! tar. Called by `collector.rs`. Must not: trust the tar, whose content a sandbox wrote.
//!
//! | content of the tar | treatment |
//! |---|---|
//! | the regular files `out/result.json` and `out/result.bundle`, once each, within their limits | extracted |
//! | one of them twice, or above its limit; more data in total than both may have | refused, no bundle is left |
//! | anything else: links, devices, sparse files, other names, absolute or `..` | skipped |
//! | an end within an entry, an invalid header | corrupt, no bundle is left |

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::engine::depot::CollectedFiles;
use crate::engine::{Engine, EngineError};
use crate::handoff::layout;
use crate::handoff::result::MAX_RESULT_BYTES;
use crate::ids::ContainerId;

/// The most bytes of a tar besides its two files: headers, padding, small files that are skipped.
const MAX_TAR_OVERHEAD: u64 = 1024 * 1024;
/// Chunks in the channel from the engine to the thread that reads the tar.
const CHANNEL_CAPACITY: usize = 8;

/// Why nothing was extracted.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The content breaks a rule.
    #[error("refused: {0}")]
    Refused(String),
    /// The tar is invalid or ends early.
    #[error("the archive cannot be read")]
    Corrupt(#[source] io::Error),
    /// The host's disk failed.
    #[error("cannot write the bundle")]
    Disk(#[source] io::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Fetches an attempt's result and bundle from its container; the bundle goes to `bundle_to`. Missing files are not an error.
pub(super) async fn fetch(
    engine: &dyn Engine,
    container: &ContainerId,
    attempt_dir: &str,
    max_bundle: u64,
    bundle_to: &Path,
) -> Result<CollectedFiles, ArchiveError> {
    let path = format!("{}/{attempt_dir}/{}", layout::WORK, layout::OUT_DIR);
    let mut chunks = match engine.download(container, &path).await {
        Err(EngineError::NotFound { .. }) => return Ok(CollectedFiles { result: None, has_bundle: false }),
        other => other?,
    };
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let target = bundle_to.to_owned();
    let extraction =
        tokio::task::spawn_blocking(move || extract_result(ChannelReader::new(receiver), max_bundle, &target));
    // The extraction closes the channel early if it refuses the tar.
    while let Some(chunk) = chunks.next().await {
        if sender.send(chunk.map_err(io::Error::other)).await.is_err() {
            break;
        }
    }
    drop((sender, chunks));
    extraction.await.unwrap_or_else(|panicked| Err(ArchiveError::Corrupt(io::Error::other(panicked))))
}

/// Extracts the two files from the tar of an `out` directory. On an error no bundle is left. Memory is bounded by the largest
/// result.
///
/// # Errors
/// [`ArchiveError`].
pub fn extract_result(tar: impl Read, max_bundle: u64, bundle_to: &Path) -> Result<CollectedFiles, ArchiveError> {
    let extracted = extract_entries(tar, max_bundle, bundle_to);
    if extracted.is_err() {
        let _ = std::fs::remove_file(bundle_to);
    }
    extracted
}

fn extract_entries(tar: impl Read, max_bundle: u64, bundle_to: &Path) -> Result<CollectedFiles, ArchiveError> {
    let limit = max_bundle.saturating_add(MAX_RESULT_BYTES).saturating_add(MAX_TAR_OVERHEAD);
    let mut archive = tar::Archive::new(LimitedReader { inner: tar, remaining: limit });
    let mut collected = CollectedFiles { result: None, has_bundle: false };
    // Raw: long names and other extensions are plain entries, instead of being read into memory whole.
    for entry in archive.entries().map_err(read_error)?.raw(true) {
        let mut entry = entry.map_err(read_error)?;
        let size = entry.header().entry_size().map_err(read_error)?;
        match (classify_entry(entry.header()), &collected) {
            (Some(ResultEntry::Result), CollectedFiles { result: None, .. }) => {
                check_size(layout::RESULT_FILE, size, MAX_RESULT_BYTES)?;
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(read_error)?;
                check_complete(bytes.len() as u64, size)?;
                collected.result = Some(bytes);
            }
            (Some(ResultEntry::Bundle), CollectedFiles { has_bundle: false, .. }) => {
                check_size(layout::BUNDLE_FILE, size, max_bundle)?;
                let mut file = File::create(bundle_to).map_err(ArchiveError::Disk)?;
                check_complete(copy_to_file(&mut entry, &mut file)?, size)?;
                collected.has_bundle = true;
            }
            (Some(_), _) => return Err(ArchiveError::Refused("a file is in the archive twice".to_owned())),
            (None, _) => {}
        }
    }
    collected.result = collected.result.filter(|result| !result.is_empty());
    Ok(collected)
}

enum ResultEntry {
    Result,
    Bundle,
}

/// Only regular files with their plain names are extracted.
fn classify_entry(header: &tar::Header) -> Option<ResultEntry> {
    if header.entry_type() != tar::EntryType::Regular {
        return None;
    }
    let name = header.path_bytes();
    let name = name.strip_prefix(layout::OUT_DIR.as_bytes())?.strip_prefix(b"/")?;
    if name == layout::RESULT_FILE.as_bytes() {
        Some(ResultEntry::Result)
    } else if name == layout::BUNDLE_FILE.as_bytes() {
        Some(ResultEntry::Bundle)
    } else {
        None
    }
}

fn check_size(name: &str, size: u64, limit: u64) -> Result<(), ArchiveError> {
    if size <= limit {
        return Ok(());
    }
    Err(ArchiveError::Refused(format!("`{name}` has {size} bytes, and {limit} are allowed")))
}

/// A tar that ends within a file reads like a shorter file.
fn check_complete(length: u64, size: u64) -> Result<(), ArchiveError> {
    if length == size { Ok(()) } else { Err(read_error(io::ErrorKind::UnexpectedEof.into())) }
}

/// Copies, and distinguishes the tar's errors from those of the host.
fn copy_to_file(from: &mut impl Read, to: &mut File) -> Result<u64, ArchiveError> {
    let mut buffer = vec![0; 64 * 1024];
    let mut length = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                to.write_all(&buffer[..count]).map_err(ArchiveError::Disk)?;
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(error)),
        }
    }
}

fn read_error(error: io::Error) -> ArchiveError {
    match error.get_ref() {
        Some(inner) if inner.is::<ArchiveTooLarge>() => ArchiveError::Refused(inner.to_string()),
        _ => ArchiveError::Corrupt(error),
    }
}

#[derive(Debug, Error)]
#[error("the archive has more data than a result may have")]
struct ArchiveTooLarge;

/// A reader with a limit: a sparse file of a terabyte costs nothing to create and a day to read.
struct LimitedReader<R> {
    inner: R,
    remaining: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.remaining = self.remaining.checked_sub(count as u64).ok_or_else(|| io::Error::other(ArchiveTooLarge))?;
        Ok(count)
    }
}

/// Reads the chunks of a stream on a thread that may block.
struct ChannelReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl ChannelReader {
    fn new(receiver: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self { receiver, chunk: Bytes::new() }
    }
}

impl Read for ChannelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
