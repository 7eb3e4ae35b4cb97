//! Git on the host: the repository's objects out to the sandboxes as packs, and the sandboxes' commits back in, verified, under
//! longshore's refs and merged onto the integration branch.
//!
//! ```text
//! Repo::discover -> pack (objects out) ... import (a hostile bundle in, under refs/longshore/)
//!                -> prepare a landing (merged, under a ref) -> move the branch
//! ```
//!
//! Called by `coordinator/` and `cli/`. Must not: know Docker, the machine or what a story is for; touch the user's working
//! tree or index, except when the user asks for it (`apply.rs`); run a hook, a merge driver or any other program that
//! the repository's config or a bundle names; move a ref outside `refs/longshore/` other than the integration branch and
//! the SSOT's mirror.
//!
//! Everything runs the user's `git` (2.38 or newer; only `git_runner.rs` starts it). Cost in processes: discover 3, pack 2,
//! import 3, prepare a landing 2 (4 with a merge), move the branch 1.
//!
//! Bare repositories are refused: a swarm's state is stored beside the working tree.

mod apply;
mod branches;
mod bundle;
mod direct_fix;
mod error;
mod gc_lock;
mod git_runner;
mod history;
mod import;
mod kept_refs;
mod landed_stories;
mod landing;
mod merge;
mod mirror;
mod move_branch;
mod pack;
mod ref_files;
mod refs;
mod repo;
#[cfg(test)]
mod tests;
mod url;
mod worktrees;

pub(crate) use apply::ApplyOutcome;
pub(crate) use error::DeliveryError;
pub(crate) use history::FileStat;
pub(crate) use import::ExpectedBundle;
pub(crate) use kept_refs::KeptRef;
pub(crate) use landing::{LandingCandidate, LandingOptions, MergeMessage, MergedStory};
pub(crate) use mirror::{MIRROR_BRANCH, MirrorFile};
pub(crate) use move_branch::MoveOutcome;
pub(crate) use refs::{is_landing_ref, landing_ref, result_ref, salvage_ref};
pub use repo::Repo;
pub(crate) use repo::RepoHead;
pub(crate) use url::acp_repo_url;
