//! Many requests over one stream: a task that writes, a task that reads, and a table of who waits for what.
//!
//! The reader hands each frame to its request's bounded queue. A request whose queue stays full is given up after
//! [`STALLED_REQUEST_TIMEOUT`], so that none can hold up the others for ever. When the stream ends, all that wait learn it, and so does
//! whoever comes later.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::{AttachedStreams, EngineError, EngineResult, OutputChunk};
use super::frames::{self, DepotFrame, FrameDecoder};
use crate::error_chain::error_chain;
use crate::handoff::depot::{
    DATA_CHUNK_LEN, DepotError, DepotErrorKind, DepotRequest, DepotResponse, FRAME_HEADER_LEN, FrameKind, MAX_PAYLOAD,
};

/// Frames that wait to be written: half a megabyte of data.
const OUTGOING_QUEUE_LEN: usize = 8;
/// Frames of one answer that wait to be taken.
const REPLY_QUEUE_LEN: usize = 16;
/// How long the reader waits for one request to take its frames.
const STALLED_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The end of a body that broke off: no pack begins or goes on with it.
const BROKEN_BODY_MARKER: &[u8] = b"broken off";
/// How long the writer leaves it to the reader to say why the stream ended.
const READER_REASON_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the depot's last words are kept, in bytes.
const STDERR_TAIL_BYTES: usize = 4096;

/// The host's end of the stream. Dropping it ends both tasks and closes the stream.
pub(super) struct DepotConnection {
    shared: Arc<ConnectionShared>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// What the tasks and the requests share.
struct ConnectionShared {
    next_id: AtomicU32,
    outgoing: mpsc::Sender<Bytes>,
    state: Mutex<ConnectionState>,
    /// Ends the writer, so that nobody waits for room in a queue that is not emptied any more.
    closed: CancellationToken,
}

enum ConnectionState {
    /// Who waits, by request id.
    Open(HashMap<u32, mpsc::Sender<DepotReply>>),
    /// Why it ended.
    Closed(String),
}

/// What a request gets.
#[derive(Debug)]
pub(super) enum DepotReply {
    /// A piece of the body.
    Data(Bytes),
    /// The end, good or bad.
    End(Result<DepotResponse, DepotError>),
    /// The end of the link.
    Closed(String),
}

/// A request that is under way. Dropping it forgets it.
pub(super) struct PendingRequest {
    shared: Arc<ConnectionShared>,
    id: u32,
    operation: &'static str,
    /// How long nothing at all may happen.
    idle_timeout: Duration,
    replies: mpsc::Receiver<DepotReply>,
    /// An answer that came before the body was sent.
    early_reply: Option<Option<DepotReply>>,
    /// Whether the depot waits for more of the body.
    body_open: bool,
}

impl DepotConnection {
    /// Takes over a stream. The receiver hears when the depot is ready, and is dropped when the stream ends before that.
    /// `post_mortem` is asked once, at the end of the stream, for what became of the container.
    pub(super) fn open(
        attachment: AttachedStreams,
        post_mortem: BoxFuture<'static, String>,
    ) -> (Self, oneshot::Receiver<()>) {
        let (outgoing, queue) = mpsc::channel(OUTGOING_QUEUE_LEN);
        let state = Mutex::new(ConnectionState::Open(HashMap::new()));
        let shared = Arc::new(ConnectionShared {
            next_id: AtomicU32::new(1),
            outgoing,
            state,
            closed: CancellationToken::new(),
        });
        let (ready, is_ready) = oneshot::channel();
        let writer = tokio::spawn(write_frames(attachment.stdin, queue, Arc::clone(&shared)));
        let reader = tokio::spawn(read_output(attachment.output, Arc::clone(&shared), ready, post_mortem));
        let tasks = [writer, reader].map(AbortOnDropHandle::new).into();
        (Self { shared, tasks: Mutex::new(tasks) }, is_ready)
    }

