//! `longshore mailbox send`.

use jiff::Timestamp;

use super::args::MailboxSendArgs;
use super::location::MailboxLocation;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::input::read_limited;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::message::{
    MAX_BODY_BYTES, MailboxDraft, MailboxMessageType, MessageContent, resolve_address,
};
use crate::protocol::mailbox::roster::AgentStatus;
use crate::protocol::mailbox::show;

pub(super) async fn send(args: &MailboxSendArgs, here: &CommandContext) -> CommandResult {
    let me = &args.participant.agent_id;
    let Some((to, message_type)) = resolve_address(me, args.to.clone(), args.message_type, args.re.as_ref()) else {
        let error = CommandError::input("the recipient is missing");
        return Err(error.with_hint("use `--to ID`, or `--to '*'` for everybody"));
    };
    let location = MailboxLocation::resolve(&args.location, here).await?;
    let content = MessageContent {
        subject: args.subject.clone().unwrap_or_default(),
        body: read_body(args)?,
        context: args.context.clone(),
        expected_response: args.expect.clone(),
    };
    let draft = MailboxDraft { to, message_type, re: args.re.clone(), priority: args.priority, ttl: args.ttl, content };
    let is_done = message_type == MailboxMessageType::Done;
    let agent_mailbox = location.open_as_sender(&args.participant, !is_done)?;
    if location.is_swarm_over() {
        print_stderr("the swarm has ended: its agents will not read this message");
    }
    if let Some(warning) = agent_mailbox.draft_warning(&draft)? {
        print_stderr(&warning);
    }
    let sent = agent_mailbox.send(&draft, Timestamp::now())?;
    if is_done && location.is_standalone() {
        // Shutdown: "Agent updates ROSTER.md status to `done`".
        agent_mailbox.mailbox().set_status(me, &AgentStatus::Done)?;
    }
    print_stdout(&show::format_sent(&sent, args.location.json))?;
    Ok(ExitStatus::Success)
}

fn read_body(args: &MailboxSendArgs) -> Result<String, CommandError> {
    let from_input = args.text == ["-"];
    if !args.text.is_empty() && !from_input {
        return Ok(args.text.join(" "));
    }
    if args.subject.is_some() && !from_input {
        return Ok(String::new());
    }
    let bytes = read_limited("-", 4 * MAX_BODY_BYTES)
        .map_err(|error| CommandError::machinery("cannot read standard input").with_cause(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
