//! The SSOT, AMP's single source of truth: where messages, acks and task files land. `.longshore/ssot/` at the repo's root,
//! shared by the repo's swarms, several of which may write at once.
//!
//! Called by `coordinator/` (from a thread of its own: everything here waits for the disk) and by `cli/`. Must not: know
//! Docker, git or swarms, decide anything, or read a clock.
//!
//! | folder | what | written |
//! |---|---|---|
//! | `messages/<task>/<msg_id>.json` | a message | once |
//! | `acks/<task>/<msg_id>.json` | its ack | once |
//! | `tasks/<task>.json` | [`TaskFile`] | replaced |
//! | `errors/<year>-<month>.ndjson` | [`Refused`], a line each | appended |
//! | `decisions/<swarm>/<number>-<id>.json` | [`AdminDecision`] | once |
//! | `index/open/<msg_id>` | an escalation that may have no ack yet | made, removed |
//! | `numbers/<year>` | the next free task number | replaced |
//! | `memory/<swarm>/<file>-<story>.json` | what a story that landed learned: a MemoryGram | once |
//!
//! **Lookups do not scan.** An id says its task, and both say the path: a message, its ack and a task are one `open` away,
//! a task's log is one folder. What no path says, which escalations are open, is the index's: a marker is there *before* its
//! message and until *after* its ack, so that markers may be too many and never too few, whenever a writer dies. Readers
//! look at the ack too.
//!
//! **Nothing twice, nothing overwritten.** `ensure_*` of what is there already changes nothing; of another content under the
//! same id it is [`SsotError::Conflict`]. That holds between processes: see [`files`].
//!
//! **How durable.** The journal of a swarm can make each of its messages again, and does on `resume`; so messages are not
//! synced one by one. A crash of the program loses nothing. A power cut may leave files of the last seconds empty or half:
//! such a file counts as not there, and `ensure_*` writes it again. [`Ssot::sync`] ends that: the coordinator calls it before
//! a swarm's end is on record, after which nobody would make its messages again. Task numbers and decisions, which have no
//! other copy, are on the disk when their function is done.

mod check;
mod decisions;
mod error;
mod files;
mod memory;
mod numbers;
mod refused;
mod task_file;
#[cfg(test)]
mod tests;

pub use check::{Problem, Weight};
pub use decisions::{AdminAction, AdminDecision, DecisionId, Target};
pub use error::{SsotError, SsotResult};
pub use refused::Refused;
pub use task_file::{TaskFile, TaskStatus, TaskStory};

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use self::files::{Files, to_bytes, torn};
use super::message::{Ack, Kind, Message, MsgId};
use crate::ids::AssignmentId;
use crate::state::swarm_dir::{STATE_DIR, create_state_dir};

const FOLDERS: [&str; 9] =
    ["messages", "acks", "tasks", "errors", "decisions", "index", "index/open", "numbers", memory::MEMORY];
const README: &str = include_str!("store/README.md");

/// The SSOT of a repo. Several threads may use one value, and several processes one folder.
#[derive(Debug)]
pub struct Ssot {
    files: Files,
}

/// What `ensure_*` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// It was not there, and is now.
    Written,
    /// It was there, the same.
    AlreadyThere,
}

/// A message and its ack, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What was said.
    pub message: Message,
    /// That it arrived.
    pub ack: Option<Ack>,
}

impl Ssot {
    /// The SSOT of the repo with this root, for reading and writing. Makes what is missing of it.
    pub fn open(repo_root: &Path) -> SsotResult<Self> {
        create_state_dir(repo_root)?;
        let ssot = Self::at(repo_root);
        let indexed = ssot.files.has(&ssot.files.path("index/open"))?;
        ssot.files.make(&FOLDERS)?;
        let readme = ssot.files.path("README.md");
        if !ssot.files.has(&readme)? {
            ssot.files.replace(&readme, README.as_bytes())?;
        }
        if !indexed {
            ssot.reindex()?;
        }
        Ok(ssot)
    }

