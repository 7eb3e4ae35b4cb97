//! longshore fans the stories of a tasks file out over hardened Docker sandboxes, has an agent do each, brings the commits
//! back verified, merges them, and keeps an exact record.

#[cfg(feature = "orchestrator")]
pub mod cli;
#[cfg(feature = "orchestrator")]
pub mod delivery;
#[cfg(feature = "orchestrator")]
pub mod engine;
pub mod handoff;
pub mod ids;
#[cfg(feature = "orchestrator")]
pub mod plan;
pub mod protocol;
#[cfg(feature = "orchestrator")]
pub mod report;
#[cfg(feature = "shim")]
pub mod shim;
#[cfg(feature = "orchestrator")]
pub mod state;
#[cfg(feature = "orchestrator")]
pub mod swarm;
pub mod tasks;
pub mod verdict;
pub mod wire;
