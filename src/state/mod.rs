//! The state of a swarm on disk: `.longshore/swarms/<swarm>/`.
//!
//! `swarm_dir.rs` is the folder and its lock, `journal.rs` the list of events that the machine handled (the source of truth),
//! `swarm_state.rs` the snapshot of it for people and programs (`swarm-state.json`), `store.rs` both together and when
//! a snapshot is due, `recovery.rs` rebuilds a machine from the folder. Called by `coordinator/` and, for
//! reading, by `cli/`. Must not: know Docker or git, or decide anything about a story.
//!
//! Rules: an event is appended and synced before anything that follows from it is done. A torn last line of the journal
//! is what a crash leaves: it is dropped. Any other damage is an error that names the place; never a guess. The snapshot
//! can always be made from the journal, so a damaged one is made again.

#[cfg(debug_assertions)]
mod kill_point;
pub mod swarm_dir;
pub mod error;
pub mod journal;
pub mod salvage_records;
pub mod recovery;
pub mod store;
pub mod swarm_state;

pub use error::{StateError, StateResult};
pub use journal::{Journal, JournalContents, JournalHeader, JournalRecord, TasksFileCopy};
pub use recovery::{RecoveredSwarm, recover};
pub use salvage_records::{SalvageRecord, salvage_records};
pub use store::{PendingSnapshot, SnapshotPolicy, SwarmStore};
pub use swarm_dir::{RepoLock, SwarmDir, SwarmLock};
pub use swarm_state::{ContainerState, SandboxRole, StoryState, SwarmState, SwarmStatus, WaitState, hold_since};

#[cfg(test)]
mod tests;
