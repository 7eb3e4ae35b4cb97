//! The sending half: a frame to the next node, its answer back, and a stream of them. HTTP/1.1, or HTTP/2 by prior knowledge.
//!
//! Used by intermediaries (`node_service.rs`) and by `longshore mesh send`. Redirects are not followed: a frame goes where it was
//! sent. Must not: understand frames; what is answered is bytes and a status.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame as Piece, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use super::multipart::{Attachment, render};
use super::{FRAME_PATH, MEDIA_TYPE, NDJSON_MEDIA_TYPE, STREAM_PATH};

/// How long an idle connection is kept for the next frame.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

type OutgoingBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A node's address: `http://127.0.0.1:7117`, or with the path that it takes frames at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress(Uri);

impl FromStr for NodeAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let uri = Uri::from_str(text.trim()).map_err(|_| format!("`{text}` is not a URL"))?;
        let mut parts = uri.into_parts();
        if !parts.scheme.as_ref().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
            return Err("a node's address begins with http:// or https://".to_owned());
        }
        if parts.authority.as_ref().is_none_or(|authority| authority.host().is_empty()) {
            return Err("a node's address names a host".to_owned());
        }
        if parts.authority.as_ref().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("a node's address has no user or password in it: a token is given by a file".to_owned());
        }
        if parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(FRAME_PATH));
        }
        Uri::from_parts(parts).map(Self).map_err(|_| format!("`{text}` is not a URL"))
    }
}

impl std::fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl NodeAddress {
    /// Where it takes streams: beside where it takes frames.
    fn stream_uri(&self) -> Uri {
        let mut parts = self.0.clone().into_parts();
        let path = self.0.path().trim_end_matches('/');
        let tail = STREAM_PATH.trim_start_matches(FRAME_PATH);
        parts.path_and_query = PathAndQuery::try_from(format!("{path}{tail}")).ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.0.clone())
    }
}

/// How to talk to a node.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// HTTP/2 from the first byte on, and not HTTP/1.1.
    pub http2: bool,
    /// What a node on another machine wants to see.
    pub token: Option<String>,
    /// How long a node has for its answer.
    pub timeout: Duration,
    /// The most bytes of an answer, or of one line of a stream of them.
    pub max_response_bytes: usize,
}

/// What a node answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientResponse {
    /// The status.
    pub status: StatusCode,
    /// The frame; empty where a fault was told.
    pub body: Bytes,
}

