//! Running one command of a story: the agent, a criterion's test, a verify command.
//!
//! It runs in its own process group with its output drained always, forwarded to the sandbox's standard error up to a
//! limit, and its last lines kept. When it ends, everything that it left running is killed, so that a daemon that holds the
//! pipes open blocks nobody. One that does nothing any more (`watchdog.rs`) is looked at (`hang_snapshot.rs`) and ended, as is one
//! whose time is over. Used by `story.rs`. Must not: judge what the exit means.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_requests::AgentRequests;
use super::children::{self, OwnedProcess};
use super::clock::StoryDeadline;
use super::hang_snapshot::{self, HangSnapshot, Secrets};
use super::memory_gauge::MemoryGauge;
use super::tail::{LineCutter, OutputTail};
use super::watchdog::Watchdog;

/// The most bytes of one story's output that are forwarded.
pub const MAX_FORWARDED_BYTES: u64 = 8 * 1024 * 1024;
/// How long the pipes are still read after the process ended and all others were killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Makes the command the kernel's first choice when memory ends, so that the shim survives to tell.
const OOM_WRAPPER: &str = r#"echo 1000 >/proc/self/oom_score_adj 2>/dev/null; exec "$@""#;

/// Where output is forwarded to: the shim's standard error, with an end to what one story may write there.
#[derive(Clone)]
pub struct OutputLog {
    state: Arc<Mutex<OutputLogState>>,
}

struct OutputLogState {
    sink: Box<dyn Write + Send>,
    remaining: u64,
}

impl OutputLog {
    /// Forwards to this.
    pub fn new(sink: Box<dyn Write + Send>) -> Self {
        Self { state: Arc::new(Mutex::new(OutputLogState { sink, remaining: MAX_FORWARDED_BYTES })) }
    }

    /// Begins a story: it may write [`MAX_FORWARDED_BYTES`] again.
    pub fn begin_story(&self, heading: &str) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remaining = MAX_FORWARDED_BYTES;
        let _ = writeln!(inner.sink, "{heading}");
    }

    /// A line of the shim's own.
    pub fn write_line(&self, line: &str) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(inner.sink, "acp-shim: {line}");
    }

    fn forward(&self, chunk: &[u8]) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.remaining == 0 {
            return;
        }
        let fits = usize::try_from(inner.remaining).unwrap_or(usize::MAX).min(chunk.len());
        let _ = inner.sink.write_all(&chunk[..fits]);
        inner.remaining -= fits as u64;
        if inner.remaining == 0 {
            let limit = MAX_FORWARDED_BYTES / (1024 * 1024);
            let _ =
                writeln!(inner.sink, "\nacp-shim: more than {limit} MB of output in this story: the rest is dropped");
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where.
    pub dir: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// What it reads on standard input, which then ends; nothing where none.
    pub stdin: Option<String>,
    /// When its time is over.
    pub deadline: StoryDeadline,
    /// How long it may do nothing; zero: as long as it likes.
    pub idle_timeout: Duration,
    /// How long it has between SIGTERM and SIGKILL then.
    pub grace: Duration,
}

/// What a job runs with.
pub struct CommandContext<'a> {
    /// Where output goes.
    pub log: &'a OutputLog,
    /// The memory counters.
    pub memory: &'a MemoryGauge,
    /// Cancelled when the sandbox is to stop.
    pub stop: &'a CancellationToken,
    /// How long an agent has between SIGTERM and SIGKILL when the sandbox stops.
    pub stop_grace: Duration,
    /// Where the agent reports its progress.
    pub agent_requests: &'a AgentRequests,
    /// What no evidence may show.
    pub secrets: &'a Secrets,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandExit {
    /// With this exit code.
    Code(i32),
    /// By this signal, which was not the shim's.
    Signal(i32),
    /// Its time ran out, and the shim ended it.
    TimedOut,
    /// It did nothing for so long that the shim looked at it and ended it.
    Hung(Box<DetectedHang>),
    /// The sandbox was stopped, and the shim ended it.
    Stopped,
    /// It could not be started.
    NotStarted(String),
}

