//! The depot's side of a swarm's mailbox: creates it, assigns outboxes to sandboxes, writes the host's files and reports new ones.
//!
//! The root, `agents` and the files beside them belong to root, so a sandbox cannot replace them. An outbox belongs to its sandbox,
//! `shared` to everybody. Used by `depot/mod.rs`, as root. Must not: follow a link, block on a FIFO, use a path that a sandbox
//! could redirect, or trust the content of a message.
//!
//! | who | root, `agents`, `ROSTER.md`, `PROTOCOL.md` | own outbox | other outboxes | `shared` |
//! |---|---|---|---|---|
//! | a sandbox | reads | reads, writes | reads | reads, writes |
//! | host agents, through the depot | reads | reads, writes | reads | reads, writes |

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::super::layout::Layout;
use super::{depot_error, io_error};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse};
use crate::handoff::mailbox::{MailFileWrite, is_shared_name};
use crate::ids::AgentId;
use crate::protocol::mailbox::layout::{AGENTS_DIR, PROTOCOL_FILE, ROSTER_FILE, SHARED_DIR};
use crate::protocol::mailbox::message::Seq;

mod dirs;
mod poll;

use dirs::MailboxDirs;
pub use poll::wait_for_mail;

/// A path that the host may write.
enum MailboxPath<'p> {
    /// `ROSTER.md` or `PROTOCOL.md`.
    Root(&'p str),
    Message(AgentId, &'p str),
    Shared(&'p str),
}

/// Creates what is missing, and lists the messages.
pub fn open(layout: &Layout) -> Result<DepotResponse, DepotError> {
    let created = !layout.mailbox_volume().join(AGENTS_DIR).is_dir();
    let mailbox = MailboxDirs::create(&layout.mailbox_volume())?;
    mailbox.remove_stale_temps()?;
    let mut messages = BTreeMap::new();
    for agent in mailbox.agents()? {
        messages.insert(agent.to_string(), dirs::message_numbers(&mailbox.outbox(&agent)?)?);
    }
    Ok(DepotResponse::MailboxState { created, messages })
}

/// Makes a sandbox's user the owner of an agent's outbox.
pub fn assign_outbox(layout: &Layout, agent: &str, uid: u32) -> Result<DepotResponse, DepotError> {
    let agent = parse_agent_id(agent)?;
    if uid == 0 {
        return Err(depot_error(DepotErrorKind::Refused, "a sandbox's user cannot be root"));
    }
    let outbox = MailboxDirs::open(&layout.mailbox_volume())?.ensure_outbox(&agent)?;
    dirs::transfer_outbox(&outbox, uid)
        .map_err(|error| io_error("change the owner of the outbox of", Path::new(agent.as_str()), &error.into()))?;
    Ok(DepotResponse::Empty)
}

/// Writes the host's files, each atomically. A file that is not in the state that the host expects stays, and is reported as a
/// conflict.
pub fn put(layout: &Layout, files: &[MailFileWrite]) -> Result<DepotResponse, DepotError> {
    let mailbox = MailboxDirs::open(&layout.mailbox_volume())?;
    let (mut stamps, mut conflicts) = (BTreeMap::new(), Vec::new());
    for file in files {
        let refused = |problem: &str| depot_error(DepotErrorKind::Refused, format!("`{}` {problem}", file.path));
        let written = match (parse_mailbox_path(&file.path)?, &file.text) {
            (MailboxPath::Root(name), Some(text)) => {
                if !mailbox.replace(&mailbox.root, name, text, 0o644)? {
                    return Err(refused("is a directory"));
                }
                true
            }
            (MailboxPath::Message(agent, name), Some(text)) => {
                mailbox.add_message(&mailbox.ensure_outbox(&agent)?, name, text)?
            }
            (MailboxPath::Shared(name), text) => {
                let written = put_shared(&mailbox, name, text.as_deref(), &file.expected_stamp)?;
                if written && text.is_some() {
                    stamps.insert(name.to_owned(), dirs::file_stamp(&mailbox.shared, name).unwrap_or_default());
                }
                written
            }
            (MailboxPath::Root(_) | MailboxPath::Message(..), None) => return Err(refused("cannot be removed")),
        };
        if !written {
            conflicts.push(file.path.clone());
        }
    }
    Ok(DepotResponse::MailWritten { stamps, conflicts })
}

/// Writes or removes a shared file. Returns `false` if it is not in the expected state.
fn put_shared(mailbox: &MailboxDirs, name: &str, text: Option<&str>, expected_stamp: &str) -> Result<bool, DepotError> {
    if dirs::file_stamp(&mailbox.shared, name).unwrap_or_default() != expected_stamp {
        return Ok(false);
    }
    match text {
        // Writable by all, because agents also use tools of their own.
        Some(text) => mailbox.replace(&mailbox.shared, name, text, 0o666),
        None => Ok(matches!(unlinkat(&mailbox.shared, name, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))),
    }
}

fn parse_agent_id(text: &str) -> Result<AgentId, DepotError> {
    text.parse().map_err(|error| depot_error(DepotErrorKind::Refused, format!("`{text}` is not an agent id: {error}")))
}

fn parse_mailbox_path(path: &str) -> Result<MailboxPath<'_>, DepotError> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [name @ (ROSTER_FILE | PROTOCOL_FILE)] => Ok(MailboxPath::Root(name)),
        [AGENTS_DIR, agent, name] if Seq::from_file_name(name).is_some() => {
            Ok(MailboxPath::Message(parse_agent_id(agent)?, name))
        }
        [SHARED_DIR, name] if is_shared_name(name) => Ok(MailboxPath::Shared(name)),
        _ => Err(depot_error(DepotErrorKind::Refused, format!("`{path}` is not a path in a mailbox"))),
    }
}
