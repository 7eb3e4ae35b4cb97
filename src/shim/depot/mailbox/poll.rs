//! Reports new files of a mailbox with their content: a long poll that sleeps on file notification.
//!
//! No state is kept between requests: the host says what it has, so a depot that died can be replaced at any time. A file is read
//! once it is unchanged for [`SETTLE_TIME`], because other programs write in place. A file that is not yet a message gets
//! [`PARTIAL_MESSAGE_TIMEOUT`].

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;

use super::super::super::layout::Layout;
use super::super::{ResponseSender, depot_error};
use super::dirs::{MailboxDirs, entry_names, entry_stamp, file_stamp};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse};
use crate::handoff::mailbox::{
    MAX_BATCH_BYTES, MAX_BATCH_FILES, MAX_DIR_ENTRIES, MAX_MESSAGE_BYTES, MAX_OUTBOX_MESSAGES, MAX_REFUSALS,
    MAX_SHARED_FILE_BYTES, MAX_SHARED_FILES, MAX_SHARED_NAME_LEN, MailQuery, MessageNumbers, NewMailFile,
    RefusedMailFile, format_stamp, is_shared_name,
};
use crate::ids::AgentId;
use crate::protocol::mailbox::layout::{AGENTS_DIR, SHARED_DIR};
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::open_dir::OpenDir;
use crate::protocol::mailbox::text;
use crate::protocol::mailbox::watch::MailboxWatcher;

const SETTLE_TIME: Duration = Duration::from_millis(50);
const PARTIAL_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for more changes after the first one.
const BURST_DELAY: Duration = Duration::from_millis(10);
/// How often to scan without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for changes that are new to the host.
pub fn wait_for_mail(layout: &Layout, query: &MailQuery, sender: &ResponseSender) -> Result<DepotResponse, DepotError> {
    let path = layout.mailbox_volume();
    let until = Instant::now() + Duration::from_millis(query.timeout_ms);
    // Before the first scan, so that no change is missed.
    let mut watch = MailboxWatcher::new(&path);
    loop {
        let started_at = Instant::now();
        let delta = MailDelta::scan(&MailboxDirs::open(&path)?, query)?;
        if !delta.is_empty() || Instant::now() >= until {
            let failed = |error| depot_error(DepotErrorKind::Failed, format!("cannot send the new mail: {error}"));
            sender.send_all(&delta.data[..]).map_err(failed)?;
            let MailDelta { files, removed, refused, has_more, .. } = delta;
            return Ok(DepotResponse::NewMail { files, removed, refused, has_more });
        }
        // Constant changes must not keep a whole processor busy.
        let pause = BURST_DELAY.max(started_at.elapsed() * 3);
        let interval = if delta.has_unsettled { SETTLE_TIME } else { POLL_INTERVAL };
        watch.wait(until.min(Instant::now() + interval));
        std::thread::sleep(pause);
    }
}

/// The response under construction.
struct MailDelta<'q> {
    query: &'q MailQuery,
    files: Vec<NewMailFile>,
    data: Vec<u8>,
    removed: Vec<String>,
    refused: Vec<RefusedMailFile>,
    has_more: bool,
    /// A file changed too recently.
    has_unsettled: bool,
}

impl<'q> MailDelta<'q> {
    fn scan(mailbox: &MailboxDirs, query: &'q MailQuery) -> Result<Self, DepotError> {
        let mut delta = Self {
            query,
            files: Vec::new(),
            data: Vec::new(),
            removed: Vec::new(),
            refused: Vec::new(),
            has_more: false,
            has_unsettled: false,
        };
        for agent in mailbox.agents()? {
            delta.scan_outbox(&mailbox.outbox(&agent)?, &agent)?;
        }
        delta.scan_shared(&mailbox.shared)?;
        Ok(delta)
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.removed.is_empty() && self.refused.is_empty()
    }

    fn is_full(&self) -> bool {
        self.files.len() >= MAX_BATCH_FILES || self.data.len() as u64 >= MAX_BATCH_BYTES
    }

    fn scan_outbox(&mut self, outbox: &OpenDir, agent: &AgentId) -> Result<(), DepotError> {
        let none = MessageNumbers::default();
        let known = self.query.known_messages.get(agent.as_str()).unwrap_or(&none);
        let names = entry_names(outbox)?;
        let mut room = MAX_OUTBOX_MESSAGES.saturating_sub(known.count());
        // If several files have one number, because of different padding, the name of the spec wins.
        let mut new = BTreeMap::new();
        for (name, seq) in names.iter().filter_map(|name| Some((name, Seq::from_file_name(name)?))) {
            if !known.contains(seq.get()) && (!new.contains_key(&seq) || *name == seq.file_name()) {
                new.insert(seq, name);
            }
        }
        let outbox_path = format!("{AGENTS_DIR}/{agent}");
        for (seq, name) in new {
            let path = format!("{outbox_path}/{}", seq.file_name());
            if self.is_known_refusal(outbox, name, &path) {
                continue;
            }
            if self.is_full() {
                self.has_more = true;
                return Ok(());
            }
            if room == 0 {
                self.refuse(outbox_path.clone(), "", format!("it has more than {MAX_OUTBOX_MESSAGES} messages"));
                break;
            }
            let read = read_settled(outbox, name, MAX_MESSAGE_BYTES, true, self.query.writers_stopped);
            // A message is immutable and has no stamp.
            let read = if let FileRead::File(bytes, _) = read { FileRead::File(bytes, String::new()) } else { read };
            room -= usize::from(self.add(outbox, name, path, read));
        }
        if names.len() >= MAX_DIR_ENTRIES {
            self.refuse(outbox_path, "", format!("it has more than {MAX_DIR_ENTRIES} files"));
        }
        Ok(())
    }

