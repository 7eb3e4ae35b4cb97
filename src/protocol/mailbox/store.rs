//! A mailbox's directory: outboxes, roster, shared files and claims. Other programs may write in it at the same time.
//!
//! Used by `shim/mail`, `cli/mailbox` and `coordinator/mailbox`. Must not: decide what is delivered (`machine.rs`), or trust what
//! a file says about its owner.
//!
//! A message is written to a temporary dot file and renamed to `NNN.md` without replacing anything, so it appears whole and two
//! concurrent messages get two numbers. Nothing is synced to disk.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::claim::{self, Claim, ClaimFile};
pub(crate) use super::error::{MailboxError, MailboxResult};
pub use super::layout::SharedName;
use super::layout::{AGENTS_DIR, PROTOCOL_FILE, PROTOCOL_TEXT, ROSTER_FILE, SHARED_DIR};
use super::message::{AgentId, MAX_READ_BYTES, MailboxDraft, MailboxMessage, Seq};
use super::open_dir::{FileContent, OpenDir};
pub use super::outbox::ReadOutcome;
use super::outbox::{InvalidFile, OutboxListing, parse_outbox_file};
use super::parts::{self, DraftError};
use super::roster::{AgentStatus, Roster, RosterEntry};
use super::rules::{self, MailboxViolation};
use super::text;
use super::watch::MailboxWatcher;

/// Limit for a shared file and for the roster.
pub const MAX_SHARED_BYTES: usize = 1024 * 1024;
/// How many outboxes are read.
const MAX_AGENTS: usize = 1000;
const MAX_UNNUMBERED: usize = 100;
const ROSTER_LOCK: &str = ".roster.lock";
const OUTBOX_LOCK: &str = ".send.lock";
const CLAIMS_LOCK: &str = ".claims.lock";

/// The result of putting a file into an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The file is new.
    Created,
    /// The same file was there.
    Unchanged,
    /// A different file has the name and keeps it.
    Conflict,
}

/// The result of claiming a shared file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The agent may write the file.
    Granted,
    /// Another agent holds the claim, at most until this time.
    HeldBy(AgentId, Timestamp),
}

/// An open mailbox.
#[derive(Debug)]
pub struct Mailbox {
    root: OpenDir,
    agents: OpenDir,
    shared: OpenDir,
}

impl Mailbox {
    /// Opens a mailbox, and creates what is missing of it.
    pub fn create(root: &Path) -> MailboxResult<Self> {
        std::fs::create_dir_all(root).map_err(MailboxError::io("create", root.to_owned()))?;
        let root = OpenDir::open(root)?;
        root.create_subdir(AGENTS_DIR)?;
        root.create_new(PROTOCOL_FILE, PROTOCOL_TEXT.as_bytes(), 0o644)?;
        root.create_new(ROSTER_FILE, Roster::default().text().as_bytes(), 0o644)?;
        Self::from_root(root)
    }

    /// Opens an existing mailbox.
    pub fn open(root: &Path) -> MailboxResult<Self> {
        Self::from_root(OpenDir::open(root)?)
    }

    fn from_root(root: OpenDir) -> MailboxResult<Self> {
        let agents = root.open_subdir(AGENTS_DIR)?.ok_or_else(|| MailboxError::NoMailbox(root.path().to_owned()))?;
        // Other programs create it only when they need it.
        let shared = root.create_subdir(SHARED_DIR)?;
        Ok(Self { root, agents, shared })
    }

    /// The mailbox's directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The owners of the outboxes, sorted.
    pub fn agents(&self) -> MailboxResult<Vec<AgentId>> {
        let mut agents: Vec<AgentId> = self.agents.entry_names()?.iter().filter_map(|name| name.parse().ok()).collect();
        agents.sort();
        agents.truncate(MAX_AGENTS);
        Ok(agents)
    }

    /// Creates an agent's outbox, if it does not exist.
    pub fn create_outbox(&self, agent: &AgentId) -> MailboxResult<()> {
        self.agents.create_subdir(agent.as_str()).map(drop)
    }

    /// Lists an agent's outbox. Empty if the outbox does not exist, is not a directory or is not accessible.
    pub fn list_outbox(&self, agent: &AgentId) -> MailboxResult<OutboxListing> {
        let mut listing = OutboxListing::default();
        let Some(outbox) = self.open_outbox(agent)? else { return Ok(listing) };
        for name in outbox.entry_names()? {
            match Seq::from_file_name(&name) {
                Some(seq) => {
                    let known = listing.files.entry(seq).or_insert_with(|| name.clone());
                    if name == seq.file_name() {
                        *known = name;
                    }
                }
                // Dot files: the `*.md` of other readers skips them too.
                None if name.ends_with(".md")
                    && !name.starts_with('.')
                    && listing.unnumbered.len() < MAX_UNNUMBERED =>
                {
                    listing.unnumbered.push(name);
                }
                None => {}
            }
        }
        listing.unnumbered.sort();
        Ok(listing)
    }

