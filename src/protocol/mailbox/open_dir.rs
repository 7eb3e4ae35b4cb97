//! A folder held open, in which others write what they like: files are read without following links or waiting for a FIFO,
//! up to a limit, and written whole: aside, under a name that is no message's and no claim's, and then moved to their name.
//!
//! Used by `store.rs`. Must not: know what is in the files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, fchmod, flock, linkat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::store::{MailboxError, MailboxResult};

/// The most names of a folder that are looked at.
const MAX_DIR_ENTRIES: usize = 100_000;
/// How long a lock is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// An open folder.
#[derive(Debug)]
pub(super) struct OpenDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// What was found under a name.
#[derive(Debug)]
pub(super) enum FileContent {
    /// A file's bytes, and when it was last changed.
    File(Vec<u8>, Timestamp),
    /// A file with more bytes than wanted.
    TooLarge(u64),
    /// No regular file: what it is instead.
    NotRegular(&'static str),
}

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl OpenDir {
    /// The folder of this path, which the caller trusts.
    pub(super) fn open(path: &Path) -> MailboxResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(io_error("open the folder", path))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it. None where there is none; a link or a file is an error.
    pub(super) fn open_subdir(&self, name: &str) -> MailboxResult<Option<Self>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(MailboxError::NotDirectory(path)),
            Err(error) => Err(io_error("open the folder", &path)(error)),
        }
    }

    /// A folder in it, made where there is none.
    pub(super) fn create_subdir(&self, name: &str) -> MailboxResult<Self> {
        if let Some(folder) = self.open_subdir(name)? {
            return Ok(folder);
        }
        match mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io_error("create the folder", &self.path.join(name))(error)),
        }
        self.open_subdir(name)?.ok_or_else(|| MailboxError::NotDirectory(self.path.join(name)))
    }

    /// The names in it that are UTF-8, in no order, `.` and `..` not among them.
    pub(super) fn entry_names(&self) -> MailboxResult<Vec<String>> {
        let wrong = io_error("read the folder", &self.path);
        let entries = match Dir::read_from(&self.fd) {
            Ok(entries) => entries,
            Err(error) => return Err(wrong(error)),
        };
        let mut names = Vec::new();
        for entry in entries.take(MAX_DIR_ENTRIES) {
            let entry = entry.map_err(&wrong)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Whether everybody may write in it.
    pub(super) fn is_world_writable(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH))
    }

    /// What is under this name. None where there is nothing.
    pub(super) fn read(&self, name: &str, limit: usize) -> MailboxResult<Option<FileContent>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Ok(Some(FileContent::NotRegular("a link"))),
            Err(Errno::NXIO | Errno::NODEV) => return Ok(Some(FileContent::NotRegular("a socket or device"))),
            // Its owner closed it: that is not to keep others from reading the rest.
            Err(Errno::ACCESS) => return Ok(Some(FileContent::NotRegular("closed to you"))),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let wrong = |error: io::Error| MailboxError::Io { doing: "read", path: path.clone(), source: error };
        let meta = file.metadata().map_err(wrong)?;
        if !meta.is_file() {
            return Ok(Some(FileContent::NotRegular(if meta.is_dir() {
                "a folder"
            } else {
                "a FIFO, socket or device"
            })));
        }
        let mut bytes = Vec::new();
        (&file).take(limit as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
        if bytes.len() > limit {
            return Ok(Some(FileContent::TooLarge(meta.len())));
        }
        // Its owner may date a file as it likes; when that was done, only the kernel says.
        let (modified, changed) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
        let (seconds, nanos) = modified.min(changed);
        let modified = Timestamp::new(seconds, nanos as i32).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Some(FileContent::File(bytes, modified)))
    }

    /// Gives these bytes a name that nothing has. False where something has it; then nothing changes.
    pub(super) fn create_new(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<bool> {
        let aside = self.write_temp(name, bytes, mode)?;
        let moved = self.rename_no_replace(&aside, name);
        if !matches!(moved, Ok(true)) {
            let _ = unlinkat(&self.fd, &aside, AtFlags::empty());
        }
        moved.map_err(io_error("write", &self.path.join(name)))
    }

    /// Gives these bytes a name, whatever has it.
    pub(super) fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<()> {
        let aside = self.write_temp(name, bytes, mode)?;
        renameat(&self.fd, &aside, &self.fd, name).map_err(|error| {
            let _ = unlinkat(&self.fd, &aside, AtFlags::empty());
            io_error("replace", &self.path.join(name))(error)
        })
    }

    /// Removes a file, if there is one.
    pub(super) fn remove(&self, name: &str) -> MailboxResult<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io_error("remove", &self.path.join(name))(error)),
        }
    }

    /// Holds off everybody else who takes the lock of this name, in this process and others.
    pub(super) fn lock(&self, name: &str) -> MailboxResult<DirLock> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || openat(&self.fd, name, flags, Mode::from_raw_mode(0o644));
        // One that is closed to us would hold us off for ever: it gives way where the folder lets it.
        let opened = open().or_else(|error| {
            let closed = matches!(error, Errno::ACCESS | Errno::LOOP);
            if closed && unlinkat(&self.fd, name, AtFlags::empty()).is_ok() { open() } else { Err(error) }
        });
        let fd = opened.map_err(io_error("open the lock", &path))?;
        // The next to hold it may be somebody else, whatever the umask. Changed only where it must be: who watches is told.
        let shut = rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_mode & 0o444 != 0o444);
        if shut {
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
                Err(error) => return Err(io_error("lock", &path)(error)),
            }
        }
    }

    /// Writes a file that no reader looks at, and gives it its last rights.
    fn write_temp(&self, name: &str, bytes: &[u8], mode: u32) -> MailboxResult<String> {
        // It begins with a dot and does not end with `.md`, and no claim begins like this.
        let aside = format!(".aside-{}-{}", name.trim_start_matches('.'), Uuid::new_v4().simple());
        let path = self.path.join(&aside);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = openat(&self.fd, &aside, flags, Mode::from_raw_mode(0o600)).map_err(io_error("write", &path))?;
        let mut file = File::from(fd);
        // Others have to read it, whatever the umask.
        let written = file
            .write_all(bytes)
            .and_then(|()| fchmod(&file, Mode::from_bits_truncate(mode as _)).map_err(io::Error::from));
        written.map(|()| aside.clone()).map_err(|error| {
            let _ = unlinkat(&self.fd, &aside, AtFlags::empty());
            MailboxError::Io { doing: "write", path, source: error }
        })
    }

    fn rename_no_replace(&self, from: &str, to: &str) -> rustix::io::Result<bool> {
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            match renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => return Ok(false),
                // A file system that cannot: NFS and the like. They can link.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                Err(error) => return Err(error),
            }
        }
        match linkat(&self.fd, from, &self.fd, to, AtFlags::empty()) {
            Ok(()) => unlinkat(&self.fd, from, AtFlags::empty()).map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what dead writers left aside a day ago.
    pub(super) fn remove_stale_temps(&self) {
        for name in self.entry_names().unwrap_or_default().iter().filter(|name| name.starts_with(".aside-")) {
            let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            if now.saturating_sub(u64::try_from(stat.st_mtime).unwrap_or(0)) > 24 * 3600 {
                // Somebody else may be quicker.
                let _ = unlinkat(&self.fd, name, AtFlags::empty());
            }
        }
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl Fn(Errno) -> MailboxError {
    let path = path.to_owned();
    move |error| MailboxError::Io { doing, path: path.clone(), source: error.into() }
}

impl MailboxError {
    /// Whether it is because one may not.
    pub fn is_permission_denied(&self) -> bool {
        let kinds = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        matches!(self, MailboxError::Io { source, .. } if kinds.contains(&source.kind()))
    }
}
