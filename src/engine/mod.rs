//! The engine that runs sandboxes: the [`Engine`] trait and its types, none of them specific to Docker.
//!
//! Above this module nothing knows Docker: callers see a writer, chunks tagged by stream, and exit evidence. `docker.rs` and its
//! children alone use bollard; `resolve.rs` finds the daemon; `depot/` is the client of a swarm's depot. To add an engine: implement
//! [`Engine`].

#![expect(missing_docs, reason = "items whose names say it all; the module is public for the tests in tests/ only")]

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::io::AsyncWrite;

use crate::ids::ContainerId;

pub mod depot;
pub mod docker;
mod error;
pub mod resolve;
#[cfg(test)]
mod tests;

pub use error::EngineError;
#[cfg(test)]
pub(crate) use tests::fake;

/// The timeout of a ping.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a call that is not known to be slow.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub type EngineResult<T> = Result<T, EngineError>;

/// A stream from an engine, in the engine's order.
pub type EngineStream<T> = BoxStream<'static, EngineResult<T>>;

/// The labels of everything that longshore creates.
pub mod label {
    /// The swarm's id, on everything that belongs to one swarm.
    pub const SWARM: &str = "dev.longshore.swarm";
    pub const ASSIGNMENT: &str = "dev.longshore.assignment";
    /// The story ids of the attempt, comma-separated.
    pub const STORY: &str = "dev.longshore.story";
    /// The attempt's number.
    pub const ATTEMPT: &str = "dev.longshore.attempt";
    /// `sandbox`, `reviewer`, `depot`, `objects`, `in`, `work`, `mailbox`, `image`.
    pub const ROLE: &str = "dev.longshore.role";
    /// The hash of the repository, on the objects volume.
    pub const REPO: &str = "dev.longshore.repo";
}

/// A container to create. The engine's hardening fixes everything else: all capabilities dropped but the named ones,
/// `no-new-privileges`, default seccomp, read-only root, no TTY, stdin open and never closed, no restart.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSpec {
    /// Unique.
    pub name: String,
    pub image: String,
    /// Program and arguments; replaces the image's entrypoint.
    pub argv: Vec<String>,
    /// Visible by inspection: no secrets.
    pub env: Vec<(String, String)>,
    /// uid and gid.
    pub user: (u32, u32),
    pub workdir: String,
    pub labels: BTreeMap<String, String>,
    pub mounts: Vec<VolumeMount>,
    /// tmpfs mounts: path and options.
    pub tmpfs: Vec<(String, String)>,
    /// In bytes, swap included; 0 for no limit.
    pub memory_limit: u64,
    /// In thousandths of a CPU; 0 for no limit.
    pub milli_cpus: u64,
    pub pids_limit: i64,
    /// `none`, or the name of a network.
    pub network: String,
    /// Capabilities to keep.
    pub added_capabilities: Vec<String>,
}

/// A volume in a container.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeMount {
    /// The volume's name.
    pub volume: String,
    /// The path in the container.
    pub target: String,
    pub read_only: bool,
    /// A directory of the volume instead of the whole, if the engine supports it ([`EngineInfo::volume_subpath`]).
    pub subpath: Option<String>,
}

/// A chunk of a container's output. It ends anywhere.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputChunk {
    Stdout(Bytes),
    Stderr(Bytes),
}

/// A container's streams. Dropping them closes the connection; the container's stdin stays open.
pub struct AttachedStreams {
    pub stdin: Pin<Box<dyn AsyncWrite + Send>>,
    pub output: EngineStream<OutputChunk>,
}

/// The identity and abilities of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineInfo {
    /// "Docker 20.10.24".
    pub name: String,
    /// The API version in use.
    pub api_version: String,
    /// The address and the reason for it: "unix:///var/run/docker.sock (default socket)".
    pub endpoint: String,
    /// As Rust names it: `x86_64`, `aarch64`.
    pub arch: String,
    pub cpus: usize,
    /// In bytes.
    pub memory: u64,
    /// Whether it can mount a directory of a volume (API 1.45).
    pub volume_subpath: bool,
    /// 1 or 2.
    pub cgroup_version: u8,
    /// The names of the limits that it cannot apply.
    pub missing_limits: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImageInfo {
    /// `sha256:...`.
    pub id: String,
    pub tags: Vec<String>,
    /// As Rust names it.
    pub arch: String,
    /// The image's `PATH`.
    pub path: Option<String>,
    /// In bytes.
    pub size: u64,
    pub labels: BTreeMap<String, String>,
}