    fn open_outbox(&self, agent: &AgentId) -> MailboxResult<Option<OpenDir>> {
        match self.agents.open_subdir(agent.as_str()) {
            Err(MailboxError::NotDirectory(_)) => Ok(None),
            // Its owner denied access.
            Err(error) if error.is_permission_denied() => Ok(None),
            other => other,
        }
    }

    /// Reads a message by its number and the name of its file ([`OutboxListing`]).
    pub fn read_message(&self, agent: &AgentId, seq: Seq, file_name: &str) -> MailboxResult<ReadOutcome> {
        let parsed = match self.read_content(agent, file_name)? {
            None => return Ok(ReadOutcome::Missing),
            Some(FileContent::File(bytes, _)) => parse_outbox_file(agent, seq, &bytes),
            Some(FileContent::TooLarge(bytes)) => {
                let problem = format!("it has {bytes} bytes, more than {MAX_READ_BYTES}");
                Err(MailboxViolation::new(rules::SIZE, problem))
            }
            Some(FileContent::NotRegular(what)) => {
                Err(MailboxViolation::new(rules::FILE_KIND, format!("it is {what}")))
            }
        };
        Ok(parsed.map_or_else(ReadOutcome::Invalid, |message| ReadOutcome::Message(Box::new(message))))
    }

