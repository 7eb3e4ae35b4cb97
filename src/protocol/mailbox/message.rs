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
pub const MAX_FILE: usize = 10_240;
/// The most bytes of a file that is read as a message: others may not hold themselves to [`MAX_FILE`].
pub const MAX_READ: usize = 65_536;
/// The most characters of a subject that is sent.
pub const MAX_SUBJECT_CHARS: usize = 200;
/// The most bytes of the context, and of the expected response, that is sent.
pub const MAX_SECTION: usize = 3_000;
/// The most bytes of a body that is sent, in all of its parts.
pub const MAX_BODY: usize = 256 * 1024;
/// The most parts of a message.
pub const MAX_PARTS: u16 = 128;

/// A text that is not what it was read as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}, found `{found}`")]
pub struct WordError {
    what: &'static str,
    found: String,
}

impl WordError {
    fn new(what: &'static str, found: &str) -> Self {
        Self { what, found: found.chars().take(80).collect() }
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

    /// The one after it. None after [`Seq::LAST`].
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The name of its file: `003.md`, `1000.md`.
    pub fn file_name(self) -> String {
        format!("{self}.md")
    }

    /// The one whose file this could be. Others may pad it otherwise (`3.md`).
    pub fn of_file_name(name: &str) -> Option<Self> {
        name.strip_suffix(".md")?.parse().ok()
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}", self.0)
    }
}

impl FromStr for Seq {
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        let wrong = || WordError::new("expected a number from 1 to 999999999", text);
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
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        let wrong = || WordError::new("expected an agent id, `/` and a number", text);
        let (from, seq) = text.split_once('/').ok_or_else(wrong)?;
        // Somebody may well say `bravo/002.md`.
        let seq = seq.strip_suffix(".md").unwrap_or(seq);
        Ok(Self { from: from.parse().map_err(|_| wrong())?, seq: seq.parse().map_err(|_| wrong())? })
    }
}

macro_rules! words {
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
            type Err = WordError;
            /// Upper or lower case.
            fn from_str(text: &str) -> Result<Self, WordError> {
                let found = Self::ALL.iter().find(|one| one.word().eq_ignore_ascii_case(text));
                found.copied().ok_or_else(|| WordError::new($what, text))
            }
        }
    };
}

words! {
    /// The types of messages (Message Types).
    Kind, "expected REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR or DONE":
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

words! {
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
pub enum Expects {
    /// Nothing.
    Nothing,
    /// An answer.
    Response,
    /// An acknowledgement; an answer will do.
    Ack,
}

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// One agent.
    One(AgentId),
    /// Everybody: `*`.
    All,
}

impl Recipient {
    /// Whether it is for this agent. Nobody's broadcast is for its sender; the caller knows who that is.
    pub fn is_for(&self, agent: &AgentId) -> bool {
        match self {
            Recipient::One(one) => one == agent,
            Recipient::All => true,
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recipient::One(agent) => fmt::Display::fmt(agent, f),
            Recipient::All => f.pad("*"),
        }
    }
}

impl FromStr for Recipient {
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        if text == "*" {
            return Ok(Self::All);
        }
        text.parse().map(Self::One).map_err(|_| WordError::new("expected an agent id or `*`", text))
    }
}

/// Which part of a message it is: `1/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    pub number: u16,
    /// How many there are.
    pub of: u16,
    /// Whether the last line goes on in the next part (`part-cut: inside-line`, a field of ours). Otherwise a part ends with
    /// a line.
    pub inside_line: bool,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        let parse = |text: &str| {
            let digits = text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse::<u16>().ok() } else { None }
        };
        let both = text.split_once('/').and_then(|(number, of)| Some((parse(number.trim())?, parse(of.trim())?)));
        match both {
            Some((number, of)) if (1..=of).contains(&number) && of <= MAX_PARTS => {
                Ok(Self { number, of, inside_line: false })
            }
            _ => Err(WordError::new("expected a part's number, `/` and how many there are, 128 at most", text)),
        }
    }
}

