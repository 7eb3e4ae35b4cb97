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

use super::machine::{
    DeliveredMessage, MailboxEffect, MailboxEvent, MailboxMachine, MissingRange, ReaderSnapshot, ReaderTimeouts,
    Warning,
};
use super::message::{
    AgentId, MAX_READ_BYTES, MailboxDraft, MailboxMessage, MailboxMessageType, MessageContent, MessageRecipient,
    MessageRef, Seq,
};
use super::open_dir::{DirLock, FileContent, OpenDir};
use super::order::conversation_order;
use super::parts::join;
use super::roster::AgentStatus;
use super::rules::{self, MailboxViolation};
use super::store::{Mailbox, MailboxResult, ReadOutcome};
use super::text;

const SENT_DIR: &str = "sent";
const LAST_SEQ_FILE: &str = "last";
/// What the names in `sent` begin with of what was said to be gone.
const NO_COPY_PREFIX: &str = "no-";
const SNAPSHOT_FILE: &str = "read.json";
const LOCK_FILE: &str = ".lock";
/// The most rows of the roster that are looked at.
const MAX_ROSTER_ENTRIES: usize = 1000;
/// The most bytes of `read.json`.
const MAX_SNAPSHOT_BYTES: usize = 16 * 1024 * 1024;
/// The most turns in which gaps are given up when all is read again.
const MAX_HISTORY_ROUNDS: usize = 500;
/// The most copies that are kept of what was sent.
const MAX_SENT_COPIES: usize = 2000;

/// The most questions of one agent that are answered at once.
const MAX_RESENDS: usize = 8;

/// An agent at its mailbox.
#[derive(Debug)]
pub struct AgentMailbox {
    mailbox: Mailbox,
    me: AgentId,
    private_dir: PathBuf,
    timeouts: ReaderTimeouts,
}

/// What came in. Nothing of it counts as read before [`MessageBatch::commit`].
#[derive(Debug)]
pub struct MessageBatch {
    /// The messages for the agent, each sender's in order.
    pub messages: Vec<DeliveredMessage>,
    /// What is to be told beside them.
    pub warnings: Vec<Warning>,
    /// When there is something to do even if nothing happens.
    pub deadline: Option<Timestamp>,
    machine: MailboxMachine,
    folder: OpenDir,
    before: ReaderSnapshot,
    _lock: DirLock,
}

impl MessageBatch {
    /// From now on all of this is read.
    pub fn commit(self) -> MailboxResult<()> {
        let now = self.machine.snapshot();
        if now == self.before {
            return Ok(());
        }
        // It is made of what serde knows to write.
        let bytes = serde_json::to_vec(&now).unwrap_or_default();
        self.folder.replace(SNAPSHOT_FILE, &bytes, 0o600)
    }

    /// How an agent that has nothing more to say went.
    pub fn finished_status(&self, agent: &AgentId) -> Option<AgentStatus> {
        self.machine.finished_status(agent)
    }

    /// Whether there are others, and none of them has anything more to say.
    pub fn all_finished(&self) -> bool {
        self.machine.all_finished()
    }
}

impl AgentMailbox {
    /// An agent's, with its private folder, which is made where there is none.
    pub fn new(mailbox: Mailbox, me: AgentId, private: &Path) -> Self {
        Self { mailbox, me, private_dir: private.to_owned(), timeouts: ReaderTimeouts::default() }
    }

