//! Running one command of a story: the agent, a criterion's test, a verify command.
//!
//! It runs in its own process group with its output drained always, forwarded to the sandbox's standard error up to a
//! limit, and its last lines kept. When it ends, everything that it left running is killed, so that a daemon that holds the
//! pipes open blocks nobody. One that does nothing any more (`watchdog.rs`) is looked at (`scene.rs`) and ended, as is one
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

use super::children::{self, Owned};
use super::clock::Deadline;
use super::memory::MemoryGauge;
use super::scene::{self, Scene, Secrets};
use super::socket::Desk;
use super::tail::{LineCutter, Tail};
use super::watchdog::Watchdog;

/// The most bytes of one story's output that are forwarded.
pub const FORWARD_LIMIT: u64 = 8 * 1024 * 1024;
/// How long the pipes are still read after the process ended and all others were killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Makes the command the kernel's first choice when memory ends, so that the shim survives to tell.
const WRAPPER: &str = r#"echo 1000 >/proc/self/oom_score_adj 2>/dev/null; exec "$@""#;

/// Where output is forwarded to: the shim's standard error, with an end to what one story may write there.
#[derive(Clone)]
pub struct OutputLog {
    inner: Arc<Mutex<LogInner>>,
}

struct LogInner {
    sink: Box<dyn Write + Send>,
    left: u64,
}

impl OutputLog {
    /// Forwards to this.
    pub fn new(sink: Box<dyn Write + Send>) -> Self {
        Self { inner: Arc::new(Mutex::new(LogInner { sink, left: FORWARD_LIMIT })) }
    }

    /// Begins a story: it may write [`FORWARD_LIMIT`] again.
    pub fn begin_story(&self, heading: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.left = FORWARD_LIMIT;
        let _ = writeln!(inner.sink, "{heading}");
    }

    /// A line of the shim's own.
    pub fn say(&self, line: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(inner.sink, "acp-shim: {line}");
    }

    fn forward(&self, chunk: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.left == 0 {
            return;
        }
        let fits = usize::try_from(inner.left).unwrap_or(usize::MAX).min(chunk.len());
        let _ = inner.sink.write_all(&chunk[..fits]);
        inner.left -= fits as u64;
        if inner.left == 0 {
            let limit = FORWARD_LIMIT / (1024 * 1024);
            let _ =
                writeln!(inner.sink, "\nacp-shim: more than {limit} MB of output in this story: the rest is dropped");
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where.
    pub folder: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// What it reads on standard input, which then ends; nothing where none.
    pub stdin: Option<String>,
    /// When its time is over.
    pub deadline: Deadline,
    /// How long it may do nothing; zero: as long as it likes.
    pub idle_limit: Duration,
    /// How long it has between SIGTERM and SIGKILL then.
    pub grace: Duration,
}

/// What a job runs with.
pub struct Surroundings<'a> {
    /// Where output goes.
    pub log: &'a OutputLog,
    /// The memory counters.
    pub memory: &'a MemoryGauge,
    /// Cancelled when the sandbox is to stop.
    pub stop: &'a CancellationToken,
    /// How long an agent has between SIGTERM and SIGKILL when the sandbox stops.
    pub stop_grace: Duration,
    /// Where the agent reports its progress.
    pub desk: &'a Desk,
    /// What no evidence may show.
    pub secrets: &'a Secrets,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal, which was not the shim's.
    Signal(i32),
    /// Its time ran out, and the shim ended it.
    TimedOut,
    /// It did nothing for so long that the shim looked at it and ended it.
    Hung(Box<Hang>),
    /// The sandbox was stopped, and the shim ended it.
    Stopped,
    /// It could not be started.
    NotStarted(String),
}

/// A command that does nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hang {
    /// For how long.
    pub idle: Duration,
    /// What was seen then.
    pub scene: Scene,
}

/// What came of a job.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// The last lines that it printed.
    pub tail: Vec<String>,
    /// How often the kernel killed for memory meanwhile; none where nobody counts.
    pub oom_kills: Option<u64>,
    /// Whether memory use came near the limit.
    pub near_limit: bool,
}

/// Runs a job to its end, and leaves no other process behind. `on_line` gets each line that it prints.
pub async fn run(job: Job, around: &Surroundings<'_>, mut on_line: impl FnMut(&str)) -> Ran {
    let before = around.memory.oom_kills();
    let mut tail = Tail::default();
    let end = match start(&job) {
        Err(error) => End::NotStarted(error.to_string()),
        Ok((child, owned)) => {
            let mut keep = |line: String| {
                if !line.is_empty() {
                    on_line(&line);
                }
                tail.push(line);
            };
            attend(child, &owned, &job, around, &mut keep).await
        }
    };
    children::reap_orphans();
    let after = around.memory.oom_kills();
    Ran {
        end,
        tail: tail.into_lines(),
        oom_kills: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
        near_limit: around.memory.near_limit(),
    }
}

