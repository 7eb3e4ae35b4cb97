//! JSON text with positions: every value knows its bytes and its path, so that an error names both, and an edit leaves every
//! other byte alone. `serde_json` has neither.
//!
//! | file | what |
//! |---|---|
//! | `parser.rs` | text -> tree, strict RFC 8259 |
//! | `tree.rs` | the tree |
//! | `path.rs` | the path of a value |
//! | `deserialize.rs` | tree -> any type with `serde::Deserialize`; an error has a kind, a path and a problem |
//! | `line_index.rs` | byte offsets -> lines and columns |
//! | `text.rs` | free text cut and escaped for messages |
//!
//! Used by `tasks/` and `protocol/`. Must not: know the shape of any document.

pub(crate) mod deserialize;
mod line_index;
mod parser;
mod path;
pub(crate) mod text;
mod tree;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use line_index::LineIndex;
pub(crate) use parser::{JsonSyntaxError, parse};
pub(crate) use path::JsonPath;
pub(crate) use tree::{JsonNode, JsonValue, Member};
