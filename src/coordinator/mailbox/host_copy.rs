//! The host's copy of a mailbox: what comes out of the volume is written down in it, and what people write in it is found.
//!
//! The copy is the protocol's own layout, and people and `longshore mailbox` write in it at any time. What is known of shared
//! files on both sides is kept in `mailbox-sync.json` beside it, so that an edit made while nobody ran is carried afterwards.
//! Nothing is ever lost of the host's: what gives way is moved to `mailbox-set-aside/`. Called by `mailbox.rs`. Must not: speak
//! to the depot.

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
use crate::handoff::mailbox::{
    MAX_PUT_BYTES, MAX_SHARED_FILE_BYTES, MAX_SHARED_FILES, MailFileWrite, MessageNumbers, is_shared_name,
};
use crate::ids::AgentId;
use crate::protocol::mailbox::message::{MAX_READ_BYTES, MailboxMessageType, Seq};
use crate::protocol::mailbox::store::{AGENTS_DIR, Mailbox, MailboxResult, PutOutcome, SHARED_DIR, parse_outbox_file};
use crate::protocol::mailbox::watch::{MailboxWatcher, WatchOutcome};

use super::COPY_DIR;

/// What is known of shared files.
const SYNC_FILE: &str = "mailbox-sync.json";
/// Where the host's files go that give way.
const ASIDE_DIR: &str = "mailbox-set-aside";
/// How long a file must have rested: people and their agents write in place.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(50);
/// How often the thread that watches sees whether it is still wanted.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A shared file, as it was when both sides were the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SyncedStamps {
    /// The volume's stamp.
    volume: String,
    /// The host's.
    host: String,
}

/// The copy.
pub(super) struct HostCopy {
    mailbox: Mailbox,
    /// The swarm's folder.
    swarm_dir: PathBuf,
    /// Whose messages come out of the volume and never go in.
    sandbox_agents: BTreeSet<AgentId>,
    shared: BTreeMap<String, SyncedStamps>,
    /// What was said of the host's files, so that it is said once.
    warned_paths: BTreeSet<String>,
    /// What the host's messages were known by that were carried.
    carried_stamps: BTreeMap<PathBuf, String>,
    /// Something that may be new has not rested yet.
    has_unsettled: bool,
}

/// Something that came out.
pub(super) enum ReceivedFile {
    /// A message, and its type where it is one.
    Message(AgentId, Seq, Option<MailboxMessageType>),
    /// A shared file, and its stamp.
    Shared(String, String),
}

/// A file of the host's for the volume.
pub(super) struct OutgoingFile {
    pub file: MailFileWrite,
    /// Which message it is, and its type where it is one.
    pub message: Option<(AgentId, Seq, Option<MailboxMessageType>)>,
    /// Of a shared file: its name, and the host's stamp.
    shared: Option<(String, String)>,
}