fn start(job: &Job) -> std::io::Result<(tokio::process::Child, Owned)> {
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", WRAPPER, "sh"])
        .args(&job.argv)
        .env_clear()
        .envs(&job.env)
        .current_dir(&job.folder)
        .process_group(0)
        .stdin(if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    children::spawn(|| command.spawn(), tokio::process::Child::id)
}

/// Why the shim ends a process, and what comes next.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Running,
    Ending(Ended),
    Killed(Ended),
}

#[derive(Clone, Copy, PartialEq)]
enum Ended {
    Timeout,
    Hang,
    Stop,
}

async fn attend(
    mut child: tokio::process::Child,
    owned: &Owned,
    job: &Job,
    around: &Surroundings<'_>,
    keep: &mut impl FnMut(String),
) -> End {
    let mut out = Stream::of(child.stdout.take());
    let mut err = Stream::of(child.stderr.take());
    let feeding = feed(child.stdin.take(), job.stdin.clone());
    tokio::pin!(feeding);
    let mut fed = false;
    let mut status = None;
    let mut phase = Phase::Running;
    let mut stopping = false;
    let mut alarm = job.deadline.at();
    let mut watchdog = Watchdog::new(job.idle_limit, owned, around.desk.reports());
    let mut hang = None;

    while status.is_none() || out.open() || err.open() {
        tokio::select! {
            () = &mut feeding, if !fed => fed = true,
            length = out.read(), if out.open() => {
                watchdog.heard();
                out.take(length, around.log, keep);
            }
            length = err.read(), if err.open() => {
                watchdog.heard();
                err.take(length, around.log, keep);
            }
            ended = child.wait(), if status.is_none() => {
                status = Some(ended);
                children::end_leftovers(owned);
                let drain = if around.stop.is_cancelled() { around.stop_grace.min(DRAIN_LIMIT) } else { DRAIN_LIMIT };
                alarm = Instant::now() + drain;
            }
            () = around.stop.cancelled(), if !stopping && status.is_none() => {
                stopping = true;
                if phase == Phase::Running {
                    phase = Phase::Ending(Ended::Stop);
                    owned.signal_group(Signal::TERM);
                    alarm = Instant::now() + around.stop_grace;
                } else {
                    // What was being ended has no more time than a stop gives.
                    alarm = alarm.min(Instant::now() + around.stop_grace);
                }
            }
            () = at(watchdog.next_look()), if phase == Phase::Running && status.is_none() => {
                if let Some(idle) = watchdog.look(around.desk.reports()) {
                    let group = owned.pid().map(|pid| pid.as_raw_nonzero().get());
                    hang = Some(Hang { idle, scene: scene::look(group, around.secrets) });
                    phase = Phase::Ending(Ended::Hang);
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
                    Phase::Running if job.deadline.at() > Instant::now() => alarm = job.deadline.at(),
                    Phase::Running => {
                        phase = Phase::Ending(Ended::Timeout);
                        owned.signal_group(Signal::TERM);
                        alarm = Instant::now() + job.grace;
                    }
                    Phase::Ending(why) | Phase::Killed(why) => {
                        phase = Phase::Killed(why);
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
        Phase::Ending(why) | Phase::Killed(why) => match (why, hang) {
            (Ended::Hang, Some(hang)) => End::Hung(Box::new(hang)),
            (Ended::Timeout | Ended::Hang, _) => End::TimedOut,
            (Ended::Stop, _) => End::Stopped,
        },
        Phase::Running => how_it_ended(status),
    }
}

/// Waits until then; for ever where there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn how_it_ended(status: Option<std::io::Result<std::process::ExitStatus>>) -> End {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Some(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, signal) => End::Signal(signal.unwrap_or(0)),
        },
        Some(Err(error)) => End::NotStarted(error.to_string()),
        None => End::NotStarted("it was not waited for".into()),
    }
}

async fn feed(pipe: Option<tokio::process::ChildStdin>, text: Option<String>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // Many programs end without reading their input: not an error.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

/// One of a process's two streams.
struct Stream<R> {
    pipe: Option<R>,
    buffer: Vec<u8>,
    cutter: LineCutter,
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn of(pipe: Option<R>) -> Self {
        Self { pipe, buffer: vec![0; 32 * 1024], cutter: LineCutter::default() }
    }

    fn open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads a chunk into the buffer; 0 at the end of the stream. Cancel-safe: what is not returned was not read.
    async fn read(&mut self) -> usize {
        match self.pipe.as_mut() {
            Some(pipe) => pipe.read(&mut self.buffer).await.unwrap_or(0),
            None => 0,
        }
    }

    fn take(&mut self, length: usize, log: &OutputLog, keep: &mut impl FnMut(String)) {
        if length == 0 {
            self.pipe = None;
            return;
        }
        let chunk = &self.buffer[..length];
        log.forward(chunk);
        self.cutter.push(chunk, keep);
    }
}
