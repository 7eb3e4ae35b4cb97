//! Version negotiation (2.8, 5.4.6, 7.0 rule 8).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:upgrade`: nodes recover from a version mismatch |
//! | node state | the node's [`SupportedVersions`](crate::protocol::mesh::version::SupportedVersions), and the URIs of its modules, which end in their versions |
//! | block | `Upgrade: {supportedVersions: ["1.0"], modules?: ["urn:..:1"]}`, best first |
//! | processing | every `VersionMismatch` carries the block, with or without this module. This module reads the block of other messages and notes a later common version |
//! | fault | `Sender`, subcode `BlockContent`, for an invalid block |
//! | Body | not read |
//! | other modules | none; modules have their versions in their URIs |
//!
//! Must not: choose for the sender.

use super::super::fault::Fault;
use super::super::node::{Module, ModuleDescriptor, ModuleStage, ProcessingContext};
use super::block_fields::BlockFields;

#[derive(Debug, Clone, Copy, Default)]
pub struct Upgrade;

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:upgrade:1",
    features: &["urn:longshore:mesh:feature:upgrade"],
    blocks: &["Upgrade"],
    stage: ModuleStage::Content,
};

impl Module for Upgrade {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = context.targeted_block("Upgrade") else { return Ok(()) };
        let content = BlockFields::new("Upgrade", block);
        let supported = content.require("supportedVersions", content.texts("supportedVersions")?)?;
        content.uris("modules")?;
        if let Some(better) = context.node.versions.latest_common(&supported)
            && context.original.version.as_deref().is_some_and(|version| version != better)
        {
            context.record.notes.push(format!("the sender could use version {better}"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/upgrade.rs"]
mod tests;
