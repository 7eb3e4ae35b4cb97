//! A request's streams: the body that comes in, and the response that goes out.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::failed;
use super::frames;
use crate::handoff::depot::frames::{DATA_CHUNK_LEN, FrameKind, MAX_PAYLOAD};
use crate::handoff::depot::{DepotError, DepotResponse};

/// How many frames of a body are queued for their request before the input stream waits.
const BODY_QUEUE: usize = 16;

pub type SharedOutput = Arc<Mutex<Box<dyn Write + Send>>>;

pub enum BodyChunk {
    Data(Vec<u8>),
    End,
}

pub struct RequestBody {
    chunks: Receiver<BodyChunk>,
}

impl RequestBody {
    pub fn new() -> (SyncSender<BodyChunk>, Self) {
        let (sender, chunks) = sync_channel(BODY_QUEUE);
        (sender, Self { chunks })
    }

    /// The next bytes; `None` at the end.
    pub fn next_chunk(&self) -> Result<Option<Vec<u8>>, DepotError> {
        match self.chunks.recv() {
            Ok(BodyChunk::Data(bytes)) => Ok(Some(bytes)),
            Ok(BodyChunk::End) => Ok(None),
            Err(_) => Err(failed("the body broke off")),
        }
    }
}

/// Sends a request's response, each frame under a lock of the output.
pub struct ResponseSender {
    request_id: u32,
    output: SharedOutput,
}

impl ResponseSender {
    pub fn new(request_id: u32, output: SharedOutput) -> Self {
        Self { request_id, output }
    }

    /// Sends a stream as data.
    pub fn send_all(&self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; DATA_CHUNK_LEN];
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            self.send(FrameKind::Data, &buffer[..length])?;
        }
    }

    /// Sends the outcome, which ends the response. If that fails, the host is gone, and the reader ends the program.
    pub fn send_outcome(&self, outcome: &Result<DepotResponse, DepotError>) {
        let (kind, payload) = match outcome {
            Ok(response) => (FrameKind::Done, serde_json::to_vec(response)),
            Err(error) => (FrameKind::Failed, serde_json::to_vec(error)),
        };
        let payload = payload.expect("responses and errors are always JSON");
        if payload.len() > MAX_PAYLOAD {
            let error = failed(format!("the response of {} bytes does not fit a frame", payload.len()));
            return self.send_outcome(&Err(error));
        }
        let _ = self.send(kind, &payload);
    }

    pub fn send(&self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        frames::write_frame(&mut *output, self.request_id, kind, payload)
    }
}
