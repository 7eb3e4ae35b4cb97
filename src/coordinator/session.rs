//! One sandbox, from its directories to its exit: prepare, create, attach, start, send the task-request, then read its output until
//! it ends. One task a sandbox; it sends events to the loop and receives signals through a channel of its own. Spawned by
//! `effects.rs`. Must not: decide what an event means, or wait for another sandbox.

use jiff::Timestamp;
use tokio::io::AsyncWriteExt;

use crate::engine::{AttachedStreams, EngineError};
use crate::error_chain::error_chain;
use crate::ids::ContainerId;
use crate::protocol::acp::message::{Envelope, encode_task_request};
use crate::swarm::{Event, MachineryFault};
use crate::verdict::Cause;

use super::attempt::SessionControl;
use super::error::CoordinatorError;
use super::fault::{create_fault, engine_fault};
use super::mailbox::SandboxExit;
use super::output_reader::OutputReader;
use super::session_context::SessionContext;
use super::start::create_container::create_container;
use super::start::sandbox_spec::SandboxSpec;

/// Where a session begins.
pub(super) enum SessionOrigin {
    /// Nothing of this attempt exists.
    Fresh,
    /// A dead orchestrator was starting the attempt, and may have created this container.
    Interrupted { container: Option<ContainerId> },
    /// The sandbox ran under a dead orchestrator, which had applied its first `applied_records` records.
    Adopted { container: ContainerId, applied_records: u64 },
}

/// One sandbox's session.
pub(super) struct SandboxSession {
    pub spec: SandboxSpec,
    pub context: SessionContext,
    pub control: SessionControl,
}

/// A sandbox that runs, or has run.
struct StartedSandbox {
    container: ContainerId,
    /// Its streams from their beginning; `None` if the engine does not have them any more.
    streams: Option<AttachedStreams>,
    /// The number of its records that are in the journal.
    applied_records: u64,
}

/// Why a sandbox did not start.
struct StartError(Box<MachineryFault>);

type StartResult<T> = Result<T, StartError>;

impl From<MachineryFault> for StartError {
    fn from(fault: MachineryFault) -> Self {
        Self(Box::new(fault))
    }
}

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> Self {
        engine_fault(&error).into()
    }
}

impl From<CoordinatorError> for StartError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Engine(error) => error.into(),
            other => MachineryFault::new(Cause::HostError, error_chain(&other), true).into(),
        }
    }
}

impl SandboxSession {
    /// Runs the sandbox to its end. The last event is either `StartFailed` or `SandboxEnded`, and only one of them is sent.
    pub async fn run(mut self, origin: SessionOrigin) {
        let attempt = self.spec.context.attempt.clone();
        let resumed = !matches!(origin, SessionOrigin::Fresh);
        match self.start_or_adopt(origin).await {
            Ok(StartedSandbox { container, streams, applied_records }) => {
                let _running = self.context.admission.track_running();
                let reader = OutputReader::new(
                    &self.spec,
                    &self.context,
                    &mut self.control,
                    container,
                    applied_records,
                    resumed,
                );
                let exit = reader.read_to_end(streams).await;
                self.context.events.send(Event::SandboxEnded { attempt, exit }).await;
            }
            Err(StartError(fault)) => {
                self.context.report_exit(&self.spec, SandboxExit::Normal);
                self.context.events.send(Event::StartFailed { attempt, fault: *fault }).await;
            }
        }
    }

    async fn start_or_adopt(&mut self, origin: SessionOrigin) -> StartResult<StartedSandbox> {
        match origin {
            SessionOrigin::Fresh => {}
            SessionOrigin::Adopted { container, applied_records } => {
                return Ok(self.adopt(container, applied_records).await);
            }
            SessionOrigin::Interrupted { container } => {
                if let Some(container) = container
                    && let Some(started) = self.resume_container(container).await?
                {
                    return Ok(started);
                }
                // No container has run: the directories are new or half made.
                let attempt = &self.spec.context;
                self.context.depot.remove_sandbox_dirs(&attempt.attempt.dir_name(), attempt.uid).await?;
            }
        }
        self.start_sandbox().await
    }

    /// Continues with a container that a dead orchestrator created; `None` if it does not exist. A container that may have run
    /// never counts as not started: its work would be lost.
    async fn resume_container(&mut self, container: ContainerId) -> StartResult<Option<StartedSandbox>> {
        let engine = &self.context.engine;
        let inspection = self.context.engine_monitor.retry(|_| true, || engine.inspect(&container)).await?;
        let Some(inspection) = inspection else { return Ok(None) };
        self.report_created(&container).await;
        if inspection.never_started {
            return self.start_container(container).await.map(Some);
        }
        if inspection.running {
            // It may wait for a task-request that was never written. If it has one already, it ignores the second.
            let sent = async {
                let mut streams = engine.attach(&container).await?;
                self.send_task_request(&container, &mut streams).await
            };
            if let Err(StartError(fault)) = sent.await {
                tracing::warn!(container = %container.short(), fault = fault.evidence.summary, "cannot send the task-request again");
            }
        }
        self.context.events.send(Event::SandboxStarted { attempt: self.spec.context.attempt.clone() }).await;
        Ok(Some(self.adopt(container, 0).await))
    }

