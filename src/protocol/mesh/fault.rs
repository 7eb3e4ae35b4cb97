//! Faults: what goes wrong with a frame, as a value (5.4). `fault_codec.rs` writes and reads the frames that carry them.
//!
//! A fault made here is valid: a base code, a reason with a language, camelCase detail. Must not: decide whether a fault is sent; a
//! fault frame is never answered with another fault.

use serde_json::{Map, Value, json};

use super::role::Role;
use super::rules;
use super::syntax::is_camel_case;

/// Base codes (5.4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultCode {
    VersionMismatch,
    /// A mandatory block is not understood.
    MustUnderstand,
    /// An `encodingStyle` is not known.
    DataEncodingUnknown,
    /// The message is malformed or not permitted; resending it unchanged fails again.
    Sender,
    /// The node could not process the message; it may be resent later.
    Receiver,
}

impl FaultCode {
    pub const ALL: [Self; 5] =
        [Self::VersionMismatch, Self::MustUnderstand, Self::DataEncodingUnknown, Self::Sender, Self::Receiver];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::VersionMismatch => "VersionMismatch",
            Self::MustUnderstand => "MustUnderstand",
            Self::DataEncodingUnknown => "DataEncodingUnknown",
            Self::Sender => "Sender",
            Self::Receiver => "Receiver",
        }
    }

    /// Whether the same message may succeed later (5.4.6, rule 4).
    pub fn is_retryable(self) -> bool {
        self == Self::Receiver
    }

    /// Reads a code in any of the spec's spellings, and the subcode that the spelling implies: `Receiver.SecurityViolation` (7.0) has a
    /// subcode, `Client` and `Server` (examples of 5.4) are `Sender` and `Receiver`, and `amp:` (1.5.2) is dropped.
    pub(super) fn parse(value: &str) -> Option<(Self, Option<String>)> {
        let bare = value.strip_prefix("amp:").unwrap_or(value);
        if bare == "TTLExpired" {
            return Some((Self::Sender, Some(rules::TTL_EXPIRED.to_owned())));
        }
        let (base, rest) = bare.split_once('.').map_or((bare, None), |(base, rest)| (base, Some(rest.to_owned())));
        let base = match base {
            "Client" => "Sender",
            "Server" => "Receiver",
            other => other,
        };
        let code = Self::ALL.into_iter().find(|code| code.as_str() == base)?;
        (rest.as_deref() != Some("")).then_some((code, rest))
    }
}

/// Human-readable reason in one language (5.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultReason {
    pub text: String,
    /// BCP 47 tag.
    pub lang: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub code: FaultCode,
    /// A name of [`rules`], or the sender's own.
    pub subcode: Option<String>,
    /// Never empty.
    pub reasons: Vec<FaultReason>,
    /// URI of the node that made the fault.
    pub node: Option<String>,
    /// That node's role on the path.
    pub role: Option<Role>,
    /// Keys are in camelCase.
    pub detail: Map<String, Value>,
    pub escalate_to_human: bool,
    pub return_to: Option<String>,
    /// `Header.notUnderstood`: the blocks of a [`FaultCode::MustUnderstand`].
    pub not_understood: Vec<String>,
    /// `Header.Upgrade`, best first: versions that resolve a [`FaultCode::VersionMismatch`].
    pub supported_versions: Vec<String>,
    /// `Header.Upgrade`: modules of the node that made the fault (7.0, rule 8).
    pub supported_modules: Vec<String>,
    /// Id of the message that caused the fault.
    pub relates_to: Option<String>,
    pub trace_id: Option<String>,
    /// Unknown fields of a fault that was read, such as `metadata`.
    pub extra_fields: Map<String, Value>,
}

impl Fault {
    /// Creates a fault with a reason in English.
    pub fn new(code: FaultCode, text: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            subcode: None,
            reasons: vec![FaultReason { text: text.into(), lang: "en".to_owned() }],
            node: None,
            role: None,
            detail: Map::new(),
            escalate_to_human: false,
            return_to: None,
            not_understood: Vec::new(),
            supported_versions: Vec::new(),
            supported_modules: Vec::new(),
            relates_to: None,
            trace_id: None,
            extra_fields: Map::new(),
        })
    }

    /// Creates a `Sender` fault: the message breaks a rule.
    pub fn sender(rule: &str, text: impl Into<String>) -> Box<Self> {
        Self::new(FaultCode::Sender, text).with_subcode(rule)
    }

    /// Fails with a `Sender` fault at a JSON Pointer.
    pub(super) fn reject<T>(rule: &str, pointer: &str, text: impl Into<String>) -> Result<T, Box<Self>> {
        Err(Self::sender(rule, text).at_pointer(pointer))
    }

    /// Creates a `Receiver` fault.
    pub fn receiver(subcode: &str, text: impl Into<String>) -> Box<Self> {
        Self::new(FaultCode::Receiver, text).with_subcode(subcode)
    }

    /// Creates the fault of a failed security check (7.0, rule 7): `Receiver`, subcode `SecurityViolation.<check>`.
    pub fn security_violation(check: &str, text: impl Into<String>) -> Box<Self> {
        let text = text.into();
        let subcode = format!("{}.{check}", rules::SECURITY_VIOLATION);
        Self::receiver(&subcode, text.clone()).with_detail("violation", json!({"check": check, "problem": text}))
    }

    fn with_subcode(mut self: Box<Self>, subcode: &str) -> Box<Self> {
        self.subcode = Some(subcode.to_owned());
        self
    }

    /// Adds an entry of detail. The key must be in camelCase.
    pub fn with_detail(mut self: Box<Self>, key: &str, value: Value) -> Box<Self> {
        debug_assert!(is_camel_case(key), "`{key}` is not in camelCase");
        self.detail.insert(key.to_owned(), value);
        self
    }

    /// Adds the location in the message as a JSON Pointer; empty for the whole message.
    pub fn at_pointer(self: Box<Self>, pointer: &str) -> Box<Self> {
        self.with_detail("pointer", json!(pointer))
    }

    /// Asks for a person to look at the fault.
    pub fn with_escalation(mut self: Box<Self>) -> Box<Self> {
        self.escalate_to_human = true;
        self
    }

    /// Fills in the ids of the message that caused the fault, unless they are set or overlong.
    pub(super) fn with_message_ids(mut self: Box<Self>, message_id: Option<&str>, trace_id: Option<&str>) -> Box<Self> {
        let bounded = |id: Option<&str>| id.filter(|id| id.len() <= 1024).map(str::to_owned);
        self.relates_to = self.relates_to.take().or_else(|| bounded(message_id));
        self.trace_id = self.trace_id.take().or_else(|| bounded(trace_id));
        self
    }

    /// Location in the message, if the fault has one.
    pub fn pointer(&self) -> Option<&str> {
        self.detail.get("pointer").and_then(Value::as_str)
    }

    /// Text of the first reason.
    pub fn reason_text(&self) -> &str {
        self.reasons.first().map_or("", |reason| &reason.text)
    }

    /// The first reason with the location, as other messages quote it: `text, at `pointer``.
    pub(crate) fn reason_with_pointer(&self) -> String {
        match self.pointer() {
            Some(pointer) if !pointer.is_empty() => format!("{}, at `{pointer}`", self.reason_text()),
            _ => self.reason_text().to_owned(),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code.as_str())?;
        if let Some(subcode) = &self.subcode {
            write!(f, " ({subcode})")?;
        }
        write!(f, ": {}", self.reason_with_pointer())
    }
}

impl std::error::Error for Fault {}
