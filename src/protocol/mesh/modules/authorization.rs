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

use super::super::canonical::canonical;
use super::super::fault::Fault;
use super::super::frame::Frame;
use super::super::process::Work;
use super::content::Content;
use super::keys::{KeyRing, Right, SecretKey};
use super::signature::is_answered_for;
use super::{About, Module, Stage};

/// The action of having the Body processed.
pub const BODY: &str = "Body";

/// The module.
#[derive(Debug, Clone)]
pub struct Authorization {
    keys: Arc<KeyRing>,
    allowed: BTreeMap<String, BTreeSet<String>>,
    needed: BTreeSet<String>,
}

const ABOUT: About = About {
    uri: "urn:longshore:mesh:module:authorization:1",
    features: &["urn:longshore:mesh:feature:authorization"],
    blocks: &["authorization"],
    stage: Stage::Permission,
};

const PURPOSE: &str = "authorization";

impl Authorization {
    /// One that reads grants and asks for nothing.
    pub fn new(keys: Arc<KeyRing>) -> Self {
        Self { keys, allowed: BTreeMap::new(), needed: BTreeSet::new() }
    }

    /// The same letting an agent do that here.
    pub fn allowing<'a>(mut self, agent: &str, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed.entry(agent.to_owned()).or_default().extend(actions.into_iter().map(str::to_owned));
        self
    }

    /// The same wanting a leave for these: names of blocks, or [`BODY`].
    pub fn needing<'a>(mut self, actions: impl IntoIterator<Item = &'a str>) -> Self {
        self.needed.extend(actions.into_iter().map(str::to_owned));
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
    let value = key.sign(PURPOSE, &granted(frame, fields));
    fields.insert("value".to_owned(), json!(value));
    frame.header.set_block("authorization", fields.clone())
}

/// What an issuer signs: the grant's own fields, and the message's id.
fn granted(frame: &Frame, block: &Map<String, Value>) -> Vec<u8> {
    let mut fields = block.clone();
    for key in ["value", "role", "relay", "mustUnderstand"] {
        fields.shift_remove(key);
    }
    canonical(&json!({"authorization": fields, "messageId": frame.header.message_id()}))
}

fn violation(problem: impl Into<String>) -> Box<Fault> {
    Fault::security("Authorization", problem).at("/frame/Header/authorization").escalated()
}

impl Authorization {
    /// What the block grants, by agent.
    fn read(
        &self,
        work: &Work<'_>,
        block: Map<String, Value>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Box<Fault>> {
        let content = Content::of("authorization", block.clone());
        let issuer = content.must("issuer", content.uri("issuer")?)?;
        let key_id = content.must("keyId", content.text("keyId")?)?;
        let value = content.must("value", content.text("value")?)?;
        let grants = content.must("grants", content.objects("grants")?)?;
        let expires = content.time("expires")?;
        if work.original.header.message_id().is_none() {
            return Err(violation("a grant is for one message, and this has no id"));
        }
        let key = self.keys.verify(key_id, PURPOSE, &granted(work.original, &block), value);
        let key = key.filter(|key| key.agent() == issuer);
        let key = key.ok_or_else(|| violation("the grant is not its issuer's, or not for this message"))?;
        if !key.may(Right::Authorize) {
            return Err(violation(format!("`{issuer}` may not authorize others")));
        }
        if expires.is_some_and(|expires| expires <= work.now) {
            return Err(violation("the grant has expired"));
        }
        let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for grant in grants {
            let one = Content::of("authorization", grant.clone());
            let agent = one.must("agent", one.uri("agent")?)?.to_owned();
            read.entry(agent).or_default().extend(one.must("actions", one.texts("actions")?)?);
        }
        Ok(read)
    }
}

impl Module for Authorization {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let mut grants = BTreeMap::new();
        if let Some(block) = work.block("authorization") {
            grants = self.read(work, block)?;
            work.actions.push("checked the authorization".to_owned());
        }
        work.granted.extend(grants.get(work.node.uri()).into_iter().flatten().cloned());
        let may = |action: &str| {
            let of = |all: &BTreeMap<String, BTreeSet<String>>| {
                work.sender.as_ref().and_then(|sender| all.get(sender)).is_some_and(|actions| actions.contains(action))
            };
            of(&self.allowed) || of(&grants)
        };
        let asked = |action: &String| if action == BODY { !work.relays() } else { work.block(action).is_some() };
        let sender = work.sender.as_deref().unwrap_or("a sender that nobody knows");
        for action in self.needed.iter().filter(|action| asked(action)) {
            if !may(action) {
                return Err(violation(format!("{sender} has no leave for `{action}`")));
            }
            if !is_answered_for(action) {
                let problem =
                    format!("every node on the way may change `{action}`, so that {sender} has no leave for it");
                return Err(violation(problem));
            }
            if !work.intact {
                let problem = format!("no signature says that `{action}` is as {sender} sent it");
                return Err(violation(problem));
            }
        }
        Ok(())
    }

