//! `acp-shim serve`: a sandbox's main program. Task-request -> clone -> tasks file -> stories -> result and bundle -> `completion`.
//!
//! Called by [`main`](super::main) with the real streams, by tests with pipes. The bundle and `result.json` are on disk before
//! `completion` is sent. Must not: write anything but ACP to standard output.

use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::channel::{self, Channel, SandboxIdentity};
use super::command::OutputLog;
use super::fatal_error::FatalError;
use super::layout::Layout;
use super::setup::{SandboxEnvironment, SandboxSetup};
use crate::handoff::assignment::{ASSIGNMENT_VERSION, AssignmentFile};
use crate::ids::ContainerId;
use crate::protocol::acp::message::{Envelope, ErrorCode, TaskRequest, decode_task_request};
use crate::wire::WireLine;

/// How long the shim waits for the task-request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Everything that the shim touches, so that tests can replace it.
pub struct ShimEnvironment {
    pub input: Box<dyn Read + Send>,
    /// The protocol descriptor.
    pub output: Box<dyn Write + Send>,
    /// Standard error.
    pub log: Box<dyn Write + Send>,
    /// The container's host name, which is the beginning of its id.
    pub hostname: String,
    /// [`REQUEST_TIMEOUT`], except in tests.
    pub request_timeout: Duration,
    pub sandbox: SandboxEnvironment,
}

/// Serves one attempt from its task-request to its completion. Returns the exit code: 1 for a failed completion or none.
pub async fn serve(shim: ShimEnvironment, attempt_dir: &str) -> u8 {
    let ShimEnvironment { input, output, log, hostname, request_timeout, sandbox: environment } = shim;
    let output = Arc::new(Mutex::new(output));
    let log = OutputLog::new(log);
    let assignment = read_assignment(&environment.layout, attempt_dir);

    let mut lines = channel::read_lines(input);
    let first = tokio::select! {
        line = tokio::time::timeout(request_timeout, first_nonblank_line(&mut lines)) => line.ok(),
        () = environment.stop.cancelled() => None,
    };
    let lost = |message: String| FatalError::new(ErrorCode::ACP_CONNECTION_LOST, message);
    let request = match first {
        Some(Some(line)) => decode_request(line),
        Some(None) => Err(lost("the input ended before the task-request".into())),
        None if environment.stop.is_cancelled() => Err(lost("the sandbox was stopped before the task-request".into())),
        None => Err(lost(format!("no task-request came within {} s", request_timeout.as_secs()))),
    };
    // An error is reported under the ids from the best available source.
    let envelope = request.as_ref().ok().map(|(envelope, _)| envelope.clone());
    let swarm = assignment.as_ref().ok().map(|file| file.swarm_id).or(envelope.as_ref().map(|e| e.swarm_id));
    let container = match (hostname.parse::<ContainerId>().ok(), envelope) {
        // The envelope has the full id.
        (Some(own), Some(envelope)) if own.is_same_as(&envelope.container_id) => Some(envelope.container_id),
        (own, envelope) => own.or(envelope.map(|envelope| envelope.container_id)),
    };
    let (Some(swarm), Some(container)) = (swarm, container) else {
        let reason = assignment.err().or(request.err()).map(|fatal| fatal.message).unwrap_or_default();
        log.write_line(&format!("cannot determine the swarm and the container: {reason}"));
        return 1;
    };
    let channel = Channel::new(SandboxIdentity { swarm, container: container.clone() }, output);
    // The reader thread continues. What comes after the task-request, including the end of the input, is ignored.
    let started = request.and_then(|(envelope, request)| {
        let assignment = assignment?;
        check_request(&envelope, &request, &assignment, &container)?;
        Ok((assignment, request))
    });
    match started {
        Ok((assignment, request)) => {
            let setup = SandboxSetup { environment, attempt_dir: attempt_dir.to_owned(), channel, log };
            setup.run(assignment, request).await
        }
        Err(fatal) => fatal.send(&channel, &log),
    }
}

async fn first_nonblank_line(lines: &mut tokio::sync::mpsc::Receiver<WireLine>) -> Option<WireLine> {
    loop {
        match lines.recv().await? {
            WireLine::Good(line) if line.trim_ascii().is_empty() => {}
            line => return Some(line),
        }
    }
}

fn decode_request(line: WireLine) -> Result<(Envelope, TaskRequest), FatalError> {
    let invalid = |why: String| FatalError::new(ErrorCode::UNKNOWN_ERROR, format!("invalid task-request: {why}"));
    match line {
        WireLine::Good(line) => decode_task_request(&line).map_err(|error| invalid(error.to_string())),
        WireLine::Bad(bad) => Err(invalid(format!("a line of {} bytes that is no record", bad.length))),
    }
}

fn read_assignment(layout: &Layout, attempt_dir: &str) -> Result<AssignmentFile, FatalError> {
    let path = layout.assignment_file(attempt_dir);
    let failed = |why: &dyn Display| {
        FatalError::new(ErrorCode::UNKNOWN_ERROR, format!("cannot read `{}`: {why}", path.display()))
    };
    let bytes = fs::read(&path).map_err(|error| failed(&error))?;
    let file: AssignmentFile = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    if file.schema_version != ASSIGNMENT_VERSION {
        let version = file.schema_version;
        return Err(failed(&format!("unsupported version {version}, this shim reads {ASSIGNMENT_VERSION}")));
    }
    let reviewed = file.review.as_ref().map(|review| ("reviewed", &review.commit));
    let examined = reviewed.or(file.check.as_ref().map(|check| ("checked", &check.commit)));
    if let Some((what, commit)) = examined.filter(|(_, commit)| **commit != file.base) {
        let (commit, base) = (commit.short(), file.base.short());
        return Err(failed(&format!("{commit} is to be {what}, and the clone would be at {base}")));
    }
    Ok(file)
}

fn check_request(
    envelope: &Envelope,
    request: &TaskRequest,
    assignment: &AssignmentFile,
    container: &ContainerId,
) -> Result<(), FatalError> {
    let differs = |what: &str, found: &dyn Display, expected: &dyn Display| {
        let message = format!("the task-request is for the {what} `{found}`, the assignment for `{expected}`");
        Err(FatalError::new(ErrorCode::UNKNOWN_ERROR, message))
    };
    if envelope.swarm_id != assignment.swarm_id {
        return differs("swarm", &envelope.swarm_id, &assignment.swarm_id);
    }
    if !envelope.container_id.is_same_as(container) {
        return differs("container", &envelope.container_id, container);
    }
    if request.branch_name != assignment.branch {
        return differs("branch", &request.branch_name, &assignment.branch);
    }
    if request.task_file_path.as_str() != assignment.task_file_path {
        return differs("tasks file", &request.task_file_path, &assignment.task_file_path);
    }
    Ok(())
}