    /// Reads the raw bytes of a message's file. `None` if it does not exist, is too large or is not a regular file.
    pub fn read_bytes(&self, agent: &AgentId, file_name: &str) -> MailboxResult<Option<Vec<u8>>> {
        match self.read_content(agent, file_name)? {
            Some(FileContent::File(bytes, _)) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Reads all messages, each sender's in order, and the files that are not messages.
    pub fn read_all(&self) -> MailboxResult<(Vec<MailboxMessage>, Vec<InvalidFile>)> {
        let (mut messages, mut invalid) = (Vec::new(), Vec::new());
        for agent in self.agents()? {
            let listing = self.list_outbox(&agent)?;
            for (seq, name) in listing.files {
                match self.read_message(&agent, seq, &name)? {
                    ReadOutcome::Message(message) => messages.push(*message),
                    ReadOutcome::Invalid(violation) => {
                        invalid.push(InvalidFile { agent: agent.clone(), name, violation });
                    }
                    ReadOutcome::Missing => {}
                }
            }
            invalid.extend(listing.unnumbered.into_iter().map(|name| {
                let violation = MailboxViolation::new(rules::FILE_NAME, format!("`{name}` is not a message's number"));
                InvalidFile { agent: agent.clone(), name, violation }
            }));
        }
        Ok((messages, invalid))
    }

    fn read_content(&self, agent: &AgentId, file_name: &str) -> MailboxResult<Option<FileContent>> {
        match self.open_outbox(agent)? {
            Some(outbox) => outbox.read(file_name, MAX_READ_BYTES),
            None => Ok(None),
        }
    }

    /// Sends a draft as one message or as several parts. Their numbers follow the highest one in the outbox and `used`. Returns
    /// the messages in order; each is written as [`text::render`] renders it.
    pub fn send(
        &self,
        from: &AgentId,
        draft: &MailboxDraft,
        used: Option<Seq>,
        at: Timestamp,
    ) -> MailboxResult<Vec<MailboxMessage>> {
        let outbox = self.agents.create_subdir(from.as_str())?;
        let _lock = outbox.lock(OUTBOX_LOCK)?;
        outbox.remove_stale_temps();
        let mut sent: Vec<MailboxMessage> = Vec::new();
        loop {
            let last = self.list_outbox(from)?.files.last_key_value().map(|(seq, _)| *seq).max(used);
            let next = last.map_or(Some(Seq::FIRST), Seq::next).ok_or(DraftError::Full)?;
            let messages = parts::split(from, next, at, draft)?;
            for message in messages.into_iter().skip(sent.len()) {
                // A program that does not know the lock took the number: the rest gets later ones.
                if !outbox.create_new(&message.seq.file_name(), text::render(&message).as_bytes(), 0o644)? {
                    break;
                }
                sent.push(message);
            }
            let total = sent.first().and_then(|first| first.part).map_or(1, |part| usize::from(part.total));
            if sent.len() == total {
                return Ok(sent);
            }
        }
    }

    /// Copies a message's file into its outbox, which is created if needed. Never replaces a file.
    pub fn put(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> MailboxResult<PutOutcome> {
        let outbox = self.agents.create_subdir(agent.as_str())?;
        if outbox.create_new(&seq.file_name(), bytes, 0o644)? {
            return Ok(PutOutcome::Created);
        }
        match outbox.read(&seq.file_name(), MAX_READ_BYTES)? {
            Some(FileContent::File(found, _)) if found == bytes => Ok(PutOutcome::Unchanged),
            _ => Ok(PutOutcome::Conflict),
        }
    }

    /// Restores a sent message from its copy, and replaces whatever has its name.
    pub fn restore(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> MailboxResult<()> {
        self.agents.create_subdir(agent.as_str())?.replace(&seq.file_name(), bytes, 0o644)
    }

    /// Reads the roster; an empty one if there is no file.
    pub fn roster(&self) -> MailboxResult<Roster> {
        Ok(self.read_text(&self.root, ROSTER_FILE)?.map_or_else(Roster::default, Roster::from_text))
    }

    /// Adds an agent to the roster and creates its outbox. Does nothing if it is registered as active.
    pub fn register(&self, row: &RosterEntry) -> MailboxResult<()> {
        self.update_roster(|roster| {
            if let Some(taken) = roster.similar_id(&row.id) {
                return Err(MailboxError::IdTaken { wanted: row.id.clone(), taken });
            }
            let add = roster.entry(&row.id).is_none_or(|known| known.status != AgentStatus::Active);
            if add {
                roster.add(row);
            }
            Ok(add)
        })?;
        self.create_outbox(&row.id)
    }

    /// Sets an agent's status in the roster.
    pub fn set_status(&self, agent: &AgentId, status: &AgentStatus) -> MailboxResult<()> {
        self.update_roster(|roster| match roster.entry(agent) {
            None => Err(MailboxError::NotRegistered(agent.clone())),
            Some(row) if row.status == *status => Ok(false),
            Some(_) => Ok(roster.set_status(agent, status)),
        })
    }

    /// Changes the roster. `change` returns whether it changed anything, and may run several times. A row that another program
    /// appends without the lock is kept: the file is read again just before it is replaced.
    pub fn update_roster(&self, mut change: impl FnMut(&mut Roster) -> MailboxResult<bool>) -> MailboxResult<()> {
        // Without a change, no write access is needed.
        if !change(&mut self.roster()?)? {
            return Ok(());
        }
        let _lock = self.root.lock(ROSTER_LOCK)?;
        loop {
            let before = self.roster()?;
            let mut roster = before.clone();
            if !change(&mut roster)? {
                return Ok(());
            }
            if self.roster()? == before {
                return self.root.replace(ROSTER_FILE, roster.text().as_bytes(), 0o644);
            }
        }
    }

    fn read_text(&self, dir: &OpenDir, name: &str) -> MailboxResult<Option<String>> {
        let not_file = |found: String| MailboxError::NotFile { path: dir.path().join(name), found };
        match dir.read(name, MAX_SHARED_BYTES)? {
            None => Ok(None),
            Some(FileContent::File(bytes, _)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Some(FileContent::TooLarge(bytes)) => Err(not_file(format!("{bytes} bytes long"))),
            Some(FileContent::NotRegular(what)) => Err(not_file(what.to_owned())),
        }
    }

    /// Reads a shared file. `None` if it does not exist.
    pub fn read_shared(&self, name: &SharedName) -> MailboxResult<Option<String>> {
        self.read_text(&self.shared, name.as_str())
    }

    /// Replaces a shared file, which the caller has claimed.
    pub fn write_shared(&self, name: &SharedName, text: &str) -> MailboxResult<()> {
        if text.len() > MAX_SHARED_BYTES {
            return Err(MailboxError::SharedTooLarge(name.clone()));
        }
        self.shared.replace(name.as_str(), text.as_bytes(), self.shared_mode())
    }

    /// The mode of files in `shared`: writable by all users if the directory is.
    fn shared_mode(&self) -> u32 {
        if self.shared.is_world_writable() { 0o666 } else { 0o644 }
    }

    /// Reads the claims on a shared file, oldest first.
    pub fn claims(&self, target: &SharedName) -> MailboxResult<Vec<ClaimFile>> {
        let mut found = Vec::new();
        let prefix = claim::claim_prefix(target);
        for name in self.shared.entry_names()?.iter().filter(|name| name.starts_with(&prefix)) {
            if let Some(FileContent::File(bytes, modified)) = self.shared.read(name, MAX_READ_BYTES)? {
                found.extend(ClaimFile::parse(name, &bytes, modified, target));
            }
        }
        found.sort_by(|one, other| (one.at, &one.agent).cmp(&(other.at, &other.agent)));
        Ok(found)
    }

    /// Tries once to claim a shared file (Write Coordination): writes the claim, looks for competing ones, and withdraws it if one
    /// of them has precedence. Deletes stale claims. Renews the claim of an agent that already holds the file.
    pub fn claim(&self, claim: &Claim, now: Timestamp) -> MailboxResult<ClaimOutcome> {
        // Programs that know the lock cannot interleave between the check and the write.
        let _lock = self.shared.lock(CLAIMS_LOCK)?;
        let (stale, before): (Vec<_>, Vec<_>) =
            self.claims(&claim.target)?.into_iter().partition(|found| found.is_stale(now));
        for claim in stale {
            self.shared.remove(&claim.file_name)?;
        }
        let write = || self.shared.replace(&claim.file_name(), claim.render().as_bytes(), self.shared_mode());
        let held_by = |rival: &ClaimFile| {
            let until = rival.at.checked_add(claim::STALE_AFTER).unwrap_or(Timestamp::MAX);
            ClaimOutcome::HeldBy(rival.agent.clone(), until)
        };
        if self.already_holds(claim, &before) {
            // If others wait, the claim keeps its age: a newer one would rank behind theirs.
            if before.len() == 1 {
                write()?;
            }
            return Ok(ClaimOutcome::Granted);
        }
        if let Some(rival) = claim::competing_claim(claim, &before, &[], now) {
            return Ok(held_by(rival));
        }
        write()?;
        let after = self.claims(&claim.target)?;
        let Some(rival) = claim::competing_claim(claim, &[], &after, now) else { return Ok(ClaimOutcome::Granted) };
        self.shared.remove(&claim.file_name())?;
        Ok(held_by(rival))
    }

    /// Whether the claim's agent already has a claim, and no other claim has precedence over that.
    fn already_holds(&self, claim: &Claim, found: &[ClaimFile]) -> bool {
        let Some(mine) = found.iter().find(|found| found.agent == claim.agent) else { return false };
        let earlier = Claim { at: mine.at, ..claim.clone() };
        claim::competing_claim(&earlier, &[], found, mine.at).is_none()
    }

    /// Withdraws a claim. Returns `false` if there was none.
    pub fn release(&self, agent: &AgentId, target: &SharedName) -> MailboxResult<bool> {
        let mine = self.claims(target)?.into_iter().find(|found| found.agent == *agent);
        match mine {
            Some(mine) => self.shared.remove(&mine.file_name).map(|()| true),
            None => Ok(false),
        }
    }

    /// Like [`claim`](Self::claim), but tries again whenever a claim is released or becomes stale, until `wait` is over.
    pub fn claim_with_timeout(&self, claim: &Claim, wait: Duration) -> MailboxResult<ClaimOutcome> {
        let end = Instant::now().checked_add(wait);
        // Before the first try, so that no release is missed.
        let mut watch = MailboxWatcher::new(self.root());
        loop {
            let now = Timestamp::now();
            let claimed = self.claim(&Claim { at: now, ..claim.clone() }, now)?;
            let ClaimOutcome::HeldBy(_, stale_at) = &claimed else { return Ok(claimed) };
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(claimed);
            }
            // No change is reported when a claim becomes stale.
            let until_stale = Duration::try_from(stale_at.duration_since(now)).unwrap_or_default();
            let until = Instant::now() + until_stale + Duration::from_millis(10);
            watch.wait(end.map_or(until, |end| end.min(until)));
        }
    }

    /// Runs `change` while holding a claim. Returns the holder as `Err` if the claim is not granted within `wait`.
    pub fn with_claim<T>(
        &self,
        claim: &Claim,
        wait: Duration,
        change: impl FnOnce(&Self) -> MailboxResult<T>,
    ) -> MailboxResult<Result<T, AgentId>> {
        if let ClaimOutcome::HeldBy(agent, _) = self.claim_with_timeout(claim, wait)? {
            return Ok(Err(agent));
        }
        let changed = change(self);
        self.release(&claim.agent, &claim.target)?;
        changed.map(Ok)
    }
}

#[cfg(test)]
mod tests;
