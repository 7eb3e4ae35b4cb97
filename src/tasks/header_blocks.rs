//! `mesh` of a story and of `metadata`: header blocks for the frames that dispatch sandboxes (Agentic Mesh Protocol, 5.2.1).
//!
//! Used by `import.rs`. The target node interprets a block. Must not: know frames beyond the shape of a block.

use serde_json::{Map, Value as Json};

use super::error::TasksProblemKind;
use super::field_reader::FieldReader;
use crate::json::{JsonNode, JsonPath, JsonValue};

/// Header blocks by name.
pub type HeaderBlocks = Map<String, Json>;

const MAX_HEADER_BLOCKS: usize = 64;
/// Names that longshore or the protocol itself uses in a frame's header.
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
pub(super) fn read_header_blocks(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, object: &JsonNode) -> HeaderBlocks {
    let mut blocks = HeaderBlocks::new();
    let Some(mesh) = object.get_non_null("mesh") else { return blocks };
    let at = JsonPath::Key(at, "mesh");
    let Some(header) = read_header(reader, &at, mesh) else { return blocks };
    let at = JsonPath::Key(&at, "header");
    let Some(members) = header.members() else {
        reader.report_wrong_type(&at, header, "an object of header blocks");
        return blocks;
    };
    if members.len() > MAX_HEADER_BLOCKS {
        let problem = format!("must have at most {MAX_HEADER_BLOCKS} blocks, found {}", members.len());
        reader.report(&at, header, TasksProblemKind::InvalidHeaderBlock { problem });
        return blocks;
    }
    for member in members {
        let at = JsonPath::Key(&at, &member.key);
        let reported = reader.problems.len();
        if blocks.contains_key(&member.key) {
            reader.report(&at, &member.node, TasksProblemKind::DuplicateKey { key: member.key.clone(), count: 2 });
        }
        if let Some(problem) = check_block_name(&member.key) {
            reader.report(&at, &member.node, TasksProblemKind::InvalidHeaderBlock { problem });
        }
        check_block(reader, &at, &member.node);
        if reader.problems.len() == reported
            && let Some(value) = to_json(reader, &at, &member.node)
        {
            blocks.insert(member.key.clone(), value);
        }
    }
    blocks
}

/// The only member of `mesh`.
fn read_header<'n>(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, mesh: &'n JsonNode) -> Option<&'n JsonNode> {
    if mesh.members().is_none() {
        reader.report_wrong_type(at, mesh, "an object with `header`");
    }
    reader.check_keys(at, mesh, &["header"]);
    mesh.get_non_null("header")
}

fn check_block_name(name: &str) -> Option<String> {
    if RESERVED_NAMES.contains(&name) {
        return Some(format!("the name `{name}` is reserved"));
    }
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    let camel = first && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric());
    (!camel).then(|| "a header block's name must be in camelCase, like `alertControl`".to_owned())
}

/// Checks the properties that all blocks share.
fn check_block(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &JsonNode) {
    if node.members().is_none() {
        reader.report_wrong_type(at, node, "a header block (an object)");
        return;
    }
    reader.check_unique_keys(at, node, &["mustUnderstand", "relay", "role", "encodingStyle"]);
    for key in ["mustUnderstand", "relay"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, JsonValue::Bool(_)) {
            reader.report_wrong_type(&JsonPath::Key(at, key), node, "`true` or `false`");
        }
    }
    for key in ["role", "encodingStyle"] {
        let Some(node) = node.get(key) else { continue };
        if !matches!(node.value, JsonValue::Text(_)) {
            reader.report_wrong_type(&JsonPath::Key(at, key), node, "a string");
        }
    }
}

/// The value for the frame; `None` if a problem was reported.
fn to_json(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &JsonNode) -> Option<Json> {
    Some(match &node.value {
        JsonValue::Null => Json::Null,
        JsonValue::Bool(value) => Json::Bool(*value),
        JsonValue::Text(text) => Json::String(text.clone()),
        JsonValue::Number(text) => match serde_json::from_str(text) {
            Ok(number) => Json::Number(number),
            Err(_) => {
                let problem = "the number is too large".to_owned();
                reader.report(at, node, TasksProblemKind::InvalidHeaderBlock { problem });
                return None;
            }
        },
        JsonValue::Array(items) => {
            let items =
                items.iter().enumerate().map(|(index, item)| to_json(reader, &JsonPath::Index(at, index), item));
            Json::Array(items.collect::<Option<_>>()?)
        }
        JsonValue::Object(members) => {
            let mut object = Map::new();
            for member in members {
                let at = JsonPath::Key(at, &member.key);
                if object.contains_key(&member.key) {
                    reader.report(
                        &at,
                        &member.node,
                        TasksProblemKind::DuplicateKey { key: member.key.clone(), count: 2 },
                    );
                    return None;
                }
                object.insert(member.key.clone(), to_json(reader, &at, &member.node)?);
            }
            Json::Object(object)
        }
    })
}
