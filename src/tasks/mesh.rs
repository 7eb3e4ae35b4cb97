//! `mesh` of a story and of `metadata`: header blocks for the frames that sandboxes are dispatched with (Agentic Mesh Protocol,
//! 5.2.1).
//!
//! Read by `import.rs`, with every problem at its place; what a block means is for the node that it is targeted at. Must not:
//! know frames, beyond what makes a block one.

use serde_json::{Map, Value as Json};

use super::fields::{At, Checker};
use super::json::{Node, Value};
use super::problem::Defect;

/// Header blocks, by their names.
pub type HeaderBlocks = Map<String, Json>;

/// The most blocks of one header.
const MOST: usize = 64;
/// What longshore or the protocol itself says in a frame's header.
const TAKEN: [&str; 11] = [
    "messageId",
    "traceId",
    "relatesTo",
    "roles",
    "routingIntent",
    "headerBlocks",
    "notUnderstood",
    "Upgrade",
    "routing",
    "audit",
    "applied",
];

/// Reads `mesh.header` of an object.
pub(super) fn read(checker: &mut Checker<'_>, at: &At<'_>, object: &Node) -> HeaderBlocks {
    let mut blocks = HeaderBlocks::new();
    let Some(mesh) = object.present("mesh") else { return blocks };
    let at = At::Key(at, "mesh");
    let Some(header) = header(checker, &at, mesh) else { return blocks };
    let at = At::Key(&at, "header");
    let Some(members) = header.members() else {
        checker.report(
            &at,
            header,
            Defect::WrongType { expected: "an object of header blocks", found: header.found() },
        );
        return blocks;
    };
    if members.len() > MOST {
        checker.report(
            &at,
            header,
            Defect::Mesh { problem: format!("it has {} blocks, and may have {MOST}", members.len()) },
        );
        return blocks;
    }
    for member in members {
        let at = At::Key(&at, &member.key);
        let reported = checker.problems.len();
        if blocks.contains_key(&member.key) {
            checker.report(&at, &member.node, Defect::KeyTwice { key: member.key.clone(), count: 2 });
        }
        if let Some(problem) = wrong_name(&member.key) {
            checker.report(&at, &member.node, Defect::Mesh { problem });
        }
        block(checker, &at, &member.node);
        if checker.problems.len() == reported
            && let Some(value) = value(checker, &at, &member.node)
        {
            blocks.insert(member.key.clone(), value);
        }
    }
    blocks
}

/// The one member of `mesh`; a `mesh` that is no object, or has others, is a problem.
fn header<'n>(checker: &mut Checker<'_>, at: &At<'_>, mesh: &'n Node) -> Option<&'n Node> {
    if mesh.members().is_none() {
        let expected = "an object with `header`";
        checker.report(at, mesh, Defect::WrongType { expected, found: mesh.found() });
    }
    checker.keys(at, mesh, &["header"]);
    mesh.present("header")
}

fn wrong_name(name: &str) -> Option<String> {
    if TAKEN.contains(&name) {
        return Some(format!("`{name}` is longshore's own to say"));
    }
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let camel = first && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric());
    (!camel).then(|| "a header block's name must be in camelCase, as `alertControl`".to_owned())
}

/// The properties that all blocks share.
fn block(checker: &mut Checker<'_>, at: &At<'_>, node: &Node) {
    if node.members().is_none() {
        checker.report(at, node, Defect::WrongType { expected: "a header block (an object)", found: node.found() });
        return;
    }
    checker.unique_keys(at, node, &["mustUnderstand", "relay", "role", "encodingStyle"]);
    for key in ["mustUnderstand", "relay"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, Value::Bool(_)) {
            let expected = "`true` or `false`";
            checker.report(&At::Key(at, key), node, Defect::WrongType { expected, found: node.found() });
        }
    }
    for key in ["role", "encodingStyle"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, Value::Text(_)) {
            checker.report(&At::Key(at, key), node, Defect::WrongType { expected: "a string", found: node.found() });
        }
    }
}

/// The value as a frame has it; none where something was reported.
fn value(checker: &mut Checker<'_>, at: &At<'_>, node: &Node) -> Option<Json> {
    Some(match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Text(text) => Json::String(text.clone()),
        Value::Number(text) => match serde_json::from_str(text) {
            Ok(number) => Json::Number(number),
            Err(_) => {
                checker.report(at, node, Defect::Mesh { problem: "the number is too large".to_owned() });
                return None;
            }
        },
        Value::Array(items) => {
            let items = items.iter().enumerate().map(|(index, item)| value(checker, &At::Index(at, index), item));
            Json::Array(items.collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let mut object = Map::new();
            for member in members {
                let at = At::Key(at, &member.key);
                if object.contains_key(&member.key) {
                    checker.report(&at, &member.node, Defect::KeyTwice { key: member.key.clone(), count: 2 });
                    return None;
                }
                object.insert(member.key.clone(), value(checker, &at, &member.node)?);
            }
            Json::Object(object)
        }
    })
}
