//! An engine in memory: containers are tasks that run a script over pipes. It never waits for time to pass.
//!
//! Used by the tests of `engine/depot`, `coordinator/` and `cli/`. A script gets a [`FakeProcess`] and returns an exit code. The engine
//! records its calls ([`FakeEngine::calls`]), and any call can be made to fail ([`FakeEngine::fail_next`]). `outage.rs` makes it
//! unreachable for a while, `events.rs` has the events of its containers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::io::{AsyncWrite, DuplexStream};
use tokio::sync::{mpsc, watch};

use crate::engine::{
    AttachedStreams, ContainerInspection, ContainerSpec, Engine, EngineError, EngineEvent, EngineEventKind, EngineInfo,
    EngineResource, EngineResourceKind, EngineResult, EngineStream, ImageInfo, OutputChunk, Signal,
};
use crate::ids::ContainerId;

mod events;
mod outage;
mod spec;

use events::FakeEventLog;
use outage::Outage;
pub use spec::container_spec;

/// The capacity of a pipe.
const STDIN_CAPACITY: usize = 64 * 1024;

/// The program of a container.
pub type Script = dyn Fn(FakeProcess) -> BoxFuture<'static, i64> + Send + Sync;

/// A container as its script sees it.
pub struct FakeProcess {
    pub id: ContainerId,
    pub spec: ContainerSpec,
    pub stdin: DuplexStream,
    pub output: FakeOutput,
    /// One item per SIGTERM. SIGKILL drops the script.
    pub sigterms: mpsc::UnboundedReceiver<()>,
}

/// The standard output and error of a script.
#[derive(Clone)]
pub struct FakeOutput {
    log: Arc<watch::Sender<FakeOutputLog>>,
}

impl FakeOutput {
    pub fn write_stdout(&self, bytes: impl Into<Bytes>) {
        self.push_chunk(OutputChunk::Stdout(bytes.into()));
    }

    pub fn write_stderr(&self, bytes: impl Into<Bytes>) {
        self.push_chunk(OutputChunk::Stderr(bytes.into()));
    }

    fn push_chunk(&self, chunk: OutputChunk) {
        self.log.send_modify(|log| log.chunks.push(chunk));
    }
}

/// The whole output of a container, which is its log too.
#[derive(Default)]
struct FakeOutputLog {
    chunks: Vec<OutputChunk>,
    ended: bool,
}

/// The engine. Clones share it.
#[derive(Clone)]
pub struct FakeEngine {
    script: Arc<Script>,
    state: Arc<Mutex<FakeEngineState>>,
    event_log: FakeEventLog,
    outage: Outage,
}

#[derive(Default)]
struct FakeEngineState {
    containers: HashMap<ContainerId, FakeContainer>,
    volumes: BTreeMap<String, BTreeMap<String, String>>,
    images: BTreeMap<String, ImageInfo>,
    networks: BTreeSet<String>,
    calls: Vec<String>,
    failures: HashMap<&'static str, VecDeque<EngineError>>,
    created_count: u64,
}

struct FakeContainer {
    spec: ContainerSpec,
    /// Taken by the first attachment.
    stdin: Option<DuplexStream>,
    /// Taken by the start.
    script_stdin: Option<DuplexStream>,
    log: Arc<watch::Sender<FakeOutputLog>>,
    uploads: Vec<(String, Bytes)>,
    /// The tars that can be downloaded, by path.
    archives: HashMap<String, Bytes>,
    sigterms: Option<mpsc::UnboundedSender<()>>,
    task: Option<tokio::task::AbortHandle>,
    paused: bool,
    oom_killed: bool,
    /// `None` until it exits.
    exit_code: watch::Sender<Option<i64>>,
    events: events::ContainerEventLog,
}

