//! An agent at its mailbox: sends, and takes in what the others sent, where it stopped the last time.
//!
//! Beside the mailbox an agent has a private folder, which nobody else looks at: `read.json` (where it stands with each sender),
//! `sent/NNN.md` (a copy of each message that it sent, for those who ask for it again) and `last` (the highest number that it
//! used: a number that somebody has read is not used again, whatever became of the file). Several programs of one agent may
//! be at work at once: the folder has a lock.
//!
//! Carries out what `machine.rs` wants. Used by `shim/mail` and `cli/mailbox`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::folder::{Content as FileContent, Folder, Lock};
use super::machine::{Effect, Event, Letter, Limits, Machine, Missing, Snapshot, Warning};
use super::message::{AgentId, Content, Draft, Kind, MAX_READ, Message, MessageRef, Recipient, Seq};
use super::order::in_order;
use super::parts::join;
use super::roster::Status;
use super::rules::{self, Violation};
use super::store::{Mailbox, MailboxResult, Read};
use super::text;

const SENT: &str = "sent";
const LAST: &str = "last";
/// What the names in `sent` begin with of what was said to be gone.
const NO_COPY: &str = "no-";
const STANDING: &str = "read.json";
const LOCK: &str = ".lock";
/// The most rows of the roster that are looked at.
const MAX_ROWS: usize = 1000;
/// The most bytes of `read.json`.
const MAX_STANDING: usize = 16 * 1024 * 1024;
/// The most turns in which gaps are given up when all is read again.
const MAX_TURNS: usize = 500;
/// The most copies that are kept of what was sent.
const MAX_COPIES: usize = 2000;

/// The most questions of one agent that are answered at once.
const MAX_RESENDS: usize = 8;

/// An agent at its mailbox.
#[derive(Debug)]
pub struct Desk {
    mailbox: Mailbox,
    me: AgentId,
    private: PathBuf,
    limits: Limits,
}

/// What came in. Nothing of it counts as read before [`Batch::keep`].
#[derive(Debug)]
pub struct Batch {
    /// The messages for the agent, each sender's in order.
    pub letters: Vec<Letter>,
    /// What is to be told beside them.
    pub warnings: Vec<Warning>,
    /// When there is something to do even if nothing happens.
    pub deadline: Option<Timestamp>,
    machine: Machine,
    folder: Folder,
    before: Snapshot,
    _lock: Lock,
}

impl Batch {
    /// From now on all of this is read.
    pub fn keep(self) -> MailboxResult<()> {
        let now = self.machine.snapshot();
        if now == self.before {
            return Ok(());
        }
        // It is made of what serde knows to write.
        let bytes = serde_json::to_vec(&now).unwrap_or_default();
        self.folder.replace(STANDING, &bytes, 0o600)
    }

    /// How an agent that has nothing more to say went.
    pub fn finished(&self, agent: &AgentId) -> Option<Status> {
        self.machine.finished(agent)
    }

    /// Whether there are others, and none of them has anything more to say.
    pub fn all_finished(&self) -> bool {
        self.machine.all_finished()
    }
}

impl Desk {
    /// An agent's, with its private folder, which is made where there is none.
    pub fn new(mailbox: Mailbox, me: AgentId, private: &Path) -> Self {
        Self { mailbox, me, private: private.to_owned(), limits: Limits::default() }
    }

    /// The same, with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The mailbox.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Whose it is.
    pub fn me(&self) -> &AgentId {
        &self.me
    }

    /// The private folder, and its lock.
    fn private(&self) -> MailboxResult<(Folder, Lock)> {
        std::fs::create_dir_all(&self.private).map_err(|source| super::store::MailboxError::Io {
            doing: "create the folder",
            path: self.private.clone(),
            source,
        })?;
        let folder = Folder::open(&self.private)?;
        let lock = folder.lock(LOCK)?;
        Ok((folder, lock))
    }

    /// Sends what the draft says; returns the message, or its parts.
    pub fn send(&self, draft: &Draft, at: Timestamp) -> MailboxResult<Vec<Message>> {
        let (folder, _lock) = self.private()?;
        self.send_from(&folder, draft, at)
    }

    fn send_from(&self, folder: &Folder, draft: &Draft, at: Timestamp) -> MailboxResult<Vec<Message>> {
        let copies = folder.make_folder(SENT)?;
        let mut kept: Vec<Seq> = copies.names()?.iter().filter_map(|name| Seq::of_file_name(name)).collect();
        kept.sort();
        let used = match folder.read(LAST, MAX_READ)? {
            Some(FileContent::File(bytes, _)) => String::from_utf8_lossy(&bytes).trim().parse::<Seq>().ok(),
            _ => None,
        };
        let sent = self.mailbox.send(&self.me, draft, kept.last().copied().max(used), at)?;
        if let Some(last) = sent.last() {
            folder.replace(LAST, format!("{}\n", last.seq).as_bytes(), 0o600)?;
        }
        for message in &sent {
            copies.replace(&message.seq.file_name(), text::render(message).as_bytes(), 0o600)?;
        }
        for old in kept.iter().take((kept.len() + sent.len()).saturating_sub(MAX_COPIES)) {
            copies.remove(&old.file_name())?;
        }
        Ok(sent)
    }

