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
mod direct_fix;
mod git;
mod history;
mod import;
mod kept_refs;
mod merge;
mod mirror;
mod pack;
#[cfg(test)]
mod real_time;
mod refs;
mod repo;
#[cfg(test)]
mod scratch_repo;
mod url;
mod worktrees;

pub use apply::ApplyOutcome;
pub use direct_fix::{FIX_LINE_LIMIT, VerifiedFix};
pub use error::{BundleError, DeliveryError};
pub use history::{CommitInfo, FileStat};
pub use import::{ExpectedBundle, ImportedResult};
pub use kept_refs::KeptRef;
pub use merge::{MergeMessage, MergeOutcome};
pub use mirror::{MIRROR_BRANCH, MirrorFile};
pub use pack::PackStream;
pub use refs::{RESULT_REFS, SALVAGE_REFS, result_ref, salvage_ref};
pub use repo::{Repo, RepoHead};
pub use url::acp_repo_url;
