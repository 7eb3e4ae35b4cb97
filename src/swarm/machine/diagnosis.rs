//! Failure causes, from evidence. Pure functions.
//!
//! The summaries go into AMP messages, and replaying a journal must give the messages that the SSOT already has. So a changed
//! text breaks the resume of a swarm that began with an earlier version.
//!
//! For a sandbox that ended without a completion, the first that applies:
//!
//! | evidence | cause |
//! |---|---|
//! | the machine ended it because of its time, bad records, or a stop | `timeout`, `protocol_violation`, `stopped_by_user` |
//! | the machine ended it because its shim sent nothing | `connection_lost` |
//! | the engine's OOM flag | `oom` |
//! | an error record | its code's cause |
//! | the container is gone, or ended by a signal or a stop, and the engine was lost meanwhile | `engine_error` |
//! | the container is gone, or ended by SIGKILL or SIGTERM, and not by longshore | `killed_outside` |
//! | none of these | `shim_crash` |

use super::attempt::{Attempt, EndReason};
use crate::protocol::acp::message::CompletionStatus;
use crate::swarm::event::ContainerExit;
use crate::verdict::{Cause, Evidence, Failure};

/// The longest text about an earlier failure that goes into a prompt.
pub(super) const MAX_PREVIOUS_FAILURE_CHARS: usize = 4000;
/// The summary's share of that.
const MAX_SUMMARY_CHARS: usize = 1000;

pub(super) const ADMIN_ABORT_SUMMARY: &str = "the admin gave it up";
const ENGINE_LOST_SUMMARY: &str = "the engine went away while the sandbox ran, and the sandbox ended with it";
const PAUSED_SUMMARY: &str = "the container was paused, and not by longshore, while its time ran out";

/// What a sandbox reported before the machine ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Nothing,
    Completion,
    Story,
}

/// The failure of a sandbox that the machine ended; `None` if it did not, or only because the exit was overdue.
fn end_reason_failure(attempt: &Attempt, reported: Reported) -> Option<(Cause, String)> {
    let (cause, summary) = match attempt.end_reason? {
        EndReason::SandboxTimeout if attempt.was_paused => (Cause::KilledOutside, PAUSED_SUMMARY),
        EndReason::SandboxTimeout => (
            Cause::Timeout,
            match reported {
                Reported::Nothing => "the sandbox did not end within the time of its stories and was ended",
                Reported::Completion => "the sandbox did not end within the time of its stories",
                Reported::Story => "the story's time ran out",
            },
        ),
        EndReason::BadRecords => match reported {
            // It may still have reported what went wrong.
            Reported::Completion => return None,
            Reported::Story => (Cause::ProtocolViolation, "the sandbox sent too many bad records"),
            Reported::Nothing => {
                let count = attempt.view.bad_records;
                let summary = format!("the sandbox sent {count} records that break the protocol and was ended");
                return Some((Cause::ProtocolViolation, summary));
            }
        },
        EndReason::SwarmStopped => (Cause::StoppedByUser, "the swarm was stopped"),
        EndReason::Silent if attempt.view.paused => (
            Cause::ConnectionLost,
            "the sandbox said nothing for too long, and was ended; its container was paused, and not by longshore",
        ),
        EndReason::Silent => (Cause::ConnectionLost, "the sandbox said nothing for too long, and was ended"),
        EndReason::AdminRetry | EndReason::AdminRollback => {
            (Cause::StoppedByUser, "the admin ended it, to have it tried again")
        }
        EndReason::AdminAbort => (Cause::AbortedByAdmin, ADMIN_ABORT_SUMMARY),
        EndReason::ExitOverdue => return None,
    };
    Some((cause, summary.to_owned()))
}

/// The failure of a sandbox that ended without a completion.
pub(super) fn exit_failure(attempt: &Attempt, exit: &ContainerExit) -> Failure {
    let signal = exit.code.and_then(|code| i32::try_from(code - 128).ok()).filter(|signal| (1..=64).contains(signal));
    let (cause, summary) = end_reason_failure(attempt, Reported::Nothing).unwrap_or_else(|| {
        if exit.oom_killed {
            return (Cause::Oom, "the kernel killed the sandbox for memory".to_owned());
        }
        if let Some(reported) = &attempt.first_error {
            return (reported.cause, reported.evidence.summary.clone());
        }
        let ended_by_machine = attempt.end_reason.is_some();
        let ended_by_engine = exit.vanished || matches!(exit.code, Some(137 | 143 | 255));
        match (signal, exit.code) {
            _ if attempt.engine_lost && !ended_by_machine && ended_by_engine => {
                (Cause::EngineError, ENGINE_LOST_SUMMARY.to_owned())
            }
            _ if exit.vanished => (Cause::KilledOutside, "the container is gone, and not by longshore".to_owned()),
            (Some(signal @ (9 | 15)), _) if !ended_by_machine => {
                (Cause::KilledOutside, format!("signal {signal} ended the sandbox, and not by longshore"))
            }
            (_, Some(code)) => (Cause::ShimCrash, format!("the sandbox ended with exit code {code} and no completion")),
            (_, None) => (Cause::ShimCrash, "the sandbox ended with no completion".to_owned()),
        }
    });
    let summary = if exit.error.is_empty() { summary } else { format!("{summary}: {}", exit.error) };
    let evidence = Evidence {
        exit_code: exit.code,
        signal,
        processes: attempt.processes.clone(),
        tail: exit.stderr_tail.clone(),
        ..Evidence::from_summary(summary)
    };
    Failure { cause, evidence, salvage: None }
}

