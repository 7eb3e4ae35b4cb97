//! The Agentic Mesh Protocol: frames that carry a task, blocks for the nodes on their way, and the memory that travels with it.
//!
//! Bytes -> [`frame::Frame`] -> [`process::process`] at a [`node::Node`] -> processed, relayed or a [`fault::Fault`]. Used by
//! `coordinator/`, `shim/` and `cli/`. Must not: do I/O, or read a clock.

pub mod block;
pub mod canonical;
pub mod fault;
pub mod frame;
pub mod gram;
pub mod limits;
pub mod modules;
pub mod node;
pub mod process;
pub mod relay;
pub mod replay;
pub mod role;
pub mod rules;
pub mod version;