    fn scan_shared(&mut self, shared: &OpenDir) -> Result<(), DepotError> {
        let query = self.query;
        let names = entry_names(shared)?;
        let mut count = query.known_shared.keys().filter(|name| names.contains(name)).count();
        for name in &names {
            let path = format!("{SHARED_DIR}/{}", printable_name(name));
            let is_temp = name.starts_with('.') && !is_shared_name(name);
            if is_temp || self.is_known_refusal(shared, name, &path) {
                continue;
            }
            if self.is_full() {
                self.has_more = true;
                break;
            }
            let known = query.known_shared.get(name);
            if known.is_some() && file_stamp(shared, name).as_ref() == known {
                continue;
            }
            if !is_shared_name(name) {
                let reason = "its name has characters other than letters, digits, `.`, `_` and `-`, or is too long";
                self.refuse(path, &entry_stamp(shared, name), reason.to_owned());
            } else if known.is_none() && count >= MAX_SHARED_FILES {
                self.refuse(SHARED_DIR.to_owned(), "", format!("it has more than {MAX_SHARED_FILES} files"));
                break;
            } else {
                let read = read_settled(shared, name, MAX_SHARED_FILE_BYTES, false, query.writers_stopped);
                count += usize::from(self.add(shared, name, path, read) && known.is_none());
            }
        }
        self.removed.extend(query.known_shared.keys().filter(|name| file_stamp(shared, name).is_none()).cloned());
        Ok(())
    }

    /// Adds the result of reading a file. Returns whether the file is transferred.
    fn add(&mut self, dir: &OpenDir, name: &str, path: String, read: FileRead) -> bool {
        match read {
            FileRead::File(bytes, stamp) => {
                self.files.push(NewMailFile { path, bytes: bytes.len() as u64, stamp });
                self.data.extend(bytes);
                return true;
            }
            FileRead::Unsettled => self.has_unsettled = true,
            FileRead::Gone => {}
            FileRead::Refused(reason) => self.refuse(path, &entry_stamp(dir, name), reason),
        }
        false
    }

    /// Reports a refusal, once and up to the limit.
    fn refuse(&mut self, path: String, stamp: &str, reason: String) {
        let key = refusal_key(&path, stamp);
        let has_room = self.query.known_refusals.len() + self.refused.len() < MAX_REFUSALS;
        let is_known = self.query.known_refusals.contains(&key) || self.refused.iter().any(|known| known.key == key);
        if has_room && !is_known {
            self.refused.push(RefusedMailFile { path, key, reason });
        }
    }

    fn is_known_refusal(&self, dir: &OpenDir, name: &str, path: &str) -> bool {
        let known = &self.query.known_refusals;
        !known.is_empty() && known.contains(&refusal_key(path, &entry_stamp(dir, name)))
    }
}

fn refusal_key(path: &str, stamp: &str) -> String {
    format!("{path} {stamp}")
}

fn printable_name(name: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() && c != '/' { c } else { '?' };
    name.chars().take(MAX_SHARED_NAME_LEN + 1).map(printable).collect()
}

enum FileRead {
    /// The bytes and the stamp.
    File(Vec<u8>, String),
    /// The file may still be incomplete.
    Unsettled,
    Gone,
    /// The file is never transferred: the reason.
    Refused(String),
}

/// Reads a file if it may be transferred. Hard links are fine: readers check who a message says it is from.
fn read_settled(dir: &OpenDir, name: &str, limit: u64, is_message: bool, writers_stopped: bool) -> FileRead {
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return FileRead::Gone,
        Err(Errno::LOOP) => return FileRead::Refused("it is a link".to_owned()),
        Err(Errno::NXIO) => return FileRead::Refused("it is not a regular file".to_owned()),
        // Another process holds a lease.
        Err(Errno::AGAIN) => return FileRead::Unsettled,
        Err(error) => return FileRead::Refused(format!("it cannot be opened: {error}")),
    };
    let Ok(meta) = file.metadata() else { return FileRead::Unsettled };
    if !meta.is_file() {
        return FileRead::Refused("it is not a regular file".to_owned());
    }
    if meta.len() > limit {
        return FileRead::Refused(format!("it has {} bytes, the limit is {limit}", meta.len()));
    }
    // A modification time in the future is false, and no reason to wait.
    let modified = meta.modified().ok();
    let age = modified.and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or(PARTIAL_MESSAGE_TIMEOUT);
    if !writers_stopped && age < SETTLE_TIME {
        return FileRead::Unsettled;
    }
    let stamp = format_stamp(meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let mut bytes = Vec::new();
    match file.take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => return FileRead::Refused(format!("it has more than {limit} bytes")),
        Ok(_) => {}
        Err(error) => return FileRead::Refused(format!("it cannot be read: {error}")),
    }
    let may_be_partial = is_message && !writers_stopped && age < PARTIAL_MESSAGE_TIMEOUT;
    if may_be_partial && text::parse(&bytes).is_err() { FileRead::Unsettled } else { FileRead::File(bytes, stamp) }
}
