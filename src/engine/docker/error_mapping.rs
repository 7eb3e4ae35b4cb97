//! bollard's errors in the kinds of [`EngineError`]. Called by all of `docker/`.
//!
//! | what is seen | kind |
//! |---|---|
//! | the connection is not made | `Unreachable`; `PermissionDenied` where the system says so |
//! | it breaks before the answer is whole ([`BROKEN_CONNECTION_PHRASES`]) | `Unreachable`: what was asked may have been done |
//! | "no space left on device" anywhere in the words | `DiskFull` |
//! | words of a daemon that has too much to do ([`TRANSIENT_PHRASES`]), whatever the status | `Failed` |
//! | 404 | `NotFound` |
//! | other 4xx, and errors of a build | `Refused` |
//! | 5xx, an answer that cannot be read | `Failed` |

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use bollard::errors::Error;

use super::super::EngineError;
use crate::error_chain::error_chain;

/// What a call is about, for its error.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallContext<'a> {
    /// "starting a container".
    pub operation: &'static str,
    /// What it is done to.
    pub subject: &'a str,
}

/// Words of the daemon, lower-case, under which it says 4xx or an exit code of 126 or 127, and means "not now".
const TRANSIENT_PHRASES: [&str; 7] = [
    "resource busy",
    "resource temporarily unavailable",
    "text file busy",
    "interrupted system call",
    "context deadline exceeded",
    "ttrpc: closed",
    "transport is closing",
];

/// Words of the system and of hyper, lower-case, for a connection that is not there any more. hyper's errors come wrapped in
/// others in ways that hide their types.
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

/// The kind of an error.
pub(super) fn from_bollard(error: Error, about: CallContext<'_>, endpoint: &str) -> EngineError {
    let CallContext { operation, subject } = about;
    let words = error_chain(&error).to_lowercase();
    if words.contains("no space left on device") || words.contains("disk quota exceeded") {
        return EngineError::DiskFull { operation };
    }
    match error {
        Error::DockerResponseServerError { status_code, message } => from_status(status_code, message, about),
        Error::DockerStreamError { error } => EngineError::Refused { operation, status: 200, message: error },
        Error::SocketNotFoundError(_) => unreachable_at(endpoint, Box::new(error)),
        Error::HyperLegacyError { ref err } if err.is_connect() => match io_error_kind(err) {
            Some(ErrorKind::PermissionDenied) => EngineError::PermissionDenied { endpoint: endpoint.to_owned() },
            _ => unreachable_at(endpoint, Box::new(error)),
        },
        Error::UnsupportedURISchemeError { uri } => EngineError::Refused { operation, status: 400, message: uri },
        _ if BROKEN_CONNECTION_PHRASES.iter().any(|broken| words.contains(broken)) => {
            let subject = if subject.is_empty() { String::new() } else { format!(" `{subject}`") };
            unreachable_at(endpoint, format!("{operation}{subject}: {}", error_chain(&error)).into())
        }
        _ if subject.is_empty() => EngineError::Failed { operation, source: Box::new(error) },
        other => EngineError::Failed { operation, source: format!("`{subject}`: {}", error_chain(&other)).into() },
    }
}

/// The kind of an error of the first contact: whatever is not an answer of an engine means that there is none.
pub(super) fn from_connect_error(error: Error, endpoint: &str) -> EngineError {
    let about = CallContext { operation: "connecting to the engine", subject: "" };
    match error {
        Error::CertPathError { .. } | Error::CertParseError { .. } | Error::CertMultipleKeys { .. } => {
            EngineError::InvalidSettings { problem: error.to_string() }
        }
        Error::APIVersionParseError {} | Error::JsonDataError { .. } | Error::JsonSerdeError { .. } => {
            unreachable_at(endpoint, "what answers there is not a Docker engine".into())
        }
        other => match from_bollard(other, about, endpoint) {
            EngineError::Failed { source, .. } => unreachable_at(endpoint, source),
            EngineError::NotFound { .. } => {
                unreachable_at(endpoint, "what answers there is not a Docker engine".into())
            }
            kind => kind,
        },
    }
}

fn from_status(status: u16, message: String, about: CallContext<'_>) -> EngineError {
    let CallContext { operation, subject } = about;
    let words = message.to_lowercase();
    if status >= 500 || TRANSIENT_PHRASES.iter().any(|transient| words.contains(transient)) {
        return EngineError::Failed { operation, source: message.into() };
    }
    if status == 404 {
        // Creating and starting may miss something else than what they are about: a network, a volume.
        let itself = ["no such image", "no such container", "no such volume"].iter().any(|it| words.contains(it));
        let subject = if itself || message.is_empty() { subject.to_owned() } else { message };
        return EngineError::NotFound { operation, subject };
    }
    EngineError::Refused { operation, status, message }
}

