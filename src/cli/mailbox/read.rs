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

/// How the shown messages say that they can be answered.
const REPLY_COMMAND: &str = "longshore mailbox send";

/// Carries it out.
pub(super) async fn read(args: &MailboxReadArgs, here: &CommandContext) -> CommandResult {
    let place = MailboxLocation::resolve(&args.location, here).await?;
    // Who waits may be the first of two; who only looks has mistyped the folder.
    if !args.wait {
        place.open_mailbox()?;
    }
    let json = args.location.json;
    if args.all || !args.messages.is_empty() {
        // Whoever only looks may look over anybody's shoulder.
        let desk = place.open_as_participant(&args.participant, false)?;
        if !args.all {
            return print_selected(args, &desk);
        }
        print_letters(&desk.history(Timestamp::now())?, json)?;
        return Ok(ExitStatus::Success);
    }
    let desk = place.open_as_sender(&args.participant, false)?;
    if args.wait {
        return wait_for_messages(args, &place, &desk);
    }
    let batch = desk.collect(Timestamp::now())?;
    if batch.messages.is_empty() {
        print_stderr("no new messages");
    }
    print_batch(&batch, json)?;
    batch.commit()?;
    Ok(ExitStatus::Success)
}

fn print_selected(args: &MailboxReadArgs, desk: &AgentMailbox) -> CommandResult {
    let mut problems = Vec::new();
    for reference in &args.messages {
        match desk.find(reference)? {
            Ok(message) => {
                print_letters(&[DeliveredMessage { last_seq: message.seq, message, late: false }], args.location.json)?
            }
            Err(why) => problems.push(CommandError::new(CommandErrorKind::Input, show::single_line(&why))),
        }
    }
    CommandError::combine(problems)?;
    Ok(ExitStatus::Success)
}

fn wait_for_messages(args: &MailboxReadArgs, place: &MailboxLocation, desk: &AgentMailbox) -> CommandResult {
    let wanted = MessageFilter { from: args.from.clone(), re: args.re.clone() };
    let end = args.timeout.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds.into())));
    let mut waiting = MessageWaiter::new(desk, wanted, end);
    loop {
        match waiting.next(desk)? {
            WaitStep::Batch(batch) => {
                print_batch(&batch, args.location.json)?;
                waiting.commit(*batch)?;
            }
            // Whoever wrote since on the host, and is in no roster, is nobody to wait for.
            WaitStep::Idle if place.is_swarm_over() => {
                print_stderr("the swarm is over: nobody in it writes any more");
                return Ok(ExitStatus::Unsuccessful);
            }
            WaitStep::Idle => {}
            WaitStep::Matched => return Ok(ExitStatus::Success),
            WaitStep::NoMoreMessages(why) => {
                print_stderr(&why);
                return Ok(ExitStatus::Unsuccessful);
            }
            WaitStep::TimedOut => {
                print_stderr(&format!("nothing came within {} s", args.timeout.unwrap_or_default()));
                return Ok(ExitStatus::Unsuccessful);
            }
        }
    }
}

fn print_batch(batch: &MessageBatch, json: bool) -> Result<(), CommandError> {
    for warning in &batch.warnings {
        print_stderr(&show::render_warning(warning));
    }
    print_letters(&batch.messages, json)
}

fn print_letters(letters: &[DeliveredMessage], json: bool) -> Result<(), CommandError> {
    for letter in letters {
        print_stdout(&if json {
            format!("{}\n", show::delivered_json(letter))
        } else {
            show::render_delivered(letter, REPLY_COMMAND) + "\n"
        })?;
    }
    Ok(())
}
