//! `acp-shim depot`: the helper container through which files travel between the host and a swarm's volumes.
//!
//! Frames come in on standard input; each request runs on a thread of its own; answers go out as they are ready, whole frames
//! under one lock. Called by [`shim::main`](super::main). It runs as root with CHOWN, DAC_OVERRIDE, SETUID and SETGID only.
//! Must not: open anything in a sandbox's work folder as root. That is hostile, and `as_uid.rs` goes there as the sandbox's
//! own user.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::git::GitError;
use super::layout::Layout;
use crate::handoff::depot::{Answer, DATA_CHUNK, DepotFault, DepotFaultKind, FrameKind, Request};

pub mod as_uid;
mod folders;
mod frames;
mod mailbox;
mod objects;

/// Frames of a body that wait for their request to take them, before the stream itself waits.
const BODY_QUEUE: usize = 16;

/// How the work in sandboxes' folders is done as their users.
#[derive(Debug, Clone)]
pub enum Helper {
    /// By this program, started as the user: the shim itself.
    Program(PathBuf),
    /// Here, as whoever runs this.
    #[cfg(test)]
    Here,
}

/// The depot.
#[derive(Debug, Clone)]
pub struct Depot {
    layout: Layout,
    helper: Helper,
}

/// Where answers go.
type Output = Arc<Mutex<Box<dyn Write + Send>>>;

/// The rest of a request's frames.
pub(super) struct Body {
    pieces: Receiver<Piece>,
}

enum Piece {
    Data(Vec<u8>),
    End,
}

impl Body {
    /// The next bytes; none at the end.
    pub(super) fn next(&self) -> Result<Option<Vec<u8>>, DepotFault> {
        match self.pieces.recv() {
            Ok(Piece::Data(bytes)) => Ok(Some(bytes)),
            Ok(Piece::End) => Ok(None),
            Err(_) => Err(fault(DepotFaultKind::Failed, "the body ended before its end")),
        }
    }
}

/// Sends a request's answer data.
pub(super) struct Sender {
    id: u32,
    output: Output,
}

impl Sender {
    /// Passes on all of a stream.
    pub(super) fn pump(&self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; DATA_CHUNK];
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            self.send(FrameKind::Data, &buffer[..length])?;
        }
    }

    fn send(&self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        frames::write(&mut *output, self.id, kind, payload)
    }
}

pub(super) fn fault(kind: DepotFaultKind, message: impl Into<String>) -> DepotFault {
    DepotFault { kind, message: message.into() }
}

impl From<GitError> for DepotFault {
    fn from(error: GitError) -> Self {
        let kind = if error.disk_full() { DepotFaultKind::DiskFull } else { DepotFaultKind::Failed };
        let reason = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        fault(kind, format!("{error}{reason}"))
    }
}

/// The fault that an error of the system is.
pub(super) fn io_fault(what: &str, path: &std::path::Path, error: &io::Error) -> DepotFault {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DepotFaultKind::DiskFull,
        io::ErrorKind::NotFound => DepotFaultKind::NotFound,
        _ => DepotFaultKind::Failed,
    };
    fault(kind, format!("cannot {what} `{}`: {error}", path.display()))
}

impl Depot {
    /// A depot over these volumes.
    pub fn new(layout: Layout, helper: Helper) -> Self {
        Self { layout, helper }
    }

