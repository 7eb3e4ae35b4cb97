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
use crate::engine::depot::DepotClient;
use crate::engine::{AttachedStreams, ContainerSpec, Engine, EngineError, OutputChunk, Signal};
use crate::error_chain::error_chain;
use crate::handoff::depot::TextFile;
use crate::ids::StoryKey;
use crate::ids::{AttemptId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::protocol::acp::machine::{RecordOutcome, Session};
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage, Envelope, TaskRequest, encode_task_request};
use crate::swarm::{ContainerExit, Event, MachineryFault};
use crate::verdict::{Cause, Evidence};
use crate::wire::{LineSplitter, WireLine};

use super::CoordinatorError;
use super::admission::Admission;
use super::carry_out;
use super::create::create_container;
use super::engine_monitor::EngineMonitor;
use super::event_queue::EventSender;
use super::mailbox::{MailboxHandle, SandboxExit, SandboxSeat};
use super::memory::DispatchContext;
use super::objects_volume::ObjectsVolume;
use super::sandbox_log::SandboxLog;

/// How long the streams may stay open after the container ended: something may hold a copy of their other end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// From the end of the streams of a container that goes on to their being read again.
const REREAD_DELAY: Duration = Duration::from_secs(1);
/// How long the reading of what was missed may take, once a container has ended.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// What one sandbox is made of.
pub(super) struct SessionSpec {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    pub file: u16,
    pub stories: Vec<StoryId>,
    /// The branch that `base` is on.
    pub base_branch: BranchName,
    pub base: CommitId,
    pub uid: u32,
    /// Its agent's place in the mailbox.
    pub seat: Option<SandboxSeat>,
    pub container: ContainerSpec,
    pub files: Vec<TextFile>,
    /// The dispatch, as a frame; none for a reviewer's sandbox.
    pub dispatch: Option<DispatchContext>,
    pub request: TaskRequest,
    pub log_path: PathBuf,
    /// What is under review, to be written down for people.
    pub review_diff: Option<ReviewDiff>,
    pub origin: SessionOrigin,
}

/// A difference between two commits, and where it is to be written.
pub(super) struct ReviewDiff {
    pub path: PathBuf,
    pub from: CommitId,
    pub to: CommitId,
}

/// Where a session begins.
pub(super) enum SessionOrigin {
    /// Nothing of this attempt is there.
    Fresh,
    /// An orchestrator that is gone was making it, and may have got as far as this container.
    Interrupted { container: Option<ContainerId> },
    /// The sandbox ran under an orchestrator that is gone, which had taken in its first `applied` records.
    Adopted { container: ContainerId, applied: u64 },
}

/// What a session works with.
pub(super) struct SessionContext {
    pub engine: Arc<dyn Engine>,
    pub depot: DepotClient,
    pub objects: Arc<ObjectsVolume>,
    pub repo: Repo,
    pub events: EventSender,
    pub engine_monitor: EngineMonitor,
    pub admission: Arc<Admission>,
    /// Reconciliation does not see the container run.
    pub inspect_requested: Arc<Notify>,
    /// The agents' mailbox.
    pub mailbox: Option<MailboxHandle>,
    pub stop_signal: watch::Receiver<Option<Signal>>,
}

impl SessionContext {
    /// The mailbox is told of the sandbox's end.
    fn report_exit(&self, job: &SessionSpec, how: SandboxExit) {
        if let (Some(mail), Some(seat)) = (&self.mailbox, &job.seat) {
            mail.report_exit(&seat.seat.agent, how);
        }
    }
}

/// Runs it to its end. Posts exactly one of `StartFailed` and `SandboxEnded`, as its last event.
pub(super) async fn run(job: SessionSpec, mut tools: SessionContext) {
    let attempt = job.attempt.clone();
    match start_or_adopt(&job, &mut tools).await {
        Ok(StartedSandbox { container, streams, applied_records: applied }) => {
            let conversation = OutputReader::new(&job, &container, applied, tools.engine_monitor.outage_count());
            let _running = tools.admission.track_running();
            let exit = conversation.read_to_end(&mut tools, streams).await;
            tools.events.send(Event::SandboxEnded { attempt, exit }).await;
        }
        Err(fault) => {
            tools.report_exit(&job, SandboxExit::Normal);
            tools.events.send(Event::StartFailed { attempt, fault: *fault }).await;
        }
    }
}

/// A sandbox that runs, or has run.
struct StartedSandbox {
    container: ContainerId,
    /// Its streams from their beginning; none where the engine does not have them any more.
    streams: Option<AttachedStreams>,
    /// How many of its records the journal has.
    applied_records: u64,
}

