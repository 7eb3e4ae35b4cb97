//! `assignment.json`: what an attempt is asked to do, beyond what ACP's task-request can say.

use serde::{Deserialize, Serialize};

pub use super::agent_spec::{AgentSpec, PromptDelivery};
use super::review::ReviewAssignment;
use crate::ids::{AgentId, AttemptId, BranchName, CommitId, StoryId, SwarmId};

/// The version that this build writes and reads.
pub const ASSIGNMENT_VERSION: u32 = 1;

/// The file. It holds no values of environment variables: those travel in the task-request alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignmentFile {
    /// [`ASSIGNMENT_VERSION`].
    pub schema_version: u32,
    /// Must match the task-request.
    pub swarm_id: SwarmId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The branch to work on. Must match the task-request.
    pub branch: BranchName,
    /// The commit at which the branch starts: the head of the integration branch at the time of the dispatch.
    pub base: CommitId,
    /// The integration branch's name, for `refs/remotes/origin/<name>` in the clone.
    pub integration_branch: String,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// The tasks file's path relative to the repo. Must match the task-request.
    pub task_file_path: String,
    /// The stories to do. The shim orders them by their dependencies.
    pub stories: Vec<AssignedStory>,
    /// The agent for stories without a `command`.
    pub agent: Option<AgentSpec>,
    /// Verify commands from the command line or config. They run after those of the tasks file.
    pub verify: Vec<String>,
    /// The time limit of a story with its checks, in seconds.
    pub story_timeout_secs: u64,
    /// The time without output or CPU use after which an agent or a check counts as hung, in seconds; 0: no limit.
    #[serde(default)]
    pub idle_timeout_secs: u64,
    /// The time between SIGTERM and SIGKILL, in seconds.
    pub grace_secs: u64,
    /// The committer.
    pub identity: GitIdentity,
    /// The branch starts with work that a reviewer rejected. A story without anything to repair then finishes unchanged, as long as
    /// another one changes something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rework: bool,
    /// The admin's comments on the stories, for the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
    /// The agent's membership in the swarm's mailbox, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailbox: Option<MailboxMembership>,
    /// What to review, in a reviewer's attempt. The stories are then those of the work under review, and are not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewAssignment>,
}

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailboxMembership {
    /// Its id, and the name of its outbox.
    pub agent: AgentId,
    /// Its role, as in the roster.
    pub role: String,
    /// The first of the other agents, for the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<MailboxPeer>,
}

/// Another agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailboxPeer {
    /// Its id.
    pub agent: AgentId,
    /// Its role, as in the roster.
    pub role: String,
    /// The title of its task.
    pub task: String,
}

/// One story of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignedStory {
    /// The story's id in the tasks file.
    pub id: StoryId,
    /// Why the previous attempt failed, for the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_failure: Option<String>,
}

/// A git identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitIdentity {
    /// `user.name`.
    pub name: String,
    /// `user.email`.
    pub email: String,
}
