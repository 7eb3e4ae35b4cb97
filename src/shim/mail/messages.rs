//! `acp-shim mail send`, `read` and `wait`.

use std::io::Read;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;

use super::args::ParsedArgs;
use super::{EXIT_FAILED, EXIT_GONE, EXIT_OK, EXIT_TIMEOUT, MailCommand, MailError};
use crate::protocol::mailbox::agent_mailbox::MessageBatch;
use crate::protocol::mailbox::machine::DeliveredMessage;
use crate::protocol::mailbox::message::{
    MAX_BODY_BYTES, MailboxDraft, MailboxMessageType, MessageContent, MessageRef, Priority, resolve_address,
};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::wait::{MessageFilter, MessageWaiter, WaitStep};
use crate::shim::socket_client;

/// How the shown messages say that they can be answered.
const REPLY_COMMAND: &str = "acp-shim mail send";
/// How long is waited where nobody says: shorter than what harnesses of agents give a command.
const DEFAULT_WAIT_TIMEOUT_SECS: u64 = 100;
/// How often the shim is told that one waits.
const WAIT_REPORT_INTERVAL: Duration = Duration::from_secs(5);
impl MailCommand<'_, '_> {
    pub(super) fn send(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        let re: Option<MessageRef> = given.parse_value("--re")?;
        let (to, mut kind) =
            resolve_address(self.reader.me(), given.parse_value("--to")?, given.parse_value("--type")?, re.as_ref())
                .ok_or_else(|| MailError::usage("say whom it is for: `--to ID`, or `--to '*'` for everybody"))?;
        if kind == MailboxMessageType::Done && self.env.has_more_stories {
            // Who is done counts as gone, and nobody waits for it any more.
            kind = MailboxMessageType::Status;
            self.print_note("sent as STATUS: you have other stories after this one");
        }
        let draft = MailboxDraft {
            to,
            message_type: kind,
            re,
            priority: given.parse_value("--priority")?.unwrap_or(Priority::Normal),
            ttl: given.parse_number("--ttl", 1)?,
            content: MessageContent {
                subject: given.value("--subject").unwrap_or_default().to_owned(),
                body: self.body_text(&given.positional, given.has("--subject"))?,
                context: given.value("--context").map(str::to_owned),
                expected_response: given.value("--expect").map(str::to_owned),
            },
        };
        for doubt in self.reader.draft_warnings(&draft)? {
            self.print_note(&doubt);
        }
        let sent = self.reader.send(&draft, Timestamp::now())?;
        let references: Vec<String> = sent.iter().map(|message| message.reference().to_string()).collect();
        if given.has("--json") {
            self.print_json(&json!({ "sent": references }))?;
        } else {
            self.print(&(references.join("\n") + "\n"))?;
        }
        Ok(EXIT_OK)
    }

    /// The words as text; standard input where there are none, or where they are `-`. `enough`: without words there is none.
    pub(super) fn body_text(&mut self, words: &[String], enough: bool) -> Result<String, MailError> {
        match words {
            [] if enough => Ok(String::new()),
            [] => self.read_input(),
            [dash] if dash == "-" => self.read_input(),
            words => Ok(words.join(" ")),
        }
    }

    fn read_input(&mut self) -> Result<String, MailError> {
        let mut bytes = Vec::new();
        // More than any text may have: what uses it says so.
        self.env.input.take(4 * MAX_BODY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn read(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        let json = given.has("--json");
        if given.has("--all") {
            given.reject_positional_from(0)?;
            let again = self.reader.history(Timestamp::now())?;
            self.print_letters(&again, json)?;
            return Ok(EXIT_OK);
        }
        if given.positional.is_empty() {
            let batch = self.reader.collect(Timestamp::now())?;
            self.print_batch(&batch, json)?;
            if batch.messages.is_empty() {
                self.print_note("no new messages");
            }
            batch.commit()?;
            return Ok(EXIT_OK);
        }
        let mut code = EXIT_OK;
        for at in 0..given.positional.len() {
            let Some(reference) = given.parse_positional::<MessageRef>(at)? else { break };
            match self.reader.find(&reference)? {
                Ok(message) => {
                    let letter = DeliveredMessage { last_seq: message.seq, message, late: false };
                    self.print_letters(&[letter], json)?;
                }
                Err(why) => {
                    self.print_note(&why);
                    code = EXIT_FAILED;
                }
            }
        }
        Ok(code)
    }

    pub(super) fn wait(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        given.reject_positional_from(0)?;
        let json = given.has("--json");
        let wanted = MessageFilter { from: given.parse_value("--from")?, re: given.parse_value("--re")? };
        let seconds = given.parse_number("--timeout", 0)?.map_or(DEFAULT_WAIT_TIMEOUT_SECS, u64::from);
        let end = if seconds > 0 { Instant::now().checked_add(Duration::from_secs(seconds)) } else { None };
        let socket = self.env.socket.clone();
        let mut told: Option<Instant> = None;
        let mut waiting = MessageWaiter::new(&self.reader, wanted, end);
        loop {
            let batch = match waiting.next(&self.reader)? {
                WaitStep::Batch(batch) => batch,
                WaitStep::Idle => {
                    if told.is_none_or(|told| told.elapsed() >= WAIT_REPORT_INTERVAL) {
                        socket_client::report_waiting(socket.as_deref());
                        told = Some(Instant::now());
                    }
                    continue;
                }
                WaitStep::Matched => return Ok(EXIT_OK),
                WaitStep::NoMoreMessages(why) => {
                    self.print_note(&why);
                    return Ok(EXIT_GONE);
                }
                WaitStep::TimedOut => {
                    self.print_note(&format!("nothing came within {seconds} s"));
                    return Ok(EXIT_TIMEOUT);
                }
            };
            self.print_batch(&batch, json)?;
            waiting.commit(*batch)?;
        }
    }

    fn print_batch(&mut self, batch: &MessageBatch, json: bool) -> Result<(), MailError> {
        for warning in &batch.warnings {
            self.print_note(&show::render_warning(warning));
        }
        self.print_letters(&batch.messages, json)
    }

    fn print_letters(&mut self, letters: &[DeliveredMessage], json: bool) -> Result<(), MailError> {
        for letter in letters {
            if json {
                self.print_json(&show::delivered_json(letter))?;
            } else {
                self.print(&(show::render_delivered(letter, REPLY_COMMAND) + "\n"))?;
            }
        }
        Ok(())
    }
}
