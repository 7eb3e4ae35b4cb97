//! Prepares a sandbox once the task-request is there: the clone, the tasks file, the agent's environment and socket. Then runs the
//! attempt, the review or the check.
//!
//! Called by `serve.rs`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::agent_requests::{self, AgentRequests};
use super::attempt::{AttemptRun, initial_refs, not_reached_file};
use super::channel::Channel;
use super::check::{self, CheckAttempt};
use super::clock::SandboxClock;
use super::clone_dir::{self, CHECKOUT_TIMEOUT, CloneDir, HeadTarget, OriginConfig, render_git_config};
use super::command::{CommandRunner, OutputLog};
use super::fatal_error::FatalError;
use super::layout::Layout;
use super::mail;
use super::memory_gauge::MemoryGauge;
use super::progress::ProgressReporter;
use super::received_dispatch::ReceivedDispatch;
use super::result_files::{Durability, reserve_space, write_result};
use super::review::{self, ReviewRun};
use super::sandbox_context::SandboxContext;
use super::sign_off::SignOff;
use super::socket_client::SOCKET_VARIABLE;
use super::stop_budget::{StopBudget, StopPhase};
use crate::handoff::assignment::{AssignmentFile, MailboxMembership};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{CompletionStatus, ErrorCode, TaskRequest};
use crate::tasks::{self, TasksFile};

/// The surroundings of the shim that stay the same while it runs.
pub struct SandboxEnvironment {
    pub layout: Layout,
    /// The environment that the shim was started with.
    pub env: BTreeMap<OsString, OsString>,
    pub memory: MemoryGauge,
    /// Cancelled by SIGTERM.
    pub stop: CancellationToken,
    /// [`HEARTBEAT_INTERVAL`](super::progress::HEARTBEAT_INTERVAL), except in tests.
    pub heartbeat_interval: Duration,
}

pub struct SandboxSetup {
    pub environment: SandboxEnvironment,
    /// The attempt's directory name.
    pub attempt_dir: String,
    pub channel: Channel,
    pub log: OutputLog,
}

impl SandboxSetup {
    /// Runs the assignment to its completion. Returns the exit code.
    pub async fn run(self, assignment: AssignmentFile, request: TaskRequest) -> u8 {
        let (channel, log, stop) = (self.channel.clone(), self.log.clone(), self.environment.stop.clone());
        let stop_budget = StopBudget::new(stop.clone(), Duration::from_secs(assignment.grace_secs));
        tokio::spawn(stop_budget.clone().record_start());
        let out_dir = self.environment.layout.out_dir(&self.attempt_dir);
        reserve_space(&out_dir);
        // A story has to start before anything can be reported of it, so a slow clone counts as the first story's start.
        let heartbeat = assignment.stories.first().map(|first| {
            let interval = self.environment.heartbeat_interval;
            ProgressReporter::new_in_progress(first.id.clone(), channel.clone(), interval).spawn()
        });
        let prepared = self.prepare(&assignment, &request, stop_budget).await;
        if let Some(heartbeat) = heartbeat {
            heartbeat.abort();
        }
        let fatal = match prepared {
            Ok((sandbox, story_order)) => {
                return match (assignment.review, assignment.check) {
                    (_, Some(check)) => CheckAttempt { sandbox, check, story_order }.run().await,
                    (Some(review), None) => ReviewRun { sandbox, review }.run().await,
                    (None, None) => AttemptRun { sandbox, story_order }.run().await,
                };
            }
            Err(fatal) => fatal,
        };
        let written = if assignment.check.is_some() {
            let result = check::not_started_file(&assignment, &fatal, stop.is_cancelled());
            write_result(&out_dir, &result, Durability::Synced)
        } else if assignment.review.is_some() {
            let result = review::not_started_file(&assignment, &fatal, stop.is_cancelled());
            write_result(&out_dir, &result, Durability::Synced)
        } else {
            write_result(&out_dir, &not_reached_file(&assignment), Durability::Synced)
        };
        if let Err(error) = written {
            log.write_line(&format!("cannot write the result: {error}"));
        }
        if stop.is_cancelled() {
            log.write_line(&format!("stopped: {}", fatal.message));
            channel.send_completion(CompletionStatus::Stopped, vec![fatal.message]);
            return 0;
        }
        fatal.send(&channel, &log)
    }

