//! Source routing: the nodes that a message passes, and its receiver.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:source-routing`: the sender chooses the path |
//! | node state | the node's URI; whether it may process `routing` (7.2, rule 3) |
//! | block | `routing: {role: "next", to?: URI, path?: [URI], visited?: [URI]}`: receiver, remaining nodes, passed nodes |
//! | processing | an intermediary removes itself from the front of `path`, appends itself to `visited`, and chooses the front of `path`, or else `to`, as next hop. The ultimate receiver accepts messages that name it or no receiver |
//! | fault | `Sender`, subcode `RoutingLoop` at a node that is in `visited` already, `Misrouted` at an ultimate receiver other than `to` |
//! | Body | not read; not processed by the wrong receiver |
//! | other modules | acts after the security modules; `signature` does not cover `routing`, as every hop changes it |
//!
//! An unauthorized intermediary ignores the block and leaves the next hop to its caller. Must not: send.

use serde_json::json;

use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::super::rules;
use super::block_fields::{BlockFields, set_block_field};

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

fn parse_routing_block(context: &ProcessingContext<'_>) -> Result<Option<RoutingBlock>, Box<Fault>> {
    let Some(block) = context.targeted_block("routing").filter(|_| context.is_authorized_for("routing")) else {
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

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(routing) = parse_routing_block(context)? else { return Ok(()) };
        let own = context.node.uri();
        if !context.is_intermediary() {
            return match routing.to {
                Some(to) if to != own => {
                    let text = format!("the message is for `{to}`, this node is `{own}`");
                    Fault::reject(rules::MISROUTED, "/frame/Header/routing/to", text)
                }
                _ => Ok(()),
            };
        }
        if routing.visited.iter().any(|node| node == own) {
            let text = format!("the message passed `{own}` before");
            return Fault::reject(rules::ROUTING_LOOP, "/frame/Header/routing/visited", text);
        }
        Ok(())
    }

    fn forward(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(mut routing) = parse_routing_block(context)? else { return Ok(()) };
        let own = context.node.uri().to_owned();
        if routing.path.first() == Some(&own) {
            routing.path.remove(0);
        }
        routing.visited.push(own);
        context.next_hop = routing.path.first().or(routing.to.as_ref()).cloned();
        let mut block = context.block_properties("routing");
        set_block_field(&mut block, "path", json!(routing.path));
        set_block_field(&mut block, "visited", json!(routing.visited));
        context.reinsert("routing", Some(block))
    }
}

#[cfg(test)]
#[path = "tests/routing.rs"]
mod tests;
