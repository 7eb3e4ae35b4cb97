//! The files of one SSOT: whole or absent, with several writers at once.
//!
//! Files are written in `tmp/` and renamed: without replacing ([`SsotFiles::create_new`]) or replacing
//! ([`SsotFiles::replace`]). They are not synced until [`SsotFiles::sync`]: a power cut may leave recent files empty, which
//! count as absent. Must not: know AMP.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::error::{SsotError, SsotResult};
use crate::atomic_file;

const TEMP_DIR: &str = "tmp";
/// An older temporary file was left by a process that died.
const STALE_TEMP_AGE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(super) struct SsotFiles {
    root: PathBuf,
    /// Makes this value's names in `tmp/` unique.
    writer_id: String,
    temp_counter: AtomicU64,
    /// Directories known to exist.
    known_dirs: Mutex<HashSet<PathBuf>>,
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

/// A lock between processes, held until dropped.
pub(super) struct SsotLock {
    _file: File,
}

impl SsotFiles {
    /// Creates nothing.
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            writer_id: Uuid::new_v4().simple().to_string(),
            temp_counter: AtomicU64::new(0),
            known_dirs: Mutex::default(),
            unsynced: Mutex::default(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Creates a directory whose parent exists.
    pub(super) fn create_dir(&self, path: &Path) -> SsotResult<()> {
        if lock_mutex(&self.known_dirs).contains(path) {
            return Ok(());
        }
        match fs::create_dir(path) {
            Ok(()) => {
                // A file survives a power cut only if its directory does.
                if let Some(parent) = path.parent() {
                    lock_mutex(&self.unsynced).insert(parent.to_owned());
                }
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let meta = fs::symlink_metadata(path).map_err(SsotError::io("look at", path))?;
                if !meta.is_dir() {
                    return Err(SsotError::NotDirectory(path.to_owned()));
                }
            }
            Err(error) => return Err(SsotError::io("create the directory", path)(error)),
        }
        lock_mutex(&self.known_dirs).insert(path.to_owned());
        Ok(())
    }

    /// Creates the root and its directories, and removes stale temporary files.
    pub(super) fn create_layout(&self, dirs: &[&str]) -> SsotResult<()> {
        self.create_dir(&self.root)?;
        for dir in dirs.iter().chain(&[TEMP_DIR]) {
            self.create_dir(&self.path(dir))?;
        }
        let temp_dir = self.path(TEMP_DIR);
        for name in self.file_names(&temp_dir)? {
            let path = temp_dir.join(name);
            let age = fs::metadata(&path).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > STALE_TEMP_AGE) {
                // Another process may be faster.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    /// The content of a file, if it exists.
    pub(super) fn read(&self, path: &Path) -> SsotResult<Option<Vec<u8>>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SsotError::io("read", path)(error)),
        }
    }

    /// The content of a JSON file; `None` if it is absent or torn.
    pub(super) fn read_json<T: DeserializeOwned>(&self, path: &Path) -> SsotResult<Option<T>> {
        let Some(bytes) = self.read(path)?.filter(|bytes| !is_torn(bytes)) else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| SsotError::damaged(path, error))
    }

    /// Writes a file whose directory exists, or returns `false` if it exists: of several writers, also in other processes,
    /// one succeeds.
    pub(super) fn create_new(&self, path: &Path, bytes: &[u8]) -> SsotResult<bool> {
        let created = atomic_file::create_new(path, &self.temp_path(), bytes).map_err(SsotError::io("write", path))?;
        if created {
            self.mark_unsynced(path);
        }
        Ok(created)
    }

    /// Writes or replaces a file.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> SsotResult<()> {
        atomic_file::replace(path, &self.temp_path(), bytes).map_err(SsotError::io("write", path))?;
        self.mark_unsynced(path);
        Ok(())
    }

    /// Appends a line to a file, which is created if needed. A torn last line is ended first.
    pub(super) fn append_line(&self, path: &Path, line: &str) -> SsotResult<()> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        let mut file = options.open(path).map_err(SsotError::io("open", path))?;
        let write = |file: &mut File| {
            // Two writers must not mix their lines.
            file.lock()?;
            let mut text = format!("{line}\n");
            if file.metadata()?.len() > 0 {
                let mut last = [0];
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    text.insert(0, '\n');
                }
            }
            file.write_all(text.as_bytes())
        };
        write(&mut file).map_err(SsotError::io("append to", path))?;
        self.mark_unsynced(path);
        Ok(())
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, path: &Path) -> SsotResult<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(SsotError::io("remove", path)(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn exists(&self, path: &Path) -> SsotResult<bool> {
        path.try_exists().map_err(SsotError::io("look at", path))
    }

    /// The names in a directory, unordered; empty if it does not exist. Names that are not UTF-8 are foreign and skipped.
    pub(super) fn file_names(&self, dir: &Path) -> SsotResult<Vec<String>> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(SsotError::io("read the directory", dir)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(SsotError::io("read the directory", dir))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// Waits for the lock of this name.
    pub(super) fn lock(&self, name: &str) -> SsotResult<SsotLock> {
        let path = self.path(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(SsotError::io("open the lock", &path))?;
        file.lock().map_err(SsotError::io("lock", &path))?;
        Ok(SsotLock { _file: file })
    }

    /// Syncs everything that this value wrote. After an error, the next call tries again.
    pub(super) fn sync(&self) -> SsotResult<()> {
        let paths = std::mem::take(&mut *lock_mutex(&self.unsynced));
        let dirs: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        // The content before the name that leads to it.
        for path in paths.iter().map(PathBuf::as_path).chain(dirs) {
            let synced = match File::open(path).and_then(|file| file.sync_all()) {
                // Removed or replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => other,
            };
            if let Err(error) = synced {
                let error = SsotError::io("sync", path)(error);
                lock_mutex(&self.unsynced).extend(paths.iter().cloned());
                return Err(error);
            }
        }
        Ok(())
    }

    fn mark_unsynced(&self, path: &Path) {
        lock_mutex(&self.unsynced).insert(path.to_owned());
    }

    fn temp_path(&self) -> PathBuf {
        let number = self.temp_counter.fetch_add(1, Ordering::Relaxed);
        self.path(TEMP_DIR).join(format!("{}-{number}", self.writer_id))
    }
}

/// Indented JSON with a newline at the end.
pub(super) fn to_json_bytes(path: &Path, value: &impl Serialize) -> SsotResult<Vec<u8>> {
    let encode = |source| SsotError::Encode { path: path.to_owned(), source };
    let mut bytes = serde_json::to_vec_pretty(value).map_err(encode)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether the bytes are no complete JSON, as a power cut leaves them.
pub(super) fn is_torn(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err()
}

/// Nothing panics while one of the mutexes is held.
fn lock_mutex<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
