//! What `longshore mailbox` needs to know about a swarm: which ids are taken, and whether anybody still reads.
//!
//! Kept beside the copy by `sync.rs`. Must not: be required; older swarms have no such file.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::host_copy::write_atomic;
use crate::ids::AgentId;

/// In the swarm's directory.
const STATE_FILE: &str = "mailbox-standing.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MailboxState {
    /// The host cannot send messages as these.
    #[serde(rename = "sandboxes")]
    pub(crate) sandbox_agents: BTreeSet<AgentId>,
    /// The swarm will not be resumed.
    pub(crate) over: bool,
}

impl MailboxState {
    /// Reads the state from the swarm's directory. The default if there is none.
    pub(crate) fn read(swarm_dir: &Path) -> Self {
        let bytes = std::fs::read(swarm_dir.join(STATE_FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(super) fn save(&self, swarm_dir: &Path) {
        let path = swarm_dir.join(STATE_FILE);
        let json = serde_json::to_vec(self).expect("ids are JSON");
        if let Err(error) = write_atomic(&path, &json) {
            tracing::warn!(path = %path.display(), %error, "cannot write the state of the mailbox");
        }
    }

    pub(super) fn mark_over(swarm_dir: &Path) {
        Self { over: true, ..Self::read(swarm_dir) }.save(swarm_dir);
    }

    /// The sandbox's agent with this id, ignoring case.
    pub(crate) fn find_sandbox_agent(&self, id: &AgentId) -> Option<&AgentId> {
        self.sandbox_agents.iter().find(|agent| agent.as_str().eq_ignore_ascii_case(id.as_str()))
    }
}
