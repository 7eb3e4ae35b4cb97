//! `acp-shim mail state`, `claim`, `release` and `roster`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::Given;
use super::{At, DONE, FAILED, Fault, TIMEOUT};
use crate::protocol::mailbox::claim::Claim;
use crate::protocol::mailbox::pending::pending;
use crate::protocol::mailbox::reader::everything;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{Claimed, Mailbox, MailboxResult, SharedName};
use crate::protocol::mailbox::text::render_time;

/// How long a claim is tried for where nobody says.
const PATIENCE: u64 = 30;

impl At<'_, '_> {
    pub(super) fn state(&mut self, given: &Given) -> Result<u8, Fault> {
        let name = given.parsed("--file")?.unwrap_or_else(SharedName::state);
        if given.has("--set") && given.has("--append") {
            return Err(Fault::usage("`--set` or `--append`, not both"));
        }
        if given.has("--set") {
            let text = self.text(&given.words, false)?;
            let text = text.trim_end().to_owned() + "\n";
            return self.write(&name, |mailbox, name| mailbox.write_shared(name, &text));
        }
        given.no_words_from(0)?;
        if let Some(line) = given.value("--append") {
            let line = line.trim().to_owned();
            return self.write(&name, |mailbox, name| {
                let before = mailbox.read_shared(name)?.unwrap_or_default();
                let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
                mailbox.write_shared(name, &format!("{before}{gap}{line}\n"))
            });
        }
        let text = self.desk.mailbox().read_shared(&name)?;
        let (now, rows) = (Timestamp::now(), self.desk.mailbox().roster()?.rows());
        let open = pending(&everything(self.desk.mailbox())?.0, &rows, now);
        if given.has("--json") {
            let open: Vec<Value> = open.iter().map(show::pending_json).collect();
            self.print_json(&json!({ "file": name.as_str(), "text": text, "pending": open }))?;
            return Ok(DONE);
        }
        match &text {
            Some(text) => self.print(&show::clean(text))?,
            None => self.remark(&format!("there is no shared/{name} yet")),
        }
        for open in &open {
            self.print(&format!("({})\n", show::pending(open, now)))?;
        }
        Ok(DONE)
    }

    fn write(
        &mut self,
        name: &SharedName,
        change: impl FnOnce(&Mailbox, &SharedName) -> MailboxResult<()>,
    ) -> Result<u8, Fault> {
        let claim = self.claim_on(name.clone(), "");
        let done =
            self.desk.mailbox().with_claim(&claim, Duration::from_secs(PATIENCE), |mailbox| change(mailbox, name))?;
        match done {
            Ok(()) => Ok(DONE),
            Err(agent) => Err(Fault { message: format!("{agent} has claimed {name} for too long"), code: TIMEOUT }),
        }
    }

    fn claim_on(&self, target: SharedName, note: &str) -> Claim {
        Claim { agent: self.desk.me().clone(), at: Timestamp::now(), target, note: note.to_owned() }
    }

    pub(super) fn claim(&mut self, given: &Given) -> Result<u8, Fault> {
        given.no_words_from(1)?;
        let name = given.word(0)?.unwrap_or_else(SharedName::state);
        let seconds = given.number("--timeout", 0)?.map_or(PATIENCE, u64::from);
        let claim = self.claim_on(name.clone(), given.value("--note").unwrap_or_default());
        let claimed = self.desk.mailbox().claim_within(&claim, Duration::from_secs(seconds))?;
        if let Claimed::TakenBy(agent, until) = claimed {
            if given.has("--json") {
                self.print_json(&json!({ "claimed": null, "taken_by": agent, "until": until.to_string() }))?;
            }
            self.remark(&format!("{agent} has claimed {name}, until {} at most", render_time(until)));
            return Ok(TIMEOUT);
        }
        if given.has("--json") {
            self.print_json(&json!({ "claimed": name.as_str() }))?;
        } else {
            self.print(&format!(
                "shared/{name} is yours for 2 minutes; `acp-shim mail release {name}` when it is written\n"
            ))?;
        }
        Ok(DONE)
    }

    pub(super) fn release(&mut self, given: &Given) -> Result<u8, Fault> {
        given.no_words_from(1)?;
        let name = given.word(0)?.unwrap_or_else(SharedName::state);
        let me = self.desk.me().clone();
        let released = self.desk.mailbox().release(&me, &name)?;
        if given.has("--json") {
            self.print_json(&json!({ "released": released }))?;
        }
        if !released {
            self.remark(&format!("{me} has no claim on {name}"));
            return Ok(FAILED);
        }
        Ok(DONE)
    }

    pub(super) fn roster(&mut self, given: &Given) -> Result<u8, Fault> {
        given.no_words_from(0)?;
        let mailbox = self.desk.mailbox();
        let (messages, bad) = everything(mailbox)?;
        let participants = show::participants(mailbox.roster()?.rows(), &mailbox.agents()?, &messages);
        for bad in &bad {
            self.remark(&show::bad_file(bad));
        }
        if given.has("--json") {
            for participant in &participants {
                self.print_json(&show::participant_json(participant))?;
            }
        } else {
            self.print(&show::roster(&participants))?;
        }
        Ok(DONE)
    }
}
