//! Runs one story from its prompt to its verdict: agent, examination, checks. If it fails, its work is salvaged and the clone is
//! reset for the next story.
//!
//! Used by `attempt.rs`, one story after the other. Must not: end the sandbox. An error here is the story's failure, except for a
//! clone that cannot be reset ([`StoryRun::unusable_reason`]).

use std::collections::BTreeMap;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::check_runner::{CheckRunner, unchecked_criteria};
use super::clock::StoryDeadline;
use super::clone_dir::CleanMode;
use super::command::CommandSpec;
use super::command_failure::JudgedCommand;
use super::commit_message;
use super::disk_space;
use super::examination::{CommittedWork, Examination};
use super::mail::MORE_STORIES_VARIABLE;
use super::merge_start::StartedMerge;
use super::progress::ProgressReporter;
use super::prompt;
use super::safe_fs;
use super::salvage::{SalvageRun, SalvagedCommit};
use super::sandbox_context::{SandboxContext, elapsed_ms, shell_argv};
use super::stop_budget::StopPhase;
use super::story_failure::{MAX_NAMED_PATHS, StoryFailure, failure_line, git_failure};
use super::task_card::{CriterionCard, TaskCard};
use crate::handoff::assignment::{AssignedStory, PromptDelivery};
use crate::handoff::layout;
use crate::handoff::result::StoryResult;
use crate::ids::CommitId;
use crate::protocol::acp::message::StoryStatus;
use crate::tasks::Story;
use crate::verdict::{Cause, CriterionResult, Failure, StoryOutcome};

/// A story to run.
#[derive(Clone, Copy)]
pub struct StoryTask<'a> {
    pub story: &'a Story,
    pub assigned: &'a AssignedStory,
    /// The results of the stories before it.
    pub earlier: &'a [StoryResult],
    /// No story follows, so that the clone need not be reset.
    pub is_last: bool,
}

/// What came of a story.
pub struct StoryRun {
    pub result: StoryResult,
    /// Why no other story can run in this sandbox.
    pub unusable_reason: Option<String>,
    /// The work tree has files that no commit could take. Anything else done in it would destroy them.
    pub has_unsaved_work: bool,
    /// To be sent once the result is written.
    pub final_report: FinalReport,
}

/// A story's final status. It is sent once the result is on disk; until then, the story's heartbeat continues.
pub struct FinalReport {
    progress: ProgressReporter,
    heartbeat: JoinHandle<()>,
    status: StoryStatus,
    text: String,
}

impl FinalReport {
    /// Sends the status, or that the story failed after all.
    pub fn send(self, failure: Option<&Failure>) {
        self.heartbeat.abort();
        match failure {
            Some(failure) => self.progress.send_final_status(StoryStatus::Failed, &failure_line(failure)),
            None => self.progress.send_final_status(self.status, &self.text),
        }
    }
}

/// What a failed story left.
struct SalvagedStory {
    failure: Failure,
    commit: Option<CommitId>,
    has_unsaved_work: bool,
    unusable_reason: Option<String>,
}

