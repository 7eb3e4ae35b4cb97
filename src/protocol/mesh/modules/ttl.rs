//! Lifetime of a message, in hops and time.
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:lifetime`: a message that loops or arrives late ends |
//! | node state | none |
//! | block | `Header.ttl: 3` (1.4), for every node; or `ttl: {hops?: 3, expires?: "2025-06-26T15:00:00Z"}` for the nodes of its role |
//! | processing | any node refuses a message at or after `expires`; an intermediary refuses a message with 0 hops left, and otherwise forwards it with one hop less |
//! | fault | `Sender`, subcode `amp:TTLExpired` (1.5.2), as resending the message unchanged fails again |
//! | Body | not read; not processed once the message has expired |
//! | other modules | acts first; `signature` does not cover `ttl`, as every hop changes it |

use serde_json::json;

use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::super::rules;
use super::super::syntax::parse_whole_number;
use super::block_fields::{BlockFields, set_block_field};

#[derive(Debug, Clone, Copy, Default)]
pub struct Ttl;

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:ttl:1",
    features: &["urn:longshore:mesh:feature:lifetime"],
    blocks: &["ttl"],
    stage: ModuleStage::Lifetime,
};

fn ttl_expired(text: &str) -> Box<Fault> {
    Fault::sender(rules::TTL_EXPIRED, text).at_pointer("/frame/Header/ttl")
}

fn remaining_hops(context: &ProcessingContext<'_>) -> Result<Option<u64>, Box<Fault>> {
    match context.targeted_block("ttl") {
        Some(block) => BlockFields::new("ttl", block).whole_number("hops"),
        None => Ok(context.original.header.get("ttl").and_then(parse_whole_number)),
    }
}

impl Module for Ttl {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if let Some(block) = context.targeted_block("ttl")
            && let Some(expires) = BlockFields::new("ttl", block).timestamp("expires")?
            && expires <= context.now
        {
            return Err(ttl_expired(&format!("the message expired at {expires}")));
        }
        if remaining_hops(context)? == Some(0) && context.is_intermediary() {
            return Err(ttl_expired("the message has no hops left"));
        }
        Ok(())
    }

    fn forward(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let left = remaining_hops(context)?.map(|hops| hops.saturating_sub(1));
        match (left, context.targeted_block("ttl")) {
            (Some(left), None) => context.frame.header.set("ttl", json!(left)),
            (left, Some(_)) => {
                let mut block = context.block_properties("ttl");
                if let Some(left) = left {
                    set_block_field(&mut block, "hops", json!(left));
                }
                context.reinsert("ttl", Some(block))
            }
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "tests/ttl.rs"]
mod tests;
