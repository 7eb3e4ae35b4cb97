//! Running git on a repository that an agent may have touched: no hooks, no outside configuration, no prompts, a time
//! limit on each process.
//!
//! Used by everything in `shim/` that needs git. Blocking: `serve.rs` calls it from blocking tasks. Must not: look for a
//! repository. It is told where the git folder and the work tree are.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use thiserror::Error;

use super::children;
use super::tail;
use crate::handoff::assignment::Identity;

/// How long a process in a clone may take, unless the caller says otherwise: an agent can make git wait.
pub const CLONE_LIMIT: Duration = Duration::from_secs(120);

/// Why git did not do what it was asked.
#[derive(Debug, Error)]
pub enum GitError {
    /// There is no git, or no process could be made.
    #[error("cannot run `git`")]
    Start(#[source] io::Error),
    /// It said no.
    #[error("`git {what}` failed: {stderr}")]
    Failed {
        /// The subcommand.
        what: String,
        /// The end of what it said, on one line.
        stderr: String,
        /// No space was left on the device.
        disk_full: bool,
    },
    /// It took too long and was killed.
    #[error("`git {what}` did not end within {} s", limit.as_secs())]
    TimedOut {
        /// The subcommand.
        what: String,
        /// What it had.
        limit: Duration,
    },
    /// It answered something that cannot be.
    #[error("`git {what}` answered `{answer}`")]
    Answer {
        /// The subcommand.
        what: String,
        /// What it said, shortened.
        answer: String,
    },
    /// A file of the repository could not be written, read or removed.
    #[error("cannot {what} `{}`", path.display())]
    File {
        /// "write", "remove", ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl GitError {
    /// Whether the cause is a full disk.
    pub fn disk_full(&self) -> bool {
        match self {
            Self::Failed { disk_full, .. } => *disk_full,
            Self::Start(source) | Self::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::TimedOut { .. } | Self::Answer { .. } => false,
        }
    }

    pub(super) fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), source }
    }
}

/// Says whether a program's words mean that the disk is full.
pub fn says_disk_full(stderr: &str) -> bool {
    stderr.contains("No space left on device") || stderr.contains("Disk quota exceeded")
}

/// Git for one repository.
#[derive(Debug, Clone)]
pub struct Git {
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    limit: Duration,
    identity: Identity,
    settings: Vec<String>,
}

/// What a process that ended had to say.
#[derive(Debug)]
pub struct GitOutput {
    /// Exit code 0.
    pub success: bool,
    /// All of it.
    pub stdout: Vec<u8>,
    /// All of it, lossy.
    pub stderr: String,
}

impl GitOutput {
    /// Standard output as text, without the newline at its end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

impl Git {
    /// For the clone in `repo`, with the git folder `repo/.git`.
    pub fn clone_in(repo: &Path, identity: Identity) -> Self {
        Self {
            git_dir: repo.join(".git"),
            work_tree: Some(repo.to_owned()),
            limit: CLONE_LIMIT,
            identity,
            // The bundle is what has to survive, and it is synced once.
            settings: vec!["core.fsync=none".to_owned()],
        }
    }

    /// For a bare repository whose content has to survive a crash.
    pub fn bare(repo: &Path) -> Self {
        Self {
            git_dir: repo.to_owned(),
            work_tree: None,
            limit: Duration::from_secs(3600),
            identity: Identity { name: "longshore".into(), email: "longshore@localhost".into() },
            settings: vec!["core.fsyncMethod=batch".to_owned()],
        }
    }

    /// The same with another limit on each process.
    pub fn within(&self, limit: Duration) -> Self {
        Self { limit, ..self.clone() }
    }

    /// A command with the safe environment and settings, for callers that stream.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("git");
        command.env_clear();
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_AUTHOR_NAME", &self.identity.name)
            .env("GIT_AUTHOR_EMAIL", &self.identity.email)
            .env("GIT_COMMITTER_NAME", &self.identity.name)
            .env("GIT_COMMITTER_EMAIL", &self.identity.email);
        if let Some(work_tree) = &self.work_tree {
            command.env("GIT_WORK_TREE", work_tree).current_dir(work_tree);
        } else {
            command.current_dir("/");
        }
        // Files over 50 MB are streamed and not compared line by line: an agent may leave one of a gigabyte.
        let fixed = [
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.bigFileThreshold=50m",
            "gc.auto=0",
            "maintenance.auto=false",
            "advice.addEmbeddedRepo=false",
            "protocol.ext.allow=never",
        ];
        for setting in fixed.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.args(args).process_group(0);
        command
    }

    /// Runs git to its end. A non-zero exit is not an error here.
    pub fn output<S: AsRef<OsStr>>(&self, args: &[S], stdin: Option<&[u8]>) -> Result<GitOutput, GitError> {
        let mut command = self.command(args);
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, owned) = children::spawn(|| command.spawn(), |child| Some(child.id())).map_err(GitError::Start)?;
        let (output, timed_out) = watch(child, &owned, stdin, self.limit).map_err(GitError::Start)?;
        if timed_out {
            return Err(GitError::TimedOut { what: name(args), limit: self.limit });
        }
        Ok(GitOutput {
            success: output.status.success(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs git; anything but exit code 0 is an error.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<GitOutput, GitError> {
        self.feed(args, None)
    }

    /// [`run`](Self::run) with bytes on standard input.
    pub fn feed<S: AsRef<OsStr>>(&self, args: &[S], stdin: Option<&[u8]>) -> Result<GitOutput, GitError> {
        let output = self.output(args, stdin)?;
        if output.success { Ok(output) } else { Err(failed(args, &output.stderr)) }
    }
}

/// The error for a git that said no.
pub fn failed<S: AsRef<OsStr>>(args: &[S], stderr: &str) -> GitError {
    let lines: Vec<String> =
        stderr.lines().map(|line| tail::clean(line.as_bytes())).filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(4);
    GitError::Failed { what: name(args), stderr: lines[last..].join("; "), disk_full: says_disk_full(stderr) }
}

fn name<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.first().map(|arg| arg.as_ref().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Waits for a process, feeding it and collecting what it prints; kills its group when the limit passes.
fn watch(
    mut child: std::process::Child,
    owned: &children::Owned,
    stdin: Option<&[u8]>,
    limit: Duration,
) -> io::Result<(Output, bool)> {
    let input = child.stdin.take();
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let late = matches!(ended.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout));
            if late {
                owned.signal_group(Signal::KILL);
            }
            late
        });
        if let (Some(mut pipe), Some(bytes)) = (input, stdin) {
            // A process that ends without reading all of it says why on its standard error.
            scope.spawn(move || pipe.write_all(bytes));
        }
        let output = child.wait_with_output();
        drop(done);
        let late = watchdog.join().unwrap_or(false);
        Ok((output?, late))
    })
}
