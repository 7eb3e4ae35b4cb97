//! `acp-shim mail state`, `claim`, `release` and `roster`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::ParsedArgs;
use super::command::MailCommand;
use super::error::{EXIT_FAILED, EXIT_OK, EXIT_TIMEOUT, MailError};
use crate::protocol::mailbox::claim::Claim;
use crate::protocol::mailbox::error::MailboxResult;
use crate::protocol::mailbox::layout::SharedName;
use crate::protocol::mailbox::participant::participants;
use crate::protocol::mailbox::pending::pending_replies;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{ClaimOutcome, Mailbox};
use crate::protocol::mailbox::text::render_time;

const DEFAULT_CLAIM_TIMEOUT_SECS: u64 = 30;

impl MailCommand<'_, '_> {
    pub(super) fn state(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        let name = args.parse_value("--file")?.unwrap_or_else(SharedName::state);
        if args.has("--set") && args.has("--append") {
            return Err(MailError::usage("use `--set` or `--append`, not both"));
        }
        if args.has("--set") {
            let text = self.text_argument(&args.positional, false)?;
            let text = text.trim_end().to_owned() + "\n";
            return self.write_under_claim(&name, |mailbox, name| mailbox.write_shared(name, &text));
        }
        args.reject_positional_from(0)?;
        if let Some(line) = args.value("--append") {
            let line = line.trim().to_owned();
            return self.write_under_claim(&name, |mailbox, name| {
                let before = mailbox.read_shared(name)?.unwrap_or_default();
                let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
                mailbox.write_shared(name, &format!("{before}{gap}{line}\n"))
            });
        }
        let mailbox = self.agent_mailbox.mailbox();
        let text = mailbox.read_shared(&name)?;
        let now = Timestamp::now();
        let pending = pending_replies(&mailbox.read_all()?.0, &mailbox.roster()?.entries(), now);
        if args.has("--json") {
            let pending: Vec<Value> = pending.iter().map(show::pending_json).collect();
            self.print_json(&json!({ "file": name.as_str(), "text": text, "pending": pending }))?;
            return Ok(EXIT_OK);
        }
        match &text {
            Some(text) => self.print(&show::strip_control_chars(text))?,
            None => self.print_note(&format!("there is no shared/{name} yet")),
        }
        for pending in &pending {
            self.print(&format!("({})\n", show::render_pending(pending, now)))?;
        }
        Ok(EXIT_OK)
    }

    fn write_under_claim(
        &mut self,
        name: &SharedName,
        change: impl FnOnce(&Mailbox, &SharedName) -> MailboxResult<()>,
    ) -> Result<u8, MailError> {
        let claim = self.new_claim(name.clone(), "");
        let wait = Duration::from_secs(DEFAULT_CLAIM_TIMEOUT_SECS);
        match self.agent_mailbox.mailbox().with_claim(&claim, wait, |mailbox| change(mailbox, name))? {
            Ok(()) => Ok(EXIT_OK),
            Err(agent) => Err(MailError {
                message: format!("timed out: {agent} holds the claim on {name}"),
                exit_code: EXIT_TIMEOUT,
            }),
        }
    }

    fn new_claim(&self, target: SharedName, note: &str) -> Claim {
        Claim { agent: self.agent_mailbox.me().clone(), at: Timestamp::now(), target, note: note.to_owned() }
    }

    pub(super) fn claim(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        args.reject_positional_from(1)?;
        let name = args.parse_positional(0)?.unwrap_or_else(SharedName::state);
        let seconds = args.parse_number("--timeout", 0)?.map_or(DEFAULT_CLAIM_TIMEOUT_SECS, u64::from);
        let claim = self.new_claim(name.clone(), args.value("--note").unwrap_or_default());
        let claimed = self.agent_mailbox.mailbox().claim_with_timeout(&claim, Duration::from_secs(seconds))?;
        if let ClaimOutcome::HeldBy(agent, until) = claimed {
            if args.has("--json") {
                self.print_json(&json!({ "claimed": null, "taken_by": agent, "until": until.to_string() }))?;
            }
            self.print_note(&format!("{agent} has claimed {name}, until {} at most", render_time(until)));
            return Ok(EXIT_TIMEOUT);
        }
        if args.has("--json") {
            self.print_json(&json!({ "claimed": name.as_str() }))?;
        } else {
            self.print(&format!(
                "shared/{name} is yours for 2 minutes; after writing it, run `acp-shim mail release {name}`\n"
            ))?;
        }
        Ok(EXIT_OK)
    }

    pub(super) fn release(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        args.reject_positional_from(1)?;
        let name = args.parse_positional(0)?.unwrap_or_else(SharedName::state);
        let released = self.agent_mailbox.mailbox().release(self.agent_mailbox.me(), &name)?;
        if args.has("--json") {
            self.print_json(&json!({ "released": released }))?;
        }
        if !released {
            self.print_note(&format!("you have no claim on {name}"));
            return Ok(EXIT_FAILED);
        }
        Ok(EXIT_OK)
    }

    pub(super) fn roster(&mut self, args: &ParsedArgs) -> Result<u8, MailError> {
        args.reject_positional_from(0)?;
        let mailbox = self.agent_mailbox.mailbox();
        let (messages, invalid) = mailbox.read_all()?;
        let participants = participants(mailbox.roster()?.entries(), &mailbox.agents()?, &messages);
        for file in &invalid {
            self.print_note(&show::render_invalid_file(file));
        }
        self.print(&show::format_participants(&participants, args.has("--json")))?;
        Ok(EXIT_OK)
    }
}
