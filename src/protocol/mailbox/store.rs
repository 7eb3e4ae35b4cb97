//! The folder of a mailbox: outboxes, roster, shared files and claims, whoever else writes in it at the same time.
//!
//! Used by `shim/mail`, `cli/mailbox` and whoever carries files between copies of a mailbox. Must not: decide what is
//! delivered (`machine.rs`), or believe what a file says of its owner.
//!
//! A message is written aside as a dot file and moved to `NNN.md` without replacing anything, so that it appears whole and two
//! that are sent at once have two numbers. Nothing waits for the disk.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use thiserror::Error;

use super::claim::{self, Claim, ClaimFile};
use super::message::{AgentId, MAX_READ_BYTES, MailboxDraft, MailboxMessage, MessageRef, Seq};
use super::open_dir::{FileContent, OpenDir};
use super::parts::{self, DraftError};
use super::roster::{AgentStatus, Roster, RosterEntry};
use super::rules::{self, MailboxViolation};
use super::text;
use super::watch::MailboxWatcher;

/// The file that tells agents how to take part.
pub const PROTOCOL_FILE: &str = "PROTOCOL.md";
/// Its text.
pub const PROTOCOL_TEXT: &str = include_str!("protocol.md");
/// The file that says who takes part.
pub const ROSTER_FILE: &str = "ROSTER.md";
/// The folder of the outboxes.
pub const AGENTS_DIR: &str = "agents";
/// The folder of the shared files.
pub const SHARED_DIR: &str = "shared";
/// What the task is and how it stands.
pub const STATE_FILE: &str = "STATE.md";

/// The most bytes of a shared file, and of the roster.
pub const MAX_SHARED_BYTES: usize = 1024 * 1024;
/// The most outboxes that are looked at.
const MAX_AGENTS: usize = 1000;
const ROSTER_LOCK: &str = ".roster.lock";
const OUTBOX_LOCK: &str = ".send.lock";
const CLAIMS_LOCK: &str = ".claims.lock";

/// What can go wrong with the folder.
#[derive(Debug, Error)]
pub enum MailboxError {
    /// The disk, or rights.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no mailbox.
    #[error("there is no mailbox in `{}`: it has no folder `agents`", .0.display())]
    NoMailbox(PathBuf),
    /// A link or a file is where a folder has to be.
    #[error("`{}` is not a folder", .0.display())]
    NotDirectory(PathBuf),
    /// Something else is where a file has to be.
    #[error("`{}` is not a file that can be read: it is {found}", path.display())]
    NotFile {
        /// Where.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Somebody has had a lock for too long.
    #[error("somebody holds the lock `{}`", .0.display())]
    Locked(PathBuf),
    /// What was to be sent cannot be.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// Somebody has this id, but for upper and lower case.
    #[error("the id `{wanted}` is too much like `{taken}`, which takes part already")]
    IdTaken {
        /// The id that was to be registered.
        wanted: AgentId,
        /// The id that is.
        taken: AgentId,
    },
    /// Nobody of this id is registered.
    #[error("`{0}` is not in the roster")]
    NotRegistered(AgentId),
    /// Not a shared file's text.
    #[error("`{0}` has more than 1 MiB")]
    SharedTooLarge(SharedName),
}

/// What the store's functions return.
pub type MailboxResult<T> = Result<T, MailboxError>;

/// The name of a file in `shared/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedName(String);

impl SharedName {
    /// `STATE.md`.
    pub fn state() -> Self {
        Self(STATE_FILE.to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as claims have it: `STATE` of `STATE.md`.
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".md").unwrap_or(&self.0)
    }
}

impl fmt::Display for SharedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A text that is no name of a shared file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "a shared file's name has 1 to 100 letters, digits, `.`, `_` and `-` and begins with a letter or digit, found `{0}`"
)]
pub struct SharedNameError(String);

