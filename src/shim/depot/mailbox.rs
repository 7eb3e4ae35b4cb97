//! The depot's side of a swarm's mailbox: its layout, outboxes for sandboxes' users, and what is new in it.
//!
//! `open`, [`put`] and [`assign_outbox`] write, `look.rs` reads. The mailbox's folder, `agents` and the files beside them are root's,
//! so no sandbox can put anything in their places; an outbox is its sandbox's, and `shared` everybody's. Used by
//! `depot/mod.rs`, as root. Must not: follow a link, wait for a FIFO, open by a path that a sandbox could bend, or believe
//! what a message says.
//!
//! | who | root, `agents`, `ROSTER.md`, `PROTOCOL.md` | own outbox | another's | `shared` |
//! |---|---|---|---|---|
//! | a sandbox | reads | reads, writes | reads | reads, writes |
//! | host agents, through the depot | reads | reads, writes | reads | reads, writes |

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::super::layout::Layout;
use super::{depot_error, io_error};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse};
use crate::handoff::mailbox::{MAX_DIR_ENTRIES, MailFileWrite, MessageNumbers, is_shared_name};
use crate::ids::AgentId;
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::store::{AGENTS_DIR, PROTOCOL_FILE, ROSTER_FILE, SHARED_DIR};

mod poll;

pub use poll::wait_for_mail;

/// What the names of files begin with that are being written, in the mailbox's own folder.
const TEMP_PREFIX: &str = ".put-";
/// Extended attributes that would go on letting others in.
const ACL_XATTRS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Files that are being written have different names.
static TEMP_COUNTER: AtomicU64 = AtomicU64::new(0);

/// The mailbox's folders, held open.
struct MailboxDirs {
    root: File,
    agents: File,
    shared: File,
}