/// The failure of a killed container whose end the engine never reported.
pub(super) fn kill_timeout_failure(reason: Option<EndReason>) -> Failure {
    match reason {
        Some(EndReason::SwarmStopped) => Failure::new(
            Cause::StoppedByUser,
            "the swarm was stopped, and the engine did not say that the killed sandbox ended",
        ),
        _ => Failure::new(Cause::EngineError, "the engine did not end the sandbox within 30 s of its kill"),
    }
}

/// Why a sandbox that reported a completion did not reach all its stories, if there is an explanation.
pub(super) fn unreached_failure(attempt: &Attempt) -> Option<Failure> {
    if let Some((cause, summary)) = end_reason_failure(attempt, Reported::Completion) {
        return Some(Failure::new(cause, summary));
    }
    attempt.first_error.clone().or_else(|| {
        let (cause, summary) = external_stop_failure(attempt);
        (attempt.view.completion == Some(CompletionStatus::Stopped)).then(|| Failure::new(cause, summary))
    })
}

/// The failure of a sandbox that someone other than longshore stopped.
fn external_stop_failure(attempt: &Attempt) -> (Cause, String) {
    let (cause, summary) = match attempt.engine_lost {
        true => (Cause::EngineError, ENGINE_LOST_SUMMARY),
        false => (Cause::KilledOutside, "the sandbox was told to stop, and not by longshore"),
    };
    (cause, summary.to_owned())
}

/// A story's failure as the sandbox reported it, corrected by what the sandbox cannot know: who stopped or paused it.
pub(super) fn story_failure(attempt: &Attempt, reported: &Failure) -> Failure {
    let (cause, summary) = match reported.cause {
        // Its clock ran on while it was frozen.
        Cause::Timeout | Cause::Hung if attempt.was_paused => (Cause::KilledOutside, PAUSED_SUMMARY.to_owned()),
        Cause::Timeout | Cause::Hung if attempt.was_suspended() => {
            let summary = "its time ran out, some of it while the sandbox was suspended for the admin";
            (Cause::KilledOutside, summary.to_owned())
        }
        Cause::StoppedByUser if attempt.end_reason != Some(EndReason::SwarmStopped) => {
            end_reason_failure(attempt, Reported::Story).unwrap_or_else(|| external_stop_failure(attempt))
        }
        _ => return reported.clone(),
    };
    let evidence = Evidence { summary, ..reported.evidence.clone() };
    Failure { cause, evidence, salvage: reported.salvage.clone() }
}

pub(super) fn error_record_failure(code: &str, message: &str) -> Failure {
    let cause = match code {
        "CONTAINER_OOM" => Cause::Oom,
        "CONTAINER_TIMEOUT" => Cause::Timeout,
        "GIT_CLONE_FAILED" => Cause::CloneFailed,
        "GIT_CHECKOUT_FAILED" => Cause::CheckoutFailed,
        "TASK_FILE_NOT_FOUND" => Cause::TaskFileNotFound,
        "TASK_FILE_INVALID" => Cause::TaskFileInvalid,
        "AGENT_CRASH" => Cause::AgentFailed,
        "ACP_CONNECTION_LOST" => Cause::ConnectionLost,
        _ => Cause::ShimCrash,
    };
    Failure::new(cause, format!("{code}: {}", truncate_chars(message, MAX_SUMMARY_CHARS)))
}

/// Whether another attempt could end differently.
pub(super) fn is_retryable(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::Conflict
            | Cause::AbortedByAdmin
            | Cause::DependencyFailed
            | Cause::TaskFileInvalid
            | Cause::DispatchRefused
    )
}

/// What the next prompt says of this failure: the summary and the end of the output.
pub(super) fn previous_failure_text(failure: &Failure) -> String {
    let mut text = truncate_chars(&failure.evidence.summary, MAX_SUMMARY_CHARS);
    if failure.evidence.tail.is_empty() {
        return text;
    }
    let tail = failure.evidence.tail.join("\n");
    let room = MAX_PREVIOUS_FAILURE_CHARS - text.chars().count() - "\n...\n".len();
    let length = tail.chars().count();
    if length <= room {
        text.push('\n');
        text.push_str(&tail);
    } else {
        text.push_str("\n...\n");
        text.extend(tail.chars().skip(length - room));
    }
    text
}

pub(super) fn truncate_chars(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