impl SandboxContext {
    /// Runs a story. `refs` are the refs at its start; those of a finished or salvaged story are added.
    pub async fn run_story(&self, task: StoryTask<'_>, refs: &mut BTreeMap<String, CommitId>) -> StoryRun {
        let story = task.story;
        let started_at = Instant::now();
        self.commands.log.begin_story(&format!("acp-shim: {} begins", story.id));
        let progress = self.progress_reporter(story.id.clone());
        let heartbeat = progress.spawn();
        progress.set_status(StoryStatus::InProgress, &format!("started: {}", story.title));

        let mut criteria = unchecked_criteria(story);
        let tried = match self.start_merge(story, refs).await {
            Ok(merge) => self.try_story(task, merge, &progress, refs, &mut criteria).await,
            Err(failure) => Err(failure),
        };
        let agent_notes = self.commands.agent_requests.end_story().redacted(&self.commands.secrets);
        let finished = match tried {
            Ok(committed) => self.reset_to_committed(committed, refs, task.is_last).await,
            Err(failure) => Err(failure),
        };
        let mut run = StoryRun {
            result: StoryResult { agent_notes, ..StoryResult::not_run(story.id.clone(), StoryOutcome::NotReached) },
            unusable_reason: None,
            has_unsaved_work: false,
            final_report: FinalReport { progress, heartbeat, status: StoryStatus::Failed, text: String::new() },
        };
        match finished {
            Ok(CommittedWork { commit, commits }) => {
                run.final_report.status = StoryStatus::Completed;
                let verified = if self.assignment.checked_after { "" } else { " and verified" };
                run.final_report.text = format!("committed as {}{verified}", commit.short());
                run.result.outcome = StoryOutcome::Finished { commit };
                run.result.commits = commits;
            }
            Err(failure) => {
                let salvaged = self.salvage_story(task, failure, refs).await;
                run.final_report.text = failure_line(&salvaged.failure);
                run.unusable_reason = salvaged.unusable_reason;
                run.has_unsaved_work = salvaged.has_unsaved_work;
                run.result.outcome = StoryOutcome::Failed {
                    failure: salvaged.failure,
                    salvage: salvaged.commit,
                    unsaved: salvaged.has_unsaved_work,
                };
            }
        }
        run.result.criteria = criteria;
        run.result.work_log = run.final_report.progress.close(&run.final_report.text);
        run.result.duration_ms = elapsed_ms(started_at);
        run
    }

    /// Starts the merge, unless an earlier story has finished it. A refused dispatch starts nothing.
    async fn start_merge(
        &self,
        story: &Story,
        refs: &BTreeMap<String, CommitId>,
    ) -> Result<Option<StartedMerge>, StoryFailure> {
        if let Some(refusal) = &self.dispatch.refusal {
            return Err(refusal.clone().into());
        }
        let assignment = &self.assignment;
        let Some(merge) = assignment.merge.as_ref().filter(|_| *self.branch_tip(refs) == assignment.base) else {
            return Ok(None);
        };
        let (head, message) = (merge.head.clone(), self.merge_message(story));
        let starting =
            self.run_git(StopPhase::Work, "merge", move |clone| StartedMerge::start(clone, &head, &message)).await;
        starting.map(Some).map_err(|error| {
            let mut failure = self.git_failure(&error, "cannot start the merge");
            if failure.cause == Cause::RepoDamaged {
                // No agent has used the clone since it was made or reset.
                failure.cause = Cause::CloneFailed;
            }
            failure.into()
        })
    }

    fn merge_message(&self, story: &Story) -> String {
        commit_message::for_merge(&story.id, &self.assignment.integration_branch, &self.assignment.swarm_id)
    }

