//! An agent's access to its mailbox: sends messages, and receives those of the others from where it stopped last time.
//!
//! Besides its outbox an agent has a private directory: `read.json` (its position with each sender), `sent/NNN.md` (copies of its
//! messages, for resend requests) and `last` (its highest number so far: a number that others may have read is never used again,
//! even if the file is gone). Several processes of one agent may run at once, so the directory has a lock.
//!
//! Carries out the effects of `machine.rs`. Used by `shim/mail` and `cli/mailbox`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::error::{MailboxError, MailboxResult};
use super::machine::{
    DeliveredMessage, MailboxEffect, MailboxEvent, MailboxMachine, MissingRange, ReaderSnapshot, ReaderTimeouts,
    Warning,
};
use super::message::{
    AgentId, MAX_READ_BYTES, MailboxDraft, MailboxMessage, MailboxMessageType, MessageRecipient, MessageRef, Seq,
};
use super::open_dir::{DirLock, FileContent, OpenDir};
use super::order::conversation_order;
use super::outbox::ReadOutcome;
use super::parts::join;
use super::roster::AgentStatus;
use super::rules::{self, MailboxViolation};
use super::store::Mailbox;
use super::text;

const SENT_DIR: &str = "sent";
const LAST_SEQ_FILE: &str = "last";
/// Prefix of the names in `sent` of messages that were declared unavailable.
const NO_COPY_PREFIX: &str = "no-";
const SNAPSHOT_FILE: &str = "read.json";
const LOCK_FILE: &str = ".lock";
/// How many rows of the roster are read.
const MAX_ROSTER_ENTRIES: usize = 1000;
const MAX_SNAPSHOT_BYTES: usize = 16 * 1024 * 1024;
/// How many rounds of giving up gaps [`AgentMailbox::history`] runs.
const MAX_HISTORY_ROUNDS: usize = 500;
/// How many copies of sent messages are kept.
const MAX_SENT_COPIES: usize = 2000;
/// How many resend requests of one agent are answered at once.
const MAX_RESENDS: usize = 8;

#[derive(Debug)]
pub struct AgentMailbox {
    mailbox: Mailbox,
    me: AgentId,
    private_dir: PathBuf,
}

/// Received messages, which do not count as read before [`MessageBatch::commit`]. Holds the lock of the private directory.
#[derive(Debug)]
pub struct MessageBatch {
    pub messages: Vec<DeliveredMessage>,
    pub warnings: Vec<Warning>,
    /// When to collect again even if nothing changes.
    pub deadline: Option<Timestamp>,
    machine: MailboxMachine,
    private_dir: OpenDir,
    before: ReaderSnapshot,
    _lock: DirLock,
}

impl MessageBatch {
    /// Marks the messages as read.
    pub fn commit(self) -> MailboxResult<()> {
        let snapshot = self.machine.snapshot();
        if snapshot == self.before {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&snapshot).expect("ids, numbers and times are JSON");
        self.private_dir.replace(SNAPSHOT_FILE, &bytes, 0o600)
    }

    pub fn finished_status(&self, agent: &AgentId) -> Option<AgentStatus> {
        self.machine.finished_status(agent)
    }

    pub fn all_finished(&self) -> bool {
        self.machine.all_finished()
    }
}

impl AgentMailbox {
    /// `private_dir` is created when it is needed.
    pub fn new(mailbox: Mailbox, me: AgentId, private_dir: &Path) -> Self {
        Self { mailbox, me, private_dir: private_dir.to_owned() }
    }

    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    pub fn me(&self) -> &AgentId {
        &self.me
    }

    fn lock_private_dir(&self) -> MailboxResult<(OpenDir, DirLock)> {
        std::fs::create_dir_all(&self.private_dir).map_err(MailboxError::io("create", self.private_dir.clone()))?;
        let dir = OpenDir::open(&self.private_dir)?;
        let lock = dir.lock(LOCK_FILE)?;
        Ok((dir, lock))
    }

    /// Sends a draft. Returns the message, or its parts.
    pub fn send(&self, draft: &MailboxDraft, at: Timestamp) -> MailboxResult<Vec<MailboxMessage>> {
        let (dir, _lock) = self.lock_private_dir()?;
        self.send_locked(&dir, draft, at)
    }