/// Why there is no answer. The frame may have come there all the same, but for [`ClientError::Unreachable`].
#[derive(Debug, Error)]
pub enum ClientError {
    /// The certificates of the system cannot be read.
    #[error("the system's certificates cannot be read")]
    Certificates(#[source] std::io::Error),
    /// The token has bytes that no header can have.
    #[error("the token cannot be sent: it must be visible characters of ASCII")]
    InvalidToken,
    /// The request cannot be made.
    #[error("there is no such request")]
    Request(#[source] hyper::http::Error),
    /// No connection.
    #[error("`{address}` cannot be reached")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        source: hyper_util::client::legacy::Error,
    },
    /// The connection ended.
    #[error("`{address}` did not answer")]
    NoResponse {
        /// Where.
        address: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("`{address}` did not answer within {} s", timeout.as_secs_f64())]
    Timeout {
        /// Where.
        address: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// There is no end of it.
    #[error("`{address}` answered with more than {limit} bytes")]
    ResponseTooLarge {
        /// Where.
        address: String,
        /// How much is read.
        limit: usize,
    },
}

enum ConnectionPool {
    Plain(Pool<HttpConnector, OutgoingBody>),
    Tls(Pool<HttpsConnector<HttpConnector>, OutgoingBody>),
}

/// Connections to one node.
pub struct Client {
    address: NodeAddress,
    options: ClientOptions,
    authorization: Option<HeaderValue>,
    pool: ConnectionPool,
}

impl Client {
    /// Connects when there is something to send.
    ///
    /// # Errors
    /// If the token or the certificates are of no use.
    pub fn new(address: NodeAddress, manner: ClientOptions) -> Result<Self, ClientError> {
        let login = manner.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ClientError::InvalidToken)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let mut pool = Pool::builder(TokioExecutor::new());
        pool.pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_only(manner.http2);
        let line = if address.0.scheme() == Some(&Scheme::HTTPS) {
            let builder = HttpsConnectorBuilder::new();
            let builder = builder
                .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
                .map_err(ClientError::Certificates)?
                .https_only();
            let connector = if manner.http2 { builder.enable_http2().build() } else { builder.enable_http1().build() };
            ConnectionPool::Tls(pool.build(connector))
        } else {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            ConnectionPool::Plain(pool.build(connector))
        };
        Ok(Self { authorization: login.transpose()?, address, options: manner, pool: line })
    }

    /// Where it sends to.
    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    /// Sends a frame, and waits for what is answered.
    ///
    /// # Errors
    /// If there is no answer that could be one.
    pub async fn send(&self, frame: Bytes, attachments: &[Attachment]) -> Result<ClientResponse, ClientError> {
        let (content, body) =
            if attachments.is_empty() { (MEDIA_TYPE.to_owned(), frame) } else { render(&frame, attachments) };
        let exchange = async {
            let response = self.post(self.address.0.clone(), &content, Full::new(body).boxed_unsync()).await?;
            let status = response.status();
            match Limited::new(response.into_body(), self.options.max_response_bytes).collect().await {
                Ok(content) => Ok(ClientResponse { status, body: content.to_bytes() }),
                Err(error) if error.is::<LengthLimitError>() => Err(ClientError::ResponseTooLarge {
                    address: self.address.to_string(),
                    limit: self.options.max_response_bytes,
                }),
                Err(source) => Err(ClientError::NoResponse { address: self.address.to_string(), source }),
            }
        };
        let late = |_| ClientError::Timeout { address: self.address.to_string(), timeout: self.options.timeout };
        tokio::time::timeout(self.options.timeout, exchange).await.map_err(late)?
    }

    /// Sends frames, a line each, and gives what is answered as it comes: bytes of lines.
    ///
    /// # Errors
    /// If no answer begins.
    pub async fn stream(
        &self,
        lines: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<(StatusCode, BoxStream<'static, Result<Bytes, ClientError>>), ClientError> {
        let body = StreamBody::new(lines.map(|line| Ok(Piece::data(line)))).boxed_unsync();
        let asked = self.post(self.address.stream_uri(), NDJSON_MEDIA_TYPE, body);
        let late = |_| ClientError::Timeout { address: self.address.to_string(), timeout: self.options.timeout };
        let response = tokio::time::timeout(self.options.timeout, asked).await.map_err(late)??;
        let (status, address) = (response.status(), self.address.to_string());
        let pieces = response.into_body().into_data_stream().map(move |piece| {
            piece.map_err(|error| ClientError::NoResponse { address: address.clone(), source: error.into() })
        });
        Ok((status, pieces.boxed()))
    }

    async fn post(&self, uri: Uri, content: &str, body: OutgoingBody) -> Result<Response<Incoming>, ClientError> {
        let version = if self.options.http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let mut request = Request::post(uri)
            .version(version)
            .header(CONTENT_TYPE, content)
            .header(ACCEPT, MEDIA_TYPE)
            .header(USER_AGENT, concat!("longshore/", env!("CARGO_PKG_VERSION")));
        if let Some(login) = &self.authorization {
            request = request.header(AUTHORIZATION, login);
        }
        let request = request.body(body).map_err(ClientError::Request)?;
        let answer = match &self.pool {
            ConnectionPool::Plain(pool) => pool.request(request).await,
            ConnectionPool::Tls(pool) => pool.request(request).await,
        };
        let address = || self.address.to_string();
        answer.map_err(|source| {
            if source.is_connect() {
                ClientError::Unreachable { address: address(), source }
            } else {
                ClientError::NoResponse { address: address(), source: source.into() }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_with_a_default_path() {
        let good = |text: &str| {
            text.parse::<NodeAddress>().map(|address| (address.to_string(), address.stream_uri().to_string()))
        };
        let plain = ("http://127.0.0.1:7117/mesh".to_owned(), "http://127.0.0.1:7117/mesh/stream".to_owned());
        assert_eq!(good("http://127.0.0.1:7117"), Ok(plain.clone()));
        assert_eq!(good("http://127.0.0.1:7117/"), Ok(plain.clone()));
        assert_eq!(good("http://127.0.0.1:7117/mesh"), Ok(plain));
        let other = ("https://host/a/amp".to_owned(), "https://host/a/amp/stream".to_owned());
        assert_eq!(good("https://host/a/amp"), Ok(other));
        for bad in ["", "host:80", "ftp://host", "/mesh", "http://", "http://user:word@host/"] {
            assert!(good(bad).is_err(), "{bad}");
        }
    }
}
