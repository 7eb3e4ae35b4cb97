//! The diff under review as a file in the swarm's directory, for people and for readers of the review request.

use std::path::PathBuf;

use crate::delivery::Repo;
use crate::ids::CommitId;
use crate::swarm::MachineryFault;

use crate::coordinator::fault::{delivery_fault, storage_fault};

/// The most bytes that are written.
const MAX_DIFF_BYTES: usize = 64 << 20;

/// A difference between two commits, and the path of its file.
pub(crate) struct ReviewDiff {
    pub path: PathBuf,
    pub from: CommitId,
    pub to: CommitId,
}

impl ReviewDiff {
    pub async fn write(&self, repo: &Repo) -> Result<(), Box<MachineryFault>> {
        let mut text = Vec::new();
        let patch = repo.write_patch(&self.from, &self.to, |piece| {
            text.extend_from_slice(piece);
            text.len() < MAX_DIFF_BYTES
        });
        patch.await.map_err(|error| Box::new(delivery_fault(&error)))?;
        let write = async {
            if let Some(dir) = self.path.parent() {
                tokio::fs::create_dir_all(dir).await?;
            }
            tokio::fs::write(&self.path, &text).await
        };
        write.await.map_err(|error| {
            let summary = format!("cannot write the diff under review to `{}`: {error}", self.path.display());
            Box::new(storage_fault(error.kind() == std::io::ErrorKind::StorageFull, summary, true))
        })
    }
}