    /// What speaks against a draft, without forbidding it: the one it is for is not there, or gone.
    pub fn doubts(&self, draft: &Draft) -> MailboxResult<Vec<String>> {
        let Recipient::One(to) = &draft.to else { return Ok(Vec::new()) };
        let row = self.mailbox.roster()?.row(to);
        let doubt = match row.map(|row| row.status) {
            _ if *to == self.me => Some("it is for yourself".to_owned()),
            Some(status) if status.is_gone() => Some(format!("{to} is gone (`{status}`)")),
            Some(_) => None,
            None if self.mailbox.agents()?.contains(to) => None,
            None => Some(format!("nobody is called {to} yet; who is there: `roster`")),
        };
        Ok(doubt.into_iter().collect())
    }

    /// A message of anybody, whole; or why it cannot be had. Any part of a message in parts will do.
    pub fn find(&self, reference: &MessageRef) -> MailboxResult<Result<Message, String>> {
        let MessageRef { from, seq } = reference;
        let files = self.mailbox.listing(from)?.files;
        let read = |seq: Seq| match files.get(&seq) {
            Some(name) => self.mailbox.read(from, seq, name),
            None => Ok(Read::Missing),
        };
        let message = match read(*seq)? {
            Read::Message(message) => *message,
            Read::Missing => return Ok(Err(format!("there is no message {reference}"))),
            Read::Bad(violation) => return Ok(Err(format!("{reference} is no message: {violation}"))),
        };
        let Some(part) = message.part else { return Ok(Ok(message)) };
        let first = seq.get().saturating_sub(u32::from(part.number) - 1);
        let mut parts = Vec::new();
        for number in first..first.saturating_add(u32::from(part.of)) {
            if let Some(seq) = Seq::new(number)
                && let Read::Message(message) = read(seq)?
                && message.part.is_some_and(|other| other.of == part.of)
            {
                parts.push(*message);
            }
        }
        Ok(Ok(join(&parts).unwrap_or(message)))
    }

    /// Everything that was ever sent to the agent, as the conversation went, whether it was read or not. Nothing is asked for, and nothing
    /// counts as read.
    pub fn again(&self, now: Timestamp) -> MailboxResult<Vec<Letter>> {
        let no_patience =
            Limits { grace: Duration::ZERO, torn: Duration::ZERO, resend: Duration::ZERO, parts: Duration::ZERO };
        let mut machine = Machine::new(self.me.clone(), no_patience, &Snapshot::default());
        let mut letters = Vec::new();
        // A gap is asked for at one turn and given up at the next.
        for _ in 0..MAX_TURNS {
            self.turn(&mut machine, now, |effect| {
                if let Effect::Deliver(letter) = effect {
                    letters.push(*letter);
                }
                Ok(())
            })?;
            if machine.next_deadline().is_none() {
                break;
            }
        }
        Ok(in_order(letters, |letter| &letter.message, |letter| letter.message.timestamp))
    }

    /// Takes in what is there: what is delivered comes back; what is missing is asked for again, and what others ask for is
    /// put back. The private folder is locked until the batch is gone.
    pub fn collect(&self, now: Timestamp) -> MailboxResult<Batch> {
        let (folder, lock) = self.private()?;
        let before = standing(&folder)?;
        let mut machine = Machine::new(self.me.clone(), self.limits, &before);
        let (mut letters, mut warnings) = (Vec::new(), Vec::new());
        let mut resent: Vec<(AgentId, Seq)> = Vec::new();
        self.turn(&mut machine, now, |effect| {
            match effect {
                Effect::Deliver(letter) => letters.push(*letter),
                Effect::Warn(warning) => warnings.push(warning),
                Effect::Ask(missing) => self.ask(&folder, &missing, now)?,
                Effect::Resend { asked_by, first, last } => {
                    // Who asks again and again, or for everything there could be, is to keep nobody from its work.
                    let mut own = resent.iter().filter(|(agent, _)| *agent == asked_by.from);
                    if own.clone().count() < MAX_RESENDS && own.all(|(_, known)| *known != first) {
                        resent.push((asked_by.from.clone(), first));
                        self.resend(&folder, &asked_by, first, last, now)?;
                    }
                }
                Effect::Fetch(..) => {}
            }
            Ok(())
        })?;
        let deadline = machine.next_deadline();
        let letters = in_order(letters, |letter| &letter.message, |letter| letter.message.timestamp);
        Ok(Batch { letters, warnings, deadline, machine, folder, before, _lock: lock })
    }

