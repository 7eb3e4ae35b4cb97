//! What of a swarm's mailbox whoever writes on the host has to know: whose names are taken, and whether anybody still reads.
//!
//! Kept beside the copy by `mailbox.rs`, read by `longshore mailbox`. Must not: be needed; a swarm of before has none.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::copy::write;
use crate::ids::AgentId;

/// In the swarm's folder.
const FILE: &str = "mailbox-standing.json";

/// How a mailbox stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Sandboxes' agents: what the host writes in their names is not carried.
    pub sandboxes: BTreeSet<AgentId>,
    /// Nobody goes on with the swarm.
    pub over: bool,
}

impl Standing {
    /// That of the swarm in this folder; where nothing is known, nothing is taken, and it goes on.
    pub fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Keeps it.
    pub(super) fn keep(&self, folder: &Path) {
        let path = folder.join(FILE);
        let text = serde_json::to_vec(self).expect("ids are JSON");
        if let Err(error) = write(&path, &text) {
            tracing::warn!(path = %path.display(), %error, "how the mailbox stands cannot be kept");
        }
    }

    /// The swarm in this folder is over.
    pub(super) fn end(folder: &Path) {
        Self { over: true, ..Self::read(folder) }.keep(folder);
    }

    /// The sandbox's agent that has this name, but for upper and lower case.
    pub fn sandbox(&self, name: &AgentId) -> Option<&AgentId> {
        self.sandboxes.iter().find(|agent| agent.as_str().eq_ignore_ascii_case(name.as_str()))
    }
}
