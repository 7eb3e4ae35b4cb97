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
use super::super::node::Place;
use super::super::process::Work;
use super::super::rules;
use super::content::{Content, set_content};
use super::{About, Module, Stage};

/// The module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Routing;

const ABOUT: About = About {
    uri: "urn:longshore:mesh:module:routing:1",
    features: &["urn:longshore:mesh:feature:source-routing"],
    blocks: &["routing"],
    stage: Stage::Routing,
};

struct Way {
    to: Option<String>,
    path: Vec<String>,
    visited: Vec<String>,
}

fn way(work: &Work<'_>) -> Result<Option<Way>, Box<Fault>> {
    let Some(block) = work.block("routing").filter(|_| work.may("routing")) else { return Ok(None) };
    let content = Content::of("routing", block);
    Ok(Some(Way {
        to: content.uri("to")?.map(str::to_owned),
        path: content.uris("path")?.unwrap_or_default(),
        visited: content.uris("visited")?.unwrap_or_default(),
    }))
}

impl Module for Routing {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let Some(way) = way(work)? else { return Ok(()) };
        let own = work.node.uri();
        if work.node.place() == Place::Ultimate {
            return match way.to {
                Some(to) if to != own => {
                    let text = format!("the message is for `{to}`, and this is `{own}`");
                    Err(Fault::sender(rules::MISROUTED, text).at("/frame/Header/routing/to"))
                }
                _ => Ok(()),
            };
        }
        if way.visited.iter().any(|node| node == own) {
            let text = format!("the message was at `{own}` before");
            return Err(Fault::sender(rules::ROUTING_LOOP, text).at("/frame/Header/routing/visited"));
        }
        Ok(())
    }

    fn forward(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let Some(mut way) = way(work)? else { return Ok(()) };
        let own = work.node.uri().to_owned();
        if way.path.first() == Some(&own) {
            way.path.remove(0);
        }
        way.visited.push(own);
        work.next = way.path.first().or(way.to.as_ref()).cloned();
        let mut block = work.properties("routing");
        set_content(&mut block, "path", json!(way.path));
        set_content(&mut block, "visited", json!(way.visited));
        work.reinsert("routing", Some(block))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::Frame;
    use super::super::super::node::Node;
    use super::super::testing::{fault, frame, processed, relayed, ultimate};
    use super::*;

    fn routed() -> Frame {
        let block = json!({"role": "next", "to": "agent://last", "path": ["agent://one", "agent://two"], "mustUnderstand": true});
        frame(json!({"Header": {"routing": block}, "Body": {}}))
    }

    fn node(uri: &str) -> Node {
        Node::forwarding(uri).expect("a node").with(Routing).authorized(["routing"])
    }

    #[test]
    fn section_2_7_rule_4_the_message_goes_the_way_that_its_header_says() {
        let one = relayed(node("agent://one"), routed());
        assert_eq!(one.next.as_deref(), Some("agent://two"));
        let two = relayed(node("agent://two"), one.frame);
        assert_eq!(two.next.as_deref(), Some("agent://last"));
        let expected = json!({
            "role": "next", "to": "agent://last", "path": [], "mustUnderstand": true, "visited": ["agent://one", "agent://two"]
        });
        assert_eq!(two.frame.to_json()["frame"]["Header"]["routing"], expected);
        assert_eq!(processed(ultimate().with(Routing), two.frame).processed, ["routing"]);
    }

    #[test]
    fn a_message_that_comes_back_or_went_astray_ends() {
        let one = relayed(node("agent://one"), routed()).frame;
        assert_eq!(fault(node("agent://one"), one.clone()).subcode.as_deref(), Some(rules::ROUTING_LOOP));
        let other = Node::ultimate("agent://other").expect("a node").with(Routing);
        assert_eq!(fault(other, one).subcode.as_deref(), Some(rules::MISROUTED));
    }

    #[test]
    fn section_7_2_an_intermediary_that_is_not_authorized_does_not_touch_the_block() {
        let mut optional = routed();
        let mut block = optional.header.block("routing").expect("it is there").properties.clone();
        block.insert("mustUnderstand".to_owned(), json!(false));
        block.insert("relay".to_owned(), json!(true));
        optional.header.set_block("routing", block).expect("a good block");
        let stranger = Node::forwarding("agent://one").expect("a node").with(Routing);
        let passed = relayed(stranger.clone(), optional.clone());
        assert_eq!((passed.next, passed.frame), (None, optional));
        assert_eq!(fault(stranger, routed()).not_understood, ["routing"]);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in
            [json!({"to": "last"}), json!({"path": "agent://a"}), json!({"path": [1]}), json!({"visited": ["x"]})]
        {
            let refused = fault(ultimate().with(Routing), frame(json!({"Header": {"routing": block}, "Body": {}})));
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
    }
}
