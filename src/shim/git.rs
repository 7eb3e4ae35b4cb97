//! Runs git on a repository that an agent may have changed: no hooks, no outside configuration, no prompts, a time limit on
//! each process.
//!
//! Called by everything in `shim/` that needs git, from blocking tasks. Must not: search for a
//! repository; the caller names the git directory and the work tree.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thiserror::Error;

use super::children;
use super::disk_space::DiskSpace;
use super::stop_budget::StopDeadline;
use super::tail;
use crate::git::{harden, identity_env, mentions_disk_full, mentions_out_of_memory};
use crate::handoff::assignment::GitIdentity;

/// The default time limit of a process in a clone, because an agent can make git wait.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);

/// How often the watchdog of a process checks whether the sandbox is being stopped.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A failure of git. `what` is the subcommand.
#[derive(Debug, Error)]
pub enum GitError {
    /// There is no git, or its process cannot be started.
    #[error("cannot run `git`")]
    Start(#[source] io::Error),
    #[error("`git {what}` failed: {stderr}")]
    Failed {
        what: String,
        /// The end of stderr, on one line.
        stderr: String,
        disk_full: bool,
    },
    /// It got no memory, or something other than the shim sent it SIGKILL, as the kernel does when memory ends.
    #[error("`git {what}` ran out of memory: {stderr}")]
    OutOfMemory {
        what: String,
        /// The end of stderr, on one line.
        stderr: String,
    },
    /// It was killed.
    #[error("`git {what}` did not end within {} s", limit.as_secs())]
    TimedOut { what: String, limit: Duration },
    /// The sandbox is being stopped: it was killed, or not started.
    #[error("`git {what}` was cut off: the sandbox was stopped")]
    Stopped { what: String },
    #[error("unexpected output of `git {what}`: `{answer}`")]
    UnexpectedOutput {
        what: String,
        /// Truncated.
        answer: String,
    },
    /// A file operation in the repository failed. Here, `what` is the operation: "write", "remove", ...
    #[error("cannot {what} `{}`", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl GitError {
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Failed { disk_full, .. } => *disk_full,
            Self::Start(source) | Self::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::OutOfMemory { .. } | Self::TimedOut { .. } | Self::Stopped { .. } | Self::UnexpectedOutput { .. } => {
                false
            }
        }
    }

    /// Whether the sandbox lacks something that git needs, whatever the repository is like.
    pub fn is_lack_of_resources(&self) -> bool {
        self.is_disk_full() || matches!(self, Self::OutOfMemory { .. })
    }

    pub(super) fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), source }
    }
}

/// Git for one repository.
#[derive(Debug, Clone)]
pub struct HardenedGit {
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    timeout: Duration,
    stop_deadline: Option<StopDeadline>,
    identity: GitIdentity,
    config_overrides: Vec<String>,
}

/// The output of a process that exited.
#[derive(Debug)]
pub struct GitOutput {
    /// Whether the exit code is 0.
    pub success: bool,
    pub stdout: Vec<u8>,
    /// Invalid UTF-8 is replaced.
    pub stderr: String,
}

impl GitOutput {
    /// Standard output as text, without trailing white space.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

impl HardenedGit {
    /// For the clone in `repo`, with the git directory `repo/.git`.
    pub fn for_clone(repo: &Path, identity: GitIdentity) -> Self {
        Self {
            git_dir: repo.join(".git"),
            work_tree: Some(repo.to_owned()),
            timeout: GIT_TIMEOUT,
            stop_deadline: None,
            identity,
            // Only the bundle has to survive a crash, and it is synced once.
            config_overrides: vec!["core.fsync=none".to_owned()],
        }
    }

    /// For a bare repository, whose content has to survive a crash.
    pub fn for_bare_repo(repo: &Path) -> Self {
        Self {
            git_dir: repo.to_owned(),
            work_tree: None,
            timeout: Duration::from_secs(3600),
            stop_deadline: None,
            identity: GitIdentity { name: "longshore".into(), email: "longshore@localhost".into() },
            config_overrides: vec!["core.fsyncMethod=batch".to_owned()],
        }
    }

    /// The same git with another time limit.
    pub fn with_timeout(&self, limit: Duration) -> Self {
        Self { timeout: limit, ..self.clone() }
    }

    /// The same git with processes that are killed at the deadline of a stop. None starts after it.
    pub fn with_stop_deadline(&self, stop_deadline: Option<StopDeadline>) -> Self {
        Self { stop_deadline, ..self.clone() }
    }

