//! The repo's objects as a pack, for the objects volume.
//!
//! Called by `coordinator/`, which streams the pack to the depot. Not thin: the volume may not have what a delta needs. Must
//! not: hold a pack in memory.

use std::io::Cursor;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, Chain, ReadBuf};

use super::error::DeliveryError;
use super::git::{RunningGit, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;

/// A pack's header: "PACK", version, number of objects.
const PACK_HEADER_LEN: usize = 12;
/// In a partial clone, blobs of the wanted commits may have to come from the remote one by one.
const FETCH_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A pack while git makes it. Read it to its end, then call [`PackStream::finish`]: a pack that ends early looks like any
/// other until then. Dropping it stops git.
pub struct PackStream {
    pack: Chain<Cursor<Vec<u8>>, Box<dyn AsyncRead + Send + Unpin>>,
    git: RunningGit,
    /// The number of objects in it.
    object_count: u32,
}

impl PackStream {
    /// How many objects the pack has.
    pub fn object_count(&self) -> u32 {
        self.object_count
    }

    /// Whether git made all of it. Call it after the end of the stream.
    pub async fn finish(self) -> Result<(), DeliveryError> {
        let Self { pack, git, .. } = self;
        // Git may still be writing if the reader stopped early: without a reader it ends.
        drop(pack);
        git.finish().await
    }
}

impl AsyncRead for PackStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.pack).poll_read(cx, buf)
    }
}

impl Repo {
    /// A pack of all that is reachable from `want` and not from `have`; none where that is nothing. Commits of `have` that
    /// this repo does not have are ignored; one of `want` is an error.
    ///
    /// In a read_shallow_file clone it ends where the clone's history ends ([`Repo::read_shallow_file`] goes with it). In a partial clone the
    /// wanted commits are made complete, and of their history only what is here is sent.
    pub async fn create_pack(&self, want: &[CommitId], have: &[CommitId]) -> Result<Option<PackStream>, DeliveryError> {
        if want.iter().all(|commit| have.contains(commit)) {
            return Ok(None);
        }
        let present = self.existing_commits(want.iter().chain(have)).await?;
        if let Some(missing) = want.iter().find(|commit| !present.contains(commit)) {
            return Err(DeliveryError::MissingCommit { commit: missing.clone() });
        }
        let mut args = vec!["pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"];
        if self.is_partial_clone() {
            self.fetch_missing_objects(want).await?;
            args.push("--missing=allow-promisor");
        }
        let mut revisions = String::new();
        for commit in want {
            revisions.push_str(&format!("{commit}\n"));
        }
        for commit in have.iter().filter(|commit| present.contains(commit)) {
            revisions.push_str(&format!("^{commit}\n"));
        }
        let operation = "pack the repository's objects";
        let (git, mut stdout) = self.git().new_command(operation, args).input(revisions).start()?;
        let mut header = vec![0; PACK_HEADER_LEN];
        if stdout.read_exact(&mut header).await.is_err() {
            git.finish().await?;
            return Err(unexpected_output(operation, "no pack"));
        }
        let objects = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if objects == 0 {
            tokio::io::copy(&mut stdout, &mut tokio::io::sink())
                .await
                .map_err(|source| DeliveryError::from_io(operation, "the pack", source))?;
            git.finish().await?;
            return Ok(None);
        }
        let stdout: Box<dyn AsyncRead + Send + Unpin> = Box::new(stdout);
        Ok(Some(PackStream { pack: Cursor::new(header).chain(stdout), git, object_count: objects }))
    }

    /// Those of the commits that this repo has.
    pub(super) async fn existing_commits(
        &self,
        commits: impl Iterator<Item = &CommitId>,
    ) -> Result<Vec<CommitId>, DeliveryError> {
        let (mut present, mut names) = (Vec::new(), String::new());
        {
            let seen = self.known_commits().lock().expect("nothing panics while it is locked");
            for commit in commits {
                if seen.contains(commit) {
                    present.push(commit.clone());
                } else {
                    names.push_str(&format!("{commit}\n"));
                }
            }
        }
        if names.is_empty() {
            return Ok(present);
        }
        let args = ["cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"];
        // Without fetching: what a partial clone lacks, it does not have.
        let call = self.git().new_command("look for commits", args).input(names).env("GIT_NO_LAZY_FETCH", "1");
        let output = call.run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Vec<CommitId> = text.lines().filter_map(|line| line.strip_suffix(" commit")?.parse().ok()).collect();
        self.known_commits().lock().expect("nothing panics while it is locked").extend(found.iter().cloned());
        present.extend(found);
        Ok(present)
    }

    /// Has git fetch, in a partial clone, what the trees of these commits lack.
    async fn fetch_missing_objects(&self, commits: &[CommitId]) -> Result<(), DeliveryError> {
        let args = ["rev-list", "--objects", "--no-object-names", "--no-walk", "--quiet", "--end-of-options"];
        let call = self.git().new_command("complete a partial clone", args);
        call.args(commits.iter().map(CommitId::as_str)).time_limit(FETCH_TIME_LIMIT).run().await.map(drop)
    }
}

#[cfg(test)]
mod tests;
