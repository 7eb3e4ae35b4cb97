//! `mesh` of a story and of `metadata`: header blocks for the frames that sandboxes are dispatched with (Agentic Mesh Protocol,
//! 5.2.1).
//!
//! Read by `import.rs`, with every problem at its place; what a block means is for the node that it is targeted at. Must not:
//! know frames, beyond what makes a block one.

use serde_json::{Map, Value as Json};

use super::error::TasksDefect;
use super::field_reader::FieldReader;
use crate::json::{JsonNode, JsonPath, JsonValue};

/// Header blocks, by their names.
pub type HeaderBlocks = Map<String, Json>;

/// The most blocks of one header.
const MAX_HEADER_BLOCKS: usize = 64;
/// What longshore or the protocol itself says in a frame's header.
const RESERVED_NAMES: [&str; 11] = [
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
pub(super) fn read_header_blocks(checker: &mut FieldReader<'_>, at: &JsonPath<'_>, object: &JsonNode) -> HeaderBlocks {
    let mut blocks = HeaderBlocks::new();
    let Some(mesh) = object.get_non_null("mesh") else { return blocks };
    let at = JsonPath::Key(at, "mesh");
    let Some(header) = read_header(checker, &at, mesh) else { return blocks };
    let at = JsonPath::Key(&at, "header");
    let Some(members) = header.members() else {
        checker.report(
            &at,
            header,
            TasksDefect::WrongType { expected: "an object of header blocks", found: header.describe() },
        );
        return blocks;
    };
    if members.len() > MAX_HEADER_BLOCKS {
        checker.report(
            &at,
            header,
            TasksDefect::InvalidHeaderBlock {
                problem: format!("it has {} blocks, and may have {MAX_HEADER_BLOCKS}", members.len()),
            },
        );
        return blocks;
    }
    for member in members {
        let at = JsonPath::Key(&at, &member.key);
        let reported = checker.problems.len();
        if blocks.contains_key(&member.key) {
            checker.report(&at, &member.node, TasksDefect::DuplicateKey { key: member.key.clone(), count: 2 });
        }
        if let Some(problem) = check_block_name(&member.key) {
            checker.report(&at, &member.node, TasksDefect::InvalidHeaderBlock { problem });
        }
        check_block(checker, &at, &member.node);
        if checker.problems.len() == reported
            && let Some(value) = to_json(checker, &at, &member.node)
        {
            blocks.insert(member.key.clone(), value);
        }
    }
    blocks
}

/// The one member of `mesh`; a `mesh` that is no object, or has others, is a problem.
fn read_header<'n>(checker: &mut FieldReader<'_>, at: &JsonPath<'_>, mesh: &'n JsonNode) -> Option<&'n JsonNode> {
    if mesh.members().is_none() {
        let expected = "an object with `header`";
        checker.report(at, mesh, TasksDefect::WrongType { expected, found: mesh.describe() });
    }
    checker.check_keys(at, mesh, &["header"]);
    mesh.get_non_null("header")
}

fn check_block_name(name: &str) -> Option<String> {
    if RESERVED_NAMES.contains(&name) {
        return Some(format!("`{name}` is longshore's own to say"));
    }
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let camel = first && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric());
    (!camel).then(|| "a header block's name must be in camelCase, as `alertControl`".to_owned())
}

/// The properties that all blocks share.
fn check_block(checker: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &JsonNode) {
    if node.members().is_none() {
        checker.report(
            at,
            node,
            TasksDefect::WrongType { expected: "a header block (an object)", found: node.describe() },
        );
        return;
    }
    checker.check_unique_keys(at, node, &["mustUnderstand", "relay", "role", "encodingStyle"]);
    for key in ["mustUnderstand", "relay"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, JsonValue::Bool(_)) {
            let expected = "`true` or `false`";
            checker.report(&JsonPath::Key(at, key), node, TasksDefect::WrongType { expected, found: node.describe() });
        }
    }
    for key in ["role", "encodingStyle"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, JsonValue::Text(_)) {
            checker.report(
                &JsonPath::Key(at, key),
                node,
                TasksDefect::WrongType { expected: "a string", found: node.describe() },
            );
        }
    }
}

/// The value as a frame has it; none where something was reported.
fn to_json(checker: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &JsonNode) -> Option<Json> {
    Some(match &node.value {
        JsonValue::Null => Json::Null,
        JsonValue::Bool(value) => Json::Bool(*value),
        JsonValue::Text(text) => Json::String(text.clone()),
        JsonValue::Number(text) => match serde_json::from_str(text) {
            Ok(number) => Json::Number(number),
            Err(_) => {
                checker.report(
                    at,
                    node,
                    TasksDefect::InvalidHeaderBlock { problem: "the number is too large".to_owned() },
                );
                return None;
            }
        },
        JsonValue::Array(items) => {
            let items =
                items.iter().enumerate().map(|(index, item)| to_json(checker, &JsonPath::Index(at, index), item));
            Json::Array(items.collect::<Option<_>>()?)
        }
        JsonValue::Object(members) => {
            let mut object = Map::new();
            for member in members {
                let at = JsonPath::Key(at, &member.key);
                if object.contains_key(&member.key) {
                    checker.report(&at, &member.node, TasksDefect::DuplicateKey { key: member.key.clone(), count: 2 });
                    return None;
                }
                object.insert(member.key.clone(), to_json(checker, &at, &member.node)?);
            }
            Json::Object(object)
        }
    })
}
