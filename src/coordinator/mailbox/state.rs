//! What of a swarm's mailbox whoever writes on the host has to know: whose names are taken, and whether anybody still reads.
//!
//! Kept beside the copy by `mailbox.rs`, read by `longshore mailbox`. Must not: be needed; a swarm of before has none.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::host_copy::write_atomic;
use crate::ids::AgentId;

/// In the swarm's folder.
const STATE_FILE: &str = "mailbox-standing.json";

/// How a mailbox stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxState {
    /// Sandboxes' agents: what the host writes in their names is not carried.
    #[serde(rename = "sandboxes")]
    pub sandbox_agents: BTreeSet<AgentId>,
    /// Nobody goes on with the swarm.
    pub over: bool,
}

impl MailboxState {
    /// That of the swarm in this folder; where nothing is known, nothing is taken, and it goes on.
    pub fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join(STATE_FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Keeps it.
    pub(super) fn save(&self, folder: &Path) {
        let path = folder.join(STATE_FILE);
        let text = serde_json::to_vec(self).expect("ids are JSON");
        if let Err(error) = write_atomic(&path, &text) {
            tracing::warn!(path = %path.display(), %error, "how the mailbox stands cannot be kept");
        }
    }

    /// The swarm in this folder is over.
    pub(super) fn mark_over(folder: &Path) {
        Self { over: true, ..Self::read(folder) }.save(folder);
    }

    /// The sandbox's agent that has this name, but for upper and lower case.
    pub fn find_sandbox_agent(&self, name: &AgentId) -> Option<&AgentId> {
        self.sandbox_agents.iter().find(|agent| agent.as_str().eq_ignore_ascii_case(name.as_str()))
    }
}