    fn task_card(&self, task: StoryTask<'_>, merge: Option<&StartedMerge>) -> TaskCard {
        let story = task.story;
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
            checked_after: self.assignment.checked_after,
            merge_head: merge.map(|merge| merge.head.to_string()),
            conflicts: merge.map(|merge| merge.conflicts.clone()).unwrap_or_default(),
            previous_failure: task.assigned.previous_failure.clone(),
            guidance: self.assignment.guidance.clone(),
        }
    }

    fn verify_commands(&self, story: &Story) -> Vec<String> {
        self.tasks.verify.iter().chain(&story.verify).chain(&self.assignment.verify).cloned().collect()
    }

    async fn try_story(
        &self,
        task: StoryTask<'_>,
        merge: Option<StartedMerge>,
        progress: &ProgressReporter,
        refs: &BTreeMap<String, CommitId>,
        criteria: &mut [CriterionResult],
    ) -> Result<CommittedWork, StoryFailure> {
        let story = task.story;
        let deadline = self.story_deadline();
        match merge.as_ref().filter(|merge| merge.conflicts.is_empty()) {
            Some(merge) => progress.report(&format!("merged {} without conflicts", merge.head.short())),
            None => self.run_agent(task, merge.as_ref(), progress, &deadline).await?,
        }
        let start = self.branch_tip(refs).clone();
        let message = match merge {
            Some(_) => self.merge_message(story),
            None => commit_message::for_finished_story(&story.id, &story.title, &self.assignment.swarm_id),
        };
        let examination = Examination {
            clone: self.clone.clone(),
            branch_ref: self.branch_ref(),
            start: start.clone(),
            expected_refs: refs.clone(),
            merge,
            message,
        };
        let examined = self.stop_budget.run_blocking(StopPhase::Work, move || examination.examine()).await;
        let is_repair = self.assignment.rework || self.assignment.merge.is_some();
        let is_repair_of_several = is_repair && self.assignment.stories.len() > 1;
        let committed = match examined.unwrap_or_else(|| Err(StoryFailure::stopped_before("the work was examined"))) {
            // The reviewer's findings or the conflicts concern another story.
            Err(failure) if failure.failure.cause == Cause::NoChanges && is_repair_of_several => {
                CommittedWork { commit: start, commits: Vec::new() }
            }
            examined => examined?,
        };
        if self.assignment.checked_after {
            return Ok(committed);
        }
        let verify = self.verify_commands(story);
        let checked = CheckRunner::after_agent(self).run_story(story, &verify, criteria, progress, &deadline).await;
        checked.map_or(Ok(committed), |failure| Err(failure.into()))
    }

    async fn run_agent(
        &self,
        task: StoryTask<'_>,
        merge: Option<&StartedMerge>,
        progress: &ProgressReporter,
        deadline: &StoryDeadline,
    ) -> Result<(), StoryFailure> {
        let card = self.task_card(task, merge);
        self.commands.agent_requests.begin_story(card.clone(), progress.clone());
        let (spec, shown) = self.agent_command(task, &card, deadline)?;
        let output = self.commands.run(spec, |line| progress.report_output(line)).await;
        let give_up_reason = self.commands.agent_requests.give_up_reason();
        let command = JudgedCommand {
            who: "the agent",
            shown: &shown,
            cause: Cause::AgentFailed,
            give_up_reason: give_up_reason.as_deref(),
        };
        command.failure(&output, self).map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// The agent's command, and its name for messages.
    fn agent_command(
        &self,
        task: StoryTask<'_>,
        card: &TaskCard,
        deadline: &StoryDeadline,
    ) -> Result<(CommandSpec, String), StoryFailure> {
        let StoryTask { story, earlier, .. } = task;
        let memory = self
            .dispatch
            .write_memory(&self.memory_dir, story, &self.tasks, &self.assignment, earlier)
            .map_err(|error| self.prompt_failure(&self.memory_dir, &error))?;
        let mailbox = self.assignment.mailbox.as_ref();
        let has_more_stories = earlier.len() + 1 < self.assignment.stories.len();
        let context = prompt::PromptContext {
            title: &self.tasks.title,
            description: &self.tasks.description,
            memory: &memory.prompt_text,
            mailbox,
            has_more_stories,
        };
        let text = prompt::story_prompt(card, context);
        let file = self.run_dir.join(format!("prompt-{}.md", story.id));
        safe_fs::ensure_dir(&self.run_dir)
            .and_then(|()| safe_fs::write_replacing(&file, text.as_bytes()))
            .map_err(|error| self.prompt_failure(&file, &error))?;
        let mut env = self.env.clone();
        env.insert("LONGSHORE_STORY".into(), story.id.as_str().into());
        env.insert("LONGSHORE_STORY_TITLE".into(), story.title.replace('\0', "").into());
        env.insert("LONGSHORE_PROMPT_FILE".into(), file.clone().into());
        if let Some(head) = &card.merge_head {
            env.insert("LONGSHORE_MERGE_HEAD".into(), head.into());
            env.insert("LONGSHORE_CONFLICTS".into(), card.conflicts.join("\n").into());
        }
        if mailbox.is_some() && has_more_stories {
            env.insert(MORE_STORIES_VARIABLE.into(), "1".into());
        }
        memory.add_to_env(&mut env);
        let (argv, stdin, shown) = match (&story.command, &self.assignment.agent) {
            (Some(command), _) => (shell_argv(command), None, command.clone()),
            (None, Some(agent)) => {
                let argv = agent.expand_argv(&file.to_string_lossy(), story.id.as_str());
                let stdin = (agent.prompt == PromptDelivery::Stdin).then_some(text);
                (argv, stdin, agent.name.clone())
            }
            (None, None) => {
                let summary = "the story has no `command`, and no agent is configured";
                return Err(StoryFailure::new(Cause::AgentFailed, summary));
            }
        };
        Ok((self.command_spec(argv, env, stdin, deadline), shown))
    }

    /// Resets the clone to what was committed, whatever the checks did to it.
    async fn reset_to_committed(
        &self,
        committed: CommittedWork,
        refs: &mut BTreeMap<String, CommitId>,
        is_last: bool,
    ) -> Result<CommittedWork, StoryFailure> {
        let mut wanted = refs.clone();
        wanted.insert(self.branch_ref(), committed.commit.clone());
        let (clone, commit, new_refs) = (self.clone.clone(), committed.commit.clone(), wanted.clone());
        let reset = self.stop_budget.run_blocking(StopPhase::Work, move || {
            let damaged = "the checks damaged the clone";
            if let Some(damage) = clone.find_damage() {
                return Err(StoryFailure::new(Cause::RepoDamaged, format!("{damaged}: {damage}")));
            }
            let reset = if is_last { Ok(()) } else { clone.reset_to(&commit, CleanMode::KeepIgnored) };
            reset.and_then(|()| clone.restore_refs(&new_refs)).map_err(|error| git_failure(&error, damaged).into())
        });
        reset.await.unwrap_or_else(|| Err(StoryFailure::stopped_before("the clone was reset")))?;
        *refs = wanted;
        Ok(committed)
    }

    /// Salvages a failed story's work, and resets the clone to the story's start unless it has work that could not be salvaged.
    async fn salvage_story(
        &self,
        task: StoryTask<'_>,
        StoryFailure { failure, stray_commits }: StoryFailure,
        refs: &mut BTreeMap<String, CommitId>,
    ) -> SalvagedStory {
        let story = task.story;
        let mut failure = self.with_disk_evidence(*failure);
        let reference = layout::salvage_ref(&story.id);
        let message =
            commit_message::for_salvage(&story.id, &story.title, &self.assignment.swarm_id, &failure.evidence.summary);
        let start = self.branch_tip(refs).clone();
        let was_stopped = self.is_stopped();
        let salvaged = self.run_git(StopPhase::Salvage, "add", {
            let (start, reference, bundle) = (start.clone(), reference.clone(), self.bundle_path());
            move |clone| {
                SalvageRun {
                    clone,
                    git: clone.git(),
                    start: &start,
                    stray_commits,
                    finished_bundle: Some(&bundle),
                    reference: &reference,
                    message: &message,
                }
                .run()
            }
        });
        let SalvagedCommit { commit, left_out, special_files } = match salvaged.await {
            Ok(salvaged) => salvaged,
            Err(error) => {
                if error.is_disk_full() {
                    failure.cause = Cause::DiskFull;
                }
                failure.evidence.summary.push_str(&format!("; the work could not be salvaged: {error}"));
                disk_space::add_disk_evidence(&mut failure, &self.writable_dirs());
                // The only copy is in the work tree, which must stay as it is.
                let unusable_reason = Some(format!("the work of {} is in the work tree only", story.id));
                return SalvagedStory { failure, commit: None, has_unsaved_work: true, unusable_reason };
            }
        };
        let has_unsaved_work = !left_out.is_empty();
        let unnamed = special_files.into_iter().chain(left_out).filter(|path| !failure.evidence.paths.contains(path));
        let unnamed: Vec<String> = unnamed.take(MAX_NAMED_PATHS).collect();
        if commit.is_some() && !unnamed.is_empty() {
            failure.evidence.summary.push_str(&format!("; not in the salvage: {}", unnamed.join(", ")));
            failure.evidence.paths.extend(unnamed);
        }
        if let Some(commit) = &commit {
            refs.insert(reference, commit.clone());
        }
        let (clone, wanted, keep) = (self.clone.clone(), refs.clone(), task.is_last || was_stopped || has_unsaved_work);
        let reset = self.stop_budget.run_blocking(StopPhase::Salvage, move || {
            clone.restore_refs(&wanted)?;
            if keep { Ok(()) } else { clone.reset_to(&start, CleanMode::RemoveIgnored) }
        });
        let unusable_reason = reset
            .await
            .unwrap_or(Ok(()))
            .err()
            .map(|error| format!("the clone cannot be reset after {}: {error}", story.id));
        SalvagedStory { failure, commit, has_unsaved_work, unusable_reason }
    }
}