/// A path of the mailbox, as far as the host may name it.
enum MailboxPath<'p> {
    /// `ROSTER.md` or `PROTOCOL.md`.
    Root(&'p str),
    /// A message.
    Message(AgentId, &'p str),
    /// A shared file.
    Shared(&'p str),
}

/// Makes what is not there, and says what is.
pub fn open(layout: &Layout) -> Result<DepotResponse, DepotError> {
    let fresh = !layout.mailbox_volume().join(AGENTS_DIR).is_dir();
    let mailbox = MailboxDirs::create(&layout.mailbox_volume())?;
    mailbox.remove_stale_temps()?;
    let mut messages = BTreeMap::new();
    for agent in mailbox.list_outboxes()? {
        let outbox = open_dir_at(&mailbox.agents, agent.as_str())?;
        messages.insert(agent.to_string(), message_numbers(&outbox)?);
    }
    Ok(DepotResponse::MailboxState { created: fresh, messages })
}

/// Gives an outbox to a user. The attempt that had it before is over: its user may have left anything in it, and have let
/// others in, which ends here. What was sent stays as it is, whoever owns it.
pub fn assign_outbox(layout: &Layout, agent: &str, uid: u32) -> Result<DepotResponse, DepotError> {
    let agent = parse_agent_id(agent)?;
    if uid == 0 {
        return Err(depot_error(DepotErrorKind::Refused, "a sandbox's user cannot be root"));
    }
    let mailbox = MailboxDirs::open(&layout.mailbox_volume())?;
    let outbox = mailbox.ensure_outbox(&agent)?;
    let wrong = |error: Errno| io_error("give away the outbox of", Path::new(agent.as_str()), &error.into());
    let meta = rustix::fs::fstat(&outbox).map_err(wrong)?;
    if meta.st_uid == uid {
        return Ok(DepotResponse::Empty);
    }
    // Without FOWNER, root changes the mode of what is its own.
    chown_file(&outbox, 0).map_err(wrong)?;
    for name in ACL_XATTRS {
        // Mostly there is none, and some file systems know none.
        let _ = rustix::fs::fremovexattr(&outbox, name);
    }
    rustix::fs::fchmod(&outbox, Mode::from_raw_mode(0o755)).map_err(wrong)?;
    chown_file(&outbox, uid).map_err(wrong)?;
    Ok(DepotResponse::Empty)
}

/// Writes the host's files. Each appears whole. What is there instead of what the host thought stays, and is named.
pub fn put(layout: &Layout, files: &[MailFileWrite]) -> Result<DepotResponse, DepotError> {
    let mailbox = MailboxDirs::open(&layout.mailbox_volume())?;
    let (mut stamps, mut kept) = (BTreeMap::new(), Vec::new());
    for file in files {
        match (parse_mailbox_path(&file.path)?, &file.text) {
            (MailboxPath::Root(name), Some(text)) => {
                let part = mailbox.write_temp(text, 0o644)?;
                mailbox.rename_temp(&part, &mailbox.root, name, &file.path)?;
            }
            (MailboxPath::Message(agent, name), Some(text)) => {
                let outbox = mailbox.ensure_outbox(&agent)?;
                if !mailbox.add_message(&outbox, name, text)? {
                    kept.push(file.path.clone());
                }
            }
            (MailboxPath::Shared(name), text) => {
                if poll::stamp_at(&mailbox.shared, name).unwrap_or_default() != file.expected_stamp {
                    kept.push(file.path.clone());
                } else if let Some(text) = text {
                    // All may write it, with tools of their own too.
                    let part = mailbox.write_temp(text, 0o666)?;
                    match mailbox.rename_temp(&part, &mailbox.shared, name, &file.path) {
                        Ok(()) => {
                            stamps.insert(name.to_owned(), poll::stamp_at(&mailbox.shared, name).unwrap_or_default());
                        }
                        // A folder that a sandbox made.
                        Err(fault) if fault.kind == DepotErrorKind::Refused => kept.push(file.path.clone()),
                        Err(fault) => return Err(fault),
                    }
                } else if rustix::fs::unlinkat(&mailbox.shared, name, AtFlags::empty())
                    .is_err_and(|e| e != Errno::NOENT)
                {
                    kept.push(file.path.clone());
                }
            }
            (MailboxPath::Root(_) | MailboxPath::Message(..), None) => {
                return Err(depot_error(DepotErrorKind::Refused, format!("`{}` is not removed", file.path)));
            }
        }
    }
    Ok(DepotResponse::MailWritten { stamps, conflicts: kept })
}

impl MailboxDirs {
    /// Opens the folders.
    fn open(path: &Path) -> Result<Self, DepotError> {
        let root = open_dir(path)?;
        let agents = open_dir_at(&root, AGENTS_DIR)?;
        let shared = open_dir_at(&root, SHARED_DIR)?;
        Ok(Self { root, agents, shared })
    }

    /// Makes them where they are not there. A volume's own folder is root's.
    fn create(path: &Path) -> Result<Self, DepotError> {
        std::fs::create_dir_all(path).map_err(|error| io_error("make", path, &error))?;
        let root = open_dir(path)?;
        let wrong = |name: &str, error: Errno| io_error("make", &path.join(name), &error.into());
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755)).map_err(|error| wrong("", error))?;
        for (name, mode) in [(AGENTS_DIR, 0o755), (SHARED_DIR, 0o777)] {
            make_dir_at(&root, name, mode).map_err(|error| wrong(name, error))?;
        }
        Self::open(path)
    }

    /// Removes what a depot that died was writing.
    fn remove_stale_temps(&self) -> Result<(), DepotError> {
        for name in list_names(&self.root)? {
            if name.starts_with(TEMP_PREFIX) {
                let _ = rustix::fs::unlinkat(&self.root, &name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// The agents that have an outbox.
    fn list_outboxes(&self) -> Result<Vec<AgentId>, DepotError> {
        Ok(list_names(&self.agents)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// An agent's outbox, which is root's where it is new.
    fn ensure_outbox(&self, agent: &AgentId) -> Result<File, DepotError> {
        let wrong = |error: Errno| io_error("make the outbox of", Path::new(agent.as_str()), &error.into());
        make_dir_at(&self.agents, agent.as_str(), 0o755).map_err(wrong)?;
        open_dir_at(&self.agents, agent.as_str())
    }

    /// Writes a file aside, where no sandbox can write. Gives its name.
    fn write_temp(&self, text: &str, mode: u32) -> Result<String, DepotError> {
        let name = format!("{TEMP_PREFIX}{}-{}", std::process::id(), TEMP_COUNTER.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&self.root, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(io::Error::from)
            .and_then(|file| {
                let mut file = File::from(file);
                file.write_all(text.as_bytes())?;
                // Not by the mode of `open`, which the umask narrows.
                Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
            });
        match written {
            Ok(()) => Ok(name),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&self.root, &name, AtFlags::empty());
                Err(io_error("write", Path::new(&name), &error))
            }
        }
    }

    /// Puts it where it belongs, in the place of what is there.
    fn rename_temp(&self, part: &str, folder: &File, name: &str, path: &str) -> Result<(), DepotError> {
        rustix::fs::renameat(&self.root, part, folder, name).map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.root, part, AtFlags::empty());
            let found = io_error("write", Path::new(path), &error.into());
            let in_the_way = matches!(error, Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST);
            if in_the_way { DepotError { kind: DepotErrorKind::Refused, ..found } } else { found }
        })
    }

    /// Adds a message; false where something else has its name.
    fn add_message(&self, outbox: &File, name: &str, text: &str) -> Result<bool, DepotError> {
        let part = self.write_temp(text, 0o644)?;
        // Never in the place of anything, and through no link.
        let linked = rustix::fs::linkat(&self.root, &part, outbox, name, AtFlags::empty());
        let _ = rustix::fs::unlinkat(&self.root, &part, AtFlags::empty());
        match linked {
            Ok(()) => Ok(true),
            // Perhaps the very same, put by a depot that died before it could say so.
            Err(Errno::EXIST) => Ok(poll::read_file_at(outbox, name).is_some_and(|found| found == text.as_bytes())),
            Err(error) => Err(io_error("write", Path::new(name), &error.into())),
        }
    }
}

fn parse_agent_id(text: &str) -> Result<AgentId, DepotError> {
    text.parse()
        .map_err(|error| depot_error(DepotErrorKind::Refused, format!("`{text}` is not an agent's id: {error}")))
}

fn parse_mailbox_path(path: &str) -> Result<MailboxPath<'_>, DepotError> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [name @ (ROSTER_FILE | PROTOCOL_FILE)] => Ok(MailboxPath::Root(name)),
        [AGENTS_DIR, agent, name] if Seq::from_file_name(name).is_some() => {
            Ok(MailboxPath::Message(parse_agent_id(agent)?, name))
        }
        [SHARED_DIR, name] if is_shared_name(name) => Ok(MailboxPath::Shared(name)),
        _ => Err(depot_error(DepotErrorKind::Refused, format!("`{path}` is not a place in a mailbox"))),
    }
}

