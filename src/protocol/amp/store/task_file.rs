//! `tasks/<task>.json`: how a task stands, for people and for agents that take it up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, BranchName, SwarmId};
use crate::protocol::acp::message::StoryStatus;
use crate::tasks::RiskLevel;

/// A task, that is an assignment. Replaced whole whenever it changes; the messages say how it came to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFile {
    /// Which.
    pub task_id: AssignmentId,
    /// The swarm whose task it is.
    pub swarm_id: SwarmId,
    /// The branch that is worked on.
    pub branch: BranchName,
    /// How it stands.
    pub status: TaskStatus,
    /// The greatest risk of its stories.
    pub risk_level: RiskLevel,
    /// How often it was begun.
    pub attempts: u32,
    /// How often it was rejected.
    pub reject_count: u32,
    /// Its stories, in order.
    pub stories: Vec<TaskStory>,
    /// What was last heard of its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// A story of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStory {
    /// `T-2026-044-S1`.
    pub subtask_id: String,
    /// Its name in the tasks file, with the file's where the swarm has several: `US-003`, `slug/US-003`.
    pub story: String,
    /// In words.
    pub title: String,
    /// How it stands.
    pub status: StoryStatus,
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    Pending,
    /// Waits for the admin's approval.
    WaitingApproval,
    /// An executor has it.
    Running,
    /// A reviewer has it.
    InReview,
    /// The admin must say how to go on.
    Suspended,
    /// Rejected too often.
    Locked,
    /// All that can land of it has landed.
    Completed,
    /// It ended otherwise.
    Failed,
    /// Ended by a person.
    Aborted,
}

impl TaskStatus {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Pending => "pending",
            TaskStatus::WaitingApproval => "waiting_approval",
            TaskStatus::Running => "running",
            TaskStatus::InReview => "in_review",
            TaskStatus::Suspended => "suspended",
            TaskStatus::Locked => "locked",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Aborted => "aborted",
        }
    }
}
