//! Tests of `upgrade.rs`.

use serde_json::json;

use super::super::super::fault::FaultCode;
use super::super::super::rules;
use super::super::super::version::SupportedVersions;
use super::*;
use crate::protocol::mesh::tests::support::{expect_fault, expect_processed, frame, ultimate_receiver};

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
    let fault = Fault::from_frame(&mismatch.to_frame()).expect("a valid fault").expect("a fault");
    assert_eq!(fault.supported_modules, mismatch.supported_modules);
    assert_eq!(versions(&["2.0", "3.0"]).latest_common(&fault.supported_versions), None);
    let agreed = versions(&["2.0", "1.1", "1.0"]).latest_common(&fault.supported_versions);
    assert_eq!(agreed.as_deref(), Some("1.1"));
    sent.version = agreed;
    expect_processed(node, sent);
}

#[test]
fn section_2_6_and_5_2_1_the_module_validates_its_fields() {
    for block in [json!({}), json!({"supportedVersions": "1.0"}), json!({"supportedVersions": [], "modules": ["x"]})] {
        let refused = expect_fault(
            ultimate_receiver().with_module(Upgrade),
            frame(json!({"Header": {"Upgrade": block}, "Body": {}})),
        );
        assert_eq!(refused.subcode.as_deref(), Some(rules::BLOCK_CONTENT), "{block}");
    }
    let mut node = ultimate_receiver().with_module(Upgrade);
    node.versions = versions(&["1.0", "1.1"]);
    let offer = json!({"version": "1.0", "Header": {"Upgrade": {"supportedVersions": ["1.1", "1.0"]}}, "Body": {}});
    assert_eq!(expect_processed(node, frame(offer)).record.notes, ["the sender could use version 1.1"]);
}
