//! The directory of the SSOT: messages, acks, task files and the index of open escalations.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::error::{SsotError, SsotResult};
use super::files::{SsotFiles, is_torn, to_json_bytes};
use super::task_file::TaskFile;
use crate::ids::AssignmentId;
use crate::protocol::amp::message::{Ack, AmpMessage, AmpMessageType, MsgId};
use crate::repo_dir::{STATE_DIR, create_state_dir};

const DIRS: [&str; 9] =
    ["messages", "acks", "tasks", "errors", "decisions", "index", "index/open", "numbers", MEMORY_DIR];
pub(super) const MEMORY_DIR: &str = "memory";
const README: &str = include_str!("README.md");

/// The SSOT of a repo. Several threads may share one value, and several processes one directory.
#[derive(Debug)]
pub struct Ssot {
    pub(super) files: SsotFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsureOutcome {
    Written,
    /// With the same content.
    AlreadyThere,
}

/// A message and its ack, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    pub message: AmpMessage,
    pub ack: Option<Ack>,
}

impl Ssot {
    /// Opens the SSOT of the repo with this root for reading and writing, and creates what is missing.
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

    /// Opens the SSOT for reading. Creates nothing; an SSOT that does not exist is empty.
    pub fn open_read_only(repo_root: &Path) -> Self {
        Self { files: SsotFiles::new(repo_root.join(STATE_DIR).join("ssot")) }
    }

    pub fn dir(&self) -> &Path {
        self.files.root()
    }

    pub fn message_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("messages/{}/{id}.json", id.task_id()))
    }

    pub fn ack_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("acks/{}/{id}.json", id.task_id()))
    }

    fn task_path(&self, task: &AssignmentId) -> PathBuf {
        self.files.path(format!("tasks/{task}.json"))
    }

    fn marker_path(&self, id: &MsgId) -> PathBuf {
        self.files.path(format!("index/open/{id}"))
    }

    /// Writes the message, unless it is there.
    ///
    /// # Errors
    /// [`SsotError::Conflict`] if another message has its id.
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

    /// Writes the ack, unless it is there.
    ///
    /// # Errors
    /// [`SsotError::MessageNotFound`] without the message; [`SsotError::Conflict`] if the message has another ack.
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
                // Another writer was faster: compare with its file.
                continue;
            };
            if there == bytes || std::str::from_utf8(&there).is_ok_and(&same) {
                return Ok(EnsureOutcome::AlreadyThere);
            }
            if !is_torn(&there) {
                return Err(SsotError::Conflict { path: path.to_owned() });
            }
            // Two writers that find it torn must not replace each other's file.
            let _lock = self.files.lock("index/lock")?;
            if self.files.read(path)?.is_none_or(|there| is_torn(&there)) {
                self.files.replace(path, &bytes)?;
                return Ok(EnsureOutcome::Written);
            }
        }
    }

    /// Writes or replaces a task's file.
    pub fn write_task_file(&self, task: &TaskFile) -> SsotResult<()> {
        let path = self.task_path(&task.task_id);
        self.files.replace(&path, &to_json_bytes(&path, task)?)
    }

    /// Syncs everything that this value wrote.
    pub fn sync(&self) -> SsotResult<()> {
        self.files.sync()
    }

    /// The message of an id; `None` if it is absent or torn.
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

    /// The ack of a message; `None` if it is absent or torn.
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

    pub fn log_entry(&self, id: &MsgId) -> SsotResult<Option<LogEntry>> {
        let Some(message) = self.message(id)? else { return Ok(None) };
        Ok(Some(LogEntry { message, ack: self.ack(id)? }))
    }

    /// The file of a task; `None` if it is absent or torn.
    pub fn task_file(&self, task: &AssignmentId) -> SsotResult<Option<TaskFile>> {
        self.files.read_json(&self.task_path(task))
    }

    /// All task files, by number.
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

    /// The messages of a task, in order.
    pub fn log(&self, task: &AssignmentId) -> SsotResult<Vec<LogEntry>> {
        let mut entries = Vec::new();
        for id in self.task_message_ids(task)? {
            entries.extend(self.log_entry(&id)?);
        }
        Ok(entries)
    }

    /// The messages of all tasks since a time, in order. Entries are read lazily.
    pub fn log_all(&self, since: Option<Timestamp>) -> SsotResult<impl Iterator<Item = SsotResult<LogEntry>>> {
        let ids = self.message_ids(since)?;
        Ok(ids.into_iter().filter_map(|id| self.log_entry(&id).transpose()))
    }

    /// The ids of all messages since a time, in order. Reads directories, no files.
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

    fn ids_in_dir(&self, dir: &str, task: &AssignmentId) -> SsotResult<Vec<MsgId>> {
        let names = self.files.file_names(&self.files.path(format!("{dir}/{task}")))?;
        let ids = names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        Ok(ids.filter(|id: &MsgId| id.task_id() == task).collect())
    }

    /// The escalations without an answer of the admin, in order.
    pub fn open_escalations(&self) -> SsotResult<Vec<AmpMessage>> {
        let mut ids = self.open_markers()?;
        ids.sort_by(compare_by_time);
        let mut open = Vec::new();
        for id in &ids {
            if self.ack(id)?.is_none() {
                // `None` if its writer died between marker and message.
                open.extend(self.message(id)?);
            }
        }
        Ok(open)
    }

    /// Rebuilds the index from messages and acks, while others may write. Returns the number of wrong entries.
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
        // A marker without a message stays: its writer may be about to write the message.
        for id in &markers {
            if self.ack(id)?.is_some() {
                self.files.remove(&self.marker_path(id))?;
                wrong += 1;
            }
        }
        Ok(wrong)
    }

    /// The relative paths of everything worth archiving, in order, each with whether it is written once.
    pub fn list_files(&self) -> SsotResult<Vec<(String, bool)>> {
        let mut files = vec![("README.md".to_owned(), false)];
        for (dir, once) in [("messages", true), ("acks", true), ("decisions", true), ("memory", true)] {
            for below in self.files.file_names(&self.files.path(dir))?.into_iter().filter(|name| name != "lock") {
                let names = self.files.file_names(&self.files.path(format!("{dir}/{below}")))?;
                files.extend(names.into_iter().map(|name| (format!("{dir}/{below}/{name}"), once)));
            }
        }
        for dir in ["tasks", "errors"] {
            let names = self.files.file_names(&self.files.path(dir))?;
            files.extend(names.into_iter().map(|name| (format!("{dir}/{name}"), false)));
        }
        files.sort();
        Ok(files)
    }

    pub(super) fn open_markers(&self) -> SsotResult<Vec<MsgId>> {
        let names = self.files.file_names(&self.files.path("index/open"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

pub(super) fn id_mismatch(found: &MsgId) -> String {
    format!("it has the id `{found}`")
}

/// Orders messages by time, within a millisecond by type as a task goes through them.
pub fn compare_by_time(a: &MsgId, b: &MsgId) -> std::cmp::Ordering {
    (a.unix_ms(), a.message_type(), a).cmp(&(b.unix_ms(), b.message_type(), b))
}

/// Sorts by number: numbers have three digits or more.
fn task_number_key(task: &AssignmentId) -> (&str, usize, &str) {
    let text = task.as_str();
    let (year, number) = text.split_at(7.min(text.len()));
    (year, number.len(), number)
}
