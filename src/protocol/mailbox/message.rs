//! What can be said in a mailbox: messages, what is in their headers, and drafts of them.
//!
//! Read and written by `text.rs`. Pure: must not do I/O or read a clock.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use thiserror::Error;

pub use crate::ids::AgentId;

/// The version of the protocol that is spoken.
pub const VERSION: &str = "1";
/// The most bytes of a message's file (Error Handling: "File > 10KB"); what is longer is sent in parts.
pub const MAX_FILE_BYTES: usize = 10_240;
/// The most bytes of a file that is read as a message: others may not hold themselves to [`MAX_FILE_BYTES`].
pub const MAX_READ_BYTES: usize = 65_536;
/// The most characters of a subject that is sent.
pub const MAX_SUBJECT_CHARS: usize = 200;
/// The most bytes of the context, and of the expected response, that is sent.
pub const MAX_SECTION_BYTES: usize = 3_000;
/// The most bytes of a body that is sent, in all of its parts.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
/// The most parts of a message.
pub const MAX_PARTS: u16 = 128;

/// A text that is not what it was read as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{expected}, found `{found}`")]
pub struct HeaderValueError {
    expected: &'static str,
    found: String,
}

impl HeaderValueError {
    fn new(what: &'static str, found: &str) -> Self {
        Self { expected: what, found: found.chars().take(80).collect() }
    }
}

/// The number of a sender's message: from 1, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u32);

impl Seq {
    /// A sender's first.
    pub const FIRST: Seq = Seq(1);
    /// The last there can be: nine digits.
    pub const LAST: Seq = Seq(999_999_999);

    /// The one of this number, if it can be one.
    pub fn new(number: u32) -> Option<Self> {
        (Self::FIRST.0..=Self::LAST.0).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The one after it. None after [`Seq::LAST_SEQ_FILE`].
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The name of its file: `003.md`, `1000.md`.
    pub fn file_name(self) -> String {
        format!("{self}.md")
    }

    /// The one whose file this could be. Others may pad it otherwise (`3.md`).
    pub fn from_file_name(name: &str) -> Option<Self> {
        name.strip_suffix(".md")?.parse().ok()
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
        let wrong = || HeaderValueError::new("expected a number from 1 to 999999999", text);
        if text.len() > 20 || text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse().ok().and_then(Self::new).ok_or_else(wrong)
    }
}

/// A message of somebody: `bravo/002`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageRef {
    /// Whose.
    pub from: AgentId,
    /// Which.
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
        // Somebody may well say `bravo/002.md`.
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
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its word in a header.
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
            /// Upper or lower case.
            fn from_str(text: &str) -> Result<Self, HeaderValueError> {
                let found = Self::ALL.iter().find(|one| one.word().eq_ignore_ascii_case(text));
                found.copied().ok_or_else(|| HeaderValueError::new($what, text))
            }
        }
    };
}

header_enum! {
    /// The types of messages (Message Types).
    MailboxMessageType, "expected REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR or DONE":
    /// Asks the other to do something.
    Request = "REQUEST",
    /// Answers a request.
    Response = "RESPONSE",
    /// Tells of progress; nothing is to be done.
    Status = "STATUS",
    /// Gives a task to another.
    Handoff = "HANDOFF",
    /// Says that something was received.
    Ack = "ACK",
    /// Something went wrong.
    Error = "ERROR",
    /// The agent is finished and signs off.
    Done = "DONE",
}

header_enum! {
    /// How much a message matters.
    Priority, "expected low, normal, high or critical":
    /// Whenever there is time.
    Low = "low",
    /// What is not said is normal.
    Normal = "normal",
    /// Before others.
    High = "high",
    /// Now.
    Critical = "critical",
}

/// What a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    /// Nothing.
    Nothing,
    /// An answer.
    Response,
    /// An acknowledgement; an answer will do.
    Ack,
}

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageRecipient {
    /// One agent.
    Agent(AgentId),
    /// Everybody: `*`.
    Broadcast,
}

impl MessageRecipient {
    /// Whether it is for this agent. Nobody's broadcast is for its sender; the caller knows who that is.
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

/// Which part of a message it is: `1/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePart {
    /// From 1.
    pub number: u16,
    /// How many there are.
    pub total: u16,
    /// Whether the last line goes on in the next part (`part-cut: inside-line`, a field of ours). Otherwise a part ends with
    /// a line.
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
        let both = text.split_once('/').and_then(|(number, of)| Some((parse(number.trim())?, parse(of.trim())?)));
        match both {
            Some((number, of)) if (1..=of).contains(&number) && of <= MAX_PARTS => {
                Ok(Self { number, total: of, cut_inside_line: false })
            }
            _ => Err(HeaderValueError::new("expected a part's number, `/` and how many there are, 128 at most", text)),
        }
    }
}

