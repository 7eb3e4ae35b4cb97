//! Formats announcements as report lines for `plain.rs` and `progress.rs`. Text from sandboxes is sanitized here.
//!
//! To add an announcement: add its arm in [`describe_announcement`] and in the golden file of the event stream.

use super::text::{format_duration, pluralize, sanitize};
use crate::ids::SwarmId;
use crate::protocol::amp::message::{EscalationSeverity, ReviewDecision};
use crate::swarm::{Announcement, StopLevel, StoryRef, SwarmOutcome};
use crate::verdict::Failure;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A success.
    Good,
    /// A final failure.
    Bad,
    /// A problem that may need attention.
    Warning,
    /// Normal progress.
    Neutral,
    /// Only useful when reading a log later.
    Detail,
}

/// An announcement as a line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLine {
    pub tone: Tone,
    /// A story's label, an assignment, or `swarm`.
    pub subject: String,
    pub text: String,
}

/// Formats an announcement; `None` if it needs no line.
pub fn describe_announcement(swarm: SwarmId, announcement: &Announcement) -> Option<ReportLine> {
    let report_line = |tone, subject: &str, text: String| Some(ReportLine { tone, subject: subject.to_owned(), text });
    match announcement {
        Announcement::SwarmStarted { stories, done, assignments, max_sandboxes: max } => {
            let before = if *done > 0 { format!(", {done} done before") } else { String::new() };
            let stories = pluralize(*stories, "story", "stories");
            let text = format!(
                "{swarm} started: {stories} in {}, at most {max} at once{before}",
                pluralize(*assignments, "assignment", "assignments"),
            );
            report_line(Tone::Neutral, "swarm", text)
        }
        Announcement::SwarmResumed { stories, done, running } => {
            let before = if *done > 0 { format!(", {done} done before") } else { String::new() };
            let running = if *running > 0 {
                format!(", {} still running", pluralize(*running, "sandbox", "sandboxes"))
            } else {
                String::new()
            };
            let text = format!("{swarm} resumed: {} to go{before}{running}", pluralize(*stories, "story", "stories"));
            report_line(Tone::Neutral, "swarm", text)
        }
        Announcement::SandboxStarting { attempt, stories } => {
            report_line(Tone::Detail, &joined_labels(stories), format!("sandbox starting ({attempt})"))
        }
        Announcement::StartDelayed { attempt, reason } => {
            report_line(Tone::Warning, attempt.assignment.as_str(), format!("its sandbox waits: {}", sanitize(reason)))
        }
        Announcement::SandboxPaused { attempt, container } => {
            let text = format!(
                "its sandbox was paused, but not by longshore: `docker unpause {}` continues it; longshore ends it if it \
                 stays paused",
                sanitize(container)
            );
            report_line(Tone::Warning, attempt.assignment.as_str(), text)
        }
        Announcement::SandboxStarted { .. } => None,
        Announcement::SandboxEnded { attempt, exit_code, oom_killed, vanished, error, stderr_tail: _ } => {
            let cause = if error.is_empty() { String::new() } else { format!(" ({})", sanitize(error)) };
            let text = match exit_code {
                _ if *vanished => format!("vanished from the engine{cause}"),
                _ if *oom_killed => format!("ran out of memory{cause}"),
                Some(0) if error.is_empty() => return None,
                Some(code) => format!("ended with exit code {code}{cause}"),
                None => format!("ended without an exit code{cause}"),
            };
            report_line(
                Tone::Warning,
                attempt.assignment.as_str(),
                format!("sandbox of attempt {} {text}", attempt.number),
            )
        }
        Announcement::StoryStarted { story, title, attempt } => {
            let again = if attempt.number > 1 { format!(" (attempt {})", attempt.number) } else { String::new() };
            report_line(Tone::Neutral, &story.label, format!("started: {}{again}", sanitize(title)))
        }
        Announcement::StoryProgress { story, text } => report_line(Tone::Detail, &story.label, sanitize(text)),
        Announcement::StoryFinished { story } => {
            report_line(Tone::Detail, &story.label, "finished in its sandbox".to_owned())
        }
        Announcement::StoryLanded { story, commit, duration: time, .. } => {
            report_line(Tone::Good, &story.label, format!("landed {} ({})", commit.short(), format_duration(*time)))
        }
        Announcement::StoryRetried { story, failure, next_attempt: next, delay: after } => {
            let wait = if after.is_zero() { String::new() } else { format!(" in {}", format_duration(*after)) };
            let text = format!("{}; trying again{wait} (attempt {next})", describe_failure(failure));
            report_line(Tone::Warning, &story.label, text)
        }
        Announcement::StoryFailed { story, failure, attempts } => {
            let after = pluralize(*attempts as usize, "attempt", "attempts");
            report_line(Tone::Bad, &story.label, format!("failed after {after}: {}", describe_failure(failure)))
        }
        Announcement::StorySkipped { story, blocked_by: because } => {
            report_line(Tone::Warning, &story.label, format!("skipped, because {} did not land", because.label))
        }
        Announcement::CheckStarted { stories, commit, .. } => {
            let subject = if stories.is_empty() { "swarm".to_owned() } else { joined_labels(stories) };
            let what = if stories.is_empty() { "the branch itself, at" } else { "the merged commit" };
            report_line(Tone::Neutral, &subject, format!("checking {what} {}", commit.short()))
        }
        Announcement::CheckEnded { stories, failure, .. } => {
            let subject = if stories.is_empty() { "swarm".to_owned() } else { joined_labels(stories) };
            match failure {
                None => report_line(Tone::Detail, &subject, "the checks passed".to_owned()),
                Some(failure) => {
                    report_line(Tone::Warning, &subject, format!("the checks failed: {}", describe_failure(failure)))
                }
            }
        }
        Announcement::BranchRewound { commit, stories } => {
            let what = match stories.as_slice() {
                [] => "nothing that landed is missing".to_owned(),
                stories => format!("not on it any more, and done again: {}", joined_labels(stories)),
            };
            report_line(Tone::Warning, "swarm", format!("the branch was reset to {}: {what}", commit.short()))
        }
        Announcement::BranchRed { commit, failure } => {
            let text =
                format!("the checks fail on the branch itself, at {}: {}", commit.short(), describe_failure(failure));
            report_line(Tone::Bad, "swarm", text)
        }
        Announcement::ReviewStarted { stories, round, .. } => {
            report_line(Tone::Neutral, &joined_labels(stories), format!("review {round} started"))
        }
        Announcement::ReviewEnded { stories, decision, confidence, issues, reject_count: rejects, .. } => {
            let (tone, word) = match decision {
                ReviewDecision::Approved => (Tone::Good, "approved".to_owned()),
                ReviewDecision::ApprovedWithFix => (Tone::Good, "approved, with a fix of the reviewer's".to_owned()),
                ReviewDecision::Rejected => {
                    let issues = pluralize(*issues, "issue", "issues");
                    (
                        Tone::Warning,
                        format!("rejected with {issues}, {} so far", pluralize(*rejects as usize, "time", "times")),
                    )
                }
            };
            report_line(tone, &joined_labels(stories), format!("review: {word} (confidence {confidence})"))
        }
        Announcement::Escalated { task, stories, severity, description, suggested_actions, .. } => {
            let tone = match severity {
                EscalationSeverity::Info => Tone::Detail,
                EscalationSeverity::Warning => Tone::Warning,
                EscalationSeverity::Critical => Tone::Bad,
            };
            let subject = if stories.is_empty() { task.to_string() } else { joined_labels(stories) };
            let action = match suggested_actions.first() {
                Some(action) if *severity == EscalationSeverity::Critical => {
                    format!("; {}", sanitize(action))
                }
                _ => String::new(),
            };
            report_line(tone, &subject, format!("escalated: {}{action}", sanitize(description)))
        }
        Announcement::DecisionApplied { task, action, by } => {
            report_line(Tone::Neutral, task.as_str(), format!("{} decided: {action}", sanitize(by)))
        }
        Announcement::NotifyFailed { problem } => report_line(
            Tone::Warning,
            "swarm",
            format!("a notification failed; others may fail too: {}", sanitize(problem)),
        ),
        Announcement::MemoryDamaged { problem } => {
            let text =
                format!("what an earlier swarm learned cannot be read and is not passed on: {}", sanitize(problem));
            report_line(Tone::Warning, "swarm", text)
        }
        Announcement::RecordRefused { attempt, reason, count } => {
            let text = format!("bad record from its sandbox ({count} so far): {}", sanitize(reason));
            report_line(Tone::Warning, attempt.assignment.as_str(), text)
        }
        Announcement::ErrorReported { attempt, code, message } => {
            let text = format!("its sandbox reports {}: {}", sanitize(code), sanitize(message));
            report_line(Tone::Warning, attempt.assignment.as_str(), text)
        }
        Announcement::Salvaged { attempt, reference } => {
            report_line(Tone::Warning, attempt.assignment.as_str(), format!("work kept in {}", sanitize(reference)))
        }
        Announcement::WorkDirKept { attempt, work_dir: folder, partly_salvaged: partly } => {
            let what = if *partly { "not all of the work could be salvaged" } else { "work could not be salvaged" };
            let text = format!("{what}: all of it is kept in the work volume, folder {}", sanitize(folder));
            report_line(Tone::Bad, attempt.assignment.as_str(), text)
        }
        Announcement::Stopping { level, by } => {
            let how = match level {
                StopLevel::Graceful => "nothing new is started, sandboxes are asked to finish; again to kill them",
                StopLevel::Kill => "sandboxes are killed, their work is salvaged; again to leave at once",
            };
            report_line(Tone::Warning, "swarm", format!("stopping ({}): {how}", sanitize(by)))
        }
        Announcement::EngineLost { problem } => {
            let text = format!("the engine does not answer; waiting for it ({})", sanitize(problem));
            report_line(Tone::Warning, "swarm", text)
        }
        Announcement::EngineReconnected => report_line(Tone::Neutral, "swarm", "the engine answers again".to_owned()),
        Announcement::MachineryFailed { failure } => {
            report_line(Tone::Bad, "swarm", format!("cannot continue: {}", describe_failure(failure)))
        }
        Announcement::SwarmEnded { outcome, exit_code: _, landed, failed, skipped, pending } => {
            let (tone, how) = match outcome {
                SwarmOutcome::Landed => (Tone::Good, "every story landed"),
                SwarmOutcome::SomeFailed => (Tone::Bad, "some stories did not land"),
                SwarmOutcome::RedBase => (Tone::Bad, "the checks fail before anything was changed"),
                SwarmOutcome::MachineryFailed => (Tone::Bad, "the machinery failed"),
                SwarmOutcome::Suspended => {
                    (Tone::Warning, "the remaining stories wait for the admin: `longshore admin list`")
                }
                SwarmOutcome::Interrupted => (Tone::Warning, "interrupted"),
            };
            let counts: Vec<String> =
                [(*landed, "landed"), (*failed, "failed"), (*skipped, "skipped"), (*pending, "pending")]
                    .iter()
                    .filter(|(number, word)| *number > 0 || *word == "landed")
                    .map(|(number, word)| format!("{number} {word}"))
                    .collect();
            report_line(tone, "swarm", format!("{how}: {}", counts.join(", ")))
        }
    }
}

/// `verification_failed: the verify command ...`.
pub fn describe_failure(failure: &Failure) -> String {
    let summary = sanitize(&failure.evidence.summary);
    if summary.is_empty() {
        failure.cause.as_str().to_owned()
    } else {
        format!("{}: {summary}", failure.cause.as_str())
    }
}

/// The labels of several stories, with commas.
fn joined_labels(stories: &[StoryRef]) -> String {
    stories.iter().map(|story| story.label.as_str()).collect::<Vec<_>>().join(", ")
}
