//! The directory of one swarm, `<repo>/.longshore/swarms/<swarm>/`, and the lock on it.
//!
//! Called by `coordinator/` (create, lock) and by `cli/` (find, read). The kernel holds the lock for the open file and releases it
//! when the process ends, however it ends. The process id in the file is information for people.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::atomic_file;
use crate::ids::{AssignmentId, SwarmId};
use crate::repo_dir::{STATE_DIR, create_dir, create_state_dir, is_dir};
use crate::state::error::{StateError, StateResult};

const LATEST_LINK: &str = "latest";

/// The directory of one swarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwarmDir {
    root: PathBuf,
    swarm: SwarmId,
}

/// The lock of the process that runs the swarm.
#[derive(Debug)]
pub struct SwarmLock {
    _file: File,
}

/// Repository-wide lock, held while a process starts or resumes a swarm.
#[derive(Debug)]
pub struct RepoLock {
    _file: File,
}

/// How long a lock may outlive its holder: a child that the holder has just forked keeps the file open until it runs its program.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

impl SwarmDir {
    /// The repository lock; `None` while another process has it.
    pub fn try_lock_repo(repo_root: &Path) -> StateResult<Option<RepoLock>> {
        let root = create_state_dir(repo_root)?;
        let path = root.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StateError::io("open the lock", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RepoLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(StateError::io("lock", path)(error)),
        }
    }

    /// Creates the directory of a new swarm. [`SwarmDir::set_latest`] moves `latest` later.
    pub fn create(repo_root: &Path, swarm: SwarmId) -> StateResult<Self> {
        let dir = Self { root: repo_root.join(STATE_DIR), swarm };
        create_state_dir(repo_root)?;
        create_dir(&dir.root.join("swarms"))?;
        create_dir(&dir.path())?;
        create_dir(&dir.path().join("logs"))?;
        sync_dir(&dir.root.join("swarms"))?;
        Ok(dir)
    }

    /// Opens the directory of an existing swarm.
    pub fn open(repo_root: &Path, swarm: SwarmId) -> StateResult<Self> {
        let dir = Self { root: repo_root.join(STATE_DIR), swarm };
        if is_dir(&dir.path())? {
            Ok(dir)
        } else {
            Err(StateError::NoSuchSwarm { typed: swarm.to_string(), root: dir.root })
        }
    }

    /// The newest swarm of a repository: the target of `latest` or, if that is missing or damaged, the swarm with the
    /// newest journal.
    pub fn latest(repo_root: &Path) -> StateResult<Option<Self>> {
        let root = repo_root.join(STATE_DIR);
        let link = root.join(LATEST_LINK);
        // A symlink if the file system supports them, otherwise a file with the same text.
        let text = match fs::read_link(&link) {
            Ok(target) => target.file_name().map(|name| name.to_string_lossy().into_owned()),
            Err(_) => fs::read_to_string(&link).ok().map(|text| text.trim().to_owned()),
        };
        let named = text.and_then(|text| text.parse().ok()).and_then(|swarm| Self::open(repo_root, swarm).ok());
        if named.is_some() {
            return Ok(named);
        }
        Ok(Self::list(repo_root)?.into_iter().next())
    }

