//! The directories of the mailbox's volume, held open, and the files in them.
//!
//! Used by `depot/mailbox.rs` and `poll.rs`, as root. Must not: follow a link or block on a FIFO of a sandbox.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Uid, fchmod, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::super::{depot_error, io_error};
use crate::handoff::depot::{DepotError, DepotErrorKind};
use crate::handoff::mailbox::{MAX_DIR_ENTRIES, MAX_MESSAGE_BYTES, MessageNumbers, format_stamp};
use crate::ids::AgentId;
use crate::protocol::mailbox::error::MailboxError;
use crate::protocol::mailbox::layout::{AGENTS_DIR, SHARED_DIR};
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::open_dir::OpenDir;

/// Prefix of temporary files in the root of the volume.
const TEMP_PREFIX: &str = ".put-";
/// Extended attributes that could keep granting others access.
const ACL_XATTRS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

static TEMP_COUNTER: AtomicU64 = AtomicU64::new(0);

pub(super) struct MailboxDirs {
    pub(super) root: OpenDir,
    agents: OpenDir,
    pub(super) shared: OpenDir,
}

impl MailboxDirs {
    pub(super) fn open(path: &Path) -> Result<Self, DepotError> {
        let root = OpenDir::open(path).map_err(to_depot_error)?;
        let (agents, shared) = (open_existing(&root, AGENTS_DIR)?, open_existing(&root, SHARED_DIR)?);
        Ok(Self { root, agents, shared })
    }

    /// Creates what is missing.
    pub(super) fn create(path: &Path) -> Result<Self, DepotError> {
        std::fs::create_dir_all(path).map_err(|error| io_error("create", path, &error))?;
        let root = OpenDir::open(path).map_err(to_depot_error)?;
        fchmod(&root, Mode::from_raw_mode(0o755)).map_err(|error| io_error("create", path, &error.into()))?;
        let create = |name, mode| root.create_subdir_with_mode(name, mode).map_err(to_depot_error);
        let (agents, shared) = (create(AGENTS_DIR, 0o755)?, create(SHARED_DIR, 0o777)?);
        Ok(Self { root, agents, shared })
    }

    /// Removes the temporary files of a depot that died.
    pub(super) fn remove_stale_temps(&self) -> Result<(), DepotError> {
        for name in entry_names(&self.root)?.iter().filter(|name| name.starts_with(TEMP_PREFIX)) {
            let _ = unlinkat(&self.root, name, AtFlags::empty());
        }
        Ok(())
    }

    /// The owners of the outboxes.
    pub(super) fn agents(&self) -> Result<Vec<AgentId>, DepotError> {
        Ok(entry_names(&self.agents)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub(super) fn outbox(&self, agent: &AgentId) -> Result<OpenDir, DepotError> {
        open_existing(&self.agents, agent.as_str())
    }

    /// An agent's outbox. A new one belongs to root.
    pub(super) fn ensure_outbox(&self, agent: &AgentId) -> Result<OpenDir, DepotError> {
        self.agents.create_subdir_with_mode(agent.as_str(), 0o755).map_err(to_depot_error)
    }

    /// Writes a temporary file where no sandbox can write. Returns its name.
    fn write_temp(&self, text: &str, mode: u32) -> Result<String, DepotError> {
        let name = format!("{TEMP_PREFIX}{}-{}", std::process::id(), TEMP_COUNTER.fetch_add(1, Ordering::Relaxed));
        self.root.write_new(&name, text.as_bytes(), mode).map_err(to_depot_error)?;
        Ok(name)
    }

    /// Creates or replaces a file. Returns `false` if a directory has the name.
    pub(super) fn replace(&self, dir: &OpenDir, name: &str, text: &str, mode: u32) -> Result<bool, DepotError> {
        let temp = self.write_temp(text, mode)?;
        let Err(error) = renameat(&self.root, &temp, dir, name) else { return Ok(true) };
        let _ = unlinkat(&self.root, &temp, AtFlags::empty());
        match error {
            Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => Ok(false),
            error => Err(io_error("write", Path::new(name), &error.into())),
        }
    }

    /// Adds a message without replacing anything or following a link. Returns `false` if a different file has the name.
    pub(super) fn add_message(&self, outbox: &OpenDir, name: &str, text: &str) -> Result<bool, DepotError> {
        let temp = self.write_temp(text, 0o644)?;
        let linked = linkat(&self.root, &temp, outbox, name, AtFlags::empty());
        let _ = unlinkat(&self.root, &temp, AtFlags::empty());
        match linked {
            Ok(()) => Ok(true),
            // A depot that died before it could respond may have written the same message.
            Err(Errno::EXIST) => Ok(read_message(outbox, name).is_some_and(|found| found == text.as_bytes())),
            Err(error) => Err(io_error("write", Path::new(name), &error.into())),
        }
    }
}

/// Makes `uid` the owner of an outbox. The attempt that owned it has ended, but its user may have granted others access, which
/// ends here. The messages stay as they are.
pub(super) fn transfer_outbox(outbox: &OpenDir, uid: u32) -> rustix::io::Result<()> {
    if rustix::fs::fstat(outbox)?.st_uid == uid {
        return Ok(());
    }
    let chown = |uid| rustix::fs::fchown(outbox, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)));
    // Without FOWNER, root can change the mode only of its own files.
    chown(0)?;
    for name in ACL_XATTRS {
        // Usually there is none, and some file systems do not support them.
        let _ = rustix::fs::fremovexattr(outbox.as_fd(), name);
    }
    fchmod(outbox, Mode::from_raw_mode(0o755))?;
    chown(uid)
}

fn open_existing(parent: &OpenDir, name: &str) -> Result<OpenDir, DepotError> {
    let missing = || depot_error(DepotErrorKind::NotFound, format!("the mailbox has no directory `{name}`"));
    parent.open_subdir(name).map_err(to_depot_error)?.ok_or_else(missing)
}

/// The UTF-8 names in a directory, at most [`MAX_DIR_ENTRIES`].
pub(super) fn entry_names(dir: &OpenDir) -> Result<Vec<String>, DepotError> {
    dir.first_entry_names(MAX_DIR_ENTRIES).map_err(to_depot_error)
}

/// The numbers of an outbox's messages, from the file names alone.
pub(super) fn message_numbers(outbox: &OpenDir) -> Result<MessageNumbers, DepotError> {
    Ok(entry_names(outbox)?.iter().filter_map(|name| Seq::from_file_name(name)).map(Seq::get).collect())
}

/// A message's bytes. `None` if it is not a regular file.
fn read_message(outbox: &OpenDir, name: &str) -> Option<Vec<u8>> {
    let file: File = outbox.open_file(name).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The stamp of a regular file. `None` if there is none.
pub(super) fn file_stamp(dir: &OpenDir, name: &str) -> Option<String> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| stamp_of(&stat))
}

/// The stamp of an entry of any kind. Empty if there is none.
pub(super) fn entry_stamp(dir: &OpenDir, name: &str) -> String {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stamp_of(&stat)).unwrap_or_default()
}

fn stamp_of(stat: &Stat) -> String {
    format_stamp(stat.st_ino, stat.st_size.cast_unsigned(), stat.st_mtime, stat.st_mtime_nsec.cast_signed())
}

fn to_depot_error(error: MailboxError) -> DepotError {
    match error {
        MailboxError::Io { operation, path, source } => io_error(operation, &path, &source),
        error => depot_error(DepotErrorKind::Failed, error.to_string()),
    }
}
