//! The host's copy of a mailbox: stores what comes out of the volume, and finds what people write in the copy.
//!
//! The copy has the protocol's own layout; people and `longshore mailbox` may write in it at any time. What is known about shared
//! files on both sides is kept in `mailbox-sync.json` beside it, so that changes made while no task was running are transferred
//! afterwards. Files of the host are never lost: what has to give way moves to `mailbox-set-aside/`. Called by `sync.rs`. Must not:
//! speak to the depot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::engine::depot::mailbox::{MailboxChanges, MailboxWriteOutcome};
use crate::error_chain::error_chain;
use crate::handoff::depot::frames::MAX_PAYLOAD;
use crate::handoff::mailbox::{
    MAX_SHARED_FILE_BYTES, MAX_SHARED_FILES, MailFileWrite, MessageNumbers, format_stamp, is_shared_name,
};
use crate::ids::AgentId;
use crate::protocol::mailbox::error::MailboxResult;
use crate::protocol::mailbox::layout::{AGENTS_DIR, CLAIM_PREFIX, SHARED_DIR};
use crate::protocol::mailbox::message::{MailboxMessageType, Seq};
use crate::protocol::mailbox::outbox::parse_outbox_file;
use crate::protocol::mailbox::store::{Mailbox, PutOutcome};
use crate::protocol::mailbox::watch::{MailboxWatcher, WatchOutcome};

/// The copy, in the swarm's directory.
pub(crate) const COPY_DIR: &str = "mailbox";
/// Limit for the files of one request, as JSON: a request is one frame.
pub(super) const MAX_PUT_BYTES: usize = MAX_PAYLOAD - 64 * 1024;
/// The stamps of shared files.
const SYNC_FILE: &str = "mailbox-sync.json";
const ASIDE_DIR: &str = "mailbox-set-aside";
/// How long a file must be unchanged: people and their agents write in place.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(50);
/// How often the watching thread checks whether it is still needed.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The stamps of a shared file when both sides were equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SyncedStamps {
    volume: String,
    host: String,
}

pub(super) struct HostCopy {
    mailbox: Mailbox,
    swarm_dir: PathBuf,
    /// Their messages come out of the volume only.
    sandbox_agents: BTreeSet<AgentId>,
    shared: BTreeMap<String, SyncedStamps>,
    /// Paths with a warning, which is not repeated.
    warned_paths: BTreeSet<String>,
    /// The stamps of transferred messages of the host.
    transferred_stamps: BTreeMap<PathBuf, String>,
    has_unsettled: bool,
}

/// A file that came out of the volume.
pub(super) enum ReceivedFile {
    /// With its type, if it is valid.
    Message(AgentId, Seq, Option<MailboxMessageType>),
    /// Name and stamp.
    Shared(String, String),
}

/// A file to be written to the volume.
pub(super) struct OutgoingFile {
    pub(super) file: MailFileWrite,
    pub(super) source: OutgoingSource,
}

pub(super) enum OutgoingSource {
    /// Has no type if it is invalid.
    Message { agent: AgentId, seq: Seq, message_type: Option<MailboxMessageType> },
    /// Has no stamp if it was removed.
    Shared { name: String, host_stamp: String },
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScanOptions {
    /// Also find messages of sandboxes' agents, which a new volume does not have.
    pub(super) include_sandbox_agents: bool,
    /// Nobody writes any more, so recent files are complete.
    pub(super) writers_stopped: bool,
}

impl HostCopy {
    /// Opens the copy in a swarm's directory, and creates it if needed.
    pub(super) fn open(swarm_dir: &Path, sandbox_agents: BTreeSet<AgentId>) -> MailboxResult<Self> {
        let mailbox = Mailbox::create(&swarm_dir.join(COPY_DIR))?;
        // Without readable stamps, all files are compared.
        let json = fs::read(swarm_dir.join(SYNC_FILE)).unwrap_or_default();
        Ok(Self {
            mailbox,
            swarm_dir: swarm_dir.to_owned(),
            sandbox_agents,
            shared: serde_json::from_slice(&json).unwrap_or_default(),
            warned_paths: BTreeSet::new(),
            transferred_stamps: BTreeMap::new(),
            has_unsettled: false,
        })
    }

    pub(super) fn swarm_dir(&self) -> &Path {
        &self.swarm_dir
    }

    /// Whether the last scan skipped a file that is being written.
    pub(super) fn has_unsettled(&self) -> bool {
        self.has_unsettled
    }