impl FakeEngine {
    /// An engine whose containers all run this script. It has only the images of [`with_image`].
    ///
    /// [`with_image`]: FakeEngine::with_image
    pub fn new<F>(script: impl Fn(FakeProcess) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = i64> + Send + 'static,
    {
        Self {
            script: Arc::new(move |run| Box::pin(script(run))),
            state: Arc::default(),
            event_log: FakeEventLog::default(),
            outage: Outage::default(),
        }
    }

    pub fn with_image(self, name: &str) -> Self {
        let image = ImageInfo {
            id: format!("sha256:{name}"),
            tags: vec![name.to_owned()],
            arch: std::env::consts::ARCH.to_owned(),
            path: Some("/usr/bin:/bin".to_owned()),
            size: 1,
            labels: BTreeMap::new(),
        };
        self.state().images.insert(name.to_owned(), image);
        self
    }

    pub fn with_network(self, name: &str) -> Self {
        self.state().networks.insert(name.to_owned());
        self
    }

    /// Makes the next call of this method (`"create"`, `"start"`, ...) fail. Several errors are used in order.
    pub fn fail_next(&self, method: &'static str, error: EngineError) {
        self.state().failures.entry(method).or_default().push_back(error);
    }

    /// The calls in order: `"create longshore-x"`, `"start longshore-x"`, `"remove_volume v"`.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The archives uploaded to the container of this name.
    pub fn uploads(&self, name: &str) -> Vec<(String, Bytes)> {
        self.state().find(name).map(|container| container.uploads.clone()).unwrap_or_default()
    }

    /// Sets the tar that a download of this path from the container of this name returns.
    pub fn set_archive(&self, name: &str, path: &str, tar: impl Into<Bytes>) {
        let mut state = self.state();
        state.find(name).expect("a container of that name").archives.insert(path.to_owned(), tar.into());
    }

    /// The volumes with their labels.
    pub fn volumes(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        self.state().volumes.clone()
    }

    /// The names of the containers, sorted.
    pub fn containers(&self) -> Vec<String> {
        let mut names: Vec<_> = self.state().containers.values().map(|it| it.spec.name.clone()).collect();
        names.sort();
        names
    }

    /// Ends a container as the kernel does when it runs out of memory.
    pub fn oom_kill(&self, name: &str) {
        let mut state = self.state();
        let container = state.find(name).expect("a container of that name");
        container.oom_killed = true;
        container.events.record(EngineEventKind::OutOfMemory);
        container.kill();
    }

    fn state(&self) -> MutexGuard<'_, FakeEngineState> {
        self.state.lock().expect("no test panics while it holds this")
    }

    /// Records a call. Fails during an outage, or if a failure is scheduled.
    fn record_call(&self, method: &'static str, subject: &str) -> EngineResult<()> {
        let mut state = self.state();
        state.calls.push(format!("{method} {subject}"));
        self.outage.ensure_up()?;
        match state.failures.get_mut(method).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Records a call on a container and performs it.
    fn call_container<T>(
        &self,
        method: &'static str,
        id: &ContainerId,
        work: impl FnOnce(&mut FakeContainer) -> EngineResult<T>,
    ) -> EngineResult<T> {
        let name = self.state().containers.get(id).map(|container| container.spec.name.clone());
        self.record_call(method, name.as_deref().unwrap_or(id.as_str()))?;
        let mut state = self.state();
        let not_found = || EngineError::NotFound { operation: method, subject: id.to_string() };
        work(state.containers.get_mut(id).ok_or_else(not_found)?)
    }

    fn start_script(&self, id: &ContainerId, container: &mut FakeContainer) -> EngineResult<()> {
        let Some(input) = container.script_stdin.take() else { return Ok(()) };
        let (sender, sigterms) = mpsc::unbounded_channel();
        container.sigterms = Some(sender);
        let output = FakeOutput { log: Arc::clone(&container.log) };
        let process = FakeProcess { id: id.clone(), spec: container.spec.clone(), stdin: input, output, sigterms };
        let script = (self.script)(process);
        let (log, exit_code, events) =
            (Arc::clone(&container.log), container.exit_code.clone(), container.events.clone());
        events.record(EngineEventKind::Started);
        let task = tokio::spawn(async move {
            let code = script.await;
            log.send_modify(|log| log.ended = true);
            events.record(EngineEventKind::Died { code });
            exit_code.send_replace(Some(code));
        });
        container.task = Some(task.abort_handle());
        Ok(())
    }
}

impl FakeEngineState {
    fn find(&mut self, name: &str) -> Option<&mut FakeContainer> {
        self.containers.values_mut().find(|container| container.spec.name == name)
    }
}

impl FakeContainer {
    /// Its own labels and those of its image, as with Docker.
    fn labels(&self) -> BTreeMap<String, String> {
        let image = ("org.opencontainers.image.ref.name".to_owned(), self.spec.image.clone());
        std::iter::once(image).chain(self.spec.labels.clone()).collect()
    }

    fn is_running(&self) -> bool {
        self.task.is_some() && self.exit_code.borrow().is_none()
    }

