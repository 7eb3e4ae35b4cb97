//! Authorization: which agents may do what (7.0 rules 1 and 6, 7.2 rule 3).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:authorization`: privileges are checked before a sensitive block or the Body is processed, and before an intermediary processes blocks with side effects |
//! | node state | trusted keys, and which of them may authorize; the actions permitted to agents at this node; the actions that need permission |
//! | block | `authorization: {role: "next", relay: true, issuer: URI, keyId, grants: [{agent: URI, actions: [text]}], expires?, value}`, signed by its issuer for one message id |
//! | processing | grants to this node let it process `routing` and `audit`; grants to the sender add to what the node permits. An action is the name of a block, or `Body`. Required actions are checked before any module acts on them |
//! | fault | `Receiver`, subcode `SecurityViolation.Authorization`, escalated to a human |
//! | Body | if `Body` needs permission, processed only if the sender has it and signed the Body |
//! | other modules | acts after `authentication` and `signature`, which establish the sender and the integrity (7.0, rule 4), and before `encryption`, `validation`, `routing` and `audit`. A credential without a signature permits nothing. Blocks that hops may change (`routing`, `audit`, `ttl`) cannot be authorized, as no sender answers for them |
//!
//! Must not: accept a grant from a key without [`KeyPermission::Authorize`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::block_fields::BlockFields;
use super::keys::{KeyPermission, KeyRing, SecretKey};
use super::signature::is_covered_by_signature;
use super::signing::MessageSigner;

/// Action of processing the Body.
pub const BODY_ACTION: &str = "Body";

#[derive(Debug, Clone)]
pub struct Authorization {
    keys: Arc<KeyRing>,
    allowed_actions: BTreeMap<String, BTreeSet<String>>,
    required_actions: BTreeSet<String>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:authorization:1",
    features: &["urn:longshore:mesh:feature:authorization"],
    blocks: &["authorization"],
    stage: ModuleStage::Authorization,
};

const PURPOSE: &str = "authorization";

impl Authorization {
    /// Reads grants and requires no permissions.
    pub fn new(keys: Arc<KeyRing>) -> Self {
        Self { keys, allowed_actions: BTreeMap::new(), required_actions: BTreeSet::new() }
    }

    /// Permits actions to an agent.
    pub fn with_allowed_actions<'a>(mut self, agent: &str, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed_actions.entry(agent.to_owned()).or_default().extend(actions.into_iter().map(str::to_owned));
        self
    }

    /// Requires permission for actions: names of blocks, or [`BODY_ACTION`].
    pub fn with_required_actions<'a>(mut self, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.required_actions.extend(actions.into_iter().map(str::to_owned));
        self
    }
}

/// Adds grants to a frame, valid for this message.
pub fn authorize<'a>(
    frame: &mut Frame,
    key: &SecretKey,
    grants: impl IntoIterator<Item = (&'a str, &'a [&'a str])>,
    expires: Option<Timestamp>,
) -> Result<(), Box<Fault>> {
    let grant = |(agent, actions): (&str, &[&str])| json!({"agent": agent, "actions": actions});
    let mut block = json!({
        "role": "next",
        "relay": true,
        "issuer": key.agent(),
        "keyId": key.key_id(),
        "grants": grants.into_iter().map(grant).collect::<Vec<_>>(),
    });
    if let Some(expires) = expires {
        block["expires"] = json!(expires.to_string());
    }
    let Some(fields) = block.as_object_mut() else { return Ok(()) };
    let value = key.sign(PURPOSE, &signed_bytes(frame, fields));
    fields.insert("value".to_owned(), json!(value));
    frame.header.set_block("authorization", fields.clone())
}

/// A grant covers its own fields and the message id.
fn signed_bytes(frame: &Frame, block: &Map<String, Value>) -> Vec<u8> {
    let mut fields = block.clone();
    for key in ["value", "role", "relay", "mustUnderstand"] {
        fields.shift_remove(key);
    }
    to_canonical_json(&json!({"authorization": fields, "messageId": frame.header.message_id()}))
}

fn violation(problem: impl Into<String>) -> Box<Fault> {
    Fault::security_violation("Authorization", problem).at_pointer("/frame/Header/authorization").with_escalation()
}

impl Authorization {
    /// Granted actions by agent.
    fn parse_grants(
        &self,
        context: &ProcessingContext<'_>,
        block: Map<String, Value>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Box<Fault>> {
        let content = BlockFields::new("authorization", block.clone());
        let issuer = content.require("issuer", content.uri("issuer")?)?;
        let key_id = content.require("keyId", content.text("keyId")?)?;
        let value = content.require("value", content.text("value")?)?;
        let grants = content.require("grants", content.objects("grants")?)?;
        let expires = content.timestamp("expires")?;
        if context.original.header.message_id().is_none() {
            return Err(violation("a grant is for one message, and this message has no id"));
        }
        let key = self.keys.verify(key_id, PURPOSE, &signed_bytes(context.original, &block), value);
        let key = key.filter(|key| key.agent() == issuer);
        let key = key.ok_or_else(|| violation("the grant is not signed by its issuer for this message"))?;
        if !key.has_permission(KeyPermission::Authorize) {
            return Err(violation(format!("`{issuer}` may not authorize others")));
        }
        if expires.is_some_and(|expires| expires <= context.now) {
            return Err(violation("the grant has expired"));
        }
        let mut by_agent: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for grant in grants {
            let fields = BlockFields::new("authorization", grant.clone());
            let agent = fields.require("agent", fields.uri("agent")?)?.to_owned();
            by_agent.entry(agent).or_default().extend(fields.require("actions", fields.texts("actions")?)?);
        }
        Ok(by_agent)
    }
}

impl Module for Authorization {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let mut grants = BTreeMap::new();
        if let Some(block) = context.targeted_block("authorization") {
            grants = self.parse_grants(context, block)?;
            context.audit_actions.push("checked the authorization".to_owned());
        }
        context.granted_actions.extend(grants.get(context.node.uri()).into_iter().flatten().cloned());
        let may = |action: &str| {
            let of = |all: &BTreeMap<String, BTreeSet<String>>| {
                context
                    .record
                    .sender
                    .as_ref()
                    .and_then(|sender| all.get(sender))
                    .is_some_and(|actions| actions.contains(action))
            };
            of(&self.allowed_actions) || of(&grants)
        };
        let is_requested = |action: &String| {
            if action == BODY_ACTION { !context.is_intermediary() } else { context.targeted_block(action).is_some() }
        };
        let sender = context.record.sender.as_deref().unwrap_or("an unknown sender");
        for action in self.required_actions.iter().filter(|action| is_requested(action)) {
            if !may(action) {
                return Err(violation(format!("{sender} has no permission for `{action}`")));
            }
            if !is_covered_by_signature(action) {
                let problem = format!("`{action}` cannot be authorized: every node on the path may change it");
                return Err(violation(problem));
            }
            if !context.is_intact {
                let problem = format!("`{action}` is not signed by {sender}");
                return Err(violation(problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/authorization.rs"]
mod tests;
