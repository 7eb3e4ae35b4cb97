//! The agents in the swarm's mailbox, each with an id and a role.
//!
//! Ids are compared without regard to case, as on some file systems. Called by `agent_assignment.rs`.

use crate::ids::AgentId;

/// The default agent id of people.
pub const HOST_AGENT: &str = "host";
/// The role of an agent without a configured role.
pub(super) const DEFAULT_ROLE: &str = "agent";
/// The role of a reviewer.
pub const REVIEWER_ROLE: &str = "reviewer";
/// The longest id.
const MAX_AGENT_ID_CHARS: usize = 64;
const REVIEWER_SUFFIX: &str = "-reviewer";

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAgent {
    pub id: AgentId,
    pub role: String,
}

impl PlannedAgent {
    /// The agent that reviews its work.
    pub fn reviewer(&self) -> Self {
        Self { id: reviewer_id(&self.id), role: REVIEWER_ROLE.to_owned() }
    }
}

pub(super) fn reviewer_id(agent: &AgentId) -> AgentId {
    parse_agent_id(&truncate_with_suffix(agent.as_str(), REVIEWER_SUFFIX))
}

/// Appends `suffix` to `prefix`, truncating the prefix to the maximum length of an id.
pub(super) fn truncate_with_suffix(prefix: &str, suffix: &str) -> String {
    let max_prefix = MAX_AGENT_ID_CHARS - suffix.len();
    format!("{}{suffix}", &prefix[..prefix.len().min(max_prefix)])
}

pub(super) fn parse_agent_id(text: &str) -> AgentId {
    text.parse().expect("slugs, story ids and agents' ids are made of an id's characters")
}
