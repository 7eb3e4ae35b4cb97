//! The depot's side of a swarm's mailbox: its layout, outboxes for sandboxes' users, and what is new in it.
//!
//! `open`, [`put`] and [`seat`] write, `look.rs` reads. The mailbox's folder, `agents` and the files beside them are root's,
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
use super::{fault, io_fault};
use crate::handoff::depot::{Answer, DepotFault, DepotFaultKind};
use crate::handoff::mailbox::{ENTRIES_MAX, MailFile, Numbers, is_shared_name};
use crate::ids::AgentId;
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::store::{AGENTS, PROTOCOL_FILE, ROSTER_FILE, SHARED};

mod look;

pub use look::wait;

/// What the names of files begin with that are being written, in the mailbox's own folder.
const PART_PREFIX: &str = ".put-";
/// Extended attributes that would go on letting others in.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Files that are being written have different names.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// The mailbox's folders, held open.
struct Mailbox {
    root: File,
    agents: File,
    shared: File,
}

/// A path of the mailbox, as far as the host may name it.
enum Place<'p> {
    /// `ROSTER.md` or `PROTOCOL.md`.
    Root(&'p str),
    /// A message.
    Message(AgentId, &'p str),
    /// A shared file.
    Shared(&'p str),
}

/// Makes what is not there, and says what is.
pub fn open(layout: &Layout) -> Result<Answer, DepotFault> {
    let fresh = !layout.mailbox().join(AGENTS).is_dir();
    let mailbox = Mailbox::create(&layout.mailbox())?;
    mailbox.sweep()?;
    let mut messages = BTreeMap::new();
    for agent in mailbox.outboxes()? {
        let outbox = folder_at(&mailbox.agents, agent.as_str())?;
        messages.insert(agent.to_string(), numbers(&outbox)?);
    }
    Ok(Answer::MailHas { fresh, messages })
}

/// Gives an outbox to a user. The attempt that had it before is over: its user may have left anything in it, and have let
/// others in, which ends here. What was sent stays as it is, whoever owns it.
pub fn seat(layout: &Layout, agent: &str, uid: u32) -> Result<Answer, DepotFault> {
    let agent = agent_id(agent)?;
    if uid == 0 {
        return Err(fault(DepotFaultKind::Refused, "a sandbox's user cannot be root"));
    }
    let mailbox = Mailbox::open(&layout.mailbox())?;
    let outbox = mailbox.outbox(&agent)?;
    let wrong = |error: Errno| io_fault("give away the outbox of", Path::new(agent.as_str()), &error.into());
    let meta = rustix::fs::fstat(&outbox).map_err(wrong)?;
    if meta.st_uid == uid {
        return Ok(Answer::Nothing);
    }
    // Without FOWNER, root changes the mode of what is its own.
    own(&outbox, 0).map_err(wrong)?;
    for name in ACLS {
        // Mostly there is none, and some file systems know none.
        let _ = rustix::fs::fremovexattr(&outbox, name);
    }
    rustix::fs::fchmod(&outbox, Mode::from_raw_mode(0o755)).map_err(wrong)?;
    own(&outbox, uid).map_err(wrong)?;
    Ok(Answer::Nothing)
}

/// Writes the host's files. Each appears whole. What is there instead of what the host thought stays, and is named.
pub fn put(layout: &Layout, files: &[MailFile]) -> Result<Answer, DepotFault> {
    let mailbox = Mailbox::open(&layout.mailbox())?;
    let (mut stamps, mut kept) = (BTreeMap::new(), Vec::new());
    for file in files {
        match (place(&file.path)?, &file.text) {
            (Place::Root(name), Some(text)) => {
                let part = mailbox.part(text, 0o644)?;
                mailbox.move_part(&part, &mailbox.root, name, &file.path)?;
            }
            (Place::Message(agent, name), Some(text)) => {
                let outbox = mailbox.outbox(&agent)?;
                if !mailbox.add(&outbox, name, text)? {
                    kept.push(file.path.clone());
                }
            }
            (Place::Shared(name), text) => {
                if look::stamp_at(&mailbox.shared, name).unwrap_or_default() != file.only_if {
                    kept.push(file.path.clone());
                } else if let Some(text) = text {
                    // All may write it, with tools of their own too.
                    let part = mailbox.part(text, 0o666)?;
                    match mailbox.move_part(&part, &mailbox.shared, name, &file.path) {
                        Ok(()) => {
                            stamps.insert(name.to_owned(), look::stamp_at(&mailbox.shared, name).unwrap_or_default());
                        }
                        // A folder that a sandbox made.
                        Err(fault) if fault.kind == DepotFaultKind::Refused => kept.push(file.path.clone()),
                        Err(fault) => return Err(fault),
                    }
                } else if rustix::fs::unlinkat(&mailbox.shared, name, AtFlags::empty())
                    .is_err_and(|e| e != Errno::NOENT)
                {
                    kept.push(file.path.clone());
                }
            }
            (Place::Root(_) | Place::Message(..), None) => {
                return Err(fault(DepotFaultKind::Refused, format!("`{}` is not removed", file.path)));
            }
        }
    }
    Ok(Answer::MailPut { stamps, kept })
}

impl Mailbox {
    /// Opens the folders.
    fn open(path: &Path) -> Result<Self, DepotFault> {
        let root = folder(path)?;
        let agents = folder_at(&root, AGENTS)?;
        let shared = folder_at(&root, SHARED)?;
        Ok(Self { root, agents, shared })
    }

    /// Makes them where they are not there. A volume's own folder is root's.
    fn create(path: &Path) -> Result<Self, DepotFault> {
        std::fs::create_dir_all(path).map_err(|error| io_fault("make", path, &error))?;
        let root = folder(path)?;
        let wrong = |name: &str, error: Errno| io_fault("make", &path.join(name), &error.into());
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755)).map_err(|error| wrong("", error))?;
        for (name, mode) in [(AGENTS, 0o755), (SHARED, 0o777)] {
            make_folder(&root, name, mode).map_err(|error| wrong(name, error))?;
        }
        Self::open(path)
    }

    /// Removes what a depot that died was writing.
    fn sweep(&self) -> Result<(), DepotFault> {
        for name in names(&self.root)? {
            if name.starts_with(PART_PREFIX) {
                let _ = rustix::fs::unlinkat(&self.root, &name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// The agents that have an outbox.
    fn outboxes(&self) -> Result<Vec<AgentId>, DepotFault> {
        Ok(names(&self.agents)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// An agent's outbox, which is root's where it is new.
    fn outbox(&self, agent: &AgentId) -> Result<File, DepotFault> {
        let wrong = |error: Errno| io_fault("make the outbox of", Path::new(agent.as_str()), &error.into());
        make_folder(&self.agents, agent.as_str(), 0o755).map_err(wrong)?;
        folder_at(&self.agents, agent.as_str())
    }

    /// Writes a file aside, where no sandbox can write. Gives its name.
    fn part(&self, text: &str, mode: u32) -> Result<String, DepotFault> {
        let name = format!("{PART_PREFIX}{}-{}", std::process::id(), PARTS.fetch_add(1, Ordering::Relaxed));
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
                Err(io_fault("write", Path::new(&name), &error))
            }
        }
    }

    /// Puts it where it belongs, in the place of what is there.
    fn move_part(&self, part: &str, folder: &File, name: &str, path: &str) -> Result<(), DepotFault> {
        rustix::fs::renameat(&self.root, part, folder, name).map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.root, part, AtFlags::empty());
            let found = io_fault("write", Path::new(path), &error.into());
            let in_the_way = matches!(error, Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST);
            if in_the_way { DepotFault { kind: DepotFaultKind::Refused, ..found } } else { found }
        })
    }

    /// Adds a message; false where something else has its name.
    fn add(&self, outbox: &File, name: &str, text: &str) -> Result<bool, DepotFault> {
        let part = self.part(text, 0o644)?;
        // Never in the place of anything, and through no link.
        let linked = rustix::fs::linkat(&self.root, &part, outbox, name, AtFlags::empty());
        let _ = rustix::fs::unlinkat(&self.root, &part, AtFlags::empty());
        match linked {
            Ok(()) => Ok(true),
            // Perhaps the very same, put by a depot that died before it could say so.
            Err(Errno::EXIST) => Ok(look::read_at(outbox, name).is_some_and(|found| found == text.as_bytes())),
            Err(error) => Err(io_fault("write", Path::new(name), &error.into())),
        }
    }
}

fn agent_id(text: &str) -> Result<AgentId, DepotFault> {
    text.parse().map_err(|error| fault(DepotFaultKind::Refused, format!("`{text}` is not an agent's id: {error}")))
}

fn place(path: &str) -> Result<Place<'_>, DepotFault> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [name @ (ROSTER_FILE | PROTOCOL_FILE)] => Ok(Place::Root(name)),
        [AGENTS, agent, name] if Seq::of_file_name(name).is_some() => Ok(Place::Message(agent_id(agent)?, name)),
        [SHARED, name] if is_shared_name(name) => Ok(Place::Shared(name)),
        _ => Err(fault(DepotFaultKind::Refused, format!("`{path}` is not a place in a mailbox"))),
    }
}

