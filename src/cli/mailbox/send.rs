//! `longshore mailbox send`.

use jiff::Timestamp;
use serde_json::json;

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

/// Carries it out.
pub(super) async fn send(args: &MailboxSendArgs, here: &CommandContext) -> CommandResult {
    let me = &args.participant.agent_id;
    let Some((to, kind)) = resolve_address(me, args.to.clone(), args.kind, args.re.as_ref()) else {
        return Err(
            CommandError::input("nobody is named whom it is for").with_hint("`--to ID`, or `--to '*'` for everybody")
        );
    };
    let place = MailboxLocation::resolve(&args.location, here).await?;
    let content = MessageContent {
        subject: args.subject.clone().unwrap_or_default(),
        body: read_body(args)?,
        context: args.context.clone(),
        expected_response: args.expect.clone(),
    };
    let draft =
        MailboxDraft { to, message_type: kind, re: args.re.clone(), priority: args.priority, ttl: args.ttl, content };
    let desk = place.open_as_sender(&args.participant, kind != MailboxMessageType::Done)?;
    if place.is_swarm_over() {
        print_stderr("the swarm is over: nobody in it reads this any more");
    }
    for doubt in desk.draft_warnings(&draft)? {
        print_stderr(&doubt);
    }
    let sent = desk.send(&draft, Timestamp::now())?;
    if kind == MailboxMessageType::Done && place.is_standalone() {
        // Shutdown: "Agent updates ROSTER.md status to `done`".
        desk.mailbox().set_status(me, &AgentStatus::Done)?;
    }
    let references: Vec<String> = sent.iter().map(|message| message.reference().to_string()).collect();
    print_stdout(&if args.location.json {
        format!("{}\n", json!({ "sent": references }))
    } else {
        references.join("\n") + "\n"
    })?;
    Ok(ExitStatus::Success)
}

fn read_body(args: &MailboxSendArgs) -> Result<String, CommandError> {
    let asked = args.text == ["-"];
    if !args.text.is_empty() && !asked {
        return Ok(args.text.join(" "));
    }
    if args.subject.is_some() && !asked {
        return Ok(String::new());
    }
    let bytes = read_limited("-", 4 * MAX_BODY_BYTES)
        .map_err(|error| CommandError::machinery("cannot read standard input").with_cause(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