    /// A command with the hardened environment and settings, for callers that stream.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("git");
        command.env_clear();
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(identity_env(&self.identity));
        if let Some(work_tree) = &self.work_tree {
            command.env("GIT_WORK_TREE", work_tree).current_dir(work_tree);
        } else {
            command.current_dir("/");
        }
        // Files over 50 MB are streamed and not compared line by line: an agent may leave one of a gigabyte.
        let fixed = ["core.bigFileThreshold=50m", "advice.addEmbeddedRepo=false"];
        harden(&mut command, fixed.into_iter().chain(self.config_overrides.iter().map(String::as_str)));
        command.args(args);
        command
    }

    /// Runs git until it exits. A non-zero exit code is not an error here.
    pub fn output<S: AsRef<OsStr>>(&self, args: &[S], stdin: Option<&[u8]>) -> Result<GitOutput, GitError> {
        let input = if stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        self.output_with(args, stdin, input, Stdio::piped())
    }

    fn output_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        stdin: Option<&[u8]>,
        input: Stdio,
        output: Stdio,
    ) -> Result<GitOutput, GitError> {
        if self.stop_deadline.as_ref().is_some_and(StopDeadline::has_passed) {
            return Err(GitError::Stopped { what: subcommand(args) });
        }
        let mut command = self.command(args);
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        let (child, owned) = children::spawn_command(&mut command).map_err(GitError::Start)?;
        let (output, late) =
            wait_or_kill(child, &owned, stdin, self.timeout, self.stop_deadline.as_ref()).map_err(GitError::Start)?;
        if let Some(late) = late {
            // A killed git leaves the lock, which would block the next one.
            let _ = std::fs::remove_file(self.git_dir.join("index.lock"));
            return Err(match late {
                KillReason::Timeout => GitError::TimedOut { what: subcommand(args), limit: self.timeout },
                KillReason::Stop => GitError::Stopped { what: subcommand(args) },
            });
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            let stderr = format!("it was killed with SIGKILL; {}", last_lines(&stderr));
            return Err(GitError::OutOfMemory { what: subcommand(args), stderr });
        }
        Ok(GitOutput { success: output.status.success(), stdout: output.stdout, stderr })
    }

    /// Runs git. Any exit code but 0 is an error.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<GitOutput, GitError> {
        self.run_with_stdin(args, None)
    }

    /// [`run`](Self::run) with bytes on standard input.
    pub fn run_with_stdin<S: AsRef<OsStr>>(&self, args: &[S], stdin: Option<&[u8]>) -> Result<GitOutput, GitError> {
        self.check(args, self.output(args, stdin)?)
    }

    /// [`run`](Self::run) with open files as standard input and output.
    pub fn run_with_files<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Stdio,
        output: Stdio,
    ) -> Result<GitOutput, GitError> {
        self.check(args, self.output_with(args, None, input, output)?)
    }

    fn check<S: AsRef<OsStr>>(&self, args: &[S], output: GitOutput) -> Result<GitOutput, GitError> {
        if output.success {
            return Ok(output);
        }
        let mut error = error_from_stderr(args, &output.stderr);
        // If git cannot write an index or a ref, it does not report why.
        if let GitError::Failed { disk_full, .. } = &mut error {
            *disk_full = *disk_full || DiskSpace::measure(&self.git_dir).is_ok_and(|space| space.is_full());
        }
        Err(error)
    }
}

/// The error of a git that failed.
pub fn error_from_stderr<S: AsRef<OsStr>>(args: &[S], stderr: &str) -> GitError {
    let (what, last) = (subcommand(args), last_lines(stderr));
    if mentions_out_of_memory(stderr) {
        return GitError::OutOfMemory { what, stderr: last };
    }
    GitError::Failed { what, stderr: last, disk_full: mentions_disk_full(stderr) }
}

