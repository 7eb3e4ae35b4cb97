//! The one place that runs git: a scrubbed environment, settings that keep the repo's config from running programs,
//! bounded output, a time limit, and errors in kinds.
//!
//! Used by the other files of `delivery/`. Must not: know what any command is for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use super::error::DeliveryError;

/// How long a command may take that nothing else is said of.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The most output that is kept of a command that nothing else is said of, in bytes.
const OUTPUT_LIMIT: usize = 64 * 1024 * 1024;
/// What is kept of stderr, in bytes from its end.
const STDERR_TAIL: usize = 8 * 1024;

/// Settings of every command. They win over the user's and the repo's config.
const CONFIG_OVERRIDES: &[&str] = &[
    // Nothing that a config names is run.
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "protocol.ext.allow=never",
    "log.showSignature=false",
    "merge.renormalize=false",
    "merge.default=text",
    "gc.auto=0",
    "maintenance.auto=false",
    // Output and input have one form.
    "core.quotePath=false",
    "color.ui=false",
    "trailer.separators=:",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    // What is told to the journal as done survives a power cut: loose objects and refs too.
    "core.fsync=committed",
    // Many stories write refs at once.
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=5000",
    "pack.writeReverseIndex=false",
];

/// Variables of git's own that are passed on; all other `GIT_*` are removed.
const KEPT_ENV_VARS: &[&str] = &[
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

/// Where and how git is run for one repo.
#[derive(Debug, Clone)]
pub(super) struct GitRunner {
    /// The folder that commands run in.
    cwd: PathBuf,
    /// The repo, once it is known. Without it git looks for one from `cwd` up.
    git_dir: Option<PathBuf>,
    /// Variables to remove.
    removed_env_vars: Vec<OsString>,
    /// Settings whose keys `-c` cannot carry, passed on beside the inherited ones.
    extra_config: Vec<(String, String)>,
    /// The number of settings inherited by `GIT_CONFIG_COUNT`.
    inherited_config_count: usize,
}

impl GitRunner {
    /// Git that looks for a repo from `cwd` up.
    pub(super) fn in_dir(cwd: &Path) -> Self {
        let inherited = std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
        let removed = std::env::vars_os()
            .map(|(key, _)| key)
            .filter(|key| {
                let key = key.to_string_lossy();
                key.starts_with("GIT_")
                    && !KEPT_ENV_VARS.contains(&key.as_ref())
                    && !key.starts_with("GIT_CONFIG_KEY_")
                    && !key.starts_with("GIT_CONFIG_VALUE_")
                    && !key.starts_with("GIT_SSL_")
            })
            .collect();
        Self {
            cwd: cwd.to_owned(),
            git_dir: None,
            removed_env_vars: removed,
            extra_config: Vec::new(),
            inherited_config_count: inherited,
        }
    }

    /// The same for a known repo: commands run in the repo's own folder, away from the working tree.
    pub(super) fn with_git_dir(mut self, git_dir: &Path, settings: Vec<(String, String)>) -> Self {
        self.cwd = git_dir.to_owned();
        self.git_dir = Some(git_dir.to_owned());
        self.extra_config = settings;
        self
    }

    /// A command. `operation` stands in errors: "read the head".
    pub(super) fn new_command<S: AsRef<OsStr>>(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> GitCommand<'_> {
        GitCommand {
            git: self,
            operation,
            cwd: None,
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            input: StdinSource::Nothing,
            accepted_codes: &[0],
            time_limit: TIME_LIMIT,
            memory_limit: None,
        }
    }

    fn process_command(&self) -> Command {
        let mut command = Command::new("git");
        for key in &self.removed_env_vars {
            command.env_remove(key);
        }
        command
            .env("LC_ALL", "C")
            .env_remove("LANGUAGE")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            // The sandboxes do not see the user's replace refs: the same history on both sides.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_CONFIG_COUNT", (self.inherited_config_count + self.extra_config.len()).to_string());
        for (index, (key, value)) in self.extra_config.iter().enumerate() {
            let number = self.inherited_config_count + index;
            command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        if let Some(git_dir) = &self.git_dir {
            command.env("GIT_DIR", git_dir);
        }
        for setting in CONFIG_OVERRIDES {
            command.args(["-c", setting]);
        }
        command
    }
}

/// What a command reads.
enum StdinSource {
    Nothing,
    Bytes(Vec<u8>),
    /// From the file's current position on.
    File(File),
}

/// One command, not yet run.
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

/// What a command did.
#[derive(Debug)]
pub(super) struct GitCommandOutput {
    /// Its exit code, one of the accepted ones.
    pub(super) code: i32,
    /// What it printed.
    pub(super) stdout: Vec<u8>,
}

impl GitCommandOutput {
    /// Standard output without the newline at its end. Ids and ref names only: what is not UTF-8 is replaced.
    pub(super) fn trimmed_stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

/// A running command whose standard output somebody else reads.
pub(super) struct RunningGit {
    /// The process; killed when dropped.
    pub(super) child: Child,
    /// The end of its stderr, when that closes.
    pub(super) stderr: tokio::task::JoinHandle<Vec<u8>>,
    operation: &'static str,
    command: String,
}

impl<'g> GitCommand<'g> {
    /// Adds an argument.
    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub(super) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Runs it in another folder.
    pub(super) fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = Some(cwd.to_owned());
        self
    }

    /// Sets a variable.
    pub(super) fn env(mut self, key: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((key, value.into()));
        self
    }

    /// Gives it something to read.
    pub(super) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = StdinSource::Bytes(bytes.into());
        self
    }

    /// Gives it the rest of a file to read.
    pub(super) fn input_file(mut self, file: File) -> Self {
        self.input = StdinSource::File(file);
        self
    }

    /// Exit codes that are not errors; 0 alone unless set.
    pub(super) fn accept_codes(mut self, codes: &'static [i32]) -> Self {
        self.accepted_codes = codes;
        self
    }

    /// How long it may take.
    pub(super) fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The most memory of its own that it may have, in bytes. Kept on Linux only.
    pub(super) fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Runs it and keeps what it prints.
    pub(super) async fn run(self) -> Result<GitCommandOutput, DeliveryError> {
        let mut stdout = Vec::new();
        let operation = self.operation;
        let mut full = false;
        let code = self
            .run_streaming(|chunk| {
                full = stdout.len() + chunk.len() > OUTPUT_LIMIT;
                if !full {
                    stdout.extend_from_slice(chunk);
                }
                !full
            })
            .await?;
        match code {
            Some(code) => Ok(GitCommandOutput { code, stdout }),
            None => {
                Err(DeliveryError::UnexpectedOutput { operation, found: format!("more than {OUTPUT_LIMIT} bytes") })
            }
        }
    }

    /// Runs it and hands what it prints to `sink`, piece by piece, until that has had enough: then the command is killed
    /// and there is no exit code.
    pub(super) async fn run_streaming(
        mut self,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<i32>, DeliveryError> {
        #[cfg(test)]
        let _real = super::real_time::hold_paused_clock();
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
            // All at once: a full pipe in one direction must not stop the others.
            let others = async { tokio::join!(write_stdin(stdin, input), read_stderr_tail(stderr)).1 };
            tokio::pin!(others);
            let tail = tokio::select! {
                enough = &mut reading => if enough { None } else { Some(others.await) },
                tail = &mut others => if reading.await { None } else { Some(tail) },
            };
            if tail.is_none() {
                // It may have ended meanwhile.
                let _ = child.start_kill();
            }
            (tail, child.wait().await)
        })
        .await;
        let Ok((tail, status)) = ended else {
            // The child is killed by its drop.
            return Err(DeliveryError::TimedOut { operation, after: limit });
        };
        let status = status.map_err(|source| DeliveryError::Io { operation, path: "git".into(), source })?;
        let Some(tail) = tail else { return Ok(None) };
        match status.code() {
            Some(code) if accepted.contains(&code) => Ok(Some(code)),
            _ => Err(command_error(operation, summary, status, &tail)),
        }
    }

    /// Starts it and leaves its standard output to the caller.
    pub(super) fn start(mut self) -> Result<(RunningGit, impl AsyncRead + Send + Unpin + 'static), DeliveryError> {
        let (operation, command) = (self.operation, self.display_command());
        let input = std::mem::replace(&mut self.input, StdinSource::Nothing);
        let mut child = self.spawn(&input)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        // While git runs, and not while its reader waits for somebody else.
        #[cfg(test)]
        let real = super::real_time::hold_paused_clock();
        let stderr = tokio::spawn(async move {
            #[cfg(test)]
            let _real = real;
            tokio::join!(write_stdin(stdin, input), read_stderr_tail(stderr)).1
        });
        Ok((RunningGit { child, stderr, operation, command }, stdout))
    }

    fn spawn(&self, input: &StdinSource) -> Result<Child, DeliveryError> {
        let operation = self.operation;
        let cwd = self.cwd.as_ref().unwrap_or(&self.git.cwd);
        let stdin = match input {
            StdinSource::Nothing => Stdio::null(),
            // A file goes through a pipe too: git reads nothing of it before the memory limit below is set.
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
            .kill_on_drop(true)
            // Ctrl-C at the terminal is for longshore, which lets a merge or an import finish.
            .process_group(0);
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
            // Fails only if it has ended already.
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = prlimit(Some(pid), Resource::Data, limit);
            }
        }
        Ok(child)
    }

    fn display_command(&self) -> String {
        let mut text = String::from("git");
        for arg in &self.args {
            text.push(' ');
            text.push_str(&arg.to_string_lossy());
        }
        truncate(&text, 200)
    }
}

