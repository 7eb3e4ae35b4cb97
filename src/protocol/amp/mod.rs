//! AMP/1.0, the Agent Message Protocol: what coordinator, executors, reviewers and the admin say to each other about tasks.
//!
//! ACP says what happens in a container; AMP makes of it messages that other agents and people can act on. An assignment is
//! AMP's *task*, its stories are the *subtasks*. Text -> [`message::Message`] with every rule of the spec checked; the
//! messages land in the SSOT.
//!
//! | file | what |
//! |---|---|
//! | [`message`] | the envelope, the five payloads and the ack, as values |
//! | [`machine`] | ids, acks and heartbeats over time |
//!
//! Used by `swarm/` (which says what is to be told, and when), `coordinator/` (which composes and keeps it), `shim/` (a
//! reviewer's verdict) and `cli/`. Must not: know containers, git or the state's files.

pub mod machine;
pub mod message;
