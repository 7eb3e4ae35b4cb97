//! Runs one command of a story: the agent, a criterion's test, a verify command.
//!
//! The command runs in its own process group. Its output is always drained, forwarded to the sandbox's standard error up to a limit,
//! and its last lines are kept. When it ends, everything that it left running is killed, so that a daemon that holds the pipes open
//! blocks nobody. A command that hangs (`watchdog.rs`) is examined (`hang_snapshot.rs`) and ended, as is one that exceeds its time.
//! Used by `story.rs` and `review.rs`. Must not: judge what the exit means (`command_failure.rs` does).

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
use super::descendants;
use super::hang_snapshot::{self, HangSnapshot};
use super::memory_gauge::MemoryGauge;
use super::tail::{LineCutter, OutputTail};
use super::users;
use super::watchdog::Watchdog;

/// The most bytes of one story's output that are forwarded.
const MAX_FORWARDED_BYTES: u64 = 8 * 1024 * 1024;
/// How long the pipes are read after the process ended and all others were killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for what was killed. A process that takes longer is in a system call, and does nothing after it.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to look for what was killed.
const DEATH_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Makes the command the kernel's first choice when memory runs out, so that the shim survives to report it.
const OOM_WRAPPER: &str = r#"echo 1000 >/proc/self/oom_score_adj 2>/dev/null; exec "$@""#;

/// Forwards output to the shim's standard error, with a limit per story.
#[derive(Clone)]
pub struct OutputLog {
    state: Arc<Mutex<OutputLogState>>,
}

struct OutputLogState {
    sink: Box<dyn Write + Send>,
    remaining: u64,
}

impl OutputLog {
    pub fn new(sink: Box<dyn Write + Send>) -> Self {
        Self { state: Arc::new(Mutex::new(OutputLogState { sink, remaining: MAX_FORWARDED_BYTES })) }
    }

    /// Starts a story, which may write [`MAX_FORWARDED_BYTES`] again.
    pub fn begin_story(&self, heading: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remaining = MAX_FORWARDED_BYTES;
        let _ = writeln!(state.sink, "{heading}");
    }

    /// Writes a line of the shim itself.
    pub fn write_line(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(state.sink, "acp-shim: {line}");
    }

    fn forward(&self, chunk: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.remaining == 0 {
            return;
        }
        let fits = usize::try_from(state.remaining).unwrap_or(usize::MAX).min(chunk.len());
        let _ = state.sink.write_all(&chunk[..fits]);
        state.remaining -= fits as u64;
        if state.remaining == 0 {
            let limit = MAX_FORWARDED_BYTES / (1024 * 1024);
            let _ =
                writeln!(state.sink, "\nacp-shim: more than {limit} MB of output in this story: the rest is dropped");
        }
    }
}

#[derive(Debug, Clone)]
pub struct CommandSpec {
    pub argv: Vec<String>,
    pub dir: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The text on standard input, which then ends.
    pub stdin: Option<String>,
    pub deadline: StoryDeadline,
    /// How long the command may do nothing; zero: no limit.
    pub idle_timeout: Duration,
    /// The time between SIGTERM and SIGKILL at a timeout or a hang.
    pub grace: Duration,
}