/// What a message says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// In one line, what it is about. Of others it may be empty.
    pub subject: String,
    /// What is said.
    pub body: String,
    /// What has to be known for that.
    pub context: Option<String>,
    /// What is wanted back.
    pub expected_response: Option<String>,
}

impl Content {
    /// The same without blank lines around texts, with `\n` between lines, and without texts that are empty.
    pub fn tidied(&self) -> Self {
        let text = |text: &str| tidy(&text.replace("\r\n", "\n").replace('\r', "\n"));
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
pub(super) fn tidy(text: &str) -> String {
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
pub struct Draft {
    /// Whom it is for.
    pub to: Recipient,
    /// Its type.
    pub kind: Kind,
    /// The message that it is about.
    pub re: Option<MessageRef>,
    /// How much it matters.
    pub priority: Priority,
    /// How many minutes it is good for.
    pub ttl: Option<u32>,
    /// What it says.
    pub content: Content,
}

impl Draft {
    /// One with these words, and nothing else.
    pub fn new(to: Recipient, kind: Kind, subject: impl Into<String>, body: impl Into<String>) -> Self {
        let content = Content { subject: subject.into(), body: body.into(), ..Content::default() };
        Self { to, kind, re: None, priority: Priority::Normal, ttl: None, content }
    }

    /// The same, about a message.
    pub fn about(self, re: MessageRef) -> Self {
        Self { re: Some(re), ..self }
    }
}

/// Whom something is for and what it is, where that is not said: an answer goes to whom it answers, and a DONE to everybody;
/// what answers is a RESPONSE, and all else a REQUEST. None where nobody can know whom it is for.
pub fn address(
    me: &AgentId,
    to: Option<Recipient>,
    kind: Option<Kind>,
    re: Option<&MessageRef>,
) -> Option<(Recipient, Kind)> {
    let kind = kind.unwrap_or(if re.is_some() { Kind::Response } else { Kind::Request });
    let to = match (to, re) {
        (Some(to), _) => to,
        (None, _) if kind == Kind::Done => Recipient::All,
        (None, Some(re)) if re.from != *me => Recipient::One(re.from.clone()),
        (None, _) => return None,
    };
    Some((to, kind))
}

/// A message, as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its sender.
    pub from: AgentId,
    /// Whom it is for.
    pub to: Recipient,
    /// Its number.
    pub seq: Seq,
    /// Its type.
    pub kind: Kind,
    /// When it was written, by the sender's clock.
    pub timestamp: Timestamp,
    /// The message that it is about.
    pub re: Option<MessageRef>,
    /// How much it matters.
    pub priority: Priority,
    /// How many minutes it is good for.
    pub ttl: Option<u32>,
    /// Which part it is, of a message in parts.
    pub part: Option<Part>,
    /// What it says.
    pub content: Content,
}

impl Message {
    /// The name under which others refer to it.
    pub fn reference(&self) -> MessageRef {
        MessageRef { from: self.from.clone(), seq: self.seq }
    }

    /// What its sender waits for (Message Types). An ERROR "depends": it waits for an answer where it says what it expects.
    pub fn expects(&self) -> Expects {
        match self.kind {
            Kind::Request => Expects::Response,
            Kind::Handoff => Expects::Ack,
            Kind::Error if self.content.expected_response.is_some() => Expects::Response,
            Kind::Response | Kind::Status | Kind::Ack | Kind::Error | Kind::Done => Expects::Nothing,
        }
    }

    /// When it stops being good. None where it stays so.
    pub fn expires(&self) -> Option<Timestamp> {
        let minutes = self.ttl?;
        // What lies beyond all times never comes.
        self.timestamp.checked_add(jiff::SignedDuration::from_mins(i64::from(minutes))).ok()
    }

    /// Whether its time is over.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|end| end <= now)
    }
}
