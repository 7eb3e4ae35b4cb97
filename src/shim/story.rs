//! One story from its prompt to its verdict: agent, examination, checks; and where it fails, salvage and a clean clone for
//! the next.
//!
//! Used by `serve.rs`, one story after the other. Must not: end the sandbox. What goes wrong here is the story's failure, but
//! for a clone that cannot be put in order again ([`StoryRun::unusable_reason`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_requests::{AgentRequests, CriterionCard, TaskCard};
use super::clock::{SandboxClock, StoryDeadline};
use super::clone_dir::CloneDir;
use super::command::{CommandContext, CommandExit, CommandOutput, CommandSpec, OutputLog, run_command};
use super::examination::{CommittedWork, Examination, StoryFailure, git_failure};
use super::git::GitError;
use super::hang_snapshot;
use super::mail::MORE_STORIES_VARIABLE;
use super::memory_gauge::MemoryGauge;
use super::progress::ProgressReporter;
use super::prompt;
use super::received_dispatch::ReceivedDispatch;
use super::salvage::{SalvageRun, SalvagedWork};
use super::sign_off::SignOff;
use super::stop_budget::{StopBudget, StopPhase};
use super::{channel::Channel, commit_message};
use super::{disk_space, safe_fs};
use crate::handoff::assignment::{AssignedStory, AssignmentFile, PromptDelivery};
use crate::handoff::layout;
use crate::handoff::result::StoryResult;
use crate::ids::CommitId;
use crate::protocol::acp::message::StoryStatus;
use crate::tasks::{Story, TasksFile};
use crate::verdict::{Cause, CriterionResult, Evidence, Failure, StoryOutcome};

/// The most paths that a failure's evidence names as not salvaged.
pub const MAX_NAMED_LEFT_OUT: usize = 50;

/// What all stories of a sandbox share.
pub struct SandboxContext {
    /// What is asked.
    pub assignment: AssignmentFile,
    /// The tasks file, as delivered.
    pub tasks: TasksFile,
    /// The clone.
    pub clone: CloneDir,
    /// What came of the dispatch.
    pub dispatch: ReceivedDispatch,
    /// The folder of what a story is given to remember.
    pub memory_dir: PathBuf,
    /// The folder of prompts and socket.
    pub run_dir: PathBuf,
    /// The bundle of what is finished.
    pub bundle_path: PathBuf,
    /// The environment of all that is run.
    pub env: BTreeMap<OsString, OsString>,
    /// The end of ACP.
    pub channel: Channel,
    /// Where output goes.
    pub log: OutputLog,
    /// The memory counters.
    pub memory_gauge: MemoryGauge,
    /// Cancelled when the sandbox is to stop.
    pub stop: CancellationToken,
    /// By when what has to be over then.
    pub stop_budget: StopBudget,
    /// The most time in which nothing is said.
    pub heartbeat_interval: Duration,
    /// What passes while the sandbox runs.
    pub clock: SandboxClock,
    /// What subcommands are answered from.
    pub agent_requests: AgentRequests,
    /// The task-request's variables, whose values no evidence may show.
    pub secrets: Vec<(String, String)>,
    /// The agent's place in the mailbox, where there is one.
    pub sign_off: Option<SignOff>,
}

/// What came of a story, for the result and for what follows.
pub struct StoryRun {
    /// For the result.
    pub result: StoryResult,
    /// Why no other story can be run in this sandbox.
    pub unusable_reason: Option<String>,
    /// The work folder has what no commit could take: whatever else were done in it would destroy that.
    pub has_unsaved_work: bool,
    /// What is to be said of it, once it is written.
    pub final_report: FinalReport,
}

/// A story's last word, which waits until what came of the story is on the disk. Until then its heartbeat goes on.
pub struct FinalReport {
    progress: ProgressReporter,
    speaker: tokio::task::JoinHandle<()>,
    status: StoryStatus,
    text: String,
}

