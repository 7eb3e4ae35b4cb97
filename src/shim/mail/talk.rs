//! `acp-shim mail send`, `read` and `wait`.

use std::io::Read;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;

use super::args::Given;
use super::{At, DONE, FAILED, Fault, GONE, TIMEOUT};
use crate::protocol::mailbox::machine::Letter;
use crate::protocol::mailbox::message::{Content, Draft, MAX_BODY, MessageRef, Priority, address};
use crate::protocol::mailbox::reader::Batch;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::wait::{Step, Waiting, Wanted};
use crate::shim::ask;

/// How the shown messages say that they can be answered.
const ANSWER: &str = "acp-shim mail send";
/// How long is waited where nobody says: shorter than what harnesses of agents give a command.
const PATIENCE: u64 = 100;
/// How often the shim is told that one waits.
const TELL: Duration = Duration::from_secs(5);
impl At<'_, '_> {
    pub(super) fn send(&mut self, given: &Given) -> Result<u8, Fault> {
        let re: Option<MessageRef> = given.parsed("--re")?;
        let (to, kind) = address(self.desk.me(), given.parsed("--to")?, given.parsed("--type")?, re.as_ref())
            .ok_or_else(|| Fault::usage("say whom it is for: `--to ID`, or `--to '*'` for everybody"))?;
        let draft = Draft {
            to,
            kind,
            re,
            priority: given.parsed("--priority")?.unwrap_or(Priority::Normal),
            ttl: given.number("--ttl", 1)?,
            content: Content {
                subject: given.value("--subject").unwrap_or_default().to_owned(),
                body: self.text(&given.words, given.has("--subject"))?,
                context: given.value("--context").map(str::to_owned),
                expected_response: given.value("--expect").map(str::to_owned),
            },
        };
        for doubt in self.desk.doubts(&draft)? {
            self.remark(&doubt);
        }
        let sent = self.desk.send(&draft, Timestamp::now())?;
        let references: Vec<String> = sent.iter().map(|message| message.reference().to_string()).collect();
        if given.has("--json") {
            self.print_json(&json!({ "sent": references }))?;
        } else {
            self.print(&(references.join("\n") + "\n"))?;
        }
        Ok(DONE)
    }

    /// The words as text; standard input where there are none, or where they are `-`. `enough`: without words there is none.
    pub(super) fn text(&mut self, words: &[String], enough: bool) -> Result<String, Fault> {
        match words {
            [] if enough => Ok(String::new()),
            [] => self.input(),
            [dash] if dash == "-" => self.input(),
            words => Ok(words.join(" ")),
        }
    }

    fn input(&mut self) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        // More than any text may have: what uses it says so.
        self.around.input.take(4 * MAX_BODY as u64 + 1).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn read(&mut self, given: &Given) -> Result<u8, Fault> {
        let json = given.has("--json");
        if given.has("--all") {
            given.no_words_from(0)?;
            let again = self.desk.again(Timestamp::now())?;
            self.print_letters(&again, json)?;
            return Ok(DONE);
        }
        if given.words.is_empty() {
            let batch = self.desk.collect(Timestamp::now())?;
            self.print_batch(&batch, json)?;
            if batch.letters.is_empty() {
                self.remark("no new messages");
            }
            batch.keep()?;
            return Ok(DONE);
        }
        let mut code = DONE;
        for at in 0..given.words.len() {
            let Some(reference) = given.word::<MessageRef>(at)? else { break };
            match self.desk.find(&reference)? {
                Ok(message) => {
                    let letter = Letter { last: message.seq, message, late: false };
                    self.print_letters(&[letter], json)?;
                }
                Err(why) => {
                    self.remark(&why);
                    code = FAILED;
                }
            }
        }
        Ok(code)
    }

    pub(super) fn wait(&mut self, given: &Given) -> Result<u8, Fault> {
        given.no_words_from(0)?;
        let json = given.has("--json");
        let wanted = Wanted { from: given.parsed("--from")?, re: given.parsed("--re")? };
        let seconds = given.number("--timeout", 0)?.map_or(PATIENCE, u64::from);
        let end = if seconds > 0 { Instant::now().checked_add(Duration::from_secs(seconds)) } else { None };
        let socket = self.around.socket.clone();
        let mut told: Option<Instant> = None;
        let mut waiting = Waiting::new(&self.desk, wanted, end);
        loop {
            let batch = match waiting.next(&self.desk)? {
                Step::Batch(batch) => batch,
                Step::Idle => {
                    if told.is_none_or(|told| told.elapsed() >= TELL) {
                        ask::waiting(socket.as_deref());
                        told = Some(Instant::now());
                    }
                    continue;
                }
                Step::Came => return Ok(DONE),
                Step::Gone(why) => {
                    self.remark(&why);
                    return Ok(GONE);
                }
                Step::TimeOver => {
                    self.remark(&format!("nothing came within {seconds} s"));
                    return Ok(TIMEOUT);
                }
            };
            self.print_batch(&batch, json)?;
            waiting.keep(*batch)?;
        }
    }

    fn print_batch(&mut self, batch: &Batch, json: bool) -> Result<(), Fault> {
        for warning in &batch.warnings {
            self.remark(&show::warning(warning));
        }
        self.print_letters(&batch.letters, json)
    }

    fn print_letters(&mut self, letters: &[Letter], json: bool) -> Result<(), Fault> {
        for letter in letters {
            if json {
                self.print_json(&show::letter_json(letter))?;
            } else {
                self.print(&(show::letter(letter, ANSWER) + "\n"))?;
            }
        }
        Ok(())
    }
}
