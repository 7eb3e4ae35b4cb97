//! Docker, through bollard: the connection, and the trait's methods one by one.
//!
//! The only user of bollard is this module and its children: `create.rs` (the hardened container), `fault.rs` (what went
//! wrong, in our kinds), `streams.rs` (attach, logs and archives), `events.rs`, `start.rs`, `things.rs` (images, volumes, networks, search).
//!
//! - One client without a timeout of its own: every call here is bounded by us, from connecting to the last byte. Only
//!   `wait`, `attach`, `logs` and `events` have no end by design; their dropping closes their connection.
//! - The client opens a connection a request, so the calls in flight are bounded; those four, `download` and `ping` are not
//!   counted.
//! - Nothing is asked that need not be: a sandbox costs create, attach, start, wait and remove.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::ClientVersion;
use bollard::errors::Error;
use bollard::query_parameters as query;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::resolve::{Endpoint, EngineAddress};
use super::{
    AttachedStreams, CALL_TIMEOUT, ContainerInspection, ContainerSpec, Engine, EngineError, EngineEvent, EngineInfo,
    EngineResource, EngineResult, EngineStream, ImageInfo, OutputChunk, Signal,
};
use crate::ids::ContainerId;

mod create;
mod events;
mod error_mapping;
mod pause;
mod lifecycle;
mod streams;
mod resources;

use error_mapping::CallContext;

/// Calls in flight: each is a connection, which is a file descriptor here and a goroutine there.
const MAX_CALLS_IN_FLIGHT: usize = 32;
/// For calls that work for long in the daemon: start under load, archives, removal of much data.
const LONG_TIMEOUT: Duration = Duration::from_secs(300);
/// For connecting: nobody waits longer to learn that an engine is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// bollard's own timeout, which must never be the one that ends a call.
const BOLLARD_TIMEOUT_SECS: u64 = 60 * 60 * 24 * 365;
/// From this API version on a folder of a volume can be mounted.
const VOLUME_SUBPATH_MIN_API: ClientVersion = ClientVersion { major_version: 1, minor_version: 45 };

/// How to treat the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerOptions {
    /// How many containers may be starting at once; 0 for twice this machine's processors. The daemon starts them one
    /// after the other anyway, and fails some when there are many.
    pub start_throttle: usize,
}

/// A Docker engine, or one that answers like it. Cheap to clone.
#[derive(Clone)]
pub struct DockerEngine {
    client: bollard::Docker,
    endpoint: String,
    /// Bounds the calls in flight.
    call_permits: Arc<Semaphore>,
    /// Bounds the starts in flight.
    start_permits: Arc<Semaphore>,
    volume_subpath: bool,
}