async fn start_or_adopt(job: &SessionSpec, tools: &mut SessionContext) -> Result<StartedSandbox, Box<MachineryFault>> {
    match &job.origin {
        SessionOrigin::Fresh => start_sandbox(job, tools).await,
        SessionOrigin::Adopted { container, applied } => Ok(adopt(tools, container.clone(), *applied).await),
        SessionOrigin::Interrupted { container } => {
            if let Some(container) = container
                && let Some(begun) = resume_container(job, tools, container).await?
            {
                return Ok(begun);
            }
            // Nothing has run in it: its folders are as they were made, or half made.
            let discarded = tools.depot.remove_sandbox_dirs(&job.attempt.dir_name(), job.uid).await;
            discarded.map_err(|error| Box::new(engine_fault(&error)))?;
            start_sandbox(job, tools).await
        }
    }
}

/// Goes on with a container that an orchestrator made before it died; none where there is none. What may have run is never told
/// as not started: its work would go.
async fn resume_container(
    job: &SessionSpec,
    tools: &mut SessionContext,
    container: &ContainerId,
) -> Result<Option<StartedSandbox>, Box<MachineryFault>> {
    let seen = loop {
        match tools.engine.inspect(container).await {
            Ok(seen) => break seen,
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot see what became of a sandbox");
                tools.engine_monitor.wait_until_available().await;
            }
        }
    };
    let Some(seen) = seen else { return Ok(None) };
    let attempt = job.attempt.clone();
    let name = job.container.name.clone();
    tools.events.send(Event::SandboxCreated { attempt: attempt.clone(), container: container.clone(), name }).await;
    if seen.never_started {
        return start_container(job, tools, container.clone()).await.map(Some);
    }
    if seen.running {
        // It may wait for a task-request that was never written; then it ends by itself. One that has had it reads no second.
        match tools.engine.attach(container).await {
            Ok(mut attachment) => {
                if let Err(fault) = send_task_request(job, container, &mut attachment).await {
                    tracing::warn!(container = %container.short(), fault = fault.evidence.summary, "a sandbox was not told its task again");
                }
            }
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), "a sandbox was not told its task again");
            }
        }
    }
    tools.events.send(Event::SandboxStarted { attempt }).await;
    Ok(Some(adopt(tools, container.clone(), 0).await))
}

/// Takes up a sandbox by what the engine kept of its output, from the beginning: attaching would miss what was said meanwhile.
async fn adopt(tools: &SessionContext, container: ContainerId, applied: u64) -> StartedSandbox {
    let streams = match tools.engine.logs(&container, true).await {
        Ok(output) => Some(AttachedStreams { stdin: Box::pin(tokio::io::sink()), output }),
        Err(error) => {
            tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot read what a sandbox said");
            None
        }
    };
    StartedSandbox { container, streams, applied_records: applied }
}

async fn send_task_request(
    job: &SessionSpec,
    container: &ContainerId,
    attachment: &mut AttachedStreams,
) -> Result<(), Box<MachineryFault>> {
    let envelope = Envelope { timestamp: Timestamp::now(), swarm_id: job.swarm, container_id: container.clone() };
    let mut line = encode_task_request(&envelope, &job.request)
        .map_err(|error| Box::new(MachineryFault::new(Cause::HostError, error_chain(&error), false)))?;
    line.push(b'\n');
    let lost = |error: std::io::Error| {
        Box::new(MachineryFault::new(Cause::ConnectionLost, format!("cannot write the task-request: {error}"), true))
    };
    attachment.stdin.write_all(&line).await.map_err(lost)?;
    attachment.stdin.flush().await.map_err(lost)
}