    fn send_locked(&self, dir: &OpenDir, draft: &MailboxDraft, at: Timestamp) -> MailboxResult<Vec<MailboxMessage>> {
        let copies = dir.create_subdir(SENT_DIR)?;
        let mut sent_seqs = seqs(&copies)?;
        sent_seqs.sort();
        let used = match dir.read(LAST_SEQ_FILE, MAX_READ_BYTES)? {
            Some(FileContent::File(bytes, _)) => String::from_utf8_lossy(&bytes).trim().parse::<Seq>().ok(),
            _ => None,
        };
        let sent = self.mailbox.send(&self.me, draft, sent_seqs.last().copied().max(used), at)?;
        if let Some(last) = sent.last() {
            dir.replace(LAST_SEQ_FILE, format!("{}\n", last.seq).as_bytes(), 0o600)?;
        }
        for message in &sent {
            copies.replace(&message.seq.file_name(), text::render(message).as_bytes(), 0o600)?;
        }
        for old in sent_seqs.iter().take((sent_seqs.len() + sent.len()).saturating_sub(MAX_SENT_COPIES)) {
            copies.remove(&old.file_name())?;
        }
        Ok(sent)
    }

    /// A warning about a draft's recipient: unknown, gone, or the sender itself.
    pub fn draft_warning(&self, draft: &MailboxDraft) -> MailboxResult<Option<String>> {
        let MessageRecipient::Agent(to) = &draft.to else { return Ok(None) };
        if *to == self.me {
            return Ok(Some("the message is addressed to yourself".to_owned()));
        }
        Ok(match self.mailbox.roster()?.entry(to).map(|row| row.status) {
            Some(status) if status.is_gone() => Some(format!("{to} is gone (`{status}`)")),
            Some(_) => None,
            None if self.mailbox.agents()?.contains(to) => None,
            None => Some(format!("no agent is called {to} yet; `roster` lists the participants")),
        })
    }

    /// Finds any agent's message by the reference of any of its parts. `Err` says why there is none.
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
            ReadOutcome::Invalid(violation) => return Ok(Err(format!("{reference} is not a message: {violation}"))),
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

    /// Returns every message that was ever sent to the agent, in the order of the conversation. Requests nothing, and marks
    /// nothing as read.
    pub fn history(&self, now: Timestamp) -> MailboxResult<Vec<DeliveredMessage>> {
        let no_wait = ReaderTimeouts {
            gap_grace: Duration::ZERO,
            bad_file_grace: Duration::ZERO,
            resend_timeout: Duration::ZERO,
            parts_timeout: Duration::ZERO,
        };
        let mut machine = MailboxMachine::new(self.me.clone(), no_wait, &ReaderSnapshot::default());
        let mut messages = Vec::new();
        // A gap is requested in one round and given up in the next.
        for _ in 0..MAX_HISTORY_ROUNDS {
            self.run_machine(&mut machine, now, |effect| {
                if let MailboxEffect::Deliver(delivered) = effect {
                    messages.push(*delivered);
                }
                Ok(())
            })?;
            if machine.next_deadline().is_none() {
                break;
            }
        }
        Ok(in_conversation_order(messages))
    }

    /// Receives new messages, requests missing ones, and restores own messages that others request.
    pub fn collect(&self, now: Timestamp) -> MailboxResult<MessageBatch> {
        let (private_dir, lock) = self.lock_private_dir()?;
        let before = load_snapshot(&private_dir)?;
        let mut machine = MailboxMachine::new(self.me.clone(), ReaderTimeouts::default(), &before);
        let (mut messages, mut warnings) = (Vec::new(), Vec::new());
        let mut resent: Vec<(AgentId, Seq)> = Vec::new();
        self.run_machine(&mut machine, now, |effect| {
            match effect {
                MailboxEffect::Deliver(delivered) => messages.push(*delivered),
                MailboxEffect::Warn(warning) => warnings.push(warning),
                MailboxEffect::RequestResend(missing) => self.request_resend(&private_dir, &missing, now)?,
                MailboxEffect::Resend { requested_by, first, last } => {
                    // An agent that asks repeatedly, or for every possible number, must not keep others from their work.
                    let mut own = resent.iter().filter(|(agent, _)| *agent == requested_by.from);
                    if own.clone().count() < MAX_RESENDS && own.all(|(_, known)| *known != first) {
                        resent.push((requested_by.from.clone(), first));
                        self.resend(&private_dir, &requested_by, first, last, now)?;
                    }
                }
                MailboxEffect::Fetch(..) => {}
            }
            Ok(())
        })?;
        let (deadline, messages) = (machine.next_deadline(), in_conversation_order(messages));
        Ok(MessageBatch { messages, warnings, deadline, machine, private_dir, before, _lock: lock })
    }

