//! Reads requests from the host and runs each on a thread of its own. Responses are sent as they are ready.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread;

use super::super::layout::Layout;
use super::as_uid::{SandboxUserHelper, run_as_user};
use super::attempt_dirs;
use super::error::failed;
use super::frames;
use super::mailbox;
use super::objects;
use super::streams::{BodyChunk, RequestBody, ResponseSender, SharedOutput};
use crate::handoff::depot::frames::FrameKind;
use crate::handoff::depot::{DepotError, DepotRequest, DepotResponse};
use crate::handoff::sandbox_users::SandboxUsers;

#[derive(Debug, Clone)]
pub struct DepotServer {
    layout: Layout,
    helper: SandboxUserHelper,
}

impl DepotServer {
    pub fn new(layout: Layout, helper: SandboxUserHelper) -> Self {
        Self { layout, helper }
    }

    /// Reports that the depot is ready, and serves until the input ends, without waiting for requests that still run.
    ///
    /// # Errors
    /// The stream breaks, or does not consist of frames.
    pub fn serve(&self, mut input: impl Read, output: Box<dyn Write + Send>) -> io::Result<()> {
        let output: SharedOutput = Arc::new(Mutex::new(output));
        spread_inodes(&self.layout.work_volume());
        ResponseSender::new(0, output.clone()).send(FrameKind::Ready, &[])?;
        let mut bodies: BTreeMap<u32, SyncSender<BodyChunk>> = BTreeMap::new();
        while let Some(frame) = frames::read_frame(&mut input)? {
            match frame.kind {
                FrameKind::Request => {
                    let (chunks, body) = RequestBody::new();
                    let sender = ResponseSender::new(frame.id, output.clone());
                    match serde_json::from_slice::<DepotRequest>(&frame.payload) {
                        Ok(request) => {
                            if matches!(request, DepotRequest::StorePack { .. }) {
                                bodies.insert(frame.id, chunks);
                            }
                            let depot = self.clone();
                            thread::spawn(move || sender.send_outcome(&depot.execute(request, &body, &sender)));
                        }
                        Err(error) => sender.send_outcome(&Err(failed(format!("invalid request: {error}")))),
                    }
                }
                // Data for a request that has ended is dropped.
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

    fn execute(
        &self,
        request: DepotRequest,
        body: &RequestBody,
        sender: &ResponseSender,
    ) -> Result<DepotResponse, DepotError> {
        let layout = &self.layout;
        let run_as = |uid: u32, command: &str, attempt_dir: String, args: &[String]| {
            attempt_dirs::check_attempt_dir_name(&attempt_dir)?;
            run_as_user(&self.helper, uid, &[&[command.to_owned(), attempt_dir], args].concat(), sender)
        };
        match request {
            DepotRequest::OpenObjects { format } => objects::open_repo(layout, &format),
            DepotRequest::StorePack { tips, shallow } => objects::store_pack(layout, &tips, &shallow, body),
            DepotRequest::Prepare { attempt_dir, uid, shim_uid, files } => {
                let users = SandboxUsers { agent: uid, shim: shim_uid };
                attempt_dirs::prepare_dirs(layout, &attempt_dir, users, &files)
            }
            DepotRequest::Collect { attempt_dir, uid, max_bytes } => {
                attempt_dirs::check_attempt_dir_name(&attempt_dir)?;
                let reader = attempt_dirs::work_dir_owner(layout, &attempt_dir, uid).unwrap_or(uid);
                run_as(reader, "read-out", attempt_dir, &[max_bytes.to_string()])
            }
            DepotRequest::Salvage { attempt_dir, uid, base, reference, max_bytes } => {
                run_as(uid, "salvage", attempt_dir, &[base.to_string(), reference, max_bytes.to_string()])
            }
            DepotRequest::Discard { attempt_dir, uid } => {
                attempt_dirs::check_attempt_dir_name(&attempt_dir)?;
                attempt_dirs::remove_half_made(layout, &attempt_dir, uid)?;
                run_as(uid, "discard", attempt_dir.clone(), &[])?;
                // What the agent's user owns is empty now.
                if let Some(owner) =
                    attempt_dirs::work_dir_owner(layout, &attempt_dir, uid).filter(|owner| *owner != uid)
                {
                    run_as(owner, "discard", attempt_dir.clone(), &[])?;
                }
                attempt_dirs::remove_empty(layout, &attempt_dir)
            }
            DepotRequest::MeasureSpace => attempt_dirs::measure_space(layout),
            DepotRequest::OpenMailbox => mailbox::open(layout),
            DepotRequest::AssignOutbox { agent, uid } => mailbox::assign_outbox(layout, &agent, uid),
            DepotRequest::WaitForMail(query) => mailbox::wait_for_mail(layout, &query, sender),
            DepotRequest::PutMail { files } => mailbox::put(layout, &files),
        }
    }
}

/// Asks the file system to spread the directories of *work* (`chattr +T`), as it does with home directories. Otherwise ext4 puts all
/// attempts into one group of inodes, where creating a clone's files gets slower the more were deleted lately. Other file systems
/// refuse and do not need it.
fn spread_inodes(work: &Path) {
    if let Ok(dir) = File::open(work)
        && let Ok(flags) = rustix::fs::ioctl_getflags(&dir)
    {
        let _ = rustix::fs::ioctl_setflags(&dir, flags | rustix::fs::IFlags::TOPDIR);
    }
}
