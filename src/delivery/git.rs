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
const SETTINGS: &[&str] = &[
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
const KEPT: &[&str] = &[
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
pub(super) struct Git {
    /// The folder that commands run in.
    cwd: PathBuf,
    /// The repo, once it is known. Without it git looks for one from `cwd` up.
    git_dir: Option<PathBuf>,
    /// Variables to remove.
    removed: Vec<OsString>,
    /// Settings whose keys `-c` cannot carry, passed on beside the inherited ones.
    settings: Vec<(String, String)>,
    /// The number of settings inherited by `GIT_CONFIG_COUNT`.
    inherited: usize,
}

impl Git {
    /// Git that looks for a repo from `cwd` up.
    pub(super) fn at(cwd: &Path) -> Self {
        let inherited = std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
        let removed = std::env::vars_os()
            .map(|(key, _)| key)
            .filter(|key| {
                let key = key.to_string_lossy();
                key.starts_with("GIT_")
                    && !KEPT.contains(&key.as_ref())
                    && !key.starts_with("GIT_CONFIG_KEY_")
                    && !key.starts_with("GIT_CONFIG_VALUE_")
                    && !key.starts_with("GIT_SSL_")
            })
            .collect();
        Self { cwd: cwd.to_owned(), git_dir: None, removed, settings: Vec::new(), inherited }
    }

    /// The same for a known repo: commands run in the repo's own folder, away from the working tree.
    pub(super) fn of(mut self, git_dir: &Path, settings: Vec<(String, String)>) -> Self {
        self.cwd = git_dir.to_owned();
        self.git_dir = Some(git_dir.to_owned());
        self.settings = settings;
        self
    }

    /// A command. `operation` stands in errors: "read the head".
    pub(super) fn call<S: AsRef<OsStr>>(&self, operation: &'static str, args: impl IntoIterator<Item = S>) -> Call<'_> {
        Call {
            git: self,
            operation,
            cwd: None,
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            input: Input::Nothing,
            accepted: &[0],
            time_limit: TIME_LIMIT,
            memory_limit: None,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        for key in &self.removed {
            command.env_remove(key);
        }
        command
            .env("LC_ALL", "C")
            .env_remove("LANGUAGE")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            // The sandboxes do not see the user's replace refs: the same history on both sides.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_CONFIG_COUNT", (self.inherited + self.settings.len()).to_string());
        for (index, (key, value)) in self.settings.iter().enumerate() {
            let number = self.inherited + index;
            command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        if let Some(git_dir) = &self.git_dir {
            command.env("GIT_DIR", git_dir);
        }
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
    }
}

/// What a command reads.
enum Input {
    Nothing,
    Bytes(Vec<u8>),
    /// From the file's current position on.
    File(File),
}

/// One command, not yet run.
pub(super) struct Call<'g> {
    git: &'g Git,
    operation: &'static str,
    cwd: Option<PathBuf>,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    input: Input,
    accepted: &'static [i32],
    time_limit: Duration,
    memory_limit: Option<u64>,
}

/// What a command did.
#[derive(Debug)]
pub(super) struct Output {
    /// Its exit code, one of the accepted ones.
    pub(super) code: i32,
    /// What it printed.
    pub(super) stdout: Vec<u8>,
}

impl Output {
    /// Standard output without the newline at its end. Ids and ref names only: what is not UTF-8 is replaced.
    pub(super) fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

/// A running command whose standard output somebody else reads.
pub(super) struct Running {
    /// The process; killed when dropped.
    pub(super) child: Child,
    /// The end of its stderr, when that closes.
    pub(super) stderr: tokio::task::JoinHandle<Vec<u8>>,
    operation: &'static str,
    command: String,
}

impl<'g> Call<'g> {
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
        self.input = Input::Bytes(bytes.into());
        self
    }

    /// Gives it the rest of a file to read.
    pub(super) fn input_file(mut self, file: File) -> Self {
        self.input = Input::File(file);
        self
    }

    /// Exit codes that are not errors; 0 alone unless set.
    pub(super) fn accept(mut self, codes: &'static [i32]) -> Self {
        self.accepted = codes;
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
    pub(super) async fn run(self) -> Result<Output, DeliveryError> {
        let mut stdout = Vec::new();
        let operation = self.operation;
        let mut full = false;
        let code = self
            .run_with(|chunk| {
                full = stdout.len() + chunk.len() > OUTPUT_LIMIT;
                if !full {
                    stdout.extend_from_slice(chunk);
                }
                !full
            })
            .await?;
        match code {
            Some(code) => Ok(Output { code, stdout }),
            None => Err(DeliveryError::Output { operation, found: format!("more than {OUTPUT_LIMIT} bytes") }),
        }
    }

    /// Runs it and hands what it prints to `sink`, piece by piece, until that has had enough: then the command is killed
    /// and there is no exit code.
    pub(super) async fn run_with(mut self, mut sink: impl FnMut(&[u8]) -> bool) -> Result<Option<i32>, DeliveryError> {
        #[cfg(test)]
        let _real = super::real_time::hold();
        let (operation, accepted, limit) = (self.operation, self.accepted, self.time_limit);
        let input = std::mem::replace(&mut self.input, Input::Nothing);
        let summary = self.summary();
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
            let others = async { tokio::join!(feed(stdin, input), tail_of(stderr)).1 };
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
            _ => Err(failure(operation, summary, status, &tail)),
        }
    }

    /// Starts it and leaves its standard output to the caller.
    pub(super) fn start(mut self) -> Result<(Running, impl AsyncRead + Send + Unpin + 'static), DeliveryError> {
        let (operation, command) = (self.operation, self.summary());
        let input = std::mem::replace(&mut self.input, Input::Nothing);
        let mut child = self.spawn(&input)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        // While git runs, and not while its reader waits for somebody else.
        #[cfg(test)]
        let real = super::real_time::hold();
        let stderr = tokio::spawn(async move {
            #[cfg(test)]
            let _real = real;
            tokio::join!(feed(stdin, input), tail_of(stderr)).1
        });
        Ok((Running { child, stderr, operation, command }, stdout))
    }

    fn spawn(&self, input: &Input) -> Result<Child, DeliveryError> {
        let operation = self.operation;
        let cwd = self.cwd.as_ref().unwrap_or(&self.git.cwd);
        let stdin = match input {
            Input::Nothing => Stdio::null(),
            // A file goes through a pipe too: git reads nothing of it before the memory limit below is set.
            Input::Bytes(_) | Input::File(_) => Stdio::piped(),
        };
        let mut command = self.git.command();
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
            if cwd.is_dir() { DeliveryError::GitMissing { source } } else { DeliveryError::io(operation, cwd, source) }
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

    fn summary(&self) -> String {
        let mut text = String::from("git");
        for arg in &self.args {
            text.push(' ');
            text.push_str(&arg.to_string_lossy());
        }
        shorten(&text, 200)
    }
}

impl Running {
    /// Waits for its end; anything but exit code 0 is an error.
    pub(super) async fn finish(mut self) -> Result<(), DeliveryError> {
        let operation = self.operation;
        #[cfg(test)]
        let _real = super::real_time::hold();
        let ended = tokio::time::timeout(TIME_LIMIT, self.child.wait())
            .await
            .map_err(|_| DeliveryError::TimedOut { operation, after: TIME_LIMIT })?;
        let status = ended.map_err(|source| DeliveryError::Io { operation, path: "git".into(), source })?;
        let tail = self.stderr.await.unwrap_or_default();
        if status.success() { Ok(()) } else { Err(failure(operation, self.command, status, &tail)) }
    }
}

/// Writes the input. An error means that the command ended early, which its status explains better.
async fn feed(stdin: Option<ChildStdin>, input: Input) {
    let Some(mut stdin) = stdin else { return };
    let _ = match input {
        Input::Nothing => Ok(()),
        Input::Bytes(bytes) => stdin.write_all(&bytes).await,
        Input::File(file) => tokio::io::copy(&mut tokio::fs::File::from_std(file), &mut stdin).await.map(drop),
    };
    let _ = stdin.shutdown().await;
}

async fn tail_of(mut stderr: ChildStderr) -> Vec<u8> {
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

fn failure(operation: &'static str, command: String, status: ExitStatus, tail: &[u8]) -> DeliveryError {
    let tail = clean(&String::from_utf8_lossy(tail));
    let says = |words: &[&str]| words.iter().any(|word| tail.contains(word));
    if says(&["No space left on device", "Disk quota exceeded"]) {
        DeliveryError::DiskFull { operation }
    } else if says(&["Permission denied", "insufficient permission", "Read-only file system"]) {
        DeliveryError::Permission { operation, detail: tail }
    } else {
        DeliveryError::CommandFailed { operation, command, code: status.code(), tail }
    }
}

/// Text that may quote a sandbox, made fit for a terminal and a log: no control characters but newlines, and shortened.
pub(super) fn clean(text: &str) -> String {
    let text: String = text.trim().chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    shorten(&text, 2_000)
}

/// The error for output that is not what was asked for.
pub(super) fn not_understood(operation: &'static str, found: &str) -> DeliveryError {
    DeliveryError::Output { operation, found: shorten(&clean(found), 200) }
}

/// At most `limit` characters.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