    /// Adopts a sandbox with the output that the engine stored, from the beginning: attaching would miss earlier output.
    async fn adopt(&self, container: ContainerId, applied_records: u64) -> StartedSandbox {
        let streams = match self.context.engine.logs(&container, true).await {
            Ok(output) => Some(AttachedStreams { stdin: Box::pin(tokio::io::sink()), output }),
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot read a sandbox's output");
                None
            }
        };
        StartedSandbox { container, streams, applied_records }
    }

    /// Everything up to the written task-request.
    async fn start_sandbox(&mut self) -> StartResult<StartedSandbox> {
        self.check_not_stopped()?;
        let SessionContext { depot, repo, objects, events, admission, mailbox, engine, .. } = &self.context;
        let attempt = &self.spec.context;
        admission.admit(depot, &attempt.attempt, events, &mut self.control.stop_signal).await?;
        self.check_not_stopped()?;
        if let Some(diff) = &self.spec.review_diff {
            diff.write(repo).await.map_err(StartError)?;
        }
        objects.ensure(depot, repo, &self.spec.base_branch, &attempt.base).await?;
        if let Some((branch, head)) = &self.spec.merge_head {
            objects.ensure(depot, repo, branch, head).await?;
        }
        let mut files = self.spec.files.clone();
        if let Some(dispatch) = self.spec.dispatch.clone() {
            // Merging the memory takes a while.
            let file = tokio::task::spawn_blocking(move || dispatch.to_file(Timestamp::now())).await;
            let file = file.map_err(|error| MachineryFault::new(Cause::HostError, error_chain(&error), true))?;
            files.push(file.map_err(StartError)?);
        }
        depot.prepare_sandbox_dirs(&attempt.attempt.dir_name(), attempt.users(), files).await?;
        if let (Some(mailbox), Some(seat)) = (mailbox, &self.spec.seat) {
            mailbox.seat_agent(seat).await?;
        }
        let container = create_container(engine.as_ref(), &self.spec.container)
            .await
            .map_err(|error| create_fault(&error, &self.spec.container))?;
        self.report_created(&container).await;
        self.start_container(container).await
    }

    async fn report_created(&self, container: &ContainerId) {
        let event = Event::SandboxCreated {
            attempt: self.spec.context.attempt.clone(),
            container: container.clone(),
            name: self.spec.container.name.clone(),
        };
        self.context.events.send(event).await;
    }

    /// Attaches to a new container, starts it, and writes the task-request. If that fails, the container is removed.
    async fn start_container(&self, container: ContainerId) -> StartResult<StartedSandbox> {
        let engine = &self.context.engine;
        let started = async {
            self.check_not_stopped()?;
            let mut streams = engine.attach(&container).await?;
            engine.start(&container).await?;
            self.send_task_request(&container, &mut streams).await?;
            Ok(streams)
        };
        match started.await {
            Ok(streams) => {
                self.context.events.send(Event::SandboxStarted { attempt: self.spec.context.attempt.clone() }).await;
                Ok(StartedSandbox { container, streams: Some(streams), applied_records: 0 })
            }
            Err(fault) => {
                if let Err(error) = engine.remove(&container).await {
                    tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot remove a sandbox that did not start");
                }
                Err(fault)
            }
        }
    }

    async fn send_task_request(&self, container: &ContainerId, streams: &mut AttachedStreams) -> StartResult<()> {
        let swarm_id = self.spec.context.swarm;
        let envelope = Envelope { timestamp: Timestamp::now(), swarm_id, container_id: container.clone() };
        let mut line = encode_task_request(&envelope, &self.spec.request)
            .map_err(|error| MachineryFault::new(Cause::HostError, error_chain(&error), false))?;
        line.push(b'\n');
        let write = async {
            streams.stdin.write_all(&line).await?;
            streams.stdin.flush().await
        };
        write.await.map_err(|error| {
            let summary = format!("cannot write the task-request: {error}");
            MachineryFault::new(Cause::ConnectionLost, summary, true).into()
        })
    }

    fn check_not_stopped(&self) -> StartResult<()> {
        match *self.control.stop_signal.borrow() {
            None => Ok(()),
            Some(_) => {
                let summary = "stopped before the sandbox was started";
                Err(MachineryFault::new(Cause::StoppedByUser, summary, false).into())
            }
        }
    }
}