fn chown_file(file: &File, uid: u32) -> rustix::io::Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))
}

/// Makes a folder with exactly this mode, where there is none.
fn make_dir_at(parent: &File, name: &str, mode: u32) -> rustix::io::Result<()> {
    // At once as far as the umask lets it: others may be looking, and a folder that is closed for a moment is an error to them.
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let made = rustix::fs::openat(parent, name, DIR_FLAGS, Mode::empty())?;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How a folder is opened.
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open_dir(path: &Path) -> Result<File, DepotError> {
    rustix::fs::open(path, DIR_FLAGS, Mode::empty()).map(File::from).map_err(|e| io_error("open", path, &e.into()))
}

fn open_dir_at(parent: &File, name: &str) -> Result<File, DepotError> {
    let opened = rustix::fs::openat(parent, name, DIR_FLAGS, Mode::empty());
    opened.map(File::from).map_err(|error| io_error("open", Path::new(name), &error.into()))
}

/// The names in a folder that are text, as many as are looked at.
fn list_names(folder: &File) -> Result<Vec<String>, DepotError> {
    let wrong =
        |error: Errno| depot_error(DepotErrorKind::Failed, format!("cannot list a folder of the mailbox: {error}"));
    let mut found = Vec::new();
    for entry in Dir::read_from(folder).map_err(wrong)? {
        if let Ok(name) = entry.map_err(wrong)?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            found.push(name.to_owned());
        }
        if found.len() == MAX_DIR_ENTRIES {
            break;
        }
    }
    Ok(found)
}

/// The messages in an outbox, by their names alone.
fn message_numbers(outbox: &File) -> Result<MessageNumbers, DepotError> {
    Ok(list_names(outbox)?.iter().filter_map(|name| Seq::from_file_name(name)).map(Seq::get).collect())
}