    /// Sends a request. `within` bounds each silence until its answer is complete.
    pub(super) async fn send_request(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        within: Duration,
    ) -> EngineResult<PendingRequest> {
        let json = serde_json::to_vec(request).expect("a request is made of strings and numbers");
        if json.len() > MAX_PAYLOAD {
            let message =
                format!("a request of {} bytes is more than the {MAX_PAYLOAD} that fit one frame", json.len());
            return Err(EngineError::Depot { operation, kind: Some(DepotErrorKind::Refused), message });
        }
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::channel(REPLY_QUEUE_LEN);
        match &mut *self.shared.state() {
            ConnectionState::Open(waiting) => drop(waiting.insert(id, sender)),
            ConnectionState::Closed(reason) => return Err(depot_error(operation, reason)),
        }
        let shared = Arc::clone(&self.shared);
        let body_open = matches!(request, DepotRequest::StorePack { .. });
        let exchange =
            PendingRequest { shared, id, operation, idle_timeout: within, replies, early_reply: None, body_open };
        self.shared.send(operation, frames::encode_frame(id, FrameKind::Request, &json), within).await?;
        Ok(exchange)
    }

    /// Ends it, for this reason.
    pub(super) fn close(&self, reason: &str) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.close(reason);
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        matches!(&*self.shared.state(), ConnectionState::Closed(_))
    }

    /// Why it has ended.
    pub(super) fn close_reason(&self) -> String {
        match &*self.shared.state() {
            ConnectionState::Closed(reason) => reason.clone(),
            ConnectionState::Open(_) => "its stream ended".to_owned(),
        }
    }

    /// The error of a link that has ended.
    pub(super) fn closed_error(&self, operation: &'static str) -> EngineError {
        self.shared.closed_error(operation)
    }
}

impl PendingRequest {
    /// Sends a body, to its end or until the depot answers early: then the rest would be for nothing. An empty body is an
    /// error: whatever was to write it has died.
    pub(super) async fn send_body(&mut self, mut body: impl AsyncRead + Unpin) -> EngineResult<()> {
        let (shared, id, operation, within) = (Arc::clone(&self.shared), self.id, self.operation, self.idle_timeout);
        let failed = move |source| EngineError::Failed { operation, source };
        let pump = async move {
            let mut empty = true;
            loop {
                let mut chunk = BytesMut::with_capacity(FRAME_HEADER_LEN + DATA_CHUNK_LEN);
                chunk.resize(FRAME_HEADER_LEN, 0);
                while chunk.len() < FRAME_HEADER_LEN + DATA_CHUNK_LEN {
                    let read = body.read_buf(&mut chunk).await;
                    if read.map_err(|error| failed(Box::new(error)))? == 0 {
                        break;
                    }
                }
                let length = chunk.len() - FRAME_HEADER_LEN;
                if length == 0 {
                    return if empty { Err(failed("there is nothing to send".into())) } else { Ok(()) };
                }
                empty = false;
                chunk[..FRAME_HEADER_LEN].copy_from_slice(&frames::encode_header(id, FrameKind::Data, length));
                shared.send(operation, chunk.freeze(), within).await?;
            }
        };
        tokio::select! {
            biased;
            early = self.replies.recv() => self.early_reply = Some(early),
            // On an error this exchange is dropped, which ends the body for the depot too.
            sent = pump => sent?,
        }
        let end = frames::encode_frame(id, FrameKind::End, &[]);
        // A link that died meanwhile is told by the answer.
        self.body_open = self.shared.send(operation, end, within).await.is_err();
        Ok(())
    }

