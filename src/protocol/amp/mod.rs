//! AMP/1.0, the Agent Message Protocol: what coordinator, executors, reviewers and the admin say to each other about tasks.
//!
//! ACP says what happens in a container; AMP makes of it messages that other agents and people can act on. An assignment is
//! AMP's *task*, its stories are the *subtasks*. Text -> [`message::Message`] with every rule of the spec checked; the
//! messages land in the SSOT.
//!
//! | file | what |
//! |---|---|
//! | [`message`] | the envelope, the five payloads and the ack, as values |
//! | `envelope.rs`, `check.rs` | every rule: of the envelope, and of payloads and acks |
//! | `tree.rs`, `decode.rs` | JSON text -> message, ack or verdict, with the rule and the field of what is wrong |
//! | `encode.rs` | message or ack -> JSON |
//! | [`rules`] | the rules' names, [`Violation`](rules::Violation), and the sizes |
//! | [`store`] | the SSOT: where all of it lands |
//!
//! # Rules
//!
//! A message that breaks one is a [`Violation`](rules::Violation), which names it and the field. What each of them wants is in
//! [`rules::RULES`]; `tests/golden/amp` has files that break it. "longshore" stands for what the spec leaves open.
//!
//! | rule | section of the spec |
//! |---|---|
//! | `size` | longshore |
//! | `text-length` | longshore |
//! | `list-length` | longshore |
//! | `json` | Base Envelope |
//! | `json-object` | Base Envelope |
//! | `duplicate-key` | longshore |
//! | `protocol-version` | Base Envelope |
//! | `unknown-field` | longshore |
//! | `required` | Base Envelope; payload fields |
//! | `field-type` | Base Envelope; payload fields |
//! | `number-range` | longshore |
//! | `type-unknown` | Base Envelope |
//! | `enum-word` | Base Envelope; payload fields |
//! | `msg-id` | Base Envelope |
//! | `msg-id-type` | Base Envelope |
//! | `msg-id-task` | Base Envelope |
//! | `direction` | 01 to 05 |
//! | `receiver` | Base Envelope |
//! | `task-id` | Base Envelope |
//! | `timestamp` | Base Envelope |
//! | `ack-required` | 01 to 04: ACK Required |
//! | `ack-timeout` | Base Envelope |
//! | `context-ref` | Base Envelope |
//! | `text-empty` | longshore |
//! | `repo-path` | 01 |
//! | `branch-protected` | 01: Branch Validation |
//! | `branch-name` | longshore |
//! | `subtasks-empty` | 01 |
//! | `subtask-id` | 01; 02 |
//! | `subtask-twice` | 02 |
//! | `acceptance-criteria` | 01: Acceptance Criteria |
//! | `blockers` | 02: Partial Completion |
//! | `diff-summary` | 02 |
//! | `self-assessment` | 02: Self Assessment |
//! | `commit-hash` | 02 |
//! | `ref-type` | 03 |
//! | `ref-task` | 03; 05 |
//! | `lock-warning` | 03: Lock Warning |
//! | `ci-gating` | 03: CI Gating |
//! | `criteria-results` | 04 |
//! | `approved-criteria` | longshore |
//! | `issues` | 04 |
//! | `approved-issues` | 04: Issue Severity |
//! | `direct-fixes` | 04 |
//! | `direct-fix-scope` | 04: Direct Fix Scope |
//! | `confidence` | 04 |
//! | `triggered-by` | 05 |
//! | `critical-suspends` | 05: Critical = Suspend All |
//! | `info-goes-on` | 05 |
//! | `ack-by` | longshore |
//!
//! Used by `swarm/` (which says what is to be told, and when), `coordinator/` (which composes and keeps it), `shim/` (a
//! reviewer's verdict) and `cli/`. Must not: know containers, git or the state's files.

mod check;
mod decode;
mod encode;
mod envelope;
#[cfg(test)]
mod golden;
pub mod message;
pub mod rules;
#[cfg(feature = "orchestrator")]
pub mod store;
mod tree;