impl HostCopy {
    /// Opens the copy in a swarm's folder; it is made where it is not there.
    pub(super) fn open(folder: &Path, sandboxes: BTreeSet<AgentId>) -> MailboxResult<Self> {
        let mailbox = Mailbox::create(&folder.join(COPY_DIR))?;
        // One that cannot be read is as good as none: all is compared anew.
        let text = fs::read(folder.join(SYNC_FILE)).unwrap_or_default();
        let shared = serde_json::from_slice(&text).unwrap_or_default();
        let (said, carried) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self {
            mailbox,
            swarm_dir: folder.to_owned(),
            sandbox_agents: sandboxes,
            shared,
            warned_paths: said,
            carried_stamps: carried,
            has_unsettled: false,
        })
    }

    /// The swarm's folder.
    pub(super) fn swarm_dir(&self) -> &Path {
        &self.swarm_dir
    }

    /// Whether somebody may be in the middle of writing something that was not taken therefore.
    pub(super) fn has_unsettled(&self) -> bool {
        self.has_unsettled
    }

    /// Whether it is a sandbox's agent.
    pub(super) fn is_sandbox_agent(&self, agent: &AgentId) -> bool {
        self.sandbox_agents.contains(agent)
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    pub(super) fn root(&self) -> &Path {
        self.mailbox.root()
    }

    /// The volume is new: nothing that was known of the old one's files holds.
    pub(super) fn forget_volume(&mut self) {
        self.shared.clear();
        self.save_stamps();
    }

    /// The messages that it has.
    pub(super) fn message_numbers(&self) -> MailboxResult<BTreeMap<String, MessageNumbers>> {
        let mut messages = BTreeMap::new();
        for agent in self.mailbox.agents()? {
            let numbers = self.mailbox.list_outbox(&agent)?.files.into_keys().map(Seq::get).collect();
            messages.insert(agent.to_string(), numbers);
        }
        Ok(messages)
    }

    /// The volume's stamps of the shared files that it has.
    pub(super) fn shared_stamps(&self) -> BTreeMap<String, String> {
        self.shared.iter().map(|(name, same)| (name.clone(), same.volume.clone())).collect()
    }

    /// Writes down what came out. What could not be written is not in the answer, and comes again.
    pub(super) fn store_news(&mut self, news: &MailboxChanges) -> Vec<ReceivedFile> {
        let mut arrivals = Vec::new();
        for (file, bytes) in &news.files {
            let parts: Vec<&str> = file.path.split('/').collect();
            match parts.as_slice() {
                [AGENTS_DIR, agent, name] => {
                    let (Ok(agent), Some(seq)) = (agent.parse::<AgentId>(), Seq::from_file_name(name)) else {
                        continue;
                    };
                    if self.write_message(&agent, seq, bytes) {
                        let kind = parse_outbox_file(&agent, seq, bytes).ok().map(|message| message.message_type);
                        arrivals.push(ReceivedFile::Message(agent, seq, kind));
                    }
                }
                [SHARED_DIR, name] if is_shared_name(name) && self.write_shared_file(name, &file.stamp, bytes) => {
                    arrivals.push(ReceivedFile::Shared((*name).to_owned(), file.stamp.clone()));
                }
                _ => {}
            }
        }
        for name in news.removed.iter().filter(|name| is_shared_name(name)) {
            let Some(same) = self.shared.remove(name) else { continue };
            // Changed since: then it is new, and goes in again.
            if self.host_stamp(name).is_some_and(|now| now == same.host) {
                if name.starts_with(crate::handoff::mailbox::CLAIM_PREFIX) {
                    let _ = fs::remove_file(self.shared_path(name));
                } else {
                    self.set_aside(&self.shared_path(name), name);
                }
            }
        }
        self.save_stamps();
        arrivals
    }

    fn write_message(&self, agent: &AgentId, seq: Seq, bytes: &[u8]) -> bool {
        let path = self.root().join(AGENTS_DIR).join(agent.as_str()).join(seq.file_name());
        let put = match self.mailbox.put(agent, seq, bytes) {
            // Somebody wrote in a sandbox's outbox on the host.
            Ok(PutOutcome::Conflict) if self.sandbox_agents.contains(agent) => {
                self.set_aside(&path, &format!("{agent}-{}", seq.file_name()));
                self.mailbox.put(agent, seq, bytes)
            }
            other => other,
        };
        put.inspect_err(
            |error| tracing::warn!(path = %path.display(), error = %super::error_chain(error), "cannot write a message down"),
        )
        .is_ok()
    }

    fn write_shared_file(&mut self, name: &str, stamp: &str, bytes: &[u8]) -> bool {
        let path = self.shared_path(name);
        let there = self.host_stamp(name);
        let known = self.shared.get(name).map(|same| same.host.clone());
        let same = there.is_some() && fs::read(&path).is_ok_and(|found| found == bytes);
        if !same {
            if there.is_some() && there != known {
                self.set_aside(&path, name);
                tracing::warn!(name, "a shared file was changed on the host and by a sandbox: the host's is set aside");
            }
            if let Err(error) = write_atomic(&path, bytes) {
                tracing::warn!(path = %path.display(), %error, "cannot write a shared file down");
                return false;
            }
        }
        let host = self.host_stamp(name).unwrap_or_default();
        self.shared.insert(name.to_owned(), SyncedStamps { volume: stamp.to_owned(), host });
        true
    }

    /// What is new on the host. `all`: of sandboxes' agents too. `settled`: what was written a moment ago is whole. `there`:
    /// whether the volume has a message.
    pub(super) fn find_new(
        &mut self,
        all: bool,
        settled: bool,
        there: impl Fn(&AgentId, Seq) -> bool,
    ) -> MailboxResult<Vec<OutgoingFile>> {
        let mut found = Vec::new();
        self.has_unsettled = false;
        for agent in self.mailbox.agents()? {
            if !all && self.sandbox_agents.contains(&agent) {
                continue;
            }
            for (seq, name) in self.mailbox.list_outbox(&agent)?.files {
                let path = format!("{AGENTS_DIR}/{agent}/{}", seq.file_name());
                let file = self.root().join(AGENTS_DIR).join(agent.as_str()).join(&name);
                let stamp = file_stamp(&file);
                if there(&agent, seq) {
                    if self
                        .carried_stamps
                        .get(&file)
                        .is_some_and(|carried| stamp.as_ref().is_some_and(|now| now != carried))
                    {
                        self.warn_once(
                            path,
                            "was changed after it was carried: what the sandboxes have stays as it was",
                        );
                    }
                    continue;
                }
                if !settled && !is_settled(&file) {
                    self.has_unsettled = true;
                    continue;
                }
                let bytes = self.mailbox.read_bytes(&agent, &name)?;
                let text = bytes.as_ref().filter(|bytes| bytes.len() <= MAX_READ_BYTES);
                let text = text.and_then(|bytes| String::from_utf8(bytes.clone()).ok());
                let Some(text) = text else {
                    self.warn_once(path, "is not carried: it is no text that a message can be");
                    continue;
                };
                let message = parse_outbox_file(&agent, seq, text.as_bytes());
                // One that is being written has not all of its header yet.
                if message.is_err() && !self.sandbox_agents.contains(&agent) {
                    self.warn_once(path, "is not carried: it is no message of its sender");
                    continue;
                }
                let kind = message.ok().map(|message| message.message_type);
                self.carried_stamps.extend(stamp.filter(|_| !self.is_sandbox_agent(&agent)).map(|stamp| (file, stamp)));
                let file = MailFileWrite { path, text: Some(text), expected_stamp: String::new() };
                found.push(OutgoingFile { file, message: Some((agent.clone(), seq, kind)), shared: None });
            }
        }
        found.extend(self.find_new_shared(settled));
        Ok(found)
    }

    fn find_new_shared(&mut self, settled: bool) -> Vec<OutgoingFile> {
        // A folder that is not there says nothing of its files.
        let Ok(entries) = fs::read_dir(self.root().join(SHARED_DIR)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names: BTreeSet<String> = names.filter(|name| is_shared_name(name)).collect();
        let mut room =
            MAX_SHARED_FILES.saturating_sub(names.iter().filter(|name| self.shared.contains_key(*name)).count());
        let mut found = Vec::new();
        for name in &names {
            let Some(host) = self.host_stamp(name) else { continue };
            let known = self.shared.get(name);
            if known.is_some_and(|same| same.host == host) {
                continue;
            }
            let is_new = known.is_none();
            if is_new && room == 0 {
                self.warn_once(SHARED_DIR.to_owned(), "has more files than are carried to the sandboxes");
                continue;
            }
            if !settled && !is_settled(&self.shared_path(name)) {
                self.has_unsettled = true;
                continue;
            }
            let only_if = known.map(|same| same.volume.clone()).unwrap_or_default();
            let path = format!("{SHARED_DIR}/{name}");
            let file = self.read_shared_text(name).map(|text| MailFileWrite {
                path: path.clone(),
                text: Some(text),
                expected_stamp: only_if,
            });
            room = room.saturating_sub(usize::from(is_new));
            match file.filter(|file| file.json_len() <= MAX_PUT_BYTES) {
                Some(file) => found.push(OutgoingFile { file, message: None, shared: Some((name.clone(), host)) }),
                None => self.warn_once(path, "is not carried to the sandboxes: it is no text, or too large"),
            }
        }
        for (name, same) in self.shared.iter().filter(|(name, _)| !names.contains(*name)) {
            found.push(OutgoingFile {
                file: MailFileWrite {
                    path: format!("{SHARED_DIR}/{name}"),
                    text: None,
                    expected_stamp: same.volume.clone(),
                },
                message: None,
                shared: Some((name.clone(), String::new())),
            });
        }
        found
    }

    /// A shared file, if it is text and not larger than one may be.
    fn read_shared_text(&self, name: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.shared_path(name)).ok()?.take(MAX_SHARED_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
        String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAX_SHARED_FILE_BYTES)
    }

    /// The volume has them now, but for what was kept out there: that comes out as news.
    pub(super) fn mark_carried(&mut self, files: &[OutgoingFile], written: &MailboxWriteOutcome) {
        for OutgoingFile { file, shared, .. } in files {
            let Some((name, host)) = shared else { continue };
            if written.conflicts.contains(&file.path) {
                continue;
            }
            match written.stamps.get(name) {
                Some(volume) => {
                    self.shared.insert(name.clone(), SyncedStamps { volume: volume.clone(), host: host.clone() });
                }
                None => drop(self.shared.remove(name)),
            }
        }
        if files.iter().any(|file| file.shared.is_some()) {
            self.save_stamps();
        }
    }

    fn shared_path(&self, name: &str) -> PathBuf {
        self.root().join(SHARED_DIR).join(name)
    }

    /// What the host's file is known by; none where there is no regular file.
    fn host_stamp(&self, name: &str) -> Option<String> {
        file_stamp(&self.shared_path(name))
    }

    /// Moves a file out of the way, under a name that nothing has.
    fn set_aside(&self, path: &Path, name: &str) {
        let folder = self.swarm_dir.join(ASIDE_DIR);
        let _ = fs::create_dir_all(&folder);
        let free =
            (1..).map(|number| folder.join(format!("{name}.{number}"))).find(|to| fs::symlink_metadata(to).is_err());
        if let Some(to) = free
            && let Err(error) = fs::rename(path, to)
        {
            tracing::warn!(path = %path.display(), %error, "cannot set a file of the mailbox aside");
        }
    }

    fn warn_once(&mut self, path: String, what: &str) {
        if !self.warned_paths.contains(&path) {
            tracing::warn!(path, "{what}");
            self.warned_paths.insert(path);
        }
    }

    fn save_stamps(&self) {
        let path = self.swarm_dir.join(SYNC_FILE);
        let text = serde_json::to_vec(&self.shared).expect("names and stamps are JSON");
        if let Err(error) = write_atomic(&path, &text) {
            tracing::warn!(path = %path.display(), %error, "what is known of shared files cannot be kept");
        }
    }
}

