//! Messages, the values in their headers, and drafts of messages.
//!
//! Parsed and rendered by `text.rs`. Pure: must not do I/O or read a clock.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use crate::ids::AgentId;

/// The value of `amp-version`.
pub const VERSION: &str = "1";
/// Limit for a message's file in bytes (Error Handling: "File > 10KB"); longer messages are sent in parts.
pub const MAX_FILE_BYTES: usize = 10_240;
/// Limit for reading a message's file, in bytes: other senders may ignore [`MAX_FILE_BYTES`].
pub const MAX_READ_BYTES: usize = 65_536;
pub const MAX_SUBJECT_CHARS: usize = 200;
/// Limit for the context and for the expected response, each.
pub const MAX_SECTION_BYTES: usize = 3_000;
/// Limit for a body, over all of its parts.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
pub const MAX_PARTS: u16 = 128;

/// A value that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{expected}, found `{found}`")]
pub struct HeaderValueError {
    expected: &'static str,
    found: String,
}

impl HeaderValueError {
    fn new(expected: &'static str, found: &str) -> Self {
        Self { expected, found: found.chars().take(80).collect() }
    }
}

const EXPECTED_SEQ: &str = "expected a number from 1 to 999999999";

/// The sequence number of a message: each sender counts from 1, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct Seq(u32);

impl Seq {
    pub const FIRST: Seq = Seq(1);
    /// The highest number: nine digits.
    pub const LAST: Seq = Seq(999_999_999);

    pub fn new(number: u32) -> Option<Self> {
        (Self::FIRST.0..=Self::LAST.0).contains(&number).then_some(Self(number))
    }

    pub fn get(self) -> u32 {
        self.0
    }

    /// `None` after [`Seq::LAST`].
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The name of its file: `003.md`, `1000.md`.
    pub fn file_name(self) -> String {
        format!("{self}.md")
    }

    /// Accepts other padding too (`3.md`).
    pub fn from_file_name(name: &str) -> Option<Self> {
        name.strip_suffix(".md")?.parse().ok()
    }
}

impl From<Seq> for u32 {
    fn from(seq: Seq) -> u32 {
        seq.0
    }
}

impl TryFrom<u32> for Seq {
    type Error = HeaderValueError;
    fn try_from(number: u32) -> Result<Self, HeaderValueError> {
        Self::new(number).ok_or_else(|| HeaderValueError::new(EXPECTED_SEQ, &number.to_string()))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}", self.0)
    }
}

impl FromStr for Seq {
    type Err = HeaderValueError;
    fn from_str(text: &str) -> Result<Self, HeaderValueError> {
        let wrong = || HeaderValueError::new(EXPECTED_SEQ, text);
        if text.len() > 20 || text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse().ok().and_then(Self::new).ok_or_else(wrong)
    }
}

/// Refers to a message by its sender and number: `bravo/002`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageRef {
    pub from: AgentId,
    pub seq: Seq,
}

impl fmt::Display for MessageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.from, self.seq)
    }
}

impl FromStr for MessageRef {
    type Err = HeaderValueError;
    fn from_str(text: &str) -> Result<Self, HeaderValueError> {
        let wrong = || HeaderValueError::new("expected an agent id, `/` and a number", text);
        let (from, seq) = text.split_once('/').ok_or_else(wrong)?;
        // Agents also write `bravo/002.md`.
        let seq = seq.strip_suffix(".md").unwrap_or(seq);
        Ok(Self { from: from.parse().map_err(|_| wrong())?, seq: seq.parse().map_err(|_| wrong())? })
    }
}

macro_rules! header_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal: $($(#[$each:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word in a message's header.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = HeaderValueError;
            /// Ignores case.
            fn from_str(text: &str) -> Result<Self, HeaderValueError> {
                let found = Self::ALL.iter().find(|one| one.word().eq_ignore_ascii_case(text));
                found.copied().ok_or_else(|| HeaderValueError::new($what, text))
            }
        }
    };
}

header_enum! {
    /// Message Types.
    MailboxMessageType, "expected REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR or DONE":
    Request = "REQUEST",
    Response = "RESPONSE",
    Status = "STATUS",
    /// Transfers a task.
    Handoff = "HANDOFF",
    Ack = "ACK",
    Error = "ERROR",
    /// The agent is finished and signs off.
    Done = "DONE",
}

header_enum! {
    /// The default is `normal`.
    Priority, "expected low, normal, high or critical":
    Low = "low",
    Normal = "normal",
    High = "high",
    Critical = "critical",
}

/// The reply that a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    Nothing,
    Response,
    /// An ACK, or a RESPONSE.
    Ack,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageRecipient {
    Agent(AgentId),
    /// Everybody: `*`.
    Broadcast,
}

impl MessageRecipient {
    /// Whether the message is addressed to `agent`. A broadcast is not for its own sender, which the caller has to check.
    pub fn is_for(&self, agent: &AgentId) -> bool {
        match self {
            MessageRecipient::Agent(one) => one == agent,
            MessageRecipient::Broadcast => true,
        }
    }
}

impl fmt::Display for MessageRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageRecipient::Agent(agent) => fmt::Display::fmt(agent, f),
            MessageRecipient::Broadcast => f.pad("*"),
        }
    }
}

impl FromStr for MessageRecipient {
    type Err = HeaderValueError;
    fn from_str(text: &str) -> Result<Self, HeaderValueError> {
        if text == "*" {
            return Ok(Self::Broadcast);
        }
        text.parse().map(Self::Agent).map_err(|_| HeaderValueError::new("expected an agent id or `*`", text))
    }
}

