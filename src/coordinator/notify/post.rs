//! Posts an escalation to a URL: the whole message as JSON. Any 2xx is a success; transient failures (no connection, no response in
//! time, 408, 429, 5xx) are retried with growing pauses. Redirects are not followed.

use std::fmt;
use std::str::FromStr;

use backon::{ExponentialBuilder, Retryable};
use base64::Engine as _;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::policy::NotifyPolicy;
use crate::error_chain::error_chain;
use crate::protocol::amp::message::AmpMessage;

/// The most bytes of a response body that are read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The URL that escalations are posted to. `Debug` and `Display` hide what may be secret: user, path and query.
#[derive(Clone, PartialEq, Eq)]
pub struct NotifyUrl {
    uri: Uri,
    /// The `Authorization` header for the user and password in the URL.
    authorization: Option<HeaderValue>,
}

impl NotifyUrl {
    /// # Errors
    /// What is wrong with the URL, without quoting it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let not_url = "it is not a URL";
        let uri = Uri::from_str(text.trim()).map_err(|_| not_url)?;
        let mut parts = uri.into_parts();
        if !parts.scheme.as_ref().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
            return Err("it must begin with http:// or https://");
        }
        let authority = parts.authority.take().ok_or("it names no host")?;
        let (login, host) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (Some(basic_auth_header(user).ok_or("its user or password cannot be sent")?), host),
            None => (None, authority.as_str()),
        };
        let host = Authority::from_str(host).map_err(|_| not_url)?;
        if host.host().is_empty() {
            return Err("it names no host");
        }
        parts.authority = Some(host);
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
        Ok(Self { uri: Uri::from_parts(parts).map_err(|_| not_url)?, authorization: login })
    }
}

impl fmt::Display for NotifyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) =
            (self.uri.scheme_str().unwrap_or_default(), self.uri.authority().map_or("", Authority::as_str));
        let rest = if self.uri.path().len() > 1 || self.uri.query().is_some() { "/..." } else { "/" };
        write!(f, "{scheme}://{host}{rest}")
    }
}

impl fmt::Debug for NotifyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotifyUrl({self})")
    }
}

/// The header for a percent-encoded `user:password`.
fn basic_auth_header(login: &str) -> Option<HeaderValue> {
    let mut bytes = Vec::with_capacity(login.len());
    let mut rest = login.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).1,
            None => (bytes.push(*first), rest = tail).1,
        }
    }
    if !bytes.contains(&b':') {
        bytes.push(b':');
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

struct PostError {
    problem: String,
    retryable: bool,
}

/// # Errors
/// The reason as text, with the redacted URL.
pub(super) async fn post(url: &NotifyUrl, message: &AmpMessage, policy: &NotifyPolicy) -> Result<(), String> {
    let body = Bytes::from(message.to_json());
    let pauses = ExponentialBuilder::default()
        .with_min_delay(policy.retry_delay)
        .with_max_delay(policy.retry_delay * 32)
        .with_max_times(policy.retries)
        .with_jitter();
    let posted = (|| async {
        match tokio::time::timeout(policy.request_timeout, post_once(url, body.clone())).await {
            Ok(posted) => posted,
            Err(_) => {
                let problem = format!("no response within {} s", policy.request_timeout.as_secs_f64());
                Err(PostError { problem, retryable: true })
            }
        }
    })
    .retry(pauses)
    .when(|error: &PostError| error.retryable);
    posted.await.map_err(|error| format!("{url}: {}", error.problem))
}

async fn post_once(url: &NotifyUrl, body: Bytes) -> Result<(), PostError> {
    let failed = |retryable| move |problem: String| PostError { problem, retryable };
    // Certificates are read for each request: escalations are rare, and certificates may change.
    let builder = HttpsConnectorBuilder::new();
    let builder = builder
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|error| failed(false)(format!("the system's certificates cannot be read: {error}")))?;
    let client = Client::builder(TokioExecutor::new()).build(builder.https_or_http().enable_http1().build());
    let mut request = Request::post(&url.uri)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("longshore/", env!("CARGO_PKG_VERSION")));
    if let Some(login) = &url.authorization {
        request = request.header(AUTHORIZATION, login);
    }
    let request = request.body(Full::new(body)).map_err(|error| failed(false)(error.to_string()))?;
    let response = client.request(request).await.map_err(|error| failed(true)(error_chain(&error)))?;
    let status = response.status();
    // Read the body, so that the server is not cut off.
    let _ = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    if status.is_success() {
        return Ok(());
    }
    let retryable =
        status.is_server_error() || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    Err(failed(retryable)(format!("the response was {status}")))
}
