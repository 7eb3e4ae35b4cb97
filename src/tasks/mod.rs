//! The tasks file: JSON with stories, their dependencies and acceptance criteria, in any of three shapes, read into one.
//!
//! Bytes -> [`json`](crate::json) (a tree with positions) -> `shape.rs` (which shape is it) -> `import.rs` and
//! `field_reader.rs` (tree -> [`TasksFile`], all problems at once) -> `graph.rs` (ids, dependencies, cycles,
//! [`topological_order`]) -> `plan/`. `write_back.rs` goes the other way, into the user's own shape; `excerpt.rs` makes a
//! smaller file of some stories. `error.rs` has everything that can be wrong, `schema.rs` the canonical shape as a JSON schema.
//! Used by the orchestrator and, inside a sandbox, by the shim. Must not: touch Docker or git, or know how stories are run.

mod error;
#[cfg(feature = "orchestrator")]
mod excerpt;
mod field_reader;
mod graph;
mod header_blocks;
mod import;
mod load;
#[cfg(feature = "orchestrator")]
mod schema;
mod shape;
mod tasks_file;
#[cfg(test)]
mod tests;
pub mod write_back;

// Until every caller uses `crate::json`.

pub use error::{MAX_FILE_BYTES, MAX_STORIES, TasksError, TasksProblem, TasksProblemKind};
pub use graph::topological_order;
pub use header_blocks::HeaderBlocks;
pub use load::{load, parse, read};
#[cfg(feature = "orchestrator")]
pub use schema::schema;
pub use tasks_file::{AgentIdentity, Criterion, DoneStatus, RiskLevel, Shape, Story, TasksFile};
