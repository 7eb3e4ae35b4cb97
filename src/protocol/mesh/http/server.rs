//! The receiving half: connections, who may ask, and from a request to a frame and back.
//!
//! Called by `longshore mesh serve`. A connection is HTTP/1.1, or HTTP/2 by prior knowledge. Nobody holds anything up: heads, bodies
//! and idle connections have an end, there is a most of connections and of exchanges, and no lock is held while one is waited for.
//! Must not: know what a node does with a frame; that is `node_service.rs`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN,
    WWW_AUTHENTICATE,
};
use hyper::{StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::super::fault::Fault;
use super::super::rules;
use super::multipart::{self, Attachment, ContentType};
use super::node_service::{NodeResponse, NodeService, describe_node};
use super::status::{
    AUTHENTICATION_FAILED, BUSY, HOST_REFUSED, NO_RESOURCE, TOO_SLOW, UNSUPPORTED_MEDIA_TYPE as MEDIA_TYPE_RULE,
};
use super::{FRAME_PATH, MEDIA_TYPE, STREAM_PATH, stream};

/// How the first bytes of HTTP/2 look (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 512;
/// Frames at once; more are told to come again.
const MAX_EXCHANGES: usize = 64;
/// The most that a request's own headers may have.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// What a server lets happen, and for how long.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What whoever asks has to know. Without one, only this machine may ask.
    pub token: Option<String>,
    /// The most bytes of all attachments of a frame.
    pub max_attachment_bytes: usize,
    /// How long the head of a request may take, and the first byte of a connection.
    pub header_timeout: Duration,
    /// How long the body of a request may take.
    pub body_timeout: Duration,
    /// How long a connection or a stream may say nothing.
    pub idle_timeout: Duration,
    /// How long those that are at it have when the server ends.
    pub shutdown_grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            token: None,
            max_attachment_bytes: 64 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            shutdown_grace: Duration::from_secs(2),
        }
    }
}

/// A node that is reached by HTTP.
pub struct Server {
    pub(super) service: NodeService,
    pub(super) options: ServerOptions,
    pub(super) stop: CancellationToken,
    is_loopback: bool,
    token_digest: Option<[u8; 32]>,
    exchange_permits: Arc<Semaphore>,
}

/// What a connection is doing, so that one that does nothing can be ended.
pub(super) struct ConnectionActivity {
    open_requests: AtomicUsize,
    last_active: Mutex<Instant>,
}

/// One request of a connection.
pub(super) struct InFlightRequest(Arc<ConnectionActivity>);

impl ConnectionActivity {
    fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        self.open_requests.fetch_add(1, Ordering::Relaxed);
        InFlightRequest(Arc::clone(self))
    }

    fn idle_time(&self) -> Duration {
        let last = *self.last_active.lock().unwrap_or_else(PoisonError::into_inner);
        if self.open_requests.load(Ordering::Relaxed) == 0 { last.elapsed() } else { Duration::ZERO }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        *self.0.last_active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.open_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// A server for a node. `address`: where it listens; anything but loopback needs a token, which the caller sees to.
    pub fn new(station: NodeService, terms: ServerOptions, address: SocketAddr, stop: CancellationToken) -> Arc<Self> {
        let token = terms.token.as_ref().map(|token| Sha256::digest(token).into());
        let exchanges = Arc::new(Semaphore::new(MAX_EXCHANGES));
        Arc::new(Self {
            service: station,
            options: terms,
            stop,
            is_loopback: address.ip().is_loopback(),
            token_digest: token,
            exchange_permits: exchanges,
        })
    }

    fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(FRAME_PATH, get(handle_describe).post(handle_frame))
            .route(STREAM_PATH, post(handle_stream))
            .fallback(handle_not_found)
            .method_not_allowed_fallback(handle_not_found)
            .layer(middleware::from_fn_with_state(Arc::clone(self), access_middleware))
            .with_state(Arc::clone(self))
    }

    /// Serves until it is told to stop.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let router = self.router();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        let over = CancellationToken::new();
        loop {
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await.ok()?;
                listener.accept().await.ok().map(|(stream, peer)| (permit, stream, peer))
            };
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                accepted = accepted => accepted,
            };
            let Some((permit, stream, peer)) = accepted else {
                // Out of file descriptors, most likely: a moment later some are free.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = serve_connection(Arc::clone(&self), router.clone(), stream, permit);
            let over = over.clone();
            connections.spawn(async move {
                tokio::select! {
                    () = over.cancelled() => {}
                    ended = connection => if let Err(error) = ended { debug!(%peer, error, "a connection ended") },
                }
            });
        }
        connections.close();
        let _ = timeout(self.options.shutdown_grace, connections.wait()).await;
        over.cancel();
        connections.wait().await;
    }

    /// A place among those that are worked on.
    fn try_acquire_exchange(&self) -> Result<OwnedSemaphorePermit, Box<Fault>> {
        let busy = |_| Fault::receiver(BUSY, "the node has as much to do as it takes");
        Arc::clone(&self.exchange_permits).try_acquire_owned().map_err(busy)
    }

    /// The same for a stream, which waits where a single frame is told to come again.
    pub(super) async fn acquire_exchange(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.exchange_permits).acquire_owned().await.ok()
    }

    /// Whether whoever asks may ask.
    fn check_access(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Fault>> {
        if let Some(token) = &self.token_digest {
            let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
            let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, token)| token);
            let digest: [u8; 32] = Sha256::digest(given.unwrap_or_default()).into();
            // Of digests, and in constant time: how long it takes says nothing of the token.
            if !bool::from(digest.ct_eq(token)) || given.is_none() {
                return Err(Fault::sender(AUTHENTICATION_FAILED, "the token is missing or not the right one"));
            }
        }
        // A web page reaches this machine through its reader's browser: by a name that resolves to it, or with a form.
        if self.token_digest.is_none() && headers.contains_key(ORIGIN) {
            return Err(Fault::sender(HOST_REFUSED, "web pages may not send to this node"));
        }
        let named = || uri.authority().map(|authority| authority.as_str()).or_else(|| headers.get(HOST)?.to_str().ok());
        if self.is_loopback && !named().is_some_and(is_loopback_host) {
            return Err(Fault::sender(HOST_REFUSED, "this node is not known by that name"));
        }
        Ok(())
    }
}

