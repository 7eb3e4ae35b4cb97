//! `acp-shim serve`: a sandbox's main program. Task-request -> clone -> tasks file -> stories -> result and bundle ->
//! `completion`.
//!
//! Called by [`main`](super::main) with the real streams, by tests with pipes. The order at the end is a promise: the bundle
//! and `result.json` are on the disk before `completion` is said. Must not: say anything on standard output but ACP.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::agent_requests::{self, AgentRequests};
use super::attempt::{AttemptRun, FatalError, initial_refs, not_reached_results, reserve_space, write_result};
use super::channel::{self, Channel, SandboxIdentity};
use super::clock::SandboxClock;
use super::clone_dir::{CHECKOUT_TIMEOUT, CloneDir, HeadTarget, render_git_config};
use super::command::OutputLog;
use super::layout::Layout;
use super::memory_gauge::MemoryGauge;
use super::progress::ProgressReporter;
use super::received_dispatch::ReceivedDispatch;
use super::review::{self, ReviewRun};
use super::sign_off::SignOff;
use super::stop_budget::{StopBudget, StopPhase};
use super::story::SandboxContext;
use crate::handoff::assignment::{ASSIGNMENT_VERSION, AssignmentFile};
use crate::handoff::layout as names;
use crate::handoff::result::{RESULT_VERSION, ResultFile};
use crate::ids::{CommitId, ContainerId, StoryId};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, Envelope, ErrorCode, ErrorReport, TaskRequest, decode_task_request,
};
use crate::tasks::{self, TasksFile};
use crate::wire::WireLine;

/// How long the task-request may take to come.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// All that a sandbox's shim touches, so that tests can give it something else.
pub struct ShimEnvironment {
    /// The volumes.
    pub layout: Layout,
    /// Standard input.
    pub input: Box<dyn Read + Send>,
    /// The protocol descriptor.
    pub output: Box<dyn Write + Send>,
    /// Standard error.
    pub log: Box<dyn Write + Send>,
    /// The container's host name, which is the beginning of its id.
    pub hostname: String,
    /// The environment that the shim was started with.
    pub env: BTreeMap<OsString, OsString>,
    /// The memory counters.
    pub memory: MemoryGauge,
    /// Cancelled by SIGTERM.
    pub stop: CancellationToken,
    /// [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// [`HEARTBEAT_INTERVAL`](super::progress::HEARTBEAT_INTERVAL).
    pub heartbeat_interval: Duration,
}

/// Serves one attempt from its task-request to its completion. The exit code: 0 where a completion was said that is not
/// `failed`.
pub async fn serve(outside: ShimEnvironment, folder: &str) -> u8 {
    let ShimEnvironment {
        layout,
        input,
        output,
        log,
        hostname,
        env,
        memory,
        stop,
        request_timeout: request_limit,
        heartbeat_interval: heartbeat,
    } = outside;
    let output = Arc::new(Mutex::new(output));
    let log = OutputLog::new(log);
    let assignment = read_assignment(&layout, folder);
    let container = hostname.parse::<ContainerId>().ok();

    let mut lines = channel::read_lines(input);
    let first = tokio::select! {
        line = tokio::time::timeout(request_limit, first_nonblank_line(&mut lines)) => line.ok(),
        () = stop.cancelled() => None,
    };
    let request = match first {
        Some(Some(line)) => decode_request(line),
        Some(None) => {
            Err(FatalError::new(ErrorCode::ACP_CONNECTION_LOST, "the input ended before a task-request came"))
        }
        None if stop.is_cancelled() => {
            Err(FatalError::new(ErrorCode::ACP_CONNECTION_LOST, "the sandbox was stopped before a task-request came"))
        }
        None => {
            let limit = request_limit.as_secs();
            Err(FatalError::new(ErrorCode::ACP_CONNECTION_LOST, format!("no task-request came within {limit} s")))
        }
    };
    // Who to say it as, from the best source that there is.
    let envelope = request.as_ref().ok().map(|(envelope, _)| envelope.clone());
    let swarm = assignment.as_ref().ok().map(|file| file.swarm_id).or(envelope.as_ref().map(|e| e.swarm_id));
    let container = match (container, &envelope) {
        (Some(own), Some(envelope)) if own.is_same_as(&envelope.container_id) => Some(envelope.container_id.clone()),
        (Some(own), _) => Some(own),
        (None, envelope) => envelope.as_ref().map(|envelope| envelope.container_id.clone()),
    };
    let (Some(swarm), Some(container)) = (swarm, container) else {
        let reason = assignment.err().or(request.err()).map(|fatal| fatal.message).unwrap_or_default();
        log.write_line(&format!("cannot tell which swarm and container this is: {reason}"));
        return 1;
    };
    let channel = Channel::new(SandboxIdentity { swarm, container: container.clone() }, output);
    // The thread that reads goes on: what comes after the task-request, its end included, means nothing.
    let started = request.and_then(|(envelope, request)| {
        let assignment = assignment?;
        check_request(&envelope, &request, &assignment, &container)?;
        Ok((assignment, request))
    });
    match started {
        Ok((assignment, request)) => {
            let setup = SandboxSetup {
                layout,
                attempt_dir: folder.to_owned(),
                env,
                memory,
                stop,
                heartbeat_interval: heartbeat,
                channel,
                log,
            };
            setup.run(assignment, request).await
        }
        Err(fatal) => send_fatal_error(&channel, &log, fatal),
    }
}

