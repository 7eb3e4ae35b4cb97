//! `journal.ndjson`: every event that the machine handled, in order. The source of truth of a swarm.
//!
//! One JSON object a line, with a checksum first:
//! `{"c":"<16 hex digits>","n":0,"header":{...}}` and then `{"c":"...","n":1,"at":"...","elapsedMs":0,"event":{...}}`.
//! The checksum is FNV-1a (64 bits) over the line's bytes after it, seeded with the checksum of the line before: so a
//! changed byte, a lost, doubled or moved line, and a line of another journal are all found. (A change of one byte is
//! found always: each step of FNV-1a is a bijection.) Text that ends without a newline is what a crash during an append
//! leaves: dropped. All other damage is an error.
//!
//! A journal that lacks its last records has nothing wrong in itself. So the number of records that are on the disk is in
//! `journal.count`, written after each append and never synced: it may be behind the journal, and is never ahead of it.
//!
//! Called by `store.rs` and `recovery.rs`. Appends of a batch are one write and one `sync_data`. Must not: interpret events.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fnv::fnv1a;
use crate::ids::SwarmId;
use crate::state::error::{StateError, StateResult};
use crate::state::swarm_dir::write_atomic;
use crate::swarm::{Event, SwarmSpec};

/// The version that this build writes, and the newest that it reads.
pub const JOURNAL_VERSION: u32 = 1;

const COUNT_FILE: &str = "journal.count";
const CHECKSUM_PREFIX: &[u8] = b"{\"c\":\"";
const CHECKSUM_DIGITS: usize = 16;
/// Where the checked bytes begin: after the prefix, the digits and `",`.
const BODY_OFFSET: usize = CHECKSUM_PREFIX.len() + CHECKSUM_DIGITS + 2;

/// The first record: what is needed to make the machine and the coordinator again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalHeader {
    /// [`JOURNAL_VERSION`].
    pub schema_version: u32,
    /// The version of longshore that wrote it.
    #[serde(rename = "program")]
    pub program_version: String,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// When it began; the events' times count from here.
    pub started: Timestamp,
    /// The plan.
    pub spec: SwarmSpec,
    /// The coordinator's settings for `resume`; opaque here. No values of environment variables.
    pub settings: serde_json::Value,
    /// The tasks files as they were read, by [`StoryKey::file`](crate::ids::StoryKey::file).
    pub tasks: Vec<TasksFileCopy>,
}

/// A tasks file as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TasksFileCopy {
    /// As typed.
    pub path: String,
    /// Its canonical path; `None` in older journals, and for a path that cannot be resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    /// Its text.
    pub content: String,
}

/// An event with its times.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalRecord {
    /// Its number, from 1.
    pub number: u64,
    /// Wall-clock time, for people.
    pub at: Timestamp,
    /// Time since the swarm began, as passed to the machine.
    pub elapsed: Duration,
    /// What happened.
    pub event: Event,
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalContents {
    /// The first record.
    pub header: JournalHeader,
    /// The others.
    pub records: Vec<JournalRecord>,
    /// How many bytes of the file are whole records.
    pub valid_bytes: u64,
    /// How many bytes of a torn record come after them.
    pub torn_bytes: u64,
    checksum: u64,
    /// The last record is complete except for its newline.
    newline_missing: bool,
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    next_number: u64,
    checksum: u64,
    bytes: u64,
    failed: bool,
    /// `None` if it cannot be opened: it only detects damage.
    count_file: Option<File>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventRecordRef<'a> {
    n: u64,
    at: Timestamp,
    elapsed_ms: u64,
    event: &'a Event,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventRecordOwned {
    #[serde(rename = "c")]
    _checksum: String,
    n: u64,
    at: Timestamp,
    elapsed_ms: u64,
    event: Event,
}

#[derive(Serialize)]
struct HeaderRecordRef<'a> {
    n: u64,
    header: &'a JournalHeader,
}

#[derive(Deserialize)]
struct HeaderRecordOwned {
    n: u64,
    header: JournalHeader,
}

#[derive(Deserialize)]
struct VersionRecord {
    header: HeaderVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeaderVersion {
    schema_version: u64,
}

impl Journal {
    /// Creates a journal. The file is created atomically with its header, so that no journal lacks it.
    pub fn create(path: &Path, header: &JournalHeader) -> StateResult<Self> {
        let mut line = Vec::new();
        let checksum = encode_record(0, &HeaderRecordRef { n: 0, header }, "the journal's header", &mut line)?;
        #[cfg(debug_assertions)]
        super::kill_point::kill_at_header(false);
        write_atomic(path, &line)?;
        #[cfg(debug_assertions)]
        super::kill_point::kill_at_header(true);
        let file = open_for_append(path)?;
        let count_file = open_count_file(path);
        let (path, bytes) = (path.to_owned(), line.len() as u64);
        Ok(Self { path, file, next_number: 1, checksum, bytes, failed: false, count_file })
    }

