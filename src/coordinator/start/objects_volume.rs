//! Keeps the objects volume complete: the objects of a base that the volume lacks are packed on the host and stored through the
//! depot, once, before the first sandbox that needs them.

use std::collections::BTreeMap;

use tokio::sync::Mutex;

use crate::delivery::Repo;
use crate::engine::depot::DepotClient;
use crate::handoff::depot::ObjectTip;
use crate::ids::{BranchName, CommitId};

use crate::coordinator::error::CoordinatorError;

/// The commits in the volume, by ref name.
pub(crate) struct ObjectsVolume {
    tips: Mutex<BTreeMap<String, CommitId>>,
}

impl ObjectsVolume {
    /// Reads the volume's refs; initializes its repository on first use.
    pub async fn open(depot: &DepotClient, repo: &Repo) -> Result<Self, CoordinatorError> {
        let tips = depot.prepare_objects_volume(repo.object_format()).await?;
        Ok(Self { tips: Mutex::new(tips.into_iter().map(|tip| (tip.name, tip.commit)).collect()) })
    }

    /// Stores `commit`, the head of `branch`, in the volume if it is missing. Concurrent calls run one after the other, so the
    /// second call for a commit finds it.
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
        // Flat, so that a branch `a/b` can follow a branch `a`.
        let name = format!("refs/longshore/tips/{}", branch.as_str().replace('/', "--"));
        let tip = ObjectTip { name: name.clone(), commit: commit.clone() };
        if let Some(mut pack) = repo.create_pack(std::slice::from_ref(commit), &have).await? {
            let stored = depot.store_pack(&mut pack, vec![tip], repo.read_shallow_file().await?).await;
            // Git's error about a pack that ended early says more than the depot's.
            pack.finish().await?;
            stored?;
        }
        tips.insert(name, commit.clone());
        Ok(())
    }
}