    /// Makes the clone and reads the tasks file. The indices are those of the stories to do, in their order.
    async fn prepare(
        self,
        assignment: &AssignmentFile,
        request: &TaskRequest,
        stop_budget: StopBudget,
    ) -> Result<(SandboxContext, Vec<usize>), FatalError> {
        let work = stop_budget.deadline(StopPhase::Work);
        let clone = self.clone_dir(assignment, request.repo_url.as_str()).with_stop_deadline(work.clone());
        let cloning = work.run_blocking({
            let (clone, base) = (clone.clone(), assignment.base.clone());
            move || make_clone(&clone, &base)
        });
        let stopped = || FatalError::new(ErrorCode::GIT_CLONE_FAILED, "the sandbox was stopped before it had a clone");
        cloning.await.unwrap_or_else(|| Err(stopped()))?;
        let (tasks, story_order) = self.read_tasks_file(assignment)?;
        let layout = &self.environment.layout;
        let (mut dispatch, agent_requests) = (ReceivedDispatch::default(), AgentRequests::default());
        if assignment.check.is_none() {
            dispatch = ReceivedDispatch::receive(&layout.dispatch_file(&self.attempt_dir), assignment);
            let socket = layout.socket_path(&self.attempt_dir);
            agent_requests::serve(&socket, agent_requests.clone()).map_err(|error| {
                let message = format!("cannot open the socket `{}`: {error}", socket.display());
                FatalError::new(ErrorCode::UNKNOWN_ERROR, message)
            })?;
        }
        let env = self.agent_env(assignment, request);
        if let Some(home) = env.get(OsStr::new("HOME")) {
            clone_dir::trust_objects_repo(Path::new(home), &layout.objects_repo());
        }
        let clock = SandboxClock::default();
        tokio::spawn(clock.clone().run());
        let sandbox = SandboxContext {
            assignment: assignment.clone(),
            tasks,
            clone,
            dispatch,
            memory_dir: layout.memory_dir(&self.attempt_dir),
            run_dir: layout.run_dir(&self.attempt_dir),
            out_dir: layout.out_dir(&self.attempt_dir),
            env,
            channel: self.channel,
            stop_budget,
            heartbeat_interval: self.environment.heartbeat_interval,
            clock,
            sign_off: mailbox_member(assignment).map(|member| SignOff::new(layout, member)),
            commands: CommandRunner {
                log: self.log,
                memory: self.environment.memory,
                stop: self.environment.stop,
                // Half of the time that a stop has is the agent's, the rest is for saving its work.
                stop_grace: Duration::from_secs(assignment.grace_secs.max(1)) / 2,
                agent_requests,
                secrets: request.env_vars.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            },
        };
        Ok((sandbox, story_order))
    }

    fn clone_dir(&self, assignment: &AssignmentFile, repo_url: &str) -> CloneDir {
        let objects_repo = self.environment.layout.objects_repo();
        let origin = OriginConfig {
            url: repo_url,
            objects_repo: &objects_repo,
            branch: assignment.branch.as_str(),
            upstream: &assignment.integration_branch,
        };
        CloneDir {
            repo: self.environment.layout.repo_dir(&self.attempt_dir),
            head: HeadTarget::Branch(format!("refs/heads/{}", assignment.branch)),
            refs: initial_refs(assignment).into_iter().collect(),
            config: render_git_config(&assignment.object_format, &assignment.identity, Some(origin)),
            identity: assignment.identity.clone(),
            stop_deadline: None,
            objects_repo,
        }
    }