fn send_fatal_error(channel: &Channel, log: &OutputLog, fatal: FatalError) -> u8 {
    log.write_line(&format!("{}: {}", fatal.code, fatal.message));
    let errors = vec![fatal.message.clone()];
    channel.send(&ContainerMessage::Error(ErrorReport { code: fatal.code, message: fatal.message }));
    let completion = Completion { status: CompletionStatus::Failed, pr_url: None, errors };
    channel.send(&ContainerMessage::Completion(completion));
    1
}

async fn first_nonblank_line(lines: &mut tokio::sync::mpsc::Receiver<WireLine>) -> Option<WireLine> {
    loop {
        match lines.recv().await? {
            WireLine::Good(line) if line.trim_ascii().is_empty() => {}
            line => return Some(line),
        }
    }
}

fn decode_request(line: WireLine) -> Result<(Envelope, TaskRequest), FatalError> {
    let refused =
        |why: String| FatalError::new(ErrorCode::UNKNOWN_ERROR, format!("the task-request was refused: {why}"));
    match line {
        WireLine::Good(line) => decode_task_request(&line).map_err(|bad| refused(bad.to_string())),
        WireLine::Bad(bad) => Err(refused(format!("a line of {} bytes that is no record", bad.length))),
    }
}

fn read_assignment(layout: &Layout, folder: &str) -> Result<AssignmentFile, FatalError> {
    let path = layout.assignment_file(folder);
    let wrong =
        |why: String| FatalError::new(ErrorCode::UNKNOWN_ERROR, format!("cannot read `{}`: {why}", path.display()));
    let bytes = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let file: AssignmentFile = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if file.schema_version != ASSIGNMENT_VERSION {
        let found = file.schema_version;
        return Err(wrong(format!("its version is {found}, and this shim reads {ASSIGNMENT_VERSION}")));
    }
    if let Some(review) = file.review.as_ref().filter(|review| review.commit != file.base) {
        let (commit, base) = (review.commit.short(), file.base.short());
        return Err(wrong(format!("{commit} is to be reviewed, and the clone would be at {base}")));
    }
    Ok(file)
}

fn check_request(
    envelope: &Envelope,
    request: &TaskRequest,
    assignment: &AssignmentFile,
    container: &ContainerId,
) -> Result<(), FatalError> {
    let differs = |what: &str, asked: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
        let message = format!("the task-request names {what} `{asked}`, and the assignment is for `{expected}`");
        Err(FatalError::new(ErrorCode::UNKNOWN_ERROR, message))
    };
    if envelope.swarm_id != assignment.swarm_id {
        return differs("swarm", &envelope.swarm_id, &assignment.swarm_id);
    }
    if !envelope.container_id.is_same_as(container) {
        return differs("container", &envelope.container_id, container);
    }
    if request.branch_name != assignment.branch {
        return differs("branch", &request.branch_name, &assignment.branch);
    }
    if request.task_file_path.as_str() != assignment.task_file_path {
        return differs("tasks file", &request.task_file_path, &assignment.task_file_path);
    }
    Ok(())
}

/// What is known before the task-request.
struct SandboxSetup {
    layout: Layout,
    attempt_dir: String,
    env: BTreeMap<OsString, OsString>,
    memory: MemoryGauge,
    stop: CancellationToken,
    heartbeat_interval: Duration,
    channel: Channel,
    log: OutputLog,
}