/// Whether a `Host` is this machine's own.
fn is_loopback_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<hyper::http::uri::Authority>() else { return false };
    let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A connection, to its end.
async fn serve_connection(
    server: Arc<Server>,
    router: Router,
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
) -> Result<(), String> {
    let _ = stream.set_nodelay(true);
    let http2 = timeout(server.options.header_timeout, starts_with_http2_preface(&stream))
        .await
        .map_err(|_| "it says nothing")?
        .map_err(|error| error.to_string())?;
    let activity =
        Arc::new(ConnectionActivity { open_requests: AtomicUsize::new(0), last_active: Mutex::new(Instant::now()) });
    let service = TowerToHyperService::new(router.layer(Extension(Arc::clone(&activity))));
    let io = TokioIo::new(stream);
    macro_rules! drive {
        ($connection:expr) => {{
            let mut connection = std::pin::pin!($connection);
            let ended = async {
                tokio::select! {
                    () = server.stop.cancelled() => {}
                    () = wait_until_idle(&activity, server.options.idle_timeout) => {}
                }
            };
            tokio::select! {
                ended = connection.as_mut() => ended.map_err(|error| error.to_string()),
                () = ended => {
                    connection.as_mut().graceful_shutdown();
                    // One whose other side takes nothing any more has no end of its own.
                    timeout(server.options.header_timeout, connection).await.map_err(|_| "it does not take its answer")?.map_err(|error| error.to_string())
                }
            }
        }};
    }
    if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(64).max_header_list_size(MAX_HEADER_BYTES);
        builder.keep_alive_interval(server.options.header_timeout).keep_alive_timeout(server.options.header_timeout);
        drive!(builder.serve_connection(io, service))
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(server.options.header_timeout)
            .max_buf_size(4 * MAX_HEADER_BYTES as usize);
        drive!(builder.serve_connection(io, service))
    }
}

/// Ends when a connection has had nothing to do for that long.
async fn wait_until_idle(activity: &ConnectionActivity, limit: Duration) {
    loop {
        let idle = activity.idle_time();
        if idle >= limit {
            return;
        }
        tokio::time::sleep((limit - idle).max(Duration::from_millis(100))).await;
    }
}

