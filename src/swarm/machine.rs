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
//! | `merge.rs` | one merge at a time for a branch |
//! | `closing.rs` | a story is closed: which others may run now, which are skipped |
//! | `admin.rs`, `hold.rs` | what waits for the admin, and what the admin decides |
//! | `amp.rs`, `amp_messages.rs`, `escalation.rs` | the AMP conversation: a machine of its own, and when it sends what |
//! | `engine.rs` | loss and return of the engine |
//! | `timers.rs`, `deadlines.rs` | the timers |
//! | `lifecycle.rs` | beginning, stopping, resuming, the end |
//!
//! An attempt goes `Starting -> Created -> Running -> Completed -> Collecting -> Reviewing -> MergeQueued -> Merging ->
//! Settled`, and may skip phases. It holds one of the `max_sandboxes` slots until its container has ended; collecting and
//! merging need none. Its assignment has no other executor's attempt before it is settled.
//!
//! Every attempt uses up a story's retry, uses up one of the assignment's machinery retries, or closes a story; so a swarm
//! ends whatever its sandboxes do.
//!
//! Must not: do I/O, read a clock, or depend on anything but the spec, the events and their times.

mod admin;
mod amp;
mod amp_messages;
mod attempt;
mod closing;
mod deadlines;
mod diagnosis;
mod engine;
mod escalation;
mod events;
mod hold;
mod lifecycle;
mod merge;
mod queries;
mod review;
mod review_state;
mod sandbox;
mod scheduling;
mod settle;
mod state;
mod timers;
mod triage;
mod view;

#[cfg(test)]
pub(crate) mod tests;

pub use hold::{AdminHold, HoldKind};
pub use state::SwarmMachine;
pub use view::{AttemptPhase, AttemptView, ContainerStatus, StoryProgress, StoryView};
