//! One sandbox, from its folder to its exit: prepare, create, attach, start, task-request, then read until it ends. One task a
//! sandbox; it tells the loop what happened and is told to stop through a channel of its own. Called by `run.rs`. Must not:
//! decide what an event means, or wait for another sandbox.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::delivery::Repo;
use crate::engine::depot::Depot;
use crate::engine::{Attachment, Chunk, ContainerSpec, Engine, EngineError, Signal};
use crate::handoff::depot::TextFile;
use crate::ids::StoryKey;
use crate::ids::{AttemptId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::protocol::acp::machine::{Record, Session};
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage, Envelope, TaskRequest, encode_task_request};
use crate::swarm::{Event, Exit, Fault};
use crate::verdict::{Cause, Evidence};
use crate::wire::{Line, LineSplitter};

use super::CoordinatorError;
use super::admission::Admission;
use super::carry_out;
use super::create::create;
use super::inbox::Postbox;
use super::log::LogFile;
use super::mailbox::{Departure, Mail, Seat};
use super::memory::Handed;
use super::objects::Objects;
use super::presence::Presence;

/// How long the streams may stay open after the container ended: something may hold a copy of their other end.
const DRAIN: Duration = Duration::from_secs(2);
/// From the end of the streams of a container that goes on to their being read again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How long the reading of what was missed may take, once a container has ended.
const CATCH_UP: Duration = Duration::from_secs(30);

/// What one sandbox is made of.
pub(super) struct Job {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    pub file: u16,
    pub stories: Vec<StoryId>,
    /// The branch that `base` is on.
    pub base_of: BranchName,
    pub base: CommitId,
    pub uid: u32,
    /// Its agent's place in the mailbox.
    pub seat: Option<Seat>,
    pub container: ContainerSpec,
    pub files: Vec<TextFile>,
    /// The dispatch, as a frame; none for a reviewer's sandbox.
    pub handed: Option<Handed>,
    pub request: TaskRequest,
    pub log: PathBuf,
    /// What is under review, to be written down for people.
    pub diff: Option<Diff>,
    pub origin: Origin,
}

/// A difference between two commits, and where it is to be written.
pub(super) struct Diff {
    pub path: PathBuf,
    pub from: CommitId,
    pub to: CommitId,
}

/// Where a session begins.
pub(super) enum Origin {
    /// Nothing of this attempt is there.
    Fresh,
    /// An orchestrator that is gone was making it, and may have got as far as this container.
    Again { container: Option<ContainerId> },
    /// The sandbox ran under an orchestrator that is gone, which had taken in its first `applied` records.
    Adopted { container: ContainerId, applied: u64 },
}

/// What a session works with.
pub(super) struct Tools {
    pub engine: Arc<dyn Engine>,
    pub depot: Depot,
    pub objects: Arc<Objects>,
    pub repo: Repo,
    pub postbox: Postbox,
    pub presence: Presence,
    pub admission: Arc<Admission>,
    /// Reconciliation does not see the container run.
    pub look: Arc<Notify>,
    /// The agents' mailbox.
    pub mail: Option<Mail>,
    pub stop: watch::Receiver<Option<Signal>>,
}

impl Tools {
    /// The mailbox is told of the sandbox's end.
    fn left(&self, job: &Job, how: Departure) {
        if let (Some(mail), Some(seat)) = (&self.mail, &job.seat) {
            mail.left(&seat.seat.agent, how);
        }
    }
}

/// Runs it to its end. Posts exactly one of `StartFailed` and `SandboxEnded`, as its last event.
pub(super) async fn run(job: Job, mut tools: Tools) {
    let attempt = job.attempt.clone();
    match begin_or_adopt(&job, &mut tools).await {
        Ok(Begun { container, streams, applied }) => {
            let conversation = Conversation::new(&job, &container, applied, tools.presence.losses());
            let _running = tools.admission.running();
            let exit = conversation.follow(&mut tools, streams).await;
            tools.postbox.post(Event::SandboxEnded { attempt, exit }).await;
        }
        Err(fault) => {
            tools.left(&job, Departure::Ended);
            tools.postbox.post(Event::StartFailed { attempt, fault: *fault }).await;
        }
    }
}

