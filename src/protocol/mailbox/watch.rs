//! Waits for changes in a mailbox: with file notification of the kernel where it exists (Linux), else by polling every
//! [`POLL_INTERVAL`].
//!
//! Watches the root (the roster), `agents`, each outbox and `shared`. Names that begin with a dot are ignored, except claims.
//! Notification misses changes by other machines (SMB, NFS), so every [`RESCAN_INTERVAL`] there is a scan as well. Used by
//! `shim/mail`, `shim/depot`, `cli/mailbox` and `coordinator/mailbox`. Must not: read messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::layout::{AGENTS_DIR, CLAIM_PREFIX, ROSTER_FILE, SHARED_DIR};

/// How often to scan without notification.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often to scan with notification.
const RESCAN_INTERVAL: Duration = Duration::from_secs(2);
const MAX_WATCHED_DIRS: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchOutcome {
    /// Something changed since the watcher was created, or since it last returned this.
    Changed,
    TimedOut,
}

#[derive(Debug)]
pub struct MailboxWatcher {
    root: PathBuf,
    notifier: Option<notifier::DirNotifier>,
    last_scan: DirScan,
}

/// When each directory or file was modified, and its number of names or bytes.
type DirScan = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

impl MailboxWatcher {
    /// Begins to watch. Directories that the kernel cannot watch are polled.
    pub fn new(root: &Path) -> Self {
        let mut watch =
            Self { root: root.to_owned(), notifier: notifier::DirNotifier::new(), last_scan: DirScan::new() };
        watch.add_new_dirs();
        watch.last_scan = watch.scan();
        watch
    }

    /// A watcher without notification.
    #[cfg(test)]
    fn polling(root: &Path) -> Self {
        let mut watch = Self { root: root.to_owned(), notifier: None, last_scan: DirScan::new() };
        watch.last_scan = watch.scan();
        watch
    }

    /// Waits for a change, at most until `until`.
    pub fn wait(&mut self, until: Instant) -> WatchOutcome {
        loop {
            let now = Instant::now();
            let interval = if self.notifier.is_some() { RESCAN_INTERVAL } else { POLL_INTERVAL };
            let pause = until.saturating_duration_since(now).min(interval);
            let notified = match &mut self.notifier {
                Some(notifier) => notifier.wait(pause),
                None => {
                    std::thread::sleep(pause);
                    Some(false)
                }
            };
            if notified.is_none() {
                // The notifier failed: poll from now on.
                self.notifier = None;
            }
            if notified == Some(true) || self.scan() != self.last_scan {
                // An outbox may be new.
                self.add_new_dirs();
                self.last_scan = self.scan();
                return WatchOutcome::Changed;
            }
            if Instant::now() >= until {
                return WatchOutcome::TimedOut;
            }
        }
    }

    fn watched_dirs(&self) -> Vec<PathBuf> {
        let agents = self.root.join(AGENTS_DIR);
        let mut dirs = vec![self.root.clone(), agents.clone(), self.root.join(SHARED_DIR)];
        let outboxes = std::fs::read_dir(agents).into_iter().flatten().flatten();
        dirs.extend(outboxes.map(|entry| entry.path()).take(MAX_WATCHED_DIRS));
        dirs
    }

    fn add_new_dirs(&mut self) {
        let dirs = self.watched_dirs();
        if let Some(notifier) = &mut self.notifier
            && !dirs.iter().all(|dir| notifier.watch_dir(dir))
        {
            // The kernel has no room for more watches.
            self.notifier = None;
        }
    }

    fn scan(&self) -> DirScan {
        let mut scan = DirScan::new();
        for dir in self.watched_dirs() {
            let Ok(meta) = std::fs::symlink_metadata(&dir) else { continue };
            // Modification times may be too coarse for two changes in a row; the number of names is not.
            let names = if meta.is_dir() && self.notifier.is_none() {
                std::fs::read_dir(&dir)
                    .map_or(0, |names| names.flatten().filter(|name| is_relevant_name(&name.file_name())).count())
            } else {
                0
            };
            scan.insert(dir, (meta.modified().ok(), names as u64));
        }
        // Other programs may change these files in place.
        let shared = std::fs::read_dir(self.root.join(SHARED_DIR)).into_iter().flatten().flatten();
        let files = shared.map(|entry| entry.path()).take(MAX_WATCHED_DIRS).chain([self.root.join(ROSTER_FILE)]);
        for file in files {
            if let Ok(meta) = std::fs::symlink_metadata(&file) {
                scan.insert(file, (meta.modified().ok(), meta.len()));
            }
        }
        scan
    }
}

/// Whether a change of this name counts.
fn is_relevant_name(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") || name.starts_with(CLAIM_PREFIX.as_bytes())
}

#[cfg(target_os = "linux")]
mod notifier {
    //! inotify.

    use std::ffi::OsStr;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;

    #[derive(Debug)]
    pub(super) struct DirNotifier(OwnedFd);

    impl DirNotifier {
        pub(super) fn new() -> Option<Self> {
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Self)
        }

        /// Watches a directory, or keeps watching it. Returns `false` if the kernel has no room. Ignores other errors.
        pub(super) fn watch_dir(&mut self, dir: &Path) -> bool {
            // Files appear by rename or link; other programs write in place.
            let changes = WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::ONLYDIR
                | WatchFlags::DONT_FOLLOW;
            !matches!(inotify::add_watch(&self.0, dir, changes), Err(Errno::NOSPC | Errno::NOMEM))
        }

        /// Waits for a relevant change. `None` if notification failed.
        pub(super) fn wait(&mut self, pause: Duration) -> Option<bool> {
            let end = Instant::now() + pause;
            loop {
                let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok()?;
                match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                    Ok(0) => return Some(false),
                    Ok(_) if self.read_events()? => return Some(true),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => return None,
                }
            }
        }

        /// Reads all events. Returns whether one is relevant.
        fn read_events(&mut self) -> Option<bool> {
            let mut relevant = false;
            let mut buffer = [MaybeUninit::uninit(); 8192];
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                        relevant |= overflow || name.is_some_and(super::is_relevant_name);
                    }
                    Err(Errno::WOULDBLOCK) => return Some(relevant),
                    Err(Errno::INTR) => {}
                    Err(_) => return None,
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod notifier {
    //! Without inotify, every mailbox is polled.

    use std::path::Path;
    use std::time::Duration;

    pub(super) type DirNotifier = NoNotifier;

    #[derive(Debug)]
    pub(super) struct NoNotifier;

    impl NoNotifier {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn watch_dir(&mut self, _: &Path) -> bool {
            true
        }

        pub(super) fn wait(&mut self, _: Duration) -> Option<bool> {
            None
        }
    }
}

#[cfg(test)]
mod tests;
