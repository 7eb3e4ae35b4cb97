//! Holds what 3.1.1 and 3.3 want of every module: that it says what it is, in its documentation and in its [`About`].

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::super::node::{Node, Place};
use super::super::role::is_iri;
use super::Module;

fn all() -> Vec<(&'static str, Box<dyn Module>)> {
    vec![("ttl", Box::new(super::ttl::Ttl)), ("upgrade", Box::new(super::upgrade::Upgrade))]
}

#[test]
fn section_3_1_1_and_3_3_every_module_says_what_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/mesh/modules");
    let (mut uris, mut features, mut blocks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (file, module) in all() {
        let about = module.about();
        assert!(is_iri(about.uri) && uris.insert(about.uri), "{file}: a URI of its own");
        assert!(!about.features.is_empty(), "{file}: a module has features");
        assert!(about.features.iter().all(|feature| is_iri(feature) && features.insert(*feature)), "{file}");
        assert!(about.blocks.iter().all(|block| blocks.insert(*block)), "{file}: a block is one module's");
        let text = fs::read_to_string(folder.join(format!("{file}.rs"))).expect("a module's file");
        for row in ["feature", "node state", "block", "processing", "fault", "Body", "other modules"] {
            let start = format!("//! | {row} | ");
            let said = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
            assert!(said.trim_end_matches(" |").len() > 3, "{file}: `{row}` is not said");
        }
        let said = |what: &str| text.lines().any(|line| line.starts_with("//!") && line.contains(&format!("`{what}")));
        assert!(about.features.iter().all(|feature| said(feature)), "{file}: the feature's URI is not said");
        assert!(about.blocks.iter().all(|block| said(block)), "{file}: the block is not said");
    }
}

#[test]
fn section_3_3_modules_act_in_the_order_of_their_stages() {
    let node = Node::new("agent://node", Place::Active).expect("a node");
    let node = node.with(super::upgrade::Upgrade).with(super::ttl::Ttl);
    let stages: Vec<_> = node.modules.iter().map(|module| module.about().stage).collect();
    assert!(stages.is_sorted() && stages.len() == 2, "{stages:?}");
}