    fn forward(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        if work.block("authorization").is_some() { work.reinsert("authorization", None) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::node::{BodyProblem, BodySchema, Node};
    use super::super::super::relay::{Change, What};
    use super::super::super::rules;
    use super::super::audit::Audit;
    use super::super::authentication::{Authentication, authenticate};
    use super::super::keys::testing::secret;
    use super::super::routing::Routing;
    use super::super::signature::{Signature, sign};
    use super::super::testing::{NOW, fault, forwarding, frame, processed, relayed, ultimate};
    use super::*;

    fn keys() -> Arc<KeyRing> {
        let issuer = secret(2, "agent://issuer").public().with(Right::Authorize);
        let active = secret(3, "agent://active").public().with(Right::Change);
        Arc::new([secret(1, "agent://sender").public(), issuer, active].into_iter().collect())
    }

    fn sent(header: Value) -> Frame {
        let mut frame = frame(json!({"Header": header, "Body": {"task": "t"}}));
        authenticate(&mut frame, &secret(1, "agent://sender"), "n", NOW).expect("a good block");
        sign(&mut frame, &secret(1, "agent://sender"), NOW).expect("a good block");
        frame
    }

    fn trusting(node: Node) -> Node {
        node.with(Authentication::checking(keys())).with(Signature::checking(keys()))
    }

    fn last(authorization: Authorization) -> Node {
        trusting(ultimate()).with(authorization).understanding(["deploy"])
    }

    fn needing() -> Authorization {
        Authorization::new(keys()).needing([BODY, "deploy"])
    }

    fn refused(node: Node, frame: Frame) {
        let fault = fault(node, frame);
        assert_eq!(fault.subcode.as_deref(), Some("SecurityViolation.Authorization"), "{fault}");
        assert!(fault.escalate_to_human);
    }

    struct Nothing;

    impl BodySchema for Nothing {
        fn check(&self, _body: &Map<String, Value>) -> Result<(), BodyProblem> {
            Err(BodyProblem { pointer: String::new(), problem: "is never good".to_owned() })
        }
    }

    #[test]
    fn section_7_0_privileges_are_known_before_sensitive_blocks_and_the_body() {
        let message = || sent(json!({"messageId": "m", "deploy": {}}));
        refused(last(needing()).agreeing(Nothing), message());
        refused(last(needing().allowing("agent://sender", [BODY])), message());
        refused(last(needing().allowing("agent://other", [BODY, "deploy"])), message());
        processed(last(needing().allowing("agent://sender", [BODY, "deploy"])), message());
        processed(last(needing().allowing("agent://sender", [BODY])), sent(json!({"messageId": "m"})));
        // Whoever does not say who it is has no privileges.
        refused(
            last(needing().allowing("agent://sender", [BODY])),
            frame(json!({"Header": {"messageId": "m"}, "Body": {}})),
        );
    }

    #[test]
    fn section_7_0_what_needs_a_leave_counts_only_as_its_sender_signed_it() {
        let node = || last(needing().allowing("agent://sender", [BODY, "deploy"]));
        let good = sent(json!({"messageId": "m", "deploy": {"to": "test"}}));
        processed(node(), good.clone());
        // The credential says who sent the message, and stays; what they sent is another now, and nothing says so.
        let mut stripped = good.clone();
        stripped.header.remove("signature");
        stripped.body.insert("task".to_owned(), json!("steal"));
        let told = fault(node(), stripped.clone());
        assert!(told.text().contains("no signature says that `Body` is as agent://sender sent it"), "{told}");
        refused(node(), stripped.clone());
        // A grant does not mend it.
        let issuer = secret(2, "agent://issuer");
        authorize(&mut stripped, &issuer, [("agent://sender", &[BODY, "deploy"] as &[&str])], None).expect("good");
        refused(node(), stripped);
        // Hidden from this node is stripped, too.
        let mut hidden = good;
        let mut block = hidden.header.block("signature").expect("there").properties.clone();
        block.insert("role".to_owned(), json!("none"));
        hidden.header.set_block("signature", block).expect("a good block");
        refused(node(), hidden);
    }

    #[test]
    fn section_7_0_leaves_outlive_honest_intermediaries_and_no_others() {
        let node = || last(needing().allowing("agent://sender", [BODY]));
        let active = || {
            let change = Change { feature: "urn:x:e".to_owned(), what: What::SetBody("more".to_owned(), json!(1)) };
            let again = Signature::checking(keys()).signing_again(Arc::new(secret(3, "agent://active")));
            let node = Node::active("agent://active").expect("a node").changing([change]);
            node.with(Authentication::checking(keys())).with(again)
        };
        let good = sent(json!({"messageId": "m"}));
        let passed = relayed(trusting(forwarding()), good.clone()).frame;
        let changed = processed(node(), relayed(active(), passed).frame);
        assert_eq!((changed.sender.as_deref(), &changed.frame.body["more"]), (Some("agent://sender"), &json!(1)));
        // One that may change messages vouches for its own changes, and not for what came without a signature.
        let mut stripped = good;
        stripped.header.remove("signature");
        stripped.body.insert("task".to_owned(), json!("steal"));
        let passed = relayed(active(), stripped).frame;
        assert!(passed.header.block("signature").is_none());
        refused(node(), passed);
    }

    #[test]
    fn section_7_0_nobody_answers_for_what_every_node_may_change() {
        for name in ["routing", "audit", "ttl"] {
            let node = last(Authorization::new(keys()).needing([name]).allowing("agent://sender", [name]));
            processed(node.clone(), sent(json!({"messageId": "m"})));
            refused(node, sent(json!({"messageId": "m", name: {"role": "next"}})));
        }
    }

    #[test]
    fn section_7_0_a_grant_counts_if_its_issuer_may_authorize_and_it_is_for_this_message() {
        let with = |key: &SecretKey, expires: Option<Timestamp>| {
            let mut message = sent(json!({"messageId": "m"}));
            authorize(&mut message, key, [("agent://sender", &[BODY] as &[&str])], expires).expect("a good block");
            message
        };
        let issuer = secret(2, "agent://issuer");
        processed(last(needing()), with(&issuer, None));
        processed(last(needing()), with(&issuer, Timestamp::from_second(1).ok()));
        refused(last(needing()), with(&issuer, Some(NOW)));
        refused(last(needing()), with(&secret(1, "agent://sender"), None));
        refused(last(needing()), with(&secret(9, "agent://issuer"), None));
        let good = with(&issuer, None).to_json();
        for (pointer, value) in [
            ("/frame/Header/messageId", json!("other")),
            ("/frame/Header/authorization/grants/0/agent", json!("agent://other")),
            ("/frame/Header/authorization/grants/0/actions", json!([BODY, "deploy"])),
            ("/frame/Header/authorization/issuer", json!("agent://sender")),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect(pointer) = value;
            let node = ultimate().with(needing());
            refused(node, frame(bad["frame"].clone()));
        }
        let mut nameless = frame(json!({"Body": {}}));
        authorize(&mut nameless, &issuer, [("agent://sender", &[BODY] as &[&str])], None).expect("a good block");
        refused(ultimate().with(needing()), nameless);
    }

    #[test]
    fn section_7_2_an_intermediary_with_a_validated_authorization_handles_side_effects() {
        let mut message = sent(
            json!({"messageId": "m", "routing": {"role": "next", "relay": true, "to": "agent://last"}, "audit": {"role": "next", "relay": true}}),
        );
        let grants: [(&str, &[&str]); 1] = [("agent://middle", &["routing", "audit"])];
        let node = || forwarding().with(Routing).with(Audit::default()).with(Authorization::new(keys()));
        let ignored = relayed(node(), message.clone());
        assert_eq!((ignored.next, ignored.frame), (None, message.clone()));
        authorize(&mut message, &secret(2, "agent://issuer"), grants, None).expect("a good block");
        let handled = relayed(node(), message.clone());
        assert_eq!(handled.next.as_deref(), Some("agent://last"));
        let block = handled.frame.header.block("audit").expect("a log");
        assert_eq!(block.content()["entries"][0]["agentUri"], json!("agent://middle"));
        assert!(handled.frame.header.block("authorization").is_some());
        // Without the module nobody validates it.
        let blind = forwarding().with(Routing).understanding(["authorization"]);
        assert_eq!(relayed(blind, message).next, None);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        let mut message = sent(json!({"messageId": "m"}));
        authorize(&mut message, &secret(2, "agent://issuer"), [("agent://sender", &[BODY] as &[&str])], None)
            .expect("good");
        for key in ["issuer", "keyId", "grants", "value"] {
            let mut bad = message.to_json();
            bad.pointer_mut("/frame/Header/authorization")
                .and_then(Value::as_object_mut)
                .expect("there")
                .shift_remove(key);
            let refused = fault(last(needing()), frame(bad["frame"].clone()));
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{key}");
        }
    }
}
