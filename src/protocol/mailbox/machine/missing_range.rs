//! Messages that are missing, and the subjects of the ERRORs that ask for them and answer that.
//!
//! Used by `machine.rs` and `reader.rs`. Pure.

use super::super::message::{AgentId, MessageRef, Seq};
use super::super::rules::MailboxViolation;

/// What an ERROR's subject ends with whose sender has a message no more.
const UNAVAILABLE_SUFFIX: &str = " cannot be sent again";

/// Messages that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRange {
    /// Whose.
    pub from: AgentId,
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
    /// Why the file that is there is no message, if one is.
    pub violation: Option<MailboxViolation>,
}

impl MissingRange {
    /// The first of them.
    pub fn reference(&self) -> MessageRef {
        MessageRef { from: self.from.clone(), seq: self.first }
    }

    /// The subject of an ERROR that asks for them.
    pub fn resend_subject(&self) -> String {
        let Self { from, first, last, .. } = self;
        if first == last {
            format!("Please send {from}/{first} again")
        } else {
            format!("Please send {from}/{first} to {from}/{last} again")
        }
    }

    /// What such a subject asks for.
    pub fn parse_resend_subject(subject: &str) -> Option<Self> {
        let range = subject.strip_prefix("Please send ")?.strip_suffix(" again")?;
        let (first, last) = range.split_once(" to ").unwrap_or((range, range));
        let (first, last): (MessageRef, MessageRef) = (first.parse().ok()?, last.parse().ok()?);
        (first.from == last.from && first.seq <= last.seq).then_some(Self {
            from: first.from,
            first: first.seq,
            last: last.seq,
            violation: None,
        })
    }

    /// The subject of an ERROR that says that the first of them is gone for good.
    pub fn unavailable_subject(first: &MessageRef) -> String {
        format!("{first}{UNAVAILABLE_SUFFIX}")
    }

    /// Which message such a subject says is gone.
    pub fn parse_unavailable_subject(subject: &str) -> Option<MessageRef> {
        subject.strip_suffix(UNAVAILABLE_SUFFIX)?.parse().ok()
    }
}
