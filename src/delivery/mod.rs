//! The repo's objects out to the sandboxes as packs, and what the sandboxes made of them back in, verified, under refs of
//! ours, merged onto the integration branch.
//!
//! ```text
//! Repo::discover -> pack (objects out) ... import (a hostile bundle in, under refs/longshore/) -> merge (onto the branch)
//! ```
//!
//! Called by `coordinator/` and `cli/`. Must not: know Docker, the machine or what a story is for; touch the user's working
//! tree or index, except where a person asks for just that (`apply.rs`); run a hook, a merge driver or any other program that
//! the repo's config or a bundle names; move a ref outside `refs/longshore/` other than the integration branch and
//! the SSOT's mirror.
//!
//! Everything runs the user's `git` (2.38 or newer; `git.rs` is the only place that starts it). What it costs, in
//! processes: discover 3, pack 2, import 3, fast-forward 1, merge 3.
//!
//! Bare repositories are refused: the state of a swarm lies beside the working tree.

mod apply;
mod bundle;
mod error;
mod fix;
mod git;
mod history;
mod import;
mod kept;
mod merge;
mod mirror;
mod pack;
#[cfg(test)]
mod real_time;
mod refs;
mod repo;
#[cfg(test)]
mod scratch;
mod url;
mod worktrees;

pub use apply::Applied;
pub use error::{BundleFault, DeliveryError};
pub use fix::{FIX_LINES, FixSeen};
pub use history::{CommitNote, FileStat};
pub use import::{Expected, Imported};
pub use kept::KeptRef;
pub use merge::{MergeMessage, MergeOutcome};
pub use mirror::{MIRROR, Mirrored};
pub use pack::PackStream;
pub use refs::{RESULTS, SALVAGE, result_ref, salvage_ref};
pub use repo::{Head, Repo};
pub use url::acp_repo_url;
