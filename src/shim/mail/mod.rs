//! `acp-shim mail`: gives an agent access to its swarm's mailbox.
//!
//! Exit codes: 0 success; 1 failure; 2 wrong usage, or no mailbox; 3 the awaited agent is gone and has said everything; 4 timeout.
//! Called by [`main`](super::main). Must not: write outside of the agent's own outbox, its private directory and `shared/`.

mod args;
mod command;
mod error;
mod messages;
mod shared_state;

use crate::protocol::mailbox::show;
use args::ParsedArgs;
use command::MailCommand;
pub use command::{AGENT_VARIABLE, MAILBOX_VARIABLE, MailEnvironment};
use error::{EXIT_OK, EXIT_USAGE, MailError};

/// Set if the agent has more stories after this one.
pub const MORE_STORIES_VARIABLE: &str = "LONGSHORE_MORE_STORIES";

const HELP: &str = "\
usage: acp-shim mail COMMAND

send [TEXT]              send a message; without TEXT and --subject, or with -, read the body from standard input
  --to ID                the recipient; '*' for everybody [default: the sender of --re; everybody for DONE]
  --re ID/NNN            the message to reply or refer to
  --type TYPE            REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR, DONE [default: RESPONSE with --re, else REQUEST]
  --subject TEXT         the subject [default: the first line of the body]
  --context TEXT, --expect TEXT, --priority low|normal|high|critical, --ttl MINUTES
read                     print your new messages and mark them as read
read ID/NNN...           print these messages
read --all               print all messages that were ever sent to you
wait                     print your new messages; if there are none, wait for some
  --from ID              wait for a message from this agent
  --re ID/NNN            wait for a message that refers to this one
  --timeout SECONDS      stop waiting after this time [default: 100; 0: never]
state                    print shared/STATE.md and the pending replies
  --set [TEXT]           replace the file under a claim; without TEXT, or with -, from standard input
  --append TEXT          add a line to the file under a claim
  --file NAME            use another file of shared/
claim [NAME]             claim shared/NAME [default: STATE.md] for 2 minutes, to write it and release it
  --note TEXT, --timeout SECONDS [default: 30]
release [NAME]           withdraw the claim
roster                   print the participants and their statuses

--json with any command prints one JSON object a line.
Exit codes: 0 success; 1 failure; 2 wrong usage, or no mailbox; 3 the awaited agent is gone; 4 timeout.
";

/// Runs a command with the arguments that follow `mail`.
pub fn run(args: &[String], mut env: MailEnvironment<'_>) -> u8 {
    run_command(args, &mut env).unwrap_or_else(|error| {
        let _ = writeln!(env.err, "acp-shim mail: {}", show::strip_control_chars(&error.message));
        error.exit_code
    })
}

fn run_command(args: &[String], env: &mut MailEnvironment<'_>) -> Result<u8, MailError> {
    let Some((name, rest)) = args.split_first() else {
        env.err.write_all(HELP.as_bytes())?;
        return Ok(EXIT_USAGE);
    };
    if ["--help", "-h", "help"].contains(&name.as_str()) || rest.first().is_some_and(|arg| arg == "--help") {
        env.out.write_all(HELP.as_bytes())?;
        return Ok(EXIT_OK);
    }
    let Some((_, flags)) = args::COMMANDS.iter().find(|(known, _)| known == name) else {
        let names: Vec<&str> = args::COMMANDS.iter().map(|(name, _)| *name).collect();
        return Err(MailError::usage(format!("no such command: `{name}`; the commands are {}", names.join(", "))));
    };
    let args = ParsedArgs::parse(rest, flags)?;
    let mut command = MailCommand::open(env)?;
    match name.as_str() {
        "send" => command.send(&args),
        "read" => command.read(&args),
        "wait" => command.wait(&args),
        "state" => command.state(&args),
        "claim" => command.claim(&args),
        "release" => command.release(&args),
        _ => command.roster(&args),
    }
}

#[cfg(test)]
mod tests;
