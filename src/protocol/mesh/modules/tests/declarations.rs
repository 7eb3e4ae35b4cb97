//! Checks that every module has the declarations that 3.1.1 and 3.3 require, in its documentation and its descriptor.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::super::super::node::{Module, ModuleStage, Node, NodeKind};
use super::super::super::syntax::is_iri;

fn all_modules() -> Vec<(&'static str, Box<dyn Module>)> {
    let mut all: Vec<(&'static str, Box<dyn Module>)> = vec![
        ("ttl", Box::new(super::super::ttl::Ttl)),
        ("upgrade", Box::new(super::super::upgrade::Upgrade)),
        ("routing", Box::new(super::super::routing::Routing)),
        ("audit", Box::new(super::super::audit::Audit::default())),
        ("validation", Box::new(super::super::validation::Validation::default())),
        ("freshness", Box::new(super::super::freshness::Freshness::within_window(jiff::SignedDuration::from_secs(1)))),
    ];
    all.extend(keyed_modules());
    all
}

#[cfg(feature = "orchestrator")]
fn keyed_modules() -> Vec<(&'static str, Box<dyn Module>)> {
    let keys = std::sync::Arc::new(super::super::keys::KeyRing::default());
    vec![
        ("authentication", Box::new(super::super::authentication::Authentication::optional(keys.clone()))),
        ("signature", Box::new(super::super::signature::Signature::optional(keys.clone()))),
        ("authorization", Box::new(super::super::authorization::Authorization::new(keys))),
        ("encryption", Box::new(super::super::encryption::Encryption::default())),
    ]
}

#[cfg(not(feature = "orchestrator"))]
fn keyed_modules() -> Vec<(&'static str, Box<dyn Module>)> {
    Vec::new()
}

#[test]
fn section_3_1_1_and_3_3_every_module_declares_itself() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/mesh/modules");
    let (mut uris, mut features, mut blocks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (file, module) in all_modules() {
        let about = module.descriptor();
        assert!(is_iri(about.uri) && uris.insert(about.uri), "{file}: the URI must be unique");
        assert!(!about.features.is_empty(), "{file}: no features");
        assert!(about.features.iter().all(|feature| is_iri(feature) && features.insert(*feature)), "{file}");
        assert!(about.blocks.iter().all(|block| blocks.insert(*block)), "{file}: the block has two owners");
        let text = fs::read_to_string(dir.join(format!("{file}.rs"))).expect("a module's file");
        for row in ["feature", "node state", "block", "processing", "fault", "Body", "other modules"] {
            let start = format!("//! | {row} | ");
            let description = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
            assert!(description.trim_end_matches(" |").len() > 3, "{file}: `{row}` is missing");
        }
        // 3.3: a module with abstract properties maps them to its fields.
        let maps = text.lines().any(|line| line.starts_with("//! | properties | "));
        assert!(maps || !text.to_lowercase().contains("abstract propert"), "{file}: `properties` is missing");
        let documents =
            |what: &str| text.lines().any(|line| line.starts_with("//!") && line.contains(&format!("`{what}")));
        assert!(about.features.iter().all(|feature| documents(feature)), "{file}: the feature's URI is missing");
        assert!(about.blocks.iter().all(|block| documents(block)), "{file}: the block is missing");
    }
}

#[test]
fn section_3_3_modules_act_in_the_order_of_their_stages() {
    let node = Node::new("agent://node", NodeKind::ActiveIntermediary).expect("a node");
    let node = node
        .with_module(super::super::upgrade::Upgrade)
        .with_module(super::super::audit::Audit::default())
        .with_module(super::super::routing::Routing);
    let node = node.with_module(super::super::validation::Validation::default()).with_module(super::super::ttl::Ttl);
    let stages: Vec<_> = node.modules.iter().map(|module| module.descriptor().stage).collect();
    assert_eq!(
        stages,
        [ModuleStage::Lifetime, ModuleStage::Content, ModuleStage::Content, ModuleStage::Routing, ModuleStage::Audit]
    );
    // 7.0: sender and integrity are established before any module acts on the content.
    let of = |file: &str| {
        all_modules().into_iter().find(|(name, _)| *name == file).map(|(_, module)| module.descriptor().stage)
    };
    let identity = of("authentication").unwrap_or(ModuleStage::Identity);
    let integrity = of("signature").unwrap_or(ModuleStage::Integrity);
    for file in ["freshness", "authorization", "encryption", "validation", "routing", "audit", "upgrade"] {
        assert!(of(file).is_none_or(|stage| stage > identity.max(integrity)), "{file}");
    }
}
