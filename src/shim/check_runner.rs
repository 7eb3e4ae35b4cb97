//! Runs checks: the test commands of a story's criteria, and verify commands, each distinct command of a story once.
//!
//! Used by `story.rs` at the end of a story, and by `check.rs` in a check sandbox. There, the clone is restored after each command, so
//! that no check decides about the next one. Must not: judge what a failed check means for a story.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use tokio::time::Instant;

use super::children;
use super::clock::StoryDeadline;
use super::clone_dir::{CleanMode, CloneDir, trust_objects_repo};
use super::command_failure::JudgedCommand;
use super::git::GitError;
use super::progress::ProgressReporter;
use super::safe_fs;
use super::sandbox_context::{SandboxContext, elapsed_ms, shell_argv};
use super::special_files;
use super::stop_budget::StopPhase;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::check::CheckRun;
use crate::ids::{CommitId, StoryId};
use crate::tasks::{Criterion, Story};
use crate::verdict::{Cause, CauseClass, CriterionResult, Failure};

/// A command that checks something.
#[derive(Clone, Copy)]
pub struct Check<'a> {
    pub command: &'a str,
    /// The value of `LONGSHORE_STORY`. For a check that all stories share, it has all of them.
    pub story: Option<&'a StoryId>,
    /// The id of the criterion that it checks.
    pub criterion: Option<&'a str>,
}

/// The stories of a check that they share, separated by commas; `base` if there are none yet.
fn shared_story_names(assignment: &AssignmentFile) -> String {
    match assignment.stories.as_slice() {
        [] => "base".to_owned(),
        stories => stories.iter().map(|story| story.id.as_str()).collect::<Vec<_>>().join(","),
    }
}

pub struct CheckRunner<'a> {
    sandbox: &'a SandboxContext,
    /// Restores the clone after each command.
    pristine: Option<PristineClone>,
    /// Why the clone is not restored. No other check may run in it.
    unusable: Option<Failure>,
    /// The checks that ran.
    pub runs: Vec<CheckRun>,
}

impl<'a> CheckRunner<'a> {
    /// For the end of a story: what the commands do to the clone stays.
    pub fn after_agent(sandbox: &'a SandboxContext) -> Self {
        Self { sandbox, pristine: None, unusable: None, runs: Vec::new() }
    }

    /// For a check sandbox, whose clone is new.
    pub async fn in_check_sandbox(sandbox: &'a SandboxContext, commit: CommitId) -> Result<Self, GitError> {
        let capture = sandbox.run_git(StopPhase::Work, "reset", |clone| PristineClone::capture(clone, commit));
        Ok(Self { sandbox, pristine: Some(capture.await?), unusable: None, runs: Vec::new() })
    }

    /// Runs a command, and returns its failure.
    pub async fn run(
        &mut self,
        check: Check<'_>,
        progress: Option<&ProgressReporter>,
        deadline: &StoryDeadline,
    ) -> Option<Failure> {
        if self.unusable.is_some() {
            return self.unusable.clone();
        }
        let sandbox = self.sandbox;
        let command = check.command;
        let who = match check.criterion {
            Some(id) => format!("the test command `{command}` of criterion {id}"),
            None => format!("the verify command `{command}`"),
        };
        if sandbox.is_stopped() {
            return Some(Failure::new(Cause::StoppedByUser, format!("{who} did not run: the sandbox was stopped")));
        }
        if let Some(progress) = progress {
            progress.report_output(&format!("checking: {command}"));
        }
        let mut env = sandbox.env.clone();
        let stories = match check.story {
            Some(story) => story.to_string(),
            None => shared_story_names(&sandbox.assignment),
        };
        env.insert("LONGSHORE_STORY".into(), stories.into());
        let started_at = Instant::now();
        let spec = sandbox.command_spec(shell_argv(command), env, None, deadline);
        let output = sandbox.commands.run(spec, |_| {}).await;
        let judged =
            JudgedCommand { who: &who, shown: command, cause: Cause::VerificationFailed, give_up_reason: None };
        let failure = judged.failure(&output, sandbox);
        self.runs.push(CheckRun {
            command: command.to_owned(),
            story: check.story.cloned(),
            criterion: check.criterion.map(str::to_owned),
            passed: failure.is_none(),
            duration_ms: elapsed_ms(started_at),
        });
        self.restore_clone(&who).await;
        self.clear_scratch_dirs();
        failure.or_else(|| self.unusable.clone())
    }