    /// Pauses or unpauses it as seen from outside. Its script goes on.
    fn set_paused(&mut self, paused: bool) -> EngineResult<()> {
        if !self.is_running() {
            let (operation, message) = ("pausing a container", "it does not run".to_owned());
            return Err(EngineError::Refused { operation, status: 409, message });
        }
        if std::mem::replace(&mut self.paused, paused) != paused {
            self.events.record(if paused { EngineEventKind::Paused } else { EngineEventKind::Unpaused });
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.exit_with(137);
    }

    fn exit_with(&mut self, code: i64) {
        if self.is_running() {
            if let Some(task) = &self.task {
                task.abort();
            }
            self.log.send_modify(|log| log.ended = true);
            self.events.record(EngineEventKind::Died { code });
            self.exit_code.send_replace(Some(code));
        }
    }
}

/// The log from a chunk on: to its end, or without `follow` to its current length.
fn stream_output(log: &watch::Sender<FakeOutputLog>, from: usize, follow: bool) -> EngineStream<OutputChunk> {
    let receiver = log.subscribe();
    Box::pin(futures::stream::unfold((receiver, from), move |(mut receiver, at)| async move {
        let ready = |log: &FakeOutputLog| log.chunks.len() > at || log.ended || !follow;
        // An error means that the container was removed with its log.
        let chunk = receiver.wait_for(ready).await.ok()?.chunks.get(at).cloned()?;
        Some((Ok(chunk), (receiver, at + 1)))
    }))
}

impl Engine for FakeEngine {
    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>> {
        Box::pin(async {
            self.record_call("info", "")?;
            Ok(EngineInfo {
                name: "Fake 1.0".to_owned(),
                api_version: "1.41".to_owned(),
                endpoint: "fake://".to_owned(),
                arch: std::env::consts::ARCH.to_owned(),
                cpus: 4,
                memory: 8 << 30,
                volume_subpath: false,
                cgroup_version: 2,
                missing_limits: Vec::new(),
            })
        })
    }

    fn ping(&self) -> BoxFuture<'_, EngineResult<()>> {
        Box::pin(std::future::ready(self.record_call("ping", "")))
    }

    fn events<'a>(
        &'a self,
        label: &'a str,
        value: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, EngineResult<EngineStream<EngineEvent>>> {
        Box::pin(async move {
            self.record_call("events", label)?;
            Ok(self.outage.break_stream_on_outage(self.event_log.subscribe(label, value, since)))
        })
    }

    fn image<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<Option<ImageInfo>>> {
        Box::pin(async move {
            self.record_call("image", name)?;
            Ok(self.state().images.get(name).cloned())
        })
    }

