//! An engine for tests: containers are tasks that run a script over in-memory pipes. No time passes in it.
//!
//! Used by the tests of `depot.rs` and of `coordinator/`. A script gets a [`FakeRun`] and ends with an exit code. What the
//! engine was asked is kept in order ([`FakeEngine::calls`]), and any call can be made to fail ([`FakeEngine::fail_next`]).
//! `outage.rs` makes it go away and come back, `events.rs` tells what happens to its containers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::io::{AsyncWrite, DuplexStream};
use tokio::sync::{mpsc, watch};

use super::{
    Attachment, Chunk, ContainerSpec, Engine, EngineError, EngineEvent, EngineEventKind, EngineInfo, EngineResult,
    EngineStream, Found, FoundKind, ImageInfo, Inspection, Signal,
};
use crate::ids::ContainerId;

mod events;
mod outage;

use events::Diary;
use outage::Outage;

/// Bytes that fit a container's stdin before the writer waits: that of a pipe.
const STDIN: usize = 64 * 1024;

/// What a container runs.
pub type Script = dyn Fn(FakeRun) -> BoxFuture<'static, i64> + Send + Sync;

/// A container as its script sees it. Standard output ends when the last [`FakeOutput`] is gone.
pub struct FakeRun {
    /// Its id.
    pub id: ContainerId,
    /// What it was created with.
    pub spec: ContainerSpec,
    /// Its standard input.
    pub input: DuplexStream,
    /// Its standard output and error.
    pub output: FakeOutput,
    /// SIGTERMs. SIGKILL ends the script where it stands.
    pub terms: mpsc::UnboundedReceiver<()>,
}

/// Where a script prints to.
#[derive(Clone)]
pub struct FakeOutput {
    tape: Arc<watch::Sender<Tape>>,
}

impl FakeOutput {
    /// Prints to standard output.
    pub fn out(&self, bytes: impl Into<Bytes>) {
        self.print(Chunk::Out(bytes.into()));
    }

    /// Prints to standard error.
    pub fn err(&self, bytes: impl Into<Bytes>) {
        self.print(Chunk::Err(bytes.into()));
    }

    fn print(&self, chunk: Chunk) {
        self.tape.send_modify(|tape| tape.chunks.push(Ok(chunk)));
    }

    /// Breaks the attached streams with an error, as a daemon that goes away.
    pub fn break_off(&self, error: &str) {
        self.tape.send_modify(|tape| tape.chunks.push(Err(error.to_owned())));
    }
}

/// All that a container printed, which is its log too.
#[derive(Default)]
struct Tape {
    chunks: Vec<Result<Chunk, String>>,
    ended: bool,
}

/// The engine. Clones are the same one.
#[derive(Clone)]
pub struct FakeEngine {
    script: Arc<Script>,
    state: Arc<Mutex<State>>,
    diary: Diary,
    outage: Outage,
}

#[derive(Default)]
struct State {
    containers: HashMap<ContainerId, Container>,
    volumes: BTreeMap<String, BTreeMap<String, String>>,
    images: BTreeMap<String, ImageInfo>,
    networks: BTreeSet<String>,
    calls: Vec<String>,
    failures: HashMap<&'static str, VecDeque<EngineError>>,
    made: u64,
}

struct Container {
    spec: ContainerSpec,
    /// Until it is attached, and then until it is started.
    input: Option<DuplexStream>,
    script_input: Option<DuplexStream>,
    tape: Arc<watch::Sender<Tape>>,
    uploads: Vec<(String, Bytes)>,
    /// What can be downloaded: a tar by its path.
    archives: HashMap<String, Bytes>,
    terms: Option<mpsc::UnboundedSender<()>>,
    running: Option<tokio::task::AbortHandle>,
    paused: bool,
    oom_killed: bool,
    /// `None` until it ended.
    exit: watch::Sender<Option<i64>>,
    /// Its page of the diary.
    page: events::Page,
}

