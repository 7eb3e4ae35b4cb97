//! Reads a running sandbox's output until it ends: ACP records become events, stderr goes to the log, and the end becomes a
//! [`ContainerExit`]. Called by `session.rs`. Must not: take the end of a stream for the end of the sandbox.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use crate::engine::{AttachedStreams, Engine, EngineError, EngineResult, OutputChunk, Signal};
use crate::error_chain::error_chain;
use crate::ids::{ContainerId, StoryId, StoryKey};
use crate::protocol::acp::machine::{RecordOutcome, Session as AcpSession};
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage};
use crate::swarm::{ContainerExit, Event};
use crate::wire::{LineSplitter, WireLine};

use super::attempt::SessionControl;
use super::engine_monitor::EngineMonitor;
use super::mailbox::SandboxExit;
use super::runtime::sleep_until_deadline;
use super::sandbox_log::SandboxLog;
use super::session_context::SessionContext;
use super::start::sandbox_spec::SandboxSpec;

/// How long the streams may stay open after the container ended: another process may hold a copy of their other end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between the end of a running container's streams and reading them again.
const REREAD_DELAY: Duration = Duration::from_secs(1);
/// How long reading the missed output of an ended container may take.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// The reading side of a running sandbox.
pub(super) struct OutputReader<'a> {
    spec: &'a SandboxSpec,
    context: &'a SessionContext,
    control: &'a mut SessionControl,
    engine_monitor: EngineMonitor,
    container: ContainerId,
    lines: LineSplitter,
    session: AcpSession,
    /// Records up to this number are in the journal already.
    applied_records: u64,
    log: SandboxLog,
    /// The number of engine outages at the start.
    outages_at_start: u64,
    /// Whether the streams ended early.
    stream_lost: bool,
    /// Whether the sandbox completed as stopped.
    reported_stopped: bool,
}

impl<'a> OutputReader<'a> {
    pub fn new(
        spec: &'a SandboxSpec,
        context: &'a SessionContext,
        control: &'a mut SessionControl,
        container: ContainerId,
        applied_records: u64,
        resumed: bool,
    ) -> Self {
        let mut log = SandboxLog::open(&spec.log_path, &spec.context.attempt);
        if resumed {
            log.note("resumed: the sandbox's output follows from its beginning");
        }
        Self {
            session: new_acp_session(spec, &container),
            spec,
            context,
            control,
            engine_monitor: context.engine_monitor.clone(),
            container,
            lines: LineSplitter::new(),
            applied_records,
            log,
            outages_at_start: context.engine_monitor.outage_count(),
            stream_lost: false,
            reported_stopped: false,
        }
    }

    /// Prepares for the sandbox's output from its beginning: records that were applied before are skipped.
    fn restart_from_beginning(&mut self) {
        self.applied_records = self.applied_records.max(self.session.record_count());
        self.lines = LineSplitter::new();
        self.session = new_acp_session(self.spec, &self.container);
        self.log.note("the streams were lost: the sandbox's output follows from its beginning");
    }

