//! An open directory in which other programs, perhaps hostile ones, write. Files are read up to a limit, without following links
//! or blocking on a FIFO. Files are written to a temporary name that is neither a message's nor a claim's, then renamed.
//!
//! Used by `store.rs`, `agent_mailbox.rs` and `shim/depot/mailbox`. Must not: know what is in the files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fchmod, flock, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use super::error::{MailboxError, MailboxResult};
use crate::atomic_file;

/// How many names of a directory are read.
const MAX_DIR_ENTRIES: usize = 100_000;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const TEMP_PREFIX: &str = ".aside-";
const STALE_TEMP_SECS: u64 = 24 * 3600;

#[derive(Debug)]
pub(crate) struct OpenDir {
    fd: OwnedFd,
    path: PathBuf,
}

#[derive(Debug)]
pub(super) enum FileContent {
    /// The bytes, and when they were last changed.
    File(Vec<u8>, Timestamp),
    /// Larger than the limit: its size.
    TooLarge(u64),
    /// Not a regular file: what it is instead.
    NotRegular(&'static str),
}

/// Unlocks on drop.
#[derive(Debug)]
pub(super) struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenDir {
    /// Opens a directory whose path the caller trusts.
    pub(crate) fn open(path: &Path) -> MailboxResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(MailboxError::io("open", path.to_owned()))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// `None` if there is no such entry. A link or a file is an error.
    pub(crate) fn open_subdir(&self, name: &str) -> MailboxResult<Option<Self>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(MailboxError::NotDirectory(path)),
            Err(error) => Err(MailboxError::io("open", path.clone())(error)),
        }
    }

    /// Opens a subdirectory; creates it, with the mode that the umask permits, if it does not exist.
    pub(super) fn create_subdir(&self, name: &str) -> MailboxResult<Self> {
        self.create_subdir_with(name, 0o755, |_| Ok(()))
    }

    /// Like [`create_subdir`](Self::create_subdir), but a new directory has exactly this mode.
    pub(crate) fn create_subdir_with_mode(&self, name: &str, mode: u32) -> MailboxResult<Self> {
        self.create_subdir_with(name, mode, |created| fchmod(created, Mode::from_bits_truncate(mode as _)))
    }

    fn create_subdir_with(
        &self,
        name: &str,
        mode: u32,
        finish: impl FnOnce(&Self) -> rustix::io::Result<()>,
    ) -> MailboxResult<Self> {
        if let Some(subdir) = self.open_subdir(name)? {
            return Ok(subdir);
        }
        let path = self.path.join(name);
        // With its mode from the start: others may be looking, and a directory that is closed for a moment is an error to them.
        let created = match mkdirat(&self.fd, name, Mode::from_bits_truncate(mode as _)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(MailboxError::io("create", path.clone())(error)),
        };
        let subdir = self.open_subdir(name)?.ok_or_else(|| MailboxError::NotDirectory(path.clone()))?;
        if created {
            finish(&subdir).map_err(MailboxError::io("create", path.clone()))?;
        }
        Ok(subdir)
    }

    /// The UTF-8 names in the directory, in no order.
    pub(super) fn entry_names(&self) -> MailboxResult<Vec<String>> {
        self.first_entry_names(MAX_DIR_ENTRIES)
    }

    /// The same, at most `limit` of them.
    pub(crate) fn first_entry_names(&self, limit: usize) -> MailboxResult<Vec<String>> {
        let failed = MailboxError::io("list", self.path.clone());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            if names.len() == limit {
                break;
            }
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    pub(super) fn is_world_writable(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH))
    }

    /// Opens a file for reading without following a link, blocking on a FIFO or becoming a terminal's controller.
    pub(crate) fn open_file(&self, name: &str) -> rustix::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(&self.fd, name, flags, Mode::empty()).map(File::from)
    }

    /// `None` if there is no such entry.
    pub(super) fn read(&self, name: &str, limit: usize) -> MailboxResult<Option<FileContent>> {
        let failed = MailboxError::io("read", self.path.join(name));
        let file = match self.open_file(name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Ok(Some(FileContent::NotRegular("a link"))),
            Err(Errno::NXIO | Errno::NODEV) => return Ok(Some(FileContent::NotRegular("a socket or device"))),
            // Its owner denied access, which must not keep others from reading the rest.
            Err(Errno::ACCESS) => return Ok(Some(FileContent::NotRegular("not accessible to you"))),
            Err(error) => return Err(failed(error.into())),
        };
        let meta = file.metadata().map_err(&failed)?;
        if !meta.is_file() {
            let kind = if meta.is_dir() { "a directory" } else { "a FIFO, socket or device" };
            return Ok(Some(FileContent::NotRegular(kind)));
        }
        let mut bytes = Vec::new();
        (&file).take(limit as u64 + 1).read_to_end(&mut bytes).map_err(&failed)?;
        if bytes.len() > limit {
            return Ok(Some(FileContent::TooLarge(meta.len())));
        }
        // An owner can set mtime to anything, but ctime only to now.
        let (modified, changed) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
        let (seconds, nanos) = modified.min(changed);
        let modified = Timestamp::new(seconds, nanos as i32).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Some(FileContent::File(bytes, modified)))
    }

    /// Creates a file. Returns `false`, and changes nothing, if the name is taken.
    pub(super) fn create_new(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<bool> {
        let temp = self.write_temp(name, bytes, mode)?;
        let renamed = atomic_file::rename_no_replace(&self.fd, Path::new(&temp), Path::new(name));
        if !matches!(renamed, Ok(true)) {
            let _ = unlinkat(&self.fd, &temp, AtFlags::empty());
        }
        renamed.map_err(MailboxError::io("write", self.path.join(name)))
    }

    /// Creates or replaces a file.
    pub(super) fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<()> {
        let temp = self.write_temp(name, bytes, mode)?;
        renameat(&self.fd, &temp, &self.fd, name).map_err(|error| {
            let _ = unlinkat(&self.fd, &temp, AtFlags::empty());
            MailboxError::io("replace", self.path.join(name))(error)
        })
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: &str) -> MailboxResult<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(MailboxError::io("remove", self.path.join(name))(error)),
        }
    }

    /// Takes an advisory lock, which excludes other processes and other holders in this one.
    pub(super) fn lock(&self, name: &str) -> MailboxResult<DirLock> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || openat(&self.fd, name, flags, Mode::from_raw_mode(0o644));
        // A lock that is not accessible would block us forever: replace it if the directory permits.
        let opened = open().or_else(|error| {
            let unusable = matches!(error, Errno::ACCESS | Errno::LOOP);
            if unusable && unlinkat(&self.fd, name, AtFlags::empty()).is_ok() { open() } else { Err(error) }
        });
        let fd = opened.map_err(MailboxError::io("open the lock", path.clone()))?;
        // The next holder may be another user, whatever the umask. Change it only if needed: a change wakes up watchers.
        let unreadable = rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_mode & 0o444 != 0o444);
        if unreadable {
            let _ = fchmod(&fd, Mode::from_raw_mode(0o644));
        }
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(DirLock(fd)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(MailboxError::Locked(path)),
                Err(error) => return Err(MailboxError::io("lock", path.clone())(error)),
            }
        }
    }

    /// Writes a temporary file that no reader looks at. Returns its name, which begins with a dot and is not a claim's.
    fn write_temp(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<String> {
        let temp = format!("{TEMP_PREFIX}{}-{}", name.trim_start_matches('.'), Uuid::new_v4().simple());
        self.write_new(&temp, bytes, mode)?;
        Ok(temp)
    }

    /// Writes a file under a name that must be free, with exactly this mode. Leaves nothing behind if it fails.
    pub(crate) fn write_new(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = MailboxError::io("write", self.path.join(name));
        let fd = openat(&self.fd, name, flags, Mode::from_raw_mode(0o600)).map_err(|error| failed(error.into()))?;
        let mut file = File::from(fd);
        let written = file
            .write_all(bytes)
            // Not with the mode of `open`, which the umask narrows.
            .and_then(|()| fchmod(&file, Mode::from_bits_truncate(mode as _)).map_err(io::Error::from));
        written.map_err(|error| {
            let _ = unlinkat(&self.fd, name, AtFlags::empty());
            failed(error)
        })
    }

    /// Removes temporary files that dead writers left more than a day ago.
    pub(super) fn remove_stale_temps(&self) {
        for name in self.entry_names().unwrap_or_default().iter().filter(|name| name.starts_with(TEMP_PREFIX)) {
            let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            if now.saturating_sub(u64::try_from(stat.st_mtime).unwrap_or(0)) > STALE_TEMP_SECS {
                // Another process may remove it first.
                let _ = unlinkat(&self.fd, name, AtFlags::empty());
            }
        }
    }
}
