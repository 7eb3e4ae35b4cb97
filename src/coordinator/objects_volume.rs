//! Keeps the objects volume able to give any sandbox its base: what the volume lacks is packed on the host and stored through
//! the depot, once, before the first sandbox that needs it.

use std::collections::BTreeMap;

use tokio::sync::Mutex;

use crate::delivery::Repo;
use crate::engine::depot::DepotClient;
use crate::handoff::depot::ObjectTip;
use crate::ids::{BranchName, CommitId};

use super::CoordinatorError;

/// What the volume has, by ref name.
pub(super) struct ObjectsVolume {
    tips: Mutex<BTreeMap<String, CommitId>>,
}

impl ObjectsVolume {
    /// Asks the depot what the volume has; makes its repository on first use.
    pub async fn open(depot: &DepotClient, repo: &Repo) -> Result<Self, CoordinatorError> {
        let tips = depot.prepare_objects_volume(repo.object_format()).await?;
        Ok(Self { tips: Mutex::new(tips.into_iter().map(|tip| (tip.name, tip.commit)).collect()) })
    }

    /// Makes sure that `commit`, the head of `branch`, is complete in the volume. Callers wait for each other: the second of two
    /// that need the same commit finds it there.
    pub async fn ensure(
        &self,
        depot: &DepotClient,
        repo: &Repo,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<(), CoordinatorError> {
        let mut tips = self.tips.lock().await;
        if tips.values().any(|have| have == commit) {
            return Ok(());
        }
        let have: Vec<CommitId> = tips.values().cloned().collect();
        // Flat, so that a branch `a` and a branch `a/b` can follow each other.
        let name = format!("refs/longshore/tips/{}", branch.as_str().replace('/', "--"));
        let tip = ObjectTip { name: name.clone(), commit: commit.clone() };
        if let Some(mut pack) = repo.create_pack(std::slice::from_ref(commit), &have).await? {
            let stored = depot.store_pack(&mut pack, vec![tip], repo.read_shallow_file().await?).await;
            // Git's own words about a pack that ended early say more than the depot's.
            pack.finish().await?;
            stored?;
        }
        tips.insert(name, commit.clone());
        Ok(())
    }
}