/// Everything up to the written task-request. On a failure the container, if there is one, is removed.
async fn start_sandbox(job: &SessionSpec, tools: &mut SessionContext) -> Result<StartedSandbox, Box<MachineryFault>> {
    check_not_stopped(tools)?;
    let admitted = tools.admission.admit(&tools.depot, &job.attempt, &tools.events, &mut tools.stop_signal).await;
    admitted.map_err(|error| Box::new(engine_fault(&error)))?;
    check_not_stopped(tools)?;
    if let Some(diff) = &job.review_diff {
        carry_out::write_review_diff(&tools.repo, diff).await?;
    }
    tools.objects.ensure(&tools.depot, &tools.repo, &job.base_branch, &job.base).await.map_err(
        |error| match error {
            CoordinatorError::Engine(error) => Box::new(engine_fault(&error)),
            other => Box::new(MachineryFault::new(Cause::HostError, error_chain(&other), true)),
        },
    )?;
    let mut files = job.files.clone();
    if let Some(handed) = job.dispatch.clone() {
        // What others learned is merged here, and not on the loop.
        let made = tokio::task::spawn_blocking(move || handed.to_file(Timestamp::now())).await;
        let lost = |error| Box::new(MachineryFault::new(Cause::HostError, error_chain(&error), true));
        files.push(made.map_err(lost)??);
    }
    tools
        .depot
        .prepare_sandbox_dirs(&job.attempt.dir_name(), job.uid, files)
        .await
        .map_err(|error| Box::new(engine_fault(&error)))?;
    if let (Some(mail), Some(seat)) = (&tools.mailbox, &job.seat) {
        mail.seat_agent(seat).await.map_err(|error| Box::new(engine_fault(&error)))?;
    }
    let container = create_container(tools.engine.as_ref(), &job.container)
        .await
        .map_err(|error| Box::new(create_fault(&error, &job.container)))?;
    tools
        .events
        .send(Event::SandboxCreated {
            attempt: job.attempt.clone(),
            container: container.clone(),
            name: job.container.name.clone(),
        })
        .await;
    start_container(job, tools, container).await
}

/// Attaches to a container in which nothing has run, starts it, and writes the task-request. On a failure it is removed.
async fn start_container(
    job: &SessionSpec,
    tools: &SessionContext,
    container: ContainerId,
) -> Result<StartedSandbox, Box<MachineryFault>> {
    let begun = async {
        check_not_stopped(tools)?;
        let mut attachment = tools.engine.attach(&container).await.map_err(|error| Box::new(engine_fault(&error)))?;
        tools.engine.start(&container).await.map_err(|error| Box::new(engine_fault(&error)))?;
        send_task_request(job, &container, &mut attachment).await?;
        Ok(attachment)
    }
    .await;
    match begun {
        Ok(attachment) => {
            tools.events.send(Event::SandboxStarted { attempt: job.attempt.clone() }).await;
            Ok(StartedSandbox { container, streams: Some(attachment), applied_records: 0 })
        }
        Err(fault) => {
            if let Err(error) = tools.engine.remove(&container).await {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), "a sandbox that did not start is still there");
            }
            Err(fault)
        }
    }
}

/// Whether a stop came before anything was started.
fn check_not_stopped(tools: &SessionContext) -> Result<(), Box<MachineryFault>> {
    match *tools.stop_signal.borrow() {
        Some(_) => {
            Err(Box::new(MachineryFault::new(Cause::StoppedByUser, "stopped before the sandbox was started", false)))
        }
        None => Ok(()),
    }
}

/// The reading side of a running sandbox.
struct OutputReader<'a> {
    spec: &'a SessionSpec,
    container: &'a ContainerId,
    lines: LineSplitter,
    session: Session,
    /// Records up to this one are in the journal already.
    applied_records: u64,
    log: SandboxLog,
    /// How often the engine had gone away when it began.
    outages_at_start: u64,
    /// Whether the streams ended early.
    stream_lost: bool,
    /// Its last word is that it was told to stop.
    reported_stopped: bool,
}

impl<'a> OutputReader<'a> {
    fn new(job: &'a SessionSpec, container: &'a ContainerId, applied: u64, losses: u64) -> Self {
        let mut log = SandboxLog::open(&job.log_path, &job.attempt);
        if !matches!(job.origin, SessionOrigin::Fresh) {
            log.note("taken up again: what follows is the sandbox's output from its beginning");
        }
        Self {
            spec: job,
            container,
            lines: LineSplitter::new(),
            session: Session::new(job.swarm, container.clone(), &job.stories),
            applied_records: applied,
            log,
            outages_at_start: losses,
            stream_lost: false,
            reported_stopped: false,
        }
    }

    /// What comes now is the sandbox's output from its beginning: what was taken in of it is skipped.
    fn restart_from_beginning(&mut self) {
        self.applied_records = self.applied_records.max(self.session.record_count());
        self.lines = LineSplitter::new();
        self.session = Session::new(self.spec.swarm, self.container.clone(), &self.spec.stories);
        self.log.note("the streams were lost: what follows is the sandbox's output from its beginning");
    }

