//! Causes, from evidence. Pure functions: what a sandbox died of, and what the sandbox's own words mean.
//!
//! For a sandbox that ended without a completion, the first that holds:
//!
//! | evidence | cause |
//! |---|---|
//! | the machine ended it for its time, for bad records, for a stop | `timeout`, `protocol_violation`, `stopped_by_user` |
//! | the machine ended it because its shim said nothing | `connection_lost` |
//! | the engine's OOM flag | `oom` |
//! | an error record | its code's cause |
//! | the container is gone, or died of a signal or was told to stop, and the engine was away meanwhile | `engine_error` |
//! | the container is gone, or died of SIGKILL or SIGTERM, and not by us | `killed_outside` |
//! | nothing of these | `shim_crash` |

use super::AttemptState;
use crate::protocol::acp::message::CompletionStatus;
use crate::swarm::event::ContainerExit;
use crate::verdict::{Cause, Evidence, Failure};

/// The longest text about an earlier failure that goes into a prompt, in characters.
pub(super) const MAX_PREVIOUS_FAILURE_CHARS: usize = 4000;
/// Of that, the most that the summary takes.
const MAX_SUMMARY_CHARS: usize = 1000;

/// Why the machine ended a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// It took longer than all its stories may take.
    SandboxTimeout,
    /// It said `completion` and did not end.
    ExitOverdue,
    /// Too many bad records.
    BadRecords,
    /// The swarm was stopped.
    SwarmStopped,
    /// Its shim said nothing for too long.
    Silent,
    /// The admin ended it, to have it tried again.
    AdminRetry,
    /// The same, from the integration branch.
    AdminRollback,
    /// The admin gave it up.
    AdminAbort,
}

/// For a sandbox that the admin ended.
const ADMIN_RETRY_SUMMARY: &str = "the admin ended it, to have it tried again";
pub(super) const ADMIN_ABORT_SUMMARY: &str = "the admin gave it up";
/// For a sandbox that the engine's end took along.
const ENGINE_LOST_SUMMARY: &str = "the engine went away while the sandbox ran, and the sandbox ended with it";

/// What a sandbox died of that said no completion.
pub(super) fn exit_failure(attempt: &AttemptState, exit: &ContainerExit) -> Failure {
    let ours = attempt.end_reason.is_some();
    let signal = exit.code.and_then(|code| i32::try_from(code - 128).ok()).filter(|signal| (1..=64).contains(signal));
    let (cause, summary) = match attempt.end_reason {
        Some(EndReason::SandboxTimeout) if attempt.was_paused => paused_cause(),
        Some(EndReason::SandboxTimeout) => {
            (Cause::Timeout, "the sandbox did not end within the time of its stories and was ended".to_owned())
        }
        Some(EndReason::BadRecords) => (
            Cause::ProtocolViolation,
            format!("the sandbox sent {} records that break the protocol and was ended", attempt.view.bad_records),
        ),
        Some(EndReason::SwarmStopped) => (Cause::StoppedByUser, "the swarm was stopped".to_owned()),
        Some(EndReason::Silent) => (Cause::ConnectionLost, silence_summary(attempt)),
        Some(EndReason::AdminRetry | EndReason::AdminRollback) => {
            (Cause::StoppedByUser, ADMIN_RETRY_SUMMARY.to_owned())
        }
        Some(EndReason::AdminAbort) => (Cause::AbortedByAdmin, ADMIN_ABORT_SUMMARY.to_owned()),
        _ if exit.oom_killed => (Cause::Oom, "the kernel killed the sandbox for memory".to_owned()),
        _ => match &attempt.first_error {
            Some(reported) => (reported.cause, reported.evidence.summary.clone()),
            None if attempt.engine_lost && !ours && (exit.vanished || matches!(exit.code, Some(137 | 143 | 255))) => {
                (Cause::EngineError, ENGINE_LOST_SUMMARY.to_owned())
            }
            None if exit.vanished => (Cause::KilledOutside, "the container is gone, and not by longshore".to_owned()),
            None if !ours && matches!(signal, Some(9 | 15)) => (
                Cause::KilledOutside,
                format!("signal {} ended the sandbox, and not by longshore", signal.unwrap_or_default()),
            ),
            None => (
                Cause::ShimCrash,
                match exit.code {
                    Some(code) => format!("the sandbox ended with exit code {code} and no completion"),
                    None => "the sandbox ended with no completion".to_owned(),
                },
            ),
        },
    };
    let processes = attempt.processes.clone();
    let mut evidence = Evidence {
        exit_code: exit.code,
        signal,
        processes,
        tail: exit.stderr_tail.clone(),
        ..Evidence::from_summary(summary)
    };
    if !exit.error.is_empty() {
        evidence.summary = format!("{}: {}", evidence.summary, exit.error);
    }
    Failure { cause, evidence, salvage: None }
}

