//! What is new in a mailbox, with its contents: a long poll that sleeps on file notification.
//!
//! Nothing is kept between two requests: what is new follows from what the host says that it has, so a depot that died is
//! replaced by another without a word. A file is taken once it has rested for [`SETTLE_TIME`], because other people's agents write
//! in place; one that cannot be a message yet gets [`PARTIAL_MESSAGE_TIMEOUT`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::super::super::layout::Layout;
use super::super::{ResponseSender, depot_error};
use super::{MailboxDirs, list_names, open_dir_at};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse};
use crate::handoff::mailbox::{
    MAX_BATCH_BYTES, MAX_BATCH_FILES, MAX_DIR_ENTRIES, MAX_MESSAGE_BYTES, MAX_OUTBOX_MESSAGES, MAX_REFUSALS,
    MAX_SHARED_FILE_BYTES, MAX_SHARED_FILES, MAX_SHARED_NAME_LEN, MailQuery, MessageNumbers, NewMailFile,
    RefusedMailFile, is_shared_name,
};
use crate::ids::AgentId;
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::store::{AGENTS_DIR, SHARED_DIR};
use crate::protocol::mailbox::text;
use crate::protocol::mailbox::watch::MailboxWatcher;

/// How long a file must have rested.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// How long a message may be no message yet.
const PARTIAL_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a burst of changes is given to go on before it is looked at.
const BURST_DELAY: Duration = Duration::from_millis(10);
/// How often it is looked anyway.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A request's answer in the making.
#[derive(Default)]
struct MailDelta {
    files: Vec<NewMailFile>,
    data: Vec<u8>,
    removed: Vec<String>,
    refused: Vec<RefusedMailFile>,
    has_more: bool,
    /// Something has not rested yet.
    has_unsettled: bool,
}

impl MailDelta {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.removed.is_empty() && self.refused.is_empty()
    }

    fn is_full(&self) -> bool {
        self.files.len() >= MAX_BATCH_FILES || self.data.len() as u64 >= MAX_BATCH_BYTES
    }
}

/// Waits for news, as long as the host wants to wait.
pub fn wait_for_mail(layout: &Layout, ask: &MailQuery, sender: &ResponseSender) -> Result<DepotResponse, DepotError> {
    let path = layout.mailbox_volume();
    let until = Instant::now() + Duration::from_millis(ask.timeout_ms);
    // Before the first look, so that nothing falls between the two.
    let mut watch = MailboxWatcher::new(&path);
    loop {
        let begun = Instant::now();
        let news = scan(&MailboxDirs::open(&path)?, ask)?;
        if !news.is_empty() || Instant::now() >= until {
            sender.send_all(&news.data[..]).map_err(|error| {
                depot_error(DepotErrorKind::Failed, format!("what is new in the mailbox cannot be passed on: {error}"))
            })?;
            let MailDelta { files, removed: gone, refused, has_more: more, .. } = news;
            return Ok(DepotResponse::NewMail { files, removed: gone, refused, has_more: more });
        }
        let rest = if news.has_unsettled { SETTLE_TIME } else { POLL_INTERVAL };
        // Whoever changes something all the time gets a part of a processor and no more.
        let pause = BURST_DELAY.max(begun.elapsed() * 3);
        watch.wait(until.min(Instant::now() + rest));
        std::thread::sleep(pause);
    }
}

fn scan(mailbox: &MailboxDirs, ask: &MailQuery) -> Result<MailDelta, DepotError> {
    let mut news = MailDelta::default();
    for agent in mailbox.list_outboxes()? {
        scan_outbox(&open_dir_at(&mailbox.agents, agent.as_str())?, &agent, ask, &mut news)?;
    }
    scan_shared(&mailbox.shared, ask, &mut news)?;
    Ok(news)
}

