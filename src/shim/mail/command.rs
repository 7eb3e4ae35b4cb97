//! The state of a running `acp-shim mail` command: its mailbox and its input and output.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::error::MailError;
use crate::ids::{AgentId, IdError};
use crate::protocol::mailbox::agent_mailbox::AgentMailbox;
use crate::protocol::mailbox::message::MAX_BODY_BYTES;
use crate::protocol::mailbox::store::Mailbox;

/// The directory of the mailbox.
pub const MAILBOX_VARIABLE: &str = "LONGSHORE_MAILBOX";
/// The agent's id in the mailbox.
pub const AGENT_VARIABLE: &str = "LONGSHORE_AGENT";

/// What a command gets from its process.
pub struct MailEnvironment<'a> {
    /// [`MAILBOX_VARIABLE`].
    pub mailbox: Option<PathBuf>,
    /// [`AGENT_VARIABLE`].
    pub agent: Option<OsString>,
    /// The agent has more stories after this one.
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

pub(super) struct MailCommand<'a, 'b> {
    pub(super) agent_mailbox: AgentMailbox,
    pub(super) env: &'a mut MailEnvironment<'b>,
}

impl<'a, 'b> MailCommand<'a, 'b> {
    pub(super) fn open(env: &'a mut MailEnvironment<'b>) -> Result<Self, MailError> {
        let missing = |name: &str| MailError::usage(format!("there is no mailbox here: `{name}` is not set"));
        let root = env.mailbox.as_ref().ok_or_else(|| missing(MAILBOX_VARIABLE))?;
        let agent = env.agent.as_ref().ok_or_else(|| missing(AGENT_VARIABLE))?;
        let invalid = |error: IdError| MailError::usage(format!("`{AGENT_VARIABLE}`: {error}"));
        let me: AgentId = agent.to_string_lossy().parse().map_err(invalid)?;
        let mailbox = Mailbox::open(root)?;
        // In a sandbox beside the socket, where only the agent has access; otherwise in a directory that readers ignore.
        let private_dir = match env.socket.as_deref().map(Path::new).and_then(Path::parent) {
            Some(run_dir) => run_dir.join("mail"),
            None => root.join("agents").join(me.as_str()).join(".private"),
        };
        Ok(Self { agent_mailbox: AgentMailbox::new(mailbox, me, &private_dir), env })
    }

    pub(super) fn print(&mut self, text: &str) -> Result<(), MailError> {
        self.env.out.write_all(text.as_bytes())?;
        Ok(self.env.out.flush()?)
    }

    pub(super) fn print_json(&mut self, value: &serde_json::Value) -> Result<(), MailError> {
        self.print(&format!("{value}\n"))
    }

    /// Prints a note to standard error.
    pub(super) fn print_note(&mut self, text: &str) {
        let _ = writeln!(self.env.err, "acp-shim mail: {text}");
    }

    /// The arguments as text; standard input if there are none or only `-`. `optional`: no arguments mean no text.
    pub(super) fn text_argument(&mut self, words: &[String], optional: bool) -> Result<String, MailError> {
        match words {
            [] if optional => Ok(String::new()),
            words if words.is_empty() || *words == ["-"] => {
                let mut bytes = Vec::new();
                // More than any text may have: its user reports that it is too long.
                (&mut self.env.input).take(4 * MAX_BODY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            words => Ok(words.join(" ")),
        }
    }
}
