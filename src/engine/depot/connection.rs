//! Many requests over one stream: a task that writes, a task that reads, and a table of pending requests.
//!
//! The reader passes each frame to the bounded queue of its request. A request whose queue stays full is dropped after
//! [`STALLED_REQUEST_TIMEOUT`], so that it cannot block the others. When the stream ends, all pending and later requests fail with
//! the reason.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::frame_decoder::{DepotFrame, FrameDecoder};
use crate::engine::{AttachedStreams, EngineError, EngineResult, EngineStream, OutputChunk};
use crate::error_chain::error_chain;
use crate::handoff::depot::frames::{DATA_CHUNK_LEN, DepotFrameHeader, FRAME_HEADER_LEN, FrameKind, encode_frame};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotRequest, DepotResponse};

/// Frames that wait to be written: half a megabyte of data.
const OUTGOING_QUEUE_LEN: usize = 8;
/// Received frames of one request that wait to be taken.
const REPLY_QUEUE_LEN: usize = 16;
/// How long the reader waits for one request to take its frames.
const STALLED_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Ends a body that broke off. No pack starts or continues with it.
const BROKEN_BODY_MARKER: &[u8] = b"broken off";
/// How long the writer waits for the reader to find out why the stream ended.
const READER_REASON_TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes kept from the end of the depot's stderr.
const STDERR_TAIL_BYTES: usize = 4096;
/// The close reason while no better one is known.
const STREAM_ENDED: &str = "its stream ended";

/// The host's end of the stream. Dropping it ends both tasks and closes the stream.
pub(super) struct DepotConnection {
    shared: Arc<ConnectionShared>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// The state that the tasks and the requests share.
struct ConnectionShared {
    next_id: AtomicU32,
    outgoing: mpsc::Sender<Bytes>,
    state: Mutex<ConnectionState>,
    /// Ends the writer, so that no request waits for room in a dead queue.
    closed: CancellationToken,
    /// When the depot last sent something, or took a part of a body.
    last_progress: Mutex<Instant>,
    /// The reader waits for a request to take its frames, and so hears nothing.
    delivering: AtomicBool,
}

enum ConnectionState {
    /// The pending requests by id.
    Open(HashMap<u32, mpsc::Sender<DepotReply>>),
    /// The reason.
    Closed(String),
}

/// An item in the queue of a pending request.
#[derive(Debug)]
enum DepotReply {
    Data(Bytes),
    End(Result<DepotResponse, DepotError>),
    /// The connection closed, for this reason.
    Closed(String),
}

/// A part of a successful answer.
#[derive(Debug)]
pub(super) enum AnswerPart {
    Data(Bytes),
    /// The last part.
    Answer(DepotResponse),
}

/// A request that waits for its answer. Dropping it cancels the wait.
pub(super) struct PendingRequest {
    shared: Arc<ConnectionShared>,
    id: u32,
    operation: &'static str,
    /// The longest time without progress.
    idle_timeout: Duration,
    replies: mpsc::Receiver<DepotReply>,
    /// What `replies` returned while the body was being sent.
    early_reply: Option<Option<DepotReply>>,
    /// Whether the depot waits for more of the body.
    body_open: bool,
}

impl DepotConnection {
    /// Takes over a stream. The receiver is notified when the depot is ready, and fails if the stream ends before that.
    /// `post_mortem` runs once, at the end of the stream, and describes the state of the container.
    pub(super) fn open(
        streams: AttachedStreams,
        post_mortem: BoxFuture<'static, String>,
    ) -> (Self, oneshot::Receiver<()>) {
        let (outgoing, queue) = mpsc::channel(OUTGOING_QUEUE_LEN);
        let shared = Arc::new(ConnectionShared {
            next_id: AtomicU32::new(1),
            outgoing,
            state: Mutex::new(ConnectionState::Open(HashMap::new())),
            closed: CancellationToken::new(),
            last_progress: Mutex::new(Instant::now()),
            delivering: AtomicBool::new(false),
        });
        let (ready, is_ready) = oneshot::channel();
        let writer = tokio::spawn(write_frames(streams.stdin, queue, Arc::clone(&shared)));
        let reader = tokio::spawn(read_output(streams.output, Arc::clone(&shared), ready, post_mortem));
        let tasks = [writer, reader].map(AbortOnDropHandle::new).into();
        (Self { shared, tasks: Mutex::new(tasks) }, is_ready)
    }

