//! `acp-shim task|progress|fail|remember`: the commands of an agent inside a sandbox. Each sends one request to the shim.
//!
//! Exit codes: 0 success, 1 the shim refused or did not respond, 2 wrong usage or not inside a sandbox. Called by
//! [`main`](super::main). Must not: change anything by itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::agent_requests::{AgentRequest, AgentResponse};
use super::remember_args;
use super::task_card::TaskCard;
use crate::json::text::take_chars;

/// The most characters of text that are sent, so that it fits a line even if JSON escapes each character as six bytes.
const MAX_TEXT_CHARS: usize = 8_000;

/// The variable with the socket's path.
pub const SOCKET_VARIABLE: &str = "LONGSHORE_SOCKET";

/// Runs a subcommand with its arguments. Returns the text for standard output, or an error message and the exit code.
pub fn run(command: &str, args: &[String], socket: Option<&std::ffi::OsStr>) -> Result<String, (String, u8)> {
    let usage = |text: &str| Err((format!("wrong arguments\n\nUsage: acp-shim {text}"), 2));
    let (request, json) = match (command, args) {
        ("task", []) => (AgentRequest::Task, false),
        ("task", [flag]) if flag == "--json" => (AgentRequest::Task, true),
        ("task", _) => return usage("task [--json]"),
        ("progress", [_, ..]) => (AgentRequest::Progress { text: join_truncated(args) }, false),
        ("fail", [_, ..]) => (AgentRequest::Fail { text: join_truncated(args) }, false),
        ("remember", args) => match remember_args::parse(args) {
            Ok(request) => (request, false),
            Err(problem) => return Err((format!("{problem}\n\nUsage: acp-shim {}", remember_args::USAGE), 2)),
        },
        (other, _) => return usage(&format!("{other} TEXT")),
    };
    match (request_task(socket, &request)?, json) {
        (Some(card), true) => {
            serde_json::to_string_pretty(&card).map(|text| text + "\n").map_err(|error| (error.to_string(), 1))
        }
        (Some(card), false) => Ok(format!("{}\nBranch: `{}`\n{}", card.heading(), card.branch, card.sections())),
        (None, _) => Ok(String::new()),
    }
}

/// Sends a request. Returns the story if it asks for it, or an error message and the exit code.
pub(super) fn request_task(
    socket: Option<&std::ffi::OsStr>,
    request: &AgentRequest,
) -> Result<Option<TaskCard>, (String, u8)> {
    let Some(socket) = socket else {
        return Err((format!("not inside a longshore sandbox: `{SOCKET_VARIABLE}` is not set"), 2));
    };
    let response = send_request(socket, request)
        .map_err(|error| (format!("no response from the shim at `{}`: {error}", socket.to_string_lossy()), 1))?;
    response.error.map_or(Ok(response.task), |error| Err((error, 1)))
}

fn join_truncated(words: &[String]) -> String {
    take_chars(&words.join(" "), MAX_TEXT_CHARS).to_owned()
}

/// Reports that the agent waits for a message, so that it does not count as hung. Errors are ignored.
pub(super) fn report_waiting(socket: Option<&std::ffi::OsStr>) {
    if let Some(socket) = socket {
        let _ = send_request(socket, &AgentRequest::Waiting);
    }
}

fn send_request(socket: &std::ffi::OsStr, request: &AgentRequest) -> std::io::Result<AgentResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = serde_json::to_vec(request).map_err(std::io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut response = Vec::new();
    BufReader::new(stream.take(16 * 1024 * 1024)).read_until(b'\n', &mut response)?;
    serde_json::from_slice(&response).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_socket_variable_is_a_usage_error() {
        let (message, code) = run("task", &[], None).expect_err("there is no socket");
        assert!(message.contains("LONGSHORE_SOCKET"), "{message}");
        assert_eq!(code, 2);
    }

    #[test]
    fn missing_text_exits_2_and_missing_shim_exits_1() {
        assert_eq!(run("progress", &[], None).expect_err("no text").1, 2);
        assert_eq!(run("fail", &[], None).expect_err("no text").1, 2);
        assert_eq!(run("task", &["--all".into()], None).expect_err("unknown flag").1, 2);
        let nowhere = std::ffi::OsStr::new("/nonexistent/shim.sock");
        assert_eq!(run("task", &[], Some(nowhere)).expect_err("no shim").1, 1);
    }
}
