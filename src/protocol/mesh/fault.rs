//! Faults: what goes wrong with a frame, as a value, as a frame of its own, and read from one (5.3.1, 5.4).
//!
//! Used by all of `protocol/mesh` and by whoever answers a frame. A [`Fault`] that this module made is valid: a base code, at
//! least one reason with a language tag, camelCase detail. Reading one refuses what the spec refuses and is content with what it
//! only recommends. Must not: decide whether a fault is sent; nobody answers a fault frame with another.

use oxilangtag::LanguageTag;
use serde_json::{Map, Value, json};

use super::block::{is_camel_case, parse_boolean};
use super::frame::Frame;
use super::role::{Role, RoleRegistry, is_iri};
use super::rules;
use crate::protocol::acp::fields::excerpt;

/// The base codes (5.4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultCode {
    /// The frame's version is not supported.
    VersionMismatch,
    /// A mandatory block is not understood.
    MustUnderstand,
    /// An `encodingStyle` is not known.
    DataEncodingUnknown,
    /// The message is malformed or may not be sent: not to be sent again as it is.
    Sender,
    /// The node could not process it: it may be sent again later.
    Receiver,
}

impl FaultCode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::VersionMismatch, Self::MustUnderstand, Self::DataEncodingUnknown, Self::Sender, Self::Receiver];

    /// As a frame says it.
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

    /// A code as others write it, and what it says beside: `Receiver.SecurityViolation` (7.0) is `Receiver` with a subcode,
    /// `Client` and `Server` (the examples of 5.4) are `Sender` and `Receiver`, and `amp:` (1.5.2) says nothing.
    fn parse(value: &str) -> Option<(Self, Option<String>)> {
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

/// A reason, for people, in one language (5.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultReason {
    /// What happened.
    pub text: String,
    /// The language, as BCP 47 writes it.
    pub lang: String,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The class.
    pub code: FaultCode,
    /// What it is in that class: a name of [`rules`], or the sender's own.
    pub subcode: Option<String>,
    /// Why, at least once.
    pub reasons: Vec<FaultReason>,
    /// The node that made it.
    pub node: Option<String>,
    /// What that node was on the path.
    pub role: Option<Role>,
    /// More, by camelCase key.
    pub detail: Map<String, Value>,
    /// Whether a person should look at it.
    pub escalate_to_human: bool,
    /// Where the message should go back to.
    pub return_to: Option<String>,
    /// `Header.notUnderstood`: the blocks of a [`FaultCode::MustUnderstand`].
    pub not_understood: Vec<String>,
    /// `Header.Upgrade`: the versions that a [`FaultCode::VersionMismatch`] may be mended with, best first.
    pub supported_versions: Vec<String>,
    /// `Header.Upgrade`: the modules of the node that made it (7.0, rule 8).
    pub supported_modules: Vec<String>,
    /// The message that it is about.
    pub relates_to: Option<String>,
    /// The trace of that message.
    pub trace_id: Option<String>,
    /// What a fault that was read says beside, such as `metadata`.
    pub extra_fields: Map<String, Value>,
}

impl Fault {
    /// A fault with a reason in English.
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

    /// The sender's fault: the message breaks the rule.
    pub fn sender(rule: &str, text: impl Into<String>) -> Box<Self> {
        Self::new(FaultCode::Sender, text).with_subcode(rule)
    }

    /// The receiver's fault.
    pub fn receiver(subcode: &str, text: impl Into<String>) -> Box<Self> {
        Self::new(FaultCode::Receiver, text).with_subcode(subcode)
    }

    /// A check of security failed (7.0, rule 7): `Receiver`, subcode `SecurityViolation.<what>`.
    pub fn security_violation(what: &str, text: impl Into<String>) -> Box<Self> {
        let text = text.into();
        let subcode = format!("{}.{what}", rules::SECURITY_VIOLATION);
        Self::receiver(&subcode, text.clone()).with_detail("violation", json!({"check": what, "problem": text}))
    }

    /// The same with a subcode.
    pub fn with_subcode(mut self: Box<Self>, subcode: &str) -> Box<Self> {
        self.subcode = Some(subcode.to_owned());
        self
    }

    /// The same with an entry of detail. The key is in camelCase.
    pub fn with_detail(mut self: Box<Self>, key: &str, value: Value) -> Box<Self> {
        debug_assert!(is_camel_case(key), "`{key}` is not in camelCase");
        self.detail.insert(key.to_owned(), value);
        self
    }