impl DockerEngine {
    /// Connects, and agrees on a version.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`], [`EngineError::PermissionDenied`], [`EngineError::InvalidSettings`] for certificates that cannot
    /// be used, [`EngineError::TimedOut`].
    pub async fn connect(endpoint: &Endpoint, options: DockerOptions) -> EngineResult<Self> {
        let about = CallContext { operation: "connecting to the engine", subject: "" };
        let shown = endpoint.to_string();
        if let EngineAddress::Unix(path) = &endpoint.address {
            probe_socket(path, &shown).await?;
        }
        let client =
            build_client(&endpoint.address).map_err(|error| error_mapping::from_connect_error(error, &shown))?;
        let client = match tokio::time::timeout(CONNECT_TIMEOUT, client.negotiate_version()).await {
            Ok(answer) => answer.map_err(|error| error_mapping::from_connect_error(error, &shown))?,
            Err(_) => return Err(EngineError::TimedOut { operation: about.operation, after: CONNECT_TIMEOUT }),
        };
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

    /// One call, in its turn and within its time.
    async fn bounded_call<T>(
        &self,
        about: CallContext<'_>,
        bound: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> EngineResult<T> {
        let _turn = self.call_permits.acquire().await.expect("the semaphore is never closed");
        match tokio::time::timeout(bound, call).await {
            Ok(answer) => answer.map_err(|error| error_mapping::from_bollard(error, about, &self.endpoint)),
            Err(_) => Err(EngineError::TimedOut { operation: about.operation, after: bound }),
        }
    }

    async fn create_container(&self, spec: &ContainerSpec) -> EngineResult<ContainerId> {
        let about = CallContext { operation: "creating a container", subject: &spec.image };
        let options = query::CreateContainerOptionsBuilder::default().name(&spec.name).build();
        let body = create::create_body(spec, self.volume_subpath);
        let made = self.bounded_call(about, CALL_TIMEOUT, self.client.create_container(Some(options), body)).await?;
        for warning in &made.warnings {
            tracing::warn!(container = spec.name, "the engine warns: {warning}");
        }
        made.id.parse().map_err(|error| EngineError::Failed { operation: about.operation, source: Box::new(error) })
    }

    async fn wait_for_exit(&self, id: &ContainerId) -> EngineResult<i64> {
        let about = CallContext { operation: "waiting for a container", subject: id.as_str() };
        let mut answers = Box::pin(self.client.wait_container(id.as_str(), None::<query::WaitContainerOptions>));
        match answers.next().await {
            Some(Ok(answer)) => Ok(answer.status_code),
            // bollard makes an error of every exit code but 0.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => Ok(code),
            Some(Err(error)) => Err(error_mapping::from_bollard(error, about, &self.endpoint)),
            None => Err(error_mapping::empty_answer(about, &self.endpoint)),
        }
    }

    async fn inspect_container(&self, id: &ContainerId) -> EngineResult<Option<ContainerInspection>> {
        let about = CallContext { operation: "inspecting a container", subject: id.as_str() };
        let answer = self.bounded_call(about, CALL_TIMEOUT, self.client.inspect_container(id.as_str(), None)).await;
        let Some(answer) = not_found_as_none(answer)? else { return Ok(None) };
        let state = answer.state.unwrap_or_default();
        let never_started = state.status == Some(bollard::models::ContainerStateStatusEnum::CREATED);
        let running = state.running.unwrap_or(false);
        Ok(Some(ContainerInspection {
            id: id.clone(),
            never_started,
            running,
            paused: state.paused.unwrap_or(false),
            exit_code: if running || never_started { None } else { state.exit_code },
            oom_killed: state.oom_killed.unwrap_or(false),
            error: state.error.unwrap_or_default(),
        }))
    }

    async fn signal_container(&self, id: &ContainerId, signal: Signal) -> EngineResult<()> {
        let about = CallContext { operation: "signalling a container", subject: id.as_str() };
        let name = match signal {
            Signal::Term => "SIGTERM",
            Signal::Kill => "SIGKILL",
        };
        let options = query::KillContainerOptionsBuilder::default().signal(name).build();
        match self.bounded_call(about, CALL_TIMEOUT, self.client.kill_container(id.as_str(), Some(options))).await {
            // 409: it does not run.
            Err(EngineError::NotFound { .. } | EngineError::Refused { status: 409, .. }) => return Ok(()),
            other => other?,
        }
        if signal == Signal::Kill {
            // One that is frozen dies when it is thawed, which not every engine does; an error is that it is not frozen.
            let about = CallContext { operation: "unpausing a container", subject: id.as_str() };
            let _ = self.bounded_call(about, CALL_TIMEOUT, self.client.unpause_container(id.as_str())).await;
        }
        Ok(())
    }

    async fn upload_archive(&self, id: &ContainerId, path: &str, tar: Bytes) -> EngineResult<()> {
        let about = CallContext { operation: "uploading files", subject: id.as_str() };
        let options = query::UploadToContainerOptionsBuilder::default().path(path).build();
        let upload = self.client.upload_to_container(id.as_str(), Some(options), bollard::body_full(tar));
        self.bounded_call(about, LONG_TIMEOUT, upload).await
    }

    async fn list_processes(&self, id: &ContainerId) -> EngineResult<Vec<String>> {
        let about = CallContext { operation: "listing processes", subject: id.as_str() };
        let answer = self
            .bounded_call(about, CALL_TIMEOUT, self.client.top_processes(id.as_str(), None::<query::TopOptions>))
            .await?;
        let rows = answer.titles.into_iter().chain(answer.processes.into_iter().flatten());
        Ok(rows.map(|row| row.join(" ")).collect())
    }
}

/// Tells a socket that is not ours to use from one that is not there, which bollard does not.
async fn probe_socket(path: &Path, shown: &str) -> EngineResult<()> {
    let Err(error) = tokio::net::UnixStream::connect(path).await else { return Ok(()) };
    let endpoint = shown.to_owned();
    Err(match error.kind() {
        std::io::ErrorKind::PermissionDenied => EngineError::PermissionDenied { endpoint },
        _ => EngineError::Unreachable { endpoint, source: Box::new(error) },
    })
}

/// The client for an address.
fn build_client(address: &EngineAddress) -> Result<bollard::Docker, Error> {
    let version = bollard::API_DEFAULT_VERSION;
    match address {
        EngineAddress::Unix(path) => {
            bollard::Docker::connect_with_unix(&path.to_string_lossy(), BOLLARD_TIMEOUT_SECS, version)
        }
        EngineAddress::Tcp(host) => bollard::Docker::connect_with_http(host, BOLLARD_TIMEOUT_SECS, version),
        EngineAddress::Ssh(host) => bollard::Docker::connect_with_ssh(host, BOLLARD_TIMEOUT_SECS, version, None),
        EngineAddress::Tls { host, cert_dir: certificates } => {
            // An error means that somebody has installed one already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let file = |name: &str| certificates.join(name);
            let [key, cert, ca] = [file("key.pem"), file("cert.pem"), file("ca.pem")];
            bollard::Docker::connect_with_ssl(host, Path::new(&key), &cert, &ca, BOLLARD_TIMEOUT_SECS, version)
        }
    }
}

/// Turns "it is not there" into a value.
fn not_found_as_none<T>(answer: EngineResult<T>) -> EngineResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Engine for DockerEngine {
    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>> {
        Box::pin(self.engine_info())
    }

    fn ping(&self) -> BoxFuture<'_, EngineResult<()>> {
        Box::pin(self.ping_daemon())
    }

    fn events<'a>(
        &'a self,
        label: &'a str,
        value: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, EngineResult<EngineStream<EngineEvent>>> {
        Box::pin(self.event_stream(label, value, since))
    }

    fn image<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<Option<ImageInfo>>> {
        Box::pin(self.inspect_image(name))
    }

    fn images<'a>(&'a self, label: &'a str) -> BoxFuture<'a, EngineResult<Vec<ImageInfo>>> {
        Box::pin(self.list_images(label))
    }

    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        context: Bytes,
        args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.build(tag, context, args, progress))
    }

    fn ensure_volume<'a>(
        &'a self,
        name: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.create_volume(name, labels))
    }

    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>> {
        Box::pin(self.create_container(spec))
    }

    fn upload<'a>(&'a self, id: &'a ContainerId, path: &'a str, tar: Bytes) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.upload_archive(id, path, tar))
    }

    fn download<'a>(&'a self, id: &'a ContainerId, path: &'a str) -> BoxFuture<'a, EngineResult<EngineStream<Bytes>>> {
        Box::pin(self.download_archive(id, path))
    }

    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<AttachedStreams>> {
        Box::pin(self.attach_streams(id))
    }

    fn start<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.start_container(id))
    }

    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        follow: bool,
    ) -> BoxFuture<'a, EngineResult<BoxStream<'static, EngineResult<OutputChunk>>>> {
        Box::pin(async move { Ok(self.log_stream(id, follow)) })
    }

    fn wait<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<i64>> {
        Box::pin(self.wait_for_exit(id))
    }

    fn inspect<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Option<ContainerInspection>>> {
        Box::pin(self.inspect_container(id))
    }

    fn signal<'a>(&'a self, id: &'a ContainerId, signal: Signal) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.signal_container(id, signal))
    }

    fn pause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.pause_container(id))
    }

    fn unpause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.unpause_container(id))
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.remove_container(id))
    }

    fn remove_volume<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.delete_volume(name))
    }

    fn network_exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<bool>> {
        Box::pin(self.has_network(name))
    }

    fn remove_network<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.delete_network(name))
    }

    fn find_resources<'a>(
        &'a self,
        label: &'a str,
        value: Option<&'a str>,
    ) -> BoxFuture<'a, EngineResult<Vec<EngineResource>>> {
        Box::pin(self.search_resources(label, value))
    }

    fn top<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Vec<String>>> {
        Box::pin(self.list_processes(id))
    }
}
