//! The Agentic Mesh Protocol: frames that carry a task, and the memory that travels with it.
//!
//! Used by `coordinator/`, `shim/` and `cli/`. Must not: do I/O, or read a clock.

pub mod gram;