    /// The same for reading. Makes nothing, and has nothing where nothing was made.
    pub fn at(repo_root: &Path) -> Self {
        Self { files: Files::at(repo_root.join(STATE_DIR).join("ssot")) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.files.root()
    }

    /// Where the message of this id is, or would be.
    pub fn message_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("messages/{}/{id}.json", id.task()))
    }

    /// Where the ack of the message of this id is, or would be.
    pub fn ack_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("acks/{}/{id}.json", id.task()))
    }

    fn task_path(&self, task: &AssignmentId) -> PathBuf {
        self.files.path(format!("tasks/{task}.json"))
    }

    fn marker_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("index/open/{id}"))
    }

    /// Sees to it that the message is there.
    ///
    /// # Errors
    /// [`SsotError::Conflict`] where its id has another content.
    pub fn ensure_message(&self, message: &Message) -> SsotResult<Ensured> {
        let id = message.id();
        let path = self.message_path(id);
        if id.kind() == Kind::Escalation && !self.files.has(&self.ack_path(id))? {
            self.files.add(&self.marker_path(id), b"")?;
        }
        self.files.make_folder(&self.files.path(format!("messages/{}", id.task())))?;
        self.ensure(&path, message.to_json(), |there| Message::read(there).is_ok_and(|there| there == *message))
    }

    /// Sees to it that the ack is there.
    ///
    /// # Errors
    /// [`SsotError::NoMessage`] where there is no such message; [`SsotError::Conflict`] where it has another ack.
    pub fn ensure_ack(&self, ack: &Ack) -> SsotResult<Ensured> {
        let id = &ack.ack_of;
        if !self.files.has(&self.message_path(id))? {
            return Err(SsotError::NoMessage(id.clone()));
        }
        let path = self.ack_path(id);
        self.files.make_folder(&self.files.path(format!("acks/{}", id.task())))?;
        let ensured = self.ensure(&path, ack.to_json(), |there| Ack::read(there).is_ok_and(|there| there == *ack))?;
        if id.kind() == Kind::Escalation {
            self.files.remove(&self.marker_path(id))?;
        }
        Ok(ensured)
    }

    fn ensure(&self, path: &Path, json: String, same: impl Fn(&str) -> bool) -> SsotResult<Ensured> {
        let bytes = (json + "\n").into_bytes();
        loop {
            let Some(there) = self.files.read(path)? else {
                if self.files.add(path, &bytes)? {
                    return Ok(Ensured::Written);
                }
                // Somebody was quicker: what did they write?
                continue;
            };
            if there == bytes || std::str::from_utf8(&there).is_ok_and(&same) {
                return Ok(Ensured::AlreadyThere);
            }
            if !torn(&there) {
                return Err(SsotError::Conflict { path: path.to_owned() });
            }
            // Two who find it torn must not replace what the other one wrote.
            let _lock = self.files.lock("index/lock")?;
            if self.files.read(path)?.is_none_or(|there| torn(&there)) {
                self.files.replace(path, &bytes)?;
                return Ok(Ensured::Written);
            }
        }
    }

    /// Writes a task's file, over the one that is there.
    pub fn put_task(&self, task: &TaskFile) -> SsotResult<()> {
        let path = self.task_path(&task.task_id);
        self.files.replace(&path, &to_bytes(&path, task)?)
    }

    /// Waits until all that this value wrote is on the disk.
    pub fn sync(&self) -> SsotResult<()> {
        self.files.sync()
    }

    /// The message of an id; none where it is not there, or torn.
    pub fn message(&self, id: &MsgId) -> SsotResult<Option<Message>> {
        let path = self.message_path(id);
        let Some(bytes) = self.files.read(&path)? else { return Ok(None) };
        let message = match Message::read(std::str::from_utf8(&bytes).unwrap_or_default()) {
            Ok(message) => message,
            Err(_) if torn(&bytes) => return Ok(None),
            Err(violation) => return Err(SsotError::damaged(&path, violation)),
        };
        if message.id() == id { Ok(Some(message)) } else { Err(SsotError::damaged(&path, other_id(message.id()))) }
    }

    /// The ack of a message; none where it is not there, or torn.
    pub fn ack(&self, id: &MsgId) -> SsotResult<Option<Ack>> {
        let path = self.ack_path(id);
        let Some(bytes) = self.files.read(&path)? else { return Ok(None) };
        let ack = match Ack::read(std::str::from_utf8(&bytes).unwrap_or_default()) {
            Ok(ack) => ack,
            Err(_) if torn(&bytes) => return Ok(None),
            Err(violation) => return Err(SsotError::damaged(&path, violation)),
        };
        if ack.ack_of == *id { Ok(Some(ack)) } else { Err(SsotError::damaged(&path, other_id(&ack.ack_of))) }
    }

    /// A message and its ack.
    pub fn entry(&self, id: &MsgId) -> SsotResult<Option<Entry>> {
        let Some(message) = self.message(id)? else { return Ok(None) };
        Ok(Some(Entry { message, ack: self.ack(id)? }))
    }

    /// The file of a task; none where it is not there, or torn.
    pub fn task(&self, task: &AssignmentId) -> SsotResult<Option<TaskFile>> {
        self.files.read_json(&self.task_path(task))
    }

    /// All task files, by their numbers.
    pub fn tasks(&self) -> SsotResult<Vec<TaskFile>> {
        let names = self.files.names(&self.files.path("tasks"))?;
        let mut ids: Vec<AssignmentId> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        ids.sort_by(|a, b| by_number(a).cmp(&by_number(b)));
        let mut tasks = Vec::with_capacity(ids.len());
        for id in &ids {
            tasks.extend(self.task(id)?);
        }
        Ok(tasks)
    }

    /// The conversation about a task, in order.
    pub fn log(&self, task: &AssignmentId) -> SsotResult<Vec<Entry>> {
        let mut entries = Vec::new();
        for id in self.ids_of(task)? {
            entries.extend(self.entry(&id)?);
        }
        Ok(entries)
    }

    /// The conversation about all tasks, in order: what was said at that time or later. Entries are read as they are asked
    /// for.
    pub fn log_all(&self, since: Option<Timestamp>) -> SsotResult<impl Iterator<Item = SsotResult<Entry>>> {
        let ids = self.ids(since)?;
        Ok(ids.into_iter().filter_map(|id| self.entry(&id).transpose()))
    }

    /// The ids of all messages of that time or later, in order. Reads folders, and no files.
    pub fn ids(&self, since: Option<Timestamp>) -> SsotResult<Vec<MsgId>> {
        let since = since.map_or(0, |since| u64::try_from(since.as_millisecond()).unwrap_or(0));
        let mut ids = Vec::new();
        for name in self.files.names(&self.files.path("messages"))? {
            if let Ok(task) = name.parse() {
                ids.extend(self.ids_in("messages", &task)?.into_iter().filter(|id| id.unix_ms() >= since));
            }
        }
        ids.sort_by(by_time);
        Ok(ids)
    }

    /// The ids of a task's messages, in order.
    pub fn ids_of(&self, task: &AssignmentId) -> SsotResult<Vec<MsgId>> {
        let mut ids = self.ids_in("messages", task)?;
        ids.sort_by(by_time);
        Ok(ids)
    }

    fn ids_in(&self, folder: &str, task: &AssignmentId) -> SsotResult<Vec<MsgId>> {
        let names = self.files.names(&self.files.path(format!("{folder}/{task}")))?;
        let ids = names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        Ok(ids.filter(|id: &MsgId| id.task() == task).collect())
    }

    /// The escalations that the admin has not answered, in order.
    pub fn open_escalations(&self) -> SsotResult<Vec<Message>> {
        let mut ids = self.markers()?;
        ids.sort_by(by_time);
        let mut open = Vec::new();
        for id in &ids {
            if self.ack(id)?.is_none() {
                // None where its writer died before it wrote it.
                open.extend(self.message(id)?);
            }
        }
        Ok(open)
    }

    /// Makes the index anew from the messages and acks. Gives how much of it was wrong. Others may write meanwhile.
    pub fn reindex(&self) -> SsotResult<usize> {
        let markers = self.markers()?;
        let mut wrong = 0;
        for id in self.ids(None)?.iter().filter(|id| id.kind() == Kind::Escalation && !markers.contains(id)) {
            if self.ack(id)?.is_none() && self.files.add(&self.marker_path(id), b"")? {
                wrong += 1;
            }
        }
        // One without a message may be of a writer that is about to write it, and stays.
        for id in &markers {
            if self.ack(id)?.is_some() {
                self.files.remove(&self.marker_path(id))?;
                wrong += 1;
            }
        }
        Ok(wrong)
    }

    /// The paths of all that is worth keeping elsewhere, below the folder, in order; each with whether it is written once.
    pub fn list(&self) -> SsotResult<Vec<(String, bool)>> {
        let mut files = vec![("README.md".to_owned(), false)];
        for (folder, once) in [("messages", true), ("acks", true), ("decisions", true), ("memory", true)] {
            for below in self.files.names(&self.files.path(folder))?.into_iter().filter(|name| name != "lock") {
                let names = self.files.names(&self.files.path(format!("{folder}/{below}")))?;
                files.extend(names.into_iter().map(|name| (format!("{folder}/{below}/{name}"), once)));
            }
        }
        for folder in ["tasks", "errors"] {
            let names = self.files.names(&self.files.path(folder))?;
            files.extend(names.into_iter().map(|name| (format!("{folder}/{name}"), false)));
        }
        files.sort();
        Ok(files)
    }

    fn markers(&self) -> SsotResult<Vec<MsgId>> {
        let names = self.files.names(&self.files.path("index/open"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

fn other_id(found: &MsgId) -> String {
    format!("it has the id `{found}`")
}

/// The order of a conversation: by time; within a millisecond in the order in which a task goes through the types.
pub fn by_time(a: &MsgId, b: &MsgId) -> std::cmp::Ordering {
    (a.unix_ms(), a.kind(), a).cmp(&(b.unix_ms(), b.kind(), b))
}

/// Numbers have three digits or more.
fn by_number(task: &AssignmentId) -> (&str, usize, &str) {
    let text = task.as_str();
    let (year, number) = text.split_at(7.min(text.len()));
    (year, number.len(), number)
}