    /// Sends a request. `idle_timeout` limits the time without progress until the answer is complete.
    pub(super) async fn send_request(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        idle_timeout: Duration,
    ) -> EngineResult<PendingRequest> {
        let json = serde_json::to_vec(request).expect("a request is made of strings and numbers");
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = encode_frame(id, FrameKind::Request, &json).map_err(|error| {
            let message = format!("the request does not fit: {error}");
            EngineError::Depot { operation, kind: Some(DepotErrorKind::Refused), message }
        })?;
        let (sender, replies) = mpsc::channel(REPLY_QUEUE_LEN);
        match &mut *self.shared.state() {
            ConnectionState::Open(waiting) => drop(waiting.insert(id, sender)),
            ConnectionState::Closed(reason) => return Err(depot_error(operation, reason)),
        }
        let shared = Arc::clone(&self.shared);
        let body_open = matches!(request, DepotRequest::StorePack { .. });
        let pending = PendingRequest { shared, id, operation, idle_timeout, replies, early_reply: None, body_open };
        self.shared.send(operation, frame.into(), idle_timeout).await?;
        Ok(pending)
    }

    /// Closes the connection. Pending requests fail with `reason`.
    pub(super) fn close(&self, reason: &str) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.close(reason);
    }

    /// How long the depot has shown no sign of life.
    pub(super) fn silence(&self) -> Duration {
        match self.shared.delivering.load(Ordering::Acquire) {
            true => Duration::ZERO,
            false => self.shared.last_progress.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(&*self.shared.state(), ConnectionState::Closed(_))
    }

    /// Why the connection closed.
    pub(super) fn close_reason(&self) -> String {
        self.shared.close_reason()
    }
}

impl PendingRequest {
    /// Sends a body to its end, or until the depot answers early. An empty body is an error: its writer has died.
    pub(super) async fn send_body(&mut self, mut body: impl AsyncRead + Unpin) -> EngineResult<()> {
        let (shared, id, operation, timeout) = (Arc::clone(&self.shared), self.id, self.operation, self.idle_timeout);
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
                    return if empty { Err(failed("the body is empty".into())) } else { Ok(()) };
                }
                empty = false;
                let header = DepotFrameHeader { id, kind: FrameKind::Data, length }.encode();
                chunk[..FRAME_HEADER_LEN].copy_from_slice(&header.expect("a data chunk fits a frame"));
                shared.send(operation, chunk.freeze(), timeout).await?;
                shared.record_progress();
            }
        };
        tokio::select! {
            biased;
            early = self.replies.recv() => self.early_reply = Some(early),
            // On an error this request is dropped, which ends the body for the depot too.
            sent = pump => sent?,
        }
        // If the connection closed meanwhile, the answer will be the error.
        self.body_open = self.shared.send(operation, small_frame(id, FrameKind::End, &[]), timeout).await.is_err();
        Ok(())
    }

    /// Waits for the next part of the answer.
    pub(super) async fn next_part(&mut self) -> EngineResult<AnswerPart> {
        let (operation, after) = (self.operation, self.idle_timeout);
        let reply = match self.early_reply.take() {
            Some(early) => early,
            None => {
                timeout(after, self.replies.recv()).await.map_err(|_| EngineError::TimedOut { operation, after })?
            }
        };
        match reply {
            Some(DepotReply::Data(bytes)) => Ok(AnswerPart::Data(bytes)),
            Some(DepotReply::End(Ok(answer))) => Ok(AnswerPart::Answer(answer)),
            Some(DepotReply::End(Err(DepotError { kind, message }))) => {
                Err(EngineError::Depot { operation, kind: Some(kind), message })
            }
            Some(DepotReply::Closed(reason)) => Err(depot_error(operation, &reason)),
            None => match &*self.shared.state() {
                ConnectionState::Closed(reason) => Err(depot_error(operation, reason)),
                ConnectionState::Open(_) => {
                    Err(depot_error(operation, "its answer was not read in time and was dropped"))
                }
            },
        }
    }

    /// Waits for an answer without data.
    pub(super) async fn wait_for_answer(mut self) -> EngineResult<DepotResponse> {
        match self.next_part().await? {
            AnswerPart::Answer(answer) => Ok(answer),
            AnswerPart::Data(_) => Err(depot_error(self.operation, "it sent unexpected data")),
        }
    }

    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }
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
        // The depot must neither wait for the rest forever nor take the part it has for the whole body.
        let marker = small_frame(self.id, FrameKind::Data, BROKEN_BODY_MARKER);
        let end = Bytes::from([marker, small_frame(self.id, FrameKind::End, &[])].concat());
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

    fn record_progress(&self) {
        *self.last_progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    async fn send(&self, operation: &'static str, frame: Bytes, after: Duration) -> EngineResult<()> {
        match timeout(after, self.outgoing.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(depot_error(operation, &self.close_reason())),
            Err(_) => Err(EngineError::TimedOut { operation, after }),
        }
    }

    fn close_reason(&self) -> String {
        match &*self.state() {
            ConnectionState::Closed(reason) => reason.clone(),
            ConnectionState::Open(_) => STREAM_ENDED.to_owned(),
        }
    }

    /// Passes a frame to its request. An error breaks the stream.
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
            let was_sent = (1..self.next_id.load(Ordering::Relaxed)).contains(&frame.id);
            // The answer of a request that was dropped is ignored.
            return if was_sent {
                Ok(())
            } else {
                Err(format!("it answers request {}, which was never made", frame.id))
            };
        };
        if let Err(mpsc::error::TrySendError::Full(reply)) = sender.try_send(reply) {
            self.delivering.store(true, Ordering::Release);
            let delivered = timeout(STALLED_REQUEST_TIMEOUT, sender.send(reply)).await;
            self.record_progress();
            self.delivering.store(false, Ordering::Release);
            if delivered.is_err()
                && let ConnectionState::Open(waiting) = &mut *self.state()
            {
                waiting.remove(&frame.id);
            }
        }
        Ok(())
    }

    /// Fails all pending requests. The first reason is kept.
    fn close(&self, reason: &str) {
        let mut state = self.state();
        let ConnectionState::Open(waiting) = &mut *state else { return };
        let waiting = std::mem::take(waiting);
        *state = ConnectionState::Closed(reason.to_owned());
        drop(state);
        self.closed.cancel();
        for sender in waiting.into_values() {
            // A request with a full queue finds the reason in the state.
            let _ = sender.try_send(DepotReply::Closed(reason.to_owned()));
        }
    }
}