    /// The same, with other limits.
    pub fn with_timeouts(self, limits: ReaderTimeouts) -> Self {
        Self { timeouts: limits, ..self }
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
    fn lock_private_dir(&self) -> MailboxResult<(OpenDir, DirLock)> {
        std::fs::create_dir_all(&self.private_dir).map_err(|source| super::store::MailboxError::Io {
            doing: "create the folder",
            path: self.private_dir.clone(),
            source,
        })?;
        let folder = OpenDir::open(&self.private_dir)?;
        let lock = folder.lock(LOCK_FILE)?;
        Ok((folder, lock))
    }

    /// Sends what the draft says; returns the message, or its parts.
    pub fn send(&self, draft: &MailboxDraft, at: Timestamp) -> MailboxResult<Vec<MailboxMessage>> {
        let (folder, _lock) = self.lock_private_dir()?;
        self.send_locked(&folder, draft, at)
    }

    fn send_locked(&self, folder: &OpenDir, draft: &MailboxDraft, at: Timestamp) -> MailboxResult<Vec<MailboxMessage>> {
        let copies = folder.create_subdir(SENT_DIR)?;
        let mut kept: Vec<Seq> = copies.entry_names()?.iter().filter_map(|name| Seq::from_file_name(name)).collect();
        kept.sort();
        let used = match folder.read(LAST_SEQ_FILE, MAX_READ_BYTES)? {
            Some(FileContent::File(bytes, _)) => String::from_utf8_lossy(&bytes).trim().parse::<Seq>().ok(),
            _ => None,
        };
        let sent = self.mailbox.send(&self.me, draft, kept.last().copied().max(used), at)?;
        if let Some(last) = sent.last() {
            folder.replace(LAST_SEQ_FILE, format!("{}\n", last.seq).as_bytes(), 0o600)?;
        }
        for message in &sent {
            copies.replace(&message.seq.file_name(), text::render(message).as_bytes(), 0o600)?;
        }
        for old in kept.iter().take((kept.len() + sent.len()).saturating_sub(MAX_SENT_COPIES)) {
            copies.remove(&old.file_name())?;
        }
        Ok(sent)
    }

    /// What speaks against a draft, without forbidding it: the one it is for is not there, or gone.
    pub fn draft_warnings(&self, draft: &MailboxDraft) -> MailboxResult<Vec<String>> {
        let MessageRecipient::Agent(to) = &draft.to else { return Ok(Vec::new()) };
        let row = self.mailbox.roster()?.entry(to);
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
    pub fn find(&self, reference: &MessageRef) -> MailboxResult<Result<MailboxMessage, String>> {
        let MessageRef { from, seq } = reference;
        let files = self.mailbox.list_outbox(from)?.files;
        let read = |seq: Seq| match files.get(&seq) {
            Some(name) => self.mailbox.read_message(from, seq, name),
            None => Ok(ReadOutcome::Missing),
        };
        let message = match read(*seq)? {
            ReadOutcome::Message(message) => *message,
            ReadOutcome::Missing => return Ok(Err(format!("there is no message {reference}"))),
            ReadOutcome::Invalid(violation) => return Ok(Err(format!("{reference} is no message: {violation}"))),
        };
        let Some(part) = message.part else { return Ok(Ok(message)) };
        let first = seq.get().saturating_sub(u32::from(part.number) - 1);
        let mut parts = Vec::new();
        for number in first..first.saturating_add(u32::from(part.total)) {
            if let Some(seq) = Seq::new(number)
                && let ReadOutcome::Message(message) = read(seq)?
                && message.part.is_some_and(|other| other.total == part.total)
            {
                parts.push(*message);
            }
        }
        Ok(Ok(join(&parts).unwrap_or(message)))
    }

    /// Everything that was ever sent to the agent, as the conversation went, whether it was read or not. Nothing is asked for, and nothing
    /// counts as read.
    pub fn history(&self, now: Timestamp) -> MailboxResult<Vec<DeliveredMessage>> {
        let no_patience = ReaderTimeouts {
            gap_grace: Duration::ZERO,
            bad_file_grace: Duration::ZERO,
            resend_timeout: Duration::ZERO,
            parts_timeout: Duration::ZERO,
        };
        let mut machine = MailboxMachine::new(self.me.clone(), no_patience, &ReaderSnapshot::default());
        let mut letters = Vec::new();
        // A gap is asked for at one turn and given up at the next.
        for _ in 0..MAX_HISTORY_ROUNDS {
            self.run_machine(&mut machine, now, |effect| {
                if let MailboxEffect::Deliver(letter) = effect {
                    letters.push(*letter);
                }
                Ok(())
            })?;
            if machine.next_deadline().is_none() {
                break;
            }
        }
        Ok(conversation_order(letters, |letter| &letter.message, |letter| letter.message.timestamp))
    }

    /// Takes in what is there: what is delivered comes back; what is missing is asked for again, and what others ask for is
    /// put back. The private folder is locked until the batch is gone.
    pub fn collect(&self, now: Timestamp) -> MailboxResult<MessageBatch> {
        let (folder, lock) = self.lock_private_dir()?;
        let before = load_snapshot(&folder)?;
        let mut machine = MailboxMachine::new(self.me.clone(), self.timeouts, &before);
        let (mut letters, mut warnings) = (Vec::new(), Vec::new());
        let mut resent: Vec<(AgentId, Seq)> = Vec::new();
        self.run_machine(&mut machine, now, |effect| {
            match effect {
                MailboxEffect::Deliver(letter) => letters.push(*letter),
                MailboxEffect::Warn(warning) => warnings.push(warning),
                MailboxEffect::RequestResend(missing) => self.request_resend(&folder, &missing, now)?,
                MailboxEffect::Resend { requested_by: asked_by, first, last } => {
                    // Who asks again and again, or for everything there could be, is to keep nobody from its work.
                    let mut own = resent.iter().filter(|(agent, _)| *agent == asked_by.from);
                    if own.clone().count() < MAX_RESENDS && own.all(|(_, known)| *known != first) {
                        resent.push((asked_by.from.clone(), first));
                        self.resend(&folder, &asked_by, first, last, now)?;
                    }
                }
                MailboxEffect::Fetch(..) => {}
            }
            Ok(())
        })?;
        let deadline = machine.next_deadline();
        let letters = conversation_order(letters, |letter| &letter.message, |letter| letter.message.timestamp);
        Ok(MessageBatch { messages: letters, warnings, deadline, machine, folder, before, _lock: lock })
    }

    /// Tells the machine all that is there, and hands on what it wants, but for files: these it is given.
    fn run_machine(
        &self,
        machine: &mut MailboxMachine,
        now: Timestamp,
        mut carry_out: impl FnMut(MailboxEffect) -> MailboxResult<()>,
    ) -> MailboxResult<()> {
        let mut rows = self.mailbox.roster()?.entries();
        rows.truncate(MAX_ROSTER_ENTRIES);
        let mut files: BTreeMap<AgentId, BTreeMap<Seq, String>> = BTreeMap::new();
        let mut effects = VecDeque::new();
        for agent in self.mailbox.agents()?.into_iter().filter(|agent| *agent != self.me) {
            let listing = self.mailbox.list_outbox(&agent)?.files;
            effects.extend(
                machine.handle(MailboxEvent::OutboxListed(agent.clone(), listing.keys().copied().collect()), now),
            );
            files.insert(agent, listing);
        }
        // Read before the outboxes, told behind them: who is gone has said all that is there.
        effects.extend(machine.handle(MailboxEvent::RosterRead(rows), now));
        while let Some(effect) = effects.pop_front() {
            let MailboxEffect::Fetch(agent, seq) = effect else {
                carry_out(effect)?;
                continue;
            };
            let read = match files.get(&agent).and_then(|files| files.get(&seq)) {
                None => ReadOutcome::Missing,
                Some(name) => self.mailbox.read_message(&agent, seq, name).unwrap_or_else(|error| {
                    let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    ReadOutcome::Invalid(MailboxViolation::new(rules::FILE_KIND, format!("it cannot be read: {why}")))
                }),
            };
            effects.extend(machine.handle(MailboxEvent::Fetched(agent, seq, read), now));
        }
        Ok(())
    }

    /// Sequence gap: "Send ERROR requesting resend".
    fn request_resend(&self, folder: &OpenDir, missing: &MissingRange, now: Timestamp) -> MailboxResult<()> {
        let MissingRange { from, first, last, violation: bad } = missing;
        let body = match bad {
            Some(violation) => {
                format!("{from}/{first} cannot be read: {violation}. Please put the file back as you sent it.")
            }
            None if first == last => format!("{from}/{first} is missing. Please put the file back as you sent it."),
            None => format!("{from}/{first} to {from}/{last} are missing. Please put the files back as you sent them."),
        };
        let draft = MailboxDraft::new(
            MessageRecipient::Agent(from.clone()),
            MailboxMessageType::Error,
            missing.resend_subject(),
            body,
        );
        self.send_locked(folder, &draft.in_reply_to(missing.reference()), now).map(drop)
    }

    /// Puts back what is asked for and is not there, from the copies. What there is no copy of is said.
    fn resend(
        &self,
        folder: &OpenDir,
        asked_by: &MessageRef,
        first: Seq,
        last: Seq,
        now: Timestamp,
    ) -> MailboxResult<()> {
        let copies = folder.create_subdir(SENT_DIR)?;
        let kept: Vec<Seq> = copies.entry_names()?.iter().filter_map(|name| Seq::from_file_name(name)).collect();
        let there = self.mailbox.list_outbox(&self.me)?.files;
        for seq in kept.iter().filter(|seq| (first..=last).contains(seq)) {
            if let Some(FileContent::File(bytes, _)) = copies.read(&seq.file_name(), MAX_READ_BYTES)?
                && self.mailbox.read_bytes(&self.me, &seq.file_name())?.as_ref() != Some(&bytes)
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
            && copies.create_new(&format!("{NO_COPY_PREFIX}{first}"), b"", 0o600)?
        {
            let reference = MessageRef { from: self.me.clone(), seq: first };
            let body = format!("There is no copy of {reference}. Please go on without it.");
            let content = MessageContent {
                subject: MissingRange::unavailable_subject(&reference),
                body,
                ..MessageContent::default()
            };
            let to = MessageRecipient::Agent(asked_by.from.clone());
            let draft = MailboxDraft { content, ..MailboxDraft::new(to, MailboxMessageType::Error, "", "") };
            self.send_locked(folder, &draft.in_reply_to(asked_by.clone()), now)?;
        }
        Ok(())
    }
}

/// What was kept of the last time. Nothing where there is nothing, or where it is torn: then all is read once more.
fn load_snapshot(folder: &OpenDir) -> MailboxResult<ReaderSnapshot> {
    match folder.read(SNAPSHOT_FILE, MAX_SNAPSHOT_BYTES)? {
        Some(FileContent::File(bytes, _)) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        _ => Ok(ReaderSnapshot::default()),
    }
}

/// All messages of a mailbox, each sender's in order; and what is in outboxes and is none.
pub fn read_all_messages(mailbox: &Mailbox) -> MailboxResult<(Vec<MailboxMessage>, Vec<InvalidFile>)> {
    let (mut messages, mut bad) = (Vec::new(), Vec::new());
    for agent in mailbox.agents()? {
        let listing = mailbox.list_outbox(&agent)?;
        for (seq, name) in listing.files {
            match mailbox.read_message(&agent, seq, &name)? {
                ReadOutcome::Message(message) => messages.push(*message),
                ReadOutcome::Invalid(violation) => bad.push(InvalidFile { agent: agent.clone(), name, violation }),
                ReadOutcome::Missing => {}
            }
        }
        let odd = listing.unnumbered.into_iter().map(|name| {
            let violation = MailboxViolation::new(rules::FILE_NAME, format!("`{name}` is not a message's number"));
            InvalidFile { agent: agent.clone(), name, violation }
        });
        bad.extend(odd);
    }
    Ok((messages, bad))
}

/// A file in an outbox that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFile {
    /// Whose outbox.
    pub agent: AgentId,
    /// The file's name.
    pub name: String,
    /// What it breaks.
    pub violation: MailboxViolation,
}

#[cfg(test)]
mod tests;