/// For a container of which the engine says nothing although it was killed.
pub(super) fn kill_timeout_failure(ending: Option<EndReason>) -> Failure {
    match ending {
        Some(EndReason::SwarmStopped) => Failure::new(
            Cause::StoppedByUser,
            "the swarm was stopped, and the engine did not say that the killed sandbox ended",
        ),
        _ => Failure::new(Cause::EngineError, "the engine did not end the sandbox within 30 s of its kill"),
    }
}

/// Why stories were not reached by a sandbox that said `completion` all the same; none where nothing explains it.
pub(super) fn unreached_failure(attempt: &AttemptState) -> Option<Failure> {
    match attempt.end_reason {
        Some(EndReason::SandboxTimeout) if attempt.was_paused => {
            let (cause, summary) = paused_cause();
            return Some(Failure::new(cause, summary));
        }
        Some(EndReason::SandboxTimeout) => {
            return Some(Failure::new(Cause::Timeout, "the sandbox did not end within the time of its stories"));
        }
        Some(EndReason::SwarmStopped) => return Some(Failure::new(Cause::StoppedByUser, "the swarm was stopped")),
        Some(EndReason::Silent) => return Some(Failure::new(Cause::ConnectionLost, silence_summary(attempt))),
        Some(EndReason::AdminRetry | EndReason::AdminRollback) => {
            return Some(Failure::new(Cause::StoppedByUser, ADMIN_RETRY_SUMMARY));
        }
        Some(EndReason::AdminAbort) => return Some(Failure::new(Cause::AbortedByAdmin, ADMIN_ABORT_SUMMARY)),
        Some(EndReason::BadRecords | EndReason::ExitOverdue) | None => {}
    }
    if let Some(reported) = &attempt.first_error {
        return Some(reported.clone());
    }
    (attempt.view.completion == Some(CompletionStatus::Stopped)).then(|| {
        let (cause, summary) = external_stop_cause(attempt);
        Failure::new(cause, summary)
    })
}

/// What a sandbox that was told to stop, and not by longshore, was stopped by.
fn external_stop_cause(attempt: &AttemptState) -> (Cause, &'static str) {
    if attempt.engine_lost {
        (Cause::EngineError, ENGINE_LOST_SUMMARY)
    } else {
        (Cause::KilledOutside, "the sandbox was told to stop, and not by longshore")
    }
}

/// For a sandbox whose time ran out while it could not run.
fn paused_cause() -> (Cause, String) {
    (Cause::KilledOutside, "the container was paused, and not by longshore, while its time ran out".to_owned())
}

/// The sentence for a sandbox that was ended for its silence.
fn silence_summary(attempt: &AttemptState) -> String {
    let paused = if attempt.view.paused { "; its container was paused, and not by longshore" } else { "" };
    format!("the sandbox said nothing for too long, and was ended{paused}")
}

/// A story's failure as the sandbox says it, made true by what the sandbox cannot know: who stopped it.
pub(super) fn story_failure(attempt: &AttemptState, said: &Failure) -> Failure {
    if matches!(said.cause, Cause::Timeout | Cause::Hung) && attempt.was_paused {
        // Its clock ran on while it was frozen.
        let (cause, summary) = paused_cause();
        let evidence = Evidence { summary, ..said.evidence.clone() };
        return Failure { cause, evidence, salvage: said.salvage.clone() };
    }
    if matches!(said.cause, Cause::Timeout | Cause::Hung) && attempt.was_suspended {
        let summary = "its time ran out, some of it while the sandbox was suspended for the admin".to_owned();
        let evidence = Evidence { summary, ..said.evidence.clone() };
        return Failure { cause: Cause::KilledOutside, evidence, salvage: said.salvage.clone() };
    }
    if said.cause != Cause::StoppedByUser {
        return said.clone();
    }
    let (cause, summary) = match attempt.end_reason {
        Some(EndReason::SwarmStopped) => return said.clone(),
        Some(EndReason::AdminRetry | EndReason::AdminRollback) => {
            (Cause::StoppedByUser, ADMIN_RETRY_SUMMARY.to_owned())
        }
        Some(EndReason::AdminAbort) => (Cause::AbortedByAdmin, ADMIN_ABORT_SUMMARY.to_owned()),
        Some(EndReason::SandboxTimeout) if attempt.was_paused => paused_cause(),
        Some(EndReason::SandboxTimeout) => (Cause::Timeout, "the story's time ran out".to_owned()),
        Some(EndReason::BadRecords) => (Cause::ProtocolViolation, "the sandbox sent too many bad records".to_owned()),
        Some(EndReason::Silent) => (Cause::ConnectionLost, silence_summary(attempt)),
        Some(EndReason::ExitOverdue) | None => {
            let (cause, summary) = external_stop_cause(attempt);
            (cause, summary.to_owned())
        }
    };
    let evidence = Evidence { summary, ..said.evidence.clone() };
    Failure { cause, evidence, salvage: said.salvage.clone() }
}

/// What an error record means.
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

/// Whether another try could end otherwise.
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

/// What the next try is told of this one: the summary and the end of the output, at most 4,000 characters.
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

/// The first `most` characters.
pub(super) fn truncate_chars(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