impl FromStr for SharedName {
    type Err = SharedNameError;
    fn from_str(text: &str) -> Result<Self, SharedNameError> {
        let alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let right = text.len() <= 100
            && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && text.bytes().all(alphabet);
        if right { Ok(Self(text.to_owned())) } else { Err(SharedNameError(text.chars().take(80).collect())) }
    }
}

/// What an outbox has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxListing {
    /// The files that can be messages, by number. Of two with one number (`3.md`, `003.md`) the spec's.
    pub files: BTreeMap<Seq, String>,
    /// What else ends with `.md`, as far as anybody wants to know.
    pub unnumbered: Vec<String>,
}

/// What a message's file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A message of its outbox's owner, with its file's number.
    Message(Box<MailboxMessage>),
    /// None, and why.
    Invalid(MailboxViolation),
    /// There is no such file.
    Missing,
}

/// What came of putting a file where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is there now.
    Created,
    /// It was there.
    Unchanged,
    /// Another file has its name, and still has.
    Conflict,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The file may be written.
    Granted,
    /// Somebody else may write it, until then at most.
    HeldBy(AgentId, Timestamp),
}

/// The folder of a mailbox.
#[derive(Debug)]
pub struct Mailbox {
    root: OpenDir,
    agents: OpenDir,
    shared: OpenDir,
}

impl Mailbox {
    /// The mailbox in this folder, which is made with all that it needs where it is not there.
    pub fn create(root: &Path) -> MailboxResult<Self> {
        std::fs::create_dir_all(root).map_err(|source| MailboxError::Io {
            doing: "create the folder",
            path: root.to_owned(),
            source,
        })?;
        let root = OpenDir::open(root)?;
        root.create_subdir(AGENTS_DIR)?;
        root.create_subdir(SHARED_DIR)?;
        root.create_new(PROTOCOL_FILE, PROTOCOL_TEXT.as_bytes(), 0o644)?;
        root.create_new(ROSTER_FILE, Roster::default().text().as_bytes(), 0o644)?;
        Self::from_root(root)
    }

    /// The mailbox in this folder.
    pub fn open(root: &Path) -> MailboxResult<Self> {
        Self::from_root(OpenDir::open(root)?)
    }

    fn from_root(root: OpenDir) -> MailboxResult<Self> {
        let agents = root.open_subdir(AGENTS_DIR)?.ok_or_else(|| MailboxError::NoMailbox(root.path().to_owned()))?;
        let shared = match root.open_subdir(SHARED_DIR)? {
            Some(shared) => shared,
            // Whoever made it did not need any.
            None => root.create_subdir(SHARED_DIR)?,
        };
        Ok(Self { root, agents, shared })
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Who has an outbox, sorted.
    pub fn agents(&self) -> MailboxResult<Vec<AgentId>> {
        let mut agents: Vec<AgentId> = self.agents.entry_names()?.iter().filter_map(|name| name.parse().ok()).collect();
        agents.sort();
        agents.truncate(MAX_AGENTS);
        Ok(agents)
    }

    /// Makes an agent's outbox, if it has none.
    pub fn create_outbox(&self, agent: &AgentId) -> MailboxResult<()> {
        self.agents.create_subdir(agent.as_str()).map(drop)
    }

    /// What is in an agent's outbox. Nothing where it has none, and where that is no folder, or closed.
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
                // A reader's `*.md` passes over dot files.
                None if name.ends_with(".md") && !name.starts_with('.') && listing.unnumbered.len() < 100 => {
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
            // Its owner closed it.
            Err(error) if error.is_permission_denied() => Ok(None),
            other => other,
        }
    }

