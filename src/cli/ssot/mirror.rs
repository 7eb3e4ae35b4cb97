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
    let files = ssot.list_files()?.into_iter().map(|(path, once)| MirrorFile { path, write_once: once });
    let files: Vec<MirrorFile> = files.collect();
    let identity = repo.identity().await;
    let identity = identity
        .unwrap_or_else(|| GitIdentity { name: "longshore".to_owned(), email: "longshore@localhost".to_owned() });
    let made = repo.mirror(ssot.dir(), &files, &identity, Timestamp::now()).await?;
    print_stdout(&match made {
        Some(commit) => format!("branch {MIRROR_BRANCH} is at {}\n", commit.short()),
        None => format!("branch {MIRROR_BRANCH} has it all\n"),
    })?;
    Ok(ExitStatus::Success)
}
