//! What everything that runs in a sandbox shares: the assignment, the clone, the channels, and the limits.
//!
//! Made by `setup.rs`; used by `attempt.rs`, `story.rs`, `review.rs` and `check.rs`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::channel::Channel;
use super::clock::{SandboxClock, StoryDeadline};
use super::clone_dir::CloneDir;
use super::command::{CommandRunner, CommandSpec};
use super::disk_space;
use super::git::GitError;
use super::progress::ProgressReporter;
use super::received_dispatch::ReceivedDispatch;
use super::sign_off::SignOff;
use super::stop_budget::{StopBudget, StopPhase};
use super::story_failure::git_failure;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::layout;
use crate::ids::{CommitId, StoryId};
use crate::tasks::TasksFile;
use crate::verdict::{Cause, Failure};

pub struct SandboxContext {
    pub assignment: AssignmentFile,
    pub tasks: TasksFile,
    pub clone: CloneDir,
    pub dispatch: ReceivedDispatch,
    /// The directory of the memory files.
    pub memory_dir: PathBuf,
    /// The directory of the prompts and the socket.
    pub run_dir: PathBuf,
    /// The directory of the result and the bundle.
    pub out_dir: PathBuf,
    /// The environment of agents and checks.
    pub env: BTreeMap<OsString, OsString>,
    pub channel: Channel,
    pub commands: CommandRunner,
    pub stop_budget: StopBudget,
    pub heartbeat_interval: Duration,
    pub clock: SandboxClock,
    /// Set if the agent is a member of the mailbox.
    pub sign_off: Option<SignOff>,
}

impl SandboxContext {
    /// Sends DONE to the mailbox if the agent did not.
    pub fn sign_off(&self, what: &str) {
        match self.sign_off.as_ref().map(|sign_off| sign_off.send_done_if_missing(what)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => self.log("the agent did not sign off in the mailbox: sent DONE on its behalf"),
            Some(Err(error)) => self.log(&format!("cannot sign off in the mailbox: {error}")),
        }
    }

    pub fn log(&self, line: &str) {
        self.commands.log.write_line(line);
    }

    pub fn is_stopped(&self) -> bool {
        self.commands.stop.is_cancelled()
    }

    pub fn progress_reporter(&self, story: StoryId) -> ProgressReporter {
        ProgressReporter::new(story, self.channel.clone(), self.heartbeat_interval)
    }

    /// The assigned branch's full ref name.
    pub fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.assignment.branch)
    }

    /// The commit of the assigned branch in `refs`.
    pub fn branch_tip<'a>(&'a self, refs: &'a BTreeMap<String, CommitId>) -> &'a CommitId {
        refs.get(&self.branch_ref()).unwrap_or(&self.assignment.base)
    }

    pub fn bundle_path(&self) -> PathBuf {
        self.out_dir.join(layout::BUNDLE_FILE)
    }

    /// Directories of the file systems that agents, checks and git write to. The one with the work is first.
    pub fn writable_dirs(&self) -> Vec<PathBuf> {
        let variable = |name: &str| self.env.get(OsStr::new(name)).map(PathBuf::from);
        let mut dirs = vec![self.clone.repo.clone(), "/tmp".into()];
        dirs.extend(["HOME", "TMPDIR"].into_iter().filter_map(variable));
        dirs.dedup();
        dirs
    }

    /// The deadline of a story that starts now.
    pub fn story_deadline(&self) -> StoryDeadline {
        self.clock.deadline_after(Duration::from_secs(self.assignment.story_timeout_secs))
    }

    /// A command in the work tree.
    pub fn command_spec(
        &self,
        argv: Vec<String>,
        env: BTreeMap<OsString, OsString>,
        stdin: Option<String>,
        deadline: &StoryDeadline,
    ) -> CommandSpec {
        CommandSpec {
            argv,
            dir: self.clone.repo.clone(),
            env,
            stdin,
            deadline: deadline.clone(),
            idle_timeout: Duration::from_secs(self.assignment.idle_timeout_secs),
            grace: Duration::from_secs(self.assignment.grace_secs),
        }
    }

    /// Runs git on the clone beside the runtime. A stop ends it with the phase; `what` then names the subcommand.
    pub async fn run_git<T: Send + 'static>(
        &self,
        phase: StopPhase,
        what: &str,
        work: impl FnOnce(&CloneDir) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let deadline = self.stop_budget.deadline(phase);
        let clone = self.clone.with_stop_deadline(deadline.clone());
        let done = deadline.run_blocking(move || work(&clone)).await;
        done.unwrap_or_else(|| Err(GitError::Stopped { what: what.into() }))
    }

    /// The failure that follows from an error of git, with evidence of a full disk.
    pub fn git_failure(&self, error: &GitError, what: &str) -> Failure {
        self.with_disk_evidence(git_failure(error, what))
    }

    /// The failure of a prompt that cannot be written.
    pub fn prompt_failure(&self, file: &Path, error: &io::Error) -> Failure {
        let full = error.kind() == io::ErrorKind::StorageFull;
        let cause = if full { Cause::DiskFull } else { Cause::AgentFailed };
        self.with_disk_evidence(Failure::new(cause, format!("cannot write the prompt `{}`: {error}", file.display())))
    }

    pub fn with_disk_evidence(&self, mut failure: Failure) -> Failure {
        disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
        failure
    }
}

/// The arguments that run a shell command.
pub fn shell_argv(command: &str) -> Vec<String> {
    ["sh", "-c", command].map(str::to_owned).to_vec()
}

/// The milliseconds since `started_at`.
pub fn elapsed_ms(started_at: Instant) -> u64 {
    u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
}