fn own(file: &File, uid: u32) -> rustix::io::Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))
}

/// Makes a folder with exactly this mode, where there is none.
fn make_folder(parent: &File, name: &str, mode: u32) -> rustix::io::Result<()> {
    // At once as far as the umask lets it: others may be looking, and a folder that is closed for a moment is an error to them.
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let made = rustix::fs::openat(parent, name, FOLDER, Mode::empty())?;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How a folder is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn folder(path: &Path) -> Result<File, DepotFault> {
    rustix::fs::open(path, FOLDER, Mode::empty()).map(File::from).map_err(|e| io_fault("open", path, &e.into()))
}

fn folder_at(parent: &File, name: &str) -> Result<File, DepotFault> {
    let opened = rustix::fs::openat(parent, name, FOLDER, Mode::empty());
    opened.map(File::from).map_err(|error| io_fault("open", Path::new(name), &error.into()))
}

/// The names in a folder that are text, as many as are looked at.
fn names(folder: &File) -> Result<Vec<String>, DepotFault> {
    let wrong = |error: Errno| fault(DepotFaultKind::Failed, format!("cannot list a folder of the mailbox: {error}"));
    let mut found = Vec::new();
    for entry in Dir::read_from(folder).map_err(wrong)? {
        if let Ok(name) = entry.map_err(wrong)?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            found.push(name.to_owned());
        }
        if found.len() == ENTRIES_MAX {
            break;
        }
    }
    Ok(found)
}

/// The messages in an outbox, by their names alone.
fn numbers(outbox: &File) -> Result<Numbers, DepotFault> {
    Ok(names(outbox)?.iter().filter_map(|name| Seq::of_file_name(name)).map(Seq::get).collect())
}
