//! longshore fans the stories of a tasks file out over hardened Docker sandboxes, has a coding agent do each, brings the commits
//! back verified, merges them, and keeps an exact record of it all.
//!
//! # The map
//!
//! ```text
//! tasks file -> plan -> scheduler (pure machine) -> engine: sandbox -> ACP records -> state + journal
//!                                                         |                 |-> AMP messages (SSOT)
//!                              repo objects in <- delivery -> verified commits out -> merge -> report
//! ```
//!
//! In reading order:
//!
//! | module | what is there |
//! |---|---|
//! | [`ids`] | identifiers that are valid wherever they are seen |
//! | `error_chain` | an error with its sources in one line |
//! | `atomic_file`, `fnv` | files that are whole or not there; a checksum |
//! | [`verdict`] | what became of a story: causes, their evidence, criteria |
//! | [`tasks`] | the tasks file: three shapes read into one, and written back |
//! | `plan` | dependency graph, waves, assignments, branches |
//! | `swarm` | the pure core: events in, effects out, deadlines; no I/O, no clock |
//! | `json` | JSON as a tree with positions and paths; text cut for messages |
//! | [`wire`] | the NDJSON codec, 64 KB a line, both ways |
//! | [`protocol`] | what agents speak: ACP, AMP with its SSOT, the mailbox, and mesh frames |
//! | [`handoff`] | what orchestrator and shim hand each other beside ACP |
//! | `git` | the hardened environment of every git process |
//! | `engine` | what runs sandboxes: the trait, Docker, the depot's client |
//! | `delivery` | git on the host: objects out, bundles in, verification, merging |
//! | `state` | the swarm's folder: lock, journal, `swarm-state.json`, recovery |
//! | `report` | what the user is shown: bars, plain lines, JSON events, the table |
//! | `coordinator` | the one loop that ties it together |
//! | `cli` | one file a command |
//! | `shim` | the program inside a sandbox, and the depot |
//!
//! The orchestrator's modules need the feature `orchestrator`, the shim's the feature `shim`; both are on by default.
//!
//! # Invariants
//!
//! 1. **No finished work is lost.** The shim commits and bundles before it says `completion`; a bundle is verified and under a ref
//!    on the host before its story counts as landed or its sandbox is removed; what a failing path leaves is salvaged.
//! 2. **A verdict is true, or says that it does not know.** Completed means: the commit is on the host and its checks passed.
//! 3. **Exactly once across restarts.** The journal has every event before anything follows from it; folding it gives the machine.
//! 4. **The core is pure.** One loop owns the machine; retries, timeouts and grace periods are its deadlines.
//! 5. **One slow or hostile sandbox never stalls another.** A reader each, bounded shares; a bad line is a value.
//! 6. **No credentials in a sandbox unless the user named them.** Values travel in the task-request alone.
//! 7. **Everything goes through the engine's API**, never a bind mount.
//! 8. **Everything created carries labels**, and `longshore gc` finds and explains it.

mod atomic_file;
#[cfg(feature = "orchestrator")]
mod error_chain;
mod fnv;
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
