//! The HTTP server of a node: accepts connections, HTTP/1.1 or HTTP/2 by prior knowledge.
//!
//! Called by `longshore mesh serve`. Connections, exchanges, heads, bodies and idle time are bounded, and no lock is held across an
//! await. Must not: know what a node does with a frame.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::activity::ConnectionActivity;
use super::node_service::NodeService;
use super::routes::router;
use super::state::{ServerOptions, ServerState};

/// Concurrent connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 512;
const MAX_HEADER_BYTES: u32 = 16 * 1024;
const MAX_HTTP2_STREAMS: u32 = 64;

pub struct Server(Arc<ServerState>);

impl Server {
    /// `address` is the listening address. The caller must require a token for any other than loopback.
    pub fn new(service: NodeService, options: ServerOptions, address: SocketAddr, stop: CancellationToken) -> Self {
        Self(Arc::new(ServerState::new(service, options, address, stop)))
    }

    /// Serves until `stop` is cancelled.
    pub async fn serve(self, listener: TcpListener) {
        let state = self.0;
        let router = router(&state);
        let connection_permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        let abort = CancellationToken::new();
        loop {
            let accept = async {
                let permit = Arc::clone(&connection_permits).acquire_owned().await.ok()?;
                listener.accept().await.ok().map(|(stream, peer)| (permit, stream, peer))
            };
            let accepted = tokio::select! {
                () = state.stop.cancelled() => break,
                accepted = accept => accepted,
            };
            let Some((permit, stream, peer)) = accepted else {
                // Most likely out of file descriptors: retry when some may be free.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = serve_connection(Arc::clone(&state), router.clone(), stream);
            let abort = abort.clone();
            connections.spawn(async move {
                tokio::select! {
                    () = abort.cancelled() => {}
                    ended = connection => if let Err(error) = ended { debug!(%peer, error, "connection failed") },
                }
                drop(permit);
            });
        }
        connections.close();
        let _ = timeout(state.options.shutdown_grace, connections.wait()).await;
        abort.cancel();
        connections.wait().await;
    }
}

async fn serve_connection(state: Arc<ServerState>, router: Router, stream: TcpStream) -> Result<(), String> {
    let _ = stream.set_nodelay(true);
    let (header_timeout, idle_timeout) = (state.options.header_timeout, state.options.idle_timeout);
    // hyper detects the version without a timeout: allow once more the time that a head has.
    let activity = ConnectionActivity::new(2 * header_timeout, idle_timeout);
    let service = TowerToHyperService::new(router.layer(Extension(Arc::clone(&activity))));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(4 * MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(header_timeout)
        .keep_alive_timeout(header_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            () = state.stop.cancelled() => {}
            () = activity.wait_until_idle() => {}
        }
    };
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = ended => {
            connection.as_mut().graceful_shutdown();
            // A peer that reads nothing would keep the connection open forever.
            timeout(header_timeout, connection).await.map_err(|_| "the peer does not read the response")?
        }
    };
    result.map_err(|error| error.to_string())
}