impl SandboxSetup {
    async fn run(self, assignment: AssignmentFile, request: TaskRequest) -> u8 {
        let (channel, log, stop) = (self.channel.clone(), self.log.clone(), self.stop.clone());
        let halt = StopBudget::new(stop.clone(), Duration::from_secs(assignment.grace_secs));
        tokio::spawn(halt.clone().record_start());
        let out = self.layout.out_dir(&self.attempt_dir);
        let untouched = not_reached_results(&assignment);
        reserve_space(&out);
        // Nothing can be said of a story before it is begun: a clone that takes long counts as its beginning.
        let preparing = assignment.stories.first().map(|first| {
            let waiting = ProgressReporter::new_in_progress(first.id.clone(), channel.clone(), self.heartbeat_interval);
            tokio::spawn(async move { waiting.run().await })
        });
        let prepared = self.prepare(assignment, &request, halt).await;
        if let Some(preparing) = preparing {
            preparing.abort();
        }
        match prepared {
            Ok((sandbox, order)) => match sandbox.assignment.review.clone() {
                Some(work) => ReviewRun { sandbox, out_dir: out, review: work }.run().await,
                None => AttemptRun { sandbox, out_dir: out, story_order: order }.run().await,
            },
            Err((fatal, assignment)) => {
                let written = if assignment.review.is_some() {
                    write_result(&out, &review::not_started_file(&assignment, &fatal, stop.is_cancelled()), true)
                } else {
                    let result = ResultFile {
                        schema_version: RESULT_VERSION,
                        swarm_id: assignment.swarm_id,
                        attempt: assignment.attempt,
                        tip: assignment.base.clone(),
                        base: assignment.base,
                        bundle: false,
                        stories: untouched,
                    };
                    write_result(&out, &result, true)
                };
                if let Err(error) = written {
                    log.write_line(&format!("cannot write the result: {error}"));
                }
                if stop.is_cancelled() {
                    log.write_line(&format!("stopped: {}", fatal.message));
                    let completion =
                        Completion { status: CompletionStatus::Stopped, pr_url: None, errors: vec![fatal.message] };
                    channel.send(&ContainerMessage::Completion(completion));
                    return 0;
                }
                send_fatal_error(&channel, &log, fatal)
            }
        }
    }

    /// Makes the clone and reads the tasks file. The indices are those of the stories to do, in their order.
    async fn prepare(
        self,
        assignment: AssignmentFile,
        request: &TaskRequest,
        halt: StopBudget,
    ) -> Result<(SandboxContext, Vec<usize>), (FatalError, AssignmentFile)> {
        let work = halt.deadline(StopPhase::Work);
        let clone = self.clone_dir(&assignment, request.repo_url.as_str()).with_stop_deadline(work.clone());
        let made = work.run_blocking({
            let (clone, base) = (clone.clone(), assignment.base.clone());
            move || make_clone(&clone, &base)
        });
        let cut_off =
            || FatalError::new(ErrorCode::GIT_CLONE_FAILED, "the sandbox was stopped before it had its clone");
        let made = made.await.unwrap_or_else(|| Err(cut_off()));
        if let Err(fatal) = made {
            return Err((fatal, assignment));
        }
        let (tasks, order) = match self.read_tasks_file(&assignment) {
            Ok(read) => read,
            Err(fatal) => return Err((fatal, assignment)),
        };
        let dispatched = ReceivedDispatch::receive(&self.layout.dispatch_file(&self.attempt_dir), &assignment);
        let desk = AgentRequests::default();
        let socket = self.layout.socket_path(&self.attempt_dir);
        if let Err(error) = agent_requests::serve(&socket, desk.clone()) {
            let message = format!("cannot open the socket `{}`: {error}", socket.display());
            return Err((FatalError::new(ErrorCode::UNKNOWN_ERROR, message), assignment));
        }
        let env = self.agent_env(&assignment, request);
        self.trust_objects_repo(&env);
        let clock = SandboxClock::default();
        tokio::spawn(clock.clone().run());
        let sandbox = SandboxContext {
            tasks,
            clone,
            dispatch: dispatched,
            memory_dir: self.layout.memory_dir(&self.attempt_dir),
            run_dir: self.layout.run_dir(&self.attempt_dir),
            bundle_path: self.layout.out_dir(&self.attempt_dir).join(names::BUNDLE_FILE),
            env,
            channel: self.channel,
            log: self.log,
            memory_gauge: self.memory,
            stop: self.stop,
            stop_budget: halt,
            heartbeat_interval: self.heartbeat_interval,
            agent_requests: desk,
            clock,
            sign_off: assignment.mailbox.as_ref().map(|seat| SignOff::new(&self.layout, seat)),
            secrets: request.env_vars.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            assignment,
        };
        Ok((sandbox, order))
    }

