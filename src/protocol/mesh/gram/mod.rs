//! MemoryGrams: what agents learned, as graphs that travel with messages (6.0, appendix A).
//!
//! [`MemoryGram::from_json`] checks every rule once and keeps the JSON as received. A gram is immutable: several are combined into a
//! [`GramDraft`], which builds a new gram. Used by `process.rs`, `handoff/`, `coordinator/`, `shim/` and `cli/`. Must not: do I/O or
//! read a clock.
//!
//! | file | content |
//! |---|---|
//! | `model.rs` | nodes, edges, limits, errors |
//! | `memory_gram.rs` | the gram, and every rule for parsing it |
//! | `draft.rs` | merging, pruning, building |
//! | [`render`] | markdown, table, DOT and Mermaid, with all text escaped |
//!
//! # Rules
//!
//! | rule | section | requirement |
//! |---|---|---|
//! | `gram-id` | 6.0, 2 | `id` is a UUID v4 |
//! | `gram-timestamp` | 6.0, 2 | `timestamp` is ISO 8601, in UTC |
//! | `gram-nodes` | 6.0, 3 | `nodes` and `edges` are arrays of objects |
//! | `gram-node` | 6.0, 3; A.1 | a node has an `id` and a `type`; `attributes` and `metadata`, if present, are objects |
//! | `gram-node-twice` | 6.0, 5 | node ids are unique |
//! | `gram-edge` | 6.0, 3; A.1 | an edge has `source`, `target` and a `weight` from 0 to 1; `context`, if present, is a string |
//! | `gram-edge-ref` | 6.0, 5 | both ends of an edge are nodes of the same gram |
//! | `gram-metadata` | 6.0, 4; A.1 | `metadata` is an object; `importance` and `decay` of a node are from 0 to 1 |
//! | `gram-limit` | 7, 5 | sizes are within [`GramLimits`] |
//! | `gram-immutable` | 6.0, 1 | grams of a message with the same id are equal |
//! | `gram-hash` | 6.0, 1 | a gram with a hash is unmodified |
//!
//! # Choices
//!
//! - **Hash.** Grams built here have `metadata.contentHash`: `sha256:` and the SHA-256 of the RFC 8785 form without that member. Grams
//!   without it are accepted.
//! - **Two forms** (1.4 and 6.0): `{"MemoryGram": {...}}` and its inside alone. For the lone node of 1.4 see
//!   [`GramEntry::LoneNode`].
//! - **Id of a built gram**: derived from its hash, in the form of a UUID v4, so that the same memory always is the same gram.
//! - **Weight, importance and decay** are restricted to 0 to 1 as in A.1 (not normative), so that grams of several agents compare.
//! - **Decay**: `importance * (1 - decay) ^ hours`, since the node's `metadata.at` or else the gram's timestamp. Nodes without an
//!   importance have [`DEFAULT_IMPORTANCE`].

mod draft;
mod memory_gram;
mod model;
pub mod render;
#[cfg(test)]
mod tests;

pub use draft::{ALSO_SAID_KEY, GramDraft, NOTE_TYPE, PrunedCounts};
pub use memory_gram::{GramEntry, MemoryGram};
pub use model::{DEFAULT_IMPORTANCE, GramEdge, GramError, GramLimits, GramNode, HASH_KEY, REFERENCE_TYPE};