pub(super) fn depot_error(operation: &'static str, message: &str) -> EngineError {
    EngineError::Depot { operation, kind: None, message: message.to_owned() }
}

fn small_frame(id: u32, kind: FrameKind, payload: &[u8]) -> Bytes {
    encode_frame(id, kind, payload).expect("the payload fits a frame").into()
}

fn parse_json<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("its answer cannot be read: {error}"))
}

async fn write_frames(
    mut stdin: Pin<Box<dyn AsyncWrite + Send>>,
    mut queue: mpsc::Receiver<Bytes>,
    shared: Arc<ConnectionShared>,
) {
    let writing = async {
        while let Some(frame) = queue.recv().await {
            stdin.write_all(&frame).await?;
            if queue.is_empty() {
                stdin.flush().await?;
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
        // The output usually ends too, and then the reader finds a better reason.
        let _ = timeout(READER_REASON_TIMEOUT, shared.closed.cancelled()).await;
        shared.close(&format!("writing to it failed: {error}"));
    }
}

async fn read_output(
    mut output: EngineStream<OutputChunk>,
    shared: Arc<ConnectionShared>,
    ready: oneshot::Sender<()>,
    post_mortem: BoxFuture<'static, String>,
) {
    let mut ready = Some(ready);
    let mut stderr_tail = BytesMut::new();
    let reason = match read_frames(&mut output, &shared, &mut ready, &mut stderr_tail).await {
        Err(problem) => problem,
        Ok(()) => format!("{STREAM_ENDED}, {}", post_mortem.await),
    };
    let stderr = String::from_utf8_lossy(&stderr_tail);
    let stderr = stderr.trim();
    shared.close(&if stderr.is_empty() { reason } else { format!("{reason}; stderr: {stderr}") });
    // Only now, so that the waiting caller finds the reason.
    drop(ready);
}

async fn read_frames(
    output: &mut EngineStream<OutputChunk>,
    shared: &ConnectionShared,
    ready: &mut Option<oneshot::Sender<()>>,
    stderr_tail: &mut BytesMut,
) -> Result<(), String> {
    let mut decoder = FrameDecoder::default();
    while let Some(chunk) = output.next().await {
        shared.record_progress();
        match chunk {
            Ok(OutputChunk::Stdout(bytes)) => decoder.push(&bytes),
            Ok(OutputChunk::Stderr(bytes)) => {
                stderr_tail.extend_from_slice(&bytes);
                let surplus = stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                let _ = stderr_tail.split_to(surplus);
            }
            Err(error) => return Err(format!("its stream broke: {}", error_chain(&error))),
        }
        while let Some(frame) = decoder.next_frame().map_err(|error| format!("it sent {error}"))? {
            match (frame.kind, frame.id) {
                (FrameKind::Ready, 0) => {
                    let Some(ready) = ready.take() else { return Err("it reported twice that it is ready".to_owned()) };
                    // The caller may have timed out.
                    let _ = ready.send(());
                }
                _ => shared.deliver(frame).await?,
            }
        }
    }
    if decoder.buffered_len() > 0 { Err(format!("{STREAM_ENDED} within a frame")) } else { Ok(()) }
}
