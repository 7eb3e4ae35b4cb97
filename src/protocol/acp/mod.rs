//! ACP, the protocol between orchestrator and sandbox: one JSON object a line, on the sandbox's stdin and stdout.
//!
//! Line ([`wire`](crate::wire)) -> `wire_message.rs` (names and types) -> [`decode`] (values) -> [`message`] -> [`machine`] (legal
//! in its place). [`encode`] goes the other way. Used by `coordinator/` and `shim/`. Must not: do I/O, read a clock, or extend
//! ACP; what it cannot carry travels in the files of `handoff/`.
//!
//! A record that breaks one of [`rules::RULES`] is a [`Violation`](super::rule::Violation), which names the rule and the field;
//! `tests/golden/acp` has files for each. The section "longshore" stands for what the spec leaves open. Characters are Unicode
//! scalar values. `null` is "none" in `prUrl` and a wrong type elsewhere. Unknown fields are ignored: a newer sender may add
//! some, and ACP has no version to tell by.
//!
//! # Order and time
//!
//! Records of one sandbox are handled in the order of its standard output; there is none between sandboxes. A story goes
//! `pending -> in_progress -> completed | failed`, `pending -> skipped`, `failed -> in_progress`; a repeated `in_progress` is
//! progress. `error` may come at any time before `completion`, which is the last record. ACP has no acknowledgements and no
//! timeouts: `swarm/` decides what silence means.
//!
//! # To add a message type
//!
//! A struct and a variant in `types.rs`; its fields in `wire_message.rs`; its reading in `decode.rs` and its writing in
//! `encode.rs`; its effect on a session in `machine.rs`; new rules in `rules.rs`; golden files, valid and invalid.

pub mod decode;
pub mod encode;
pub mod fields;
pub mod machine;
pub mod message;
pub mod rules;
#[cfg(test)]
mod tests;
mod types;
pub mod urls;
mod wire_message;
