//! What is new in a mailbox, with its contents: a long poll that sleeps on file notification.
//!
//! Nothing is kept between two requests: what is new follows from what the host says that it has, so a depot that died is
//! replaced by another without a word. A file is taken once it has rested for [`SETTLE`], because other people's agents write
//! in place; one that cannot be a message yet gets [`PATIENCE`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::super::super::layout::Layout;
use super::super::{Sender, fault};
use super::{Mailbox, folder_at, names};
use crate::handoff::depot::{Answer, DepotFault, DepotFaultKind};
use crate::handoff::mailbox::{
    Arrived, BATCH_BYTES, BATCH_FILES, ENTRIES_MAX, MESSAGE_BYTES, MESSAGES_MAX, MailAsk, Numbers, REFUSALS_MAX,
    Refused, SHARED_BYTES, SHARED_MAX, SHARED_NAME_MAX, is_shared_name,
};
use crate::ids::AgentId;
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::store::{AGENTS, SHARED};
use crate::protocol::mailbox::text;
use crate::protocol::mailbox::watch::Watch;

/// How long a file must have rested.
const SETTLE: Duration = Duration::from_millis(50);
/// How long a message may be no message yet.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a burst of changes is given to go on before it is looked at.
const BURST: Duration = Duration::from_millis(10);
/// How often it is looked anyway.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A request's answer in the making.
#[derive(Default)]
struct News {
    files: Vec<Arrived>,
    data: Vec<u8>,
    gone: Vec<String>,
    refused: Vec<Refused>,
    more: bool,
    /// Something has not rested yet.
    restless: bool,
}

impl News {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.gone.is_empty() && self.refused.is_empty()
    }

    fn full(&self) -> bool {
        self.files.len() >= BATCH_FILES || self.data.len() as u64 >= BATCH_BYTES
    }
}

/// Waits for news, as long as the host wants to wait.
pub fn wait(layout: &Layout, ask: &MailAsk, sender: &Sender) -> Result<Answer, DepotFault> {
    let path = layout.mailbox();
    let until = Instant::now() + Duration::from_millis(ask.within_ms);
    // Before the first look, so that nothing falls between the two.
    let mut watch = Watch::new(&path);
    loop {
        let begun = Instant::now();
        let news = look(&Mailbox::open(&path)?, ask)?;
        if !news.is_empty() || Instant::now() >= until {
            sender.pump(&news.data[..]).map_err(|error| {
                fault(DepotFaultKind::Failed, format!("what is new in the mailbox cannot be passed on: {error}"))
            })?;
            let News { files, gone, refused, more, .. } = news;
            return Ok(Answer::Mail { files, gone, refused, more });
        }
        let rest = if news.restless { SETTLE } else { LOOK_EVERY };
        // Whoever changes something all the time gets a part of a processor and no more.
        let pause = BURST.max(begun.elapsed() * 3);
        watch.wait(until.min(Instant::now() + rest));
        std::thread::sleep(pause);
    }
}

fn look(mailbox: &Mailbox, ask: &MailAsk) -> Result<News, DepotFault> {
    let mut news = News::default();
    for agent in mailbox.outboxes()? {
        outbox_news(&folder_at(&mailbox.agents, agent.as_str())?, &agent, ask, &mut news)?;
    }
    shared_news(&mailbox.shared, ask, &mut news)?;
    Ok(news)
}

fn outbox_news(outbox: &File, agent: &AgentId, ask: &MailAsk, news: &mut News) -> Result<(), DepotFault> {
    let nothing = Numbers::default();
    let has = ask.messages.get(agent.as_str()).unwrap_or(&nothing);
    let listed = names(outbox)?;
    let mut room = MESSAGES_MAX.saturating_sub(has.count());
    let flooded = listed.len() >= ENTRIES_MAX;
    // Others may pad numbers otherwise; where a number has several files, it is that of the protocol's own form.
    let mut new = BTreeMap::new();
    for (name, seq) in listed.iter().filter_map(|name| Some((name, Seq::of_file_name(name)?))) {
        if !has.contains(seq.get()) && (!new.contains_key(&seq) || *name == seq.file_name()) {
            new.insert(seq, name);
        }
    }
    for (seq, name) in new {
        let path = format!("{AGENTS}/{agent}/{}", seq.file_name());
        if known_refused(outbox, name, &path, ask) {
            continue;
        }
        if news.full() {
            news.more = true;
            return Ok(());
        }
        if room == 0 {
            let why = format!("it has more than {MESSAGES_MAX} messages");
            refuse(news, ask, format!("{AGENTS}/{agent}"), "", &why);
            break;
        }
        match take(outbox, name, MESSAGE_BYTES, true, ask.settled) {
            Taken::File(bytes, _) => {
                room -= 1;
                arrived(news, path, String::new(), bytes);
            }
            Taken::Restless => news.restless = true,
            Taken::Gone => {}
            Taken::Refused(why) => refuse(news, ask, path, &kind_stamp(outbox, name), &why),
        }
    }
    if flooded {
        let why = format!("it has more than {ENTRIES_MAX} files");
        refuse(news, ask, format!("{AGENTS}/{agent}"), "", &why);
    }
    Ok(())
}

