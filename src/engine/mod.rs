//! What runs sandboxes: the trait, and what it says in words that are not Docker's own.
//!
//! Above this module nobody knows Docker: a writer, chunks tagged by stream, and exit evidence is all that is seen.
//! `docker.rs` is the only user of bollard. `depot.rs` speaks to a swarm's depot. To add an engine: implement [`Engine`].

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
pub mod error;
#[cfg(test)]
pub mod fake;
pub mod resolve;

pub use error::EngineError;

/// A result of an engine's operation.
pub type EngineResult<T> = Result<T, EngineError>;

/// The labels of everything that is created (DESIGN: everything created carries labels).
pub mod label {
    /// The swarm's id. Present on everything of ours that belongs to one swarm.
    pub const SWARM: &str = "dev.longshore.swarm";
    /// The assignment's id.
    pub const ASSIGNMENT: &str = "dev.longshore.assignment";
    /// The story ids of the attempt, comma-separated.
    pub const STORY: &str = "dev.longshore.story";
    /// The attempt's number.
    pub const ATTEMPT: &str = "dev.longshore.attempt";
    /// `sandbox`, `reviewer`, `depot`, `objects`, `in`, `work`, `mailbox`, `image`.
    pub const ROLE: &str = "dev.longshore.role";
    /// The repository, as a hash of its path: on the objects volume.
    pub const REPO: &str = "dev.longshore.repo";
}

/// A container to make. Everything not said here is fixed by the engine's hardening: all capabilities dropped but those
/// named, `no-new-privileges`, default seccomp, read-only root, no TTY, stdin open and never closed by us, no restart.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSpec {
    /// Unique name.
    pub name: String,
    /// Image reference.
    pub image: String,
    /// Program and arguments; replaces the image's entrypoint.
    pub argv: Vec<String>,
    /// Environment without secrets: it can be seen by inspection.
    pub env: Vec<(String, String)>,
    /// `uid:gid`.
    pub user: (u32, u32),
    /// Working directory.
    pub workdir: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Volumes to mount.
    pub mounts: Vec<VolumeMount>,
    /// tmpfs mounts: path and options.
    pub tmpfs: Vec<(String, String)>,
    /// Memory limit in bytes, swap included; 0 for none.
    pub memory_limit: u64,
    /// CPUs, in thousandths; 0 for no limit.
    pub milli_cpus: u64,
    /// Process limit.
    pub pids_limit: i64,
    /// Network: `none`, or the name of one.
    pub network: String,
    /// Capabilities to keep (the depot's four).
    pub added_capabilities: Vec<String>,
}

/// A volume in a container.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeMount {
    /// The volume's name.
    pub volume: String,
    /// Where.
    pub target: String,
    /// Read-only.
    pub read_only: bool,
    /// A folder of it instead of the whole, where the engine can ([`EngineInfo::volume_subpath`]).
    pub subpath: Option<String>,
}

/// A piece of what a container printed.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputChunk {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
}

/// A container's streams. Dropping it closes the connection; the container's stdin stays open.
pub struct AttachedStreams {
    /// To its standard input.
    pub stdin: Pin<Box<dyn AsyncWrite + Send>>,
    /// What it prints. Chunks are not lines.
    pub output: BoxStream<'static, EngineResult<OutputChunk>>,
}

/// What an engine is and can do.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineInfo {
    /// "Docker 20.10.24".
    pub name: String,
    /// API version in use.
    pub api_version: String,
    /// Where it was reached, and why there: "unix:///var/run/docker.sock (default)".
    pub endpoint: String,
    /// Processor architecture as Rust names it: `x86_64`, `aarch64`.
    pub arch: String,
    /// Processors.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Whether a folder of a volume can be mounted (API 1.45).
    pub volume_subpath: bool,
    /// cgroup version: 1 or 2.
    pub cgroup_version: u8,
    /// Whether it can apply memory, CPU and process limits; names of those that it cannot.
    pub missing_limits: Vec<String>,
}

/// An image.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageInfo {
    /// `sha256:...`.
    pub id: String,
    /// Names.
    pub tags: Vec<String>,
    /// Architecture as Rust names it.
    pub arch: String,
    /// Its `PATH`, where it sets one.
    pub path: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A container's state.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerInspection {
    /// Its id.
    pub id: ContainerId,
    /// Created but never started.
    pub never_started: bool,
    /// Running (or paused).
    pub running: bool,
    /// Paused.
    pub paused: bool,
    /// Exit code, once it ended.
    pub exit_code: Option<i64>,
    /// The engine's OOM flag.
    pub oom_killed: bool,
    /// The engine's error text.
    pub error: String,
}

/// Something of ours that the engine has.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineResource {
    /// What it is.
    pub kind: EngineResourceKind,
    /// Id, or the name where it has none.
    pub id: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it runs, paused ones included (containers).
    pub running: bool,
    /// Whether it is paused (containers).
    pub paused: bool,
}