/// What a message says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageContent {
    /// In one line, what it is about. Of others it may be empty.
    pub subject: String,
    /// What is said.
    pub body: String,
    /// What has to be known for that.
    pub context: Option<String>,
    /// What is wanted back.
    pub expected_response: Option<String>,
}

impl MessageContent {
    /// The same without blank lines around texts, with `\n` between lines, and without texts that are empty.
    pub fn normalized(&self) -> Self {
        let text = |text: &str| trim_blank_lines(&text.replace("\r\n", "\n").replace('\r', "\n"));
        let option = |of: &Option<String>| of.as_deref().map(text).filter(|text| !text.is_empty());
        Self {
            subject: text(&self.subject).split_whitespace().collect::<Vec<_>>().join(" "),
            body: text(&self.body),
            context: option(&self.context),
            expected_response: option(&self.expected_response),
        }
    }
}

/// Without blank lines before it and empty ones behind it. A last line of white space stays: in a diff it says something.
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

/// What a sender gives; the rest of the message is the mailbox's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxDraft {
    /// Whom it is for.
    pub to: MessageRecipient,
    /// Its type.
    pub message_type: MailboxMessageType,
    /// The message that it is about.
    pub re: Option<MessageRef>,
    /// How much it matters.
    pub priority: Priority,
    /// How many minutes it is good for.
    pub ttl: Option<u32>,
    /// What it says.
    pub content: MessageContent,
}

impl MailboxDraft {
    /// One with these words, and nothing else.
    pub fn new(
        to: MessageRecipient,
        kind: MailboxMessageType,
        subject: impl Into<String>,
        body: impl Into<String>,
    ) -> Self {
        let content = MessageContent { subject: subject.into(), body: body.into(), ..MessageContent::default() };
        Self { to, message_type: kind, re: None, priority: Priority::Normal, ttl: None, content }
    }

    /// The same, about a message.
    pub fn in_reply_to(self, re: MessageRef) -> Self {
        Self { re: Some(re), ..self }
    }
}

/// Whom something is for and what it is, where that is not said: an answer goes to whom it answers, and a DONE to everybody;
/// what answers is a RESPONSE, and all else a REQUEST. None where nobody can know whom it is for.
pub fn resolve_address(
    me: &AgentId,
    to: Option<MessageRecipient>,
    kind: Option<MailboxMessageType>,
    re: Option<&MessageRef>,
) -> Option<(MessageRecipient, MailboxMessageType)> {
    let kind = kind.unwrap_or(if re.is_some() { MailboxMessageType::Response } else { MailboxMessageType::Request });
    let to = match (to, re) {
        (Some(to), _) => to,
        (None, _) if kind == MailboxMessageType::Done => MessageRecipient::Broadcast,
        (None, Some(re)) if re.from != *me => MessageRecipient::Agent(re.from.clone()),
        (None, _) => return None,
    };
    Some((to, kind))
}

/// A message, as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxMessage {
    /// Its sender.
    pub from: AgentId,
    /// Whom it is for.
    pub to: MessageRecipient,
    /// Its number.
    pub seq: Seq,
    /// Its type.
    pub message_type: MailboxMessageType,
    /// When it was written, by the sender's clock.
    pub timestamp: Timestamp,
    /// The message that it is about.
    pub re: Option<MessageRef>,
    /// How much it matters.
    pub priority: Priority,
    /// How many minutes it is good for.
    pub ttl: Option<u32>,
    /// Which part it is, of a message in parts.
    pub part: Option<MessagePart>,
    /// What it says.
    pub content: MessageContent,
}

impl MailboxMessage {
    /// The name under which others refer to it.
    pub fn reference(&self) -> MessageRef {
        MessageRef { from: self.from.clone(), seq: self.seq }
    }

    /// What its sender waits for (Message Types). An ERROR "depends": it waits for an answer where it says what it expects.
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

    /// When it stops being good. None where it stays so.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let minutes = self.ttl?;
        // What lies beyond all times never comes.
        self.timestamp.checked_add(jiff::SignedDuration::from_mins(i64::from(minutes))).ok()
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|end| end <= now)
    }
}
