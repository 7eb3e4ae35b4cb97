//! Where a message goes: the nodes that it has to pass, and the one that it is for.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:source-routing`: the sender names the way |
//! | node state | the node's URI; whether it may handle `routing` (7.2, rule 3) |
//! | block | `routing: {role: "next", to?: URI, path?: [URI], visited?: [URI]}`: whom it is for, who is still to be passed, who was |
//! | processing | an intermediary takes itself off the front of `path`, adds itself to `visited` and passes the message to the front of `path`, or else to `to`; the outcome says to whom. The ultimate receiver takes what is for it, or for nobody in particular |
//! | fault | `Sender`, subcode `RoutingLoop` at a node that is in `visited` already, `Misrouted` at an ultimate receiver that is not `to` |
//! | Body | not looked at; not processed where it was not meant to go |
//! | other modules | acts after those of security; `signature` leaves `routing` out, because every hop changes it |
//!
//! An intermediary that may not handle the block ignores it; then the caller decides where the message goes. Must not: send.

use serde_json::json;

use super::super::fault::Fault;
use super::super::node::NodeKind;
use super::super::process::ProcessingContext;
use super::super::rules;
use super::block_fields::{BlockFields, set_block_field};
use super::{Module, ModuleDescriptor, ModuleStage};

/// The module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Routing;

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:routing:1",
    features: &["urn:longshore:mesh:feature:source-routing"],
    blocks: &["routing"],
    stage: ModuleStage::Routing,
};

struct RoutingBlock {
    to: Option<String>,
    path: Vec<String>,
    visited: Vec<String>,
}

fn parse_routing_block(work: &ProcessingContext<'_>) -> Result<Option<RoutingBlock>, Box<Fault>> {
    let Some(block) = work.targeted_block("routing").filter(|_| work.is_authorized_for("routing")) else {
        return Ok(None);
    };
    let content = BlockFields::new("routing", block);
    Ok(Some(RoutingBlock {
        to: content.uri("to")?.map(str::to_owned),
        path: content.uris("path")?.unwrap_or_default(),
        visited: content.uris("visited")?.unwrap_or_default(),
    }))
}

impl Module for Routing {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(way) = parse_routing_block(work)? else { return Ok(()) };
        let own = work.node.uri();
        if work.node.kind() == NodeKind::UltimateReceiver {
            return match way.to {
                Some(to) if to != own => {
                    let text = format!("the message is for `{to}`, and this is `{own}`");
                    Err(Fault::sender(rules::MISROUTED, text).at_pointer("/frame/Header/routing/to"))
                }
                _ => Ok(()),
            };
        }
        if way.visited.iter().any(|node| node == own) {
            let text = format!("the message was at `{own}` before");
            return Err(Fault::sender(rules::ROUTING_LOOP, text).at_pointer("/frame/Header/routing/visited"));
        }
        Ok(())
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(mut way) = parse_routing_block(work)? else { return Ok(()) };
        let own = work.node.uri().to_owned();
        if way.path.first() == Some(&own) {
            way.path.remove(0);
        }
        way.visited.push(own);
        work.next_hop = way.path.first().or(way.to.as_ref()).cloned();
        let mut block = work.block_properties("routing");
        set_block_field(&mut block, "path", json!(way.path));
        set_block_field(&mut block, "visited", json!(way.visited));
        work.reinsert("routing", Some(block))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::Frame;
    use super::super::super::node::Node;
    use super::super::test_support::{expect_fault, expect_processed, expect_relayed, frame, ultimate_receiver};
    use super::*;

    fn routed_frame() -> Frame {
        let block = json!({"role": "next", "to": "agent://last", "path": ["agent://one", "agent://two"], "mustUnderstand": true});
        frame(json!({"Header": {"routing": block}, "Body": {}}))
    }

    fn routing_intermediary(uri: &str) -> Node {
        Node::forwarding_intermediary(uri).expect("a node").with_module(Routing).with_authorized_blocks(["routing"])
    }

    #[test]
    fn section_2_7_rule_4_the_message_follows_the_path_in_its_header() {
        let one = expect_relayed(routing_intermediary("agent://one"), routed_frame());
        assert_eq!(one.next_hop.as_deref(), Some("agent://two"));
        let two = expect_relayed(routing_intermediary("agent://two"), one.frame);
        assert_eq!(two.next_hop.as_deref(), Some("agent://last"));
        let expected = json!({
            "role": "next", "to": "agent://last", "path": [], "mustUnderstand": true, "visited": ["agent://one", "agent://two"]
        });
        assert_eq!(two.frame.to_json()["frame"]["Header"]["routing"], expected);
        assert_eq!(expect_processed(ultimate_receiver().with_module(Routing), two.frame).processed_blocks, ["routing"]);
    }

    #[test]
    fn looped_and_misrouted_messages_are_refused() {
        let one = expect_relayed(routing_intermediary("agent://one"), routed_frame()).frame;
        assert_eq!(
            expect_fault(routing_intermediary("agent://one"), one.clone()).subcode.as_deref(),
            Some(rules::ROUTING_LOOP)
        );
        let other = Node::ultimate_receiver("agent://other").expect("a node").with_module(Routing);
        assert_eq!(expect_fault(other, one).subcode.as_deref(), Some(rules::MISROUTED));
    }

    #[test]
    fn section_7_2_an_unauthorized_intermediary_ignores_the_block() {
        let mut optional = routed_frame();
        let mut block = optional.header.block("routing").expect("it is there").properties.clone();
        block.insert("mustUnderstand".to_owned(), json!(false));
        block.insert("relay".to_owned(), json!(true));
        optional.header.set_block("routing", block).expect("a good block");
        let stranger = Node::forwarding_intermediary("agent://one").expect("a node").with_module(Routing);
        let passed = expect_relayed(stranger.clone(), optional.clone());
        assert_eq!((passed.next_hop, passed.frame), (None, optional));
        assert_eq!(expect_fault(stranger, routed_frame()).not_understood, ["routing"]);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in
            [json!({"to": "last"}), json!({"path": "agent://a"}), json!({"path": [1]}), json!({"visited": ["x"]})]
        {
            let refused = expect_fault(
                ultimate_receiver().with_module(Routing),
                frame(json!({"Header": {"routing": block}, "Body": {}})),
            );
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
    }
}