    pub(super) fn is_sandbox_agent(&self, agent: &AgentId) -> bool {
        self.sandbox_agents.contains(agent)
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    pub(super) fn root(&self) -> &Path {
        self.mailbox.root()
    }

    /// Forgets the stamps of a volume that was replaced.
    pub(super) fn forget_volume(&mut self) {
        self.shared.clear();
        self.save_stamps();
    }

    pub(super) fn message_numbers(&self) -> MailboxResult<BTreeMap<String, MessageNumbers>> {
        let mut messages = BTreeMap::new();
        for agent in self.mailbox.agents()? {
            let numbers = self.mailbox.list_outbox(&agent)?.files.into_keys().map(Seq::get).collect();
            messages.insert(agent.to_string(), numbers);
        }
        Ok(messages)
    }

    /// The volume's stamps of the shared files.
    pub(super) fn shared_stamps(&self) -> BTreeMap<String, String> {
        self.shared.iter().map(|(name, stamps)| (name.clone(), stamps.volume.clone())).collect()
    }

    /// Stores changes of the volume. Returns the files that could be written; the others will come again.
    pub(super) fn store_changes(&mut self, changes: &MailboxChanges) -> Vec<ReceivedFile> {
        let mut received = Vec::new();
        for (file, bytes) in &changes.files {
            let parts: Vec<&str> = file.path.split('/').collect();
            match parts.as_slice() {
                [AGENTS_DIR, agent, name] => {
                    let (Ok(agent), Some(seq)) = (agent.parse::<AgentId>(), Seq::from_file_name(name)) else {
                        continue;
                    };
                    if self.write_message(&agent, seq, bytes) {
                        let message = parse_outbox_file(&agent, seq, bytes).ok();
                        received.push(ReceivedFile::Message(agent, seq, message.map(|message| message.message_type)));
                    }
                }
                [SHARED_DIR, name] if is_shared_name(name) && self.write_shared_file(name, &file.stamp, bytes) => {
                    received.push(ReceivedFile::Shared((*name).to_owned(), file.stamp.clone()));
                }
                _ => {}
            }
        }
        for name in changes.removed.iter().filter(|name| is_shared_name(name)) {
            self.remove_shared_file(name);
        }
        self.save_stamps();
        received
    }

    fn write_message(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> bool {
        let path = self.outbox_path(agent, &seq.file_name());
        let put = match self.mailbox.put(agent, seq, bytes) {
            // Somebody on the host wrote in a sandbox's outbox.
            Ok(PutOutcome::Conflict) if self.is_sandbox_agent(agent) => {
                self.set_aside(&path, &format!("{agent}-{}", seq.file_name()));
                self.mailbox.put(agent, seq, bytes)
            }
            other => other,
        };
        put.inspect_err(
            |error| tracing::warn!(path = %path.display(), error = %error_chain(error), "cannot write a message"),
        )
        .is_ok()
    }

    fn write_shared_file(&mut self, name: &str, stamp: &str, bytes: &[u8]) -> bool {
        let path = self.shared_path(name);
        let current = file_stamp(&path);
        let is_equal = current.is_some() && fs::read(&path).is_ok_and(|found| found == bytes);
        if !is_equal {
            if current.is_some() && current.as_ref() != self.shared.get(name).map(|stamps| &stamps.host) {
                self.set_aside(&path, name);
                tracing::warn!(name, "a shared file changed on the host and in a sandbox: set the host's file aside");
            }
            if let Err(error) = write_atomic(&path, bytes) {
                tracing::warn!(path = %path.display(), %error, "cannot write a shared file");
                return false;
            }
        }
        let host = file_stamp(&path).unwrap_or_default();
        self.shared.insert(name.to_owned(), SyncedStamps { volume: stamp.to_owned(), host });
        true
    }

    /// Removes a file that was removed in the volume. If it has changed on the host, it is new, and goes back to the volume.
    fn remove_shared_file(&mut self, name: &str) {
        let Some(stamps) = self.shared.remove(name) else { return };
        let path = self.shared_path(name);
        if file_stamp(&path).is_none_or(|current| current != stamps.host) {
            return;
        }
        if name.starts_with(CLAIM_PREFIX) {
            let _ = fs::remove_file(path);
        } else {
            self.set_aside(&path, name);
        }
    }

    /// Finds what is new in the copy. `in_volume` says whether the volume has a message.
    pub(super) fn find_new(
        &mut self,
        options: ScanOptions,
        in_volume: impl Fn(&AgentId, Seq) -> bool,
    ) -> MailboxResult<Vec<OutgoingFile>> {
        self.has_unsettled = false;
        let mut found = Vec::new();
        for agent in self.mailbox.agents()? {
            if self.is_sandbox_agent(&agent) && !options.include_sandbox_agents {
                continue;
            }
            for (seq, name) in self.mailbox.list_outbox(&agent)?.files {
                if in_volume(&agent, seq) {
                    self.check_unchanged(&agent, seq, &name);
                } else if self.check_settled(&self.outbox_path(&agent, &name), options) {
                    found.extend(self.read_new_message(&agent, seq, &name)?);
                }
            }
        }
        // An unreadable directory does not mean that its files were removed.
        if let Some(names) = self.shared_names() {
            self.find_new_shared(&names, options, &mut found);
            self.find_removed_shared(&names, &mut found);
        }
        Ok(found)
    }

    /// Warns if a transferred message has changed.
    fn check_unchanged(&mut self, agent: &AgentId, seq: Seq, name: &str) {
        let path = self.outbox_path(agent, name);
        let Some(transferred) = self.transferred_stamps.get(&path) else { return };
        if file_stamp(&path).is_some_and(|current| current != *transferred) {
            self.warn_once(
                message_path(agent, seq),
                "changed after it was transferred: the sandboxes keep the old one",
            );
        }
    }

    /// Whether a file is complete, as far as its modification time tells.
    fn check_settled(&mut self, path: &Path, options: ScanOptions) -> bool {
        let settled = options.writers_stopped || is_settled(path);
        self.has_unsettled |= !settled;
        settled
    }

    fn read_new_message(&mut self, agent: &AgentId, seq: Seq, name: &str) -> MailboxResult<Option<OutgoingFile>> {
        let is_sandbox_agent = self.is_sandbox_agent(agent);
        let bytes = self.mailbox.read_bytes(agent, name)?;
        let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            self.warn_once(message_path(agent, seq), "cannot be transferred: it is not UTF-8, or too large");
            return Ok(None);
        };
        let message = parse_outbox_file(agent, seq, text.as_bytes()).ok();
        // A message of the host may still be incomplete.
        if message.is_none() && !is_sandbox_agent {
            self.warn_once(message_path(agent, seq), "is not transferred: it is not a valid message of its sender");
            return Ok(None);
        }
        let path = self.outbox_path(agent, name);
        if let Some(stamp) = file_stamp(&path).filter(|_| !is_sandbox_agent) {
            self.transferred_stamps.insert(path, stamp);
        }
        let message_type = message.map(|message| message.message_type);
        Ok(Some(OutgoingFile {
            file: MailFileWrite::from_text(message_path(agent, seq), text),
            source: OutgoingSource::Message { agent: agent.clone(), seq, message_type },
        }))
    }

    fn shared_names(&self) -> Option<BTreeSet<String>> {
        let entries = fs::read_dir(self.root().join(SHARED_DIR)).ok()?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Some(names.filter(|name| is_shared_name(name)).collect())
    }

    fn find_new_shared(&mut self, names: &BTreeSet<String>, options: ScanOptions, found: &mut Vec<OutgoingFile>) {
        let known = names.iter().filter(|name| self.shared.contains_key(*name)).count();
        let mut room = MAX_SHARED_FILES.saturating_sub(known);
        for name in names {
            let Some(host_stamp) = file_stamp(&self.shared_path(name)) else { continue };
            let known = self.shared.get(name).cloned();
            if known.as_ref().is_some_and(|stamps| stamps.host == host_stamp) {
                continue;
            }
            if known.is_none() && room == 0 {
                self.warn_once(SHARED_DIR.to_owned(), "has more files than are transferred to the sandboxes");
                continue;
            }
            if !self.check_settled(&self.shared_path(name), options) {
                continue;
            }
            room = room.saturating_sub(usize::from(known.is_none()));
            let path = format!("{SHARED_DIR}/{name}");
            let file = self.read_shared_text(name).map(|text| MailFileWrite {
                expected_stamp: known.map(|stamps| stamps.volume).unwrap_or_default(),
                ..MailFileWrite::from_text(path.as_str(), text)
            });
            match file.filter(|file| file.json_len() <= MAX_PUT_BYTES) {
                Some(file) => {
                    let source = OutgoingSource::Shared { name: name.clone(), host_stamp };
                    found.push(OutgoingFile { file, source });
                }
                None => self.warn_once(path, "cannot be transferred: it is not UTF-8, or too large"),
            }
        }
    }

    fn find_removed_shared(&self, names: &BTreeSet<String>, found: &mut Vec<OutgoingFile>) {
        let removed = self.shared.iter().filter(|(name, _)| !names.contains(*name));
        found.extend(removed.map(|(name, stamps)| OutgoingFile {
            file: MailFileWrite {
                path: format!("{SHARED_DIR}/{name}"),
                text: None,
                expected_stamp: stamps.volume.clone(),
            },
            source: OutgoingSource::Shared { name: name.clone(), host_stamp: String::new() },
        }));
    }

    /// A shared file's text. `None` if it is too large or not UTF-8.
    fn read_shared_text(&self, name: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.shared_path(name)).ok()?.take(MAX_SHARED_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
        String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAX_SHARED_FILE_BYTES)
    }

