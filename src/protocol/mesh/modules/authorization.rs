//! Who may do what (7.0 rules 1 and 6, 7.2 rule 3).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:authorization`: a sender's privileges are known before a sensitive block or the Body is processed, and an intermediary's before it handles blocks with side effects |
//! | node state | the keys that it trusts, and which of them may authorize; the actions that agents may do at this node; those that need a leave |
//! | block | `authorization: {role: "next", relay: true, issuer: URI, keyId, grants: [{agent: URI, actions: [text]}], expires?, value}`, signed by its issuer for this message's id |
//! | processing | the block is checked; what it grants to this node lets it handle `routing` and `audit`, what it grants to the sender adds to what the node itself allows; an action is the name of a block, or `Body`. A node checks the actions it was told to before anything acts on them |
//! | fault | `Receiver`, subcode `SecurityViolation.Authorization`, and a person is asked to look |
//! | Body | processed by the ultimate receiver only if the sender may, where `Body` needs a leave, and only as the sender signed it |
//! | other modules | acts after `authentication` and `signature`, which say who the sender is and that the message is as it was signed (7.0, rule 4): a credential alone says who, and not what, so nothing that needs a leave is done for it; what hops may change (`routing`, `audit`, `ttl`) no sender answers for, and is never done where it needs a leave; before `encryption`, `validation`, `routing` and `audit` |
//!
//! Must not: take a grant from a key without the right to authorize.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::canonical::to_canonical_json;
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::process::ProcessingContext;
use super::block_fields::BlockFields;
use super::keys::{KeyPermission, KeyRing, SecretKey};
use super::signature::is_covered_by_signature;
use super::{Module, ModuleDescriptor, ModuleStage};

/// The action of having the Body processed.
pub const BODY_ACTION: &str = "Body";

/// The module.
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
    /// One that reads grants and asks for nothing.
    pub fn new(keys: Arc<KeyRing>) -> Self {
        Self { keys, allowed_actions: BTreeMap::new(), required_actions: BTreeSet::new() }
    }

    /// The same letting an agent do that here.
    pub fn with_allowed_actions<'a>(mut self, agent: &str, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed_actions.entry(agent.to_owned()).or_default().extend(actions.into_iter().map(str::to_owned));
        self
    }

    /// The same wanting a leave for these: names of blocks, or [`BODY_ACTION`].
    pub fn with_required_actions<'a>(mut self, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.required_actions.extend(actions.into_iter().map(str::to_owned));
        self
    }
}

/// Adds a grant to a frame: what agents may do with this message.
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
        "keyId": key.id(),
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

/// What an issuer signs: the grant's own fields, and the message's id.
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
    /// What the block grants, by agent.
    fn parse_grants(
        &self,
        work: &ProcessingContext<'_>,
        block: Map<String, Value>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Box<Fault>> {
        let content = BlockFields::new("authorization", block.clone());
        let issuer = content.require("issuer", content.uri("issuer")?)?;
        let key_id = content.require("keyId", content.text("keyId")?)?;
        let value = content.require("value", content.text("value")?)?;
        let grants = content.require("grants", content.objects("grants")?)?;
        let expires = content.timestamp("expires")?;
        if work.original.header.message_id().is_none() {
            return Err(violation("a grant is for one message, and this has no id"));
        }
        let key = self.keys.verify(key_id, PURPOSE, &signed_bytes(work.original, &block), value);
        let key = key.filter(|key| key.agent() == issuer);
        let key = key.ok_or_else(|| violation("the grant is not its issuer's, or not for this message"))?;
        if !key.has_permission(KeyPermission::Authorize) {
            return Err(violation(format!("`{issuer}` may not authorize others")));
        }
        if expires.is_some_and(|expires| expires <= work.now) {
            return Err(violation("the grant has expired"));
        }
        let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for grant in grants {
            let one = BlockFields::new("authorization", grant.clone());
            let agent = one.require("agent", one.uri("agent")?)?.to_owned();
            read.entry(agent).or_default().extend(one.require("actions", one.texts("actions")?)?);
        }
        Ok(read)
    }
}