/// A command that does nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedHang {
    /// For how long.
    pub idle: Duration,
    /// What was seen then.
    pub snapshot: HangSnapshot,
}

/// What came of a job.
#[derive(Debug)]
pub struct CommandOutput {
    /// How it ended.
    pub exit: CommandExit,
    /// The last lines that it printed.
    pub tail: Vec<String>,
    /// How often the kernel killed for memory meanwhile; none where nobody counts.
    pub oom_kills: Option<u64>,
    /// Whether memory use came near the limit.
    pub near_memory_limit: bool,
}

/// Runs a job to its end, and leaves no other process behind. `on_line` gets each line that it prints.
pub async fn run_command(
    job: CommandSpec,
    around: &CommandContext<'_>,
    mut on_line: impl FnMut(&str),
) -> CommandOutput {
    let before = around.memory.oom_kills();
    let mut tail = OutputTail::default();
    let end = match spawn(&job) {
        Err(error) => CommandExit::NotStarted(error.to_string()),
        Ok((child, owned)) => {
            let mut keep = |line: String| {
                if !line.is_empty() {
                    on_line(&line);
                }
                tail.push(line);
            };
            supervise(child, &owned, &job, around, &mut keep).await
        }
    };
    children::reap_orphans();
    let after = around.memory.oom_kills();
    CommandOutput {
        exit: end,
        tail: tail.into_lines(),
        oom_kills: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
        near_memory_limit: around.memory.near_limit(),
    }
}