    /// Empties what a check could leave for the next one outside the clone, if this is a check sandbox.
    fn clear_scratch_dirs(&self) {
        // Elsewhere (in tests) these are not the sandbox's own.
        if self.pristine.is_none() || !children::is_init() {
            return;
        }
        let home = self.sandbox.env.get(OsStr::new("HOME")).map(PathBuf::from);
        for dir in home.iter().cloned().chain(["/tmp", "/dev/shm"].map(PathBuf::from)) {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if let Err(error) = safe_fs::remove_any(&entry.path()) {
                    self.sandbox.log(&format!("cannot remove `{}`: {error}", entry.path().display()));
                }
            }
        }
        if let Some(home) = home {
            trust_objects_repo(&home, &self.sandbox.clone.objects_repo);
        }
    }

    /// Restores the clone, if this is a check sandbox.
    async fn restore_clone(&mut self, who: &str) {
        let Some(mut pristine) = self.pristine.take() else { return };
        let restoring = self.sandbox.run_git(StopPhase::Work, "reset", move |clone| {
            pristine.restore(clone)?;
            Ok(pristine)
        });
        match restoring.await {
            Ok(pristine) => self.pristine = Some(pristine),
            Err(error) => {
                let what = format!("the clone cannot be restored after {who}");
                self.unusable = Some(self.sandbox.git_failure(&error, &what));
            }
        }
    }

    /// Runs the test commands of all criteria, then the verify commands up to the first that fails. Returns the first failure, and
    /// at once one after which no other command says anything: a timeout, a stop, a full disk.
    pub async fn run_story(
        &mut self,
        story: &Story,
        verify: &[String],
        criteria: &mut [CriterionResult],
        progress: &ProgressReporter,
        deadline: &StoryDeadline,
    ) -> Option<Failure> {
        let mut ran: Vec<(&str, bool)> = Vec::new();
        let mut first_failure = None;
        for (criterion, result) in story.criteria.iter().zip(criteria) {
            let Some(command) = criterion.test_command.as_deref() else { continue };
            if let Some((_, passed)) = ran.iter().find(|(other, _)| *other == command) {
                result.met = Some(*passed);
                continue;
            }
            let check = Check { command, story: Some(&story.id), criterion: Some(&criterion.id) };
            match self.run(check, Some(progress), deadline).await {
                Some(failure) if failure.cause != Cause::VerificationFailed => {
                    let earlier = first_failure.filter(|_| failure.cause.class() == CauseClass::Story);
                    return earlier.or(Some(failure));
                }
                failure => {
                    result.met = Some(failure.is_none());
                    ran.push((command, failure.is_none()));
                    first_failure = first_failure.or(failure);
                }
            }
        }
        if first_failure.is_some() {
            return first_failure;
        }
        for command in verify {
            if ran.iter().any(|(other, _)| other == command) {
                continue;
            }
            let check = Check { command, story: Some(&story.id), criterion: None };
            let failure = self.run(check, Some(progress), deadline).await;
            if failure.is_some() {
                return failure;
            }
            ran.push((command, true));
        }
        None
    }
}

/// Restores a clone to its commit, whatever a check did to it. Untracked files that the commit's own rules ignore stay: they are
/// build output, and the next check is faster with them.
struct PristineClone {
    commit: CommitId,
    /// The index as git wrote it, and when. A check could change it, so that git would overlook changed files.
    index: Vec<u8>,
    index_written: SystemTime,
}

impl PristineClone {
    fn capture(clone: &CloneDir, commit: CommitId) -> Result<Self, GitError> {
        let path = index_path(clone);
        let read = || -> io::Result<(Vec<u8>, SystemTime)> {
            let mut file = safe_fs::open_regular(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok((bytes, file.metadata()?.modified()?))
        };
        let (index, index_written) = read().map_err(|error| GitError::file("read", &path, error))?;
        Ok(Self { commit, index, index_written })
    }

    fn restore(&mut self, clone: &CloneDir) -> Result<(), GitError> {
        // The clone has no objects of its own, so a new git directory costs a few small files. The old one may have other objects
        // under known names, other refs, or rules that hide files.
        clone.rebuild_git_dir(None)?;
        let path = index_path(clone);
        // With a later time, git would trust the entries of files that were written in the same second.
        safe_fs::write_replacing(&path, &self.index)
            .and_then(|()| File::options().write(true).open(&path)?.set_modified(self.index_written))
            .map_err(|error| GitError::file("write", &path, error))?;
        for path in special_files::scan_work_tree(&clone.repo).overlooked {
            safe_fs::remove_any(&path).map_err(|error| GitError::file("remove", &path, error))?;
        }
        // New rules would hide other new files from the reset.
        let git = clone.git();
        let remove_rules = || git.run(&["clean", "-ffxdq", "--", ":(top,glob)**/.gitignore"]);
        if remove_rules().is_err() {
            clone.make_accessible();
            remove_rules()?;
        }
        clone.reset_to(&self.commit, CleanMode::KeepIgnored)?;
        *self = Self::capture(clone, self.commit.clone())?;
        Ok(())
    }
}

fn index_path(clone: &CloneDir) -> PathBuf {
    clone.git_dir().join("index")
}

/// The criteria of a story, none of which is checked.
pub fn unchecked_criteria(story: &Story) -> Vec<CriterionResult> {
    let unchecked =
        |criterion: &Criterion| CriterionResult { id: criterion.id.clone(), text: criterion.text.clone(), met: None };
    story.criteria.iter().map(unchecked).collect()
}