    /// Runs the machine over the current content of the mailbox. Effects other than `Fetch` go to `execute`.
    fn run_machine(
        &self,
        machine: &mut MailboxMachine,
        now: Timestamp,
        mut execute: impl FnMut(MailboxEffect) -> MailboxResult<()>,
    ) -> MailboxResult<()> {
        // The roster is read before the outboxes and reported after them, so that an agent that is gone has sent everything.
        let mut rows = self.mailbox.roster()?.entries();
        rows.truncate(MAX_ROSTER_ENTRIES);
        let mut files: BTreeMap<AgentId, BTreeMap<Seq, String>> = BTreeMap::new();
        let mut effects = VecDeque::new();
        for agent in self.mailbox.agents()?.into_iter().filter(|agent| *agent != self.me) {
            let listing = self.mailbox.list_outbox(&agent)?.files;
            let listed = MailboxEvent::OutboxListed(agent.clone(), listing.keys().copied().collect());
            effects.extend(machine.handle(listed, now));
            files.insert(agent, listing);
        }
        effects.extend(machine.handle(MailboxEvent::RosterRead(rows), now));
        while let Some(effect) = effects.pop_front() {
            let MailboxEffect::Fetch(agent, seq) = effect else {
                execute(effect)?;
                continue;
            };
            let read = match files.get(&agent).and_then(|files| files.get(&seq)) {
                None => ReadOutcome::Missing,
                Some(name) => self.mailbox.read_message(&agent, seq, name).unwrap_or_else(|error| {
                    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    ReadOutcome::Invalid(MailboxViolation::new(rules::FILE_KIND, format!("it cannot be read: {cause}")))
                }),
            };
            effects.extend(machine.handle(MailboxEvent::Fetched(agent, seq, read), now));
        }
        Ok(())
    }

    /// Sequence gap: "Send ERROR requesting resend".
    fn request_resend(&self, dir: &OpenDir, missing: &MissingRange, now: Timestamp) -> MailboxResult<()> {
        let MissingRange { from, first, last, violation } = missing;
        let body = match violation {
            Some(violation) => {
                format!("{from}/{first} cannot be read: {violation}. Please put the file back as you sent it.")
            }
            None if first == last => format!("{from}/{first} is missing. Please put the file back as you sent it."),
            None => format!("{from}/{first} to {from}/{last} are missing. Please put the files back as you sent them."),
        };
        let to = MessageRecipient::Agent(from.clone());
        let draft = MailboxDraft::new(to, MailboxMessageType::Error, missing.resend_subject(), body);
        self.send_locked(dir, &draft.in_reply_to(missing.first_reference()), now).map(drop)
    }

    /// Restores requested messages that are missing or damaged, from their copies. If the first of them was sent but has no
    /// copy, replies that it is unavailable.
    fn resend(
        &self,
        dir: &OpenDir,
        requested_by: &MessageRef,
        first: Seq,
        last: Seq,
        now: Timestamp,
    ) -> MailboxResult<()> {
        let copies = dir.create_subdir(SENT_DIR)?;
        let sent_seqs = seqs(&copies)?;
        let present = self.mailbox.list_outbox(&self.me)?.files;
        for seq in sent_seqs.iter().filter(|seq| (first..=last).contains(seq)) {
            if let Some(FileContent::File(bytes, _)) = copies.read(&seq.file_name(), MAX_READ_BYTES)?
                && self.mailbox.read_bytes(&self.me, &seq.file_name())?.as_ref() != Some(&bytes)
            {
                self.mailbox.restore(&self.me, *seq, &bytes)?;
            }
        }
        // The reply names the first message only: the requester advances from there. All readers see it, so once is enough.
        let was_sent = present.last_key_value().is_some_and(|(last, _)| first < *last);
        let has_message = sent_seqs.contains(&first) || present.contains_key(&first);
        if was_sent && !has_message && copies.create_new(&format!("{NO_COPY_PREFIX}{first}"), b"", 0o600)? {
            let reference = MessageRef { from: self.me.clone(), seq: first };
            let subject = MissingRange::unavailable_subject(&reference);
            let body = format!("There is no copy of {reference}. Please go on without it.");
            let to = MessageRecipient::Agent(requested_by.from.clone());
            let draft = MailboxDraft::new(to, MailboxMessageType::Error, subject, body);
            self.send_locked(dir, &draft.in_reply_to(requested_by.clone()), now)?;
        }
        Ok(())
    }
}

/// The numbers of the messages in a directory.
fn seqs(dir: &OpenDir) -> MailboxResult<Vec<Seq>> {
    Ok(dir.entry_names()?.iter().filter_map(|name| Seq::from_file_name(name)).collect())
}

fn in_conversation_order(messages: Vec<DeliveredMessage>) -> Vec<DeliveredMessage> {
    conversation_order(messages, |delivered| &delivered.message, |delivered| delivered.message.timestamp)
}

/// The snapshot of the last time. Without one, or if it is damaged, everything is read again.
fn load_snapshot(dir: &OpenDir) -> MailboxResult<ReaderSnapshot> {
    match dir.read(SNAPSHOT_FILE, MAX_SNAPSHOT_BYTES)? {
        Some(FileContent::File(bytes, _)) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        _ => Ok(ReaderSnapshot::default()),
    }
}

#[cfg(test)]
mod tests;