    /// Lists the swarms of a repository, newest first.
    pub fn list(repo_root: &Path) -> StateResult<Vec<Self>> {
        let root = repo_root.join(STATE_DIR);
        let swarms = root.join("swarms");
        let entries = match fs::read_dir(&swarms) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StateError::io("read the folder", swarms)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(StateError::io("read the folder", &swarms))?;
            let Some(swarm) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let dir = Self { root: root.clone(), swarm };
            if is_dir(&dir.path())? {
                let changed = fs::metadata(dir.journal_file()).and_then(|meta| meta.modified()).ok();
                found.push((changed, dir));
            }
        }
        found.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.swarm.cmp(&y.swarm)));
        Ok(found.into_iter().map(|(_, dir)| dir).collect())
    }

    /// Resolves what the user typed: an id or an unambiguous prefix of one. `None` is the newest swarm.
    pub fn resolve(repo_root: &Path, typed: Option<&str>) -> StateResult<Self> {
        let root = repo_root.join(STATE_DIR);
        let Some(typed) = typed else {
            return Self::latest(repo_root)?.ok_or(StateError::NoSwarms(root));
        };
        let wanted = typed.to_ascii_lowercase();
        let mut found: Vec<Self> = Self::list(repo_root)?;
        found.retain(|dir| !wanted.is_empty() && dir.swarm.to_string().starts_with(&wanted));
        if found.len() > 1 {
            let matches = found.iter().map(|dir| dir.swarm.to_string()).collect();
            return Err(StateError::AmbiguousSwarm { typed: typed.to_owned(), matches });
        }
        found.pop().ok_or_else(|| StateError::NoSuchSwarm { typed: typed.to_owned(), root })
    }

    /// The id of the swarm.
    pub fn swarm(&self) -> SwarmId {
        self.swarm
    }

    /// The `.longshore` directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The swarm's directory.
    pub fn path(&self) -> PathBuf {
        self.root.join("swarms").join(self.swarm.to_string())
    }

    /// `swarm-state.json`.
    pub fn state_file(&self) -> PathBuf {
        self.path().join("swarm-state.json")
    }

    /// `journal.ndjson`.
    pub fn journal_file(&self) -> PathBuf {
        self.path().join("journal.ndjson")
    }

    /// The directory of the logs.
    pub fn logs_dir(&self) -> PathBuf {
        self.path().join("logs")
    }

    /// `logs/<assignment>.log`.
    pub fn log_file(&self, assignment: &AssignmentId) -> PathBuf {
        self.logs_dir().join(format!("{assignment}.log"))
    }

    /// Locks the swarm for this process.
    ///
    /// # Errors
    /// [`StateError::Locked`] if another process holds the lock.
    pub fn lock(&self) -> StateResult<SwarmLock> {
        let path = self.path().join("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(StateError::io("open the lock", &path))?;
        let deadline = Instant::now() + LOCK_RELEASE_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&mut file);
                    if holder.is_some_and(has_exited) && Instant::now() < deadline {
                        std::thread::sleep(LOCK_RETRY_INTERVAL);
                        continue;
                    }
                    let holder = match holder {
                        Some(pid) => format!("process {}", pid.as_raw_nonzero()),
                        None => "another process".to_owned(),
                    };
                    return Err(StateError::Locked { swarm: self.swarm.to_string(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(StateError::io("lock", path)(error)),
            }
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()))
            .map_err(StateError::io("write the lock", &path))?;
        Ok(SwarmLock { _file: file })
    }

    /// Whether a process, this one included, runs the swarm.
    pub fn is_locked(&self) -> StateResult<bool> {
        let path = self.path().join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(StateError::io("open the lock", path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(StateError::io("lock", path)(error)),
        }
    }

    /// Points `latest` at this swarm.
    pub fn set_latest(&self) -> StateResult<()> {
        let link = self.root.join(LATEST_LINK);
        let fresh = self.root.join(format!(".latest-{}", self.swarm));
        let _ = fs::remove_file(&fresh);
        #[cfg(unix)]
        let made = std::os::unix::fs::symlink(Path::new("swarms").join(self.swarm.to_string()), &fresh);
        #[cfg(not(unix))]
        let made: std::io::Result<()> = Err(ErrorKind::Unsupported.into());
        if made.is_err() {
            write_atomic(&fresh, format!("{}\n", self.swarm).as_bytes())?;
        }
        fs::rename(&fresh, &link).map_err(StateError::io("replace", link))
    }
}

/// Writes a small file atomically and durably.
pub(super) fn write_atomic(path: &Path, bytes: &[u8]) -> StateResult<()> {
    atomic_file::write_durable(path, bytes).map_err(StateError::io("write", path))
}

fn sync_dir(path: &Path) -> StateResult<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(StateError::io("sync the folder", path))
}

/// The process that a lock names; `None` if its holder has not written its id yet.
fn read_holder(file: &mut File) -> Option<Pid> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(64).read_to_string(&mut text).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

fn has_exited(holder: Pid) -> bool {
    rustix::process::test_kill_process(holder) == Err(Errno::SRCH)
}
