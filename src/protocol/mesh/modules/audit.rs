//! Who had a message, when, and what they did with it (7.0 rule 6, 7.2 rule 4).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:audit`: each hop adds what it did, and nobody can take out or change what others added |
//! | node state | the node's URI; whether it may handle `audit` (7.2, rule 3); its key, and the keys of others, if entries are signed |
//! | block | `audit: {role: "next", entries: [{agentUri, timestamp, actions: [text], chain, keyId?, value?}]}` |
//! | processing | every entry's `chain` is the SHA-256 of the one before it and its own fields, in canonical form, and is checked; an intermediary adds an entry when it relays, the ultimate receiver when it is done. A block is begun where there is none if the node was told to |
//! | fault | `Receiver`, subcode `SecurityViolation.Audit`, for a chain that does not hold or an entry without a signature that must have one |
//! | Body | not looked at; not processed if the log was tampered with |
//! | other modules | acts after all others, and writes down what those of security made sure of; `signature` leaves `audit` out, because every hop adds to it: its entries are signed each by itself |
//!
//! Without keys, the chain shows what was changed by accident or by one who cannot compute; with keys, what was changed by anybody. Cutting
//! off the last entries is seen only by who knows the hops. Must not: read a clock, or write down what a message says.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::process::ProcessingContext;
use super::block_fields::{BlockFields, set_block_field};
use super::{MessageSigner, Module, ModuleDescriptor, ModuleStage, SignatureVerifier};

/// The module.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    starts_log: bool,
    signer: Option<Arc<dyn MessageSigner>>,
    verifier: Option<Arc<dyn SignatureVerifier>>,
}

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:audit:1",
    features: &["urn:longshore:mesh:feature:audit"],
    blocks: &["audit"],
    stage: ModuleStage::Audit,
};

const PURPOSE: &str = "audit";

impl Audit {
    /// One that begins a log where a message has none.
    pub fn starting_log() -> Self {
        Self { starts_log: true, ..Self::default() }
    }

    /// The same signing its entries.
    pub fn with_signer(mut self, key: Arc<dyn MessageSigner>) -> Self {
        self.signer = Some(key);
        self
    }

    /// The same wanting every entry signed by the agent that it names.
    pub fn with_verifier(mut self, keys: Arc<dyn SignatureVerifier>) -> Self {
        self.verifier = Some(keys);
        self
    }

    /// Whether this node adds to the log of this message.
    fn should_append(&self, work: &ProcessingContext<'_>) -> bool {
        let there = work.original.header.block("audit").is_some();
        work.is_authorized_for("audit") && if there { work.targeted_block("audit").is_some() } else { self.starts_log }
    }

    fn new_entry(&self, work: &ProcessingContext<'_>, changed: bool, previous: &str) -> Value {
        let mut actions = work.audit_actions.clone();
        actions.extend(
            work.processed_blocks.iter().filter(|name| *name != "audit").map(|name| format!("processed {name}")),
        );
        if changed {
            actions.push("changed the message".to_owned());
        }
        actions.push(if work.is_intermediary() { "relayed" } else { "received" }.to_owned());
        let mut entry = json!({"agentUri": work.node.uri(), "timestamp": work.now.to_string(), "actions": actions});
        let chain = chain_hash(previous, &entry);
        if let Some(key) = &self.signer {
            entry["keyId"] = json!(key.key_id());
            entry["value"] = json!(key.sign(PURPOSE, chain.as_bytes()));
        }
        entry["chain"] = json!(chain);
        entry
    }
}