/// A container's state.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerInspection {
    pub id: ContainerId,
    pub never_started: bool,
    /// Running or paused.
    pub running: bool,
    pub paused: bool,
    /// `None` until it exits.
    pub exit_code: Option<i64>,
    pub oom_killed: bool,
    /// The engine's error text.
    pub error: String,
}

/// A resource that longshore created.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineResource {
    pub kind: EngineResourceKind,
    /// The id, or the name if it has none.
    pub id: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Running or paused (containers only).
    pub running: bool,
    /// Paused (containers only).
    pub paused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineResourceKind {
    Container,
    Volume,
    Network,
    Image,
}

/// An event of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEvent {
    /// By the engine's clock.
    pub at: Timestamp,
    /// The container's id.
    pub container: String,
    pub kind: EngineEventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEventKind {
    Started,
    Died {
        /// The exit code.
        code: i64,
    },
    /// The kernel killed a process for memory; the container may live on.
    OutOfMemory,
    Killed {
        signal: i32,
    },
    Paused,
    Unpaused,
    Removed,
    /// Any other event, by the engine's name.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Term,
    Kill,
}

/// The engine that runs sandboxes. All methods may be called concurrently; the engine limits the calls in flight.
pub trait Engine: Send + Sync + 'static {
    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>>;
    /// Checks within seconds whether the engine answers. It waits for no permit, so it also works while all calls are busy.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`] if there is no answer in time.
    fn ping(&self) -> BoxFuture<'_, EngineResult<()>>;
    /// The events of the containers with this label, from `since` on. They are hints: an engine keeps few past events, none across
    /// a restart of its own, and may lose some under load. When the engine goes away, the stream ends or returns
    /// [`EngineError::Unreachable`].
    fn events<'a>(
        &'a self,
        label: &'a str,
        value: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, EngineResult<EngineStream<EngineEvent>>>;
    /// An image; `None` if it is missing.
    fn image<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<Option<ImageInfo>>>;
    /// The images with this label key.
    fn images<'a>(&'a self, label: &'a str) -> BoxFuture<'a, EngineResult<Vec<ImageInfo>>>;
    /// Builds an image from a tar with a `Dockerfile`; `progress` gets the lines of the builder.
    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        context: Bytes,
        args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>>;
    /// Creates a volume if it is missing.
    fn ensure_volume<'a>(
        &'a self,
        name: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, EngineResult<()>>;
    /// Creates a container without starting it.
    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>>;
    /// Unpacks a tar in a container, running or not; `path` must be in one of its volumes.
    fn upload<'a>(&'a self, id: &'a ContainerId, path: &'a str, tar: Bytes) -> BoxFuture<'a, EngineResult<()>>;
    /// A file or directory of a container, running or not, as a tar. Its content is untrusted.
    fn download<'a>(&'a self, id: &'a ContainerId, path: &'a str) -> BoxFuture<'a, EngineResult<EngineStream<Bytes>>>;
    /// Attaches stdin, stdout and stderr. When this returns, the connection is established: before `start`, no output is missed.
    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<AttachedStreams>>;
    /// Starts a container. Limits the number of concurrent starts and retries transient errors.
    fn start<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// All output so far, and with `follow` all later output.
    fn logs<'a>(&'a self, id: &'a ContainerId, follow: bool) -> BoxFuture<'a, EngineResult<EngineStream<OutputChunk>>>;
    /// Waits until a container exits and returns its exit code; [`EngineError::NotFound`] if it is gone.
    fn wait<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<i64>>;
    /// A container's state; `None` if it is gone.
    fn inspect<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Option<ContainerInspection>>>;
    /// Signals the first process. A container that does not run is not an error. A kill also ends a paused container.
    fn signal<'a>(&'a self, id: &'a ContainerId, signal: Signal) -> BoxFuture<'a, EngineResult<()>>;
    /// Pauses a container. A paused one is not an error, one that does not run is [`EngineError::Refused`], and one that is gone
    /// [`EngineError::NotFound`].
    fn pause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Unpauses a container. One that is not paused is not an error; otherwise like [`pause`](Engine::pause).
    fn unpause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Removes a container, running or not. One that is gone is not an error.
    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Removes a volume. One that is gone is not an error. Retries while a container that was just removed holds it.
    fn remove_volume<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>>;
    fn network_exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<bool>>;
    /// Removes a network. One that is gone is not an error.
    fn remove_network<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>>;
    /// All resources with this label key, and with this value if there is one.
    fn find_resources<'a>(
        &'a self,
        label: &'a str,
        value: Option<&'a str>,
    ) -> BoxFuture<'a, EngineResult<Vec<EngineResource>>>;
    /// The processes of a running container as lines, for evidence.
    fn top<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Vec<String>>>;
}
