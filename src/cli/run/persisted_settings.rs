//! The settings that the journal keeps for `resume` and `gc`, beside the spec and the tasks files.
//!
//! [`PersistedSettings::new`] takes them from a checked run; [`PersistedSettings::to_sandbox_settings`] gives them to the
//! coordinator, for a new swarm and for a resumed one. The journal has the names of environment variables, never their values.

use serde::{Deserialize, Serialize};

use super::preflight::Preflight;
use crate::cli::args::RunArgs;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::settings::{AgentConfig, Settings};
use crate::coordinator::{DEFAULT_MEMORY_BUDGET, MAX_MEMORY_BUDGET, Reserve, ReviewSettings, SandboxSettings};
use crate::engine::EngineInfo;
use crate::handoff::assignment::{AgentSpec, GitIdentity};
use crate::plan::FanOut;
use crate::protocol::acp::message::{EnvVars, RepoUrl};
use crate::state::JournalHeader;

/// The most processes in a sandbox.
const PIDS_LIMIT: i64 = 512;
/// The largest result bundle to accept, in bytes.
pub(crate) const MAX_BUNDLE_BYTES: u64 = 2 << 30;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PersistedSettings {
    pub image: String,
    pub network: String,
    #[serde(rename = "memory")]
    memory_bytes: u64,
    milli_cpus: u64,
    #[serde(rename = "pids")]
    pids_limit: i64,
    agent: Option<AgentSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<String>,
    /// May hold a secret, and is shown nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_url: Option<String>,
    #[serde(default = "default_memory_budget")]
    memory_budget: usize,
    /// Verify commands beyond those of the tasks files.
    pub verify: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
    identity: GitIdentity,
    #[serde(default)]
    sign_landings: bool,
    repo_url: String,
    #[serde(default)]
    pub reserve: Reserve,
    pub keep: bool,
    #[serde(default)]
    pub mailbox: bool,
    pub write_back: bool,
    pub fan_out: FanOut,
    pub again: bool,
    pub branch: Option<String>,
}

/// The budget of swarms whose journal does not say.
fn default_memory_budget() -> usize {
    DEFAULT_MEMORY_BUDGET
}

impl PersistedSettings {
    pub(super) fn new(
        args: &RunArgs,
        checked: &Preflight,
        repo_identity: Option<GitIdentity>,
        repo_url: &RepoUrl,
    ) -> Result<Self, CommandError> {
        let Preflight { settings, plan, engine_info, env, .. } = checked;
        let spec_of = |(name, agent): (&str, &AgentConfig)| agent.to_spec(name);
        Ok(Self {
            image: settings.image.value.clone(),
            network: settings.network.value.clone(),
            memory_bytes: settings.memory.value.0,
            milli_cpus: settings.cpus.value.0.min(engine_info.cpus as u64 * 1000),
            pids_limit: PIDS_LIMIT,
            agent: settings.agent()?.map(spec_of),
            review: settings.reviewer()?.map(|reviewer| ReviewSettings {
                agent: spec_of(reviewer),
                criteria: settings.review.criteria.value.clone(),
            }),
            notify: settings.notify.value.clone(),
            notify_url: settings.notify_url.value.clone(),
            memory_budget: usize::try_from(settings.memory_budget.value.0).unwrap_or(MAX_MEMORY_BUDGET),
            verify: settings.verify.value.clone(),
            env: env.names().map(str::to_owned).collect(),
            identity: commit_identity(settings, repo_identity),
            sign_landings: settings.git.sign.value,
            repo_url: repo_url.to_string(),
            reserve: Reserve { memory: settings.reserve_memory.value.0, disk: settings.reserve_disk.value.0 },
            keep: settings.keep.value,
            mailbox: plan.has_mailbox(),
            write_back: args.write_back,
            fan_out: plan.fan_out,
            again: args.common.again,
            branch: args.common.branch.clone(),
        })
    }

    pub(crate) fn from_journal(header: &JournalHeader) -> Result<Self, CommandError> {
        serde_json::from_value(header.settings.clone()).map_err(|error| {
            CommandError::machinery(format!("the settings of swarm {} cannot be read", header.swarm_id))
                .with_cause(&error)
        })
    }

    pub(super) fn to_json(&self) -> Result<serde_json::Value, CommandError> {
        serde_json::to_value(self).map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))
    }

    pub(crate) fn to_sandbox_settings(
        &self,
        env: EnvVars,
        engine: &EngineInfo,
        image_id: String,
    ) -> Result<SandboxSettings, CommandError> {
        let repo_url = self.repo_url.parse().map_err(|error| {
            CommandError::machinery("the repository's URL in the swarm's record is invalid").with_cause(&error)
        })?;
        Ok(SandboxSettings {
            image: self.image.clone(),
            image_id: Some(image_id),
            network: self.network.clone(),
            memory: self.memory_bytes,
            milli_cpus: self.milli_cpus,
            pids: self.pids_limit,
            agent: self.agent.clone(),
            review: self.review.clone(),
            memory_budget: self.memory_budget.min(MAX_MEMORY_BUDGET),
            verify: self.verify.clone(),
            env,
            identity: self.identity.clone(),
            sign_landings: self.sign_landings,
            repo_url,
            reserve: self.reserve,
            keep_containers: self.keep,
            max_bundle: MAX_BUNDLE_BYTES,
            supports_subpath: engine.volume_subpath,
        })
    }
}

/// The identity of the settings, else that of the repository, else longshore's own.
pub(super) fn commit_identity(settings: &Settings, repo: Option<GitIdentity>) -> GitIdentity {
    let fallback =
        repo.unwrap_or_else(|| GitIdentity { name: "longshore".to_owned(), email: "longshore@localhost".to_owned() });
    GitIdentity {
        name: settings.git.name.value.clone().unwrap_or(fallback.name),
        email: settings.git.email.value.clone().unwrap_or(fallback.email),
    }
}