/// What a regular file is known by.
fn file_stamp(path: &Path) -> Option<String> {
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(format!("{:x}.{:x}.{:x}.{:x}", meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// Whether nobody has written in it for a moment. A time to come is a lie, and no reason to wait.
fn is_settled(path: &Path) -> bool {
    let written = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    written.is_ok_and(|at| SystemTime::now().duration_since(at).map_or(true, |age| age >= SETTLE_TIME))
}

/// Writes a file, which appears whole.
pub(super) fn write_atomic(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let aside = path.with_file_name(format!(".aside-{}-{}", name.trim_start_matches('.'), std::process::id()));
    fs::write(&aside, bytes)?;
    fs::rename(&aside, path)
}

/// Says when something changes in the copy, on a thread that ends when nobody listens any more.
pub(super) fn watch_changes(root: &Path) -> mpsc::Receiver<()> {
    let (changed, changes) = mpsc::channel(1);
    let root = Arc::<Path>::from(root);
    std::thread::spawn(move || {
        let mut watch = MailboxWatcher::new(&root);
        while !changed.is_closed() {
            if watch.wait(Instant::now() + CLOSED_CHECK_INTERVAL) == WatchOutcome::Changed {
                // One that waits already says as much.
                let _ = changed.try_send(());
            }
        }
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::mailbox::message::{MailboxDraft, MessageRecipient};

    #[test]
    fn unsettled_files_are_not_carried_and_later_changes_are_warned_about() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut copy = HostCopy::open(folder.path(), BTreeSet::new()).expect("made");
        let host: AgentId = "host".parse().expect("an id");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", "all of it");
        copy.mailbox.send(&host, &draft, None, jiff::Timestamp::now()).expect("sent");
        let file = copy.root().join("agents/host/001.md");
        let whole = fs::read_to_string(&file).expect("a file");
        let paths = |found: Vec<OutgoingFile>| found.into_iter().map(|one| one.file.path).collect::<Vec<_>>();
        let aged = |path: &Path, age: Duration| {
            fs::File::options()
                .write(true)
                .open(path)
                .expect("open")
                .set_modified(SystemTime::now() - age)
                .expect("set");
        };
        // Header and half of the body: a message by itself.
        fs::write(&file, whole.replace("all of it", "all")).expect("written");
        fs::write(copy.root().join("shared/PLAN.md"), "ha").expect("written");
        aged(&file, Duration::ZERO);
        assert_eq!(paths(copy.find_new(false, false, |_, _| false).expect("read")), [""; 0]);
        assert!(copy.has_unsettled());
        fs::write(&file, &whole).expect("written");
        for path in [&file, &copy.root().join("shared/PLAN.md")] {
            aged(path, SETTLE_TIME);
        }
        let found = copy.find_new(false, false, |_, _| false).expect("read");
        assert_eq!(found[0].file.text.as_deref(), Some(&whole[..]));
        assert_eq!(paths(found), ["agents/host/001.md", "shared/PLAN.md"]);
        assert!(!copy.has_unsettled() && copy.warned_paths.is_empty());
        copy.find_new(false, false, |_, _| true).expect("read");
        assert!(copy.warned_paths.is_empty());
        fs::write(&file, whole.replace("all of it", "something else")).expect("written");
        copy.find_new(false, false, |_, _| true).expect("read");
        assert!(copy.warned_paths.contains("agents/host/001.md"));
        // Of too many, what was carried stays, and what is missing is only what is not there.
        let known = SyncedStamps { volume: "v".to_owned(), host: "h".to_owned() };
        copy.shared.insert("ZZZ.md".to_owned(), known);
        fs::write(copy.root().join("shared/ZZZ.md"), "ours").expect("written");
        for number in 0..MAX_SHARED_FILES + 5 {
            fs::write(copy.root().join(format!("shared/H{number}.md")), "x").expect("written");
        }
        let found = copy.find_new(false, true, |_, _| true).expect("read");
        assert!(found.iter().all(|one| one.file.text.is_some()), "{:?}", paths(found));
        let found = copy.find_new(false, true, |_, _| true).expect("read");
        assert_eq!(found.iter().filter(|one| one.shared.is_some()).count(), MAX_SHARED_FILES);
        assert!(copy.warned_paths.contains("shared"));
        let (there, away) = (copy.root().join("shared"), copy.root().join("elsewhere"));
        fs::rename(&there, &away).expect("renamed");
        assert!(copy.find_new(false, true, |_, _| true).expect("read").is_empty());
        fs::remove_dir_all(&away).expect("removed");
        fs::create_dir(&there).expect("made");
        copy.shared.clear();
        // A number is a number, however many digits it is padded to.
        fs::rename(&file, copy.root().join("agents/host/1.md")).expect("renamed");
        let found = copy.find_new(false, true, |_, _| false).expect("read");
        assert!(found.iter().any(|one| one.file.path == "agents/host/001.md"), "{:?}", paths(found));
        // As large as fits one request of JSON, whatever is in it.
        for (text, fits) in
            [("x".repeat(900_000), true), ("\u{1}".repeat(200_000), false), ("x".repeat(1_100_000), false)]
        {
            fs::write(copy.root().join("shared/BIG.md"), text).expect("written");
            let found = paths(copy.find_new(false, true, |_, _| true).expect("read"));
            assert_eq!(found.contains(&"shared/BIG.md".to_owned()), fits);
            fs::remove_file(copy.root().join("shared/BIG.md")).expect("removed");
        }
        // When nobody writes any more, all is taken.
        fs::write(copy.root().join("shared/LAST.md"), "now").expect("written");
        assert!(paths(copy.find_new(false, true, |_, _| true).expect("read")).contains(&"shared/LAST.md".to_owned()));
    }
}
