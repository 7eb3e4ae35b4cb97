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
use crate::handoff::depot::frames::{DATA_CHUNK_LEN, FrameKind, MAX_PAYLOAD};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotRequest, DepotResponse};

pub mod as_uid;
mod attempt_dirs;
mod frames;
mod mailbox;
mod objects;

/// Frames of a body that wait for their request to take them, before the stream itself waits.
const BODY_QUEUE: usize = 16;

/// How the work in sandboxes' folders is done as their users.
#[derive(Debug, Clone)]
pub enum SandboxUserHelper {
    /// By this program, started as the user: the shim itself.
    Program(PathBuf),
    /// Here, as whoever runs this.
    #[cfg(test)]
    InProcess,
}

/// The depot.
#[derive(Debug, Clone)]
pub struct DepotServer {
    layout: Layout,
    helper: SandboxUserHelper,
}

/// Where answers go.
type SharedOutput = Arc<Mutex<Box<dyn Write + Send>>>;

/// The rest of a request's frames.
pub(super) struct RequestBody {
    chunks: Receiver<BodyChunk>,
}

enum BodyChunk {
    Data(Vec<u8>),
    End,
}

impl RequestBody {
    /// The next bytes; none at the end.
    pub(super) fn next_chunk(&self) -> Result<Option<Vec<u8>>, DepotError> {
        match self.chunks.recv() {
            Ok(BodyChunk::Data(bytes)) => Ok(Some(bytes)),
            Ok(BodyChunk::End) => Ok(None),
            Err(_) => Err(depot_error(DepotErrorKind::Failed, "the body ended before its end")),
        }
    }
}

/// Sends a request's answer data.
pub(super) struct ResponseSender {
    request_id: u32,
    output: SharedOutput,
}

impl ResponseSender {
    /// Passes on all of a stream.
    pub(super) fn send_all(&self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; DATA_CHUNK_LEN];
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
        frames::write_frame(&mut *output, self.request_id, kind, payload)
    }
}

pub(super) fn depot_error(kind: DepotErrorKind, message: impl Into<String>) -> DepotError {
    DepotError { kind, message: message.into() }
}

impl From<GitError> for DepotError {
    fn from(error: GitError) -> Self {
        let kind = if error.is_disk_full() { DepotErrorKind::DiskFull } else { DepotErrorKind::Failed };
        let reason = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        depot_error(kind, format!("{error}{reason}"))
    }
}

/// The fault that an error of the system is.
pub(super) fn io_error(what: &str, path: &std::path::Path, error: &io::Error) -> DepotError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DepotErrorKind::DiskFull,
        io::ErrorKind::NotFound => DepotErrorKind::NotFound,
        _ => DepotErrorKind::Failed,
    };
    depot_error(kind, format!("cannot {what} `{}`: {error}", path.display()))
}

impl DepotServer {
    /// A depot over these volumes.
    pub fn new(layout: Layout, helper: SandboxUserHelper) -> Self {
        Self { layout, helper }
    }

    /// Says that it is ready, and serves until the input ends. Requests that run then are not waited for.
    ///
    /// # Errors
    /// Where the stream breaks or is not made of frames.
    pub fn serve(&self, mut input: impl Read, output: Box<dyn Write + Send>) -> io::Result<()> {
        let output: SharedOutput = Arc::new(Mutex::new(output));
        spread_inodes(&self.layout.work_volume());
        ResponseSender { request_id: 0, output: output.clone() }.send(FrameKind::Ready, &[])?;
        let mut bodies: BTreeMap<u32, SyncSender<BodyChunk>> = BTreeMap::new();
        while let Some(frame) = frames::read_frame(&mut input)? {
            match frame.kind {
                FrameKind::Request => {
                    let (send, pieces) = sync_channel(BODY_QUEUE);
                    let sender = ResponseSender { request_id: frame.id, output: output.clone() };
                    match serde_json::from_slice::<DepotRequest>(&frame.payload) {
                        Ok(request) => {
                            if matches!(request, DepotRequest::StorePack { .. }) {
                                bodies.insert(frame.id, send);
                            }
                            let depot = self.clone();
                            thread::spawn(move || depot.handle(request, &RequestBody { chunks: pieces }, &sender));
                        }
                        Err(error) => {
                            let fault =
                                depot_error(DepotErrorKind::Failed, format!("the request is not understood: {error}"));
                            send_response(&sender, Err(fault));
                        }
                    }
                }
                // A request that is over takes no more: what still comes for it is dropped.
                FrameKind::Data => {
                    if let Some(body) = bodies.get(&frame.id)
                        && body.send(BodyChunk::Data(frame.payload)).is_err()
                    {
                        bodies.remove(&frame.id);
                    }
                }
                FrameKind::End => {
                    if let Some(body) = bodies.remove(&frame.id) {
                        let _ = body.send(BodyChunk::End);
                    }
                }
                FrameKind::Done | FrameKind::Failed | FrameKind::Ready => {}
            }
        }
        Ok(())
    }

