//! `acp-shim mail state`, `claim`, `release` and `roster`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::ParsedArgs;
use super::{EXIT_FAILED, EXIT_OK, EXIT_TIMEOUT, MailCommand, MailError};
use crate::protocol::mailbox::agent_mailbox::read_all_messages;
use crate::protocol::mailbox::claim::Claim;
use crate::protocol::mailbox::pending::pending_replies;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{ClaimOutcome, Mailbox, MailboxResult, SharedName};
use crate::protocol::mailbox::text::render_time;

/// How long a claim is tried for where nobody says.
const DEFAULT_CLAIM_TIMEOUT_SECS: u64 = 30;

impl MailCommand<'_, '_> {
    pub(super) fn state(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        let name = given.parse_value("--file")?.unwrap_or_else(SharedName::state);
        if given.has("--set") && given.has("--append") {
            return Err(MailError::usage("`--set` or `--append`, not both"));
        }
        if given.has("--set") {
            let text = self.body_text(&given.positional, false)?;
            let text = text.trim_end().to_owned() + "\n";
            return self.write_under_claim(&name, |mailbox, name| mailbox.write_shared(name, &text));
        }
        given.reject_positional_from(0)?;
        if let Some(line) = given.value("--append") {
            let line = line.trim().to_owned();
            return self.write_under_claim(&name, |mailbox, name| {
                let before = mailbox.read_shared(name)?.unwrap_or_default();
                let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
                mailbox.write_shared(name, &format!("{before}{gap}{line}\n"))
            });
        }
        let text = self.reader.mailbox().read_shared(&name)?;
        let (now, rows) = (Timestamp::now(), self.reader.mailbox().roster()?.entries());
        let open = pending_replies(&read_all_messages(self.reader.mailbox())?.0, &rows, now);
        if given.has("--json") {
            let open: Vec<Value> = open.iter().map(show::pending_json).collect();
            self.print_json(&json!({ "file": name.as_str(), "text": text, "pending": open }))?;
            return Ok(EXIT_OK);
        }
        match &text {
            Some(text) => self.print(&show::strip_control_chars(text))?,
            None => self.print_note(&format!("there is no shared/{name} yet")),
        }
        for open in &open {
            self.print(&format!("({})\n", show::render_pending(open, now)))?;
        }
        Ok(EXIT_OK)
    }

    fn write_under_claim(
        &mut self,
        name: &SharedName,
        change: impl FnOnce(&Mailbox, &SharedName) -> MailboxResult<()>,
    ) -> Result<u8, MailError> {
        let claim = self.new_claim(name.clone(), "");
        let done =
            self.reader
                .mailbox()
                .with_claim(&claim, Duration::from_secs(DEFAULT_CLAIM_TIMEOUT_SECS), |mailbox| change(mailbox, name))?;
        match done {
            Ok(()) => Ok(EXIT_OK),
            Err(agent) => {
                Err(MailError { message: format!("{agent} has claimed {name} for too long"), exit_code: EXIT_TIMEOUT })
            }
        }
    }

    fn new_claim(&self, target: SharedName, note: &str) -> Claim {
        Claim { agent: self.reader.me().clone(), at: Timestamp::now(), target, note: note.to_owned() }
    }

    pub(super) fn claim(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        given.reject_positional_from(1)?;
        let name = given.parse_positional(0)?.unwrap_or_else(SharedName::state);
        let seconds = given.parse_number("--timeout", 0)?.map_or(DEFAULT_CLAIM_TIMEOUT_SECS, u64::from);
        let claim = self.new_claim(name.clone(), given.value("--note").unwrap_or_default());
        let claimed = self.reader.mailbox().claim_with_timeout(&claim, Duration::from_secs(seconds))?;
        if let ClaimOutcome::HeldBy(agent, until) = claimed {
            if given.has("--json") {
                self.print_json(&json!({ "claimed": null, "taken_by": agent, "until": until.to_string() }))?;
            }
            self.print_note(&format!("{agent} has claimed {name}, until {} at most", render_time(until)));
            return Ok(EXIT_TIMEOUT);
        }
        if given.has("--json") {
            self.print_json(&json!({ "claimed": name.as_str() }))?;
        } else {
            self.print(&format!(
                "shared/{name} is yours for 2 minutes; `acp-shim mail release {name}` when it is written\n"
            ))?;
        }
        Ok(EXIT_OK)
    }

    pub(super) fn release(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        given.reject_positional_from(1)?;
        let name = given.parse_positional(0)?.unwrap_or_else(SharedName::state);
        let me = self.reader.me().clone();
        let released = self.reader.mailbox().release(&me, &name)?;
        if given.has("--json") {
            self.print_json(&json!({ "released": released }))?;
        }
        if !released {
            self.print_note(&format!("{me} has no claim on {name}"));
            return Ok(EXIT_FAILED);
        }
        Ok(EXIT_OK)
    }

    pub(super) fn roster(&mut self, given: &ParsedArgs) -> Result<u8, MailError> {
        given.reject_positional_from(0)?;
        let mailbox = self.reader.mailbox();
        let (messages, bad) = read_all_messages(mailbox)?;
        let participants = show::participants(mailbox.roster()?.entries(), &mailbox.agents()?, &messages);
        for bad in &bad {
            self.print_note(&show::render_invalid_file(bad));
        }
        if given.has("--json") {
            for participant in &participants {
                self.print_json(&show::participant_json(participant))?;
            }
        } else {
            self.print(&show::render_roster(&participants))?;
        }
        Ok(EXIT_OK)
    }
}