/// A sandbox that runs, or has run.
struct Begun {
    container: ContainerId,
    /// Its streams from their beginning; none where the engine does not have them any more.
    streams: Option<Attachment>,
    /// How many of its records the journal has.
    applied: u64,
}

async fn begin_or_adopt(job: &Job, tools: &mut Tools) -> Result<Begun, Box<Fault>> {
    match &job.origin {
        Origin::Fresh => begin(job, tools).await,
        Origin::Adopted { container, applied } => Ok(adopt(tools, container.clone(), *applied).await),
        Origin::Again { container } => {
            if let Some(container) = container
                && let Some(begun) = go_on(job, tools, container).await?
            {
                return Ok(begun);
            }
            // Nothing has run in it: its folders are as they were made, or half made.
            let discarded = tools.depot.discard(&job.attempt.folder(), job.uid).await;
            discarded.map_err(|error| Box::new(engine_fault(&error)))?;
            begin(job, tools).await
        }
    }
}

/// Goes on with a container that an orchestrator made before it died; none where there is none. What may have run is never told
/// as not started: its work would go.
async fn go_on(job: &Job, tools: &mut Tools, container: &ContainerId) -> Result<Option<Begun>, Box<Fault>> {
    let seen = loop {
        match tools.engine.inspect(container).await {
            Ok(seen) => break seen,
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %chain(&error), "cannot see what became of a sandbox");
                tools.presence.back().await;
            }
        }
    };
    let Some(seen) = seen else { return Ok(None) };
    let attempt = job.attempt.clone();
    let name = job.container.name.clone();
    tools.postbox.post(Event::SandboxCreated { attempt: attempt.clone(), container: container.clone(), name }).await;
    if seen.never_started {
        return set_off(job, tools, container.clone()).await.map(Some);
    }
    if seen.running {
        // It may wait for a task-request that was never written; then it ends by itself. One that has had it reads no second.
        match tools.engine.attach(container).await {
            Ok(mut attachment) => {
                if let Err(fault) = send_request(job, container, &mut attachment).await {
                    tracing::warn!(container = %container.short(), fault = fault.evidence.summary, "a sandbox was not told its task again");
                }
            }
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %chain(&error), "a sandbox was not told its task again");
            }
        }
    }
    tools.postbox.post(Event::SandboxStarted { attempt }).await;
    Ok(Some(adopt(tools, container.clone(), 0).await))
}

/// Takes up a sandbox by what the engine kept of its output, from the beginning: attaching would miss what was said meanwhile.
async fn adopt(tools: &Tools, container: ContainerId, applied: u64) -> Begun {
    let streams = match tools.engine.logs(&container, true).await {
        Ok(output) => Some(Attachment { input: Box::pin(tokio::io::sink()), output }),
        Err(error) => {
            tracing::warn!(container = %container.short(), error = %chain(&error), "cannot read what a sandbox said");
            None
        }
    };
    Begun { container, streams, applied }
}

async fn send_request(job: &Job, container: &ContainerId, attachment: &mut Attachment) -> Result<(), Box<Fault>> {
    let envelope = Envelope { timestamp: Timestamp::now(), swarm_id: job.swarm, container_id: container.clone() };
    let mut line = encode_task_request(&envelope, &job.request)
        .map_err(|error| Box::new(Fault::new(Cause::HostError, chain(&error), false)))?;
    line.push(b'\n');
    let lost = |error: std::io::Error| {
        Box::new(Fault::new(Cause::ConnectionLost, format!("cannot write the task-request: {error}"), true))
    };
    attachment.input.write_all(&line).await.map_err(lost)?;
    attachment.input.flush().await.map_err(lost)
}

