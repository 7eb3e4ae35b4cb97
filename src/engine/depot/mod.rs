//! The client of a swarm's depot: the helper container through which files travel between the host and the swarm's volumes
//! (`handoff/depot.rs` defines the messages, `shim/depot/` is the other end).
//!
//! Called by `coordinator/`. `client.rs` has the requests, `connection.rs` carries many of them over one stream, `spool.rs` stores
//! received data, `start.rs` starts the container, and `supervisor.rs` restarts it after a failure on the same volumes, so that
//! their content survives. Must not: run git, or trust data from a sandbox.
//!
//! | event | callers see |
//! |---|---|
//! | the depot answers with an error | [`EngineError::Depot`](super::EngineError::Depot) with its kind |
//! | its stream ends or breaks the frame format | nothing: it is restarted once for all waiting requests, which are repeated once |
//! | it answers neither a request nor a probe for 45 s, and the engine answers | the same |
//! | the same again, or during a pack, or it cannot be started | [`EngineError::Depot`](super::EngineError::Depot) without a kind, with the end of the depot's stderr |
//! | the same, and the engine does not answer | an error that [is unreachable](super::EngineError::is_unreachable); the next request tries again |
//! | no answer and no progress for too long, and it answers probes | [`EngineError::TimedOut`](super::EngineError::TimedOut) of that request alone |
//! | the same, and the engine does not answer | an error that [is unreachable](super::EngineError::is_unreachable) |
//! | the caller drops its future | the request is forgotten; its late answer is dropped |

mod client;
mod connection;
mod frame_decoder;
pub mod mailbox;
mod spec;
mod spool;
mod start;
mod supervisor;
#[cfg(test)]
mod tests;

pub use client::{CollectedFiles, DepotClient, EngineSpace, SalvagedWork};
pub use spec::{DepotSpec, DepotVolumes};
#[cfg(test)]
pub(crate) use tests::fake_depot as fake;
