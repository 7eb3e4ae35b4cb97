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
//! | `errors/<year>-<month>.ndjson` | [`RejectedMessage`], a line each | appended |
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
mod task_numbers;
mod error_log;
mod task_file;
#[cfg(test)]
mod tests;

pub use check::{ProblemSeverity, SsotProblem};
pub use decisions::{AdminAction, AdminDecision, DecisionId, DecisionTarget};
pub use error::{SsotError, SsotResult};
pub use error_log::RejectedMessage;
pub use task_file::{TaskFile, TaskStatus, TaskStory};

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use self::files::{SsotFiles, is_torn, to_json_bytes};
use super::message::{Ack, AmpMessage, AmpMessageType, MsgId};
use crate::ids::AssignmentId;
use crate::state::swarm_dir::{STATE_DIR, create_state_dir};

const DIRS: [&str; 9] =
    ["messages", "acks", "tasks", "errors", "decisions", "index", "index/open", "numbers", memory::MEMORY_DIR];
const README: &str = include_str!("store/README.md");

/// The SSOT of a repo. Several threads may use one value, and several processes one folder.
#[derive(Debug)]
pub struct Ssot {
    files: SsotFiles,
}

/// What `ensure_*` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsureOutcome {
    /// It was not there, and is now.
    Written,
    /// It was there, the same.
    AlreadyThere,
}

/// A message and its ack, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// What was said.
    pub message: AmpMessage,
    /// That it arrived.
    pub ack: Option<Ack>,
}

impl Ssot {
    /// The SSOT of the repo with this root, for reading and writing. Makes what is missing of it.
    pub fn open(repo_root: &Path) -> SsotResult<Self> {
        create_state_dir(repo_root)?;
        let ssot = Self::open_read_only(repo_root);
        let indexed = ssot.files.exists(&ssot.files.path("index/open"))?;
        ssot.files.create_layout(&DIRS)?;
        let readme = ssot.files.path("README.md");
        if !ssot.files.exists(&readme)? {
            ssot.files.replace(&readme, README.as_bytes())?;
        }
        if !indexed {
            ssot.rebuild_index()?;
        }
        Ok(ssot)
    }

    /// The same for reading. Makes nothing, and has nothing where nothing was made.
    pub fn open_read_only(repo_root: &Path) -> Self {
        Self { files: SsotFiles::new(repo_root.join(STATE_DIR).join("ssot")) }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.files.root()
    }