    /// Remembers that the volume has these files now. A conflicting file of the volume will come as a change.
    pub(super) fn mark_transferred(&mut self, files: &[OutgoingFile], written: &MailboxWriteOutcome) {
        let mut changed = false;
        for OutgoingFile { file, source } in files {
            let OutgoingSource::Shared { name, host_stamp } = source else { continue };
            changed = true;
            if written.conflicts.contains(&file.path) {
                continue;
            }
            match written.stamps.get(name) {
                Some(volume) => {
                    let stamps = SyncedStamps { volume: volume.clone(), host: host_stamp.clone() };
                    self.shared.insert(name.clone(), stamps);
                }
                None => drop(self.shared.remove(name)),
            }
        }
        if changed {
            self.save_stamps();
        }
    }

    fn shared_path(&self, name: &str) -> PathBuf {
        self.root().join(SHARED_DIR).join(name)
    }

    fn outbox_path(&self, agent: &AgentId, name: &str) -> PathBuf {
        self.root().join(AGENTS_DIR).join(agent.as_str()).join(name)
    }

    /// Moves a file out of the way, to a free name.
    fn set_aside(&self, path: &Path, name: &str) {
        let dir = self.swarm_dir.join(ASIDE_DIR);
        let _ = fs::create_dir_all(&dir);
        let mut targets = (1..).map(|number| dir.join(format!("{name}.{number}")));
        if let Some(target) = targets.find(|target| fs::symlink_metadata(target).is_err())
            && let Err(error) = fs::rename(path, target)
        {
            tracing::warn!(path = %path.display(), %error, "cannot set a file of the mailbox aside");
        }
    }

