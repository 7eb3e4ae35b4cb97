//! `tasks/<task>.json`: the state of a task, for people and agents.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, BranchName, SwarmId};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::wire_enum::wire_enum;
use crate::tasks::RiskLevel;

/// A task, which is an assignment. Replaced as a whole with every change; the messages are its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFile {
    pub task_id: AssignmentId,
    pub swarm_id: SwarmId,
    pub branch: BranchName,
    pub status: TaskStatus,
    /// The highest of its stories.
    pub risk_level: RiskLevel,
    pub attempts: u32,
    pub reject_count: u32,
    pub stories: Vec<TaskStory>,
    /// The latest progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStory {
    /// `T-2026-044-S1`.
    pub subtask_id: String,
    /// `US-003`; `slug/US-003` if the swarm has several tasks files.
    pub story: String,
    pub title: String,
    pub status: StoryStatus,
}

wire_enum! {
    pub enum TaskStatus {
        Pending = "pending",
        /// Waits for the admin's approval.
        WaitingApproval = "waiting_approval",
        Running = "running",
        InReview = "in_review",
        /// Waits for the admin.
        Suspended = "suspended",
        /// Rejected too often.
        Locked = "locked",
        /// All of its stories that can land have landed.
        Completed = "completed",
        Failed = "failed",
        /// Ended by a person.
        Aborted = "aborted",
    }
}