/// What an entry is chained by: everything in it but the chain and its signature, and what was before it.
fn chain_hash(previous: &str, entry: &Value) -> String {
    let mut fields = entry.as_object().cloned().unwrap_or_default();
    for key in ["chain", "keyId", "value"] {
        fields.shift_remove(key);
    }
    let digest = Sha256::digest(to_canonical_json(&json!({"previous": previous, "entry": fields})));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn violation(place: usize, problem: &str) -> Box<Fault> {
    Fault::security_violation("Audit", problem).at_pointer(&format!("/frame/Header/audit/entries/{place}"))
}

impl Module for Audit {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = work.targeted_block("audit").filter(|_| work.is_authorized_for("audit")) else {
            return Ok(());
        };
        let content = BlockFields::new("audit", block);
        let mut previous = String::new();
        for (place, entry) in content.objects("entries")?.unwrap_or_default().into_iter().enumerate() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str);
            let chain = chain_hash(&previous, &Value::Object(entry.clone()));
            if text("chain") != Some(&chain) {
                return Err(violation(place, "the chain of the log does not hold"));
            }
            if let Some(check) = &self.verifier {
                let signed = text("keyId").zip(text("value"));
                let agent = signed.and_then(|(key, value)| check.verify_signer(key, PURPOSE, chain.as_bytes(), value));
                if agent.is_none() || agent.as_deref() != text("agentUri") {
                    return Err(violation(place, "the entry is not signed by the agent that it names"));
                }
            }
            previous = chain;
        }
        Ok(())
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("audit").is_some() && work.is_authorized_for("audit") {
            work.reinsert("audit", None)
        } else {
            Ok(())
        }
    }

    fn finish(&self, work: &mut ProcessingContext<'_>, changed: bool) -> Result<(), Box<Fault>> {
        if !self.should_append(work) {
            return Ok(());
        }
        let block = work.frame.header.block("audit");
        let mut entries =
            block.and_then(|block| block.content().get("entries")?.as_array().cloned()).unwrap_or_default();
        let previous = entries.last().and_then(|entry| entry.get("chain")?.as_str()).unwrap_or_default().to_owned();
        entries.push(self.new_entry(work, changed, &previous));
        let mut properties = work.block_properties("audit");
        if properties.is_empty() {
            properties = Map::from_iter([("role".to_owned(), json!("next")), ("relay".to_owned(), json!(true))]);
        }
        set_block_field(&mut properties, "entries", Value::Array(entries));
        work.frame.header.set_block("audit", properties)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::Frame;
    use super::super::super::node::Node;
    use super::super::super::rules;
    use super::super::test_support::{expect_fault, expect_processed, expect_relayed, frame, ultimate_receiver};
    use super::super::ttl::Ttl;
    use super::*;

    fn logging_intermediary(uri: &str) -> Node {
        Node::forwarding_intermediary(uri)
            .expect("a node")
            .with_module(Audit::starting_log())
            .with_module(Ttl)
            .with_authorized_blocks(["audit"])
    }

    fn frame_after_two_hops() -> Frame {
        let sent = frame(json!({"Header": {"ttl": {"role": "next", "hops": 5}}, "Body": {}}));
        expect_relayed(
            logging_intermediary("agent://two"),
            expect_relayed(logging_intermediary("agent://one"), sent).frame,
        )
        .frame
    }

    #[test]
    fn section_7_2_each_hop_adds_an_entry() {
        let last = expect_processed(ultimate_receiver().with_module(Audit::default()), frame_after_two_hops());
        let block = last.frame.header.block("audit").expect("a log");
        let entries = block.content()["entries"].as_array().expect("a list");
        let of = |place: usize, key: &str| entries[place][key].clone();
        assert_eq!(
            [of(0, "agentUri"), of(1, "agentUri"), of(2, "agentUri")],
            ["agent://one", "agent://two", "agent://last"]
        );
        assert_eq!(of(0, "actions"), json!(["processed ttl", "relayed"]));
        assert_eq!(of(2, "actions"), json!(["received"]));
        assert_eq!(of(1, "timestamp"), json!("1970-01-01T00:00:00Z"));
    }

    #[test]
    fn section_7_2_a_modified_log_is_refused() {
        let good = frame_after_two_hops().to_json();
        type Tampering = fn(&mut Value);
        let changes: [(&str, Tampering); 5] = [
            ("another agent", |log| log[0]["agentUri"] = json!("agent://evil")),
            ("another action", |log| log[1]["actions"] = json!([])),
            ("one less", |log| drop(log.as_array_mut().map(|log| log.remove(0)))),
            ("the other way", |log| log.as_array_mut().expect("a list").reverse()),
            ("no chain", |log| drop(log[1].as_object_mut().map(|entry| entry.shift_remove("chain")))),
        ];
        for (what, change) in changes {
            let mut bad = good.clone();
            change(bad.pointer_mut("/frame/Header/audit/entries").expect("a log"));
            let refused = expect_fault(ultimate_receiver().with_module(Audit::default()), frame(bad["frame"].clone()));
            assert_eq!(refused.subcode.as_deref(), Some("SecurityViolation.Audit"), "{what}");
        }
    }

    #[test]
    fn section_7_2_an_unauthorized_intermediary_adds_no_entry() {
        let stranger = Node::forwarding_intermediary("agent://one").expect("a node").with_module(Audit::starting_log());
        let passed = expect_relayed(stranger, frame_after_two_hops()).frame;
        assert_eq!(passed.header.block("audit"), frame_after_two_hops().header.block("audit"));
    }

    #[test]
    fn section_5_2_2_the_spec_s_example_blocks_are_empty_logs() {
        let sent = frame(
            json!({"Header": {"audit": {"mustUnderstand": true, "timestamp": "2025-06-26T15:30:00Z"}}, "Body": {}}),
        );
        let last = expect_processed(ultimate_receiver().with_module(Audit::default()), sent);
        let block = last.frame.header.block("audit").expect("a log");
        assert_eq!(block.content()["timestamp"], json!("2025-06-26T15:30:00Z"));
        assert_eq!(block.content()["entries"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for entries in [json!({}), json!([1])] {
            let sent = frame(json!({"Header": {"audit": {"entries": entries}}, "Body": {}}));
            let refused = expect_fault(ultimate_receiver().with_module(Audit::default()), sent);
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT));
        }
    }
}
