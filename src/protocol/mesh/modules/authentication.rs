//! Who sent a message, and who passed it on (7.0 rule 1, 7.2 rule 2): a credential of each, signed with its key.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:authentication`: the sender, and each intermediary that presents itself, is who it says |
//! | node state | the keys that it trusts; whether it wants every message to have a sender; the key that it presents itself with |
//! | block | `authentication: {role: "next", relay: true, credentials: [{agent: URI, keyId, nonce, created, value}]}`, the sender's first |
//! | processing | every credential is checked: it is of its agent's key, over this message's id and the credential before it; an intermediary that has a key adds its own |
//! | fault | `Receiver`, subcode `SecurityViolation.Authentication`, and a person is asked to look |
//! | Body | not looked at; not processed if a credential does not hold. Says who, not what: `signature` covers the Body |
//! | other modules | the first of those of security: `signature` holds its signer against the sender, `freshness` takes nonce and time, `authorization` the sender; `signature` leaves `authentication` out, because hops add to it |
//!
//! Must not: make nonces up; a sender brings one, and an intermediary's follows from the credential before it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::process::ProcessingContext;
use super::block_fields::{BlockFields, set_block_field};
use super::keys::{KeyRing, SecretKey};
use super::{Module, ModuleDescriptor, ModuleStage};

/// The module.
#[derive(Debug, Clone)]
pub struct Authentication {
    keys: Arc<KeyRing>,
    required: bool,
    credential_key: Option<Arc<SecretKey>>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:authentication:1",
    features: &["urn:longshore:mesh:feature:authentication"],
    blocks: &["authentication"],
    stage: ModuleStage::Identity,
};

const PURPOSE: &str = "credential";

impl Authentication {
    /// One that checks the credentials that are there.
    pub fn optional(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: false, credential_key: None }
    }

    /// One that wants every message to have a sender.
    pub fn required(keys: Arc<KeyRing>) -> Self {
        Self { keys, required: true, credential_key: None }
    }

    /// The same presenting itself when it relays.
    pub fn with_credential_key(mut self, key: Arc<SecretKey>) -> Self {
        self.credential_key = Some(key);
        self
    }
}

/// Presents the sender of a frame. The nonce is one that it never used before.
pub fn authenticate(frame: &mut Frame, key: &SecretKey, nonce: &str, now: Timestamp) -> Result<(), Box<Fault>> {
    let credential = new_credential(frame, key, nonce, now, "");
    let block = json!({"role": "next", "relay": true, "credentials": [credential]});
    frame.header.set("authentication", block)
}

fn new_credential(frame: &Frame, key: &SecretKey, nonce: &str, now: Timestamp, previous: &str) -> Value {
    let mut credential = json!({"agent": key.agent(), "keyId": key.id(), "nonce": nonce, "created": now.to_string()});
    let value = key.sign(PURPOSE, &signed_bytes(frame, &credential, previous));
    credential["value"] = json!(value);
    credential
}

/// What a credential signs: its own fields, the message's id, and the credential before it.
fn signed_bytes(frame: &Frame, credential: &Value, previous: &str) -> Vec<u8> {
    let mut fields = credential.as_object().cloned().unwrap_or_default();
    fields.shift_remove("value");
    to_canonical_json(&json!({"credential": fields, "messageId": frame.header.message_id(), "previous": previous}))
}

fn violation(problem: &str) -> Box<Fault> {
    Fault::security_violation("Authentication", problem).at_pointer("/frame/Header/authentication").with_escalation()
}

impl Authentication {
    fn verify_credentials(
        &self,
        work: &mut ProcessingContext<'_>,
        block: Map<String, Value>,
    ) -> Result<(), Box<Fault>> {
        let content = BlockFields::new("authentication", block);
        let credentials = content.require("credentials", content.objects("credentials")?)?;
        let mut previous = String::new();
        for (place, fields) in credentials.iter().enumerate() {
            let one = BlockFields::new("authentication", (*fields).clone());
            let agent = one.require("agent", one.uri("agent")?)?;
            let key_id = one.require("keyId", one.text("keyId")?)?;
            let nonce = one.require("nonce", one.text("nonce")?.filter(|nonce| !nonce.is_empty()))?;
            let created = one.require("created", one.timestamp("created")?)?;
            let value = one.require("value", one.text("value")?)?;
            let bytes = signed_bytes(work.original, &Value::Object((*fields).clone()), &previous);
            let key = self.keys.verify(key_id, PURPOSE, &bytes, value);
            if key.is_none_or(|key| key.agent() != agent) {
                return Err(violation("a credential is not its agent's, or not for this message"));
            }
            if place == 0 {
                work.sender = Some(agent.to_owned());
                work.nonces.push(nonce.to_owned());
                work.sent_at = Some(created);
            }
            work.authenticated_agents.push(agent.to_owned());
            previous = value.to_owned();
        }
        let Some(sender) = &work.sender else { return Err(violation("the message has no credential")) };
        work.audit_actions.push(format!("authenticated {sender}"));
        Ok(())
    }
}