    /// Reads until the container has ended and its streams are drained. Only the engine's `wait` decides that it has ended.
    pub async fn read_to_end(mut self, streams: Option<AttachedStreams>) -> ContainerExit {
        let mut open = streams.is_some();
        // Standard input stays open as long as the sandbox runs.
        let (stdin, mut output) = match streams {
            Some(AttachedStreams { stdin, output }) => (Some(stdin), output),
            None => (None, futures::stream::pending().boxed()),
        };
        let engine = Arc::clone(&self.context.engine);
        let container = self.container.clone();
        let mut reread_at = (!open).then(Instant::now);
        self.stream_lost = !open;
        let exit = wait_for_exit(engine.as_ref(), &container, self.engine_monitor.clone());
        tokio::pin!(exit);
        let exit_code = loop {
            tokio::select! {
                exit_code = &mut exit => break exit_code,
                chunk = output.next(), if open => match chunk {
                    Some(Ok(chunk)) => self.handle_chunk(chunk).await,
                    other => {
                        if let Some(Err(error)) = other {
                            tracing::warn!(attempt = %self.spec.context.attempt, error = %error_chain(&error), "lost a sandbox's streams");
                            self.stream_lost = true;
                        }
                        // Usually the container's end comes next.
                        open = false;
                        reread_at = Some(Instant::now() + REREAD_DELAY);
                    }
                },
                () = sleep_until_deadline(reread_at) => {
                    self.stream_lost = true;
                    match engine.logs(&container, true).await {
                        Ok(stream) => {
                            self.restart_from_beginning();
                            (output, open, reread_at) = (stream, true, None);
                        }
                        Err(_) => reread_at = Some(Instant::now() + REREAD_DELAY),
                    }
                }
                () = self.control.inspect_requested.notified() => match engine.inspect(&container).await {
                    Ok(None) => break Err(EngineError::NotFound {
                        operation: "looking for a container",
                        subject: container.to_string(),
                    }),
                    Ok(Some(inspection)) if !inspection.running && !inspection.never_started => {
                        break Ok(inspection.exit_code.unwrap_or_default());
                    }
                    _ => {}
                },
                changed = self.control.stop_signal.changed() => {
                    let signal = *self.control.stop_signal.borrow_and_update();
                    if let (Ok(()), Some(signal)) = (changed, signal) {
                        // In a task of its own: the call may hang on a container whose output nobody reads.
                        let monitor = self.engine_monitor.clone();
                        tokio::spawn(send_signal(Arc::clone(&engine), container.clone(), signal, monitor));
                    }
                }
            }
        };
        let crashed = !self.is_stopping() && !matches!(exit_code, Ok(0));
        // Reported at once: other agents may be waiting for this one.
        self.context.report_exit(self.spec, if crashed { SandboxExit::Crashed } else { SandboxExit::Normal });
        let drain = async {
            while open {
                match output.next().await {
                    Some(Ok(chunk)) => self.handle_chunk(chunk).await,
                    other => {
                        open = false;
                        self.stream_lost |= other.is_some();
                    }
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
        self.read_missed_output().await;
        if let Some(line) = self.lines.finish() {
            self.handle_line(line).await;
        }
        drop((stdin, output));
        self.into_exit(exit_code).await
    }

    fn is_stopping(&self) -> bool {
        self.control.stop_signal.borrow().is_some()
    }

    fn had_outage(&self) -> bool {
        self.outages_at_start != self.engine_monitor.outage_count()
    }

    /// Reads the output that the engine stored, if the streams may have ended before the sandbox's last record.
    async fn read_missed_output(&mut self) {
        if self.session.is_completed() || !(self.stream_lost || self.had_outage()) {
            return;
        }
        let Ok(mut output) = self.context.engine.logs(&self.container, false).await else { return };
        self.restart_from_beginning();
        let read = async {
            while let Some(Ok(chunk)) = output.next().await {
                self.handle_chunk(chunk).await;
            }
        };
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, read).await;
    }

    /// The evidence of the exit. A clean exit is not inspected.
    async fn into_exit(mut self, exit_code: EngineResult<i64>) -> ContainerExit {
        let clean = matches!(exit_code, Ok(0)) && self.session.is_completed();
        let mut inspection = None;
        let mut engine_lost = false;
        // An engine that shuts down stops its containers before its absence is noticed: a sandbox that reported a stop which
        // nobody requested is inspected too. During a stop nobody waits for the engine.
        while !clean || self.reported_stopped && !self.is_stopping() {
            match self.context.engine.inspect(&self.container).await {
                Err(error) if error.is_unreachable() && !self.is_stopping() => {
                    engine_lost = true;
                    self.engine_monitor.wait_until_available().await;
                }
                other => {
                    inspection = other.ok().flatten();
                    break;
                }
            }
        }
        engine_lost |= self.had_outage() && self.engine_monitor.recently_unavailable();
        let out_of_memory = self.engine_monitor.ran_out_of_memory(self.container.as_str());
        let exit = ContainerExit { engine_lost, stderr_tail: self.log.tail(), ..ContainerExit::default() };
        match exit_code {
            Ok(0) if clean => ContainerExit { code: Some(0), ..exit },
            Ok(code) => {
                let (oom_killed, error) =
                    inspection.map_or((false, String::new()), |seen| (seen.oom_killed, seen.error));
                // The event alone may be about a process that the sandbox survived.
                let oom_killed = oom_killed || out_of_memory && code == 137;
                ContainerExit { code: Some(code), oom_killed, error, ..exit }
            }
            Err(error) => ContainerExit { vanished: true, error: error_chain(&error), ..exit },
        }
    }

    async fn handle_chunk(&mut self, chunk: OutputChunk) {
        match chunk {
            OutputChunk::Stderr(bytes) => self.log.write(&bytes),
            OutputChunk::Stdout(bytes) => {
                self.lines.push(bytes);
                while let Some(line) = self.lines.next_line() {
                    self.handle_line(line).await;
                }
            }
        }
    }

    async fn handle_line(&mut self, line: WireLine) {
        let attempt = self.spec.context.attempt.clone();
        let outcome = self.session.handle_line(line);
        let record_number = self.session.record_count();
        if record_number <= self.applied_records {
            return;
        }
        let event = match outcome {
            RecordOutcome::Accepted(ContainerMessage::Progress(update)) => Event::StoryReported {
                attempt,
                record_number,
                story: StoryKey { file: self.spec.file, id: update.story_id },
                status: update.status,
                output: update.output,
            },
            RecordOutcome::Accepted(ContainerMessage::Completion(end)) => {
                self.reported_stopped = end.status == CompletionStatus::Stopped;
                Event::CompletionReported { attempt, record_number, status: end.status, errors: end.errors }
            }
            RecordOutcome::Accepted(ContainerMessage::Error(error)) => {
                Event::ErrorReported { attempt, record_number, code: error.code.to_string(), message: error.message }
            }
            RecordOutcome::Rejected(bad) => {
                let reason = bad.to_string();
                self.log.note(&format!("bad record {record_number}: {reason}"));
                Event::RecordRefused { attempt, record_number, reason }
            }
        };
        self.context.events.send(event).await;
    }
}

fn new_acp_session(spec: &SandboxSpec, container: &ContainerId) -> AcpSession {
    let stories: Vec<StoryId> = spec.context.stories.iter().map(|(id, _)| id.clone()).collect();
    AcpSession::new(spec.context.swarm, container.clone(), &stories)
}

/// Waits for the exit code. Every error is retried, except that the container does not exist.
async fn wait_for_exit(engine: &dyn Engine, container: &ContainerId, mut monitor: EngineMonitor) -> EngineResult<i64> {
    let retryable = |error: &EngineError| !matches!(error, EngineError::NotFound { .. });
    monitor.retry(retryable, || engine.wait(container)).await
}

async fn send_signal(engine: Arc<dyn Engine>, container: ContainerId, signal: Signal, mut monitor: EngineMonitor) {
    if let Err(error) = monitor.retry(EngineError::is_unreachable, || engine.signal(&container, signal)).await {
        tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot signal a sandbox");
    }
}