    fn images<'a>(&'a self, label: &'a str) -> BoxFuture<'a, EngineResult<Vec<ImageInfo>>> {
        Box::pin(async move {
            self.record_call("images", label)?;
            Ok(self.state().images.values().filter(|image| image.labels.contains_key(label)).cloned().collect())
        })
    }

    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        _context: Bytes,
        _args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            self.record_call("build_image", tag)?;
            progress("Step 1/1");
            self.clone().with_image(tag);
            Ok(())
        })
    }

    fn ensure_volume<'a>(
        &'a self,
        name: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            self.record_call("ensure_volume", name)?;
            self.state().volumes.entry(name.to_owned()).or_insert_with(|| labels.clone());
            Ok(())
        })
    }

    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>> {
        Box::pin(async move {
            self.record_call("create", &spec.name)?;
            let mut state = self.state();
            if state.containers.values().any(|container| container.spec.name == spec.name) {
                let message = format!("the name {} is in use", spec.name);
                return Err(EngineError::Refused { operation: "create", status: 409, message });
            }
            state.created_count += 1;
            let id: ContainerId = format!("{:012x}", state.created_count).parse().expect("twelve hexadecimal digits");
            let (input, script_input) = tokio::io::duplex(STDIN_CAPACITY);
            let container = FakeContainer {
                spec: spec.clone(),
                stdin: Some(input),
                script_stdin: Some(script_input),
                log: Arc::new(watch::Sender::new(FakeOutputLog::default())),
                uploads: Vec::new(),
                archives: HashMap::new(),
                sigterms: None,
                task: None,
                paused: false,
                oom_killed: false,
                exit_code: watch::Sender::new(None),
                events: self.event_log.for_container(&id, &spec.labels),
            };
            state.containers.insert(id.clone(), container);
            Ok(id)
        })
    }

    fn upload<'a>(&'a self, id: &'a ContainerId, path: &'a str, tar: Bytes) -> BoxFuture<'a, EngineResult<()>> {
        let keep = |container: &mut FakeContainer| {
            container.uploads.push((path.to_owned(), tar));
            Ok(())
        };
        Box::pin(std::future::ready(self.call_container("upload", id, keep)))
    }

    fn download<'a>(&'a self, id: &'a ContainerId, path: &'a str) -> BoxFuture<'a, EngineResult<EngineStream<Bytes>>> {
        let missing = || EngineError::NotFound { operation: "download", subject: path.to_owned() };
        let archive =
            self.call_container("download", id, |container| container.archives.get(path).cloned().ok_or_else(missing));
        Box::pin(async move {
            let archive = archive?;
            let chunks: Vec<_> = archive.chunks(1000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            Ok(self.outage.break_stream_on_outage(Box::pin(futures::stream::iter(chunks))))
        })
    }

    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<AttachedStreams>> {
        Box::pin(async move {
            self.call_container("attach", id, |container| {
                let input: Pin<Box<dyn AsyncWrite + Send>> = match container.stdin.take() {
                    Some(input) => Box::pin(input),
                    // The first attachment has the pipe.
                    None => Box::pin(tokio::io::sink()),
                };
                let from = container.log.borrow().chunks.len();
                Ok(AttachedStreams {
                    stdin: input,
                    output: self.outage.break_stream_on_outage(stream_output(&container.log, from, true)),
                })
            })
        })
    }

    fn start<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.call_container("start", id, |container| self.start_script(id, container)) })
    }

    fn logs<'a>(&'a self, id: &'a ContainerId, follow: bool) -> BoxFuture<'a, EngineResult<EngineStream<OutputChunk>>> {
        Box::pin(async move {
            self.call_container("logs", id, |container| {
                Ok(self.outage.break_stream_on_outage(stream_output(&container.log, 0, follow)))
            })
        })
    }

    fn wait<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<i64>> {
        Box::pin(async move {
            let mut exit = self.call_container("wait", id, |container| Ok(container.exit_code.subscribe()))?;
            let ended = exit.wait_for(Option::is_some);
            let code = self.outage.fail_on_outage(ended).await?.ok().and_then(|code| *code);
            code.ok_or_else(|| EngineError::NotFound { operation: "wait", subject: id.to_string() })
        })
    }

    fn inspect<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Option<ContainerInspection>>> {
        Box::pin(async move {
            let state = self.call_container("inspect", id, |container| {
                Ok(ContainerInspection {
                    id: id.clone(),
                    never_started: container.task.is_none(),
                    running: container.is_running(),
                    paused: container.paused,
                    exit_code: *container.exit_code.borrow(),
                    oom_killed: container.oom_killed,
                    error: String::new(),
                })
            });
            match state {
                Err(EngineError::NotFound { .. }) => Ok(None),
                other => other.map(Some),
            }
        })
    }

    fn signal<'a>(&'a self, id: &'a ContainerId, signal: Signal) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            let method = if signal == Signal::Kill { "kill" } else { "term" };
            let sent = self.call_container(method, id, |container| {
                if container.is_running() {
                    let signal = if signal == Signal::Kill { 9 } else { 15 };
                    container.events.record(EngineEventKind::Killed { signal });
                }
                match (signal, &container.sigterms) {
                    (Signal::Kill, _) => container.kill(),
                    // A script that does not listen ignores the signal.
                    (Signal::Term, Some(terms)) => drop(terms.send(())),
                    (Signal::Term, None) => {}
                }
                Ok(())
            });
            if let Err(EngineError::NotFound { .. }) = sent { Ok(()) } else { sent }
        })
    }

    fn pause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.call_container("pause", id, |container| container.set_paused(true)) })
    }

    fn unpause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.call_container("unpause", id, |container| container.set_paused(false)) })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            let killed = self.call_container("remove", id, |container| {
                container.kill();
                container.events.record(EngineEventKind::Removed);
                Ok(())
            });
            match killed {
                Ok(()) => drop(self.state().containers.remove(id)),
                Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })
    }

    fn remove_volume<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            self.record_call("remove_volume", name)?;
            self.state().volumes.remove(name);
            Ok(())
        })
    }

    fn network_exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<bool>> {
        Box::pin(async move {
            self.record_call("network_exists", name)?;
            Ok(self.state().networks.contains(name))
        })
    }

    fn remove_network<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(std::future::ready(self.record_call("remove_network", name)))
    }

    fn find_resources<'a>(
        &'a self,
        label: &'a str,
        value: Option<&'a str>,
    ) -> BoxFuture<'a, EngineResult<Vec<EngineResource>>> {
        Box::pin(async move {
            self.record_call("find", label)?;
            let state = self.state();
            let has = |labels: &BTreeMap<String, String>| match value {
                Some(value) => labels.get(label).is_some_and(|it| it == value),
                None => labels.contains_key(label),
            };
            let containers = state.containers.iter().map(|(id, container)| EngineResource {
                kind: EngineResourceKind::Container,
                id: id.to_string(),
                name: container.spec.name.clone(),
                labels: container.labels(),
                running: container.is_running(),
                paused: container.paused,
            });
            let volumes = state.volumes.iter().map(|(name, labels)| EngineResource {
                kind: EngineResourceKind::Volume,
                id: name.clone(),
                name: name.clone(),
                labels: labels.clone(),
                running: false,
                paused: false,
            });
            Ok(containers.chain(volumes).filter(|found| has(&found.labels)).collect())
        })
    }

    fn top<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Vec<String>>> {
        Box::pin(
            async move { self.call_container("top", id, |_| Ok(vec!["PID CMD".to_owned(), "1 script".to_owned()])) },
        )
    }
}