    /// The next piece of the answer: data, or its good end.
    pub(super) async fn next_part(&mut self) -> EngineResult<AnswerPart> {
        let (operation, within) = (self.operation, self.idle_timeout);
        let reply = match self.early_reply.take() {
            Some(early) => early,
            None => match timeout(within, self.replies.recv()).await {
                Ok(reply) => reply,
                Err(_) => return Err(EngineError::TimedOut { operation, after: within }),
            },
        };
        match reply {
            Some(DepotReply::Data(bytes)) => Ok(AnswerPart::Data(bytes)),
            Some(DepotReply::End(Ok(answer))) => Ok(AnswerPart::Answer(answer)),
            Some(DepotReply::End(Err(fault))) => {
                Err(EngineError::Depot { operation, kind: Some(fault.kind), message: fault.message })
            }
            Some(DepotReply::Closed(reason)) => Err(depot_error(operation, &reason)),
            None => match &*self.shared.state() {
                ConnectionState::Closed(reason) => Err(depot_error(operation, reason)),
                ConnectionState::Open(_) => {
                    Err(depot_error(operation, "its answer was not taken in time, and was dropped"))
                }
            },
        }
    }

    /// The answer of a request that brings no data.
    pub(super) async fn wait_for_answer(mut self) -> EngineResult<DepotResponse> {
        match self.next_part().await? {
            AnswerPart::Answer(answer) => Ok(answer),
            AnswerPart::Data(_) => Err(depot_error(self.operation, "it sent data where none belongs")),
        }
    }

    /// What this is about.
    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }
}

/// A piece of a good answer.
#[derive(Debug)]
pub(super) enum AnswerPart {
    /// Data.
    Data(Bytes),
    /// The end.
    Answer(DepotResponse),
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let ConnectionState::Open(waiting) = &mut *self.shared.state() {
            waiting.remove(&self.id);
        } else {
            return;
        }
        if !self.body_open {
            return;
        }
        // The depot must not wait for the rest for ever, nor take what it has for a whole: an empty body would be one.
        let mut end = BytesMut::from(&frames::encode_frame(self.id, FrameKind::Data, BROKEN_BODY_MARKER)[..]);
        end.extend_from_slice(&frames::encode_frame(self.id, FrameKind::End, &[]));
        let end = end.freeze();
        if let Err(mpsc::error::TrySendError::Full(end)) = self.shared.outgoing.try_send(end)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let outgoing = self.shared.outgoing.clone();
            runtime.spawn(async move { outgoing.send(end).await });
        }
    }
}

impl ConnectionShared {
    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, operation: &'static str, frame: Bytes, within: Duration) -> EngineResult<()> {
        match timeout(within, self.outgoing.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.closed_error(operation)),
            Err(_) => Err(EngineError::TimedOut { operation, after: within }),
        }
    }

    fn closed_error(&self, operation: &'static str) -> EngineError {
        match &*self.state() {
            ConnectionState::Closed(reason) => depot_error(operation, reason),
            ConnectionState::Open(_) => depot_error(operation, "its stream ended"),
        }
    }

    /// Hands a frame to its request; an error is a fault of the stream.
    async fn deliver(&self, frame: DepotFrame) -> Result<(), String> {
        let last = frame.kind != FrameKind::Data;
        let reply = match frame.kind {
            FrameKind::Data => DepotReply::Data(frame.payload),
            FrameKind::Done => DepotReply::End(Ok(parse_json(&frame.payload)?)),
            FrameKind::Failed => DepotReply::End(Err(parse_json(&frame.payload)?)),
            FrameKind::Request | FrameKind::End | FrameKind::Ready => {
                return Err(format!("it sent a frame of the kind {:?}", frame.kind));
            }
        };
        let sender = match &mut *self.state() {
            ConnectionState::Open(waiting) if last => waiting.remove(&frame.id),
            ConnectionState::Open(waiting) => waiting.get(&frame.id).cloned(),
            ConnectionState::Closed(_) => None,
        };
        let Some(sender) = sender else {
            let given = (1..self.next_id.load(Ordering::Relaxed)).contains(&frame.id);
            // Nobody waits for it any more.
            return if given { Ok(()) } else { Err(format!("it answers request {}, which was never made", frame.id)) };
        };
        if let Err(mpsc::error::TrySendError::Full(reply)) = sender.try_send(reply)
            && timeout(STALLED_REQUEST_TIMEOUT, sender.send(reply)).await.is_err()
            && let ConnectionState::Open(waiting) = &mut *self.state()
        {
            waiting.remove(&frame.id);
        }
        Ok(())
    }

    /// Tells all that wait. The first reason stays.
    fn close(&self, reason: &str) {
        let mut state = self.state();
        let ConnectionState::Open(waiting) = &mut *state else { return };
        let waiting = std::mem::take(waiting);
        *state = ConnectionState::Closed(reason.to_owned());
        drop(state);
        self.closed.cancel();
        for sender in waiting.into_values() {
            // Whoever has a full queue finds the reason in the state.
            let _ = sender.try_send(DepotReply::Closed(reason.to_owned()));
        }
    }
}