/// Everything up to the written task-request. On a failure the container, if there is one, is removed.
async fn begin(job: &Job, tools: &mut Tools) -> Result<Begun, Box<Fault>> {
    early(tools)?;
    let admitted = tools.admission.admit(&tools.depot, &job.attempt, &tools.postbox, &mut tools.stop).await;
    admitted.map_err(|error| Box::new(engine_fault(&error)))?;
    early(tools)?;
    if let Some(diff) = &job.diff {
        carry_out::write_diff(&tools.repo, diff).await?;
    }
    tools.objects.ensure(&tools.depot, &tools.repo, &job.base_of, &job.base).await.map_err(|error| match error {
        CoordinatorError::Engine(error) => Box::new(engine_fault(&error)),
        other => Box::new(Fault::new(Cause::HostError, chain(&other), true)),
    })?;
    let mut files = job.files.clone();
    if let Some(handed) = job.handed.clone() {
        // What others learned is merged here, and not on the loop.
        let made = tokio::task::spawn_blocking(move || handed.file(Timestamp::now())).await;
        let lost = |error| Box::new(Fault::new(Cause::HostError, chain(&error), true));
        files.push(made.map_err(lost)??);
    }
    tools.depot.prepare(&job.attempt.folder(), job.uid, files).await.map_err(|error| Box::new(engine_fault(&error)))?;
    if let (Some(mail), Some(seat)) = (&tools.mail, &job.seat) {
        mail.seat(seat).await.map_err(|error| Box::new(engine_fault(&error)))?;
    }
    let container = create(tools.engine.as_ref(), &job.container)
        .await
        .map_err(|error| Box::new(create_fault(&error, &job.container)))?;
    tools
        .postbox
        .post(Event::SandboxCreated {
            attempt: job.attempt.clone(),
            container: container.clone(),
            name: job.container.name.clone(),
        })
        .await;
    set_off(job, tools, container).await
}

/// Attaches to a container in which nothing has run, starts it, and writes the task-request. On a failure it is removed.
async fn set_off(job: &Job, tools: &Tools, container: ContainerId) -> Result<Begun, Box<Fault>> {
    let begun = async {
        early(tools)?;
        let mut attachment = tools.engine.attach(&container).await.map_err(|error| Box::new(engine_fault(&error)))?;
        tools.engine.start(&container).await.map_err(|error| Box::new(engine_fault(&error)))?;
        send_request(job, &container, &mut attachment).await?;
        Ok(attachment)
    }
    .await;
    match begun {
        Ok(attachment) => {
            tools.postbox.post(Event::SandboxStarted { attempt: job.attempt.clone() }).await;
            Ok(Begun { container, streams: Some(attachment), applied: 0 })
        }
        Err(fault) => {
            if let Err(error) = tools.engine.remove(&container).await {
                tracing::warn!(container = %container.short(), error = %chain(&error), "a sandbox that did not start is still there");
            }
            Err(fault)
        }
    }
}

/// Whether a stop came before anything was started.
fn early(tools: &Tools) -> Result<(), Box<Fault>> {
    match *tools.stop.borrow() {
        Some(_) => Err(Box::new(Fault::new(Cause::StoppedByUser, "stopped before the sandbox was started", false))),
        None => Ok(()),
    }
}

/// The reading side of a running sandbox.
struct Conversation<'a> {
    job: &'a Job,
    container: &'a ContainerId,
    records: LineSplitter,
    session: Session,
    /// Records up to this one are in the journal already.
    applied: u64,
    log: LogFile,
    /// How often the engine had gone away when it began.
    losses: u64,
    /// Whether the streams ended early.
    lost: bool,
    /// Its last word is that it was told to stop.
    stopped: bool,
}

impl<'a> Conversation<'a> {
    fn new(job: &'a Job, container: &'a ContainerId, applied: u64, losses: u64) -> Self {
        let mut log = LogFile::open(&job.log, &job.attempt);
        if !matches!(job.origin, Origin::Fresh) {
            log.note("taken up again: what follows is the sandbox's output from its beginning");
        }
        Self {
            job,
            container,
            records: LineSplitter::new(),
            session: Session::new(job.swarm, container.clone(), &job.stories),
            applied,
            log,
            losses,
            lost: false,
            stopped: false,
        }
    }

    /// What comes now is the sandbox's output from its beginning: what was taken in of it is skipped.
    fn read_anew(&mut self) {
        self.applied = self.applied.max(self.session.records());
        self.records = LineSplitter::new();
        self.session = Session::new(self.job.swarm, self.container.clone(), &self.job.stories);
        self.log.note("the streams were lost: what follows is the sandbox's output from its beginning");
    }

