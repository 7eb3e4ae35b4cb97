//! The depot to start: its container, volumes and shim. Built by `coordinator/`.

use bytes::Bytes;

use crate::ids::SwarmId;

/// A depot to start.
#[derive(Debug, Clone)]
pub struct DepotSpec {
    /// The swarm that it serves.
    pub swarm: SwarmId,
    /// The hash of the repository, which labels the objects volume.
    pub repo: String,
    /// Any image with git.
    pub image: String,
    /// The name of the container.
    pub name: String,
    /// The names of the volumes.
    pub volumes: DepotVolumes,
    /// The shim, built for the engine's architecture.
    pub shim_binary: Bytes,
    /// Keeps an identical shim that the volume already holds. Set on resume, because the engine may still be starting sandboxes
    /// with it.
    pub reuse_shim: bool,
    /// Memory limit in bytes; 0 for none.
    pub memory_limit: u64,
}

/// The names of a swarm's volumes. Missing volumes are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepotVolumes {
    /// The repository's objects; kept between swarms.
    pub objects: String,
    /// The *in* volume.
    pub inbox: String,
    /// The *work* volume.
    pub work: String,
    /// The *mailbox* volume, if the swarm has a mailbox.
    pub mailbox: Option<String>,
}
