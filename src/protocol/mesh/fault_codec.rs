//! Writes a [`Fault`] as a frame, and reads it back (5.3.1, 5.4).
//!
//! Reading refuses what the spec forbids and accepts what it only advises against.

use oxilangtag::LanguageTag;
use serde_json::{Map, Value, json};

use super::fault::{Fault, FaultCode, FaultReason};
use super::frame::Frame;
use super::role::{Role, RoleRegistry};
use super::rules;
use super::syntax::{is_camel_case, is_iri, parse_boolean};
use crate::json::text::excerpt;

impl Fault {
    /// Builds the frame that carries the fault: the fault in the Body, and the fields of 5.4.6 and 5.4.8 in the Header.
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

    /// The fault that a frame carries, if any. Refuses a fault that breaks a rule of 5.4.
    pub fn from_frame(frame: &Frame) -> Result<Option<Box<Self>>, Box<Self>> {
        let Some(value) = frame.body.get("fault") else { return Ok(None) };
        let fault = expect_object(value, "")?;
        let code = fault.get("code").ok_or_else(|| invalid_fault(rules::FAULT_CODE, "/code", "is missing"))?;
        let code = expect_object(code, "/code")?;
        let value = code.get("value").and_then(Value::as_str);
        let value = value.ok_or_else(|| invalid_fault(rules::FAULT_CODE, "/code/value", "must be a string"))?;
        let (code_value, qualifier) = FaultCode::parse(value).ok_or_else(|| {
            let problem = format!("must be a base code, found `{}`", excerpt(value));
            invalid_fault(rules::FAULT_CODE_KNOWN, "/code/value", &problem)
        })?;
        let subcode = optional_text(code, "subcode", rules::FAULT_SUBCODE, "/code")?;
        if subcode.as_deref().is_some_and(|subcode| !is_valid_subcode(subcode)) {
            return Err(invalid_fault(rules::FAULT_SUBCODE, "/code/subcode", "must be words separated by dots"));
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
        // 5.4.4: an unknown role counts as `ultimateReceiver`.
        let role = optional_text(fault, "role", rules::FAULT_ROLE, "")?;
        read.role = role.map(|role| RoleRegistry::default().resolve_or_ultimate_receiver(&role));
        if read.role == Some(Role::Intermediary) && read.node.is_none() {
            return Err(invalid_fault(rules::FAULT_NODE, "/node", "is missing: an intermediary made the fault"));
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

fn invalid_fault(rule: &str, pointer: &str, problem: &str) -> Box<Fault> {
    Fault::sender(rule, format!("the fault is not valid: `{pointer}` {problem}"))
        .at_pointer(&format!("/frame/Body/fault{pointer}"))
}

fn expect_object<'v>(value: &'v Value, pointer: &str) -> Result<&'v Map<String, Value>, Box<Fault>> {
    value.as_object().ok_or_else(|| invalid_fault(rules::FAULT_TYPE, pointer, "must be an object"))
}

fn optional_text(of: &Map<String, Value>, key: &str, rule: &str, parent: &str) -> Result<Option<String>, Box<Fault>> {
    match of.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid_fault(rule, &format!("{parent}/{key}"), "must be a string")),
    }
}

fn string_list(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// 5.4.6: words separated by dots, with `amp:` in front as in 1.5.2.
fn is_valid_subcode(subcode: &str) -> bool {
    let bare = subcode.strip_prefix("amp:").unwrap_or(subcode);
    let word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    bare.split('.').all(word)
}

fn parse_reasons(value: Option<&Value>) -> Result<Vec<FaultReason>, Box<Fault>> {
    let list = value.and_then(Value::as_array).filter(|list| !list.is_empty());
    let list =
        list.ok_or_else(|| invalid_fault(rules::FAULT_REASON, "/reason", "must be a list with at least one entry"))?;
    let entry = |(index, entry): (usize, &Value)| {
        let field = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let problem =
            |key: &str| invalid_fault(rules::FAULT_REASON, &format!("/reason/{index}/{key}"), "must be a string");
        let (text, lang) =
            (field("text").ok_or_else(|| problem("text"))?, field("lang").ok_or_else(|| problem("lang"))?);
        if LanguageTag::parse(lang.as_str()).is_err() {
            let problem = format!("must be a BCP 47 language tag, found `{}`", excerpt(&lang));
            return Err(invalid_fault(rules::FAULT_LANG, &format!("/reason/{index}/lang"), &problem));
        }
        Ok(FaultReason { text, lang })
    };
    list.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
#[path = "tests/fault_codec.rs"]
mod tests;