fn scan_outbox(outbox: &File, agent: &AgentId, ask: &MailQuery, news: &mut MailDelta) -> Result<(), DepotError> {
    let nothing = MessageNumbers::default();
    let has = ask.known_messages.get(agent.as_str()).unwrap_or(&nothing);
    let listed = list_names(outbox)?;
    let mut room = MAX_OUTBOX_MESSAGES.saturating_sub(has.count());
    let flooded = listed.len() >= MAX_DIR_ENTRIES;
    // Others may pad numbers otherwise; where a number has several files, it is that of the protocol's own form.
    let mut new = BTreeMap::new();
    for (name, seq) in listed.iter().filter_map(|name| Some((name, Seq::from_file_name(name)?))) {
        if !has.contains(seq.get()) && (!new.contains_key(&seq) || *name == seq.file_name()) {
            new.insert(seq, name);
        }
    }
    for (seq, name) in new {
        let path = format!("{AGENTS_DIR}/{agent}/{}", seq.file_name());
        if is_known_refusal(outbox, name, &path, ask) {
            continue;
        }
        if news.is_full() {
            news.has_more = true;
            return Ok(());
        }
        if room == 0 {
            let why = format!("it has more than {MAX_OUTBOX_MESSAGES} messages");
            add_refusal(news, ask, format!("{AGENTS_DIR}/{agent}"), "", &why);
            break;
        }
        match read_settled(outbox, name, MAX_MESSAGE_BYTES, true, ask.writers_stopped) {
            FileRead::File(bytes, _) => {
                room -= 1;
                add_file(news, path, String::new(), bytes);
            }
            FileRead::Unsettled => news.has_unsettled = true,
            FileRead::Gone => {}
            FileRead::Refused(why) => add_refusal(news, ask, path, &any_stamp_at(outbox, name), &why),
        }
    }
    if flooded {
        let why = format!("it has more than {MAX_DIR_ENTRIES} files");
        add_refusal(news, ask, format!("{AGENTS_DIR}/{agent}"), "", &why);
    }
    Ok(())
}

fn scan_shared(shared: &File, ask: &MailQuery, news: &mut MailDelta) -> Result<(), DepotError> {
    let listed = list_names(shared)?;
    let mut carried = ask.known_shared.keys().filter(|name| listed.iter().any(|found| found == *name)).count();
    for name in &listed {
        let path = format!("{SHARED_DIR}/{}", printable_name(name));
        // Hidden ones are being written.
        if (name.starts_with('.') && !is_shared_name(name)) || is_known_refusal(shared, name, &path, ask) {
            continue;
        }
        if news.is_full() {
            news.has_more = true;
            break;
        }
        let known = ask.known_shared.get(name);
        if known.is_some() && stamp_at(shared, name).as_ref() == known {
            continue;
        }
        if !is_shared_name(name) {
            let why = "its name is not carried: letters, digits, `.`, `_` and `-`";
            add_refusal(news, ask, path, &any_stamp_at(shared, name), why);
        } else if known.is_none() && carried >= MAX_SHARED_FILES {
            add_refusal(news, ask, SHARED_DIR.to_owned(), "", &format!("it has more than {MAX_SHARED_FILES} files"));
            break;
        } else {
            match read_settled(shared, name, MAX_SHARED_FILE_BYTES, false, ask.writers_stopped) {
                FileRead::File(bytes, stamp) => {
                    carried += usize::from(known.is_none());
                    add_file(news, path, stamp, bytes);
                }
                FileRead::Unsettled => news.has_unsettled = true,
                FileRead::Gone => {}
                FileRead::Refused(why) => add_refusal(news, ask, path, &any_stamp_at(shared, name), &why),
            }
        }
    }
    news.removed.extend(ask.known_shared.keys().filter(|name| stamp_at(shared, name).is_none()).cloned());
    Ok(())
}

fn add_file(news: &mut MailDelta, path: String, stamp: String, bytes: Vec<u8>) {
    news.files.push(NewMailFile { path, bytes: bytes.len() as u64, stamp });
    news.data.extend(bytes);
}