/// Runs the commands of a sandbox.
pub struct CommandRunner {
    pub log: OutputLog,
    pub memory: MemoryGauge,
    /// Cancelled when the sandbox is stopped.
    pub stop: CancellationToken,
    /// The time between SIGTERM and SIGKILL when the sandbox is stopped.
    pub stop_grace: Duration,
    /// Where the agent reports its progress.
    pub agent_requests: AgentRequests,
    /// The variables whose values no evidence may show.
    pub secrets: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandExit {
    Code(i32),
    /// A signal that the shim did not send.
    Signal(i32),
    /// The shim ended it at its deadline.
    TimedOut,
    /// The shim examined and ended it because it did nothing for too long.
    Hung(Box<DetectedHang>),
    /// The shim ended it because the sandbox was stopped.
    Stopped,
    NotStarted(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedHang {
    pub idle: Duration,
    pub snapshot: HangSnapshot,
}

#[derive(Debug)]
pub struct CommandOutput {
    pub exit: CommandExit,
    /// The last lines of output.
    pub tail: Vec<String>,
    /// How many processes the kernel killed for memory meanwhile; `None` without a counter.
    pub oom_kills: Option<u64>,
    /// Whether memory use came near the limit.
    pub near_memory_limit: bool,
}

impl CommandRunner {
    /// Runs a command to its end, and leaves no other process behind. `on_line` gets each line of output.
    pub async fn run(&self, spec: CommandSpec, mut on_line: impl FnMut(&str)) -> CommandOutput {
        let before = self.memory.oom_kills();
        let mut tail = OutputTail::default();
        let exit = match spawn(&spec) {
            Err(error) => CommandExit::NotStarted(error.to_string()),
            Ok((child, owned)) => {
                let mut keep = |line: String| {
                    if !line.is_empty() {
                        on_line(&line);
                    }
                    tail.push(line);
                };
                self.supervise(child, &owned, &spec, &mut keep).await
            }
        };
        children::reap_orphans();
        let after = self.memory.oom_kills();
        CommandOutput {
            exit,
            tail: tail.into_lines(),
            oom_kills: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
            near_memory_limit: self.memory.near_limit(),
        }
    }

    async fn supervise(
        &self,
        mut child: tokio::process::Child,
        owned: &OwnedProcess,
        spec: &CommandSpec,
        keep: &mut impl FnMut(String),
    ) -> CommandExit {
        let mut out = OutputStream::new(child.stdout.take());
        let mut err = OutputStream::new(child.stderr.take());
        let feeding = write_stdin(child.stdin.take(), spec.stdin.clone());
        tokio::pin!(feeding);
        let mut fed = false;
        let mut status = None;
        let mut phase = CommandPhase::Running;
        let mut stopping = false;
        let mut alarm = spec.deadline.instant();
        let mut watchdog = Watchdog::new(spec.idle_timeout, owned, self.agent_requests.report_count());
        let mut hang = None;

        while status.is_none() || out.is_open() || err.is_open() {
            tokio::select! {
                () = &mut feeding, if !fed => fed = true,
                length = out.read(), if out.is_open() => {
                    watchdog.record_output();
                    out.consume(length, &self.log, keep);
                }
                length = err.read(), if err.is_open() => {
                    watchdog.record_output();
                    err.consume(length, &self.log, keep);
                }
                ended = child.wait(), if status.is_none() => {
                    status = Some(ended);
                    children::kill_leftovers(owned);
                    let drain = if self.stop.is_cancelled() { self.stop_grace.min(DRAIN_TIMEOUT) } else { DRAIN_TIMEOUT };
                    alarm = Instant::now() + drain;
                }
                () = self.stop.cancelled(), if !stopping && status.is_none() => {
                    stopping = true;
                    if phase == CommandPhase::Running {
                        phase = CommandPhase::Ending(TerminationReason::Stop);
                        owned.signal_group(Signal::TERM);
                        alarm = Instant::now() + self.stop_grace;
                    } else {
                        // A command that is already being ended has no more time than the stop.
                        alarm = alarm.min(Instant::now() + self.stop_grace);
                    }
                }
                () = sleep_until(watchdog.next_check()), if phase == CommandPhase::Running && status.is_none() => {
                    if let Some(idle) = watchdog.check(self.agent_requests.report_count()) {
                        let group = owned.pid().map(|pid| pid.as_raw_nonzero().get());
                        hang = Some(DetectedHang { idle, snapshot: hang_snapshot::capture(group, &self.secrets) });
                        phase = CommandPhase::Ending(TerminationReason::Hang);
                        owned.signal_group(Signal::TERM);
                        alarm = Instant::now() + spec.grace;
                    }
                }
                () = tokio::time::sleep_until(alarm) => {
                    if status.is_some() {
                        break;
                    }
                    match phase {
                        // The sandbox was paused meanwhile, which moved the deadline.
                        CommandPhase::Running if spec.deadline.instant() > Instant::now() => alarm = spec.deadline.instant(),
                        CommandPhase::Running => {
                            phase = CommandPhase::Ending(TerminationReason::Timeout);
                            owned.signal_group(Signal::TERM);
                            alarm = Instant::now() + spec.grace;
                        }
                        CommandPhase::Ending(why) | CommandPhase::Killed(why) => {
                            phase = CommandPhase::Killed(why);
                            owned.signal_group(Signal::KILL);
                            // A process in a system call may take a while to die.
                            alarm = Instant::now() + Duration::from_secs(1);
                        }
                    }
                }
            }
        }
        self.wait_for_leftovers().await;
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

    /// Waits until everything that was killed with the command is dead: nothing may change the clone while it is examined.
    async fn wait_for_leftovers(&self) {
        let limit = if self.stop.is_cancelled() { self.stop_grace.min(DEATH_TIMEOUT) } else { DEATH_TIMEOUT };
        let give_up = Instant::now() + limit;
        while children::is_init()
            && descendants::are_running(&descendants::list_descendants(None))
            && Instant::now() < give_up
        {
            tokio::time::sleep(DEATH_POLL_INTERVAL).await;
        }
    }
}

fn spawn(spec: &CommandSpec) -> std::io::Result<(tokio::process::Child, OwnedProcess)> {
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", OOM_WRAPPER, "sh"])
        .args(&spec.argv)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.dir)
        .process_group(0)
        .stdin(if spec.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    users::run_as_agent(command.as_std_mut());
    children::spawn(|| command.spawn(), tokio::process::Child::id)
}

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

/// Waits until `time`, or forever.
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
        None => CommandExit::NotStarted("its exit status is unknown".into()),
    }
}

async fn write_stdin(pipe: Option<tokio::process::ChildStdin>, text: Option<String>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // Ignore errors: many programs end without reading their input.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

/// Standard output or standard error of a process.
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

    /// Reads a chunk into the buffer; 0 at the end of the stream. Cancel-safe.
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