    /// The same with the place in the message, a JSON Pointer; the whole message if that is empty.
    pub fn at_pointer(self: Box<Self>, pointer: &str) -> Box<Self> {
        self.with_detail("pointer", json!(pointer))
    }

    /// The same for a person to look at.
    pub fn with_escalation(mut self: Box<Self>) -> Box<Self> {
        self.escalate_to_human = true;
        self
    }

    /// Where in the message it is, if it says so.
    pub fn pointer(&self) -> Option<&str> {
        self.detail.get("pointer").and_then(Value::as_str)
    }

    /// The first reason's text.
    pub fn reason_text(&self) -> &str {
        self.reasons.first().map_or("", |reason| &reason.text)
    }

    /// The frame that tells it: the fault in the Body, what others look for in the Header.
    pub fn to_frame(&self) -> Frame {
        let reasons: Vec<Value> =
            self.reasons.iter().map(|reason| json!({"text": reason.text, "lang": reason.lang})).collect();
        let mut code = Map::new();
        code.insert("value".to_owned(), json!(self.code.as_str()));
        code.extend(self.subcode.iter().map(|subcode| ("subcode".to_owned(), json!(subcode))));
        let mut fault = Map::new();
        fault.insert("code".to_owned(), Value::Object(code));
        fault.insert("reason".to_owned(), Value::Array(reasons));
        fault.extend(self.node.iter().map(|node| ("node".to_owned(), json!(node))));
        fault.extend(self.role.iter().map(|role| ("role".to_owned(), json!(role.token()))));
        if self.escalate_to_human {
            fault.insert("escalateToHuman".to_owned(), json!(true));
        }
        fault.extend(self.return_to.iter().map(|uri| ("returnTo".to_owned(), json!(uri))));
        if !self.detail.is_empty() {
            fault.insert("detail".to_owned(), Value::Object(self.detail.clone()));
        }
        fault.extend(self.extra_fields.clone());
        let mut body = Map::new();
        body.insert("fault".to_owned(), Value::Object(fault));
        let mut frame = Frame::new(body);
        for (key, value) in [("traceId", &self.trace_id), ("relatesTo", &self.relates_to)] {
            if let Some(value) = value {
                frame.header.set_field(key, json!(value));
            }
        }
        if !self.not_understood.is_empty() {
            frame.header.set_field("notUnderstood", json!(self.not_understood));
        }
        if !self.supported_versions.is_empty() {
            let mut upgrade = Map::new();
            upgrade.insert("supportedVersions".to_owned(), json!(self.supported_versions));
            if !self.supported_modules.is_empty() {
                upgrade.insert("modules".to_owned(), json!(self.supported_modules));
            }
            frame.header.set_field("Upgrade", Value::Object(upgrade));
        }
        frame
    }

