//! longshore runs the stories of a tasks file in hardened Docker sandboxes, one coding agent per story. It verifies the commits,
//! merges them, and keeps an exact, resumable record.
//!
//! # The map
//!
//! ```text
//! tasks file -> plan -> scheduler (pure machine) -> engine: sandbox -> ACP records -> state + journal
//!                                                         |                 |-> AMP messages (SSOT)
//!                              repo objects in <- delivery -> commits out -> check sandbox -> merge -> report
//! ```
//!
//! In reading order. Most modules' own `//!` lists their files.
//!
//! | module | contents | start at |
//! |---|---|---|
//! | [`ids`] | identifiers that are valid by construction | |
//! | `error_chain`, `atomic_file`, `fnv`, `repo_dir` | an error with its sources; whole-file writes; a checksum; `.longshore/` | |
//! | `json` | JSON with positions and paths, for errors; truncation of text | `json/tree.rs` |
//! | [`verdict`] | causes of failures, their evidence, criteria results | |
//! | [`tasks`] | the tasks file: three shapes read into one, and written back | `tasks/load.rs` |
//! | `plan` | dependency graph, waves, assignments, branches | `plan/build.rs` |
//! | `swarm` | the pure core: events in, effects out, deadlines, retries; AMP as a child machine | `swarm/event.rs`, `swarm/machine.rs` |
//! | [`wire`] | the NDJSON codec, 64 KB a line, both ways | `wire/splitter.rs` reads, `wire/codec.rs` writes |
//! | [`protocol`] | `acp`, `amp` with its SSOT store, `mailbox`, `mesh` | each `message.rs`; `mesh/frame.rs` |
//! | [`handoff`] | files and frames that orchestrator and shim exchange beside ACP | `handoff/assignment.rs` |
//! | `git` | the hardened environment of every git process | |
//! | `engine` | the `Engine` trait; `docker/` (create and hardening, events, errors); `depot/` (the depot's client) | `engine/mod.rs` |
//! | `delivery` | git on the host: packs out, bundles in, verification, refs, landings: what lands is written again | `delivery/landing.rs` |
//! | `state` | the swarm's directory: lock, journal, `swarm-state.json`, recovery | `state/swarm_state.rs` |
//! | `report` | output for users: bars, plain lines, JSON events, the summary | `report/summary.rs` |
//! | `coordinator` | the only loop: events, effects, sessions with sandboxes, collecting, recovery, AMP, memory, mailbox | `coordinator/event_loop.rs` |
//! | `cli` | one file or directory per command; `settings/` declares every setting; exit codes: `exit_status.rs`, and `swarm/swarm_outcome.rs` | `cli/dispatch.rs` |
//! | `shim` | the program inside a sandbox: stories, checks (`check.rs`), salvage; `examination.rs` commits; `depot/`, the depot's server | `shim/serve.rs`, `shim/story.rs` |
//!
//! The orchestrator's modules need the feature `orchestrator`, the shim's the feature `shim`; both are on by default.
//!
//! # Invariants
//!
//! 1. **No finished work is lost.** The shim commits and bundles before it sends `completion`. The host verifies a bundle and gives
//!    it a ref before the story counts as landed or the sandbox is removed. Every failure path salvages the work.
//! 2. **A verdict is true, or says that it does not know.** Completed means that the commit is on its branch, and
//!    that its checks passed in a sandbox in which no agent ever was. The branch never points at anything else.
//! 3. **Exactly once across restarts.** The journal holds every event before its effects are visible. Replaying it gives the machine.
//! 4. **The core is pure.** One loop owns the machine. Retries, timeouts and grace periods are its deadlines.
//! 5. **One slow or hostile sandbox never stalls another.** Each has its own reader and a bounded share. A bad line is a value.
//! 6. **No credentials in a sandbox unless the user names them.** Values travel only in the task-request.
//! 7. **Everything goes through the engine's API**, never a bind mount.
//! 8. **Everything created carries labels**, and `longshore gc` finds and explains it.

mod atomic_file;
mod error_chain;
#[cfg(feature = "orchestrator")]
mod fnv;
#[cfg(feature = "orchestrator")]
mod repo_dir;
pub mod ids;
pub mod verdict;
pub mod tasks;
#[cfg(feature = "orchestrator")]
pub mod plan;
#[cfg(feature = "orchestrator")]
pub mod swarm;
mod json;
pub mod wire;
pub mod protocol;
pub mod handoff;
mod git;
#[cfg(feature = "orchestrator")]
pub mod engine;
#[cfg(feature = "orchestrator")]
pub mod delivery;
#[cfg(feature = "orchestrator")]
pub mod state;
#[cfg(feature = "orchestrator")]
pub mod report;
#[cfg(feature = "orchestrator")]
pub mod coordinator;
#[cfg(feature = "orchestrator")]
pub mod cli;
#[cfg(feature = "shim")]
pub mod shim;
#[cfg(all(test, feature = "orchestrator"))]
mod test_rng;
