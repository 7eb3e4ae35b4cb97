//! Waiting until something happens in a mailbox, without asking again and again: the kernel's file notification where there is
//! one (Linux), a look every [`POLL_INTERVAL`] elsewhere.
//!
//! What is watched: the folder itself (the roster), `agents`, each outbox and `shared`. What happens under names that begin
//! with a dot does not count, but for claims. Notification does not see what another machine writes (SMB, NFS): so every
//! [`RESCAN_INTERVAL`] there is a look all the same. Used by `shim/mail`, `cli/mailbox` and the swarm. Must not: read messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::store::{AGENTS_DIR, ROSTER_FILE, SHARED_DIR};

/// How often there is a look where the kernel tells nothing.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often there is a look where it does.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(2);
/// The most folders that are watched.
const MAX_WATCHED_DIRS: usize = 1000;

/// What came of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchOutcome {
    /// Something happened since the watch was made, or since the last time that it said so.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Watches a mailbox.
#[derive(Debug)]
pub struct MailboxWatcher {
    root: PathBuf,
    notifier: Option<notifier::DirNotifier>,
    last_scan: DirScan,
}

/// What the folders look like: when each was changed, how many names it has.
type DirScan = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

impl MailboxWatcher {
    /// Watches the mailbox in this folder from now on. What cannot be watched is looked at.
    pub fn new(root: &Path) -> Self {
        let mut watch =
            Self { root: root.to_owned(), notifier: notifier::DirNotifier::new(), last_scan: DirScan::new() };
        watch.add_new_dirs();
        watch.last_scan = watch.scan();
        watch
    }

    /// One that never hears from the kernel.
    #[cfg(test)]
    fn polling(root: &Path) -> Self {
        let mut watch = Self { root: root.to_owned(), notifier: None, last_scan: DirScan::new() };
        watch.last_scan = watch.scan();
        watch
    }

    /// Waits until something happens, or until then.
    pub fn wait(&mut self, until: Instant) -> WatchOutcome {
        loop {
            let now = Instant::now();
            let every = if self.notifier.is_some() { RESCAN_INTERVAL } else { POLL_INTERVAL };
            let pause = until.saturating_duration_since(now).min(every);
            let told = match &mut self.notifier {
                Some(notices) => notices.wait(pause),
                None => {
                    std::thread::sleep(pause);
                    Some(false)
                }
            };
            match told {
                Some(true) => {
                    // An outbox may be new.
                    self.add_new_dirs();
                    self.last_scan = self.scan();
                    return WatchOutcome::Changed;
                }
                Some(false) => {}
                // It broke, or lost count: from now on it is done by looking.
                None => self.notifier = None,
            }
            let looks = self.scan();
            if looks != self.last_scan {
                self.add_new_dirs();
                self.last_scan = looks;
                return WatchOutcome::Changed;
            }
            if Instant::now() >= until {
                return WatchOutcome::TimedOut;
            }
        }
    }

    fn watched_dirs(&self) -> Vec<PathBuf> {
        let agents = self.root.join(AGENTS_DIR);
        let mut folders = vec![self.root.clone(), agents.clone(), self.root.join(SHARED_DIR)];
        let outboxes = std::fs::read_dir(agents).into_iter().flatten().flatten();
        folders.extend(outboxes.map(|entry| entry.path()).take(MAX_WATCHED_DIRS));
        folders
    }

    /// Watches what is new.
    fn add_new_dirs(&mut self) {
        let folders = self.watched_dirs();
        if let Some(notices) = &mut self.notifier
            && !folders.iter().all(|folder| notices.watch_dir(folder))
        {
            // There is no more room in the kernel.
            self.notifier = None;
        }
    }

    fn scan(&self) -> DirScan {
        let mut seen = DirScan::new();
        for folder in self.watched_dirs() {
            let Ok(meta) = std::fs::symlink_metadata(&folder) else { continue };
            // Times may be too coarse for two changes at once; numbers of names are not.
            let names = if meta.is_dir() && self.notifier.is_none() {
                std::fs::read_dir(&folder)
                    .map_or(0, |names| names.flatten().filter(|name| is_relevant_name(&name.file_name())).count())
            } else {
                0
            };
            seen.insert(folder, (meta.modified().ok(), names as u64));
        }
        // These are files that others may change in their place.
        let shared = std::fs::read_dir(self.root.join(SHARED_DIR)).into_iter().flatten().flatten();
        let files = shared.map(|entry| entry.path()).take(MAX_WATCHED_DIRS).chain([self.root.join(ROSTER_FILE)]);
        for file in files {
            if let Ok(meta) = std::fs::symlink_metadata(&file) {
                seen.insert(file, (meta.modified().ok(), meta.len()));
            }
        }
        seen
    }
}

