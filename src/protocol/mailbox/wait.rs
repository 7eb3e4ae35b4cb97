//! An agent that waits for messages: until what it wants has come, nothing more can come, or the time is over.
//!
//! Used by `shim/mail` and `cli/mailbox`, which print what comes before it counts as read:
//!
//! ```text
//! loop: next -> Batch: print it, keep -> next ... -> Idle (a few seconds went by) -> ... -> Came | Gone | TimeOver
//! ```

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::agent_mailbox::{AgentMailbox, MessageBatch};
use super::machine::DeliveredMessage;
use super::message::{AgentId, MessageRef};
use super::show::single_line;
use super::store::MailboxResult;
use super::watch::MailboxWatcher;

/// The longest time between two steps.
const STEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long a last word of somebody who is gone may be on its way.
const FINAL_MESSAGE_GRACE: Duration = Duration::from_millis(500);

/// What is waited for: any message where nothing is said.
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    /// One of this agent.
    pub from: Option<AgentId>,
    /// One about this message.
    pub re: Option<MessageRef>,
}

impl MessageFilter {
    /// Whether it is this.
    pub fn matches(&self, letter: &DeliveredMessage) -> bool {
        let message = &letter.message;
        self.from.as_ref().is_none_or(|from| message.from == *from)
            && self.re.as_ref().is_none_or(|re| message.re.as_ref() == Some(re))
    }
}

/// What waiting comes to.
#[derive(Debug)]
pub enum WaitStep {
    /// Something was collected, maybe only a warning: to be shown, and given back to [`MessageWaiter::commit`].
    Batch(Box<MessageBatch>),
    /// A few seconds went by.
    Idle,
    /// What was wanted came.
    Matched,
    /// It will not come: why.
    NoMoreMessages(String),
    /// The time is over.
    TimedOut,
}

/// An agent that waits.
#[derive(Debug)]
pub struct MessageWaiter {
    filter: MessageFilter,
    end: Option<Instant>,
    watch: MailboxWatcher,
    /// It came.
    matched: bool,
    /// When to look again, whatever happens. None: at once.
    next_check: Option<Instant>,
    gone_since: Option<Instant>,
}

impl MessageWaiter {
    /// Begins to wait, until then at the longest.
    pub fn new(desk: &AgentMailbox, wanted: MessageFilter, end: Option<Instant>) -> Self {
        let watch = MailboxWatcher::new(desk.mailbox().root());
        Self { filter: wanted, end, watch, matched: false, next_check: None, gone_since: None }
    }

    /// What comes next.
    pub fn next(&mut self, desk: &AgentMailbox) -> MailboxResult<WaitStep> {
        if self.matched {
            return Ok(WaitStep::Matched);
        }
        if let Some(look) = self.next_check {
            if self.end.is_some_and(|end| end <= Instant::now()) {
                return Ok(WaitStep::TimedOut);
            }
            let until = self.end.map_or(look, |end| end.min(look));
            self.watch.wait(until);
        }
        let batch = desk.collect(Timestamp::now())?;
        let now = Instant::now();
        let due = batch
            .deadline
            .map(|due| now + Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default());
        let gone = match &self.filter.from {
            Some(agent) => batch.finished_status(agent).map(|status| {
                format!("{agent} is gone (`{}`) and has nothing more to say", single_line(status.word()))
            }),
            None => batch.all_finished().then(|| "everybody else is gone and has nothing more to say".to_owned()),
        };
        self.gone_since = if gone.is_some() { self.gone_since.or(Some(now)) } else { None };
        let last_words = self.gone_since.map(|since| since + FINAL_MESSAGE_GRACE);
        self.next_check = [due, last_words].into_iter().flatten().chain([now + STEP_INTERVAL]).min();
        if !batch.messages.is_empty() || !batch.warnings.is_empty() {
            return Ok(WaitStep::Batch(Box::new(batch)));
        }
        // Where it stands may have changed all the same: what was for others is behind it.
        batch.commit()?;
        match gone {
            Some(gone) if last_words.is_some_and(|end| end <= now) => Ok(WaitStep::NoMoreMessages(gone)),
            _ => Ok(WaitStep::Idle),
        }
    }

    /// What the batch has was shown, and counts as read.
    pub fn commit(&mut self, batch: MessageBatch) -> MailboxResult<()> {
        self.matched = batch.messages.iter().any(|letter| self.filter.matches(letter));
        batch.commit()
    }
}
