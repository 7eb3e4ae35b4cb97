//! The coordinator runs a swarm: one loop turns everything that happens into events for the machine, and carries out the machine's
//! effects.
//!
//! | file | content |
//! |---|---|
//! | `setup.rs`, `sandbox_settings.rs` | the input: what `cli/` passes in |
//! | `startup.rs` | starts or resumes a swarm |
//! | `event_loop.rs` | the loop: next event, handle it, execute its effects |
//! | `effects.rs` | the executor: owns tasks, attempts and clients |
//! | `attempt.rs` | an attempt's identity, uids included, and the channels to its session |
//! | `start/` | everything before a sandbox runs |
//! | `session.rs`, `output_reader.rs` | one sandbox, from its directories to its exit |
//! | `collect/` | results, reviews and salvage |
//! | `landing.rs`, `merge.rs` | merges, and moves integration branches; what lands is decided in `swarm/machine/landing.rs` |
//! | `checks.rs` | the checks of a commit, and which passed before |
//! | `recovery/` | resume, reconciliation, rescue |
//! | `shutdown.rs` | the end, phase by phase |
//! | `amp/` | AMP messages and the SSOT |
//! | `notify/` | notifications of escalations |
//! | `memory.rs` | what stories learned, for later stories |
//! | `mailbox.rs` | moves the agents' mailbox between its volume and the host |
//! | `control.rs` | the socket of `longshore stop` and `longshore admin` |
//! | `engine_monitor.rs` | watches whether the engine is available |
//! | `event_queue.rs` | the fair queue of machine events |
//!
//! Called by `cli/run`, `cli/resume` and `cli/gc`. Must not: decide anything; decisions are the machine's.

mod amp;
mod attempt;
mod checks;
pub mod collect;
pub mod control;
mod effects;
mod engine_monitor;
mod error;
mod event_loop;
mod event_queue;
mod fault;
mod landing;
pub(crate) mod mailbox;
mod memory;
mod merge;
pub(crate) mod notify;
mod output_reader;
mod pause_worker;
mod recovery;
mod resource_names;
mod runtime;
mod sandbox_log;
mod sandbox_settings;
mod session;
mod session_context;
mod setup;
mod shutdown;
mod snapshot_writer;
mod start;
mod startup;
mod stop_signals;
mod swarm_context;
#[cfg(test)]
mod tests;

pub(crate) use amp::composer::AmpComposer;
pub(crate) use amp::escalation_listener::EscalationListener;
pub(crate) use amp::ssot_writer::restore_messages;
pub(crate) use error::CoordinatorError;
pub(crate) use memory::{DEFAULT_MEMORY_BUDGET, MAX_MEMORY_BUDGET, restore_memories};
pub(crate) use recovery::rescue::{RescueOutcome, RescueSpec, rescue, unsaved_attempts};
pub(crate) use sandbox_settings::{ReviewSettings, SandboxSettings};
pub(crate) use setup::{ResumedSwarm, SwarmSetup};
pub(crate) use shutdown::reason_to_keep_volumes;
pub(crate) use start::admission::Reserve;
pub(crate) use startup::run;
pub(crate) use stop_signals::StopSignals;
