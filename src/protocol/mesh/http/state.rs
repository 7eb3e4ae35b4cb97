//! State that all connections of a server share: the node, the options, access rules and the limit of concurrent exchanges.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::http::uri::Authority;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::fault::Fault;
use super::node_service::NodeService;
use super::status::{AUTHENTICATION_FAILED, BUSY, HOST_REFUSED};

/// Concurrent frames; further ones get [`BUSY`].
const MAX_EXCHANGES: usize = 64;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Bearer token for all requests.
    pub token: Option<String>,
    /// Bytes of all attachments of a frame.
    pub max_attachment_bytes: usize,
    /// Time for the head of a request.
    pub header_timeout: Duration,
    /// Time for the body of a request.
    pub body_timeout: Duration,
    /// Maximum idle time of a connection or stream.
    pub idle_timeout: Duration,
    /// Time for open exchanges when the server stops.
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

pub(super) struct ServerState {
    pub(super) service: NodeService,
    pub(super) options: ServerOptions,
    pub(super) stop: CancellationToken,
    is_loopback: bool,
    token_digest: Option<[u8; 32]>,
    exchange_permits: Arc<Semaphore>,
}

impl ServerState {
    pub(super) fn new(
        service: NodeService,
        options: ServerOptions,
        address: SocketAddr,
        stop: CancellationToken,
    ) -> Self {
        Self {
            token_digest: options.token.as_ref().map(|token| Sha256::digest(token).into()),
            service,
            options,
            stop,
            is_loopback: address.ip().is_loopback(),
            exchange_permits: Arc::new(Semaphore::new(MAX_EXCHANGES)),
        }
    }

    /// Takes an exchange permit, or fails if none is free.
    pub(super) fn try_acquire_exchange(&self) -> Result<OwnedSemaphorePermit, Box<Fault>> {
        let busy = |_| Fault::receiver(BUSY, "too many exchanges at once");
        Arc::clone(&self.exchange_permits).try_acquire_owned().map_err(busy)
    }

    /// Waits for an exchange permit: the frames of a stream wait where a single frame is refused.
    pub(super) async fn acquire_exchange(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.exchange_permits).acquire_owned().await.ok()
    }

    /// Checks token, origin and host name of a request.
    pub(super) fn check_access(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Fault>> {
        if let Some(token) = &self.token_digest {
            let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
            let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, token)| token);
            let digest: [u8; 32] = Sha256::digest(given.unwrap_or_default()).into();
            // Compare digests in constant time: the duration reveals nothing about the token.
            if !bool::from(digest.ct_eq(token)) || given.is_none() {
                return Err(Fault::sender(AUTHENTICATION_FAILED, "the token is missing or wrong"));
            }
        }
        // A web page reaches loopback through the browser, by a form or by a name that resolves to it (DNS rebinding).
        if self.token_digest.is_none() && headers.contains_key(ORIGIN) {
            return Err(Fault::sender(HOST_REFUSED, "requests from web pages are refused"));
        }
        let host = || uri.authority().map(|authority| authority.as_str()).or_else(|| headers.get(HOST)?.to_str().ok());
        if self.is_loopback && !host().is_some_and(is_loopback_host) {
            return Err(Fault::sender(HOST_REFUSED, "the host name is not a name of this machine"));
        }
        Ok(())
    }
}

fn is_loopback_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
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