    fn read_tasks_file(&self, assignment: &AssignmentFile) -> Result<(TasksFile, Vec<usize>), FatalError> {
        let shown = &assignment.task_file_path;
        let bytes = fs::read(self.environment.layout.tasks_file(&self.attempt_dir, shown)).map_err(|error| {
            FatalError::new(ErrorCode::TASK_FILE_NOT_FOUND, format!("cannot read the tasks file `{shown}`: {error}"))
        })?;
        let invalid = |why: String| FatalError::new(ErrorCode::TASK_FILE_INVALID, why);
        let file = tasks::parse(&bytes, shown.as_ref()).map_err(|error| invalid(error.to_string()))?;
        let is_in_file = |id: &StoryId| file.stories.iter().any(|story| story.id == *id);
        if let Some(missing) = assignment.stories.iter().find(|work| !is_in_file(&work.id)) {
            return Err(invalid(format!("the tasks file `{shown}` has no story {}", missing.id)));
        }
        let is_assigned = |id: &StoryId| assignment.stories.iter().any(|work| work.id == *id);
        let order = tasks::topological_order(&file).into_iter();
        let order = order.filter(|index| is_assigned(&file.stories[*index].id)).collect();
        Ok((file, order))
    }

    /// The environment of agents and checks: the image's, the task-request's, and longshore's variables.
    fn agent_env(&self, assignment: &AssignmentFile, request: &TaskRequest) -> BTreeMap<OsString, OsString> {
        let layout = &self.environment.layout;
        let mut env = self.environment.env.clone();
        env.extend(request.env_vars.iter().map(|(name, value)| (name.into(), value.into())));
        let mut path = env.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        path.push(":");
        path.push(layout.bin_dir());
        let variables: [(&str, OsString); 5] = [
            ("PATH", path),
            ("LONGSHORE_SWARM", assignment.swarm_id.to_string().into()),
            ("LONGSHORE_ASSIGNMENT", assignment.attempt.assignment.as_str().into()),
            ("LONGSHORE_ATTEMPT", assignment.attempt.number.to_string().into()),
            ("LONGSHORE_TASKS_FILE", layout.tasks_file(&self.attempt_dir, &assignment.task_file_path).into()),
        ];
        env.extend(variables.map(|(name, value)| (name.into(), value)));
        if assignment.check.is_none() {
            env.insert(SOCKET_VARIABLE.into(), layout.socket_path(&self.attempt_dir).into());
        }
        if let Some(member) = mailbox_member(assignment) {
            env.insert(mail::MAILBOX_VARIABLE.into(), layout.mailbox_volume().into());
            env.insert(mail::AGENT_VARIABLE.into(), member.agent.as_str().into());
        }
        env
    }
}

/// The agent's membership in the mailbox. A check sandbox has no agent.
fn mailbox_member(assignment: &AssignmentFile) -> Option<&MailboxMembership> {
    assignment.mailbox.as_ref().filter(|_| assignment.check.is_none())
}

fn make_clone(clone: &CloneDir, base: &CommitId) -> Result<(), FatalError> {
    let failed = |message: String| FatalError::new(ErrorCode::GIT_CLONE_FAILED, format!("cannot clone: {message}"));
    if !clone.objects_repo.join("objects").is_dir() {
        return Err(failed(format!("there is no repository at `{}`", clone.objects_repo.display())));
    }
    clone.write_git_dir().map_err(|error| failed(error.to_string()))?;
    let git = clone.git().with_timeout(CHECKOUT_TIMEOUT);
    git.run(&["reset", "--hard", "-q"]).map(|_| ()).map_err(|error| {
        let present = git.run(&["cat-file", "-e", &format!("{base}^{{commit}}")]).is_ok();
        if present {
            FatalError::new(ErrorCode::GIT_CHECKOUT_FAILED, format!("cannot check out {}: {error}", base.short()))
        } else {
            failed(format!("the commit {} is not in the repository's objects", base.short()))
        }
    })
}