fn depot_error(operation: &'static str, message: &str) -> EngineError {
    EngineError::Depot { operation, kind: None, message: message.to_owned() }
}

fn parse_json<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("its answer cannot be read: {error}"))
}

async fn write_frames(
    mut input: Pin<Box<dyn AsyncWrite + Send>>,
    mut queue: mpsc::Receiver<Bytes>,
    shared: Arc<ConnectionShared>,
) {
    let writing = async {
        while let Some(frame) = queue.recv().await {
            input.write_all(&frame).await?;
            if queue.is_empty() {
                input.flush().await?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let ended = tokio::select! {
        ended = writing => ended,
        () = shared.closed.cancelled() => return,
    };
    drop(queue);
    if let Err(error) = ended {
        // The output mostly ends too, and then the reader finds a better reason.
        let _ = timeout(READER_REASON_TIMEOUT, shared.closed.cancelled()).await;
        shared.close(&format!("writing to it failed: {error}"));
    }
}

async fn read_output(
    mut output: BoxStream<'static, EngineResult<OutputChunk>>,
    shared: Arc<ConnectionShared>,
    ready: oneshot::Sender<()>,
    post_mortem: BoxFuture<'static, String>,
) {
    let mut ready = Some(ready);
    let mut last_words = BytesMut::new();
    let reason = match read_frames(&mut output, &shared, &mut ready, &mut last_words).await {
        Err(problem) => problem,
        Ok(()) => format!("its stream ended, {}", post_mortem.await),
    };
    let words = String::from_utf8_lossy(&last_words);
    let words = words.trim();
    shared.close(&if words.is_empty() { reason } else { format!("{reason}; its last words: {words}") });
    // Only now, so that whoever waits for it finds the reason.
    drop(ready);
}

async fn read_frames(
    output: &mut BoxStream<'static, EngineResult<OutputChunk>>,
    shared: &ConnectionShared,
    ready: &mut Option<oneshot::Sender<()>>,
    last_words: &mut BytesMut,
) -> Result<(), String> {
    let mut reader = FrameDecoder::default();
    while let Some(chunk) = output.next().await {
        match chunk {
            Ok(OutputChunk::Stdout(bytes)) => reader.push(&bytes),
            Ok(OutputChunk::Stderr(bytes)) => {
                last_words.extend_from_slice(&bytes);
                let surplus = last_words.len().saturating_sub(STDERR_TAIL_BYTES);
                let _ = last_words.split_to(surplus);
            }
            Err(error) => return Err(format!("its stream broke: {}", error_chain(&error))),
        }
        while let Some(frame) = reader.next_frame()? {
            match (frame.kind, frame.id) {
                (FrameKind::Ready, 0) => {
                    let Some(ready) = ready.take() else { return Err("it said twice that it is ready".to_owned()) };
                    // Nobody may be waiting for it any more.
                    let _ = ready.send(());
                }
                _ => shared.deliver(frame).await?,
            }
        }
    }
    if reader.buffered_len() > 0 { Err("its stream ended within a frame".to_owned()) } else { Ok(()) }
}
