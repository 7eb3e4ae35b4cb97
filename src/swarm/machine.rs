//! The machine: what a swarm does next.
//!
//! | file | subject |
//! |---|---|
//! | `state.rs`, `attempt.rs`, `view.rs` | the state, as the plan sets it up, and its read-only views |
//! | `events.rs`, `queries.rs` | what callers use: events in, questions answered |
//! | `scheduling.rs` | which assignment starts, and from which commit |
//! | `sandbox.rs` | a sandbox's life and records, from its start to its end |
//! | `diagnosis.rs` | failure causes, from evidence |
//! | `triage.rs`, `settle.rs` | what a result, or the lack of one, means for each story: it lands, is retried, or failed |
//! | `review.rs`, `review_state.rs` | finished work is reviewed before it lands, if the plan wants that |
//! | `landing.rs`, `landing_state.rs` | finished work is prepared, checked, and put onto its branch, in batches |
//! | `check.rs` | what is checked in a sandbox of its own, and what comes of it |
//! | `rejection.rs`, `stranded.rs` | what does not land, and what cannot land now |
//! | `merge.rs` | what has no checks: one merge at a time for a branch |
//! | `closing.rs` | a story is closed: which others may run now, which are skipped |
//! | `admin.rs`, `hold.rs` | what waits for the admin, and what the admin decides |
//! | `amp.rs`, `amp_messages.rs`, `escalation.rs` | the AMP conversation: a machine of its own, and when it sends what |
//! | `engine.rs` | loss and return of the engine |
//! | `timers.rs`, `deadlines.rs` | the timers |
//! | `lifecycle.rs` | beginning, stopping, resuming, the end |
//!
//! An attempt goes `Starting -> Created -> Running -> Completed -> Collecting -> Reviewing -> MergeQueued -> Merging ->
//! Settled`, and may skip phases. An executor's attempt holds one of the `max_sandboxes` slots until it is settled or waits for
//! the admin; its reviewer and its checks run in that slot. Its assignment has no other executor's attempt before it is settled.
//!
//! Every attempt uses up a story's retry, uses up one of the assignment's machinery retries, or closes a story; so a swarm
//! ends whatever its sandboxes do.
//!
//! Must not: do I/O, read a clock, or depend on anything but the spec, the events and their times.

mod admin;
mod amp;
mod amp_messages;
mod attempt;
mod check;
mod closing;
mod deadlines;
mod diagnosis;
mod engine;
mod escalation;
mod events;
mod hold;
mod landing;
mod landing_state;
mod lifecycle;
mod merge;
mod queries;
mod rejection;
mod review;
mod review_state;
mod sandbox;
mod scheduling;
mod settle;
mod state;
mod stranded;
mod timers;
mod triage;
mod view;

#[cfg(test)]
pub(crate) mod tests;

pub use hold::{AdminHold, HoldKind};
pub use state::SwarmMachine;
pub use view::{AttemptPhase, AttemptRole, AttemptView, ContainerStatus, StoryProgress, StoryView};
