//! The names of the mailbox's rules, as [`MailboxViolation`] says them, each with the section of the spec that it comes from.
//!
//! Used by all of `protocol/mailbox`. A test holds that each of them is broken by some file.

use crate::protocol::rule::rules;

/// A file in an outbox that is no message, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxViolation {
    /// The rule that it breaks: a name of [`RULES`].
    pub rule: &'static str,
    /// What is wrong, with the value in backticks. May hold whatever the file holds.
    pub problem: String,
}

impl MailboxViolation {
    /// One of this rule.
    pub(super) fn new(rule: &'static str, problem: impl Into<String>) -> Self {
        Self { rule, problem: problem.into() }
    }
}

impl std::fmt::Display for MailboxViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (rule `{}`)", self.problem, self.rule)
    }
}

rules! {
    FILE_NAME = "file-name", "Directory Layout", "A message's file is called by its number: `001.md`, `002.md`, ..., `1000.md`.";
    FILE_KIND = "file-kind", "longshore", "A message is a regular file: no link, folder, FIFO, socket or device.";
    SIZE = "size", "longshore", "A message that is read has at most 65,536 bytes.";
    UTF8 = "utf8", "longshore", "A message is UTF-8.";
    REQUIRED = "required", "Required Fields", "The six required fields are there.";
    FIELD_TWICE = "field-twice", "longshore", "No field that is known stands there twice.";
    VERSION = "version", "Required Fields", "`amp-version` is 1.";
    FROM = "from", "Required Fields", "`from` is an agent id, and the one that the outbox belongs to.";
    TO = "to", "Required Fields", "`to` is an agent id, or `*`.";
    SEQ = "seq", "Required Fields", "`seq` is a number from 1 to 999,999,999, and the one in the file's name.";
    TYPE = "type", "Message Types", "`type` is one of the seven.";
    TIMESTAMP = "timestamp", "Required Fields", "`timestamp` is an ISO 8601 date and time.";
    RE = "re", "Optional Fields", "`re` is an agent id, `/` and a number.";
    PRIORITY = "priority", "Optional Fields", "`priority` is low, normal, high or critical.";
    TTL = "ttl", "Optional Fields", "`ttl` is a number of minutes.";
    PART = "part", "Error Handling", "`part` is the part's number, `/` and how many there are.";
}
