//! One story from its prompt to its verdict: agent, examination, checks; and where it fails, salvage and a clean clone for
//! the next.
//!
//! Used by `serve.rs`, one story after the other. Must not: end the sandbox. What goes wrong here is the story's failure, but
//! for a clone that cannot be put in order again ([`Told::unusable`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::{Clock, Deadline};
use super::clone::CloneDir;
use super::examine::{Committed, Examination, Fault, git_failure};
use super::git::GitError;
use super::halt::{Halt, Share};
use super::inherit::Dispatched;
use super::mail::MORE_VARIABLE;
use super::memory::MemoryGauge;
use super::progress::Progress;
use super::prompt;
use super::run::{End, Job, OutputLog, Ran, Surroundings, run};
use super::salvage::{Kept, Salvage};
use super::scene;
use super::sign_off::SignOff;
use super::socket::{CriterionCard, Desk, TaskCard};
use super::{channel::Channel, commit_message};
use super::{space, special};
use crate::handoff::assignment::{AssignmentFile, PromptVia, StoryWork};
use crate::handoff::layout;
use crate::handoff::result::StoryResult;
use crate::ids::CommitId;
use crate::protocol::acp::message::StoryStatus;
use crate::tasks::{Story, TasksFile};
use crate::verdict::{Cause, CriterionResult, Evidence, Failure, StoryOutcome};

/// The most paths that a failure's evidence names as not salvaged.
pub const LEFT_OUT_NAMED: usize = 50;

/// What all stories of a sandbox share.
pub struct Sandbox {
    /// What is asked.
    pub assignment: AssignmentFile,
    /// The tasks file, as delivered.
    pub tasks: TasksFile,
    /// The clone.
    pub clone: CloneDir,
    /// What came of the dispatch.
    pub dispatched: Dispatched,
    /// The folder of what a story is given to remember.
    pub memory_dir: PathBuf,
    /// The folder of prompts and socket.
    pub run_dir: PathBuf,
    /// The bundle of what is finished.
    pub bundle: PathBuf,
    /// The environment of all that is run.
    pub env: BTreeMap<OsString, OsString>,
    /// The end of ACP.
    pub channel: Channel,
    /// Where output goes.
    pub log: OutputLog,
    /// The memory counters.
    pub memory: MemoryGauge,
    /// Cancelled when the sandbox is to stop.
    pub stop: CancellationToken,
    /// By when what has to be over then.
    pub halt: Halt,
    /// The most time in which nothing is said.
    pub heartbeat: Duration,
    /// What passes while the sandbox runs.
    pub clock: Clock,
    /// What subcommands are answered from.
    pub desk: Desk,
    /// The task-request's variables, whose values no evidence may show.
    pub secrets: Vec<(String, String)>,
    /// The agent's place in the mailbox, where there is one.
    pub sign_off: Option<SignOff>,
}

/// What came of a story, for the result and for what follows.
pub struct Told {
    /// For the result.
    pub result: StoryResult,
    /// Why no other story can be run in this sandbox.
    pub unusable: Option<String>,
    /// The work folder has what no commit could take: whatever else were done in it would destroy that.
    pub sealed: bool,
    /// What is to be said of it, once it is written.
    pub closing: Closing,
}

/// A story's last word, which waits until what came of the story is on the disk. Until then its heartbeat goes on.
pub struct Closing {
    progress: Progress,
    speaker: tokio::task::JoinHandle<()>,
    status: StoryStatus,
    text: String,
}

impl Closing {
    /// Says it. `instead`: why the story failed after all.
    pub fn say(self, instead: Option<&Failure>) {
        self.speaker.abort();
        match instead {
            Some(failure) => self.progress.last_word(StoryStatus::Failed, &said(failure)),
            None => self.progress.last_word(self.status, &self.text),
        }
    }
}

/// What could not be done before the sandbox had to end.
pub(super) fn cut_off(what: &str) -> Fault {
    Failure::new(Cause::StoppedByUser, format!("the sandbox was stopped before {what}")).into()
}