    /// Opens a journal for appending and truncates a torn record.
    pub fn open(path: &Path) -> StateResult<(Self, JournalContents)> {
        let contents = Self::read(path)?;
        let file = open_for_append(path)?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            next_number: contents.records.len() as u64 + 1,
            checksum: contents.checksum,
            bytes: contents.valid_bytes,
            failed: false,
            count_file: open_count_file(path),
        };
        if contents.torn_bytes > 0 {
            journal.file.set_len(contents.valid_bytes).map_err(StateError::io("cut the torn record off", path))?;
        }
        if contents.newline_missing {
            journal.file.write_all(b"\n").map_err(StateError::io("append to", path))?;
            journal.bytes += 1;
        }
        if contents.torn_bytes > 0 || contents.newline_missing {
            journal.file.sync_all().map_err(StateError::io("sync", path))?;
        }
        Ok((journal, contents))
    }

    /// Reads only the header of a journal.
    pub fn read_header(path: &Path) -> StateResult<JournalHeader> {
        let mut line = Vec::new();
        File::open(path)
            .and_then(|file| BufReader::new(file).read_until(b'\n', &mut line))
            .map_err(StateError::io("read", path))?;
        parse(&line, path).map(|contents| contents.header)
    }

    /// Reads a journal, which another process may be appending to.
    pub fn read(path: &Path) -> StateResult<JournalContents> {
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(StateError::io("read", path))?;
        parse(&bytes, path)
    }

    /// Appends events, each with its time, as one write, and waits until they are on the disk. Returns the bytes written.
    /// If a failed write cannot be rolled back, the journal accepts no more records.
    pub fn append(&mut self, events: &[(Event, Duration)], at: Timestamp) -> StateResult<u64> {
        if self.failed {
            return Err(StateError::JournalFailed(self.path.clone()));
        }
        if events.is_empty() {
            return Ok(0);
        }
        let mut lines = Vec::with_capacity(events.len() * 256);
        let (mut next, mut checksum) = (self.next_number, self.checksum);
        for (event, elapsed) in events {
            let line = EventRecordRef { n: next, at, elapsed_ms: elapsed.as_millis() as u64, event };
            checksum = encode_record(checksum, &line, "an event", &mut lines)?;
            next += 1;
        }
        #[cfg(debug_assertions)]
        super::kill_point::kill_at_record(&mut self.file, self.next_number, &lines);
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Half a record may be there, or a whole one that is not synced. Take it back if that works: then what is
            // on the disk is what the caller knows to be there.
            self.roll_back();
            return Err(StateError::io("append to", &self.path)(error));
        }
        (self.next_number, self.checksum) = (next, checksum);
        self.bytes += lines.len() as u64;
        if let Some(file) = &self.count_file {
            // Always of the same length, so that it is overwritten in place.
            let _ = file.write_all_at(format!("{:020}\n", self.event_count()).as_bytes(), 0);
        }
        Ok(lines.len() as u64)
    }

    /// The number of records that a journal has had on the disk, as far as it is known. Read it before the journal: another process
    /// may be appending.
    pub fn read_count(path: &Path) -> u64 {
        let text = std::fs::read_to_string(path.with_file_name(COUNT_FILE)).unwrap_or_default();
        // A crash of the machine may leave anything.
        text.trim_end().parse().unwrap_or_default()
    }

    fn roll_back(&mut self) {
        self.failed = self.file.set_len(self.bytes).and_then(|()| self.file.sync_all()).is_err();
    }

    /// The file's length.
    pub fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// How many events it holds.
    pub fn event_count(&self) -> u64 {
        self.next_number - 1
    }
}

fn open_count_file(journal: &Path) -> Option<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(journal.with_file_name(COUNT_FILE)).ok()
}

fn open_for_append(path: &Path) -> StateResult<File> {
    OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file))
        .map_err(StateError::io("open", path))
}

/// Appends a line to `out` and returns its checksum.
fn encode_record<T: Serialize>(
    previous_checksum: u64,
    value: &T,
    what: &'static str,
    out: &mut Vec<u8>,
) -> StateResult<u64> {
    let json = serde_json::to_vec(value).map_err(|source| StateError::Encode { what, source })?;
    let body = &json[1..];
    let checksum = fnv1a(previous_checksum, body);
    out.extend_from_slice(CHECKSUM_PREFIX);
    out.extend_from_slice(format!("{checksum:016x}\",").as_bytes());
    out.extend_from_slice(body);
    out.push(b'\n');
    Ok(checksum)
}

