//! The connection to a daemon, and the limits of calls on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::ClientVersion;
use bollard::errors::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::error_mapping::{self, CallContext};
use crate::engine::resolve::{Endpoint, EngineAddress};
use crate::engine::{EngineError, EngineResult};

/// Calls in flight. Each is a connection: a file descriptor here and a goroutine in the daemon.
const MAX_CALLS_IN_FLIGHT: usize = 32;
/// The timeout of calls that take the daemon long: start under load, archives, removal of much data.
pub(super) const LONG_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// bollard's own timeout, which must never end a call.
const BOLLARD_TIMEOUT_SECS: u64 = 60 * 60 * 24 * 365;
/// The first API version that can mount a directory of a volume.
const VOLUME_SUBPATH_MIN_API: ClientVersion = ClientVersion { major_version: 1, minor_version: 45 };

/// Limits on the use of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerOptions {
    /// How many containers may start at once; 0 for twice this machine's processors. The daemon starts them one after the other
    /// anyway, and fails some if there are many.
    pub start_throttle: usize,
}

/// A Docker engine, or one with the same API. Cheap to clone.
#[derive(Clone)]
pub struct DockerEngine {
    pub(super) client: bollard::Docker,
    pub(super) endpoint: String,
    call_permits: Arc<Semaphore>,
    pub(super) start_permits: Arc<Semaphore>,
    pub(super) volume_subpath: bool,
}

impl DockerEngine {
    /// Connects and negotiates the API version.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`], [`EngineError::PermissionDenied`], [`EngineError::InvalidSettings`] for unusable certificates,
    /// [`EngineError::TimedOut`].
    pub async fn connect(endpoint: &Endpoint, options: DockerOptions) -> EngineResult<Self> {
        let shown = endpoint.to_string();
        if let EngineAddress::Unix(path) = &endpoint.address {
            probe_socket(path, &shown).await?;
        }
        let connect_error = |error| error_mapping::from_connect_error(error, &shown);
        let client = build_client(&endpoint.address).map_err(connect_error)?;
        let client = timeout(CONNECT_TIMEOUT, client.negotiate_version())
            .await
            .map_err(|_| EngineError::TimedOut { operation: error_mapping::CONNECTING, after: CONNECT_TIMEOUT })?
            .map_err(connect_error)?;
        let throttle = match options.start_throttle {
            0 => 2 * std::thread::available_parallelism().map_or(2, usize::from),
            some => some,
        };
        let version = client.client_version();
        Ok(Self {
            volume_subpath: (version.major_version, version.minor_version)
                >= (VOLUME_SUBPATH_MIN_API.major_version, VOLUME_SUBPATH_MIN_API.minor_version),
            client,
            endpoint: shown,
            call_permits: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT)),
            start_permits: Arc::new(Semaphore::new(throttle)),
        })
    }

    /// Runs a call when a permit is free. The timeout starts then.
    pub(super) async fn call<T>(
        &self,
        operation: &'static str,
        subject: &str,
        after: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> EngineResult<T> {
        let _permit = self.call_permits.acquire().await.expect("the semaphore is never closed");
        timeout(after, call)
            .await
            .map_err(|_| EngineError::TimedOut { operation, after })?
            .map_err(|error| self.map_error(operation, subject, error))
    }

    pub(super) fn map_error(&self, operation: &'static str, subject: &str, error: Error) -> EngineError {
        error_mapping::from_bollard(error, CallContext { operation, subject }, &self.endpoint)
    }
}

/// Distinguishes a socket without permission from a missing one, which bollard does not.
async fn probe_socket(path: &Path, shown: &str) -> EngineResult<()> {
    let Err(error) = tokio::net::UnixStream::connect(path).await else { return Ok(()) };
    let endpoint = shown.to_owned();
    Err(match error.kind() {
        std::io::ErrorKind::PermissionDenied => EngineError::PermissionDenied { endpoint },
        _ => EngineError::Unreachable { endpoint, source: Box::new(error) },
    })
}

fn build_client(address: &EngineAddress) -> Result<bollard::Docker, Error> {
    let version = bollard::API_DEFAULT_VERSION;
    match address {
        EngineAddress::Unix(path) => {
            bollard::Docker::connect_with_unix(&path.to_string_lossy(), BOLLARD_TIMEOUT_SECS, version)
        }
        EngineAddress::Tcp(host) => bollard::Docker::connect_with_http(host, BOLLARD_TIMEOUT_SECS, version),
        EngineAddress::Ssh(host) => bollard::Docker::connect_with_ssh(host, BOLLARD_TIMEOUT_SECS, version, None),
        EngineAddress::Tls { host, cert_dir } => {
            // An error means that a provider is installed already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let [key, cert, ca] = ["key.pem", "cert.pem", "ca.pem"].map(|name| cert_dir.join(name));
            bollard::Docker::connect_with_ssl(host, &key, &cert, &ca, BOLLARD_TIMEOUT_SECS, version)
        }
    }
}

/// Turns a "not found" error into `None`.
pub(super) fn not_found_as_none<T>(answer: EngineResult<T>) -> EngineResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
