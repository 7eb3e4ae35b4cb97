//! What the admin decided while no orchestrator ran, kept until one takes it up: `decisions/<swarm>/<number>-<id>.json`.
//!
//! Nothing else has a copy, so a decision is on the disk before [`Ssot::record_decision`] is done. Files stay as a record: whoever
//! takes decisions up notes their ids.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::{SsotError, SsotResult};
use super::files::to_json_bytes;
use super::{EnsureOutcome, Ssot};
use crate::ids::{AssignmentId, StoryKey, SwarmId};
use crate::protocol::amp::message::MsgId;

/// A decision's own id: a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecisionId(Uuid);

impl DecisionId {
    /// A new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminDecision {
    /// Which.
    pub id: DecisionId,
    /// The swarm that it is for.
    pub swarm: SwarmId,
    /// What it is about.
    pub target: DecisionTarget,
    /// What is to be done.
    pub action: AdminAction,
    /// When it was made.
    pub at: Timestamp,
    /// Who made it, in words.
    pub by: String,
}

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionTarget {
    /// All of a task.
    Task(AssignmentId),
    /// A story.
    Story(StoryKey),
    /// An escalation, and what it was raised for.
    Escalation(MsgId),
}

/// What the admin may decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminAction {
    /// It may begin, or land.
    Approve,
    /// Go on.
    Resume,
    /// Do it again.
    Retry,
    /// End it; what is done stays where it is kept.
    Abort,
    /// End it, and take what it did back.
    Rollback,
    /// Go on with this in mind.
    Answer {
        /// Guidance, in words.
        text: String,
    },
}

impl Ssot {
    /// Keeps a decision, after those that there are.
    pub fn record_decision(&self, decision: &AdminDecision) -> SsotResult<EnsureOutcome> {
        let _lock = self.files.lock("decisions/lock")?;
        let folder = self.files.path(format!("decisions/{}", decision.swarm));
        self.files.create_dir(&folder)?;
        let names = self.decision_names(&decision.swarm)?;
        if let Some((_, name)) = names.iter().find(|(_, name)| name.contains(&decision.id.to_string())) {
            let path = folder.join(name);
            return match self.files.read_json::<AdminDecision>(&path)? {
                Some(there) if there == *decision => Ok(EnsureOutcome::AlreadyThere),
                Some(_) => Err(SsotError::Conflict { path }),
                None => {
                    self.files.replace(&path, &to_json_bytes(&path, decision)?)?;
                    self.files.sync().map(|()| EnsureOutcome::Written)
                }
            };
        }
        let number = names.last().map_or(1, |(number, _)| number + 1);
        let path = folder.join(format!("{number:06}-{}.json", decision.id));
        if !self.files.create_new(&path, &to_json_bytes(&path, decision)?)? {
            return Err(SsotError::Conflict { path });
        }
        self.files.sync()?;
        Ok(EnsureOutcome::Written)
    }

    /// What was decided for a swarm, in the order in which it was decided.
    pub fn decisions(&self, swarm: &SwarmId) -> SsotResult<Vec<AdminDecision>> {
        let folder = self.files.path(format!("decisions/{swarm}"));
        let mut decisions = Vec::new();
        for (_, name) in self.decision_names(swarm)? {
            decisions.extend(self.files.read_json(&folder.join(name))?);
        }
        Ok(decisions)
    }

    /// The file names of a swarm's decisions, each with its number, in order.
    fn decision_names(&self, swarm: &SwarmId) -> SsotResult<Vec<(u64, String)>> {
        let names = self.files.file_names(&self.files.path(format!("decisions/{swarm}")))?;
        let number = |name: &str| -> Option<u64> { name.strip_suffix(".json")?.split_once('-')?.0.parse().ok() };
        let mut names: Vec<(u64, String)> = names.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
        names.sort();
        Ok(names)
    }
}
