//! `acp-shim mail send`, `read` and `wait`.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::args::ParsedArgs;
use super::command::MailCommand;
use super::error::{EXIT_FAILED, EXIT_GONE, EXIT_OK, EXIT_TIMEOUT, MailError};
use crate::protocol::mailbox::agent_mailbox::MessageBatch;
use crate::protocol::mailbox::machine::DeliveredMessage;
use crate::protocol::mailbox::message::{
    MailboxDraft, MailboxMessageType, MessageContent, MessageRef, Priority, resolve_address,
};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::wait::{MessageFilter, MessageWaiter, WaitStep};
use crate::shim::socket_client;

const REPLY_COMMAND: &str = "acp-shim mail send";
/// Shorter than the time limit that agents' harnesses give a command.
const DEFAULT_WAIT_TIMEOUT_SECS: u64 = 100;
/// How often to tell the shim that the agent is waiting.
const WAIT_REPORT_INTERVAL: Duration = Duration::from_secs(5);

impl MailCommand<'_, '_> {
    pub(super) fn send(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        let re: Option<MessageRef> = args.parse_value("--re")?;
        let (to, message_type) = (args.parse_value("--to")?, args.parse_value("--type")?);
        let (to, mut message_type) = resolve_address(self.agent_mailbox.me(), to, message_type, re.as_ref())
            .ok_or_else(|| MailError::usage("the recipient is missing: use `--to ID`, or `--to '*'` for everybody"))?;
        if message_type == MailboxMessageType::Done && self.env.has_more_stories {
            // After a DONE the agent would count as gone, and nobody would wait for it.
            message_type = MailboxMessageType::Status;
            self.print_note("sent as STATUS: you have more stories after this one");
        }
        let draft = MailboxDraft {
            to,
            message_type,
            re,
            priority: args.parse_value("--priority")?.unwrap_or(Priority::Normal),
            ttl: args.parse_number("--ttl", 1)?,
            content: MessageContent {
                subject: args.value("--subject").unwrap_or_default().to_owned(),
                body: self.text_argument(&args.positional, args.has("--subject"))?,
                context: args.value("--context").map(str::to_owned),
                expected_response: args.value("--expect").map(str::to_owned),
            },
        };
        if let Some(warning) = self.agent_mailbox.draft_warning(&draft)? {
            self.print_note(&warning);
        }
        let sent = self.agent_mailbox.send(&draft, Timestamp::now())?;
        self.print(&show::format_sent(&sent, args.has("--json")))?;
        Ok(EXIT_OK)
    }

    pub(super) fn read(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        let json = args.has("--json");
        if args.has("--all") {
            args.reject_positional_from(0)?;
            self.print_messages(&self.agent_mailbox.history(Timestamp::now())?, json)?;
            return Ok(EXIT_OK);
        }
        if args.positional.is_empty() {
            let batch = self.agent_mailbox.collect(Timestamp::now())?;
            self.print_batch(&batch, json)?;
            if batch.messages.is_empty() {
                self.print_note("no new messages");
            }
            batch.commit()?;
            return Ok(EXIT_OK);
        }
        let mut code = EXIT_OK;
        for at in 0..args.positional.len() {
            let Some(reference) = args.parse_positional::<MessageRef>(at)? else { break };
            match self.agent_mailbox.find(&reference)? {
                Ok(message) => {
                    let delivered = DeliveredMessage { last_seq: message.seq, message, late: false };
                    self.print_messages(&[delivered], json)?;
                }
                Err(problem) => {
                    self.print_note(&problem);
                    code = EXIT_FAILED;
                }
            }
        }
        Ok(code)
    }

    pub(super) fn wait(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        args.reject_positional_from(0)?;
        let json = args.has("--json");
        let filter = MessageFilter { from: args.parse_value("--from")?, re: args.parse_value("--re")? };
        let seconds = args.parse_number("--timeout", 0)?.map_or(DEFAULT_WAIT_TIMEOUT_SECS, u64::from);
        let end = if seconds > 0 { Instant::now().checked_add(Duration::from_secs(seconds)) } else { None };
        let socket = self.env.socket.clone();
        let mut reported: Option<Instant> = None;
        let mut waiter = MessageWaiter::new(&self.agent_mailbox, filter, end);
        loop {
            match waiter.next(&self.agent_mailbox)? {
                WaitStep::Batch(batch) => {
                    self.print_batch(&batch, json)?;
                    waiter.commit(*batch)?;
                }
                WaitStep::Idle => {
                    if reported.is_none_or(|reported| reported.elapsed() >= WAIT_REPORT_INTERVAL) {
                        socket_client::report_waiting(socket.as_deref());
                        reported = Some(Instant::now());
                    }
                }
                WaitStep::Matched => return Ok(EXIT_OK),
                WaitStep::NoMoreMessages(reason) => {
                    self.print_note(&reason);
                    return Ok(EXIT_GONE);
                }
                WaitStep::TimedOut => {
                    self.print_note(&format!("no message within {seconds} s"));
                    return Ok(EXIT_TIMEOUT);
                }
            }
        }
    }

    fn print_batch(&mut self, batch: &MessageBatch, json: bool) -> Result<(), MailError> {
        for warning in &batch.warnings {
            self.print_note(&show::render_warning(warning));
        }
        self.print_messages(&batch.messages, json)
    }

    fn print_messages(&mut self, messages: &[DeliveredMessage], json: bool) -> Result<(), MailError> {
        for delivered in messages {
            self.print(&show::format_delivered(delivered, REPLY_COMMAND, json))?;
        }
        Ok(())
    }
}