    /// Reads until the container ended and its streams are drained. `wait` is the truth about the end; the end of a stream is not.
    async fn read_to_end(mut self, tools: &mut SessionContext, streams: Option<AttachedStreams>) -> ContainerExit {
        let mut open = streams.is_some();
        let (input, mut output) = match streams {
            Some(AttachedStreams { stdin: input, output }) => (Some(input), output),
            None => (None, futures::stream::pending().boxed()),
        };
        let engine = Arc::clone(&tools.engine);
        let container = self.container.clone();
        // None where the engine did not have them at once.
        let mut read_again = (!open).then(Instant::now);
        self.stream_lost = !open;
        let waiting = wait_for_exit(engine.as_ref(), &container, tools.engine_monitor.clone());
        tokio::pin!(waiting);
        let ended = loop {
            tokio::select! {
                ended = &mut waiting => break ended,
                chunk = output.next(), if open => match chunk {
                    Some(Ok(chunk)) => self.handle_chunk(chunk, &tools.events).await,
                    Some(Err(error)) => {
                        tracing::warn!(attempt = %self.spec.attempt, error = %error_chain(&error), "lost a sandbox's streams");
                        (open, self.stream_lost) = (false, true);
                        read_again = Some(Instant::now() + REREAD_DELAY);
                    }
                    // Mostly the container's end is next.
                    None => {
                        open = false;
                        read_again = Some(Instant::now() + REREAD_DELAY);
                    }
                },
                () = super::run::sleep_until_deadline(read_again) => {
                    self.stream_lost = true;
                    match engine.logs(&container, true).await {
                        Ok(stream) => {
                            self.restart_from_beginning();
                            (output, open, read_again) = (stream, true, None);
                        }
                        Err(_) => read_again = Some(Instant::now() + REREAD_DELAY),
                    }
                }
                () = tools.inspect_requested.notified() => match engine.inspect(&container).await {
                    Ok(None) => break Err(EngineError::NotFound {
                        operation: "looking for a container",
                        subject: container.to_string(),
                    }),
                    Ok(Some(seen)) if !seen.running && !seen.never_started => {
                        break Ok(seen.exit_code.unwrap_or_default());
                    }
                    _ => {}
                },
                changed = tools.stop_signal.changed() => {
                    let signal = *tools.stop_signal.borrow_and_update();
                    if let (Ok(()), Some(signal)) = (changed, signal) {
                        // In a task of its own: a signal may hang on a container whose output nobody reads.
                        let engine = Arc::clone(&tools.engine);
                        tokio::spawn(send_signal(engine, container.clone(), signal, tools.engine_monitor.clone()));
                    }
                }
            }
        };
        let by_itself = tools.stop_signal.borrow().is_none();
        let crashed = by_itself && !matches!(ended, Ok(0));
        // At once: others may be waiting for it to say something.
        tools.report_exit(self.spec, if crashed { SandboxExit::Crashed } else { SandboxExit::Normal });
        let drained = async {
            while open {
                match output.next().await {
                    Some(Ok(chunk)) => self.handle_chunk(chunk, &tools.events).await,
                    other => {
                        open = false;
                        self.stream_lost |= other.is_some();
                    }
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
        self.read_missed_output(tools).await;
        if let Some(line) = self.lines.finish() {
            self.handle_line(line, &tools.events).await;
        }
        drop((input, output));
        self.into_exit(ended, tools).await
    }

    /// Reads what the engine kept, where the streams may have ended before the sandbox's last word.
    async fn read_missed_output(&mut self, tools: &mut SessionContext) {
        if self.session.is_completed()
            || !(self.stream_lost || self.outages_at_start != tools.engine_monitor.outage_count())
        {
            return;
        }
        let Ok(mut output) = tools.engine.logs(self.container, false).await else { return };
        self.restart_from_beginning();
        let reading = async {
            while let Some(Ok(chunk)) = output.next().await {
                self.handle_chunk(chunk, &tools.events).await;
            }
        };
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, reading).await;
    }

    /// The exit evidence. A clean end needs no further question to the engine.
    async fn into_exit(self, ended: Result<i64, EngineError>, tools: &mut SessionContext) -> ContainerExit {
        let tail = self.log.tail();
        // An engine that ends takes its containers along, and tells of that before it is seen to be gone.
        let clean = matches!(ended, Ok(0)) && self.session.is_completed();
        // A stop waits for no engine, and need not know more of a clean end.
        let hurried = || tools.stop_signal.borrow().is_some();
        let mut seen = None;
        let mut engine_lost = false;
        while !clean || self.reported_stopped && !hurried() {
            match tools.engine.inspect(self.container).await {
                Err(error) if error.is_unreachable() && !hurried() => {
                    engine_lost = true;
                    tools.engine_monitor.wait_until_available().await;
                }
                other => {
                    seen = other.ok().flatten();
                    break;
                }
            }
        }
        engine_lost |=
            self.outages_at_start != tools.engine_monitor.outage_count() && tools.engine_monitor.recently_unavailable();
        let memory = tools.engine_monitor.ran_out_of_memory(self.container.as_str());
        match ended {
            Ok(0) if clean => {
                ContainerExit { code: Some(0), engine_lost, stderr_tail: tail, ..ContainerExit::default() }
            }
            Ok(code) => {
                let (oom_killed, error) = seen.map_or((false, String::new()), |seen| (seen.oom_killed, seen.error));
                // The event alone may be about a process that the sandbox outlived.
                let oom_killed = oom_killed || memory && code == 137;
                ContainerExit {
                    code: Some(code),
                    oom_killed,
                    engine_lost,
                    error,
                    stderr_tail: tail,
                    ..ContainerExit::default()
                }
            }
            Err(error) => ContainerExit {
                vanished: true,
                engine_lost,
                error: error_chain(&error),
                stderr_tail: tail,
                ..ContainerExit::default()
            },
        }
    }

    async fn handle_chunk(&mut self, chunk: OutputChunk, postbox: &EventSender) {
        match chunk {
            OutputChunk::Stderr(bytes) => self.log.write(&bytes),
            OutputChunk::Stdout(bytes) => {
                self.lines.push(bytes);
                while let Some(line) = self.lines.next_line() {
                    self.handle_line(line, postbox).await;
                }
            }
        }
    }

    async fn handle_line(&mut self, line: WireLine, postbox: &EventSender) {
        let attempt = self.spec.attempt.clone();
        let taken = self.session.handle_line(line);
        let record = self.session.record_count();
        if record <= self.applied_records {
            return;
        }
        let event = match taken {
            RecordOutcome::Accepted(ContainerMessage::Progress(update)) => Event::StoryReported {
                attempt,
                record_number: record,
                story: StoryKey { file: self.spec.file, id: update.story_id },
                status: update.status,
                output: update.output,
            },
            RecordOutcome::Accepted(ContainerMessage::Completion(end)) => {
                self.reported_stopped = end.status == CompletionStatus::Stopped;
                Event::CompletionReported { attempt, record_number: record, status: end.status, errors: end.errors }
            }
            RecordOutcome::Accepted(ContainerMessage::Error(error)) => Event::ErrorReported {
                attempt,
                record_number: record,
                code: error.code.to_string(),
                message: error.message,
            },
            RecordOutcome::Rejected(bad) => {
                let reason = bad.to_string();
                self.log.note(&format!("bad record {record}: {reason}"));
                Event::RecordRefused { attempt, record_number: record, reason }
            }
        };
        postbox.send(event).await;
    }
}

/// Waits for the exit code, whatever the engine says, but that there is no such container.
async fn wait_for_exit(
    engine: &dyn Engine,
    container: &ContainerId,
    mut presence: EngineMonitor,
) -> Result<i64, EngineError> {
    loop {
        match engine.wait(container).await {
            Err(error @ EngineError::NotFound { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), "waiting for a sandbox failed; asking again");
                presence.wait_until_available().await;
            }
            Ok(code) => return Ok(code),
        }
    }
}

/// Signals a sandbox; an engine that is away is waited for.
async fn send_signal(engine: Arc<dyn Engine>, container: ContainerId, signal: Signal, mut presence: EngineMonitor) {
    while let Err(error) = engine.signal(&container, signal).await {
        if !error.is_unreachable() {
            tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot signal a sandbox");
            return;
        }
        presence.wait_until_available().await;
    }
}

/// What an engine's error means for an attempt.
pub(super) fn engine_fault(error: &EngineError) -> MachineryFault {
    use crate::handoff::depot::DepotErrorKind;
    let cause = match error {
        EngineError::DiskFull { .. } | EngineError::Depot { kind: Some(DepotErrorKind::DiskFull), .. } => {
            Cause::DiskFull
        }
        _ => Cause::EngineError,
    };
    let retryable = match error {
        // Without a kind it died, and is started again.
        EngineError::Depot { kind, .. } => matches!(kind, None | Some(DepotErrorKind::Failed)),
        other => other.is_retryable(),
    };
    MachineryFault {
        cause,
        evidence: Evidence::from_summary(error_chain(error)),
        retryable,
        engine_unreachable: error.is_unreachable(),
    }
}

fn create_fault(error: &EngineError, container: &ContainerSpec) -> MachineryFault {
    match error {
        EngineError::NotFound { .. } => {
            MachineryFault::new(Cause::ImageMissing, format!("the image `{}` is not there", container.image), false)
        }
        other => engine_fault(other),
    }
}