impl Module for Authorization {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let mut grants = BTreeMap::new();
        if let Some(block) = work.targeted_block("authorization") {
            grants = self.parse_grants(work, block)?;
            work.audit_actions.push("checked the authorization".to_owned());
        }
        work.granted_actions.extend(grants.get(work.node.uri()).into_iter().flatten().cloned());
        let may = |action: &str| {
            let of = |all: &BTreeMap<String, BTreeSet<String>>| {
                work.sender.as_ref().and_then(|sender| all.get(sender)).is_some_and(|actions| actions.contains(action))
            };
            of(&self.allowed_actions) || of(&grants)
        };
        let asked = |action: &String| {
            if action == BODY_ACTION { !work.is_intermediary() } else { work.targeted_block(action).is_some() }
        };
        let sender = work.sender.as_deref().unwrap_or("a sender that nobody knows");
        for action in self.required_actions.iter().filter(|action| asked(action)) {
            if !may(action) {
                return Err(violation(format!("{sender} has no leave for `{action}`")));
            }
            if !is_covered_by_signature(action) {
                let problem =
                    format!("every node on the way may change `{action}`, so that {sender} has no leave for it");
                return Err(violation(problem));
            }
            if !work.is_intact {
                let problem = format!("no signature says that `{action}` is as {sender} sent it");
                return Err(violation(problem));
            }
        }
        Ok(())
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("authorization").is_some() { work.reinsert("authorization", None) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::node::{BodyProblem, BodySchema, Node};
    use super::super::super::relay::{ChangeAction, FrameChange};
    use super::super::super::rules;
    use super::super::audit::Audit;
    use super::super::authentication::{Authentication, authenticate};
    use super::super::keys::test_keys::secret_key;
    use super::super::routing::Routing;
    use super::super::signature::{Signature, sign};
    use super::super::test_support::{
        NOW, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, ultimate_receiver,
    };
    use super::*;

    fn keys() -> Arc<KeyRing> {
        let issuer = secret_key(2, "agent://issuer").public_key().with_permission(KeyPermission::Authorize);
        let active = secret_key(3, "agent://active").public_key().with_permission(KeyPermission::ModifyMessages);
        Arc::new([secret_key(1, "agent://sender").public_key(), issuer, active].into_iter().collect())
    }

    fn signed_frame(header: Value) -> Frame {
        let mut frame = frame(json!({"Header": header, "Body": {"task": "t"}}));
        authenticate(&mut frame, &secret_key(1, "agent://sender"), "n", NOW).expect("a good block");
        sign(&mut frame, &secret_key(1, "agent://sender"), NOW).expect("a good block");
        frame
    }

    fn with_trusted_keys(node: Node) -> Node {
        node.with_module(Authentication::optional(keys())).with_module(Signature::optional(keys()))
    }

    fn last(authorization: Authorization) -> Node {
        with_trusted_keys(ultimate_receiver()).with_module(authorization).with_understood_blocks(["deploy"])
    }

    fn authorization_required() -> Authorization {
        Authorization::new(keys()).with_required_actions([BODY_ACTION, "deploy"])
    }

    fn assert_refused(node: Node, frame: Frame) {
        let fault = expect_fault(node, frame);
        assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Authorization"), "{fault}");
        assert!(fault.escalate_to_human);
    }

    struct RejectAnyBody;

    impl BodySchema for RejectAnyBody {
        fn check(&self, _body: &Map<String, Value>) -> Result<(), BodyProblem> {
            Err(BodyProblem { pointer: String::new(), problem: "is never good".to_owned() })
        }
    }

    #[test]
    fn section_7_0_privileges_are_checked_before_sensitive_blocks_and_the_body() {
        let message = || signed_frame(json!({"messageId": "m", "deploy": {}}));
        assert_refused(last(authorization_required()).with_body_schema(RejectAnyBody), message());
        assert_refused(last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])), message());
        assert_refused(
            last(authorization_required().with_allowed_actions("agent://other", [BODY_ACTION, "deploy"])),
            message(),
        );
        expect_processed(
            last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION, "deploy"])),
            message(),
        );
        expect_processed(
            last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])),
            signed_frame(json!({"messageId": "m"})),
        );
        // Whoever does not say who it is has no privileges.
        assert_refused(
            last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION])),
            frame(json!({"Header": {"messageId": "m"}, "Body": {}})),
        );
    }

    #[test]
    fn section_7_0_authorized_content_must_be_signed_by_its_sender() {
        let node = || last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION, "deploy"]));
        let good = signed_frame(json!({"messageId": "m", "deploy": {"to": "test"}}));
        expect_processed(node(), good.clone());
        // The credential says who sent the message, and stays; what they sent is another now, and nothing says so.
        let mut stripped = good.clone();
        stripped.header.remove("signature");
        stripped.body.insert("task".to_owned(), json!("steal"));
        let told = expect_fault(node(), stripped.clone());
        assert!(told.reason_text().contains("no signature says that `Body` is as agent://sender sent it"), "{told}");
        assert_refused(node(), stripped.clone());
        // A grant does not mend it.
        let issuer = secret_key(2, "agent://issuer");
        authorize(&mut stripped, &issuer, [("agent://sender", &[BODY_ACTION, "deploy"] as &[&str])], None)
            .expect("good");
        assert_refused(node(), stripped);
        // Hidden from this node is stripped, too.
        let mut hidden = good;
        let mut block = hidden.header.block("signature").expect("there").properties.clone();
        block.insert("role".to_owned(), json!("none"));
        hidden.header.set_block("signature", block).expect("a good block");
        assert_refused(node(), hidden);
    }

    #[test]
    fn section_7_0_authorization_survives_only_trusted_intermediaries() {
        let node = || last(authorization_required().with_allowed_actions("agent://sender", [BODY_ACTION]));
        let active = || {
            let change = FrameChange {
                feature: "urn:x:e".to_owned(),
                action: ChangeAction::SetBodyChild("more".to_owned(), json!(1)),
            };
            let again = Signature::optional(keys()).with_resigning_key(Arc::new(secret_key(3, "agent://active")));
            let node = Node::active_intermediary("agent://active").expect("a node").with_changes([change]);
            node.with_module(Authentication::optional(keys())).with_module(again)
        };
        let good = signed_frame(json!({"messageId": "m"}));
        let passed = expect_relayed(with_trusted_keys(forwarding_intermediary()), good.clone()).frame;
        let changed = expect_processed(node(), expect_relayed(active(), passed).frame);
        assert_eq!((changed.sender.as_deref(), &changed.frame.body["more"]), (Some("agent://sender"), &json!(1)));
        // One that may change messages vouches for its own changes, and not for what came without a signature.
        let mut stripped = good;
        stripped.header.remove("signature");
        stripped.body.insert("task".to_owned(), json!("steal"));
        let passed = expect_relayed(active(), stripped).frame;
        assert!(passed.header.block("signature").is_none());
        assert_refused(node(), passed);
    }

    #[test]
    fn section_7_0_blocks_that_hops_may_change_cannot_be_authorized() {
        for name in ["routing", "audit", "ttl"] {
            let node = last(
                Authorization::new(keys()).with_required_actions([name]).with_allowed_actions("agent://sender", [name]),
            );
            expect_processed(node.clone(), signed_frame(json!({"messageId": "m"})));
            assert_refused(node, signed_frame(json!({"messageId": "m", name: {"role": "next"}})));
        }
    }

    #[test]
    fn section_7_0_a_grant_needs_an_authorized_issuer_and_this_message() {
        let with = |key: &SecretKey, expires: Option<Timestamp>| {
            let mut message = signed_frame(json!({"messageId": "m"}));
            authorize(&mut message, key, [("agent://sender", &[BODY_ACTION] as &[&str])], expires)
                .expect("a good block");
            message
        };
        let issuer = secret_key(2, "agent://issuer");
        expect_processed(last(authorization_required()), with(&issuer, None));
        expect_processed(last(authorization_required()), with(&issuer, Timestamp::from_second(1).ok()));
        assert_refused(last(authorization_required()), with(&issuer, Some(NOW)));
        assert_refused(last(authorization_required()), with(&secret_key(1, "agent://sender"), None));
        assert_refused(last(authorization_required()), with(&secret_key(9, "agent://issuer"), None));
        let good = with(&issuer, None).to_json();
        for (pointer, value) in [
            ("/frame/Header/messageId", json!("other")),
            ("/frame/Header/authorization/grants/0/agent", json!("agent://other")),
            ("/frame/Header/authorization/grants/0/actions", json!([BODY_ACTION, "deploy"])),
            ("/frame/Header/authorization/issuer", json!("agent://sender")),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect(pointer) = value;
            let node = ultimate_receiver().with_module(authorization_required());
            assert_refused(node, frame(bad["frame"].clone()));
        }
        let mut nameless = frame(json!({"Body": {}}));
        authorize(&mut nameless, &issuer, [("agent://sender", &[BODY_ACTION] as &[&str])], None).expect("a good block");
        assert_refused(ultimate_receiver().with_module(authorization_required()), nameless);
    }

    #[test]
    fn section_7_2_an_intermediary_with_a_validated_authorization_handles_side_effects() {
        let mut message = signed_frame(
            json!({"messageId": "m", "routing": {"role": "next", "relay": true, "to": "agent://last"}, "audit": {"role": "next", "relay": true}}),
        );
        let grants: [(&str, &[&str]); 1] = [("agent://middle", &["routing", "audit"])];
        let node = || {
            forwarding_intermediary()
                .with_module(Routing)
                .with_module(Audit::default())
                .with_module(Authorization::new(keys()))
        };
        let ignored = expect_relayed(node(), message.clone());
        assert_eq!((ignored.next_hop, ignored.frame), (None, message.clone()));
        authorize(&mut message, &secret_key(2, "agent://issuer"), grants, None).expect("a good block");
        let handled = expect_relayed(node(), message.clone());
        assert_eq!(handled.next_hop.as_deref(), Some("agent://last"));
        let block = handled.frame.header.block("audit").expect("a log");
        assert_eq!(block.content()["entries"][0]["agentUri"], json!("agent://middle"));
        assert!(handled.frame.header.block("authorization").is_some());
        // Without the module nobody validates it.
        let blind = forwarding_intermediary().with_module(Routing).with_understood_blocks(["authorization"]);
        assert_eq!(expect_relayed(blind, message).next_hop, None);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        let mut message = signed_frame(json!({"messageId": "m"}));
        authorize(
            &mut message,
            &secret_key(2, "agent://issuer"),
            [("agent://sender", &[BODY_ACTION] as &[&str])],
            None,
        )
        .expect("good");
        for key in ["issuer", "keyId", "grants", "value"] {
            let mut bad = message.to_json();
            bad.pointer_mut("/frame/Header/authorization")
                .and_then(Value::as_object_mut)
                .expect("there")
                .shift_remove(key);
            let refused = expect_fault(last(authorization_required()), frame(bad["frame"].clone()));
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{key}");
        }
    }
}
