//! Runs git on the user's repository: scrubbed environment, bounded output, a time limit, errors by kind.
//!
//! Called by the other files of `delivery/`; nothing else in it starts a process. Must not: know what a command is for.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use super::error::DeliveryError;
use crate::git::{harden, mentions_disk_full, mentions_out_of_memory};

/// The time limit of a command that sets none.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(120);
/// The most output of a command that is kept in memory, in bytes.
const OUTPUT_LIMIT: usize = 64 * 1024 * 1024;
/// The bytes kept from the end of stderr.
const STDERR_TAIL: usize = 8 * 1024;

/// Settings of every command besides those of [`harden`].
const CONFIG_OVERRIDES: [&str; 13] = [
    // No other programs.
    "core.alternateRefsCommand=true",
    "log.showSignature=false",
    "merge.renormalize=false",
    "merge.default=text",
    // One format of input and output.
    "core.quotePath=false",
    "color.ui=false",
    "trailer.separators=:",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    // What the journal records as done survives a power cut: loose objects and refs too.
    "core.fsync=committed",
    // Many stories write refs at once, and so do people. After that, a lock is an error of its own.
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=5000",
    "pack.writeReverseIndex=false",
];

/// Variables of git that are inherited; all other `GIT_*` are removed.
const KEPT_ENV_VARS: [&str; 12] = [
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
];

/// Where and how git runs for one repository.
#[derive(Debug, Clone)]
pub(super) struct GitRunner {
    cwd: PathBuf,
    /// `None` before discovery: git looks for a repository from `cwd` up.
    git_dir: Option<PathBuf>,
    removed_env_vars: Vec<OsString>,
    /// Settings whose keys `-c` cannot carry. They follow the settings inherited by `GIT_CONFIG_COUNT`.
    extra_config: Vec<(String, String)>,
    inherited_config_count: usize,
    /// Processes started so far.
    #[cfg(test)]
    pub(super) started: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl GitRunner {
    /// A runner that looks for a repository from `cwd` up.
    pub(super) fn in_dir(cwd: &Path) -> Self {
        let is_kept = |key: &str| {
            KEPT_ENV_VARS.contains(&key)
                || ["GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_SSL_"].iter().any(|prefix| key.starts_with(prefix))
        };
        let keys = std::env::vars_os().map(|(key, _)| key);
        Self {
            cwd: cwd.to_owned(),
            git_dir: None,
            removed_env_vars: keys
                .filter(|key| {
                    let key = key.to_string_lossy();
                    key.starts_with("GIT_") && !is_kept(&key)
                })
                .collect(),
            extra_config: Vec::new(),
            inherited_config_count: std::env::var("GIT_CONFIG_COUNT")
                .ok()
                .and_then(|count| count.parse().ok())
                .unwrap_or(0),
            #[cfg(test)]
            started: std::sync::Arc::default(),
        }
    }

    /// The same runner for a known repository. Commands run in the git directory, away from the working tree.
    pub(super) fn with_git_dir(mut self, git_dir: &Path, config: Vec<(String, String)>) -> Self {
        self.cwd = git_dir.to_owned();
        self.git_dir = Some(git_dir.to_owned());
        self.extra_config = config;
        self
    }

    /// A command. `operation` names it in errors: "read the head".
    pub(super) fn command<S: AsRef<OsStr>>(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> GitCommand<'_> {
        let command = GitCommand {
            git: self,
            operation,
            cwd: None,
            args: Vec::new(),
            env: Vec::new(),
            input: StdinSource::Nothing,
            accepted_codes: &[0],
            time_limit: DEFAULT_TIME_LIMIT,
            memory_limit: None,
        };
        command.args(args)
    }

    fn process_command(&self) -> Command {
        let mut command = std::process::Command::new("git");
        for key in &self.removed_env_vars {
            command.env_remove(key);
        }
        command.env("GIT_CONFIG_COUNT", (self.inherited_config_count + self.extra_config.len()).to_string());
        for (number, (key, value)) in (self.inherited_config_count..).zip(&self.extra_config) {
            command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        if let Some(git_dir) = &self.git_dir {
            command.env("GIT_DIR", git_dir);
        }
        harden(&mut command, CONFIG_OVERRIDES);
        command.into()
    }
}

/// Standard input of a command.
enum StdinSource {
    Nothing,
    Bytes(Vec<u8>),
    /// From the file's current position.
    File(File),
}

/// A command that has not run yet.
pub(super) struct GitCommand<'g> {
    git: &'g GitRunner,
    operation: &'static str,
    cwd: Option<PathBuf>,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    input: StdinSource,
    accepted_codes: &'static [i32],
    time_limit: Duration,
    memory_limit: Option<u64>,
}

#[derive(Debug)]
pub(super) struct GitCommandOutput {
    /// One of the accepted codes.
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
}

impl GitCommandOutput {
    /// Standard output as text; invalid UTF-8 is replaced.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Standard output without the newline at its end. For ids and ref names.
    pub(super) fn trimmed_stdout(&self) -> String {
        self.text().trim_end_matches('\n').to_owned()
    }