    /// A message, by its file's number, under whatever name the file has (`listing`).
    pub fn read_message(&self, agent: &AgentId, seq: Seq, file_name: &str) -> MailboxResult<ReadOutcome> {
        let bytes = match self.read_content(agent, file_name)? {
            None => return Ok(ReadOutcome::Missing),
            Some(FileContent::File(bytes, _)) => bytes,
            Some(FileContent::TooLarge(bytes)) => {
                return Ok(ReadOutcome::Invalid(MailboxViolation::new(
                    rules::SIZE,
                    format!("it has {bytes} bytes, more than {MAX_READ_BYTES}"),
                )));
            }
            Some(FileContent::NotRegular(what)) => {
                return Ok(ReadOutcome::Invalid(MailboxViolation::new(rules::FILE_KIND, format!("it is {what}"))));
            }
        };
        Ok(match parse_outbox_file(agent, seq, &bytes) {
            Ok(message) => ReadOutcome::Message(Box::new(message)),
            Err(violation) => ReadOutcome::Invalid(violation),
        })
    }

    /// The bytes of a message's file of that name (`listing`), at most as many as a message may have. None where there is no
    /// such file, or no such regular one.
    pub fn read_bytes(&self, agent: &AgentId, file_name: &str) -> MailboxResult<Option<Vec<u8>>> {
        match self.read_content(agent, file_name)? {
            Some(FileContent::File(bytes, _)) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    fn read_content(&self, agent: &AgentId, file_name: &str) -> MailboxResult<Option<FileContent>> {
        match self.open_outbox(agent)? {
            Some(outbox) => outbox.read(file_name, MAX_READ_BYTES),
            None => Ok(None),
        }
    }

    /// Sends what the draft says, as one message or as several parts, with the next numbers of the agent's outbox: those
    /// behind all that are there, and behind `used`. Returns the messages, in order; each is written as [`text::render`] has
    /// it.
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
                // Somebody who knows no lock may have been quicker: then the rest gets the numbers behind that.
                if !outbox.create_new(&message.seq.file_name(), text::render(&message).as_bytes(), 0o644)? {
                    break;
                }
                sent.push(message);
            }
            let all = sent.first().and_then(|first| first.part).map_or(1, |part| usize::from(part.total));
            if sent.len() == all {
                return Ok(sent);
            }
        }
    }

    /// Puts a message's file where it belongs, byte for byte; an outbox is made where there is none. What is there stays.
    pub fn put(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> MailboxResult<PutOutcome> {
        let outbox = self.agents.create_subdir(agent.as_str())?;
        if outbox.create_new(&seq.file_name(), bytes, 0o644)? {
            return Ok(PutOutcome::Created);
        }
        match outbox.read(&seq.file_name(), MAX_READ_BYTES)? {
            Some(FileContent::File(there, _)) if there == bytes => Ok(PutOutcome::Unchanged),
            _ => Ok(PutOutcome::Conflict),
        }
    }

    /// Puts back a message of one's own as it was sent, whatever is there by now.
    pub fn restore(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> MailboxResult<()> {
        self.agents.create_subdir(agent.as_str())?.replace(&seq.file_name(), bytes, 0o644)
    }

    /// Who takes part. Nobody where there is no roster.
    pub fn roster(&self) -> MailboxResult<Roster> {
        Ok(self.read_text(&self.root, ROSTER_FILE)?.map_or_else(Roster::default, Roster::from_text))
    }

    /// Adds a row to the roster and makes the agent's outbox. An agent that is there as active already is content.
    pub fn register(&self, row: &RosterEntry) -> MailboxResult<()> {
        let taken = |roster: &Roster| {
            let same =
                |known: &RosterEntry| known.id != row.id && known.id.as_str().eq_ignore_ascii_case(row.id.as_str());
            roster.entries().into_iter().find(same)
        };
        let known = |roster: &Roster| roster.entry(&row.id).is_some_and(|known| known.status == AgentStatus::Active);
        self.update_roster(|roster| {
            if let Some(taken) = taken(roster) {
                return Err(MailboxError::IdTaken { wanted: row.id.clone(), taken: taken.id });
            }
            let add = !known(roster);
            if add {
                roster.add(row);
            }
            Ok(add)
        })?;
        self.create_outbox(&row.id)
    }

    /// Says how an agent stands.
    pub fn set_status(&self, agent: &AgentId, status: &AgentStatus) -> MailboxResult<()> {
        self.update_roster(|roster| match roster.entry(agent) {
            None => Err(MailboxError::NotRegistered(agent.clone())),
            Some(row) if row.status == *status => Ok(false),
            Some(_) => Ok(roster.set_status(agent, status)),
        })
    }

    /// Changes the roster, where `change` says that it did. A row that somebody without the lock appends meanwhile is kept:
    /// the file is read once more right before it is replaced.
    pub fn update_roster(&self, mut change: impl FnMut(&mut Roster) -> MailboxResult<bool>) -> MailboxResult<()> {
        // Whoever may not write is content where there is nothing to write.
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

    fn read_text(&self, folder: &OpenDir, name: &str) -> MailboxResult<Option<String>> {
        let not_file = |found: String| MailboxError::NotFile { path: folder.path().join(name), found };
        match folder.read(name, MAX_SHARED_BYTES)? {
            None => Ok(None),
            Some(FileContent::File(bytes, _)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Some(FileContent::TooLarge(bytes)) => Err(not_file(format!("{bytes} bytes long"))),
            Some(FileContent::NotRegular(what)) => Err(not_file(what.to_owned())),
        }
    }

    /// A shared file's text. None where there is no such file.
    pub fn read_shared(&self, name: &SharedName) -> MailboxResult<Option<String>> {
        self.read_text(&self.shared, name.as_str())
    }

    /// Replaces a shared file. The caller has claimed it.
    pub fn write_shared(&self, name: &SharedName, text: &str) -> MailboxResult<()> {
        if text.len() > MAX_SHARED_BYTES {
            return Err(MailboxError::SharedTooLarge(name.clone()));
        }
        self.shared.replace(name.as_str(), text.as_bytes(), self.shared_mode())
    }

    /// Where agents have users of their own, each may write in the folder, and then in its files too.
    fn shared_mode(&self) -> u32 {
        if self.shared.is_world_writable() { 0o666 } else { 0o644 }
    }

    /// The shared files, sorted.
    pub fn shared_names(&self) -> MailboxResult<Vec<SharedName>> {
        let mut names: Vec<SharedName> =
            self.shared.entry_names()?.iter().filter_map(|name| name.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The claims on a shared file.
    pub fn claims(&self, target: &SharedName) -> MailboxResult<Vec<ClaimFile>> {
        let mut found = Vec::new();
        for name in self.shared.entry_names()?.iter().filter(|name| name.starts_with(&claim::claim_prefix(target))) {
            if let Some(FileContent::File(bytes, modified)) = self.shared.read(name, MAX_READ_BYTES)? {
                found.extend(ClaimFile::parse(name, &bytes, modified, target));
            }
        }
        found.sort_by(|one, other| (one.at, &one.agent).cmp(&(other.at, &other.agent)));
        Ok(found)
    }

    /// Tries once to claim a shared file (Write Coordination): writes the claim, looks for others, and takes it back where one
    /// of them comes first. Stale ones are deleted. Who has it already has it for another 2 minutes.
    pub fn claim(&self, claim: &Claim, now: Timestamp) -> MailboxResult<ClaimOutcome> {
        // Among those who know the lock nobody comes between looking and writing.
        let _lock = self.shared.lock(CLAIMS_LOCK)?;
        let mut before = self.claims(&claim.target)?;
        for stale in before.iter().filter(|found| found.is_stale(now)) {
            self.shared.remove(&stale.file_name)?;
        }
        before.retain(|found| !found.is_stale(now));
        let until = |found: &ClaimFile| found.at.checked_add(claim::STALE_AFTER).unwrap_or(Timestamp::MAX);
        if self.already_holds(claim, &before) {
            // Where others wait, one's claim stays as old as it is: a newer one would come behind theirs.
            if before.len() == 1 {
                self.shared.replace(&claim.file_name(), claim.render().as_bytes(), self.shared_mode())?;
            }
            return Ok(ClaimOutcome::Granted);
        }
        if let Some(rival) = claim::competing_claim(claim, &before, &[], now) {
            return Ok(ClaimOutcome::HeldBy(rival.agent.clone(), until(rival)));
        }
        self.shared.replace(&claim.file_name(), claim.render().as_bytes(), self.shared_mode())?;
        let after = self.claims(&claim.target)?;
        match claim::competing_claim(claim, &[], &after, now) {
            None => Ok(ClaimOutcome::Granted),
            Some(rival) => {
                self.shared.remove(&claim.file_name())?;
                Ok(ClaimOutcome::HeldBy(rival.agent.clone(), until(rival)))
            }
        }
    }

    /// Whether the claim's agent has the file already: its own claim is there, and none that comes before it.
    fn already_holds(&self, claim: &Claim, there: &[ClaimFile]) -> bool {
        let Some(mine) = there.iter().find(|found| found.agent == claim.agent) else { return false };
        let earlier = Claim { at: mine.at, ..claim.clone() };
        claim::competing_claim(&earlier, &[], there, mine.at).is_none()
    }

    /// Takes a claim back. False where there was none.
    pub fn release(&self, agent: &AgentId, target: &SharedName) -> MailboxResult<bool> {
        let mine = self.claims(target)?.into_iter().find(|found| found.agent == *agent);
        match mine {
            Some(mine) => self.shared.remove(&mine.file_name).map(|()| true),
            None => Ok(false),
        }
    }

    /// The same, as often as somebody lets go of the file and somebody else has it, for `patience` at most.
    pub fn claim_with_timeout(&self, claim: &Claim, patience: Duration) -> MailboxResult<ClaimOutcome> {
        let end = Instant::now().checked_add(patience);
        // From before the first look on, so that no release falls between.
        let mut watch = MailboxWatcher::new(self.root());
        loop {
            let now = Timestamp::now();
            let claimed = self.claim(&Claim { at: now, ..claim.clone() }, now)?;
            let ClaimOutcome::HeldBy(_, stale) = &claimed else { return Ok(claimed) };
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(claimed);
            }
            // Nothing is said when a claim becomes stale.
            let stale = Duration::try_from(stale.duration_since(now)).unwrap_or_default() + Duration::from_millis(10);
            let until = Instant::now() + stale;
            watch.wait(end.map_or(until, |end| end.min(until)));
        }
    }

    /// Claims a shared file, changes it and takes the claim back: waits for others, `patience` at most.
    pub fn with_claim<T>(
        &self,
        claim: &Claim,
        patience: Duration,
        change: impl FnOnce(&Self) -> MailboxResult<T>,
    ) -> MailboxResult<Result<T, AgentId>> {
        if let ClaimOutcome::HeldBy(agent, _) = self.claim_with_timeout(claim, patience)? {
            return Ok(Err(agent));
        }
        let changed = change(self);
        self.release(&claim.agent, &claim.target)?;
        changed.map(Ok)
    }
}

/// Reads a file of an outbox as a message: its sender and number must be those of the outbox and of the file's name.
pub fn parse_outbox_file(agent: &AgentId, seq: Seq, bytes: &[u8]) -> Result<MailboxMessage, MailboxViolation> {
    let message = text::parse(bytes)?;
    if message.from != *agent {
        return Err(MailboxViolation::new(
            rules::FROM,
            format!("`from` is `{}`, in the outbox of `{agent}`", message.from),
        ));
    }
    if message.seq != seq {
        return Err(MailboxViolation::new(rules::SEQ, format!("`seq` is `{}`, in the file of `{seq}`", message.seq)));
    }
    Ok(message)
}

/// The references of messages.
pub fn references(messages: &[MailboxMessage]) -> Vec<MessageRef> {
    messages.iter().map(MailboxMessage::reference).collect()
}

#[cfg(test)]
mod tests;
