//! The settings that all sandboxes of a swarm share. Filled in by `cli/run/setup.rs` and `cli/resume.rs`.

use serde::{Deserialize, Serialize};

use crate::handoff::assignment::{AgentSpec, GitIdentity};
use crate::protocol::acp::message::{EnvVars, RepoUrl};

use super::start::admission::Reserve;

/// The reviewer and its extra criteria.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewSettings {
    pub agent: AgentSpec,
    /// Criteria to answer in addition to the stories' acceptance criteria.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
}

/// How every sandbox of a swarm is made.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// Image reference.
    pub image: String,
    /// Its id, which changes with its content.
    pub image_id: Option<String>,
    /// `none`, or the name of a network.
    pub network: String,
    /// Memory limit in bytes.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Process limit.
    pub pids: i64,
    /// Runs the stories that have no `command`.
    pub agent: Option<AgentSpec>,
    pub review: Option<ReviewSettings>,
    /// Verify commands in addition to those of the tasks files.
    pub verify: Vec<String>,
    /// The most bytes of other stories' memory that a story is given.
    pub memory_budget: usize,
    /// Passed in task-requests only.
    pub env: EnvVars,
    /// Author and committer of commits.
    pub identity: GitIdentity,
    /// Sign the commits that land, with the key of the user's git config.
    pub sign_landings: bool,
    /// The repo's URL in the form that ACP requires.
    pub repo_url: RepoUrl,
    /// Free resources that the engine must have before another sandbox starts.
    pub reserve: Reserve,
    /// Keep containers after they end.
    pub keep_containers: bool,
    /// The largest accepted result bundle, in bytes.
    pub max_bundle: u64,
    /// Whether the engine can mount a subdirectory of a volume.
    pub supports_subpath: bool,
}

impl SandboxSettings {
    /// What could decide a check, besides the image, the commit and the command. It has the values of variables.
    pub(super) fn check_surroundings(&self) -> String {
        let variables: Vec<String> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}\0{}\0{}", self.network, self.memory, variables.join("\0"))
    }
}