    /// Where the message of this id is, or would be.
    pub fn message_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("messages/{}/{id}.json", id.task_id()))
    }

    /// Where the ack of the message of this id is, or would be.
    pub fn ack_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("acks/{}/{id}.json", id.task_id()))
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
    pub fn ensure_message(&self, message: &AmpMessage) -> SsotResult<EnsureOutcome> {
        let id = message.id();
        let path = self.message_path(id);
        if id.message_type() == AmpMessageType::Escalation && !self.files.exists(&self.ack_path(id))? {
            self.files.create_new(&self.marker_path(id), b"")?;
        }
        self.files.create_dir(&self.files.path(format!("messages/{}", id.task_id())))?;
        self.ensure_file(&path, message.to_json(), |there| {
            AmpMessage::parse(there).is_ok_and(|there| there == *message)
        })
    }

    /// Sees to it that the ack is there.
    ///
    /// # Errors
    /// [`SsotError::MessageNotFound`] where there is no such message; [`SsotError::Conflict`] where it has another ack.
    pub fn ensure_ack(&self, ack: &Ack) -> SsotResult<EnsureOutcome> {
        let id = &ack.ack_of;
        if !self.files.exists(&self.message_path(id))? {
            return Err(SsotError::MessageNotFound(id.clone()));
        }
        let path = self.ack_path(id);
        self.files.create_dir(&self.files.path(format!("acks/{}", id.task_id())))?;
        let ensured =
            self.ensure_file(&path, ack.to_json(), |there| Ack::parse(there).is_ok_and(|there| there == *ack))?;
        if id.message_type() == AmpMessageType::Escalation {
            self.files.remove(&self.marker_path(id))?;
        }
        Ok(ensured)
    }

    fn ensure_file(&self, path: &Path, json: String, same: impl Fn(&str) -> bool) -> SsotResult<EnsureOutcome> {
        let bytes = (json + "\n").into_bytes();
        loop {
            let Some(there) = self.files.read(path)? else {
                if self.files.create_new(path, &bytes)? {
                    return Ok(EnsureOutcome::Written);
                }
                // Somebody was quicker: what did they write?
                continue;
            };
            if there == bytes || std::str::from_utf8(&there).is_ok_and(&same) {
                return Ok(EnsureOutcome::AlreadyThere);
            }
            if !is_torn(&there) {
                return Err(SsotError::Conflict { path: path.to_owned() });
            }
            // Two who find it torn must not replace what the other one wrote.
            let _lock = self.files.lock("index/lock")?;
            if self.files.read(path)?.is_none_or(|there| is_torn(&there)) {
                self.files.replace(path, &bytes)?;
                return Ok(EnsureOutcome::Written);
            }
        }
    }

    /// Writes a task's file, over the one that is there.
    pub fn write_task_file(&self, task: &TaskFile) -> SsotResult<()> {
        let path = self.task_path(&task.task_id);
        self.files.replace(&path, &to_json_bytes(&path, task)?)
    }

    /// Waits until all that this value wrote is on the disk.
    pub fn sync(&self) -> SsotResult<()> {
        self.files.sync()
    }

    /// The message of an id; none where it is not there, or torn.
    pub fn message(&self, id: &MsgId) -> SsotResult<Option<AmpMessage>> {
        let path = self.message_path(id);
        let Some(bytes) = self.files.read(&path)? else { return Ok(None) };
        let message = match AmpMessage::parse(std::str::from_utf8(&bytes).unwrap_or_default()) {
            Ok(message) => message,
            Err(_) if is_torn(&bytes) => return Ok(None),
            Err(violation) => return Err(SsotError::damaged(&path, violation)),
        };
        if message.id() == id { Ok(Some(message)) } else { Err(SsotError::damaged(&path, id_mismatch(message.id()))) }
    }

    /// The ack of a message; none where it is not there, or torn.
    pub fn ack(&self, id: &MsgId) -> SsotResult<Option<Ack>> {
        let path = self.ack_path(id);
        let Some(bytes) = self.files.read(&path)? else { return Ok(None) };
        let ack = match Ack::parse(std::str::from_utf8(&bytes).unwrap_or_default()) {
            Ok(ack) => ack,
            Err(_) if is_torn(&bytes) => return Ok(None),
            Err(violation) => return Err(SsotError::damaged(&path, violation)),
        };
        if ack.ack_of == *id { Ok(Some(ack)) } else { Err(SsotError::damaged(&path, id_mismatch(&ack.ack_of))) }
    }

    /// A message and its ack.
    pub fn log_entry(&self, id: &MsgId) -> SsotResult<Option<LogEntry>> {
        let Some(message) = self.message(id)? else { return Ok(None) };
        Ok(Some(LogEntry { message, ack: self.ack(id)? }))
    }

    /// The file of a task; none where it is not there, or torn.
    pub fn task_file(&self, task: &AssignmentId) -> SsotResult<Option<TaskFile>> {
        self.files.read_json(&self.task_path(task))
    }

    /// All task files, by their numbers.
    pub fn task_files(&self) -> SsotResult<Vec<TaskFile>> {
        let names = self.files.file_names(&self.files.path("tasks"))?;
        let mut ids: Vec<AssignmentId> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        ids.sort_by(|a, b| task_number_key(a).cmp(&task_number_key(b)));
        let mut tasks = Vec::with_capacity(ids.len());
        for id in &ids {
            tasks.extend(self.task_file(id)?);
        }
        Ok(tasks)
    }

    /// The conversation about a task, in order.
    pub fn log(&self, task: &AssignmentId) -> SsotResult<Vec<LogEntry>> {
        let mut entries = Vec::new();
        for id in self.task_message_ids(task)? {
            entries.extend(self.log_entry(&id)?);
        }
        Ok(entries)
    }

    /// The conversation about all tasks, in order: what was said at that time or later. Entries are read as they are asked
    /// for.
    pub fn log_all(&self, since: Option<Timestamp>) -> SsotResult<impl Iterator<Item = SsotResult<LogEntry>>> {
        let ids = self.message_ids(since)?;
        Ok(ids.into_iter().filter_map(|id| self.log_entry(&id).transpose()))
    }

    /// The ids of all messages of that time or later, in order. Reads folders, and no files.
    pub fn message_ids(&self, since: Option<Timestamp>) -> SsotResult<Vec<MsgId>> {
        let since = since.map_or(0, |since| u64::try_from(since.as_millisecond()).unwrap_or(0));
        let mut ids = Vec::new();
        for name in self.files.file_names(&self.files.path("messages"))? {
            if let Ok(task) = name.parse() {
                ids.extend(self.ids_in_dir("messages", &task)?.into_iter().filter(|id| id.unix_ms() >= since));
            }
        }
        ids.sort_by(compare_by_time);
        Ok(ids)
    }

    /// The ids of a task's messages, in order.
    pub fn task_message_ids(&self, task: &AssignmentId) -> SsotResult<Vec<MsgId>> {
        let mut ids = self.ids_in_dir("messages", task)?;
        ids.sort_by(compare_by_time);
        Ok(ids)
    }

    fn ids_in_dir(&self, folder: &str, task: &AssignmentId) -> SsotResult<Vec<MsgId>> {
        let names = self.files.file_names(&self.files.path(format!("{folder}/{task}")))?;
        let ids = names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        Ok(ids.filter(|id: &MsgId| id.task_id() == task).collect())
    }

    /// The escalations that the admin has not answered, in order.
    pub fn open_escalations(&self) -> SsotResult<Vec<AmpMessage>> {
        let mut ids = self.open_markers()?;
        ids.sort_by(compare_by_time);
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
    pub fn rebuild_index(&self) -> SsotResult<usize> {
        let markers = self.open_markers()?;
        let mut wrong = 0;
        for id in self
            .message_ids(None)?
            .iter()
            .filter(|id| id.message_type() == AmpMessageType::Escalation && !markers.contains(id))
        {
            if self.ack(id)?.is_none() && self.files.create_new(&self.marker_path(id), b"")? {
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
    pub fn list_files(&self) -> SsotResult<Vec<(String, bool)>> {
        let mut files = vec![("README.md".to_owned(), false)];
        for (folder, once) in [("messages", true), ("acks", true), ("decisions", true), ("memory", true)] {
            for below in self.files.file_names(&self.files.path(folder))?.into_iter().filter(|name| name != "lock") {
                let names = self.files.file_names(&self.files.path(format!("{folder}/{below}")))?;
                files.extend(names.into_iter().map(|name| (format!("{folder}/{below}/{name}"), once)));
            }
        }
        for folder in ["tasks", "errors"] {
            let names = self.files.file_names(&self.files.path(folder))?;
            files.extend(names.into_iter().map(|name| (format!("{folder}/{name}"), false)));
        }
        files.sort();
        Ok(files)
    }

    fn open_markers(&self) -> SsotResult<Vec<MsgId>> {
        let names = self.files.file_names(&self.files.path("index/open"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

fn id_mismatch(found: &MsgId) -> String {
    format!("it has the id `{found}`")
}

/// The order of a conversation: by time; within a millisecond in the order in which a task goes through the types.
pub fn compare_by_time(a: &MsgId, b: &MsgId) -> std::cmp::Ordering {
    (a.unix_ms(), a.message_type(), a).cmp(&(b.unix_ms(), b.message_type(), b))
}

/// Numbers have three digits or more.
fn task_number_key(task: &AssignmentId) -> (&str, usize, &str) {
    let text = task.as_str();
    let (year, number) = text.split_at(7.min(text.len()));
    (year, number.len(), number)
}
