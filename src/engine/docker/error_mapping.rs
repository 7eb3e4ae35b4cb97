//! Maps bollard's errors to the kinds of [`EngineError`]. Called by all of `docker/`.
//!
//! | error | kind |
//! |---|---|
//! | no connection | `Unreachable`; `PermissionDenied` if the system says so |
//! | the connection breaks before the answer is complete ([`BROKEN_CONNECTION_PHRASES`]) | `Unreachable`: the call may have taken effect |
//! | a message with "no space left on device" | `DiskFull` |
//! | a message of an overloaded daemon ([`TRANSIENT_PHRASES`]), with any status | `Failed` |
//! | 404 | `NotFound` |
//! | other 4xx, and errors of a build | `Refused` |
//! | 5xx, an answer that cannot be read | `Failed` |

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use bollard::errors::Error;

use crate::engine::EngineError;
use crate::error_chain::error_chain;

/// The operation of the first contact.
pub(super) const CONNECTING: &str = "connecting to the engine";

/// What a call does, for its error.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallContext<'a> {
    /// "starting a container".
    pub operation: &'static str,
    /// The container, image, ... that it acts on; empty if there is none.
    pub subject: &'a str,
}

/// Parts of the daemon's messages, in lower case, that mean "not now" although the status is 4xx.
const TRANSIENT_PHRASES: [&str; 7] = [
    "resource busy",
    "resource temporarily unavailable",
    "text file busy",
    "interrupted system call",
    "context deadline exceeded",
    "ttrpc: closed",
    "transport is closing",
];

/// Parts of messages of the system and of hyper, in lower case, about a broken connection. hyper's errors are wrapped in ways that
/// hide their types.
const BROKEN_CONNECTION_PHRASES: [&str; 11] = [
    "connection refused",
    "connection reset",
    "connection aborted",
    "connection closed",
    "broken pipe",
    "unexpected eof",
    "unexpected end of file",
    "end of file before message length reached",
    "error reading a body from connection",
    "operation was canceled",
    "not connected",
];

pub(super) fn from_bollard(error: Error, context: CallContext<'_>, endpoint: &str) -> EngineError {
    let CallContext { operation, subject } = context;
    let message = error_chain(&error).to_lowercase();
    if message.contains("no space left on device") || message.contains("disk quota exceeded") {
        return EngineError::DiskFull { operation };
    }
    match error {
        Error::DockerResponseServerError { status_code, message } => from_status(status_code, message, context),
        Error::DockerStreamError { error } => EngineError::Refused { operation, status: 200, message: error },
        Error::SocketNotFoundError(_) => unreachable_at(endpoint, Box::new(error)),
        Error::HyperLegacyError { ref err } if err.is_connect() => match io_error_kind(err) {
            Some(ErrorKind::PermissionDenied) => EngineError::PermissionDenied { endpoint: endpoint.to_owned() },
            _ => unreachable_at(endpoint, Box::new(error)),
        },
        Error::UnsupportedURISchemeError { uri } => EngineError::Refused { operation, status: 400, message: uri },
        _ if BROKEN_CONNECTION_PHRASES.iter().any(|phrase| message.contains(phrase)) => {
            let subject = if subject.is_empty() { String::new() } else { format!(" `{subject}`") };
            unreachable_at(endpoint, format!("{operation}{subject}: {}", error_chain(&error)).into())
        }
        _ if subject.is_empty() => EngineError::Failed { operation, source: Box::new(error) },
        other => EngineError::Failed { operation, source: format!("`{subject}`: {}", error_chain(&other)).into() },
    }
}

/// The error of the first contact: an answer that is not an engine's means that there is no engine.
pub(super) fn from_connect_error(error: Error, endpoint: &str) -> EngineError {
    let context = CallContext { operation: CONNECTING, subject: "" };
    let not_an_engine = "the server is not a Docker engine";
    match error {
        Error::CertPathError { .. } | Error::CertParseError { .. } | Error::CertMultipleKeys { .. } => {
            EngineError::InvalidSettings { problem: error.to_string() }
        }
        Error::APIVersionParseError {} | Error::JsonDataError { .. } | Error::JsonSerdeError { .. } => {
            unreachable_at(endpoint, not_an_engine.into())
        }
        other => match from_bollard(other, context, endpoint) {
            EngineError::Failed { source, .. } => unreachable_at(endpoint, source),
            EngineError::NotFound { .. } => unreachable_at(endpoint, not_an_engine.into()),
            kind => kind,
        },
    }
}

fn from_status(status: u16, message: String, context: CallContext<'_>) -> EngineError {
    let CallContext { operation, subject } = context;
    let lower = message.to_lowercase();
    if status >= 500 || TRANSIENT_PHRASES.iter().any(|phrase| lower.contains(phrase)) {
        return EngineError::Failed { operation, source: message.into() };
    }
    if status == 404 {
        // Creating and starting may miss something other than the subject: a network, a volume.
        let is_subject = ["no such image", "no such container", "no such volume"].iter().any(|it| lower.contains(it));
        let subject = if is_subject || message.is_empty() { subject.to_owned() } else { message };
        return EngineError::NotFound { operation, subject };
    }
    EngineError::Refused { operation, status, message }
}

/// The error of an empty answer, as from a daemon that shuts down.
pub(super) fn empty_answer(context: CallContext<'_>, endpoint: &str) -> EngineError {
    let CallContext { operation, subject } = context;
    unreachable_at(endpoint, format!("{operation} `{subject}`: the answer was empty").into())
}

pub(super) fn ping_timed_out(endpoint: &str, after: Duration) -> EngineError {
    unreachable_at(endpoint, format!("no answer within {} s", after.as_secs()).into())
}

fn unreachable_at(endpoint: &str, source: Box<dyn StdError + Send + Sync>) -> EngineError {
    EngineError::Unreachable { endpoint: endpoint.to_owned(), source }
}

/// The kind of the first I/O error in the chain.
fn io_error_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests;