    /// The fault that a frame tells, if its Body has one. Refuses one that breaks a rule of 5.4.
    pub fn from_frame(frame: &Frame) -> Result<Option<Box<Self>>, Box<Self>> {
        let Some(value) = frame.body.get("fault") else { return Ok(None) };
        let fault = expect_object(value, "")?;
        let code = expect_object(
            fault.get("code").ok_or_else(|| invalid_fault(rules::FAULT_CODE, "/code", "must be there"))?,
            "/code",
        )?;
        let value = code.get("value").and_then(Value::as_str);
        let value = value.ok_or_else(|| invalid_fault(rules::FAULT_CODE, "/code/value", "must be there, a string"))?;
        let (code_value, qualifier) = FaultCode::parse(value).ok_or_else(|| {
            invalid_fault(
                rules::FAULT_CODE_KNOWN,
                "/code/value",
                &format!("must be a base code, found `{}`", excerpt(value)),
            )
        })?;
        let subcode = optional_text(code, "subcode", rules::FAULT_SUBCODE, "/code")?;
        if subcode.as_deref().is_some_and(|subcode| !is_valid_subcode(subcode)) {
            return Err(invalid_fault(rules::FAULT_SUBCODE, "/code/subcode", "must be words with dots between them"));
        }
        let subcode = match (qualifier, subcode) {
            (Some(qualifier), Some(subcode)) => Some(format!("{qualifier}.{subcode}")),
            (qualifier, subcode) => qualifier.or(subcode),
        };
        let mut read = *Self::new(code_value, "");
        read.subcode = subcode;
        read.reasons = parse_reasons(fault.get("reason"))?;
        read.node = optional_text(fault, "node", rules::FAULT_NODE, "")?;
        if read.node.as_deref().is_some_and(|node| !is_iri(node)) {
            return Err(invalid_fault(rules::FAULT_NODE, "/node", "must be an absolute URI"));
        }
        // 5.4.4: what is not a known role is taken as `ultimateReceiver`.
        let role = optional_text(fault, "role", rules::FAULT_ROLE, "")?;
        read.role = role.map(|role| RoleRegistry::default().resolve_or_ultimate_receiver(&role));
        if read.role == Some(Role::Intermediary) && read.node.is_none() {
            return Err(invalid_fault(rules::FAULT_NODE, "/node", "must be there: an intermediary made the fault"));
        }
        if let Some(detail) = fault.get("detail") {
            read.detail = expect_object(detail, "/detail")?.clone();
            if let Some(key) = read.detail.keys().find(|key| !is_camel_case(key)) {
                let problem = format!("keys must be in camelCase, found `{}`", excerpt(key));
                return Err(invalid_fault(rules::FAULT_DETAIL, "/detail", &problem));
            }
        }
        if let Some(escalate) = fault.get("escalateToHuman") {
            let problem = || invalid_fault(rules::FAULT_TYPE, "/escalateToHuman", "must be true or false");
            read.escalate_to_human = parse_boolean(escalate).ok_or_else(problem)?;
        }
        read.return_to = optional_text(fault, "returnTo", rules::FAULT_TYPE, "")?;
        let known = ["code", "reason", "node", "role", "detail", "escalateToHuman", "returnTo"];
        let others = fault.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        read.extra_fields = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        let header = |key: &str| frame.header.get(key).and_then(Value::as_str).map(str::to_owned);
        (read.trace_id, read.relates_to) = (header("traceId"), header("relatesTo"));
        read.not_understood = string_list(frame.header.get("notUnderstood"));
        let upgrade = frame.header.block("Upgrade");
        read.supported_versions = string_list(upgrade.and_then(|block| block.content().get("supportedVersions")));
        read.supported_modules = string_list(upgrade.and_then(|block| block.content().get("modules")));
        Ok(Some(Box::new(read)))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code.as_str())?;
        if let Some(subcode) = &self.subcode {
            write!(f, " ({subcode})")?;
        }
        write!(f, ": {}", self.reason_text())?;
        match self.pointer() {
            Some(pointer) if !pointer.is_empty() => write!(f, ", at `{pointer}`"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

fn invalid_fault(rule: &str, pointer: &str, problem: &str) -> Box<Fault> {
    Fault::sender(rule, format!("the fault is not valid: `{pointer}` {problem}"))
        .at_pointer(&format!("/frame/Body/fault{pointer}"))
}

fn expect_object<'v>(value: &'v Value, pointer: &str) -> Result<&'v Map<String, Value>, Box<Fault>> {
    value.as_object().ok_or_else(|| invalid_fault(rules::FAULT_TYPE, pointer, "must be an object"))
}

fn optional_text(of: &Map<String, Value>, key: &str, rule: &str, above: &str) -> Result<Option<String>, Box<Fault>> {
    match of.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid_fault(rule, &format!("{above}/{key}"), "must be a string")),
    }
}

fn string_list(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// 5.4.6: words, several levels with dots between them; `amp:` before them, as in 1.5.2.
fn is_valid_subcode(subcode: &str) -> bool {
    let bare = subcode.strip_prefix("amp:").unwrap_or(subcode);
    let word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    bare.split('.').all(word)
}

fn parse_reasons(value: Option<&Value>) -> Result<Vec<FaultReason>, Box<Fault>> {
    let list = value.and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| invalid_fault(rules::FAULT_REASON, "/reason", "must be a list with an entry"))?;
    let entry = |(place, entry): (usize, &Value)| {
        let field = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let problem = |key: &str| {
            invalid_fault(rules::FAULT_REASON, &format!("/reason/{place}/{key}"), "must be there, a string")
        };
        let (text, lang) =
            (field("text").ok_or_else(|| problem("text"))?, field("lang").ok_or_else(|| problem("lang"))?);
        if LanguageTag::parse(lang.as_str()).is_err() {
            let problem = format!("must be a BCP 47 language tag, found `{}`", excerpt(&lang));
            return Err(invalid_fault(rules::FAULT_LANG, &format!("/reason/{place}/lang"), &problem));
        }
        Ok(FaultReason { text, lang })
    };
    list.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
