//! longshore fans the stories of a tasks file out over hardened Docker sandboxes, has an agent do each, brings the commits
//! back verified, merges them, and keeps an exact record.

pub mod ids;
pub mod verdict;
pub mod tasks;
#[cfg(feature = "orchestrator")]
pub mod plan;
#[cfg(feature = "orchestrator")]
pub mod swarm;
pub mod wire;
pub mod protocol;
pub mod handoff;
#[cfg(feature = "orchestrator")]
pub mod engine;
#[cfg(feature = "orchestrator")]
pub mod delivery;
#[cfg(feature = "orchestrator")]
pub mod state;
#[cfg(feature = "orchestrator")]
pub mod report;
#[cfg(feature = "orchestrator")]
pub mod cli;
#[cfg(feature = "shim")]
pub mod shim;