/// The position of a part in its message: `1/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePart {
    /// From 1.
    pub number: u16,
    pub total: u16,
    /// The last line continues in the next part (`part-cut: inside-line`, an extension). Otherwise a part ends with a line.
    pub cut_inside_line: bool,
}

impl fmt::Display for MessagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.total)
    }
}

impl FromStr for MessagePart {
    type Err = HeaderValueError;
    fn from_str(text: &str) -> Result<Self, HeaderValueError> {
        let parse = |text: &str| {
            let digits = text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse::<u16>().ok() } else { None }
        };
        let both = text.split_once('/').and_then(|(number, total)| Some((parse(number.trim())?, parse(total.trim())?)));
        match both {
            Some((number, total)) if (1..=total).contains(&number) && total <= MAX_PARTS => {
                Ok(Self { number, total, cut_inside_line: false })
            }
            _ => Err(HeaderValueError::new("expected a part's number, `/` and the number of parts, at most 128", text)),
        }
    }
}

/// The sections of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageContent {
    /// One line; may be empty in messages of other programs.
    pub subject: String,
    pub body: String,
    pub context: Option<String>,
    pub expected_response: Option<String>,
}

impl MessageContent {
    /// Trims blank lines around texts, ends lines with `\n`, and drops empty sections.
    pub fn normalized(&self) -> Self {
        let text = |text: &str| trim_blank_lines(&text.replace("\r\n", "\n").replace('\r', "\n"));
        let option = |section: &Option<String>| section.as_deref().map(text).filter(|text| !text.is_empty());
        Self {
            subject: text(&self.subject).split_whitespace().collect::<Vec<_>>().join(" "),
            body: text(&self.body),
            context: option(&self.context),
            expected_response: option(&self.expected_response),
        }
    }
}

/// Removes blank lines before the text and empty lines after it. A last line of spaces stays: in a diff it has a meaning.
pub(super) fn trim_blank_lines(text: &str) -> String {
    let mut text = text.trim_end_matches(['\n', '\r']);
    if text.trim().is_empty() {
        return String::new();
    }
    while let Some((line, rest)) = text.split_once('\n') {
        if !line.trim().is_empty() {
            break;
        }
        text = rest;
    }
    text.to_owned()
}

/// What a sender provides; the mailbox adds the rest of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxDraft {
    pub to: MessageRecipient,
    pub message_type: MailboxMessageType,
    /// The message that this one refers to.
    pub re: Option<MessageRef>,
    pub priority: Priority,
    /// In minutes.
    pub ttl: Option<u32>,
    pub content: MessageContent,
}

impl MailboxDraft {
    pub fn new(
        to: MessageRecipient,
        message_type: MailboxMessageType,
        subject: impl Into<String>,
        body: impl Into<String>,
    ) -> Self {
        let content = MessageContent { subject: subject.into(), body: body.into(), ..MessageContent::default() };
        Self { to, message_type, re: None, priority: Priority::Normal, ttl: None, content }
    }

    pub fn in_reply_to(self, re: MessageRef) -> Self {
        Self { re: Some(re), ..self }
    }
}

/// Completes a message's recipient and type. A reply goes to the sender of the message it refers to, a DONE to everybody. The
/// type is RESPONSE for a reply, else REQUEST. `None` if the recipient cannot be derived.
pub fn resolve_address(
    me: &AgentId,
    to: Option<MessageRecipient>,
    message_type: Option<MailboxMessageType>,
    re: Option<&MessageRef>,
) -> Option<(MessageRecipient, MailboxMessageType)> {
    let default_type = if re.is_some() { MailboxMessageType::Response } else { MailboxMessageType::Request };
    let message_type = message_type.unwrap_or(default_type);
    let to = match (to, re) {
        (Some(to), _) => to,
        (None, _) if message_type == MailboxMessageType::Done => MessageRecipient::Broadcast,
        (None, Some(re)) if re.from != *me => MessageRecipient::Agent(re.from.clone()),
        (None, _) => return None,
    };
    Some((to, message_type))
}

/// A message as it is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxMessage {
    pub from: AgentId,
    pub to: MessageRecipient,
    pub seq: Seq,
    pub message_type: MailboxMessageType,
    /// When it was written, by the sender's clock.
    pub timestamp: Timestamp,
    /// The message that this one refers to.
    pub re: Option<MessageRef>,
    pub priority: Priority,
    /// In minutes.
    pub ttl: Option<u32>,
    pub part: Option<MessagePart>,
    pub content: MessageContent,
}

impl MailboxMessage {
    pub fn reference(&self) -> MessageRef {
        MessageRef { from: self.from.clone(), seq: self.seq }
    }

    /// The reply that the sender waits for (Message Types). An ERROR "depends": it expects a response if it has that section.
    pub fn expects(&self) -> ExpectedReply {
        match self.message_type {
            MailboxMessageType::Request => ExpectedReply::Response,
            MailboxMessageType::Handoff => ExpectedReply::Ack,
            MailboxMessageType::Error if self.content.expected_response.is_some() => ExpectedReply::Response,
            MailboxMessageType::Response
            | MailboxMessageType::Status
            | MailboxMessageType::Ack
            | MailboxMessageType::Error
            | MailboxMessageType::Done => ExpectedReply::Nothing,
        }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        let Some(minutes) = self.ttl else { return false };
        // A time beyond the last timestamp never comes.
        let end = self.timestamp.checked_add(jiff::SignedDuration::from_mins(i64::from(minutes)));
        end.is_ok_and(|end| end <= now)
    }
}
