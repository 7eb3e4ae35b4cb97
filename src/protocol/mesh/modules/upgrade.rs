//! Which versions a node supports, and how two nodes agree on one (2.8, 5.4.6, 7.0 rule 8).
//!
//! | | |
//! |---|---|
//! | feature | `urn:longshore:mesh:feature:upgrade`: a mismatch of versions can be mended |
//! | node state | the node's [`Versions`], and the URIs of its modules, which end in their versions |
//! | block | `Upgrade: {supportedVersions: ["1.0"], modules?: ["urn:..:1"]}`, best first |
//! | processing | a `VersionMismatch` has the block in its Header, whether or not a node has this module; a node that has it reads the block of any message, and notes a version that both know and the message does not use |
//! | fault | `Sender`, subcode `BlockContent`, for a block that is none |
//! | Body | not looked at |
//! | other modules | none; versions of modules are in their URIs, and are agreed upon by those |
//!
//! Must not: choose for the sender; [`agree`] tells what it could choose.

use super::super::fault::Fault;
use super::super::process::Work;
use super::super::version::Versions;
use super::content::Content;
use super::{About, Module, Stage};

/// The module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upgrade;

const ABOUT: About = About {
    uri: "urn:longshore:mesh:module:upgrade:1",
    features: &["urn:longshore:mesh:feature:upgrade"],
    blocks: &["Upgrade"],
    stage: Stage::Content,
};

/// The version to send in next, after a fault that says which are supported: the latest that both know.
pub fn agree(ours: &Versions, fault: &Fault) -> Option<String> {
    ours.latest_of(&fault.supported)
}

impl Module for Upgrade {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        let Some(block) = work.block("Upgrade") else { return Ok(()) };
        let content = Content::of("Upgrade", block);
        let supported = content.must("supportedVersions", content.texts("supportedVersions")?)?;
        content.uris("modules")?;
        if let Some(better) = work.node.versions.latest_of(&supported)
            && work.original.version.as_deref().is_some_and(|version| version != better)
        {
            work.notes.push(format!("the sender could use version {better}"));
        }
        Ok(())
    }

    fn forward(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        if work.block("Upgrade").is_some() { work.reinsert("Upgrade", None) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::fault::Code;
    use super::super::super::rules;
    use super::super::testing::{fault, frame, processed, ultimate};
    use super::*;

    fn versions(all: &[&str]) -> Versions {
        all.iter().map(|version| (*version).to_owned()).collect()
    }

    #[test]
    fn section_2_8_two_nodes_agree_on_a_version() {
        let mut node = ultimate().with(Upgrade);
        node.versions = versions(&["1.0", "1.1"]);
        let mut sent = frame(json!({"Header": {"messageId": "m"}, "Body": {}}));
        sent.version = Some("2.0".to_owned());
        let mismatch = fault(node.clone(), sent.clone());
        assert_eq!(mismatch.code, Code::VersionMismatch);
        let json = mismatch.frame().to_json();
        let upgrade = &json["frame"]["Header"]["Upgrade"];
        assert_eq!(upgrade["supportedVersions"], json!(["1.0", "1.1"]));
        assert_eq!(upgrade["modules"], json!(["urn:longshore:mesh:module:upgrade:1"]));
        let told = Fault::read(&mismatch.frame()).expect("a good fault").expect("a fault");
        assert_eq!(told.modules, mismatch.modules);
        assert_eq!(agree(&versions(&["2.0", "3.0"]), &told), None);
        let agreed = agree(&versions(&["2.0", "1.1", "1.0"]), &told);
        assert_eq!(agreed.as_deref(), Some("1.1"));
        sent.version = agreed;
        processed(node, sent);
    }

    #[test]
    fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
        for block in
            [json!({}), json!({"supportedVersions": "1.0"}), json!({"supportedVersions": [], "modules": ["x"]})]
        {
            let refused = fault(ultimate().with(Upgrade), frame(json!({"Header": {"Upgrade": block}, "Body": {}})));
            assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
        }
        let mut node = ultimate().with(Upgrade);
        node.versions = versions(&["1.0", "1.1"]);
        let offer = json!({"version": "1.0", "Header": {"Upgrade": {"supportedVersions": ["1.1", "1.0"]}}, "Body": {}});
        assert_eq!(processed(node, frame(offer)).notes, ["the sender could use version 1.1"]);
    }
}