    fn clone_dir(&self, assignment: &AssignmentFile, repo_url: &str) -> CloneDir {
        let objects_repo = self.layout.objects_repo();
        let branch = (assignment.branch.as_str(), assignment.integration_branch.as_str());
        CloneDir {
            repo: self.layout.repo_dir(&self.attempt_dir),
            head: HeadTarget::Branch(format!("refs/heads/{}", assignment.branch)),
            refs: initial_refs(assignment).into_iter().collect(),
            config: render_git_config(
                &assignment.object_format,
                &assignment.identity,
                Some((repo_url, &objects_repo)),
                Some(branch),
            ),
            identity: assignment.identity.clone(),
            stop_deadline: None,
            objects_repo,
        }
    }

    fn read_tasks_file(&self, assignment: &AssignmentFile) -> Result<(TasksFile, Vec<usize>), FatalError> {
        let path = self.layout.tasks_file(&self.attempt_dir, &assignment.task_file_path);
        let shown = &assignment.task_file_path;
        let bytes = fs::read(&path).map_err(|error| {
            FatalError::new(ErrorCode::TASK_FILE_NOT_FOUND, format!("cannot read the tasks file `{shown}`: {error}"))
        })?;
        let invalid = |why: String| FatalError::new(ErrorCode::TASK_FILE_INVALID, why);
        let file = tasks::parse(&bytes, shown.as_ref()).map_err(|error| invalid(error.to_string()))?;
        let wanted = |id: &StoryId| assignment.stories.iter().any(|work| work.id == *id);
        if let Some(missing) =
            assignment.stories.iter().find(|work| !file.stories.iter().any(|story| story.id == work.id))
        {
            return Err(invalid(format!("the tasks file `{shown}` has no story {}", missing.id)));
        }
        let order =
            tasks::topological_order(&file).into_iter().filter(|index| wanted(&file.stories[*index].id)).collect();
        Ok((file, order))
    }

    /// Lets the agent's own git fetch from the objects volume, which is root's: git takes that from no file of the clone. A
    /// home that has settings already, or cannot be written, stays as it is.
    fn trust_objects_repo(&self, env: &BTreeMap<OsString, OsString>) {
        let Some(home) = env.get(OsStr::new("HOME")) else { return };
        let text = format!("[safe]\n\tdirectory = {}\n", self.layout.objects_repo().display());
        if let Ok(mut file) = fs::File::create_new(std::path::Path::new(home).join(".gitconfig")) {
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// The environment of agents and checks: the image's, the task-request's, and ours.
    fn agent_env(&self, assignment: &AssignmentFile, request: &TaskRequest) -> BTreeMap<OsString, OsString> {
        let mut env = self.env.clone();
        for (name, value) in request.env_vars.iter() {
            env.insert(name.into(), value.into());
        }
        let mut path = env.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        path.push(":");
        path.push(self.layout.bin_dir());
        let ours: [(&str, OsString); 6] = [
            ("PATH", path),
            ("LONGSHORE_SWARM", assignment.swarm_id.to_string().into()),
            ("LONGSHORE_ASSIGNMENT", assignment.attempt.assignment.as_str().into()),
            ("LONGSHORE_ATTEMPT", assignment.attempt.number.to_string().into()),
            ("LONGSHORE_TASKS_FILE", self.layout.tasks_file(&self.attempt_dir, &assignment.task_file_path).into()),
            (super::socket_client::SOCKET_VARIABLE, self.layout.socket_path(&self.attempt_dir).into()),
        ];
        env.extend(ours.map(|(name, value)| (name.into(), value)));
        if let Some(seat) = &assignment.mailbox {
            env.insert("LONGSHORE_MAILBOX".into(), self.layout.mailbox_volume().into());
            env.insert("LONGSHORE_AGENT".into(), seat.agent.as_str().into());
        }
        env
    }
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