impl Module for Authentication {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        match work.targeted_block("authentication") {
            Some(block) => self.verify_credentials(work, block),
            None if self.required => Err(violation("nobody says who sent the message")),
            None => Ok(()),
        }
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = work.targeted_block("authentication") else { return Ok(()) };
        let Some(key) = &self.credential_key else { return work.reinsert("authentication", None) };
        let mut credentials = block.get("credentials").and_then(Value::as_array).cloned().unwrap_or_default();
        let previous = credentials.last().and_then(|last| last.get("value")?.as_str()).unwrap_or_default();
        let nonce: String = Sha256::digest(previous).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        credentials.push(new_credential(work.original, key, &nonce, work.now, previous));
        let mut properties = work.block_properties("authentication");
        set_block_field(&mut properties, "credentials", Value::Array(credentials));
        work.reinsert("authentication", Some(properties))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::super::node::Node;
    use super::super::super::process::ProcessOutcome;
    use super::super::super::rules;
    use super::super::freshness::Freshness;
    use super::super::keys::test_keys::secret_key;
    use super::super::test_support::{
        NOW, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, ultimate_receiver,
    };
    use super::*;

    fn keys() -> Arc<KeyRing> {
        Arc::new(
            [secret_key(1, "agent://sender").public_key(), secret_key(2, "agent://middle").public_key()]
                .into_iter()
                .collect(),
        )
    }

    fn signed_frame(id: &str, nonce: &str) -> Frame {
        let mut frame = frame(json!({"Header": {"messageId": id}, "Body": {"task": "t"}}));
        authenticate(&mut frame, &secret_key(1, "agent://sender"), nonce, NOW).expect("a good block");
        frame
    }

    fn last() -> Node {
        ultimate_receiver().with_module(Authentication::required(keys()))
    }

    #[test]
    fn section_7_0_the_sender_and_presenting_intermediaries_are_authenticated() {
        assert_eq!(expect_processed(last(), signed_frame("m", "n")).sender.as_deref(), Some("agent://sender"));
        let middle = forwarding_intermediary().with_module(
            Authentication::required(keys()).with_credential_key(Arc::new(secret_key(2, "agent://middle"))),
        );
        let passed = expect_relayed(middle, signed_frame("m", "n")).frame;
        let block = passed.header.block("authentication").expect("it is there").content().clone();
        assert_eq!(block["credentials"].as_array().map(Vec::len), Some(2));
        assert_eq!(expect_processed(last(), passed).sender.as_deref(), Some("agent://sender"));
    }

    #[test]
    fn section_7_0_an_invalid_credential_is_refused() {
        let good = signed_frame("m", "n").to_json();
        let changes = [
            ("/frame/Header/messageId", json!("other")),
            ("/frame/Header/authentication/credentials/0/agent", json!("agent://middle")),
            ("/frame/Header/authentication/credentials/0/keyId", json!("key-2")),
            ("/frame/Header/authentication/credentials/0/nonce", json!("other")),
            ("/frame/Header/authentication/credentials/0/created", json!("1970-01-01T00:00:01Z")),
            ("/frame/Header/authentication/credentials/0/value", json!("AAAA")),
            ("/frame/Header/authentication/credentials", json!([])),
        ];
        for (pointer, value) in changes {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect(pointer) = value;
            let refused = expect_fault(last(), frame(bad["frame"].clone()));
            assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Authentication"), "{pointer}");
            assert!(refused.escalate_to_human);
        }
        let nobody = frame(json!({"Body": {}}));
        assert_eq!(expect_fault(last(), nobody.clone()).subcode.as_deref(), Some("SecurityViolation.Authentication"));
        assert_eq!(
            expect_processed(ultimate_receiver().with_module(Authentication::optional(keys())), nobody).sender,
            None
        );
    }

    #[test]
    fn section_7_2_reordered_credentials_are_refused() {
        let middle = forwarding_intermediary().with_module(
            Authentication::required(keys()).with_credential_key(Arc::new(secret_key(2, "agent://middle"))),
        );
        let passed = expect_relayed(middle, signed_frame("m", "n")).frame.to_json();
        let mut turned = passed.clone();
        let list = turned.pointer_mut("/frame/Header/authentication/credentials").and_then(Value::as_array_mut);
        list.expect("a list").reverse();
        let refused = expect_fault(last(), frame(turned["frame"].clone()));
        assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Authentication"));
    }

    #[test]
    fn section_7_3_a_replayed_frame_is_refused_by_message_id_and_by_nonce() {
        let mut node = last().with_module(Freshness::within_window(SignedDuration::from_secs(300)));
        let subcode = |outcome: ProcessOutcome| match outcome {
            ProcessOutcome::Fault(fault) => fault.subcode.unwrap_or_default(),
            _ => "taken".to_owned(),
        };
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), NOW)), "taken");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), NOW)), "SecurityViolation.Replay");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-2"), NOW)), "SecurityViolation.Replay");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-2", "n-1"), NOW)), "SecurityViolation.Replay");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-2", "n-2"), NOW)), "taken");
        let later = NOW.checked_add(SignedDuration::from_secs(300)).expect("a time");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-1", "n-1"), later)), "SecurityViolation.Stale");
        let before = NOW.checked_sub(SignedDuration::from_secs(61)).expect("a time");
        assert_eq!(subcode(node.process_and_remember(signed_frame("m-3", "n-3"), before)), "SecurityViolation.Stale");
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in [
            json!({}),
            json!({"credentials": {}}),
            json!({"credentials": [{"agent": "agent://a"}]}),
            json!({"credentials": [1]}),
        ] {
            let refused = expect_fault(last(), frame(json!({"Header": {"authentication": block}, "Body": {}})));
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
    }
}