/// Whether what happens under this name matters.
fn is_relevant_name(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") || name.starts_with(super::claim::PREFIX.as_bytes())
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

    /// What the kernel tells.
    #[derive(Debug)]
    pub(super) struct DirNotifier(OwnedFd);

    impl DirNotifier {
        pub(super) fn new() -> Option<Self> {
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Self)
        }

        /// Watches a folder; one that is watched already goes on being so. False where there is no room for it. What is no
        /// folder, or not there, is passed over.
        pub(super) fn watch_dir(&mut self, folder: &Path) -> bool {
            // Files come by rename or link, and those of others by being written in their place.
            let what = WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::ONLYDIR
                | WatchFlags::DONT_FOLLOW;
            !matches!(inotify::add_watch(&self.0, folder, what), Err(Errno::NOSPC | Errno::NOMEM))
        }

        /// Whether something that counts happened, within this time. None where it can tell no more.
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

        /// Reads all that is there.
        fn read_events(&mut self) -> Option<bool> {
            let mut something = false;
            let mut buffer = [MaybeUninit::uninit(); 8192];
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                        something |= overflow || name.is_some_and(super::is_relevant_name);
                    }
                    Err(Errno::WOULDBLOCK) => return Some(something),
                    Err(Errno::INTR) => {}
                    Err(_) => return None,
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod notices {
    //! Nothing of the kind.

    use std::path::Path;
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) struct Notices;

    impl DirNotifier {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn follow(&mut self, _: &Path) -> bool {
            true
        }

        pub(super) fn wait(&mut self, _: Duration) -> Option<bool> {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{AgentId, MailboxDraft, MailboxMessageType, MessageRecipient};
    use super::super::store::Mailbox;
    use super::*;

    fn test_deadline() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn assert_changes_are_noticed(mut watch: MailboxWatcher, root: &Path) {
        let (alpha, bravo): (AgentId, AgentId) = ("alpha".parse().expect("an id"), "bravo".parse().expect("an id"));
        let mailbox = Mailbox::open(root).expect("a mailbox");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", "b");
        let now = jiff::Timestamp::now;
        assert_eq!(watch.wait(Instant::now() + Duration::from_millis(250)), WatchOutcome::TimedOut);
        // In an outbox that was not there.
        let sender = std::thread::spawn({
            let (root, draft, alpha) = (root.to_owned(), draft.clone(), alpha.clone());
            move || {
                std::thread::sleep(Duration::from_millis(50));
                Mailbox::open(&root).expect("a mailbox").send(&alpha, &draft, None, now()).expect("sent");
                Instant::now()
            }
        });
        while mailbox.list_outbox(&alpha).expect("a listing").files.is_empty() {
            assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        }
        let late = sender.join().expect("it ends").elapsed();
        assert!(late < Duration::from_millis(200), "{late:?}");
        // Changes while nobody waits are not lost.
        let settle = |watch: &mut MailboxWatcher| {
            while watch.wait(Instant::now() + Duration::from_millis(200)) == WatchOutcome::Changed {}
        };
        settle(&mut watch);
        mailbox.send(&alpha, &draft, None, now()).expect("sent");
        assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        settle(&mut watch);
        mailbox.register(&super::super::roster::RosterEntry::new(bravo, "b", None, now())).expect("registered");
        assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        settle(&mut watch);
        // What another program writes in its place.
        std::fs::write(root.join("shared/STATE.md"), "# Shared State\n").expect("written");
        assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        settle(&mut watch);
        std::fs::write(root.join("shared/STATE.md"), "# Shared State\n\nmore\n").expect("written");
        assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        settle(&mut watch);
        // Reading is nothing that happens, and files aside are not.
        mailbox.roster().expect("a roster");
        mailbox.read_shared(&"STATE.md".parse().expect("a name")).expect("readable");
        assert_eq!(watch.wait(Instant::now() + Duration::from_millis(300)), WatchOutcome::TimedOut);
    }

    /// Polling Frequency.
    #[test]
    fn changes_are_reported_at_once() {
        let root = tempfile::tempdir().expect("a folder");
        Mailbox::create(root.path()).expect("made");
        let watch = MailboxWatcher::new(root.path());
        assert_eq!(watch.notifier.is_some(), cfg!(target_os = "linux"));
        assert_changes_are_noticed(watch, root.path());
    }

    /// Polling Frequency.
    #[test]
    fn changes_are_found_by_polling_without_inotify() {
        let root = tempfile::tempdir().expect("a folder");
        Mailbox::create(root.path()).expect("made");
        assert_changes_are_noticed(MailboxWatcher::polling(root.path()), root.path());
    }
}
