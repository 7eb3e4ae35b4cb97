//! Judges how a command ended: the failure that its exit, its memory use and its output show, with evidence.
//!
//! Used by `story.rs` for the agent, by `check_runner.rs` for the checks, and by `review.rs` for the reviewer.

use super::command::{CommandExit, CommandOutput};
use super::disk_space;
use super::hang_snapshot;
use super::sandbox_context::SandboxContext;
use crate::verdict::{Cause, Evidence, Failure};

/// A command whose output is judged.
#[derive(Clone, Copy)]
pub struct JudgedCommand<'a> {
    /// The subject of the summary: "the agent", "the verify command `...`".
    pub who: &'a str,
    pub shown: &'a str,
    /// What a failing exit means if nothing else explains it.
    pub cause: Cause,
    /// The reason with which the agent gave up.
    pub give_up_reason: Option<&'a str>,
}

impl JudgedCommand<'_> {
    /// The failure that the output shows, if any.
    pub fn failure(&self, output: &CommandOutput, sandbox: &SandboxContext) -> Option<Failure> {
        let dirs = sandbox.writable_dirs();
        let killed_for_memory = output.oom_kills.unwrap_or(0) > 0;
        let (cause, what) = match &output.exit {
            CommandExit::Stopped => (Cause::StoppedByUser, "was stopped".to_owned()),
            _ if self.give_up_reason.is_some() => {
                (Cause::AgentFailed, format!("gave up: {}", self.give_up_reason.unwrap_or_default()))
            }
            CommandExit::TimedOut => {
                let limit = sandbox.assignment.story_timeout_secs;
                let owner = if sandbox.assignment.review.is_some() || sandbox.assignment.check.is_some() {
                    "its"
                } else {
                    "the story's"
                };
                (Cause::Timeout, format!("was ended when {owner} {limit} s were over"))
            }
            CommandExit::Hung(hang) => {
                (Cause::Hung, format!("hung: {}", hang_snapshot::describe_hang(hang.idle, &hang.snapshot)))
            }
            CommandExit::NotStarted(error) => (self.cause, format!("could not be started: {error}")),
            CommandExit::Code(0) => return None,
            CommandExit::Code(code) if killed_for_memory => {
                (Cause::Oom, format!("exited {code} after the kernel killed one of its processes for memory"))
            }
            CommandExit::Signal(_) if killed_for_memory => {
                (Cause::Oom, "was killed by the kernel for memory".to_owned())
            }
            CommandExit::Code(code) => {
                let full = !disk_space::find_full(&dirs, &output.tail).is_empty();
                (if full { Cause::DiskFull } else { self.cause }, format!("exited {code}"))
            }
            CommandExit::Signal(9) if output.oom_kills.is_none() && output.near_memory_limit => (
                Cause::OomSuspected,
                "was killed by signal 9 near the memory limit, and no counter says why".to_owned(),
            ),
            CommandExit::Signal(signal) => (self.cause, format!("was killed by signal {signal}")),
        };
        let disk = if cause == Cause::DiskFull { ", and no space is left" } else { "" };
        let mut evidence = Evidence::from_summary(format!("{} {what}{disk}", self.who));
        evidence.command = Some(self.shown.to_owned());
        evidence.tail.clone_from(&output.tail);
        match &output.exit {
            CommandExit::Code(code) => evidence.exit_code = Some((*code).into()),
            CommandExit::Signal(signal) => evidence.signal = Some(*signal),
            CommandExit::Hung(hang) => {
                evidence.processes.clone_from(&hang.snapshot.processes);
                evidence.pipes.clone_from(&hang.snapshot.pipes);
            }
            _ => {}
        }
        evidence.oom_kills = output.oom_kills.filter(|count| *count > 0);
        let mut failure = Failure { cause, evidence, salvage: None };
        disk_space::add_disk_evidence(&mut failure, &dirs);
        Some(failure)
    }
}
