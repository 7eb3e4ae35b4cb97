//! The protocols that agents speak, one folder each: `message.rs` (what can be said), `machine.rs` (what it means over
//! time), `store.rs` (where it lands), where it has them.
//!
//! [`acp`] is spoken between orchestrator and sandbox, on the sandbox's stdin and stdout; [`amp`] between coordinator,
//! executors, reviewers and the admin, through files of the repo; [`mailbox`] between agents (and people), through files in
//! a folder that all of them see; [`mesh`] carries tasks and memory from node to node. Used by `swarm/`, `coordinator/`, `cli/` and `shim/`.
//! Messages and machines must not: do I/O, read a clock, or know Docker, git or the state's files. What comes in is data: a
//! message that breaks a rule is a value that says so, never an error that ends a stream.

pub mod acp;
pub mod amp;
pub mod mailbox;
pub mod mesh;
pub mod rule;
mod timestamp;