/// Kinds of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineResourceKind {
    /// A container.
    Container,
    /// A volume.
    Volume,
    /// A network.
    Network,
    /// An image.
    Image,
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEvent {
    /// When, by the engine's clock.
    pub at: Timestamp,
    /// The container's id.
    pub container: String,
    /// What.
    pub kind: EngineEventKind,
}

/// What can happen to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEventKind {
    /// It was started.
    Started,
    /// It ended.
    Died {
        /// Its exit code.
        code: i64,
    },
    /// The kernel killed a process of it for memory; not always the first one, so it may live on.
    OutOfMemory,
    /// Somebody sent it a signal.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// It was frozen.
    Paused,
    /// It was thawed.
    Unpaused,
    /// It was removed.
    Removed,
    /// Anything else, by the engine's name for it.
    Other(String),
}

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// A stream of what an engine says, in the order in which it says it.
pub type EngineStream<T> = BoxStream<'static, EngineResult<T>>;

/// What runs sandboxes. All methods can be called at once from many tasks; the engine bounds what it has in flight.
pub trait Engine: Send + Sync + 'static {
    /// What it is.
    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>>;
    /// Whether it answers at all, learned within seconds. Waits for no turn: it answers also while everything else is busy.
    ///
    /// # Errors
    /// One that is [`EngineError::is_unreachable`] where nobody answers in time.
    fn ping(&self) -> BoxFuture<'_, EngineResult<()>>;
    /// What happens to the containers that carry this label, from `since` on. A hint, never the truth: an engine keeps few
    /// past events, none over a restart of its own, and may lose some under load. The stream ends, or breaks with an error
    /// that is [`EngineError::is_unreachable`], when the engine goes away.
    fn events<'a>(
        &'a self,
        label: &'a str,
        value: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, EngineResult<EngineStream<EngineEvent>>>;
    /// An image; `None` where it is not there.
    fn image<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<Option<ImageInfo>>>;
    /// Images that carry this label key.
    fn images<'a>(&'a self, label: &'a str) -> BoxFuture<'a, EngineResult<Vec<ImageInfo>>>;
    /// Builds an image from a tar with a `Dockerfile`; `progress` gets the builder's lines.
    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        context: Bytes,
        args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>>;
    /// Makes a volume, or finds it.
    fn ensure_volume<'a>(
        &'a self,
        name: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, EngineResult<()>>;
    /// Makes a container, not started.
    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>>;
    /// Unpacks a tar in a container, which need not run; `path` must lie in a volume of it.
    fn upload<'a>(&'a self, id: &'a ContainerId, path: &'a str, tar: Bytes) -> BoxFuture<'a, EngineResult<()>>;
    /// A file or folder of a container, running or not, as a tar. What is in it is as hostile as the container.
    fn download<'a>(&'a self, id: &'a ContainerId, path: &'a str) -> BoxFuture<'a, EngineResult<EngineStream<Bytes>>>;
    /// Attaches stdin, stdout and stderr; the connection stands when this returns. Before `start`, nothing is missed.
    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<AttachedStreams>>;
    /// Starts it. Waits for its turn where many are started at once; transient failures of the daemon are retried.
    fn start<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// All that it printed so far, and with `follow` what it prints from now on.
    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        follow: bool,
    ) -> BoxFuture<'a, EngineResult<BoxStream<'static, EngineResult<OutputChunk>>>>;
    /// Waits until it ended and gives its exit code; a container that is gone is [`EngineError::NotFound`].
    fn wait<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<i64>>;
    /// Its state; `None` where it is gone.
    fn inspect<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Option<ContainerInspection>>>;
    /// Signals its first process; one that does not run is not an error. A kill ends a frozen one too.
    fn signal<'a>(&'a self, id: &'a ContainerId, signal: Signal) -> BoxFuture<'a, EngineResult<()>>;
    /// Freezes it; one that is frozen already is not an error. One that does not run is [`EngineError::Refused`], one that is
    /// gone [`EngineError::NotFound`].
    fn pause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Thaws it; one that runs and is not frozen is not an error. Otherwise like [`pause`](Engine::pause).
    fn unpause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Removes it, running or not; one that is gone is not an error.
    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>>;
    /// Removes a volume; one that is gone is not an error. Retried while it is "in use" by a container just removed.
    fn remove_volume<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>>;
    /// Whether there is a network of this name.
    fn network_exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<bool>>;
    /// Removes a network; one that is gone is not an error.
    fn remove_network<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>>;
    /// Everything that carries this label key (and this value, where one is given).
    fn find_resources<'a>(
        &'a self,
        label: &'a str,
        value: Option<&'a str>,
    ) -> BoxFuture<'a, EngineResult<Vec<EngineResource>>>;
    /// The process list of a running container, as lines: for evidence.
    fn top<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Vec<String>>>;
}

/// How long an engine that is there may take to say so.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take that is not known to be slow.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
