//! What the orchestrator and the shim exchange besides ACP: a sandbox's directories, an attempt's assignment, its result, and the
//! depot's frames.
//!
//! ACP is not extended: what it cannot carry travels here. `coordinator/` and `shim/` each write what the other reads. Must not:
//! know Docker, or trust what the shim wrote: on the host it is hostile input.

pub mod agent_notes;
pub mod agent_spec;
pub mod assignment;
pub mod check;
pub mod depot;
pub mod dispatch;
pub mod layout;
pub mod mailbox;
pub mod result;
pub mod review;
pub mod sandbox_users;
pub mod secrets;
pub mod story_knowledge;
