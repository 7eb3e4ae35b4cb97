//! The repository's objects as a pack for the objects volume.
//!
//! Called by `coordinator/`, which streams the pack to the depot. Packs are not thin, because the volume may lack the base of a
//! delta. Must not: hold a pack in memory.

use std::io::Cursor;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, Chain, ReadBuf};

use super::error::DeliveryError;
use super::git_runner::{RunningGit, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;

/// "PACK", version, number of objects.
const PACK_HEADER_LEN: usize = 12;
/// In a partial clone, git may have to fetch blobs of the wanted commits one by one.
const FETCH_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A pack that git is writing. Read it to its end, then call [`PackStream::finish`], which detects a truncated pack. Dropping
/// the stream stops git.
pub(crate) struct PackStream {
    pack: Chain<Cursor<Vec<u8>>, Box<dyn AsyncRead + Send + Unpin>>,
    git: RunningGit,
}

impl PackStream {
    /// Checks that git wrote the whole pack. Call it after the end of the stream.
    pub(crate) async fn finish(self) -> Result<(), DeliveryError> {
        let Self { pack, git } = self;
        // If the reader stopped early, git still writes; it exits without a reader.
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
    /// Packs the objects reachable from `want` and not from `have`; `None` if there are none. Missing commits of `have` are
    /// ignored; a missing commit of `want` is an error.
    ///
    /// The pack of a shallow clone ends where the clone's history ends ([`Repo::read_shallow_file`] belongs to it). In a partial
    /// clone, missing objects of the wanted commits are fetched, and of their history only local objects are packed.
    pub(crate) async fn create_pack(
        &self,
        want: &[CommitId],
        have: &[CommitId],
    ) -> Result<Option<PackStream>, DeliveryError> {
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
        let (git, mut stdout) = self.git(operation, args).input(revisions).start()?;
        let mut header = vec![0; PACK_HEADER_LEN];
        if stdout.read_exact(&mut header).await.is_err() {
            git.finish().await?;
            return Err(unexpected_output(operation, "no pack"));
        }
        // The number of objects.
        if header.ends_with(&[0; 4]) {
            tokio::io::copy(&mut stdout, &mut tokio::io::sink())
                .await
                .map_err(|source| DeliveryError::from_io(operation, "the pack", source))?;
            git.finish().await?;
            return Ok(None);
        }
        let stdout: Box<dyn AsyncRead + Send + Unpin> = Box::new(stdout);
        Ok(Some(PackStream { pack: Cursor::new(header).chain(stdout), git }))
    }

    /// The commits that exist in this repository.
    pub(super) async fn existing_commits(
        &self,
        commits: impl Iterator<Item = &CommitId>,
    ) -> Result<Vec<CommitId>, DeliveryError> {
        let (mut present, mut names) = (Vec::new(), String::new());
        {
            let known = self.known_commits();
            for commit in commits {
                if known.contains(commit) {
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
        // In a partial clone, a commit that git would have to fetch does not exist.
        let command = self.git("look for commits", args).input(names).env("GIT_NO_LAZY_FETCH", "1");
        let output = command.run().await?;
        let parse = |line: &str| line.strip_suffix(" commit")?.parse().ok();
        let found: Vec<CommitId> = output.text().lines().filter_map(parse).collect();
        self.known_commits().extend(found.iter().cloned());
        present.extend(found);
        Ok(present)
    }

    /// Fetches the missing objects of these commits' trees in a partial clone.
    async fn fetch_missing_objects(&self, commits: &[CommitId]) -> Result<(), DeliveryError> {
        let args = ["rev-list", "--objects", "--no-object-names", "--no-walk", "--quiet", "--end-of-options"];
        let command = self.git("complete a partial clone", args);
        command.args(commits.iter().map(CommitId::as_str)).time_limit(FETCH_TIME_LIMIT).run().await.map(drop)
    }
}

#[cfg(test)]
mod tests;