    /// Says that it is ready, and serves until the input ends. Requests that run then are not waited for.
    ///
    /// # Errors
    /// Where the stream breaks or is not made of frames.
    pub fn serve(&self, mut input: impl Read, output: Box<dyn Write + Send>) -> io::Result<()> {
        let output: Output = Arc::new(Mutex::new(output));
        spread(&self.layout.work());
        Sender { id: 0, output: output.clone() }.send(FrameKind::Ready, &[])?;
        let mut bodies: BTreeMap<u32, SyncSender<Piece>> = BTreeMap::new();
        while let Some(frame) = frames::read(&mut input)? {
            match frame.kind {
                FrameKind::Request => {
                    let (send, pieces) = sync_channel(BODY_QUEUE);
                    let sender = Sender { id: frame.id, output: output.clone() };
                    match serde_json::from_slice::<Request>(&frame.payload) {
                        Ok(request) => {
                            if matches!(request, Request::StorePack { .. }) {
                                bodies.insert(frame.id, send);
                            }
                            let depot = self.clone();
                            thread::spawn(move || depot.attend(request, &Body { pieces }, &sender));
                        }
                        Err(error) => {
                            let fault =
                                fault(DepotFaultKind::Failed, format!("the request is not understood: {error}"));
                            answer(&sender, Err(fault));
                        }
                    }
                }
                // A request that is over takes no more: what still comes for it is dropped.
                FrameKind::Data => {
                    if let Some(body) = bodies.get(&frame.id)
                        && body.send(Piece::Data(frame.payload)).is_err()
                    {
                        bodies.remove(&frame.id);
                    }
                }
                FrameKind::End => {
                    if let Some(body) = bodies.remove(&frame.id) {
                        let _ = body.send(Piece::End);
                    }
                }
                FrameKind::Done | FrameKind::Failed | FrameKind::Ready => {}
            }
        }
        Ok(())
    }

    fn attend(&self, request: Request, body: &Body, sender: &Sender) {
        answer(sender, self.carry_out(request, body, sender));
    }

    fn carry_out(&self, request: Request, body: &Body, sender: &Sender) -> Result<Answer, DepotFault> {
        match request {
            Request::Objects { format } => objects::open(&self.layout, &format),
            Request::StorePack { tips, shallow } => objects::store_pack(&self.layout, &tips, &shallow, body),
            Request::Prepare { folder, uid, files } => folders::prepare(&self.layout, &folder, uid, &files),
            Request::Collect { folder, uid, max_bytes } => {
                folders::check_name(&folder)?;
                let args = ["read-out".to_owned(), folder, max_bytes.to_string()];
                as_uid::ask(&self.helper, &self.layout, uid, &args, sender)
            }
            Request::Salvage { folder, uid, base, reference, max_bytes } => {
                folders::check_name(&folder)?;
                let args = ["salvage".to_owned(), folder, base.to_string(), reference, max_bytes.to_string()];
                as_uid::ask(&self.helper, &self.layout, uid, &args, sender)
            }
            Request::Discard { folder, uid } => {
                folders::check_name(&folder)?;
                folders::remove_half_made(&self.layout, &folder, uid)?;
                let args = ["discard".to_owned(), folder.clone()];
                as_uid::ask(&self.helper, &self.layout, uid, &args, sender)?;
                folders::remove_empty(&self.layout, &folder)
            }
            Request::Space => folders::space(&self.layout),
            Request::MailOpen => mailbox::open(&self.layout),
            Request::MailSeat { agent, uid } => mailbox::seat(&self.layout, &agent, uid),
            Request::MailWait(ask) => mailbox::wait(&self.layout, &ask, sender),
            Request::MailPut { files } => mailbox::put(&self.layout, &files),
        }
    }
}

fn answer(sender: &Sender, outcome: Result<Answer, DepotFault>) {
    let (kind, payload) = match &outcome {
        Ok(answer) => (FrameKind::Done, serde_json::to_vec(answer)),
        Err(fault) => (FrameKind::Failed, serde_json::to_vec(fault)),
    };
    let mut payload = payload.expect("answers and faults are always JSON");
    if payload.len() > crate::handoff::depot::MAX_PAYLOAD {
        let fault =
            fault(DepotFaultKind::Failed, format!("the answer has {} bytes, too many for a frame", payload.len()));
        payload = serde_json::to_vec(&fault).expect("a fault is always JSON");
        let _ = sender.send(FrameKind::Failed, &payload);
        return;
    }
    // The host is gone where this fails, and the reader ends the program.
    let _ = sender.send(kind, &payload);
}

/// Asks the file system to lay the folders of *work* apart (`chattr +T`), as it does with home folders. Else ext4 puts all
/// attempts into one group of inodes, where a clone's files are made the slower the more of them were deleted lately.
/// Other file systems refuse, and need it not.
fn spread(work: &std::path::Path) {
    if let Ok(folder) = std::fs::File::open(work)
        && let Ok(flags) = rustix::fs::ioctl_getflags(&folder)
    {
        let _ = rustix::fs::ioctl_setflags(&folder, flags | rustix::fs::IFlags::TOPDIR);
    }
}
