//! `assignment.json`: what one attempt is asked to do, beyond what ACP's task-request can say.

use serde::{Deserialize, Serialize};

use super::review::ReviewAssignment;
use crate::ids::{AgentId, AttemptId, BranchName, CommitId, StoryId, SwarmId};

/// The version that this build writes and reads.
pub const ASSIGNMENT_VERSION: u32 = 1;

/// The file. No values of environment variables: those travel in the task-request alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignmentFile {
    /// [`ASSIGNMENT_VERSION`].
    pub schema_version: u32,
    /// The swarm; the task-request must name the same.
    pub swarm_id: SwarmId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The branch to work on; the task-request must name the same.
    pub branch: BranchName,
    /// Where the branch starts: the head of the integration branch at the time of the dispatch.
    pub base: CommitId,
    /// The integration branch's name, for `refs/remotes/origin/<name>` in the clone.
    pub integration_branch: String,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// The tasks file's path relative to the repo; the task-request must name the same.
    pub task_file_path: String,
    /// The stories to do. The shim orders them by their dependencies.
    pub stories: Vec<AssignedStory>,
    /// The agent for stories without a `command`.
    pub agent: Option<AgentSpec>,
    /// Verify commands from the command line or config, after those of the tasks file.
    pub verify: Vec<String>,
    /// How long one story may take, in seconds, checks included.
    pub story_timeout_secs: u64,
    /// How long its agent or a check may do nothing (no output, no CPU use), in seconds; 0: as long as it likes.
    #[serde(default)]
    pub idle_timeout_secs: u64,
    /// How long an agent has between SIGTERM and SIGKILL, in seconds.
    pub grace_secs: u64,
    /// Who commits.
    pub identity: GitIdentity,
    /// The branch starts with what a reviewer rejected: of several stories, one that has nothing to mend in it is finished as it
    /// is, as long as another one changes something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rework: bool,
    /// What the admin said about the stories, for the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
    /// Who its agent is in the swarm's mailbox, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailbox: Option<MailboxMembership>,
    /// Where it is a reviewer's attempt: what to review. The stories are those of the work under review, and are not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewAssignment>,
}

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailboxMembership {
    /// Its id, and the name of its outbox.
    pub agent: AgentId,
    /// What it is there for.
    pub role: String,
    /// Who else there is to be, for the prompt: the first of them, where there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<MailboxPeer>,
}

/// Another agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailboxPeer {
    /// Its id.
    pub agent: AgentId,
    /// What it is there for.
    pub role: String,
    /// The title of what it is asked to do.
    pub task: String,
}

/// One story of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignedStory {
    /// Which.
    pub id: StoryId,
    /// What went wrong the time before, for the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_failure: Option<String>,
}

/// How to run an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentSpec {
    /// Its name in the config.
    pub name: String,
    /// Program and arguments. `{prompt_file}` and `{story}` in an argument are replaced.
    pub argv: Vec<String>,
    /// How the prompt reaches it.
    pub prompt: PromptDelivery,
}

/// How the prompt reaches an agent. Never through argv, which ends at 128 KB and is seen in process lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptDelivery {
    /// On its standard input, which then ends.
    #[default]
    Stdin,
    /// In a file, whose path stands in `LONGSHORE_PROMPT_FILE` and replaces `{prompt_file}`.
    File,
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
