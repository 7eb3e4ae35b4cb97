//! The rules that a message's file can violate, each with the section of the spec that it comes from.
//!
//! A test ensures that each rule has a sentence in the table of `mod.rs`.

use crate::protocol::rule::rules;

/// Why a file in an outbox is not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxViolation {
    /// A name from [`RULES`].
    pub rule: &'static str,
    /// The problem, with the value in backticks. May contain anything that the file contains.
    pub problem: String,
}

impl MailboxViolation {
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
    FILE_NAME = "file-name", "Directory Layout", "A message's file is named by its number: `001.md`, `002.md`, ..., `1000.md`.";
    FILE_KIND = "file-kind", "longshore", "A message is a regular file: no link, directory, FIFO, socket or device.";
    SIZE = "size", "longshore", "A message has at most 65,536 bytes.";
    UTF8 = "utf8", "longshore", "A message is UTF-8.";
    REQUIRED = "required", "Required Fields", "All six required fields are present.";
    FIELD_TWICE = "field-twice", "longshore", "No known field occurs twice.";
    VERSION = "version", "Required Fields", "`amp-version` is 1.";
    FROM = "from", "Required Fields", "`from` is an agent id, and the one that owns the outbox.";
    TO = "to", "Required Fields", "`to` is an agent id, or `*`.";
    SEQ = "seq", "Required Fields", "`seq` is a number from 1 to 999,999,999, and the one in the file's name.";
    TYPE = "type", "Message Types", "`type` is one of the seven.";
    TIMESTAMP = "timestamp", "Required Fields", "`timestamp` is an ISO 8601 date and time.";
    RE = "re", "Optional Fields", "`re` is an agent id, `/` and a number.";
    PRIORITY = "priority", "Optional Fields", "`priority` is low, normal, high or critical.";
    TTL = "ttl", "Optional Fields", "`ttl` is a number of minutes.";
    PART = "part", "Error Handling", "`part` is the part's number, `/` and the number of parts.";
}