/// The line's checksum, if it is correct.
fn verify_checksum(previous_checksum: u64, line: &[u8]) -> Option<u64> {
    let body = line.get(BODY_OFFSET..)?;
    let digits = std::str::from_utf8(&line[CHECKSUM_PREFIX.len()..CHECKSUM_PREFIX.len() + CHECKSUM_DIGITS]).ok()?;
    let right = fnv1a(previous_checksum, body);
    (line.starts_with(CHECKSUM_PREFIX)
        && &line[BODY_OFFSET - 2..BODY_OFFSET] == b"\","
        && digits == format!("{right:016x}"))
    .then_some(right)
}

/// Reads the bytes of a journal; `path` is for errors.
pub(super) fn parse(bytes: &[u8], path: &Path) -> StateResult<JournalContents> {
    let damaged = |offset: usize, n: u64, problem: String| {
        let location = if n == 0 { "the header".to_owned() } else { format!("record {n}") };
        StateError::Damaged { path: path.to_owned(), offset: offset as u64, location, problem }
    };
    let mut header = None;
    let mut records: Vec<JournalRecord> = Vec::new();
    let (mut offset, mut checksum, mut n) = (0, 0, 0);
    let (mut torn, mut newline_missing) = (0, false);
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        let Some(right) = verify_checksum(checksum, line) else {
            // Without its newline it is a torn record, unless only the newline itself was changed into something else.
            if end.is_none() && n > 0 && verify_checksum(checksum, &line[..line.len() - 1]).is_none() {
                torn = line.len();
                break;
            }
            return Err(damaged(offset, n, "its checksum is wrong".to_owned()));
        };
        if n == 0 {
            let VersionRecord { header: HeaderVersion { schema_version: found } } =
                serde_json::from_slice(line).map_err(|error| damaged(offset, n, error.to_string()))?;
            if found > u64::from(JOURNAL_VERSION) {
                return Err(StateError::UnsupportedVersion {
                    path: path.to_owned(),
                    found,
                    supported: JOURNAL_VERSION,
                });
            }
            let read: HeaderRecordOwned =
                serde_json::from_slice(line).map_err(|error| damaged(offset, n, error.to_string()))?;
            if read.n != 0 {
                return Err(damaged(offset, n, format!("it says that it is record {}", read.n)));
            }
            if let Some(file) = read.header.spec.unknown_file() {
                return Err(damaged(offset, n, format!("it refers to tasks file {file}, which it does not list")));
            }
            header = Some(read.header);
        } else {
            let read: EventRecordOwned =
                serde_json::from_slice(line).map_err(|error| damaged(offset, n, error.to_string()))?;
            if read.n != n {
                return Err(damaged(offset, n, format!("it says that it is record {}", read.n)));
            }
            let elapsed = Duration::from_millis(read.elapsed_ms);
            records.push(JournalRecord { number: n, at: read.at, elapsed, event: read.event });
        }
        checksum = right;
        n += 1;
        offset += line.len() + usize::from(end.is_some());
        newline_missing = end.is_none();
    }
    let header = header.ok_or_else(|| damaged(0, 0, "it is not there".to_owned()))?;
    Ok(JournalContents {
        header,
        records,
        valid_bytes: offset as u64,
        torn_bytes: torn as u64,
        checksum,
        newline_missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_and_further_appends_fail() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().append(true).open(&path).expect("a device that is always full");
        let mut journal =
            Journal { path, file, next_number: 1, checksum: 7, bytes: 100, failed: false, count_file: None };
        assert_eq!(journal.append(&[], Timestamp::UNIX_EPOCH).expect("nothing to do"), 0);
        let events = [(Event::Began, Duration::ZERO)];
        let error = journal.append(&events, Timestamp::UNIX_EPOCH).expect_err("full");
        assert!(error.is_disk_full(), "{error:?}");
        assert_eq!((journal.event_count(), journal.byte_len()), (0, 100));
        // A device cannot be cut back to what it had, so what is on it is not known any more.
        assert!(matches!(journal.append(&events, Timestamp::UNIX_EPOCH), Err(StateError::JournalFailed(_))));
    }

    #[test]
    fn a_failed_append_is_rolled_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal.ndjson");
        std::fs::write(&path, "whole\nhalf").expect("written");
        let mut journal = Journal {
            file: open_for_append(&path).expect("opened"),
            path: path.clone(),
            next_number: 1,
            checksum: 7,
            bytes: 6,
            failed: false,
            count_file: None,
        };
        journal.roll_back();
        assert!(!journal.failed);
        assert_eq!(std::fs::read(&path).expect("read"), b"whole\n");
    }
}
