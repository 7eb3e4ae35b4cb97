//! `longshore ssot mirror`: commits the SSOT to its own branch.

use jiff::Timestamp;

use crate::cli::context::CommandContext;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::delivery::{MIRROR_BRANCH, MirrorFile};
use crate::handoff::assignment::GitIdentity;
use crate::protocol::amp::store::Ssot;

pub(super) async fn mirror(here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let ssot = Ssot::open(repo.root())?;
    let files = ssot.list_files()?.into_iter().map(|(path, write_once)| MirrorFile { path, write_once });
    let files: Vec<MirrorFile> = files.collect();
    let identity = repo.identity().await;
    let identity = identity
        .unwrap_or_else(|| GitIdentity { name: "longshore".to_owned(), email: "longshore@localhost".to_owned() });
    let new_commit = repo.mirror(ssot.dir(), &files, &identity, Timestamp::now()).await?;
    print_stdout(&match new_commit {
        Some(commit) => format!("branch {MIRROR_BRANCH} is at {}\n", commit.short()),
        None => format!("branch {MIRROR_BRANCH} is up to date\n"),
    })?;
    Ok(ExitStatus::Success)
}