    /// The fields of output that `-z` separates or ends with NUL.
    pub(super) fn nul_fields(&self) -> impl Iterator<Item = &[u8]> {
        self.stdout.split(|&byte| byte == 0).filter(|field| !field.is_empty())
    }
}

/// A running command whose standard output the caller reads.
pub(super) struct RunningGit {
    /// Killed when dropped.
    child: Child,
    stderr_tail: tokio::task::JoinHandle<Vec<u8>>,
    operation: &'static str,
    command: String,
}

impl<'g> GitCommand<'g> {
    pub(super) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    pub(super) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(super) fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = Some(cwd.to_owned());
        self
    }

    pub(super) fn env(mut self, key: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((key, value.into()));
        self
    }

    pub(super) fn envs<V: Into<OsString>>(mut self, vars: impl IntoIterator<Item = (&'static str, V)>) -> Self {
        self.env.extend(vars.into_iter().map(|(key, value)| (key, value.into())));
        self
    }

    pub(super) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = StdinSource::Bytes(bytes.into());
        self
    }

    /// Reads standard input from the rest of a file.
    pub(super) fn input_file(mut self, file: File) -> Self {
        self.input = StdinSource::File(file);
        self
    }

    /// Sets the exit codes that are not errors; the default is 0 alone.
    pub(super) fn accept_codes(mut self, codes: &'static [i32]) -> Self {
        self.accepted_codes = codes;
        self
    }

    pub(super) fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Limits the process's own memory, in bytes. Applied on Linux only.
    pub(super) fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Runs the command and keeps its output.
    pub(super) async fn run(self) -> Result<GitCommandOutput, DeliveryError> {
        let mut stdout = Vec::new();
        let operation = self.operation;
        let code = self.run_streaming(|chunk| {
            stdout.extend_from_slice(chunk);
            stdout.len() <= OUTPUT_LIMIT
        });
        match code.await? {
            Some(code) => Ok(GitCommandOutput { code, stdout }),
            None => {
                Err(DeliveryError::UnexpectedOutput { operation, found: format!("more than {OUTPUT_LIMIT} bytes") })
            }
        }
    }

    /// Runs the command and passes its output to `sink` in chunks. When `sink` returns `false`, the command is killed and
    /// the result is `None` instead of an exit code.
    pub(super) async fn run_streaming(
        mut self,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<i32>, DeliveryError> {
        #[cfg(test)]
        let _real = super::tests::paused_clock::hold_paused_clock();
        let (operation, accepted, limit) = (self.operation, self.accepted_codes, self.time_limit);
        let input = std::mem::replace(&mut self.input, StdinSource::Nothing);
        let summary = self.display_command();
        let mut child = self.spawn(&input)?;
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let reading = async {
            let mut chunk = vec![0; 32 * 1024];
            while let Ok(count @ 1..) = stdout.read(&mut chunk).await {
                if !sink(&chunk[..count]) {
                    return true;
                }
            }
            false
        };
        let ended = tokio::time::timeout(limit, async {
            tokio::pin!(reading);
            // Concurrently: a full pipe in one direction must not block the others.
            let others = async { tokio::join!(write_stdin(stdin, input), read_stderr_tail(stderr)).1 };
            tokio::pin!(others);
            let tail = tokio::select! {
                enough = &mut reading => if enough { None } else { Some(others.await) },
                tail = &mut others => if reading.await { None } else { Some(tail) },
            };
            if tail.is_none() {
                // An error means that it has exited meanwhile.
                let _ = child.start_kill();
            }
            (tail, child.wait().await)
        })
        .await;
        let Ok((tail, status)) = ended else {
            // Dropping the child kills it.
            return Err(DeliveryError::TimedOut { operation, after: limit });
        };
        let status = status.map_err(|source| DeliveryError::Io { operation, path: "git".into(), source })?;
        let Some(tail) = tail else { return Ok(None) };
        match status.code() {
            Some(code) if accepted.contains(&code) => Ok(Some(code)),
            _ => Err(command_error(operation, summary, status, &tail)),
        }
    }

    /// Starts the command and leaves its standard output to the caller.
    pub(super) fn start(mut self) -> Result<(RunningGit, impl AsyncRead + Send + Unpin + 'static), DeliveryError> {
        let (operation, command) = (self.operation, self.display_command());
        let input = std::mem::replace(&mut self.input, StdinSource::Nothing);
        let mut child = self.spawn(&input)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        // Only while git runs, not while the reader of its output waits for something else.
        #[cfg(test)]
        let real = super::tests::paused_clock::hold_paused_clock();
        let stderr_tail = tokio::spawn(async move {
            #[cfg(test)]
            let _real = real;
            tokio::join!(write_stdin(stdin, input), read_stderr_tail(stderr)).1
        });
        Ok((RunningGit { child, stderr_tail, operation, command }, stdout))
    }

    fn spawn(&self, input: &StdinSource) -> Result<Child, DeliveryError> {
        let operation = self.operation;
        let cwd = self.cwd.as_ref().unwrap_or(&self.git.cwd);
        let stdin = match input {
            StdinSource::Nothing => Stdio::null(),
            // A file goes through a pipe too, so that git reads nothing of it before the memory limit is set.
            StdinSource::Bytes(_) | StdinSource::File(_) => Stdio::piped(),
        };
        let mut command = self.git.process_command();
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(cwd)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(test)]
        self.git.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let child = command.spawn().map_err(|source| {
            if cwd.is_dir() {
                DeliveryError::GitMissing { source }
            } else {
                DeliveryError::from_io(operation, cwd, source)
            }
        })?;
        #[cfg(target_os = "linux")]
        if let (Some(bytes), Some(pid)) = (self.memory_limit, child.id()) {
            use rustix::process::{Pid, Resource, Rlimit, prlimit};
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            // Fails only if the process has exited already.
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = prlimit(Some(pid), Resource::Data, limit);
            }
        }
        Ok(child)
    }

    fn display_command(&self) -> String {
        let args = self.args.iter().map(|arg| arg.to_string_lossy());
        truncate(&std::iter::once("git".into()).chain(args).collect::<Vec<_>>().join(" "), 200)
    }
}