impl FakeEngine {
    /// An engine whose containers all run this script; it has no images but those of [`with_image`].
    ///
    /// [`with_image`]: FakeEngine::with_image
    pub fn new<F>(script: impl Fn(FakeRun) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = i64> + Send + 'static,
    {
        Self {
            script: Arc::new(move |run| Box::pin(script(run))),
            state: Arc::default(),
            diary: Diary::default(),
            outage: Outage::default(),
        }
    }

    /// Adds an image.
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

    /// Adds a network.
    pub fn with_network(self, name: &str) -> Self {
        self.state().networks.insert(name.to_owned());
        self
    }

    /// Makes the next call of this method (`"create"`, `"start"`, ...) fail; several are used up one after the other.
    pub fn fail_next(&self, method: &'static str, error: EngineError) {
        self.state().failures.entry(method).or_default().push_back(error);
    }

    /// What was asked, in order: `"create longshore-x"`, `"start longshore-x"`, `"remove_volume v"`.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The archives uploaded to the container of this name.
    pub fn uploads(&self, name: &str) -> Vec<(String, Bytes)> {
        let state = self.state();
        let container = state.containers.values().find(|container| container.spec.name == name);
        container.map(|container| container.uploads.clone()).unwrap_or_default()
    }

    /// Lays down what a download of this path of the container of this name brings.
    pub fn lay_down(&self, name: &str, path: &str, tar: impl Into<Bytes>) {
        let mut state = self.state();
        let container =
            state.containers.values_mut().find(|it| it.spec.name == name).expect("a container of that name");
        container.archives.insert(path.to_owned(), tar.into());
    }

    /// The volumes that are there, with their labels.
    pub fn volumes(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        self.state().volumes.clone()
    }

    /// The names of the containers that are there, sorted.
    pub fn containers(&self) -> Vec<String> {
        let mut names: Vec<_> = self.state().containers.values().map(|it| it.spec.name.clone()).collect();
        names.sort();
        names
    }

    /// Ends a container as the kernel does when its memory is used up.
    pub fn kill_for_memory(&self, name: &str) {
        let mut state = self.state();
        let container =
            state.containers.values_mut().find(|it| it.spec.name == name).expect("a container of that name");
        container.oom_killed = true;
        container.page.note(EngineEventKind::OutOfMemory);
        container.kill();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds this")
    }

    /// Notes the call; fails where it was told to.
    fn enter(&self, method: &'static str, subject: &str) -> EngineResult<()> {
        let mut state = self.state();
        state.calls.push(format!("{method} {subject}"));
        self.outage.check()?;
        match state.failures.get_mut(method).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Notes a call about a container, and does it.
    fn on<T>(
        &self,
        method: &'static str,
        id: &ContainerId,
        work: impl FnOnce(&mut Container) -> EngineResult<T>,
    ) -> EngineResult<T> {
        let name = self.state().containers.get(id).map(|container| container.spec.name.clone());
        self.enter(method, name.as_deref().unwrap_or(id.as_str()))?;
        let mut state = self.state();
        let gone = || EngineError::NotFound { operation: method, subject: id.to_string() };
        work(state.containers.get_mut(id).ok_or_else(gone)?)
    }

    fn begin(&self, id: &ContainerId, container: &mut Container) -> EngineResult<()> {
        let Some(input) = container.script_input.take() else { return Ok(()) };
        let (terms, received) = mpsc::unbounded_channel();
        container.terms = Some(terms);
        let output = FakeOutput { tape: Arc::clone(&container.tape) };
        let run = FakeRun { id: id.clone(), spec: container.spec.clone(), input, output, terms: received };
        let script = (self.script)(run);
        let (tape, exit, page) = (Arc::clone(&container.tape), container.exit.clone(), container.page.clone());
        page.note(EngineEventKind::Started);
        let task = tokio::spawn(async move {
            let code = script.await;
            tape.send_modify(|tape| tape.ended = true);
            page.note(EngineEventKind::Died { code });
            exit.send_replace(Some(code));
        });
        container.running = Some(task.abort_handle());
        Ok(())
    }
}

impl Container {
    /// Its own and those of its image, as with Docker.
    fn labels(&self) -> BTreeMap<String, String> {
        let image = ("org.opencontainers.image.ref.name".to_owned(), self.spec.image.clone());
        std::iter::once(image).chain(self.spec.labels.clone()).collect()
    }

    fn alive(&self) -> bool {
        self.running.is_some() && self.exit.borrow().is_none()
    }

    /// Freezes it or thaws it, as it is seen from outside: what it runs goes on.
    fn freeze(&mut self, frozen: bool) -> EngineResult<()> {
        if !self.alive() {
            let (operation, message) = ("pausing a container", "it does not run".to_owned());
            return Err(EngineError::Refused { operation, status: 409, message });
        }
        if std::mem::replace(&mut self.paused, frozen) != frozen {
            self.page.note(if frozen { EngineEventKind::Paused } else { EngineEventKind::Unpaused });
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.end(137);
    }

    fn end(&mut self, code: i64) {
        if self.alive() {
            if let Some(task) = &self.running {
                task.abort();
            }
            self.tape.send_modify(|tape| tape.ended = true);
            self.page.note(EngineEventKind::Died { code });
            self.exit.send_replace(Some(code));
        }
    }
}

/// Reads a tape from a place on, to its end or, without `follow`, as far as it goes.
fn play(tape: &watch::Sender<Tape>, from: usize, follow: bool) -> BoxStream<'static, EngineResult<Chunk>> {
    let receiver = tape.subscribe();
    Box::pin(futures::stream::unfold((receiver, from), move |(mut receiver, at)| async move {
        let ready = |tape: &Tape| tape.chunks.len() > at || tape.ended || !follow;
        // An error means that the container is gone, and its tape with it.
        let item = receiver.wait_for(ready).await.ok().and_then(|tape| tape.chunks.get(at).cloned())?;
        let item = item.map_err(|error| EngineError::Failed { operation: "reading output", source: error.into() });
        Some((item, (receiver, at + 1)))
    }))
}

impl Engine for FakeEngine {
    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>> {
        Box::pin(async {
            self.enter("info", "")?;
            Ok(EngineInfo {
                name: "Fake 1.0".to_owned(),
                api: "1.41".to_owned(),
                endpoint: "fake://".to_owned(),
                arch: std::env::consts::ARCH.to_owned(),
                cpus: 4,
                memory: 8 << 30,
                volume_subpath: false,
                cgroup: 2,
                missing_limits: Vec::new(),
            })
        })
    }

    fn ping(&self) -> BoxFuture<'_, EngineResult<()>> {
        Box::pin(std::future::ready(self.enter("ping", "")))
    }

    fn events<'a>(
        &'a self,
        label: &'a str,
        value: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, EngineResult<EngineStream<EngineEvent>>> {
        Box::pin(async move {
            self.enter("events", label)?;
            Ok(self.outage.breaks(self.diary.read(label, value, since)))
        })
    }

    fn image<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<Option<ImageInfo>>> {
        Box::pin(async move {
            self.enter("image", name)?;
            Ok(self.state().images.get(name).cloned())
        })
    }

    fn images<'a>(&'a self, label: &'a str) -> BoxFuture<'a, EngineResult<Vec<ImageInfo>>> {
        Box::pin(async move {
            self.enter("images", label)?;
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
            self.enter("build_image", tag)?;
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
            self.enter("ensure_volume", name)?;
            self.state().volumes.entry(name.to_owned()).or_insert_with(|| labels.clone());
            Ok(())
        })
    }

    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>> {
        Box::pin(async move {
            self.enter("create", &spec.name)?;
            let mut state = self.state();
            if state.containers.values().any(|container| container.spec.name == spec.name) {
                let message = format!("the name {} is in use", spec.name);
                return Err(EngineError::Refused { operation: "create", status: 409, message });
            }
            state.made += 1;
            let id: ContainerId = format!("{:012x}", state.made).parse().expect("twelve hexadecimal digits");
            let (input, script_input) = tokio::io::duplex(STDIN);
            let container = Container {
                spec: spec.clone(),
                input: Some(input),
                script_input: Some(script_input),
                tape: Arc::new(watch::Sender::new(Tape::default())),
                uploads: Vec::new(),
                archives: HashMap::new(),
                terms: None,
                running: None,
                paused: false,
                oom_killed: false,
                exit: watch::Sender::new(None),
                page: self.diary.page(&id, &spec.labels),
            };
            state.containers.insert(id.clone(), container);
            Ok(id)
        })
    }

    fn upload<'a>(&'a self, id: &'a ContainerId, path: &'a str, tar: Bytes) -> BoxFuture<'a, EngineResult<()>> {
        let keep = |container: &mut Container| {
            container.uploads.push((path.to_owned(), tar));
            Ok(())
        };
        Box::pin(std::future::ready(self.on("upload", id, keep)))
    }

    fn download<'a>(&'a self, id: &'a ContainerId, path: &'a str) -> BoxFuture<'a, EngineResult<EngineStream<Bytes>>> {
        let missing = || EngineError::NotFound { operation: "download", subject: path.to_owned() };
        let archive = self.on("download", id, |container| container.archives.get(path).cloned().ok_or_else(missing));
        Box::pin(async move {
            let archive = archive?;
            // In small pieces, which end nowhere in particular.
            let pieces: Vec<_> = archive.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            Ok(self.outage.breaks(Box::pin(futures::stream::iter(pieces))))
        })
    }

    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Attachment>> {
        Box::pin(async move {
            self.on("attach", id, |container| {
                let input: Pin<Box<dyn AsyncWrite + Send>> = match container.input.take() {
                    Some(input) => Box::pin(input),
                    // The pipe's one end is with the first attachment.
                    None => Box::pin(tokio::io::sink()),
                };
                let from = container.tape.borrow().chunks.len();
                Ok(Attachment { input, output: self.outage.breaks(play(&container.tape, from, true)) })
            })
        })
    }

    fn start<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.on("start", id, |container| self.begin(id, container)) })
    }

    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        follow: bool,
    ) -> BoxFuture<'a, EngineResult<BoxStream<'static, EngineResult<Chunk>>>> {
        Box::pin(
            async move { self.on("logs", id, |container| Ok(self.outage.breaks(play(&container.tape, 0, follow)))) },
        )
    }

    fn wait<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<i64>> {
        Box::pin(async move {
            let mut exit = self.on("wait", id, |container| Ok(container.exit.subscribe()))?;
            let ended = exit.wait_for(Option::is_some);
            let code = self.outage.unless(ended).await?.ok().and_then(|code| *code);
            code.ok_or_else(|| EngineError::NotFound { operation: "wait", subject: id.to_string() })
        })
    }

    fn inspect<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<Option<Inspection>>> {
        Box::pin(async move {
            let state = self.on("inspect", id, |container| {
                Ok(Inspection {
                    id: id.clone(),
                    never_started: container.running.is_none(),
                    running: container.alive(),
                    paused: container.paused,
                    exit_code: *container.exit.borrow(),
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
            let sent = self.on(method, id, |container| {
                if container.alive() {
                    let signal = if signal == Signal::Kill { 9 } else { 15 };
                    container.page.note(EngineEventKind::Killed { signal });
                }
                match (signal, &container.terms) {
                    (Signal::Kill, _) => container.kill(),
                    // A script that does not listen ignores it.
                    (Signal::Term, Some(terms)) => drop(terms.send(())),
                    (Signal::Term, None) => {}
                }
                Ok(())
            });
            if let Err(EngineError::NotFound { .. }) = sent { Ok(()) } else { sent }
        })
    }

    fn pause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.on("pause", id, |container| container.freeze(true)) })
    }

    fn unpause<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move { self.on("unpause", id, |container| container.freeze(false)) })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            let killed = self.on("remove", id, |container| {
                container.kill();
                container.page.note(EngineEventKind::Removed);
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
            self.enter("remove_volume", name)?;
            self.state().volumes.remove(name);
            Ok(())
        })
    }

    fn network_exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<bool>> {
        Box::pin(async move {
            self.enter("network_exists", name)?;
            Ok(self.state().networks.contains(name))
        })
    }

    fn remove_network<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(std::future::ready(self.enter("remove_network", name)))
    }

    fn find<'a>(&'a self, label: &'a str, value: Option<&'a str>) -> BoxFuture<'a, EngineResult<Vec<Found>>> {
        Box::pin(async move {
            self.enter("find", label)?;
            let state = self.state();
            let has = |labels: &BTreeMap<String, String>| match value {
                Some(value) => labels.get(label).is_some_and(|it| it == value),
                None => labels.contains_key(label),
            };
            let containers = state.containers.iter().map(|(id, container)| Found {
                kind: FoundKind::Container,
                id: id.to_string(),
                name: container.spec.name.clone(),
                labels: container.labels(),
                running: container.alive(),
                paused: container.paused,
            });
            let volumes = state.volumes.iter().map(|(name, labels)| Found {
                kind: FoundKind::Volume,
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
        Box::pin(async move { self.on("top", id, |_| Ok(vec!["PID CMD".to_owned(), "1 script".to_owned()])) })
    }
}
