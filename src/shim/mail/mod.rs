//! `acp-shim mail`: an agent's way to the mailbox that its swarm has.
//!
//! Exit codes: 0 done; 1 it failed; 2 wrong usage, or no mailbox here; 3 whoever is waited for is gone and has said all; 4 the
//! time to wait is over. Called by [`main`](super::main). Must not: write in anything but the agent's own outbox, its private
//! folder and `shared/`.

mod args;
mod shared_state;
mod messages;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::ids::AgentId;
use crate::protocol::mailbox::agent_mailbox::AgentMailbox;
use crate::protocol::mailbox::parts::DraftError;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{Mailbox, MailboxError};
use args::ParsedArgs;

/// The variable that says where the mailbox is.
pub const MAILBOX_VARIABLE: &str = "LONGSHORE_MAILBOX";
/// The variable that says what the agent is called there.
pub const AGENT_VARIABLE: &str = "LONGSHORE_AGENT";
/// The variable that is there where the agent has other stories after this one.
pub const MORE_STORIES_VARIABLE: &str = "LONGSHORE_MORE_STORIES";

/// What the command has of the world.
pub struct MailEnvironment<'a> {
    /// Where the mailbox is.
    pub mailbox: Option<PathBuf>,
    /// What the agent is called.
    pub agent: Option<OsString>,
    /// Whether it has other stories after this one.
    pub has_more_stories: bool,
    /// The shim's socket.
    pub socket: Option<OsString>,
    /// Standard input.
    pub input: &'a mut dyn Read,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// It worked.
const EXIT_OK: u8 = 0;
/// It failed.
const EXIT_FAILED: u8 = 1;
/// It cannot be meant like this.
const EXIT_USAGE: u8 = 2;
/// Nothing more is to be expected.
const EXIT_GONE: u8 = 3;
/// The time is over.
const EXIT_TIMEOUT: u8 = 4;

/// Why a command ends early.
struct MailError {
    message: String,
    exit_code: u8,
}

impl MailError {
    fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: EXIT_USAGE }
    }
}

impl From<MailboxError> for MailError {
    fn from(error: MailboxError) -> Self {
        let code = if matches!(error, MailboxError::Draft(DraftError::Empty)) { EXIT_USAGE } else { EXIT_FAILED };
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(why) = cause {
            message.push_str(&format!(": {why}"));
            cause = why.source();
        }
        Self { message, exit_code: code }
    }
}

impl From<std::io::Error> for MailError {
    fn from(error: std::io::Error) -> Self {
        Self { message: format!("cannot read or write: {error}"), exit_code: EXIT_FAILED }
    }
}

const HELP: &str = "\
usage: acp-shim mail COMMAND

send [TEXT]              send a message; without TEXT and --subject, or with -, the body is read from standard input
  --to ID                whom it is for; '*': everybody [default: the sender of --re; everybody for DONE]
  --re ID/NNN            the message that it answers, or is about
  --type TYPE            REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR, DONE [default: RESPONSE with --re, else REQUEST]
  --subject TEXT         what it is about [default: the body's first line]
  --context TEXT, --expect TEXT, --priority low|normal|high|critical, --ttl MINUTES
read                     print the messages that are new to you; they count as read
read ID/NNN...           print these, read or not
read --all               print all that were ever sent to you
wait                     print what is new, and if nothing is, wait for it; prints what comes, and ends
  --from ID              ... when something of this agent came
  --re ID/NNN            ... when something about this message came
  --timeout SECONDS      ... in any case [default: 100; 0: never]
state                    print shared/STATE.md, and who waits for whose answer
  --set [TEXT]           replace it, under a claim; without TEXT, or with -, from standard input
  --append TEXT          add a line to it, under a claim
  --file NAME            another file of shared/
claim [NAME]             claim shared/NAME [default: STATE.md], for 2 minutes; then write it, and release it
  --note TEXT, --timeout SECONDS [default: 30]
release [NAME]           take the claim back
roster                   who takes part, and who is gone

--json with any of them: for programs, one JSON object a line.
Exit codes: 0 done; 1 it failed; 2 wrong usage, or no mailbox; 3 whoever is waited for is gone and has said all; 4 timeout.
";

/// Runs a command with the arguments behind `mail`.
pub fn run(args: &[String], mut around: MailEnvironment<'_>) -> u8 {
    run_command(args, &mut around).unwrap_or_else(|fault| {
        let _ = writeln!(around.err, "acp-shim mail: {}", show::strip_control_chars(&fault.message));
        fault.exit_code
    })
}

fn run_command(args: &[String], around: &mut MailEnvironment<'_>) -> Result<u8, MailError> {
    let Some((command, rest)) = args.split_first() else {
        around.err.write_all(HELP.as_bytes())?;
        return Ok(EXIT_USAGE);
    };
    if ["--help", "-h", "help"].contains(&command.as_str()) || rest.first().is_some_and(|arg| arg == "--help") {
        around.out.write_all(HELP.as_bytes())?;
        return Ok(EXIT_OK);
    }
    let Some((_, flags)) = args::COMMANDS.iter().find(|(name, _)| name == command) else {
        let names: Vec<&str> = args::COMMANDS.iter().map(|(name, _)| *name).collect();
        return Err(MailError::usage(format!("no such command: `{command}`; there are {}", names.join(", "))));
    };
    let given = ParsedArgs::parse(rest, flags)?;
    let mut at = MailCommand { reader: open_reader(around)?, env: around };
    match command.as_str() {
        "send" => at.send(&given),
        "read" => at.read(&given),
        "wait" => at.wait(&given),
        "state" => at.state(&given),
        "claim" => at.claim(&given),
        "release" => at.release(&given),
        _ => at.roster(&given),
    }
}

/// An agent at its mailbox.
struct MailCommand<'a, 'b> {
    reader: AgentMailbox,
    env: &'a mut MailEnvironment<'b>,
}

impl MailCommand<'_, '_> {
    fn print(&mut self, text: &str) -> Result<(), MailError> {
        self.env.out.write_all(text.as_bytes())?;
        Ok(self.env.out.flush()?)
    }

    fn print_json(&mut self, value: &serde_json::Value) -> Result<(), MailError> {
        self.print(&format!("{value}\n"))
    }

    /// Something beside the result.
    fn print_note(&mut self, text: &str) {
        let _ = writeln!(self.env.err, "acp-shim mail: {text}");
    }
}

fn open_reader(around: &MailEnvironment<'_>) -> Result<AgentMailbox, MailError> {
    let missing = |name: &str| MailError::usage(format!("there is no mailbox here: `{name}` is not set"));
    let root = around.mailbox.as_ref().ok_or_else(|| missing(MAILBOX_VARIABLE))?;
    let agent = around.agent.as_ref().ok_or_else(|| missing(AGENT_VARIABLE))?;
    let me: AgentId = agent
        .to_string_lossy()
        .parse()
        .map_err(|error: crate::ids::IdError| MailError::usage(format!("`{AGENT_VARIABLE}`: {error}")))?;
    let mailbox = Mailbox::open(root)?;
    // In a sandbox beside the socket, where nobody else comes; otherwise where no reader looks.
    let run = around.socket.as_deref().map(Path::new).and_then(Path::parent);
    let private = match run {
        Some(run) => run.join("mail"),
        None => root.join("agents").join(me.as_str()).join(".private"),
    };
    Ok(AgentMailbox::new(mailbox, me, &private))
}

#[cfg(test)]
mod tests;
