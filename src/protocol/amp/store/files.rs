//! Files that are whole or not there, in the folders of one SSOT, whoever else writes at the same time.
//!
//! Used by the other files of the store, which know what is in them. Must not: know AMP.
//!
//! A file is written aside, in `tmp/`, and moved to its name: without replacing where a name is written once
//! ([`SsotFiles::create_new`]), replacing where it is written again ([`SsotFiles::replace`]). Nothing of this waits for the disk: a crash
//! of the program loses nothing, and a power cut may leave files of the last seconds empty, which count as not there.
//! [`SsotFiles::sync`] makes all that was written durable, in one go.

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

/// Where files are written before they have their names.
const TEMP_DIR: &str = "tmp";
/// One that is older was left by a process that died.
const STALE_TEMP_AGE: Duration = Duration::from_secs(24 * 3600);

/// The files of one SSOT.
#[derive(Debug)]
pub(super) struct SsotFiles {
    root: PathBuf,
    /// Makes this value's names in `tmp/` its own.
    writer_id: String,
    temp_counter: AtomicU64,
    /// Folders that were seen or made.
    known_dirs: Mutex<HashSet<PathBuf>>,
    /// What is written and not synced.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

/// Holds off everybody else who takes the lock.
pub(super) struct SsotLock {
    _file: File,
}

impl SsotFiles {
    /// Those below this folder. Makes nothing.
    pub(super) fn new(root: PathBuf) -> Self {
        let me = Uuid::new_v4().simple().to_string();
        Self {
            root,
            writer_id: me,
            temp_counter: AtomicU64::new(0),
            known_dirs: Mutex::default(),
            unsynced: Mutex::default(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the root.
    pub(super) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Makes a folder, its parent being there.
    pub(super) fn create_dir(&self, path: &Path) -> SsotResult<()> {
        if lock_mutex(&self.known_dirs).contains(path) {
            return Ok(());
        }
        match fs::create_dir(path) {
            Ok(()) => {
                // A file is found after a power cut only if its folder is.
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
            Err(error) => return Err(SsotError::io("create the folder", path)(error)),
        }
        lock_mutex(&self.known_dirs).insert(path.to_owned());
        Ok(())
    }

    /// Makes the root and the folders in it, and clears away what dead processes left aside.
    pub(super) fn create_layout(&self, folders: &[&str]) -> SsotResult<()> {
        self.create_dir(&self.root)?;
        for folder in folders.iter().chain(&[TEMP_DIR]) {
            self.create_dir(&self.path(folder))?;
        }
        let aside = self.path(TEMP_DIR);
        for name in self.file_names(&aside)? {
            let path = aside.join(name);
            let age = fs::metadata(&path).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > STALE_TEMP_AGE) {
                // Somebody else may be quicker.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    /// What is in a file; none where there is no file.
    pub(super) fn read(&self, path: &Path) -> SsotResult<Option<Vec<u8>>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SsotError::io("read", path)(error)),
        }
    }

    /// What a JSON file says. None where there is no file, and where it is torn.
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

    /// Adds a line to a file, which is made where there is none. A torn line before it is ended first.
    pub(super) fn append_line(&self, path: &Path, line: &str) -> SsotResult<()> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        let mut file = options.open(path).map_err(SsotError::io("open", path))?;
        let write = |file: &mut File| {
            // Two at once must not mix their lines.
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

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, path: &Path) -> SsotResult<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(SsotError::io("remove", path)(error)),
            _ => Ok(()),
        }
    }

    /// Whether there is a file.
    pub(super) fn exists(&self, path: &Path) -> SsotResult<bool> {
        path.try_exists().map_err(SsotError::io("look at", path))
    }

    /// The names in a folder, in no order; none where there is no folder. A name that is no UTF-8 is none of ours.
    pub(super) fn file_names(&self, folder: &Path) -> SsotResult<Vec<String>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(SsotError::io("read the folder", folder)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(SsotError::io("read the folder", folder))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// Waits until nobody else has the lock of this name, and takes it.
    pub(super) fn lock(&self, name: &str) -> SsotResult<SsotLock> {
        let path = self.path(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(SsotError::io("open the lock", &path))?;
        file.lock().map_err(SsotError::io("lock", &path))?;
        Ok(SsotLock { _file: file })
    }

    /// Makes what this value wrote durable. What failed is tried again the next time.
    pub(super) fn sync(&self) -> SsotResult<()> {
        let paths = std::mem::take(&mut *lock_mutex(&self.unsynced));
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        // What is in a file before the name that leads to it.
        for path in paths.iter().map(PathBuf::as_path).chain(folders) {
            let synced = match File::open(path).and_then(|file| file.sync_all()) {
                // Removed since, or replaced.
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

/// A value as a file has it: indented, for people, with a newline at its end.
pub(super) fn to_json_bytes(path: &Path, value: &impl Serialize) -> SsotResult<Vec<u8>> {
    let encode = |source| SsotError::Encode { path: path.to_owned(), source };
    let mut bytes = serde_json::to_vec_pretty(value).map_err(encode)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether this is what a power cut leaves of a file: no JSON, or not all of it.
pub(super) fn is_torn(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err()
}

/// The inside of a mutex. Nothing panics while it is held.
fn lock_mutex<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
