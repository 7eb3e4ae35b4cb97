//! Waits for messages until one matches, no more can come, or the time is over.
//!
//! Used by `shim/mail` and `cli/mailbox`, which print a batch before they commit it:
//!
//! ```text
//! loop: next -> Batch: print, commit -> next ... -> Idle (every few seconds) -> ... -> Matched | NoMoreMessages | TimedOut
//! ```

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::agent_mailbox::{AgentMailbox, MessageBatch};
use super::error::MailboxResult;
use super::machine::DeliveredMessage;
use super::message::{AgentId, MessageRef};
use super::show::single_line;
use super::watch::MailboxWatcher;

/// The longest time between two steps.
const STEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long the last message of an agent that is gone may take to arrive.
const FINAL_MESSAGE_GRACE: Duration = Duration::from_millis(500);

/// What to wait for: any message by default.
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    pub from: Option<AgentId>,
    /// The message that it must refer to.
    pub re: Option<MessageRef>,
}

impl MessageFilter {
    fn matches(&self, delivered: &DeliveredMessage) -> bool {
        let message = &delivered.message;
        self.from.as_ref().is_none_or(|from| message.from == *from)
            && self.re.as_ref().is_none_or(|re| message.re.as_ref() == Some(re))
    }
}

#[derive(Debug)]
pub enum WaitStep {
    /// Messages or warnings, to be printed and passed to [`MessageWaiter::commit`].
    Batch(Box<MessageBatch>),
    /// A few seconds passed.
    Idle,
    Matched,
    /// No match can come; says why.
    NoMoreMessages(String),
    TimedOut,
}

#[derive(Debug)]
pub struct MessageWaiter {
    filter: MessageFilter,
    end: Option<Instant>,
    watch: MailboxWatcher,
    matched: bool,
    /// When to collect again even if nothing changes. `None`: at once.
    next_check: Option<Instant>,
    gone_since: Option<Instant>,
}

impl MessageWaiter {
    pub fn new(agent_mailbox: &AgentMailbox, filter: MessageFilter, end: Option<Instant>) -> Self {
        let watch = MailboxWatcher::new(agent_mailbox.mailbox().root());
        Self { filter, end, watch, matched: false, next_check: None, gone_since: None }
    }

    pub fn next(&mut self, agent_mailbox: &AgentMailbox) -> MailboxResult<WaitStep> {
        if self.matched {
            return Ok(WaitStep::Matched);
        }
        if let Some(next_check) = self.next_check {
            if self.end.is_some_and(|end| end <= Instant::now()) {
                return Ok(WaitStep::TimedOut);
            }
            self.watch.wait(self.end.map_or(next_check, |end| end.min(next_check)));
        }
        let batch = agent_mailbox.collect(Timestamp::now())?;
        let now = Instant::now();
        let until = |due: Timestamp| now + Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        let gone = self.why_gone(&batch);
        self.gone_since = if gone.is_some() { self.gone_since.or(Some(now)) } else { None };
        let grace_end = self.gone_since.map(|since| since + FINAL_MESSAGE_GRACE);
        let checks = [batch.deadline.map(until), grace_end, Some(now + STEP_INTERVAL)];
        self.next_check = checks.into_iter().flatten().min();
        if !batch.messages.is_empty() || !batch.warnings.is_empty() {
            return Ok(WaitStep::Batch(Box::new(batch)));
        }
        // The position may have advanced over messages for others.
        batch.commit()?;
        match gone {
            Some(gone) if grace_end.is_some_and(|end| end <= now) => Ok(WaitStep::NoMoreMessages(gone)),
            _ => Ok(WaitStep::Idle),
        }
    }

    fn why_gone(&self, batch: &MessageBatch) -> Option<String> {
        let Some(agent) = &self.filter.from else {
            return batch.all_finished().then(|| "all other agents are gone and have nothing more to say".to_owned());
        };
        let status = batch.finished_status(agent)?;
        Some(format!("{agent} is gone (`{}`) and has nothing more to say", single_line(status.word())))
    }

    /// Marks a printed batch as read.
    pub fn commit(&mut self, batch: MessageBatch) -> MailboxResult<()> {
        self.matched = batch.messages.iter().any(|delivered| self.filter.matches(delivered));
        batch.commit()
    }
}