/// The error of an answer that ended before it said anything, as a daemon that shuts down leaves it.
pub(super) fn empty_answer(about: CallContext<'_>, endpoint: &str) -> EngineError {
    let CallContext { operation, subject } = about;
    unreachable_at(endpoint, format!("{operation} `{subject}`: the answer was empty").into())
}

/// The error of one that did not answer a ping.
pub(super) fn ping_timed_out(endpoint: &str, after: Duration) -> EngineError {
    unreachable_at(endpoint, format!("no answer within {} s", after.as_secs()).into())
}

fn unreachable_at(endpoint: &str, source: Box<dyn StdError + Send + Sync>) -> EngineError {
    EngineError::Unreachable { endpoint: endpoint.to_owned(), source }
}

/// The system's word for it, wherever in the chain it stands.
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
mod tests {
    use super::*;

    fn response_error(status_code: u16, message: &str) -> EngineError {
        let error = Error::DockerResponseServerError { status_code, message: message.to_owned() };
        from_bollard(error, CallContext { operation: "starting a container", subject: "abc" }, "unix:///x")
    }

    #[test]
    fn statuses_map_to_error_kinds() {
        assert!(
            matches!(response_error(404, "No such container: abc"), EngineError::NotFound { subject, .. } if subject == "abc")
        );
        assert!(
            matches!(response_error(404, "network x not found"), EngineError::NotFound { subject, .. } if subject == "network x not found")
        );
        assert!(matches!(response_error(409, "name in use"), EngineError::Refused { status: 409, .. }));
        assert!(response_error(500, "OCI runtime create failed").is_retryable());
        assert!(!response_error(400, "exec: \"x\": executable file not found in $PATH: unknown").is_retryable());
        assert!(response_error(400, "mkdir /sys/fs/cgroup/x: device or resource busy: unknown").is_retryable());
        assert!(matches!(
            response_error(500, "write /var/lib/docker/x: no space left on device"),
            EngineError::DiskFull { .. }
        ));
    }

    #[test]
    fn a_broken_connection_is_unreachable() {
        let about = CallContext { operation: "starting a container", subject: "abc" };
        let broken = [
            ErrorKind::ConnectionReset,
            ErrorKind::ConnectionRefused,
            ErrorKind::ConnectionAborted,
            ErrorKind::BrokenPipe,
            ErrorKind::UnexpectedEof,
            ErrorKind::NotConnected,
        ];
        for kind in broken {
            let error = from_bollard(Error::IOError { err: kind.into() }, about, "unix:///x");
            assert!(error.is_unreachable() && error.is_retryable(), "{kind}: {error:?}");
        }
        let error = from_bollard(Error::IOError { err: ErrorKind::ConnectionReset.into() }, about, "unix:///x");
        assert_eq!(error.source().unwrap().to_string(), "starting a container `abc`: connection reset");
        assert!(from_bollard(Error::SocketNotFoundError("/x".to_owned()), about, "unix:///x").is_unreachable());
        assert!(empty_answer(about, "unix:///x").is_unreachable());
        assert!(ping_timed_out("unix:///x", Duration::from_secs(5)).is_retryable());
    }

    #[test]
    fn an_engine_response_is_never_unreachable() {
        // Its words may speak of other connections than ours.
        for status in [400, 404, 409, 500, 503] {
            assert!(
                !response_error(status, "dial unix containerd.sock: connection refused").is_unreachable(),
                "{status}"
            );
        }
        let invalid = Error::IOError { err: ErrorKind::InvalidData.into() };
        let invalid = from_bollard(invalid, CallContext { operation: "x", subject: "" }, "unix:///x");
        assert!(!invalid.is_unreachable() && invalid.is_retryable(), "{invalid:?}");
        let timed_out = EngineError::TimedOut { operation: "x", after: Duration::from_secs(1) };
        assert!(!timed_out.is_unreachable() && timed_out.is_retryable());
    }

    #[test]
    fn io_error_kind_is_found_in_the_source_chain() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(ErrorKind::PermissionDenied.into());
        assert_eq!(io_error_kind(&error), Some(ErrorKind::PermissionDenied));
        assert_eq!(error_chain(&error), "client error (Connect): permission denied");
    }
}
