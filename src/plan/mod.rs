//! From tasks files to a plan: which stories run, in which assignments, on which branches, and in what order.
//!
//! | file | contents |
//! |---|---|
//! | `model.rs` | the plan and the options that it is made from |
//! | `build.rs` | tasks files to a plan, with all problems at once |
//! | `graph.rs`, `path_scope.rs` | waves; stories that must not run side by side |
//! | `branch.rs`, `slug.rs` | the names that a plan gives |
//! | `agents.rs`, `agent_assignment.rs` | the agents in the mailbox |
//! | `error.rs`, `limits.rs` | everything that can be wrong, and how much fits |
//! | `render.rs`, `document.rs` | the plan as people and programs read it |
//!
//! Called by `cli/` for `plan` and `run`; the coordinator works from [`Plan::to_swarm_spec`]. Must not: read a clock, or touch
//! Docker or git. It looks at the file system only to resolve links in the paths of the tasks files.
//!
//! A story that depends on a done one does not wait for it, be it `completed` or `skipped`: the person who skipped a story
//! decided to continue without it.

mod agent_assignment;
mod agents;
mod branch;
mod build;
mod document;
mod error;
mod graph;
mod limits;
mod model;
mod path_scope;
pub mod render;
mod slug;
#[cfg(test)]
pub(crate) mod tests;

pub use agents::{HOST_AGENT, PlannedAgent};
pub use build::build;
pub use document::PlanDocument;
pub use error::{PlanError, PlanProblem, PlanProblemKind};
pub use limits::MAX_FILES;
pub use model::{FanOut, Plan, PlanOptions, PlannedFile};
