//! The admin's decisions, kept until an orchestrator applies them: `decisions/<swarm>/<number>-<id>.json`.
//!
//! There is no other copy, so [`Ssot::record_decision`] syncs. Files stay as a record: who applies a decision notes its id.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::{SsotError, SsotResult};
use super::files::to_json_bytes;
use super::ssot::{EnsureOutcome, Ssot};
use crate::ids::{AssignmentId, StoryKey, SwarmId};
use crate::protocol::amp::message::MsgId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecisionId(Uuid);

impl DecisionId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminDecision {
    pub id: DecisionId,
    pub swarm: SwarmId,
    pub target: DecisionTarget,
    pub action: AdminAction,
    pub at: Timestamp,
    /// The person, as free text.
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionTarget {
    Task(AssignmentId),
    Story(StoryKey),
    /// An escalation and its subject.
    Escalation(MsgId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminAction {
    /// Allow it to start or to land.
    Approve,
    Resume,
    Retry,
    /// End it and keep its work.
    Abort,
    /// End it and revert its work.
    Rollback,
    /// Continue with guidance.
    Answer {
        text: String,
    },
}

impl Ssot {
    /// Appends a decision.
    pub fn record_decision(&self, decision: &AdminDecision) -> SsotResult<EnsureOutcome> {
        let _lock = self.files.lock("decisions/lock")?;
        let dir = self.files.path(format!("decisions/{}", decision.swarm));
        self.files.create_dir(&dir)?;
        let names = self.decision_names(&decision.swarm)?;
        if let Some((_, name)) = names.iter().find(|(_, name)| name.contains(&decision.id.to_string())) {
            let path = dir.join(name);
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
        let path = dir.join(format!("{number:06}-{}.json", decision.id));
        if !self.files.create_new(&path, &to_json_bytes(&path, decision)?)? {
            return Err(SsotError::Conflict { path });
        }
        self.files.sync()?;
        Ok(EnsureOutcome::Written)
    }

    /// The decisions for a swarm, in order.
    pub fn decisions(&self, swarm: &SwarmId) -> SsotResult<Vec<AdminDecision>> {
        let dir = self.files.path(format!("decisions/{swarm}"));
        let mut decisions = Vec::new();
        for (_, name) in self.decision_names(swarm)? {
            decisions.extend(self.files.read_json(&dir.join(name))?);
        }
        Ok(decisions)
    }

    /// The numbers and file names of a swarm's decisions, in order.
    fn decision_names(&self, swarm: &SwarmId) -> SsotResult<Vec<(u64, String)>> {
        let names = self.files.file_names(&self.files.path(format!("decisions/{swarm}")))?;
        let number = |name: &str| -> Option<u64> { name.strip_suffix(".json")?.split_once('-')?.0.parse().ok() };
        let mut names: Vec<(u64, String)> = names.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
        names.sort();
        Ok(names)
    }
}
