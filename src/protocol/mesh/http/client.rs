//! The HTTP client: sends a frame or a stream of frames to a node, over HTTP/1.1 or HTTP/2 by prior knowledge.
//!
//! Used by intermediaries and by `longshore mesh send`. Does not follow redirects. Must not: interpret frames.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame as Chunk, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use super::attachments::Attachment;
use super::binding::{FRAME_PATH, MEDIA_TYPE, NDJSON_MEDIA_TYPE, STREAM_PATH};
use super::multipart::render;
use super::response::FrameResponse;

const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

type OutgoingBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A node's URL: `http://127.0.0.1:7117`, optionally with the path for frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress(Uri);

impl FromStr for NodeAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let uri = Uri::from_str(text.trim()).map_err(|_| format!("`{text}` is not a URL"))?;
        let mut parts = uri.into_parts();
        if !parts.scheme.as_ref().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
            return Err("a node's address must begin with http:// or https://".to_owned());
        }
        if parts.authority.as_ref().is_none_or(|authority| authority.host().is_empty()) {
            return Err("a node's address must have a host".to_owned());
        }
        if parts.authority.as_ref().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("a node's address must not have a user or password: put the token into a file".to_owned());
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
    /// The path for streams is below the path for frames.
    fn stream_uri(&self) -> Uri {
        let mut parts = self.0.clone().into_parts();
        let path = self.0.path().trim_end_matches('/');
        let tail = STREAM_PATH.trim_start_matches(FRAME_PATH);
        parts.path_and_query = PathAndQuery::try_from(format!("{path}{tail}")).ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.0.clone())
    }
}

#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// HTTP/2 by prior knowledge instead of HTTP/1.1.
    pub http2: bool,
    /// Bearer token.
    pub token: Option<String>,
    /// Time for an answer.
    pub timeout: Duration,
    pub max_response_bytes: usize,
}

/// No answer. The frame may have been delivered, except for [`ClientError::Unreachable`].
#[derive(Debug, Error)]
pub enum ClientError {
    #[error("cannot read the system's certificates")]
    Certificates(#[source] std::io::Error),
    #[error("the token must consist of visible ASCII characters")]
    InvalidToken,
    #[error("cannot build the request")]
    Request(#[source] hyper::http::Error),
    #[error("`{address}` cannot be reached")]
    Unreachable { address: String, source: hyper_util::client::legacy::Error },
    #[error("`{address}` did not answer")]
    NoResponse { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("`{address}` did not answer within {} s", timeout.as_secs_f64())]
    Timeout { address: String, timeout: Duration },
    #[error("`{address}` answered with more than {limit} bytes")]
    ResponseTooLarge { address: String, limit: usize },
}

enum ConnectionPool {
    Plain(Pool<HttpConnector, OutgoingBody>),
    Tls(Pool<HttpsConnector<HttpConnector>, OutgoingBody>),
}

/// Pooled connections to one node.
pub struct Client {
    address: NodeAddress,
    options: ClientOptions,
    authorization: Option<HeaderValue>,
    pool: ConnectionPool,
}

impl Client {
    /// Creates a client, which connects on demand.
    pub fn new(address: NodeAddress, options: ClientOptions) -> Result<Self, ClientError> {
        let authorization = options.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ClientError::InvalidToken)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let mut builder = Pool::builder(TokioExecutor::new());
        builder
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_only(options.http2);
        let pool = if address.0.scheme() == Some(&Scheme::HTTPS) {
            let https = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
                .map_err(ClientError::Certificates)?
                .https_only();
            let connector = if options.http2 { https.enable_http2().build() } else { https.enable_http1().build() };
            ConnectionPool::Tls(builder.build(connector))
        } else {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            ConnectionPool::Plain(builder.build(connector))
        };
        Ok(Self { authorization: authorization.transpose()?, address, options, pool })
    }

    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    /// Sends a frame and waits for the answer.
    pub async fn send(&self, frame: Bytes, attachments: &[Attachment]) -> Result<FrameResponse, ClientError> {
        let (content, body) =
            if attachments.is_empty() { (MEDIA_TYPE.to_owned(), frame) } else { render(&frame, attachments) };
        let exchange = async {
            let response = self.post(self.address.0.clone(), &content, Full::new(body).boxed_unsync()).await?;
            let status = response.status();
            match Limited::new(response.into_body(), self.options.max_response_bytes).collect().await {
                Ok(content) => Ok(FrameResponse { status, body: content.to_bytes() }),
                Err(error) if error.is::<LengthLimitError>() => Err(ClientError::ResponseTooLarge {
                    address: self.address.to_string(),
                    limit: self.options.max_response_bytes,
                }),
                Err(source) => Err(ClientError::NoResponse { address: self.address.to_string(), source }),
            }
        };
        self.timeout(exchange).await?
    }

    /// Sends a stream of lines. Returns the bytes of the answer as they arrive.
    pub async fn stream(
        &self,
        lines: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<(StatusCode, BoxStream<'static, Result<Bytes, ClientError>>), ClientError> {
        let body = StreamBody::new(lines.map(|line| Ok(Chunk::data(line)))).boxed_unsync();
        let response = self.timeout(self.post(self.address.stream_uri(), NDJSON_MEDIA_TYPE, body)).await??;
        let (status, address) = (response.status(), self.address.to_string());
        let chunks = response.into_body().into_data_stream().map(move |chunk| {
            chunk.map_err(|error| ClientError::NoResponse { address: address.clone(), source: error.into() })
        });
        Ok((status, chunks.boxed()))
    }

    async fn timeout<T>(&self, exchange: impl Future<Output = T>) -> Result<T, ClientError> {
        let timeout = self.options.timeout;
        let late = |_| ClientError::Timeout { address: self.address.to_string(), timeout };
        tokio::time::timeout(timeout, exchange).await.map_err(late)
    }

    async fn post(&self, uri: Uri, content: &str, body: OutgoingBody) -> Result<Response<Incoming>, ClientError> {
        let version = if self.options.http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let mut request = Request::post(uri)
            .version(version)
            .header(CONTENT_TYPE, content)
            .header(ACCEPT, MEDIA_TYPE)
            .header(USER_AGENT, concat!("longshore/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
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