/// Looks at the first bytes without taking them.
async fn starts_with_http2_preface(stream: &TcpStream) -> std::io::Result<bool> {
    let mut begin = [0; HTTP2_PREFACE.len()];
    loop {
        let count = stream.peek(&mut begin).await?;
        if count == 0 || begin[..count] != HTTP2_PREFACE[..count] {
            return Ok(false);
        }
        if count == HTTP2_PREFACE.len() {
            return Ok(true);
        }
        // A part of it came, and what was looked at does not wake again.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nothing of a request is looked at before it is known whether it may be made.
async fn access_middleware(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let activity = request.extensions().get::<Arc<ConnectionActivity>>().map(ConnectionActivity::begin_request);
    if let Err(fault) = server.check_access(request.uri(), request.headers()) {
        return frame_response(server.service.fault_response(fault));
    }
    let in_flight = activity.map(Arc::new);
    request.extensions_mut().insert(in_flight.clone());
    let response = next.run(request).await;
    drop(in_flight);
    response
}

/// A response with a frame.
fn frame_response(answer: NodeResponse) -> Response {
    let NodeResponse { status, body: content } = answer;
    let mut response = Response::new(Body::from(content));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

async fn handle_not_found(State(server): State<Arc<Server>>) -> Response {
    let text = format!("frames are posted to `{FRAME_PATH}`, and streams of them to `{STREAM_PATH}`");
    frame_response(server.service.fault_response(Fault::sender(NO_RESOURCE, text)))
}

async fn handle_describe(State(server): State<Arc<Server>>) -> Response {
    let mut response = Response::new(Body::from(format!("{}\n", describe_node(server.service.node()))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn handle_frame(State(server): State<Arc<Server>>, request: Request) -> Response {
    let answer = match read_request(&server, request).await {
        Ok((frame, attachments, _permit)) => server.service.handle_frame(frame, attachments).await,
        Err(fault) => {
            let too_large = fault.subcode.as_deref() == Some(rules::LIMIT_EXCEEDED);
            let mut answer = server.service.fault_response(fault);
            if too_large {
                answer.status = StatusCode::PAYLOAD_TOO_LARGE;
            }
            answer
        }
    };
    frame_response(answer)
}

async fn handle_stream(State(server): State<Arc<Server>>, request: Request) -> Response {
    match parse_content_type(request.headers()) {
        Ok(content) if content.essence == super::NDJSON_MEDIA_TYPE => stream::serve_stream(server, request),
        Ok(_) => {
            let text = format!("a stream of frames is `{}`", super::NDJSON_MEDIA_TYPE);
            frame_response(server.service.fault_response(Fault::sender(MEDIA_TYPE_RULE, text)))
        }
        Err(fault) => frame_response(server.service.fault_response(fault)),
    }
}

/// What is sent, if this node takes such.
fn parse_content_type(headers: &HeaderMap) -> Result<ContentType, Box<Fault>> {
    let refuse = |text: String| Fault::sender(MEDIA_TYPE_RULE, text);
    let content = headers.get(CONTENT_TYPE).and_then(|value| ContentType::parse(value.to_str().ok()?));
    let content = content.ok_or_else(|| refuse(format!("a frame is sent as `{MEDIA_TYPE}`")))?;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(refuse("a frame is sent as it is, with no `Content-Encoding`".to_owned()));
    }
    Ok(content)
}

/// The frame of a request and what came with it, and a place among those that are worked on.
async fn read_request(
    server: &Server,
    request: Request,
) -> Result<(Bytes, Vec<Attachment>, OwnedSemaphorePermit), Box<Fault>> {
    let content = parse_content_type(request.headers())?;
    if !content.is_frame() && !content.is_multipart() {
        let text = format!("a frame is sent as `{MEDIA_TYPE}`, with attachments as `{}`", super::MULTIPART_RELATED);
        return Err(Fault::sender(MEDIA_TYPE_RULE, text));
    }
    let frame = server.service.node().limits.bytes;
    let limit = if content.is_multipart() { frame + server.options.max_attachment_bytes } else { frame };
    let over = || Fault::sender(rules::LIMIT_EXCEEDED, format!("the message has more than {limit} bytes"));
    let said = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > limit as u64) {
        return Err(over());
    }
    let permit = server.try_acquire_exchange()?;
    let body = timeout(server.options.body_timeout, Limited::new(request.into_body(), limit).collect()).await;
    let slow = |_| {
        Fault::sender(
            TOO_SLOW,
            format!("the message did not end within {} s", server.options.body_timeout.as_secs_f64()),
        )
    };
    let body = body.map_err(slow)?.map_err(|error| {
        if error.is::<LengthLimitError>() { over() } else { Fault::sender(rules::JSON, "the message has no end") }
    })?;
    let body = body.to_bytes();
    let (frame, attachments) =
        if content.is_multipart() { multipart::parse(&content, &body)? } else { (body, Vec::new()) };
    let most = server.options.max_attachment_bytes;
    if attachments.iter().map(|attachment| attachment.data.len()).sum::<usize>() > most {
        return Err(Fault::sender(rules::LIMIT_EXCEEDED, format!("the attachments have more than {most} bytes")));
    }
    Ok((frame, attachments, permit))
}

/// A body of pieces that come one after the other.
pub(super) fn stream_response(pieces: tokio::sync::mpsc::Receiver<Bytes>) -> Response {
    let pieces = futures::stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Infallible>(piece), pieces))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(super::NDJSON_MEDIA_TYPE));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_7_3_only_loopback_names_are_accepted_as_host() {
        for good in ["127.0.0.1", "127.0.0.1:7117", "localhost:1", "LOCALHOST", "[::1]:80", "127.9.9.9"] {
            assert!(is_loopback_host(good), "{good}");
        }
        for bad in ["", "evil.example", "localhost.evil.example", "10.0.0.1:7117", "127.0.0.1.evil.example", "[::2]"] {
            assert!(!is_loopback_host(bad), "{bad}");
        }
    }
}