impl RunningGit {
    /// Waits for the process to exit; any exit code but 0 is an error.
    pub(super) async fn finish(mut self) -> Result<(), DeliveryError> {
        let operation = self.operation;
        #[cfg(test)]
        let _real = super::tests::paused_clock::hold_paused_clock();
        let ended = tokio::time::timeout(DEFAULT_TIME_LIMIT, self.child.wait())
            .await
            .map_err(|_| DeliveryError::TimedOut { operation, after: DEFAULT_TIME_LIMIT })?;
        let status = ended.map_err(|source| DeliveryError::Io { operation, path: "git".into(), source })?;
        let tail = self.stderr_tail.await.unwrap_or_default();
        if status.success() { Ok(()) } else { Err(command_error(operation, self.command, status, &tail)) }
    }
}

/// Writes the input. Errors are ignored: the command exited early, and its status explains why.
async fn write_stdin(stdin: Option<ChildStdin>, input: StdinSource) {
    let Some(mut stdin) = stdin else { return };
    let _ = match input {
        StdinSource::Nothing => Ok(()),
        StdinSource::Bytes(bytes) => stdin.write_all(&bytes).await,
        StdinSource::File(file) => tokio::io::copy(&mut tokio::fs::File::from_std(file), &mut stdin).await.map(drop),
    };
    let _ = stdin.shutdown().await;
}

async fn read_stderr_tail(mut stderr: ChildStderr) -> Vec<u8> {
    let mut tail = Vec::new();
    let mut chunk = vec![0; 4 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..count]);
        if tail.len() > STDERR_TAIL {
            tail.drain(..tail.len() - STDERR_TAIL);
        }
    }
    tail
}

fn command_error(operation: &'static str, command: String, status: ExitStatus, tail: &[u8]) -> DeliveryError {
    let tail = sanitize(&String::from_utf8_lossy(tail));
    let denied = ["Permission denied", "insufficient permission", "Read-only file system"];
    // Nothing else sends SIGKILL: longshore's own kill is a time limit, and handled before.
    let is_killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw());
    if mentions_disk_full(&tail) {
        DeliveryError::DiskFull { operation }
    } else if is_killed || mentions_out_of_memory(&tail) {
        DeliveryError::OutOfMemory { operation, is_proven: !is_killed }
    } else if let Some(lock) = find_lock(&tail) {
        let age = lock.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        DeliveryError::RefLocked { operation, lock, age }
    } else if denied.iter().any(|phrase| tail.contains(phrase)) {
        DeliveryError::PermissionDenied { operation, detail: tail }
    } else {
        DeliveryError::CommandFailed { operation, command, code: status.code(), tail }
    }
}

/// The lock that git found held, after it waited for it (`core.filesRefLockTimeout`, `core.packedRefsTimeout`).
fn find_lock(tail: &str) -> Option<PathBuf> {
    let (_, rest) = tail.split_once("Unable to create '")?;
    let (path, _) = rest.split_once("': File exists")?;
    path.ends_with(".lock").then(|| path.into())
}

/// Text that may come from a sandbox, made safe for a terminal and a log: no control characters but newlines, and truncated.
pub(super) fn sanitize(text: &str) -> String {
    let text: String = text.trim().chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    truncate(&text, 2_000)
}

/// The error for output that cannot be parsed.
pub(super) fn unexpected_output(operation: &'static str, found: &str) -> DeliveryError {
    DeliveryError::UnexpectedOutput { operation, found: truncate(&sanitize(found), 200) }
}

/// At most `limit` characters.
pub(super) fn truncate(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