fn shared_news(shared: &File, ask: &MailAsk, news: &mut News) -> Result<(), DepotFault> {
    let listed = names(shared)?;
    let mut carried = ask.shared.keys().filter(|name| listed.iter().any(|found| found == *name)).count();
    for name in &listed {
        let path = format!("{SHARED}/{}", shown(name));
        // Hidden ones are being written.
        if (name.starts_with('.') && !is_shared_name(name)) || known_refused(shared, name, &path, ask) {
            continue;
        }
        if news.full() {
            news.more = true;
            break;
        }
        let known = ask.shared.get(name);
        if known.is_some() && stamp_at(shared, name).as_ref() == known {
            continue;
        }
        if !is_shared_name(name) {
            let why = "its name is not carried: letters, digits, `.`, `_` and `-`";
            refuse(news, ask, path, &kind_stamp(shared, name), why);
        } else if known.is_none() && carried >= SHARED_MAX {
            refuse(news, ask, SHARED.to_owned(), "", &format!("it has more than {SHARED_MAX} files"));
            break;
        } else {
            match take(shared, name, SHARED_BYTES, false, ask.settled) {
                Taken::File(bytes, stamp) => {
                    carried += usize::from(known.is_none());
                    arrived(news, path, stamp, bytes);
                }
                Taken::Restless => news.restless = true,
                Taken::Gone => {}
                Taken::Refused(why) => refuse(news, ask, path, &kind_stamp(shared, name), &why),
            }
        }
    }
    news.gone.extend(ask.shared.keys().filter(|name| stamp_at(shared, name).is_none()).cloned());
    Ok(())
}

fn arrived(news: &mut News, path: String, stamp: String, bytes: Vec<u8>) {
    news.files.push(Arrived { path, bytes: bytes.len() as u64, stamp });
    news.data.extend(bytes);
}

/// Says it once.
fn refuse(news: &mut News, ask: &MailAsk, path: String, stamp: &str, why: &str) {
    let key = refusal_key(&path, stamp);
    let room = ask.refused.len() + news.refused.len() < REFUSALS_MAX;
    if room && !ask.refused.contains(&key) && !news.refused.iter().any(|known| known.key == key) {
        news.refused.push(Refused { path, key, why: why.to_owned() });
    }
}

fn refusal_key(path: &str, stamp: &str) -> String {
    format!("{path} {stamp}")
}

fn known_refused(folder: &File, name: &str, path: &str, ask: &MailAsk) -> bool {
    !ask.refused.is_empty() && ask.refused.contains(&refusal_key(path, &kind_stamp(folder, name)))
}

/// A sandbox's name for something, as it may be shown.
fn shown(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && c != '/' { c } else { '?' };
    name.chars().take(SHARED_NAME_MAX + 1).map(plain).collect()
}

enum Taken {
    /// Its bytes, and its stamp.
    File(Vec<u8>, String),
    /// It may still be being written.
    Restless,
    /// It is not there any more.
    Gone,
    /// It is never taken.
    Refused(String),
}

/// Reads a file, if it may be. That it has other names too is no matter: whoever reads it looks at what it says of its sender.
fn take(folder: &File, name: &str, most: u64, message: bool, settled: bool) -> Taken {
    let file = match open_at(folder, name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Taken::Gone,
        Err(Errno::LOOP) => return Taken::Refused("it is a link".to_owned()),
        Err(Errno::NXIO) => return Taken::Refused("it is not a regular file".to_owned()),
        // Somebody holds a lease on it.
        Err(Errno::AGAIN) => return Taken::Restless,
        Err(error) => return Taken::Refused(format!("it cannot be opened: {error}")),
    };
    let Ok(meta) = file.metadata() else { return Taken::Restless };
    if !meta.is_file() {
        return Taken::Refused("it is not a regular file".to_owned());
    }
    if meta.len() > most {
        return Taken::Refused(format!("it has {} bytes, and {most} is the limit", meta.len()));
    }
    // A time to come is a lie, and no reason to wait.
    let age = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or(PATIENCE);
    if !settled && age < SETTLE {
        return Taken::Restless;
    }
    let stamp = stamp(meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let mut bytes = Vec::new();
    match file.take(most + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > most => return Taken::Refused(format!("it has more than {most} bytes")),
        Ok(_) => {}
        Err(error) => return Taken::Refused(format!("it cannot be read: {error}")),
    }
    let unfinished = message && !settled && age < PATIENCE && text::parse(&bytes).is_err();
    if unfinished { Taken::Restless } else { Taken::File(bytes, stamp) }
}

fn open_at(folder: &File, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// What a message's file has, where it is one.
pub(super) fn read_at(folder: &File, name: &str) -> Option<Vec<u8>> {
    let file = open_at(folder, name).ok()?;
    let mut bytes = Vec::new();
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.take(MESSAGE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn stamp(inode: u64, length: u64, seconds: i64, nanoseconds: i64) -> String {
    format!("{inode:x}.{length:x}.{seconds:x}.{nanoseconds:x}")
}

/// What a regular file is known by; none where there is no such file.
pub(super) fn stamp_at(folder: &File, name: &str) -> Option<String> {
    let meta = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile).then(|| stamp_of(&meta))
}

/// What anything is known by.
fn kind_stamp(folder: &File, name: &str) -> String {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|meta| stamp_of(&meta)).unwrap_or_default()
}

fn stamp_of(meta: &Stat) -> String {
    stamp(meta.st_ino, meta.st_size.cast_unsigned(), meta.st_mtime, meta.st_mtime_nsec.cast_signed())
}
