//! Which versions a node supports, and how two nodes agree on one (2.8, 5.4.6, 7.0 rule 8).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:upgrade`: a mismatch of versions can be mended |
//! | node state | the node's [`SupportedVersions`], and the URIs of its modules, which end in their versions |
//! | block | `Upgrade: {supportedVersions: ["1.0"], modules?: ["urn:..:1"]}`, best first |
//! | processing | a `VersionMismatch` has the block in its Header, whether or not a node has this module; a node that has it reads the block of any message, and notes a version that both know and the message does not use |
//! | fault | `Sender`, subcode `BlockContent`, for a block that is none |
//! | Body | not looked at |
//! | other modules | none; versions of modules are in their URIs, and are agreed upon by those |
//!
//! Must not: choose for the sender; [`negotiate_version`] tells what it could choose.

use super::super::fault::Fault;
use super::super::process::ProcessingContext;
use super::super::version::SupportedVersions;
use super::block_fields::BlockFields;
use super::{Module, ModuleDescriptor, ModuleStage};

/// The module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upgrade;

const DESCRIPTOR: ModuleDescriptor = ModuleDescriptor {
    uri: "urn:longshore:mesh:module:upgrade:1",
    features: &["urn:longshore:mesh:feature:upgrade"],
    blocks: &["Upgrade"],
    stage: ModuleStage::Content,
};

/// The version to send in next, after a fault that says which are supported: the latest that both know.
pub fn negotiate_version(ours: &SupportedVersions, fault: &Fault) -> Option<String> {
    ours.latest_common(&fault.supported_versions)
}

impl Module for Upgrade {
    fn descriptor(&self) -> &'static ModuleDescriptor {
        &DESCRIPTOR
    }

    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = work.targeted_block("Upgrade") else { return Ok(()) };
        let content = BlockFields::new("Upgrade", block);
        let supported = content.require("supportedVersions", content.texts("supportedVersions")?)?;
        content.uris("modules")?;
        if let Some(better) = work.node.versions.latest_common(&supported)
            && work.original.version.as_deref().is_some_and(|version| version != better)
        {
            work.notes.push(format!("the sender could use version {better}"));
        }
        Ok(())
    }

    fn forward(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        if work.targeted_block("Upgrade").is_some() { work.reinsert("Upgrade", None) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::fault::FaultCode;
    use super::super::super::rules;
    use super::super::test_support::{expect_fault, expect_processed, frame, ultimate_receiver};
    use super::*;

    fn versions(all: &[&str]) -> SupportedVersions {
        all.iter().map(|version| (*version).to_owned()).collect()
    }

    #[test]
    fn section_2_8_two_nodes_agree_on_a_version() {
        let mut node = ultimate_receiver().with_module(Upgrade);
        node.versions = versions(&["1.0", "1.1"]);
        let mut sent = frame(json!({"Header": {"messageId": "m"}, "Body": {}}));
        sent.version = Some("2.0".to_owned());
        let mismatch = expect_fault(node.clone(), sent.clone());
        assert_eq!(mismatch.code, FaultCode::VersionMismatch);
        let json = mismatch.to_frame().to_json();
        let upgrade = &json["frame"]["Header"]["Upgrade"];
        assert_eq!(upgrade["supportedVersions"], json!(["1.0", "1.1"]));
        assert_eq!(upgrade["modules"], json!(["urn:longshore:mesh:module:upgrade:1"]));
        let told = Fault::from_frame(&mismatch.to_frame()).expect("a good fault").expect("a fault");
        assert_eq!(told.supported_modules, mismatch.supported_modules);
        assert_eq!(negotiate_version(&versions(&["2.0", "3.0"]), &told), None);
        let agreed = negotiate_version(&versions(&["2.0", "1.1", "1.0"]), &told);
        assert_eq!(agreed.as_deref(), Some("1.1"));
        sent.version = agreed;
        expect_processed(node, sent);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in
            [json!({}), json!({"supportedVersions": "1.0"}), json!({"supportedVersions": [], "modules": ["x"]})]
        {
            let refused = expect_fault(
                ultimate_receiver().with_module(Upgrade),
                frame(json!({"Header": {"Upgrade": block}, "Body": {}})),
            );
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
        let mut node = ultimate_receiver().with_module(Upgrade);
        node.versions = versions(&["1.0", "1.1"]);
        let offer = json!({"version": "1.0", "Header": {"Upgrade": {"supportedVersions": ["1.1", "1.0"]}}, "Body": {}});
        assert_eq!(expect_processed(node, frame(offer)).notes, ["the sender could use version 1.1"]);
    }
}