    /// Tells the machine all that is there, and hands on what it wants, but for files: these it is given.
    fn turn(
        &self,
        machine: &mut Machine,
        now: Timestamp,
        mut carry_out: impl FnMut(Effect) -> MailboxResult<()>,
    ) -> MailboxResult<()> {
        let mut rows = self.mailbox.roster()?.rows();
        rows.truncate(MAX_ROWS);
        let mut files: BTreeMap<AgentId, BTreeMap<Seq, String>> = BTreeMap::new();
        let mut effects = VecDeque::new();
        for agent in self.mailbox.agents()?.into_iter().filter(|agent| *agent != self.me) {
            let listing = self.mailbox.listing(&agent)?.files;
            effects.extend(machine.handle(Event::Listed(agent.clone(), listing.keys().copied().collect()), now));
            files.insert(agent, listing);
        }
        // Read before the outboxes, told behind them: who is gone has said all that is there.
        effects.extend(machine.handle(Event::Roster(rows), now));
        while let Some(effect) = effects.pop_front() {
            let Effect::Fetch(agent, seq) = effect else {
                carry_out(effect)?;
                continue;
            };
            let read = match files.get(&agent).and_then(|files| files.get(&seq)) {
                None => Read::Missing,
                Some(name) => self.mailbox.read(&agent, seq, name).unwrap_or_else(|error| {
                    let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    Read::Bad(Violation::new(rules::FILE_KIND, format!("it cannot be read: {why}")))
                }),
            };
            effects.extend(machine.handle(Event::Fetched(agent, seq, read), now));
        }
        Ok(())
    }

    /// Sequence gap: "Send ERROR requesting resend".
    fn ask(&self, folder: &Folder, missing: &Missing, now: Timestamp) -> MailboxResult<()> {
        let Missing { from, first, last, bad } = missing;
        let body = match bad {
            Some(violation) => {
                format!("{from}/{first} cannot be read: {violation}. Please put the file back as you sent it.")
            }
            None if first == last => format!("{from}/{first} is missing. Please put the file back as you sent it."),
            None => format!("{from}/{first} to {from}/{last} are missing. Please put the files back as you sent them."),
        };
        let draft = Draft::new(Recipient::One(from.clone()), Kind::Error, missing.subject(), body);
        self.send_from(folder, &draft.about(missing.reference()), now).map(drop)
    }

    /// Puts back what is asked for and is not there, from the copies. What there is no copy of is said.
    fn resend(
        &self,
        folder: &Folder,
        asked_by: &MessageRef,
        first: Seq,
        last: Seq,
        now: Timestamp,
    ) -> MailboxResult<()> {
        let copies = folder.make_folder(SENT)?;
        let kept: Vec<Seq> = copies.names()?.iter().filter_map(|name| Seq::of_file_name(name)).collect();
        let there = self.mailbox.listing(&self.me)?.files;
        for seq in kept.iter().filter(|seq| (first..=last).contains(seq)) {
            if let Some(FileContent::File(bytes, _)) = copies.read(&seq.file_name(), MAX_READ)?
                && self.mailbox.bytes(&self.me, &seq.file_name())?.as_ref() != Some(&bytes)
            {
                self.mailbox.restore(&self.me, *seq, &bytes)?;
            }
        }
        // A range is asked for by whoever sees its ends; its first will do. What was never sent nobody misses, and all read
        // what was said once.
        let sent = there.last_key_value().is_some_and(|(last, _)| first < *last);
        if sent
            && !kept.contains(&first)
            && !there.contains_key(&first)
            && copies.add(&format!("{NO_COPY}{first}"), b"", 0o600)?
        {
            let reference = MessageRef { from: self.me.clone(), seq: first };
            let body = format!("There is no copy of {reference}. Please go on without it.");
            let content = Content { subject: Missing::answer(&reference), body, ..Content::default() };
            let to = Recipient::One(asked_by.from.clone());
            let draft = Draft { content, ..Draft::new(to, Kind::Error, "", "") };
            self.send_from(folder, &draft.about(asked_by.clone()), now)?;
        }
        Ok(())
    }
}

/// What was kept of the last time. Nothing where there is nothing, or where it is torn: then all is read once more.
fn standing(folder: &Folder) -> MailboxResult<Snapshot> {
    match folder.read(STANDING, MAX_STANDING)? {
        Some(FileContent::File(bytes, _)) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        _ => Ok(Snapshot::default()),
    }
}

/// All messages of a mailbox, each sender's in order; and what is in outboxes and is none.
pub fn everything(mailbox: &Mailbox) -> MailboxResult<(Vec<Message>, Vec<BadFile>)> {
    let (mut messages, mut bad) = (Vec::new(), Vec::new());
    for agent in mailbox.agents()? {
        let listing = mailbox.listing(&agent)?;
        for (seq, name) in listing.files {
            match mailbox.read(&agent, seq, &name)? {
                Read::Message(message) => messages.push(*message),
                Read::Bad(violation) => bad.push(BadFile { agent: agent.clone(), name, violation }),
                Read::Missing => {}
            }
        }
        let odd = listing.odd.into_iter().map(|name| {
            let violation = Violation::new(rules::FILE_NAME, format!("`{name}` is not a message's number"));
            BadFile { agent: agent.clone(), name, violation }
        });
        bad.extend(odd);
    }
    Ok((messages, bad))
}

/// A file in an outbox that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    /// Whose outbox.
    pub agent: AgentId,
    /// The file's name.
    pub name: String,
    /// What it breaks.
    pub violation: Violation,
}

#[cfg(test)]
mod tests;