    /// Reads until the container ended and its streams are drained. `wait` is the truth about the end; the end of a stream is not.
    async fn follow(mut self, tools: &mut Tools, streams: Option<Attachment>) -> Exit {
        let mut open = streams.is_some();
        let (input, mut output) = match streams {
            Some(Attachment { input, output }) => (Some(input), output),
            None => (None, futures::stream::pending().boxed()),
        };
        let engine = Arc::clone(&tools.engine);
        let container = self.container.clone();
        // None where the engine did not have them at once.
        let mut read_again = (!open).then(Instant::now);
        self.lost = !open;
        let waiting = wait(engine.as_ref(), &container, tools.presence.clone());
        tokio::pin!(waiting);
        let ended = loop {
            tokio::select! {
                ended = &mut waiting => break ended,
                chunk = output.next(), if open => match chunk {
                    Some(Ok(chunk)) => self.take(chunk, &tools.postbox).await,
                    Some(Err(error)) => {
                        tracing::warn!(attempt = %self.job.attempt, error = %chain(&error), "lost a sandbox's streams");
                        (open, self.lost) = (false, true);
                        read_again = Some(Instant::now() + READ_AGAIN);
                    }
                    // Mostly the container's end is next.
                    None => {
                        open = false;
                        read_again = Some(Instant::now() + READ_AGAIN);
                    }
                },
                () = super::run::until(read_again) => {
                    self.lost = true;
                    match engine.logs(&container, true).await {
                        Ok(stream) => {
                            self.read_anew();
                            (output, open, read_again) = (stream, true, None);
                        }
                        Err(_) => read_again = Some(Instant::now() + READ_AGAIN),
                    }
                }
                () = tools.look.notified() => match engine.inspect(&container).await {
                    Ok(None) => break Err(EngineError::NotFound {
                        operation: "looking for a container",
                        subject: container.to_string(),
                    }),
                    Ok(Some(seen)) if !seen.running && !seen.never_started => {
                        break Ok(seen.exit_code.unwrap_or_default());
                    }
                    _ => {}
                },
                changed = tools.stop.changed() => {
                    let signal = *tools.stop.borrow_and_update();
                    if let (Ok(()), Some(signal)) = (changed, signal) {
                        // In a task of its own: a signal may hang on a container whose output nobody reads.
                        let engine = Arc::clone(&tools.engine);
                        tokio::spawn(send_signal(engine, container.clone(), signal, tools.presence.clone()));
                    }
                }
            }
        };
        let by_itself = tools.stop.borrow().is_none();
        let crashed = by_itself && !matches!(ended, Ok(0));
        // At once: others may be waiting for it to say something.
        tools.left(self.job, if crashed { Departure::Crashed } else { Departure::Ended });
        let drained = async {
            while open {
                match output.next().await {
                    Some(Ok(chunk)) => self.take(chunk, &tools.postbox).await,
                    other => {
                        open = false;
                        self.lost |= other.is_some();
                    }
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN, drained).await;
        self.catch_up(tools).await;
        if let Some(line) = self.records.finish() {
            self.record(line, &tools.postbox).await;
        }
        drop((input, output));
        self.judge(ended, tools).await
    }

    /// Reads what the engine kept, where the streams may have ended before the sandbox's last word.
    async fn catch_up(&mut self, tools: &mut Tools) {
        if self.session.completed() || !(self.lost || self.losses != tools.presence.losses()) {
            return;
        }
        let Ok(mut output) = tools.engine.logs(self.container, false).await else { return };
        self.read_anew();
        let reading = async {
            while let Some(Ok(chunk)) = output.next().await {
                self.take(chunk, &tools.postbox).await;
            }
        };
        let _ = tokio::time::timeout(CATCH_UP, reading).await;
    }

    /// The exit evidence. A clean end needs no further question to the engine.
    async fn judge(self, ended: Result<i64, EngineError>, tools: &mut Tools) -> Exit {
        let tail = self.log.tail();
        // An engine that ends takes its containers along, and tells of that before it is seen to be gone.
        let clean = matches!(ended, Ok(0)) && self.session.completed();
        // A stop waits for no engine, and need not know more of a clean end.
        let hurried = || tools.stop.borrow().is_some();
        let mut seen = None;
        let mut engine_lost = false;
        while !clean || self.stopped && !hurried() {
            match tools.engine.inspect(self.container).await {
                Err(error) if error.unreachable() && !hurried() => {
                    engine_lost = true;
                    tools.presence.back().await;
                }
                other => {
                    seen = other.ok().flatten();
                    break;
                }
            }
        }
        engine_lost |= self.losses != tools.presence.losses() && tools.presence.lately_away();
        let memory = tools.presence.ran_out_of_memory(self.container.as_str());
        match ended {
            Ok(0) if clean => Exit { code: Some(0), engine_lost, tail, ..Exit::default() },
            Ok(code) => {
                let (oom_killed, error) = seen.map_or((false, String::new()), |seen| (seen.oom_killed, seen.error));
                // The event alone may be about a process that the sandbox outlived.
                let oom_killed = oom_killed || memory && code == 137;
                Exit { code: Some(code), oom_killed, engine_lost, error, tail, ..Exit::default() }
            }
            Err(error) => Exit { vanished: true, engine_lost, error: chain(&error), tail, ..Exit::default() },
        }
    }

    async fn take(&mut self, chunk: Chunk, postbox: &Postbox) {
        match chunk {
            Chunk::Err(bytes) => self.log.write(&bytes),
            Chunk::Out(bytes) => {
                self.records.push(bytes);
                while let Some(line) = self.records.next_line() {
                    self.record(line, postbox).await;
                }
            }
        }
    }

    async fn record(&mut self, line: Line, postbox: &Postbox) {
        let attempt = self.job.attempt.clone();
        let taken = self.session.line(line);
        let record = self.session.records();
        if record <= self.applied {
            return;
        }
        let event = match taken {
            Record::Accepted(ContainerMessage::Progress(update)) => Event::StoryReported {
                attempt,
                record,
                story: StoryKey { file: self.job.file, id: update.story_id },
                status: update.status,
                output: update.output,
            },
            Record::Accepted(ContainerMessage::Completion(end)) => {
                self.stopped = end.status == CompletionStatus::Stopped;
                Event::CompletionReported { attempt, record, status: end.status, errors: end.errors }
            }
            Record::Accepted(ContainerMessage::Error(error)) => {
                Event::ErrorReported { attempt, record, code: error.code.to_string(), message: error.message }
            }
            Record::Refused(bad) => {
                let reason = bad.to_string();
                self.log.note(&format!("bad record {record}: {reason}"));
                Event::RecordRefused { attempt, record, reason }
            }
        };
        postbox.post(event).await;
    }
}

/// Waits for the exit code, whatever the engine says, but that there is no such container.
async fn wait(engine: &dyn Engine, container: &ContainerId, mut presence: Presence) -> Result<i64, EngineError> {
    loop {
        match engine.wait(container).await {
            Err(error @ EngineError::NotFound { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %chain(&error), "waiting for a sandbox failed; asking again");
                presence.back().await;
            }
            Ok(code) => return Ok(code),
        }
    }
}

/// Signals a sandbox; an engine that is away is waited for.
async fn send_signal(engine: Arc<dyn Engine>, container: ContainerId, signal: Signal, mut presence: Presence) {
    while let Err(error) = engine.signal(&container, signal).await {
        if !error.unreachable() {
            tracing::warn!(container = %container.short(), error = %chain(&error), "cannot signal a sandbox");
            return;
        }
        presence.back().await;
    }
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// What an engine's error means for an attempt.
pub(super) fn engine_fault(error: &EngineError) -> Fault {
    use crate::handoff::depot::DepotFaultKind;
    let cause = match error {
        EngineError::DiskFull { .. } | EngineError::Depot { kind: Some(DepotFaultKind::DiskFull), .. } => {
            Cause::DiskFull
        }
        _ => Cause::EngineError,
    };
    let retryable = match error {
        // Without a kind it died, and is started again.
        EngineError::Depot { kind, .. } => matches!(kind, None | Some(DepotFaultKind::Failed)),
        other => other.retryable(),
    };
    Fault { cause, evidence: Evidence::of(chain(error)), retryable, unreachable: error.unreachable() }
}

fn create_fault(error: &EngineError, container: &ContainerSpec) -> Fault {
    match error {
        EngineError::NotFound { .. } => {
            Fault::new(Cause::ImageMissing, format!("the image `{}` is not there", container.image), false)
        }
        other => engine_fault(other),
    }
}
