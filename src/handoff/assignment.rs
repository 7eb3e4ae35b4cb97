//! `assignment.json`: what an attempt is asked to do, beyond what ACP's task-request can say.

use serde::{Deserialize, Serialize};

pub use super::agent_spec::{AgentSpec, PromptDelivery};
use super::check::CheckAssignment;
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
    /// What to check, in a check sandbox. The stories are then those whose checks are run, and are not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckAssignment>,
    /// The merge in which the first story starts: `base` is the earlier work, which conflicts with the integration branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeInProgress>,
    /// A check sandbox runs the checks after this attempt, so that the shim does not run them at the end of a story.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked_after: bool,
}

/// A merge of the integration branch into the assigned branch, to be finished by the first story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeInProgress {
    /// The commit of the integration branch to merge.
    pub head: CommitId,
    /// The files that conflicted on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file() -> Value {
        json!({
            "schemaVersion": 1, "swarmId": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
            "attempt": {"assignment": "T-2026-001", "number": 1}, "branch": "feat/work", "base": "a".repeat(40),
            "integrationBranch": "feat/all", "objectFormat": "sha1", "taskFilePath": "tasks/feature.json",
            "stories": [{"id": "US-001"}], "agent": null, "verify": ["make test"], "storyTimeoutSecs": 60,
            "graceSecs": 2, "identity": {"name": "A Person", "email": "person@example.com"},
        })
    }

    #[test]
    fn a_file_without_check_and_merge_is_read_and_written_without_them() {
        let read: AssignmentFile = serde_json::from_value(file()).expect("a valid file");
        assert_eq!((&read.check, &read.merge, read.checked_after), (&None, &None, false));
        let written = serde_json::to_value(&read).expect("JSON");
        for name in ["check", "merge", "checkedAfter"] {
            assert!(written.get(name).is_none(), "{written}");
        }
    }

    #[test]
    fn check_and_merge_survive_the_wire() {
        let head: CommitId = "b".repeat(40).parse().expect("an id");
        let mut read: AssignmentFile = serde_json::from_value(file()).expect("a valid file");
        read.check = Some(CheckAssignment { commit: read.base.clone(), tolerated: Vec::new() });
        read.merge = Some(MergeInProgress { head, paths: vec!["src/a b.rs".to_owned()] });
        read.checked_after = true;
        let written = serde_json::to_value(&read).expect("JSON");
        assert_eq!(written["check"]["commit"], "a".repeat(40));
        assert_eq!(written["merge"], json!({"head": "b".repeat(40), "paths": ["src/a b.rs"]}));
        assert_eq!(written["checkedAfter"], true);
        assert_eq!(serde_json::from_value::<AssignmentFile>(written).expect("valid"), read);
    }
}
