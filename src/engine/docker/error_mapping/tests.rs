//! Daemon answers and broken connections as error kinds.

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
    let context = CallContext { operation: "starting a container", subject: "abc" };
    let broken = [
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionAborted,
        ErrorKind::BrokenPipe,
        ErrorKind::UnexpectedEof,
        ErrorKind::NotConnected,
    ];
    for kind in broken {
        let error = from_bollard(Error::IOError { err: kind.into() }, context, "unix:///x");
        assert!(error.is_unreachable() && error.is_retryable(), "{kind}: {error:?}");
    }
    let error = from_bollard(Error::IOError { err: ErrorKind::ConnectionReset.into() }, context, "unix:///x");
    assert_eq!(error.source().unwrap().to_string(), "starting a container `abc`: connection reset");
    assert!(from_bollard(Error::SocketNotFoundError("/x".to_owned()), context, "unix:///x").is_unreachable());
    assert!(empty_answer(context, "unix:///x").is_unreachable());
    assert!(ping_timed_out("unix:///x", Duration::from_secs(5)).is_retryable());
}

#[test]
fn an_engine_response_is_never_unreachable() {
    // Its message may mention another connection.
    for status in [400, 404, 409, 500, 503] {
        assert!(!response_error(status, "dial unix containerd.sock: connection refused").is_unreachable(), "{status}");
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
