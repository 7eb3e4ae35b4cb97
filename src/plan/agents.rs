//! Who each assignment's agent is in the swarm's mailbox: an id of its own, and a role.
//!
//! A story's own wish, or its id in lower case; where a sandbox does a whole tasks file, that file's slug. Ids are told apart
//! without regard to case, as some file systems do. Called by `build.rs`.

use crate::ids::AgentId;

/// Who people are, unless they say otherwise.
pub const HOST_AGENT: &str = "host";
/// What an agent is there for, where nobody says.
pub(super) const DEFAULT_ROLE: &str = "agent";
/// What a reviewer is there for.
pub const REVIEWER_ROLE: &str = "reviewer";
/// The longest id.
const MAX_AGENT_ID_CHARS: usize = 64;
/// What a reviewer's id ends with.
const REVIEWER_SUFFIX: &str = "-reviewer";

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAgent {
    /// Its id.
    pub id: AgentId,
    /// Its role.
    pub role: String,
}

impl PlannedAgent {
    /// The seat of who reviews its work.
    pub fn reviewer(&self) -> Self {
        Self { id: reviewer_id(&self.id), role: REVIEWER_ROLE.to_owned() }
    }
}

pub(super) fn reviewer_id(agent: &AgentId) -> AgentId {
    parse_agent_id(&truncate_with_suffix(agent.as_str(), REVIEWER_SUFFIX))
}

/// The beginning of an id with an ending, no longer than an id may be.
pub(super) fn truncate_with_suffix(beginning: &str, ending: &str) -> String {
    let room = MAX_AGENT_ID_CHARS - ending.len();
    format!("{}{ending}", &beginning[..beginning.len().min(room)])
}

pub(super) fn parse_agent_id(text: &str) -> AgentId {
    text.parse().expect("slugs, story ids and agents' ids are made of an id's characters")
}
