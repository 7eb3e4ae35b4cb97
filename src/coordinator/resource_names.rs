//! The names of a swarm's containers and volumes on the engine.

use bytes::Bytes;

use crate::delivery::Repo;
use crate::engine::depot::{DepotSpec, DepotVolumes};
use crate::ids::{AttemptId, SwarmId};

/// The names of a swarm's volumes and containers.
#[derive(Debug, Clone)]
pub struct ResourceNames {
    swarm: SwarmId,
    repo_hash: String,
    pub(super) volumes: DepotVolumes,
}

impl ResourceNames {
    pub fn new(swarm: SwarmId, repo: &Repo, has_mailbox: bool) -> Self {
        let repo_hash = repo.hash();
        let name = |kind: &str| format!("longshore-{}-{kind}", swarm.short());
        let volumes = DepotVolumes {
            // The objects volume belongs to the repo and outlives the swarm.
            objects: format!("longshore-objects-{repo_hash}"),
            inbox: name("in"),
            work: name("work"),
            mailbox: has_mailbox.then(|| name("mailbox")),
        };
        Self { swarm, repo_hash, volumes }
    }

    pub(super) fn sandbox(&self, attempt: &AttemptId) -> String {
        format!("longshore-{}-{}", self.swarm.short(), attempt.dir_name().to_lowercase())
    }

    /// The volumes that are removed with the swarm.
    pub(super) fn swarm_volumes(&self) -> impl Iterator<Item = &String> {
        [&self.volumes.inbox, &self.volumes.work].into_iter().chain(&self.volumes.mailbox)
    }

    /// The depot of this swarm. `reuse_shim`: the volumes exist, and sandboxes may be starting with the shim in them.
    pub(super) fn depot_spec(&self, image: String, shim_binary: Bytes, reuse_shim: bool) -> DepotSpec {
        DepotSpec {
            reuse_shim,
            swarm: self.swarm,
            image,
            name: format!("longshore-{}-depot", self.swarm.short()),
            volumes: self.volumes.clone(),
            repo: self.repo_hash.clone(),
            shim_binary,
            memory_limit: 0,
        }
    }
}