/// The end of stderr on one line.
fn last_lines(stderr: &str) -> String {
    let lines: Vec<String> =
        stderr.lines().map(|line| tail::sanitize_line(line.as_bytes())).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

fn subcommand<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.first().map(|arg| arg.as_ref().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Why a process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillReason {
    Timeout,
    Stop,
}

/// Waits until the process ends or has to be killed.
fn wait_for_exit(
    ended: &mpsc::Receiver<()>,
    limit: Duration,
    stop_deadline: Option<&StopDeadline>,
) -> Option<KillReason> {
    let started_at = Instant::now();
    loop {
        let left = limit.saturating_sub(started_at.elapsed());
        let next = match stop_deadline.map(StopDeadline::instant) {
            Some(Some(at)) => left.min(at.saturating_duration_since(Instant::now())),
            Some(None) => left.min(STOP_POLL_INTERVAL),
            None => left,
        };
        match ended.recv_timeout(next) {
            Err(mpsc::RecvTimeoutError::Timeout) if stop_deadline.is_some_and(StopDeadline::has_passed) => {
                return Some(KillReason::Stop);
            }
            Err(mpsc::RecvTimeoutError::Timeout) if started_at.elapsed() >= limit => return Some(KillReason::Timeout),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => return None,
        }
    }
}

/// Waits for a process while writing its input and collecting its output. Kills its group at the limit.
fn wait_or_kill(
    mut child: std::process::Child,
    owned: &children::OwnedProcess,
    stdin: Option<&[u8]>,
    limit: Duration,
    stop_deadline: Option<&StopDeadline>,
) -> io::Result<(Output, Option<KillReason>)> {
    let input = child.stdin.take();
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let late = wait_for_exit(&ended, limit, stop_deadline);
            if late.is_some() {
                owned.signal_group(Signal::KILL);
            }
            late
        });
        if let (Some(mut pipe), Some(bytes)) = (input, stdin) {
            // A process that exits before reading all of it reports why on stderr.
            scope.spawn(move || pipe.write_all(bytes));
        }
        let output = child.wait_with_output();
        drop(done);
        let late = watchdog.join().unwrap_or(None);
        Ok((output?, late))
    })
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::stop_budget::{StopBudget, StopPhase};
    use super::super::story_failure::git_failure;
    use super::*;
    use crate::verdict::Cause;

    #[test]
    fn git_killed_for_memory_is_no_damage() {
        let dir = tempfile::tempdir().expect("a directory");
        let git = HardenedGit::for_clone(dir.path(), GitIdentity { name: "A".into(), email: "a@b".into() });
        std::fs::create_dir_all(dir.path().join(".git")).expect("made");
        let killed = git.run(&["-c", "alias.die=!kill -9 $PPID; sleep 100", "die"]).expect_err("it was killed");
        let full = error_from_stderr(&["gc"], "error: No space left on device\n");
        let memory = [
            "fatal: Out of memory, malloc failed (tried to allocate 1073741825 bytes)\n",
            "fatal: mmap failed: Cannot allocate memory\n",
        ];
        for error in memory.map(|stderr| error_from_stderr(&["add"], stderr)).into_iter().chain([killed]) {
            assert!(matches!(error, GitError::OutOfMemory { .. }), "{error}");
            assert_eq!(git_failure(&error, "cannot add").cause, Cause::OomSuspected);
        }
        assert_eq!(git_failure(&full, "cannot add").cause, Cause::DiskFull);
    }

    #[test]
    fn a_stop_kills_running_git_and_rejects_new_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join(".git")).expect("made");
        let lock = dir.path().join(".git/index.lock");
        std::fs::write(&lock, "").expect("written");
        let token = CancellationToken::new();
        let budget = StopBudget::new(token.clone(), Duration::ZERO);
        let identity = GitIdentity { name: "A".into(), email: "a@b".into() };
        let git =
            HardenedGit::for_clone(dir.path(), identity).with_stop_deadline(Some(budget.deadline(StopPhase::Work)));
        let started_at = Instant::now();
        let stopping = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            token.cancel();
        });
        let waits = ["-c", "alias.wait=!sleep 1000", "wait"];
        assert!(matches!(git.run(&waits), Err(GitError::Stopped { .. })));
        stopping.join().expect("it stops");
        assert!(started_at.elapsed() < Duration::from_secs(3), "{:?}", started_at.elapsed());
        assert!(!lock.exists(), "the next git would not work");
        let again = Instant::now();
        assert!(matches!(git.run(&["--version"]), Err(GitError::Stopped { .. })));
        assert!(again.elapsed() < Duration::from_millis(100));
        assert!(
            git.with_stop_deadline(Some(budget.deadline(StopPhase::Bundle))).run(&["--version"]).is_ok(),
            "its time is still to come"
        );
        let limited = git.with_stop_deadline(None).with_timeout(Duration::from_millis(300));
        assert!(matches!(limited.run(&waits), Err(GitError::TimedOut { .. })));
    }
}