    fn warn_once(&mut self, path: String, problem: &str) {
        if !self.warned_paths.contains(&path) {
            tracing::warn!(path, "{problem}");
            self.warned_paths.insert(path);
        }
    }

    fn save_stamps(&self) {
        let path = self.swarm_dir.join(SYNC_FILE);
        let json = serde_json::to_vec(&self.shared).expect("names and stamps are JSON");
        if let Err(error) = write_atomic(&path, &json) {
            tracing::warn!(path = %path.display(), %error, "cannot write the stamps of shared files");
        }
    }
}

/// A message's path in the mailbox.
fn message_path(agent: &AgentId, seq: Seq) -> String {
    format!("{AGENTS_DIR}/{agent}/{}", seq.file_name())
}

/// The stamp of a regular file.
fn file_stamp(path: &Path) -> Option<String> {
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(format_stamp(meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// Whether a file is unchanged for [`SETTLE_TIME`]. A time in the future is false, and no reason to wait.
fn is_settled(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).map_or(true, |age| age >= SETTLE_TIME))
}

/// Writes a file that appears complete. Readers of a mailbox ignore its temporary name.
pub(super) fn write_atomic(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temp = format!(".aside-{}-{}", name.trim_start_matches('.'), uuid::Uuid::new_v4().simple());
    crate::atomic_file::replace(path, &path.with_file_name(temp), bytes)
}

/// Logs an error: the mailbox must not end a swarm.
pub(super) fn log_error<T>(result: MailboxResult<T>, problem: &str) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(error = %error_chain(error), "{problem}")).ok()
}

/// Reports changes of the copy, from a thread that ends when the receiver is dropped.
pub(super) fn watch_changes(root: &Path) -> mpsc::Receiver<()> {
    let (changed, changes) = mpsc::channel(1);
    let root = Arc::<Path>::from(root);
    std::thread::spawn(move || {
        let mut watch = MailboxWatcher::new(&root);
        while !changed.is_closed() {
            if watch.wait(Instant::now() + CLOSED_CHECK_INTERVAL) == WatchOutcome::Changed {
                // A full channel already reports a change.
                let _ = changed.try_send(());
            }
        }
    });
    changes
}

#[cfg(test)]
mod tests;
