//! `acp-shim task|progress|fail|remember`: what an agent calls inside a sandbox. Each asks the shim over its socket and ends.
//!
//! Exit codes: 0 done, 1 the shim refused or did not answer, 2 wrong usage or not inside a sandbox. Called by
//! [`main`](super::main). Must not: change anything by itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::agent_requests::{AgentRequest, AgentResponse, TaskCard};
use super::remember_args;

/// The most characters of text that are sent; the shim shows less.
const MAX_TEXT_CHARS: usize = 8_000;

/// The variable that says where the socket is.
pub const SOCKET_VARIABLE: &str = "LONGSHORE_SOCKET";

/// Runs a subcommand with the arguments behind its name: what to print on standard output, or what to say on standard
/// error and the exit code.
pub fn run(command: &str, args: &[String], socket: Option<&std::ffi::OsStr>) -> Result<String, (String, u8)> {
    let usage = |text: &str| Err((format!("usage: acp-shim {text}"), 2));
    let (ask, json) = match (command, args) {
        ("task", []) => (AgentRequest::Task, false),
        ("task", [flag]) if flag == "--json" => (AgentRequest::Task, true),
        ("task", _) => return usage("task [--json]"),
        ("progress", [_, ..]) => (AgentRequest::Progress { text: join_truncated(args) }, false),
        ("fail", [_, ..]) => (AgentRequest::Fail { text: join_truncated(args) }, false),
        ("remember", args) => match remember_args::parse(args) {
            Ok(ask) => (ask, false),
            Err(problem) => return Err((format!("{problem}\nusage: acp-shim {}", remember_args::USAGE), 2)),
        },
        (other, _) => return usage(&format!("{other} TEXT")),
    };
    let Some(socket) = socket else {
        return Err((format!("not inside a longshore sandbox: `{SOCKET_VARIABLE}` is not set"), 2));
    };
    let reply = send_request(socket, &ask)
        .map_err(|error| (format!("the shim does not answer at `{}`: {error}", socket.to_string_lossy()), 1))?;
    if let Some(error) = reply.error {
        return Err((error, 1));
    }
    match (reply.task, json) {
        (Some(card), true) => {
            serde_json::to_string_pretty(&card).map(|text| text + "\n").map_err(|error| (error.to_string(), 1))
        }
        (Some(card), false) => Ok(format_card(&card)),
        (None, _) => Ok(String::new()),
    }
}

/// The words as one text, cut so that it fits a line even where each character takes six bytes in JSON.
fn join_truncated(words: &[String]) -> String {
    words.join(" ").chars().take(MAX_TEXT_CHARS).collect()
}

/// Says that the agent waits for somebody, so that nobody takes it to hang. Whether anybody hears it does not matter.
pub(super) fn report_waiting(socket: Option<&std::ffi::OsStr>) {
    if let Some(socket) = socket {
        let _ = send_request(socket, &AgentRequest::Waiting);
    }
}

fn send_request(socket: &std::ffi::OsStr, ask: &AgentRequest) -> std::io::Result<AgentResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = serde_json::to_vec(ask).map_err(std::io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(16 * 1024 * 1024)).read_until(b'\n', &mut answer)?;
    serde_json::from_slice(&answer).map_err(std::io::Error::other)
}

fn format_card(card: &TaskCard) -> String {
    let mut text = format!("{}: {}\nbranch: {}\n", card.id, card.title, card.branch);
    if !card.description.is_empty() {
        text.push_str(&format!("\n{}\n", card.description));
    }
    if !card.acceptance_criteria.is_empty() {
        text.push_str("\nacceptance criteria:\n");
        for criterion in &card.acceptance_criteria {
            text.push_str(&format!("  {}: {}\n", criterion.id, criterion.text));
            if let Some(command) = &criterion.test_command {
                text.push_str(&format!("      checked by: {command}\n"));
            }
        }
    }
    if !card.notes.is_empty() {
        text.push_str(&format!("\nnotes:\n{}\n", card.notes));
    }
    if !card.verify.is_empty() {
        text.push_str("\nverified by:\n");
        for command in &card.verify {
            text.push_str(&format!("  {command}\n"));
        }
    }
    if let Some(failure) = &card.previous_failure {
        text.push_str(&format!("\nthe previous try failed:\n{failure}\n"));
    }
    text
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
