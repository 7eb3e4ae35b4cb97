//! A range of missing messages, and the subjects of the ERRORs that request it or declare it unavailable. Pure.

use super::super::message::{AgentId, MessageRef, Seq};
use super::super::rules::MailboxViolation;

const UNAVAILABLE_SUFFIX: &str = " cannot be sent again";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRange {
    pub from: AgentId,
    pub first: Seq,
    pub last: Seq,
    /// Why the file of `first` is not a message, if there is one.
    pub violation: Option<MailboxViolation>,
}

impl MissingRange {
    pub fn first_reference(&self) -> MessageRef {
        MessageRef { from: self.from.clone(), seq: self.first }
    }

    /// The subject of an ERROR that requests the range.
    pub fn resend_subject(&self) -> String {
        let Self { from, first, last, .. } = self;
        if first == last {
            format!("Please send {from}/{first} again")
        } else {
            format!("Please send {from}/{first} to {from}/{last} again")
        }
    }

    pub fn parse_resend_subject(subject: &str) -> Option<Self> {
        let range = subject.strip_prefix("Please send ")?.strip_suffix(" again")?;
        let (first, last) = range.split_once(" to ").unwrap_or((range, range));
        let (first, last): (MessageRef, MessageRef) = (first.parse().ok()?, last.parse().ok()?);
        let valid = first.from == last.from && first.seq <= last.seq;
        valid.then_some(Self { from: first.from, first: first.seq, last: last.seq, violation: None })
    }

    /// The subject of an ERROR that declares a message permanently unavailable.
    pub fn unavailable_subject(reference: &MessageRef) -> String {
        format!("{reference}{UNAVAILABLE_SUFFIX}")
    }

    pub fn parse_unavailable_subject(subject: &str) -> Option<MessageRef> {
        subject.strip_suffix(UNAVAILABLE_SUFFIX)?.parse().ok()
    }
}
