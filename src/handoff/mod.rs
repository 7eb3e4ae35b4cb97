//! What the orchestrator and the shim hand each other beside ACP: the folders of a sandbox, the file that says what
//! one attempt is asked to do, the file that says what came of it, and the depot's frames.
//!
//! ACP is not extended: what it cannot carry travels here. Written by `coordinator/` and `shim/`, read by the other.
//! Must not: know Docker. What the shim wrote is hostile to whoever reads it on the host.

pub mod assignment;
pub mod depot;
pub mod dispatch;
pub mod layout;
pub mod story_knowledge;
pub mod agent_notes;
pub mod mailbox;
pub mod result;
pub mod review;
pub mod secrets;