impl Sandbox {
    /// Signs off in the mailbox for an agent that did not, when its work ended well.
    pub fn sign_off(&self, what: &str) {
        match self.sign_off.as_ref().map(|sign_off| sign_off.finish(what)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => self.log.say("the agent did not sign off in the mailbox: it was done for it"),
            Some(Err(error)) => self.log.say(&format!("cannot sign off in the mailbox: {error}")),
        }
    }

    /// The assigned branch's full ref name.
    pub fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.assignment.branch)
    }

    /// The folders of the file systems that agents, checks and git write to; first the one that has the work.
    pub fn places(&self) -> Vec<PathBuf> {
        let named = |name: &str| self.env.get(OsStr::new(name)).map(PathBuf::from);
        let mut places = vec![self.clone.repo.clone(), "/tmp".into()];
        places.extend(["HOME", "TMPDIR"].into_iter().filter_map(named));
        places.dedup();
        places
    }

    pub(super) fn surroundings(&self) -> Surroundings<'_> {
        // Half of the time that a stop has is the agent's, the rest is for its work.
        let stop_grace = Duration::from_secs(self.assignment.grace_secs.max(1)) / 2;
        Surroundings {
            log: &self.log,
            memory: &self.memory,
            stop: &self.stop,
            stop_grace,
            desk: &self.desk,
            secrets: &self.secrets,
        }
    }

    /// Does a story. `refs` are the refs as they have to be at its start; those of a finished or salvaged story are added.
    /// `before` is what came of the stories before it.
    pub async fn tell(
        &self,
        story: &Story,
        work: &StoryWork,
        refs: &mut BTreeMap<String, CommitId>,
        before: &[StoryResult],
        last: bool,
    ) -> Told {
        let began = Instant::now();
        self.log.begin_story(&format!("acp-shim: {} begins", story.id));
        let card = self.card(story, work);
        let progress = Progress::new(story.id.clone(), self.channel.clone(), self.heartbeat);
        self.desk.open(card.clone(), progress.clone());
        let speaker = tokio::spawn({
            let progress = progress.clone();
            async move { progress.speak().await }
        });
        progress.change(StoryStatus::InProgress, &format!("started: {}", story.title));

        let mut criteria: Vec<CriterionResult> = story
            .criteria
            .iter()
            .map(|criterion| CriterionResult { id: criterion.id.clone(), text: criterion.text.clone(), met: None })
            .collect();
        let tried = self.attempt(story, &card, &progress, refs, before, &mut criteria).await;
        let remembered = self.desk.close().without(&self.secrets);
        let landed = match tried {
            Ok(committed) => self.land(committed, refs, last).await,
            Err(fault) => Err(fault),
        };
        let (status, text, outcome, commits, unusable) = match landed {
            Ok(Committed { commit, commits }) => {
                let text = format!("committed as {} and verified", commit.short());
                (StoryStatus::Completed, text, StoryOutcome::Finished { commit }, commits, None)
            }
            Err(fault) => {
                let (failure, kept, unusable) = self.fail(story, fault, refs, last).await;
                let text = said(&failure);
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
            remembered,
            commits,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let sealed = matches!(result.outcome, StoryOutcome::Failed { unsaved: true, .. });
        Told { result, unusable, sealed, closing: Closing { progress, speaker, status, text } }
    }

    fn card(&self, story: &Story, work: &StoryWork) -> TaskCard {
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

    async fn attempt(
        &self,
        story: &Story,
        card: &TaskCard,
        progress: &Progress,
        refs: &BTreeMap<String, CommitId>,
        before: &[StoryResult],
        criteria: &mut [CriterionResult],
    ) -> Result<Committed, Fault> {
        if let Some(refused) = &self.dispatched.refused {
            return Err(refused.clone().into());
        }
        let deadline = self.time();
        let (job, shown) = self.agent_job(story, card, before, &deadline)?;
        let ran = run(job, &self.surroundings(), |line| progress.printed(line)).await;
        let given_up = self.desk.given_up();
        if let Some(failure) = self.judge(&ran, "the agent", &shown, Cause::AgentFailed, given_up) {
            return Err(failure.into());
        }
        let examination = Examination {
            clone: self.clone.clone(),
            branch_ref: self.branch_ref(),
            start: self.start(refs),
            refs: refs.clone(),
            message: commit_message::finished(&story.id, &story.title, &self.assignment.swarm_id),
        };
        let examined = self.halt.by(Share::Work).bound(move || examination.examine()).await;
        let committed = match examined.unwrap_or_else(|| Err(cut_off("the work was examined"))) {
            // What is to be mended is another story's.
            Err(fault) if fault.failure.cause == Cause::NoChanges && self.mends_several() => {
                Committed { commit: self.start(refs), commits: Vec::new() }
            }
            other => other?,
        };
        self.check(story, progress, criteria, &deadline).await?;
        Ok(committed)
    }

    /// A story's time, from now on.
    pub fn time(&self) -> Deadline {
        self.clock.within(Duration::from_secs(self.assignment.story_timeout_secs))
    }

    /// Whether rejected work of several stories is being mended.
    fn mends_several(&self) -> bool {
        self.assignment.rework && self.assignment.stories.len() > 1
    }

    fn start(&self, refs: &BTreeMap<String, CommitId>) -> CommitId {
        refs.get(&self.branch_ref()).unwrap_or(&self.assignment.base).clone()
    }

    /// How to run the agent, and how to call it in messages.
    fn agent_job(
        &self,
        story: &Story,
        card: &TaskCard,
        before: &[StoryResult],
        deadline: &Deadline,
    ) -> Result<(Job, String), Fault> {
        let memory = self.dispatched.hand_on(&self.memory_dir, story, &self.tasks, &self.assignment, before);
        let memory = memory.map_err(|error| self.no_prompt(&self.memory_dir, &error))?;
        let (title, description) = (&self.tasks.title, &self.tasks.description);
        let mailbox = self.assignment.mailbox.as_ref();
        let more = before.len() + 1 < self.assignment.stories.len();
        let context = prompt::Context { title, description, memory: &memory.text, mailbox, more };
        let text = prompt::prompt(card, context);
        let file = self.run_dir.join(format!("prompt-{}.md", story.id));
        let written = special::ensure_folder(&self.run_dir).and_then(|()| special::write_fresh(&file, text.as_bytes()));
        written.map_err(|error| self.no_prompt(&file, &error))?;
        let mut env = self.env.clone();
        env.insert("LONGSHORE_STORY".into(), story.id.as_str().into());
        env.insert("LONGSHORE_STORY_TITLE".into(), story.title.replace('\0', "").into());
        env.insert("LONGSHORE_PROMPT_FILE".into(), file.clone().into());
        if mailbox.is_some() && more {
            env.insert(MORE_VARIABLE.into(), "1".into());
        }
        memory.tell(&mut env);
        let (argv, stdin, shown) = match (&story.command, &self.assignment.agent) {
            (Some(command), _) => (shell(command), None, command.clone()),
            (None, Some(agent)) => {
                let file = file.to_string_lossy();
                let fill = |arg: &String| arg.replace("{prompt_file}", &file).replace("{story}", story.id.as_str());
                let argv: Vec<String> = agent.argv.iter().map(fill).collect();
                let stdin = (agent.prompt == PromptVia::Stdin).then_some(text);
                (argv, stdin, agent.name.clone())
            }
            (None, None) => {
                let summary = "the story has no `command`, and no agent was named";
                return Err(Failure::new(Cause::AgentFailed, summary).into());
            }
        };
        Ok((self.job(argv, env, stdin, deadline), shown))
    }

    /// The failure that a prompt is which cannot be written.
    pub(super) fn no_prompt(&self, file: &Path, error: &std::io::Error) -> Failure {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let cause = if full { Cause::DiskFull } else { Cause::AgentFailed };
        let mut failure = Failure::new(cause, format!("cannot write the prompt `{}`: {error}", file.display()));
        space::explain(&mut failure, &self.places());
        failure
    }

    pub(super) fn job(
        &self,
        argv: Vec<String>,
        env: BTreeMap<OsString, OsString>,
        stdin: Option<String>,
        deadline: &Deadline,
    ) -> Job {
        let grace = Duration::from_secs(self.assignment.grace_secs);
        let idle_limit = Duration::from_secs(self.assignment.idle_timeout_secs);
        Job { argv, folder: self.clone.repo.clone(), env, stdin, deadline: deadline.clone(), idle_limit, grace }
    }

    /// The failure that a run shows, if it shows one. `cause` is what an exit of the command's own making means.
    pub(super) fn judge(
        &self,
        ran: &Ran,
        who: &str,
        command: &str,
        cause: Cause,
        given_up: Option<String>,
    ) -> Option<Failure> {
        let killed_for_memory = ran.oom_kills.unwrap_or(0) > 0;
        let (cause, what) = match &ran.end {
            End::Stopped => (Cause::StoppedByUser, "was stopped".to_owned()),
            _ if given_up.is_some() => {
                (Cause::AgentFailed, format!("gave up: {}", given_up.as_deref().unwrap_or_default()))
            }
            End::TimedOut => {
                let limit = self.assignment.story_timeout_secs;
                let whose = if self.assignment.review.is_some() { "its" } else { "the story's" };
                (Cause::Timeout, format!("was ended when {whose} {limit} s were over"))
            }
            End::Hung(hang) => (Cause::Hung, format!("hung: {}", scene::sentence(hang.idle, &hang.scene))),
            End::NotStarted(error) => (cause, format!("could not be started: {error}")),
            End::Code(0) => return None,
            End::Code(code) if killed_for_memory => {
                (Cause::Oom, format!("exited {code} after the kernel killed a process of it for memory"))
            }
            End::Signal(_) if killed_for_memory => (Cause::Oom, "was killed by the kernel for memory".to_owned()),
            End::Code(code) => {
                let full = !space::full(&self.places(), &ran.tail).is_empty();
                (if full { Cause::DiskFull } else { cause }, format!("exited {code}"))
            }
            End::Signal(9) if ran.oom_kills.is_none() && ran.near_limit => (
                Cause::OomSuspected,
                "was killed by signal 9 near the memory limit, and no counter says why".to_owned(),
            ),
            End::Signal(signal) => (cause, format!("was killed by signal {signal}")),
        };
        let disk = if cause == Cause::DiskFull { ", and no space is left" } else { "" };
        let mut evidence = Evidence::from_summary(format!("{who} {what}{disk}"));
        evidence.command = Some(command.to_owned());
        evidence.tail = ran.tail.clone();
        match &ran.end {
            End::Code(code) => evidence.exit_code = Some((*code).into()),
            End::Signal(signal) => evidence.signal = Some(*signal),
            End::Hung(hang) => {
                evidence.processes.clone_from(&hang.scene.processes);
                evidence.pipes.clone_from(&hang.scene.pipes);
            }
            _ => {}
        }
        evidence.oom_kills = ran.oom_kills.filter(|count| *count > 0);
        let mut failure = Failure { cause, evidence, salvage: None };
        space::explain(&mut failure, &self.places());
        Some(failure)
    }

    /// Runs the criteria's test commands, all of them, and then the verify commands up to the first that fails.
    async fn check(
        &self,
        story: &Story,
        progress: &Progress,
        criteria: &mut [CriterionResult],
        deadline: &Deadline,
    ) -> Result<(), Fault> {
        let mut failed = None;
        for (criterion, result) in story.criteria.iter().zip(criteria) {
            let Some(command) = &criterion.test_command else { continue };
            let who = format!("the test command `{command}` of criterion {}", criterion.id);
            let found = self.check_one(&who, command, story, progress, deadline).await;
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
            if let Some(failure) = self.check_one(&who, &command, story, progress, deadline).await {
                return Err(failure.into());
            }
        }
        Ok(())
    }

    async fn check_one(
        &self,
        who: &str,
        command: &str,
        story: &Story,
        progress: &Progress,
        deadline: &Deadline,
    ) -> Option<Failure> {
        if self.stop.is_cancelled() {
            return Some(Failure::new(Cause::StoppedByUser, format!("{who} was not run: the sandbox was stopped")));
        }
        progress.printed(&format!("checking: {command}"));
        let mut env = self.env.clone();
        env.insert("LONGSHORE_STORY".into(), story.id.as_str().into());
        let job = self.job(shell(command), env, None, deadline);
        let ran = run(job, &self.surroundings(), |_| {}).await;
        self.judge(&ran, who, command, Cause::VerificationFailed, None)
    }

    /// Puts the clone back to what was committed, whatever the checks made of it.
    async fn land(
        &self,
        committed: Committed,
        refs: &mut BTreeMap<String, CommitId>,
        last: bool,
    ) -> Result<Committed, Fault> {
        let mut wanted = refs.clone();
        wanted.insert(self.branch_ref(), committed.commit.clone());
        let (clone, commit, settled) = (self.clone.clone(), committed.commit.clone(), wanted.clone());
        let deadline = self.halt.by(Share::Work);
        let landing = deadline.bound(move || {
            let damaged = "the checks left the clone damaged";
            if let Some(damage) = clone.damage() {
                return Err(Fault::from(Failure::new(Cause::RepoDamaged, format!("{damaged}: {damage}"))));
            }
            let reset = if last { Ok(()) } else { clone.reset_to(&commit, false) };
            reset.and_then(|()| clone.restore_refs(&settled)).map_err(|error| git_failure(&error, damaged).into())
        });
        landing.await.unwrap_or_else(|| Err(cut_off("the clone was put in order")))?;
        *refs = wanted;
        Ok(committed)
    }

    /// Salvages what is there, and makes the clone what it was at the story's start; unless it has what could not be salvaged.
    async fn fail(
        &self,
        story: &Story,
        fault: Fault,
        refs: &mut BTreeMap<String, CommitId>,
        last: bool,
    ) -> (Failure, Kept, Option<String>) {
        let Fault { mut failure, beside } = fault;
        space::explain(&mut failure, &self.places());
        let reference = layout::salvage_ref(&story.id);
        let message =
            commit_message::salvaged(&story.id, &story.title, &self.assignment.swarm_id, &failure.evidence.summary);
        let start = self.start(refs);
        let stopped = self.stop.is_cancelled();
        let deadline = self.halt.by(Share::Salvage);
        let keeping = deadline.bound({
            let (start, reference) = (start.clone(), reference.clone());
            let (clone, bundle) = (self.clone.until(deadline.clone()), self.bundle.clone());
            move || {
                let git = clone.git();
                let finished = Some(bundle.as_path());
                Salvage {
                    clone: &clone,
                    git,
                    start: &start,
                    beside,
                    finished,
                    reference: &reference,
                    message: &message,
                }
                .keep()
            }
        });
        let kept = keeping.await.unwrap_or_else(|| Err(GitError::Halted { what: "add".into() }));
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                if error.disk_full() {
                    failure.cause = Cause::DiskFull;
                }
                failure.evidence.summary.push_str(&format!("; what was there could not be salvaged: {error}"));
                space::explain(&mut failure, &self.places());
                // The work folder is all there is: nobody may put it in order.
                let unusable = format!("what {} left is in the work folder alone", story.id);
                return (*failure, Kept { left_out: vec![".".into()], ..Kept::default() }, Some(unusable));
            }
        };
        let left_out = kept.special.iter().chain(&kept.left_out).filter(|path| !failure.evidence.paths.contains(path));
        let left_out: Vec<String> = left_out.take(LEFT_OUT_NAMED).cloned().collect();
        if kept.commit.is_some() && !left_out.is_empty() {
            failure.evidence.summary.push_str(&format!("; not in the salvage: {}", left_out.join(", ")));
            failure.evidence.paths.extend(left_out);
        }
        if let Some(commit) = &kept.commit {
            refs.insert(reference, commit.clone());
        }
        let (clone, wanted, sealed) = (self.clone.clone(), refs.clone(), !kept.left_out.is_empty());
        let reset = deadline.bound(move || {
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

fn shell(command: &str) -> Vec<String> {
    ["sh", "-c", command].map(str::to_owned).to_vec()
}

/// A failure in one line.
pub fn said(failure: &Failure) -> String {
    let paths = match failure.evidence.paths.as_slice() {
        [] => String::new(),
        paths => format!(" ({})", paths.join(", ")),
    };
    format!("{}: {}{paths}", failure.cause.as_str(), failure.evidence.summary)
}
