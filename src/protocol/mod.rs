//! The protocols of longshore's agents.
//!
//! [`acp`] connects orchestrator and sandbox, on the sandbox's stdin and stdout; [`amp`] connects coordinator, executors,
//! reviewers and the admin, through files of the repo; [`mailbox`] connects agents (and people), through files in a shared
//! directory; [`mesh`] carries tasks and memory between nodes. Used by `swarm/`, `coordinator/`, `cli/` and `shim/`.
//! Messages and state machines must not: do I/O, read a clock, or know Docker, git or the state's files. Input is data: a
//! message that breaks a rule is a [`rule::Violation`], never an error that ends a stream.

pub mod acp;
pub mod amp;
pub mod mailbox;
pub mod mesh;
pub mod rule;
#[cfg(test)]
mod tests;
mod timestamp;
mod wire_enum;
