//! `longshore mailbox read`.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::args::MailboxReadArgs;
use super::location::MailboxLocation;
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::agent_mailbox::{AgentMailbox, MessageBatch};
use crate::protocol::mailbox::machine::DeliveredMessage;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::wait::{MessageFilter, MessageWaiter, WaitStep};

const REPLY_COMMAND: &str = "longshore mailbox send";

pub(super) async fn read(args: &MailboxReadArgs, here: &CommandContext) -> CommandResult {
    let location = MailboxLocation::resolve(&args.location, here).await?;
    // With --wait the directory may not exist yet. Otherwise its name is probably mistyped.
    if !args.wait {
        location.open_mailbox()?;
    }
    let json = args.location.json;
    if args.all || !args.messages.is_empty() {
        // Reading without marking as read is allowed for any agent.
        let agent_mailbox = location.open_as_participant(&args.participant, false)?;
        if !args.all {
            return print_selected(args, &agent_mailbox);
        }
        print_messages(&agent_mailbox.history(Timestamp::now())?, json)?;
        return Ok(ExitStatus::Success);
    }
    let agent_mailbox = location.open_as_sender(&args.participant, false)?;
    if args.wait {
        return wait_for_messages(args, &location, &agent_mailbox);
    }
    let batch = agent_mailbox.collect(Timestamp::now())?;
    if batch.messages.is_empty() {
        print_stderr("no new messages");
    }
    print_batch(&batch, json)?;
    batch.commit()?;
    Ok(ExitStatus::Success)
}

fn print_selected(args: &MailboxReadArgs, agent_mailbox: &AgentMailbox) -> CommandResult {
    let mut problems = Vec::new();
    for reference in &args.messages {
        match agent_mailbox.find(reference)? {
            Ok(message) => {
                let delivered = DeliveredMessage { last_seq: message.seq, message, late: false };
                print_messages(&[delivered], args.location.json)?;
            }
            Err(problem) => problems.push(CommandError::new(CommandErrorKind::Input, show::single_line(&problem))),
        }
    }
    CommandError::combine(problems)?;
    Ok(ExitStatus::Success)
}

fn wait_for_messages(
    args: &MailboxReadArgs,
    location: &MailboxLocation,
    agent_mailbox: &AgentMailbox,
) -> CommandResult {
    let filter = MessageFilter { from: args.from.clone(), re: args.re.clone() };
    let end = args.timeout.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds.into())));
    let mut waiter = MessageWaiter::new(agent_mailbox, filter, end);
    let reason = loop {
        match waiter.next(agent_mailbox)? {
            WaitStep::Batch(batch) => {
                print_batch(&batch, args.location.json)?;
                waiter.commit(*batch)?;
            }
            // Participants on the host who are not in the roster do not keep the wait alive.
            WaitStep::Idle if location.is_swarm_over() => {
                break "the swarm has ended: its agents send no more messages".to_owned();
            }
            WaitStep::Idle => {}
            WaitStep::Matched => return Ok(ExitStatus::Success),
            WaitStep::NoMoreMessages(reason) => break reason,
            WaitStep::TimedOut => break format!("no message within {} s", args.timeout.unwrap_or_default()),
        }
    };
    print_stderr(&reason);
    Ok(ExitStatus::Unsuccessful)
}

fn print_batch(batch: &MessageBatch, json: bool) -> Result<(), CommandError> {
    for warning in &batch.warnings {
        print_stderr(&show::render_warning(warning));
    }
    print_messages(&batch.messages, json)
}

fn print_messages(messages: &[DeliveredMessage], json: bool) -> Result<(), CommandError> {
    for delivered in messages {
        print_stdout(&show::format_delivered(delivered, REPLY_COMMAND, json))?;
    }
    Ok(())
}