fn spawn(job: &CommandSpec) -> std::io::Result<(tokio::process::Child, OwnedProcess)> {
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", OOM_WRAPPER, "sh"])
        .args(&job.argv)
        .env_clear()
        .envs(&job.env)
        .current_dir(&job.dir)
        .process_group(0)
        .stdin(if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    children::spawn(|| command.spawn(), tokio::process::Child::id)
}

/// Why the shim ends a process, and what comes next.
#[derive(Clone, Copy, PartialEq)]
enum CommandPhase {
    Running,
    Ending(TerminationReason),
    Killed(TerminationReason),
}

#[derive(Clone, Copy, PartialEq)]
enum TerminationReason {
    Timeout,
    Hang,
    Stop,
}

async fn supervise(
    mut child: tokio::process::Child,
    owned: &OwnedProcess,
    job: &CommandSpec,
    around: &CommandContext<'_>,
    keep: &mut impl FnMut(String),
) -> CommandExit {
    let mut out = OutputStream::new(child.stdout.take());
    let mut err = OutputStream::new(child.stderr.take());
    let feeding = write_stdin(child.stdin.take(), job.stdin.clone());
    tokio::pin!(feeding);
    let mut fed = false;
    let mut status = None;
    let mut phase = CommandPhase::Running;
    let mut stopping = false;
    let mut alarm = job.deadline.instant();
    let mut watchdog = Watchdog::new(job.idle_timeout, owned, around.agent_requests.report_count());
    let mut hang = None;

    while status.is_none() || out.is_open() || err.is_open() {
        tokio::select! {
            () = &mut feeding, if !fed => fed = true,
            length = out.read(), if out.is_open() => {
                watchdog.record_output();
                out.consume(length, around.log, keep);
            }
            length = err.read(), if err.is_open() => {
                watchdog.record_output();
                err.consume(length, around.log, keep);
            }
            ended = child.wait(), if status.is_none() => {
                status = Some(ended);
                children::kill_leftovers(owned);
                let drain = if around.stop.is_cancelled() { around.stop_grace.min(DRAIN_TIMEOUT) } else { DRAIN_TIMEOUT };
                alarm = Instant::now() + drain;
            }
            () = around.stop.cancelled(), if !stopping && status.is_none() => {
                stopping = true;
                if phase == CommandPhase::Running {
                    phase = CommandPhase::Ending(TerminationReason::Stop);
                    owned.signal_group(Signal::TERM);
                    alarm = Instant::now() + around.stop_grace;
                } else {
                    // What was being ended has no more time than a stop gives.
                    alarm = alarm.min(Instant::now() + around.stop_grace);
                }
            }
            () = sleep_until(watchdog.next_check()), if phase == CommandPhase::Running && status.is_none() => {
                if let Some(idle) = watchdog.check(around.agent_requests.report_count()) {
                    let group = owned.pid().map(|pid| pid.as_raw_nonzero().get());
                    hang = Some(DetectedHang { idle, snapshot: hang_snapshot::capture(group, around.secrets) });
                    phase = CommandPhase::Ending(TerminationReason::Hang);
                    owned.signal_group(Signal::TERM);
                    alarm = Instant::now() + job.grace;
                }
            }
            () = tokio::time::sleep_until(alarm) => {
                if status.is_some() {
                    break;
                }
                match phase {
                    // The sandbox was paused meanwhile.
                    CommandPhase::Running if job.deadline.instant() > Instant::now() => alarm = job.deadline.instant(),
                    CommandPhase::Running => {
                        phase = CommandPhase::Ending(TerminationReason::Timeout);
                        owned.signal_group(Signal::TERM);
                        alarm = Instant::now() + job.grace;
                    }
                    CommandPhase::Ending(why) | CommandPhase::Killed(why) => {
                        phase = CommandPhase::Killed(why);
                        owned.signal_group(Signal::KILL);
                        // A process in the middle of a system call may take its time to die.
                        alarm = Instant::now() + Duration::from_secs(1);
                    }
                }
            }
        }
    }
    out.cutter.finish(&mut *keep);
    err.cutter.finish(&mut *keep);
    match phase {
        CommandPhase::Ending(why) | CommandPhase::Killed(why) => match (why, hang) {
            (TerminationReason::Hang, Some(hang)) => CommandExit::Hung(Box::new(hang)),
            (TerminationReason::Timeout | TerminationReason::Hang, _) => CommandExit::TimedOut,
            (TerminationReason::Stop, _) => CommandExit::Stopped,
        },
        CommandPhase::Running => exit_from_status(status),
    }
}

/// Waits until then; for ever where there is no such time.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn exit_from_status(status: Option<std::io::Result<std::process::ExitStatus>>) -> CommandExit {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Some(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => CommandExit::Code(code),
            (None, signal) => CommandExit::Signal(signal.unwrap_or(0)),
        },
        Some(Err(error)) => CommandExit::NotStarted(error.to_string()),
        None => CommandExit::NotStarted("it was not waited for".into()),
    }
}

async fn write_stdin(pipe: Option<tokio::process::ChildStdin>, text: Option<String>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // Many programs end without reading their input: not an error.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

/// One of a process's two streams.
struct OutputStream<R> {
    pipe: Option<R>,
    buffer: Vec<u8>,
    cutter: LineCutter,
}

impl<R: AsyncRead + Unpin> OutputStream<R> {
    fn new(pipe: Option<R>) -> Self {
        Self { pipe, buffer: vec![0; 32 * 1024], cutter: LineCutter::default() }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads a chunk into the buffer; 0 at the end of the stream. Cancel-safe: what is not returned was not read.
    async fn read(&mut self) -> usize {
        match self.pipe.as_mut() {
            Some(pipe) => pipe.read(&mut self.buffer).await.unwrap_or(0),
            None => 0,
        }
    }

    fn consume(&mut self, length: usize, log: &OutputLog, keep: &mut impl FnMut(String)) {
        if length == 0 {
            self.pipe = None;
            return;
        }
        let chunk = &self.buffer[..length];
        log.forward(chunk);
        self.cutter.push(chunk, keep);
    }
}
