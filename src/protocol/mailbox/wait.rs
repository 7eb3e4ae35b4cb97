//! An agent that waits for messages: until what it wants has come, nothing more can come, or the time is over.
//!
//! Used by `shim/mail` and `cli/mailbox`, which print what comes before it counts as read:
//!
//! ```text
//! loop: next -> Batch: print it, keep -> next ... -> Idle (a few seconds went by) -> ... -> Came | Gone | TimeOver
//! ```

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::machine::Letter;
use super::message::{AgentId, MessageRef};
use super::reader::{Batch, Desk};
use super::show::line;
use super::store::MailboxResult;
use super::watch::Watch;

/// The longest time between two steps.
const STEP: Duration = Duration::from_secs(5);
/// How long a last word of somebody who is gone may be on its way.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is waited for: any message where nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// One of this agent.
    pub from: Option<AgentId>,
    /// One about this message.
    pub re: Option<MessageRef>,
}

impl Wanted {
    /// Whether it is this.
    pub fn is(&self, letter: &Letter) -> bool {
        let message = &letter.message;
        self.from.as_ref().is_none_or(|from| message.from == *from)
            && self.re.as_ref().is_none_or(|re| message.re.as_ref() == Some(re))
    }
}

/// What waiting comes to.
#[derive(Debug)]
pub enum Step {
    /// Something was collected, maybe only a warning: to be shown, and given back to [`Waiting::keep`].
    Batch(Box<Batch>),
    /// A few seconds went by.
    Idle,
    /// What was wanted came.
    Came,
    /// It will not come: why.
    Gone(String),
    /// The time is over.
    TimeOver,
}

/// An agent that waits.
#[derive(Debug)]
pub struct Waiting {
    wanted: Wanted,
    end: Option<Instant>,
    watch: Watch,
    /// It came.
    came: bool,
    /// When to look again, whatever happens. None: at once.
    look: Option<Instant>,
    gone_since: Option<Instant>,
}

impl Waiting {
    /// Begins to wait, until then at the longest.
    pub fn new(desk: &Desk, wanted: Wanted, end: Option<Instant>) -> Self {
        let watch = Watch::new(desk.mailbox().root());
        Self { wanted, end, watch, came: false, look: None, gone_since: None }
    }

    /// What comes next.
    pub fn next(&mut self, desk: &Desk) -> MailboxResult<Step> {
        if self.came {
            return Ok(Step::Came);
        }
        if let Some(look) = self.look {
            if self.end.is_some_and(|end| end <= Instant::now()) {
                return Ok(Step::TimeOver);
            }
            let until = self.end.map_or(look, |end| end.min(look));
            self.watch.wait(until);
        }
        let batch = desk.collect(Timestamp::now())?;
        let now = Instant::now();
        let due = batch
            .deadline
            .map(|due| now + Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default());
        let gone = match &self.wanted.from {
            Some(agent) => batch
                .finished(agent)
                .map(|status| format!("{agent} is gone (`{}`) and has nothing more to say", line(status.word()))),
            None => batch.all_finished().then(|| "everybody else is gone and has nothing more to say".to_owned()),
        };
        self.gone_since = if gone.is_some() { self.gone_since.or(Some(now)) } else { None };
        let last_words = self.gone_since.map(|since| since + LAST_WORDS);
        self.look = [due, last_words].into_iter().flatten().chain([now + STEP]).min();
        if !batch.letters.is_empty() || !batch.warnings.is_empty() {
            return Ok(Step::Batch(Box::new(batch)));
        }
        // Where it stands may have changed all the same: what was for others is behind it.
        batch.keep()?;
        match gone {
            Some(gone) if last_words.is_some_and(|end| end <= now) => Ok(Step::Gone(gone)),
            _ => Ok(Step::Idle),
        }
    }

    /// What the batch has was shown, and counts as read.
    pub fn keep(&mut self, batch: Batch) -> MailboxResult<()> {
        self.came = batch.letters.iter().any(|letter| self.wanted.is(letter));
        batch.keep()
    }
}
