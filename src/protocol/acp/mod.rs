//! ACP: what orchestrator and sandbox say to each other, one JSON object a line.
//!
//! Line ([`wire`](crate::wire)) -> `record` (the fields as they stand) -> [`decode`] (every rule checked) ->
//! [`message`] -> [`machine`] (legal at its place). [`encode`] goes the other way. Used by `coordinator/` and `shim/`,
//! without I/O and without a clock. Must not: extend ACP. What it cannot carry travels in the files of `handoff/`.
//!
//! # Rules
//!
//! A record that breaks one is a [`AcpViolation`](message::AcpViolation), which names it. What each of them wants is in
//! [`rules::RULES`]; `tests/golden/acp` has files that break it. "longshore" stands for what the spec leaves open.
//!
//! | rule | section of the spec |
//! |---|---|
//! | `line-length` | Transport |
//! | `utf8` | Transport |
//! | `json` | Transport |
//! | `json-object` | Transport |
//! | `duplicate-key` | longshore |
//! | `required` | Message Envelope; Payload Fields |
//! | `field-type` | Message Envelope; Payload Fields |
//! | `type-unknown` | Message Types |
//! | `direction` | Message Types |
//! | `timestamp` | Message Envelope |
//! | `swarm-id` | Message Envelope |
//! | `container-id` | Message Envelope |
//! | `task-file-path` | task-request |
//! | `branch-name` | task-request |
//! | `repo-url` | task-request |
//! | `repo-url-credentials` | longshore |
//! | `env-key` | task-request |
//! | `env-key-refused` | longshore |
//! | `env-value` | longshore |
//! | `story-id` | progress-update |
//! | `story-status` | progress-update |
//! | `output-length` | progress-update |
//! | `completion-status` | completion |
//! | `pr-url` | completion |
//! | `errors-count` | completion |
//! | `errors-length` | completion |
//! | `error-code` | error |
//! | `message-length` | error |
//! | `own-swarm` | longshore |
//! | `own-container` | longshore |
//! | `own-story` | longshore |
//! | `story-move` | longshore |
//! | `after-completion` | completion |
//!
//! Characters are Unicode scalar values. Null stands for "none" in `prUrl` and is a wrong type elsewhere. Fields that the
//! spec does not name are let be, wherever they stand: a newer sender may add some, and ACP has no version to tell by.
//!
//! # Order and time
//!
//! Records of one sandbox are taken in the order of its standard output; there is none between sandboxes. A story goes
//! `pending -> in_progress -> completed | failed`, `pending -> skipped`, `failed -> in_progress`; `in_progress` said again
//! is news of it. `error` may come at any time before `completion`, which is the last record. ACP has no
//! acknowledgements and no timeouts: what silence means is decided in `swarm/`.
//!
//! # To add a message type
//!
//! A struct and a variant in `message.rs`; its fields in `wire_record.rs`; its reading in `decode.rs` and its writing in
//! `encode.rs`; what it does to a session in `machine.rs`; new rules in `rules.rs` and the table above; golden files,
//! valid and invalid, for each.

pub mod decode;
pub mod encode;
pub mod fields;
#[cfg(test)]
mod golden;
pub mod machine;
pub mod message;
mod wire_record;
pub mod rules;
pub mod urls;