impl RunningGit {
    /// Waits for its end; anything but exit code 0 is an error.
    pub(super) async fn finish(mut self) -> Result<(), DeliveryError> {
        let operation = self.operation;
        #[cfg(test)]
        let _real = super::real_time::hold_paused_clock();
        let ended = tokio::time::timeout(TIME_LIMIT, self.child.wait())
            .await
            .map_err(|_| DeliveryError::TimedOut { operation, after: TIME_LIMIT })?;
        let status = ended.map_err(|source| DeliveryError::Io { operation, path: "git".into(), source })?;
        let tail = self.stderr.await.unwrap_or_default();
        if status.success() { Ok(()) } else { Err(command_error(operation, self.command, status, &tail)) }
    }
}

/// Writes the input. An error means that the command ended early, which its status explains better.
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
    let says = |words: &[&str]| words.iter().any(|word| tail.contains(word));
    if says(&["No space left on device", "Disk quota exceeded"]) {
        DeliveryError::DiskFull { operation }
    } else if says(&["Permission denied", "insufficient permission", "Read-only file system"]) {
        DeliveryError::PermissionDenied { operation, detail: tail }
    } else {
        DeliveryError::CommandFailed { operation, command, code: status.code(), tail }
    }
}

/// Text that may quote a sandbox, made fit for a terminal and a log: no control characters but newlines, and shortened.
pub(super) fn sanitize(text: &str) -> String {
    let text: String = text.trim().chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    truncate(&text, 2_000)
}

/// The error for output that is not what was asked for.
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