impl FinalReport {
    /// Says it. `instead`: why the story failed after all.
    pub fn send(self, instead: Option<&Failure>) {
        self.speaker.abort();
        match instead {
            Some(failure) => self.progress.send_final_status(StoryStatus::Failed, &failure_line(failure)),
            None => self.progress.send_final_status(self.status, &self.text),
        }
    }
}

/// What could not be done before the sandbox had to end.
pub(super) fn stopped_before(what: &str) -> StoryFailure {
    Failure::new(Cause::StoppedByUser, format!("the sandbox was stopped before {what}")).into()
}

impl SandboxContext {
    /// Signs off in the mailbox for an agent that did not, when its work ended well.
    pub fn sign_off(&self, what: &str) {
        match self.sign_off.as_ref().map(|sign_off| sign_off.send_done_if_missing(what)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => self.log.write_line("the agent did not sign off in the mailbox: it was done for it"),
            Some(Err(error)) => self.log.write_line(&format!("cannot sign off in the mailbox: {error}")),
        }
    }

    /// The assigned branch's full ref name.
    pub fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.assignment.branch)
    }

    /// The folders of the file systems that agents, checks and git write to; first the one that has the work.
    pub fn writable_dirs(&self) -> Vec<PathBuf> {
        let named = |name: &str| self.env.get(OsStr::new(name)).map(PathBuf::from);
        let mut places = vec![self.clone.repo.clone(), "/tmp".into()];
        places.extend(["HOME", "TMPDIR"].into_iter().filter_map(named));
        places.dedup();
        places
    }

    pub(super) fn command_context(&self) -> CommandContext<'_> {
        // Half of the time that a stop has is the agent's, the rest is for its work.
        let stop_grace = Duration::from_secs(self.assignment.grace_secs.max(1)) / 2;
        CommandContext {
            log: &self.log,
            memory: &self.memory_gauge,
            stop: &self.stop,
            stop_grace,
            agent_requests: &self.agent_requests,
            secrets: &self.secrets,
        }
    }

    /// Does a story. `refs` are the refs as they have to be at its start; those of a finished or salvaged story are added.
    /// `before` is what came of the stories before it.
    pub async fn run_story(
        &self,
        story: &Story,
        work: &AssignedStory,
        refs: &mut BTreeMap<String, CommitId>,
        before: &[StoryResult],
        last: bool,
    ) -> StoryRun {
        let began = Instant::now();
        self.log.begin_story(&format!("acp-shim: {} begins", story.id));
        let card = self.task_card(story, work);
        let progress = ProgressReporter::new(story.id.clone(), self.channel.clone(), self.heartbeat_interval);
        self.agent_requests.begin_story(card.clone(), progress.clone());
        let speaker = tokio::spawn({
            let progress = progress.clone();
            async move { progress.run().await }
        });
        progress.set_status(StoryStatus::InProgress, &format!("started: {}", story.title));

        let mut criteria: Vec<CriterionResult> = story
            .criteria
            .iter()
            .map(|criterion| CriterionResult { id: criterion.id.clone(), text: criterion.text.clone(), met: None })
            .collect();
        let tried = self.try_story(story, &card, &progress, refs, before, &mut criteria).await;
        let remembered = self.agent_requests.end_story().redacted(&self.secrets);
        let landed = match tried {
            Ok(committed) => self.reset_to_committed(committed, refs, last).await,
            Err(fault) => Err(fault),
        };
        let (status, text, outcome, commits, unusable) = match landed {
            Ok(CommittedWork { commit, commits }) => {
                let text = format!("committed as {} and verified", commit.short());
                (StoryStatus::Completed, text, StoryOutcome::Finished { commit }, commits, None)
            }
            Err(fault) => {
                let (failure, kept, unusable) = self.salvage_story(story, fault, refs, last).await;
                let text = failure_line(&failure);
                let unsaved = !kept.left_out.is_empty();
                let outcome = StoryOutcome::Failed { failure, salvage: kept.commit, unsaved };
                (StoryStatus::Failed, text, outcome, Vec::new(), unusable)
            }
        };
        let result = StoryResult {
            id: story.id.clone(),
            outcome,
            criteria,
            work_log: progress.close(&text),
            agent_notes: remembered,
            commits,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let sealed = matches!(result.outcome, StoryOutcome::Failed { unsaved: true, .. });
        StoryRun {
            result,
            unusable_reason: unusable,
            has_unsaved_work: sealed,
            final_report: FinalReport { progress, speaker, status, text },
        }
    }

    fn task_card(&self, story: &Story, work: &AssignedStory) -> TaskCard {
        let criterion = |criterion: &crate::tasks::Criterion| CriterionCard {
            id: criterion.id.clone(),
            text: criterion.text.clone(),
            test_command: criterion.test_command.clone(),
        };
        TaskCard {
            id: story.id.to_string(),
            title: story.title.clone(),
            description: story.description.clone(),
            branch: self.assignment.branch.to_string(),
            acceptance_criteria: story.criteria.iter().map(criterion).collect(),
            notes: story.notes.clone(),
            verify: self.verify_commands(story),
            previous_failure: work.previous_failure.clone(),
            guidance: self.assignment.guidance.clone(),
        }
    }

    fn verify_commands(&self, story: &Story) -> Vec<String> {
        self.tasks.verify.iter().chain(&story.verify).chain(&self.assignment.verify).cloned().collect()
    }

    async fn try_story(
        &self,
        story: &Story,
        card: &TaskCard,
        progress: &ProgressReporter,
        refs: &BTreeMap<String, CommitId>,
        before: &[StoryResult],
        criteria: &mut [CriterionResult],
    ) -> Result<CommittedWork, StoryFailure> {
        if let Some(refused) = &self.dispatch.refusal {
            return Err(refused.clone().into());
        }
        let deadline = self.story_deadline();
        let (job, shown) = self.agent_command(story, card, before, &deadline)?;
        let ran = run_command(job, &self.command_context(), |line| progress.report_output(line)).await;
        let given_up = self.agent_requests.give_up_reason();
        if let Some(failure) = self.command_failure(&ran, "the agent", &shown, Cause::AgentFailed, given_up) {
            return Err(failure.into());
        }
        let examination = Examination {
            clone: self.clone.clone(),
            branch_ref: self.branch_ref(),
            start: self.start_commit(refs),
            expected_refs: refs.clone(),
            message: commit_message::for_finished_story(&story.id, &story.title, &self.assignment.swarm_id),
        };
        let examined = self.stop_budget.deadline(StopPhase::Work).run_blocking(move || examination.examine()).await;
        let committed = match examined.unwrap_or_else(|| Err(stopped_before("the work was examined"))) {
            // What is to be mended is another story's.
            Err(fault) if fault.failure.cause == Cause::NoChanges && self.is_rework_of_several() => {
                CommittedWork { commit: self.start_commit(refs), commits: Vec::new() }
            }
            other => other?,
        };
        self.run_checks(story, progress, criteria, &deadline).await?;
        Ok(committed)
    }

    /// A story's time, from now on.
    pub fn story_deadline(&self) -> StoryDeadline {
        self.clock.deadline_after(Duration::from_secs(self.assignment.story_timeout_secs))
    }

    /// Whether rejected work of several stories is being mended.
    fn is_rework_of_several(&self) -> bool {
        self.assignment.rework && self.assignment.stories.len() > 1
    }

    fn start_commit(&self, refs: &BTreeMap<String, CommitId>) -> CommitId {
        refs.get(&self.branch_ref()).unwrap_or(&self.assignment.base).clone()
    }

    /// How to run the agent, and how to call it in messages.
    fn agent_command(
        &self,
        story: &Story,
        card: &TaskCard,
        before: &[StoryResult],
        deadline: &StoryDeadline,
    ) -> Result<(CommandSpec, String), StoryFailure> {
        let memory = self.dispatch.write_memory(&self.memory_dir, story, &self.tasks, &self.assignment, before);
        let memory = memory.map_err(|error| self.prompt_failure(&self.memory_dir, &error))?;
        let (title, description) = (&self.tasks.title, &self.tasks.description);
        let mailbox = self.assignment.mailbox.as_ref();
        let more = before.len() + 1 < self.assignment.stories.len();
        let context =
            prompt::PromptContext { title, description, memory: &memory.prompt_text, mailbox, has_more_stories: more };
        let text = prompt::story_prompt(card, context);
        let file = self.run_dir.join(format!("prompt-{}.md", story.id));
        let written =
            safe_fs::ensure_dir(&self.run_dir).and_then(|()| safe_fs::write_replacing(&file, text.as_bytes()));
        written.map_err(|error| self.prompt_failure(&file, &error))?;
        let mut env = self.env.clone();
        env.insert("LONGSHORE_STORY".into(), story.id.as_str().into());
        env.insert("LONGSHORE_STORY_TITLE".into(), story.title.replace('\0', "").into());
        env.insert("LONGSHORE_PROMPT_FILE".into(), file.clone().into());
        if mailbox.is_some() && more {
            env.insert(MORE_STORIES_VARIABLE.into(), "1".into());
        }
        memory.add_to_env(&mut env);
        let (argv, stdin, shown) = match (&story.command, &self.assignment.agent) {
            (Some(command), _) => (shell_argv(command), None, command.clone()),
            (None, Some(agent)) => {
                let file = file.to_string_lossy();
                let fill = |arg: &String| arg.replace("{prompt_file}", &file).replace("{story}", story.id.as_str());
                let argv: Vec<String> = agent.argv.iter().map(fill).collect();
                let stdin = (agent.prompt == PromptDelivery::Stdin).then_some(text);
                (argv, stdin, agent.name.clone())
            }
            (None, None) => {
                let summary = "the story has no `command`, and no agent was named";
                return Err(Failure::new(Cause::AgentFailed, summary).into());
            }
        };
        Ok((self.command_spec(argv, env, stdin, deadline), shown))
    }

    /// The failure that a prompt is which cannot be written.
    pub(super) fn prompt_failure(&self, file: &Path, error: &std::io::Error) -> Failure {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let cause = if full { Cause::DiskFull } else { Cause::AgentFailed };
        let mut failure = Failure::new(cause, format!("cannot write the prompt `{}`: {error}", file.display()));
        disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
        failure
    }

    pub(super) fn command_spec(
        &self,
        argv: Vec<String>,
        env: BTreeMap<OsString, OsString>,
        stdin: Option<String>,
        deadline: &StoryDeadline,
    ) -> CommandSpec {
        let grace = Duration::from_secs(self.assignment.grace_secs);
        let idle_limit = Duration::from_secs(self.assignment.idle_timeout_secs);
        CommandSpec {
            argv,
            dir: self.clone.repo.clone(),
            env,
            stdin,
            deadline: deadline.clone(),
            idle_timeout: idle_limit,
            grace,
        }
    }

    /// The failure that a run shows, if it shows one. `cause` is what an exit of the command's own making means.
    pub(super) fn command_failure(
        &self,
        ran: &CommandOutput,
        who: &str,
        command: &str,
        cause: Cause,
        given_up: Option<String>,
    ) -> Option<Failure> {
        let killed_for_memory = ran.oom_kills.unwrap_or(0) > 0;
        let (cause, what) = match &ran.exit {
            CommandExit::Stopped => (Cause::StoppedByUser, "was stopped".to_owned()),
            _ if given_up.is_some() => {
                (Cause::AgentFailed, format!("gave up: {}", given_up.as_deref().unwrap_or_default()))
            }
            CommandExit::TimedOut => {
                let limit = self.assignment.story_timeout_secs;
                let whose = if self.assignment.review.is_some() { "its" } else { "the story's" };
                (Cause::Timeout, format!("was ended when {whose} {limit} s were over"))
            }
            CommandExit::Hung(hang) => {
                (Cause::Hung, format!("hung: {}", hang_snapshot::describe_hang(hang.idle, &hang.snapshot)))
            }
            CommandExit::NotStarted(error) => (cause, format!("could not be started: {error}")),
            CommandExit::Code(0) => return None,
            CommandExit::Code(code) if killed_for_memory => {
                (Cause::Oom, format!("exited {code} after the kernel killed a process of it for memory"))
            }
            CommandExit::Signal(_) if killed_for_memory => {
                (Cause::Oom, "was killed by the kernel for memory".to_owned())
            }
            CommandExit::Code(code) => {
                let full = !disk_space::find_full(&self.writable_dirs(), &ran.tail).is_empty();
                (if full { Cause::DiskFull } else { cause }, format!("exited {code}"))
            }
            CommandExit::Signal(9) if ran.oom_kills.is_none() && ran.near_memory_limit => (
                Cause::OomSuspected,
                "was killed by signal 9 near the memory limit, and no counter says why".to_owned(),
            ),
            CommandExit::Signal(signal) => (cause, format!("was killed by signal {signal}")),
        };
        let disk = if cause == Cause::DiskFull { ", and no space is left" } else { "" };
        let mut evidence = Evidence::from_summary(format!("{who} {what}{disk}"));
        evidence.command = Some(command.to_owned());
        evidence.tail = ran.tail.clone();
        match &ran.exit {
            CommandExit::Code(code) => evidence.exit_code = Some((*code).into()),
            CommandExit::Signal(signal) => evidence.signal = Some(*signal),
            CommandExit::Hung(hang) => {
                evidence.processes.clone_from(&hang.snapshot.processes);
                evidence.pipes.clone_from(&hang.snapshot.pipes);
            }
            _ => {}
        }
        evidence.oom_kills = ran.oom_kills.filter(|count| *count > 0);
        let mut failure = Failure { cause, evidence, salvage: None };
        disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
        Some(failure)
    }

    /// Runs the criteria's test commands, all of them, and then the verify commands up to the first that fails.
    async fn run_checks(
        &self,
        story: &Story,
        progress: &ProgressReporter,
        criteria: &mut [CriterionResult],
        deadline: &StoryDeadline,
    ) -> Result<(), StoryFailure> {
        let mut failed = None;
        for (criterion, result) in story.criteria.iter().zip(criteria) {
            let Some(command) = &criterion.test_command else { continue };
            let who = format!("the test command `{command}` of criterion {}", criterion.id);
            let found = self.run_check(&who, command, story, progress, deadline).await;
            match &found {
                Some(failure) if failure.cause != Cause::VerificationFailed => {
                    return Err(found.expect("it is some").into());
                }
                _ => result.met = Some(found.is_none()),
            }
            failed = failed.or(found);
        }
        if let Some(failure) = failed {
            return Err(failure.into());
        }
        for command in self.verify_commands(story) {
            let who = format!("the verify command `{command}`");
            if let Some(failure) = self.run_check(&who, &command, story, progress, deadline).await {
                return Err(failure.into());
            }
        }
        Ok(())
    }

    async fn run_check(
        &self,
        who: &str,
        command: &str,
        story: &Story,
        progress: &ProgressReporter,
        deadline: &StoryDeadline,
    ) -> Option<Failure> {
        if self.stop.is_cancelled() {
            return Some(Failure::new(Cause::StoppedByUser, format!("{who} was not run: the sandbox was stopped")));
        }
        progress.report_output(&format!("checking: {command}"));
        let mut env = self.env.clone();
        env.insert("LONGSHORE_STORY".into(), story.id.as_str().into());
        let job = self.command_spec(shell_argv(command), env, None, deadline);
        let ran = run_command(job, &self.command_context(), |_| {}).await;
        self.command_failure(&ran, who, command, Cause::VerificationFailed, None)
    }

    /// Puts the clone back to what was committed, whatever the checks made of it.
    async fn reset_to_committed(
        &self,
        committed: CommittedWork,
        refs: &mut BTreeMap<String, CommitId>,
        last: bool,
    ) -> Result<CommittedWork, StoryFailure> {
        let mut wanted = refs.clone();
        wanted.insert(self.branch_ref(), committed.commit.clone());
        let (clone, commit, settled) = (self.clone.clone(), committed.commit.clone(), wanted.clone());
        let deadline = self.stop_budget.deadline(StopPhase::Work);
        let landing = deadline.run_blocking(move || {
            let damaged = "the checks left the clone damaged";
            if let Some(damage) = clone.find_damage() {
                return Err(StoryFailure::from(Failure::new(Cause::RepoDamaged, format!("{damaged}: {damage}"))));
            }
            let reset = if last { Ok(()) } else { clone.reset_to(&commit, false) };
            reset.and_then(|()| clone.restore_refs(&settled)).map_err(|error| git_failure(&error, damaged).into())
        });
        landing.await.unwrap_or_else(|| Err(stopped_before("the clone was put in order")))?;
        *refs = wanted;
        Ok(committed)
    }

    /// Salvages what is there, and makes the clone what it was at the story's start; unless it has what could not be salvaged.
    async fn salvage_story(
        &self,
        story: &Story,
        fault: StoryFailure,
        refs: &mut BTreeMap<String, CommitId>,
        last: bool,
    ) -> (Failure, SalvagedWork, Option<String>) {
        let StoryFailure { mut failure, stray_commits: beside } = fault;
        disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
        let reference = layout::salvage_ref(&story.id);
        let message =
            commit_message::for_salvage(&story.id, &story.title, &self.assignment.swarm_id, &failure.evidence.summary);
        let start = self.start_commit(refs);
        let stopped = self.stop.is_cancelled();
        let deadline = self.stop_budget.deadline(StopPhase::Salvage);
        let keeping = deadline.run_blocking({
            let (start, reference) = (start.clone(), reference.clone());
            let (clone, bundle) = (self.clone.with_stop_deadline(deadline.clone()), self.bundle_path.clone());
            move || {
                let git = clone.git();
                let finished = Some(bundle.as_path());
                SalvageRun {
                    clone: &clone,
                    git,
                    start: &start,
                    stray_commits: beside,
                    finished_bundle: finished,
                    reference: &reference,
                    message: &message,
                }
                .run()
            }
        });
        let kept = keeping.await.unwrap_or_else(|| Err(GitError::Stopped { what: "add".into() }));
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                if error.is_disk_full() {
                    failure.cause = Cause::DiskFull;
                }
                failure.evidence.summary.push_str(&format!("; what was there could not be salvaged: {error}"));
                disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
                // The work folder is all there is: nobody may put it in order.
                let unusable = format!("what {} left is in the work folder alone", story.id);
                return (
                    *failure,
                    SalvagedWork { left_out: vec![".".into()], ..SalvagedWork::default() },
                    Some(unusable),
                );
            }
        };
        let left_out =
            kept.special_files.iter().chain(&kept.left_out).filter(|path| !failure.evidence.paths.contains(path));
        let left_out: Vec<String> = left_out.take(MAX_NAMED_LEFT_OUT).cloned().collect();
        if kept.commit.is_some() && !left_out.is_empty() {
            failure.evidence.summary.push_str(&format!("; not in the salvage: {}", left_out.join(", ")));
            failure.evidence.paths.extend(left_out);
        }
        if let Some(commit) = &kept.commit {
            refs.insert(reference, commit.clone());
        }
        let (clone, wanted, sealed) = (self.clone.clone(), refs.clone(), !kept.left_out.is_empty());
        let reset = deadline.run_blocking(move || {
            clone.restore_refs(&wanted)?;
            if last || stopped || sealed { Ok(()) } else { clone.reset_to(&start, true) }
        });
        let unusable = reset
            .await
            .unwrap_or(Ok(()))
            .err()
            .map(|error| format!("the clone cannot be reset after {}: {error}", story.id));
        (*failure, kept, unusable)
    }
}

fn shell_argv(command: &str) -> Vec<String> {
    ["sh", "-c", command].map(str::to_owned).to_vec()
}

/// A failure in one line.
pub fn failure_line(failure: &Failure) -> String {
    let paths = match failure.evidence.paths.as_slice() {
        [] => String::new(),
        paths => format!(" ({})", paths.join(", ")),
    };
    format!("{}: {}{paths}", failure.cause.as_str(), failure.evidence.summary)
}