/// Says it once.
fn add_refusal(news: &mut MailDelta, ask: &MailQuery, path: String, stamp: &str, why: &str) {
    let key = refusal_key(&path, stamp);
    let room = ask.known_refusals.len() + news.refused.len() < MAX_REFUSALS;
    if room && !ask.known_refusals.contains(&key) && !news.refused.iter().any(|known| known.key == key) {
        news.refused.push(RefusedMailFile { path, key, reason: why.to_owned() });
    }
}

fn refusal_key(path: &str, stamp: &str) -> String {
    format!("{path} {stamp}")
}

fn is_known_refusal(folder: &File, name: &str, path: &str, ask: &MailQuery) -> bool {
    !ask.known_refusals.is_empty() && ask.known_refusals.contains(&refusal_key(path, &any_stamp_at(folder, name)))
}

/// A sandbox's name for something, as it may be shown.
fn printable_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && c != '/' { c } else { '?' };
    name.chars().take(MAX_SHARED_NAME_LEN + 1).map(plain).collect()
}

enum FileRead {
    /// Its bytes, and its stamp.
    File(Vec<u8>, String),
    /// It may still be being written.
    Unsettled,
    /// It is not there any more.
    Gone,
    /// It is never taken.
    Refused(String),
}

/// Reads a file, if it may be. That it has other names too is no matter: whoever reads it looks at what it says of its sender.
fn read_settled(folder: &File, name: &str, most: u64, message: bool, settled: bool) -> FileRead {
    let file = match open_file_at(folder, name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return FileRead::Gone,
        Err(Errno::LOOP) => return FileRead::Refused("it is a link".to_owned()),
        Err(Errno::NXIO) => return FileRead::Refused("it is not a regular file".to_owned()),
        // Somebody holds a lease on it.
        Err(Errno::AGAIN) => return FileRead::Unsettled,
        Err(error) => return FileRead::Refused(format!("it cannot be opened: {error}")),
    };
    let Ok(meta) = file.metadata() else { return FileRead::Unsettled };
    if !meta.is_file() {
        return FileRead::Refused("it is not a regular file".to_owned());
    }
    if meta.len() > most {
        return FileRead::Refused(format!("it has {} bytes, and {most} is the limit", meta.len()));
    }
    // A time to come is a lie, and no reason to wait.
    let age = meta
        .modified()
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok())
        .unwrap_or(PARTIAL_MESSAGE_TIMEOUT);
    if !settled && age < SETTLE_TIME {
        return FileRead::Unsettled;
    }
    let stamp = format_stamp(meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let mut bytes = Vec::new();
    match file.take(most + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > most => return FileRead::Refused(format!("it has more than {most} bytes")),
        Ok(_) => {}
        Err(error) => return FileRead::Refused(format!("it cannot be read: {error}")),
    }
    let unfinished = message && !settled && age < PARTIAL_MESSAGE_TIMEOUT && text::parse(&bytes).is_err();
    if unfinished { FileRead::Unsettled } else { FileRead::File(bytes, stamp) }
}

fn open_file_at(folder: &File, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// What a message's file has, where it is one.
pub(super) fn read_file_at(folder: &File, name: &str) -> Option<Vec<u8>> {
    let file = open_file_at(folder, name).ok()?;
    let mut bytes = Vec::new();
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn format_stamp(inode: u64, length: u64, seconds: i64, nanoseconds: i64) -> String {
    format!("{inode:x}.{length:x}.{seconds:x}.{nanoseconds:x}")
}

/// What a regular file is known by; none where there is no such file.
pub(super) fn stamp_at(folder: &File, name: &str) -> Option<String> {
    let meta = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile).then(|| stamp_of(&meta))
}

/// What anything is known by.
fn any_stamp_at(folder: &File, name: &str) -> String {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|meta| stamp_of(&meta)).unwrap_or_default()
}

fn stamp_of(meta: &Stat) -> String {
    format_stamp(meta.st_ino, meta.st_size.cast_unsigned(), meta.st_mtime, meta.st_mtime_nsec.cast_signed())
}