    fn handle(&self, request: DepotRequest, body: &RequestBody, sender: &ResponseSender) {
        send_response(sender, self.execute(request, body, sender));
    }

    fn execute(
        &self,
        request: DepotRequest,
        body: &RequestBody,
        sender: &ResponseSender,
    ) -> Result<DepotResponse, DepotError> {
        match request {
            DepotRequest::OpenObjects { format } => objects::open_repo(&self.layout, &format),
            DepotRequest::StorePack { tips, shallow } => objects::store_pack(&self.layout, &tips, &shallow, body),
            DepotRequest::Prepare { attempt_dir: folder, uid, files } => {
                attempt_dirs::prepare_dirs(&self.layout, &folder, uid, &files)
            }
            DepotRequest::Collect { attempt_dir: folder, uid, max_bytes } => {
                attempt_dirs::check_attempt_dir_name(&folder)?;
                let args = ["read-out".to_owned(), folder, max_bytes.to_string()];
                as_uid::run_as_user(&self.helper, &self.layout, uid, &args, sender)
            }
            DepotRequest::Salvage { attempt_dir: folder, uid, base, reference, max_bytes } => {
                attempt_dirs::check_attempt_dir_name(&folder)?;
                let args = ["salvage".to_owned(), folder, base.to_string(), reference, max_bytes.to_string()];
                as_uid::run_as_user(&self.helper, &self.layout, uid, &args, sender)
            }
            DepotRequest::Discard { attempt_dir: folder, uid } => {
                attempt_dirs::check_attempt_dir_name(&folder)?;
                attempt_dirs::remove_half_made(&self.layout, &folder, uid)?;
                let args = ["discard".to_owned(), folder.clone()];
                as_uid::run_as_user(&self.helper, &self.layout, uid, &args, sender)?;
                attempt_dirs::remove_empty(&self.layout, &folder)
            }
            DepotRequest::MeasureSpace => attempt_dirs::measure_space(&self.layout),
            DepotRequest::OpenMailbox => mailbox::open(&self.layout),
            DepotRequest::AssignOutbox { agent, uid } => mailbox::assign_outbox(&self.layout, &agent, uid),
            DepotRequest::WaitForMail(ask) => mailbox::wait_for_mail(&self.layout, &ask, sender),
            DepotRequest::PutMail { files } => mailbox::put(&self.layout, &files),
        }
    }
}

fn send_response(sender: &ResponseSender, outcome: Result<DepotResponse, DepotError>) {
    let (kind, payload) = match &outcome {
        Ok(answer) => (FrameKind::Done, serde_json::to_vec(answer)),
        Err(fault) => (FrameKind::Failed, serde_json::to_vec(fault)),
    };
    let mut payload = payload.expect("answers and faults are always JSON");
    if payload.len() > MAX_PAYLOAD {
        let fault = depot_error(
            DepotErrorKind::Failed,
            format!("the answer has {} bytes, too many for a frame", payload.len()),
        );
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
fn spread_inodes(work: &std::path::Path) {
    if let Ok(folder) = std::fs::File::open(work)
        && let Ok(flags) = rustix::fs::ioctl_getflags(&folder)
    {
        let _ = rustix::fs::ioctl_setflags(&folder, flags | rustix::fs::IFlags::TOPDIR);
    }
}
