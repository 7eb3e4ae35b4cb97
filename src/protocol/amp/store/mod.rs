//! The SSOT, AMP's single source of truth: messages, acks and task files in `.longshore/ssot/` of the repo. The repo's swarms
//! share it, and several may write at once.
//!
//! Called by `coordinator/` (from a thread of its own, because everything here blocks on the disk) and by `cli/`. Must not:
//! know Docker, git or swarms, decide anything, or read a clock.
//!
//! | path | what | written |
//! |---|---|---|
//! | `messages/<task>/<msg_id>.json` | a message | once |
//! | `acks/<task>/<msg_id>.json` | its ack | once |
//! | `tasks/<task>.json` | [`TaskFile`] | replaced |
//! | `errors/<year>-<month>.ndjson` | a [`RejectedMessage`] a line | appended |
//! | `decisions/<swarm>/<number>-<id>.json` | [`AdminDecision`] | once |
//! | `index/open/<msg_id>` | an escalation that may have no ack yet | created, removed |
//! | `numbers/<year>` | the next free task number | replaced |
//! | `memory/<swarm>/<file>-<story>.json` | the MemoryGram of a landed story | once |
//!
//! **Lookups do not scan.** An id contains its task, and both give the path: a message, its ack and a task are one `open`
//! away, a task's log is one directory. Only the index knows which escalations are open: a marker exists from *before* its
//! message until *after* its ack, so that a writer's death leaves too many markers, never too few. Readers check the ack too.
//!
//! **Nothing twice, nothing overwritten.** `ensure_*` of existing content changes nothing; of another content under the same
//! id it is [`SsotError::Conflict`]. This holds between processes: see [`files`].
//!
//! **Durability.** A swarm's journal can produce each of its messages again, and does on `resume`, so messages are not synced
//! one by one. A crash of the program loses nothing. A power cut may leave recent files empty or torn: they count as absent,
//! and `ensure_*` writes them again. The coordinator calls [`Ssot::sync`] before it records a swarm's end, after which nobody
//! would produce its messages again. Task numbers and decisions have no other copy and are synced at once.

mod check;
mod decisions;
mod error;
mod error_log;
mod files;
mod memory;
mod ssot;
mod task_file;
mod task_numbers;
#[cfg(test)]
mod tests;

pub use check::{ProblemSeverity, SsotProblem};
pub use decisions::{AdminAction, AdminDecision, DecisionId, DecisionTarget};
pub use error::{SsotError, SsotResult};
pub use error_log::RejectedMessage;
pub use ssot::{EnsureOutcome, LogEntry, Ssot, compare_by_time};
pub use task_file::{TaskFile, TaskStatus, TaskStory};
