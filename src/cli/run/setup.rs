//! From what was checked to what the coordinator runs: limits, the swarm's folder, its lock, the journal's first record.
//!
//! Called by `run/mod.rs`. The journal's header keeps what `resume` needs, and no value of an environment variable.

use std::io::{stderr, stdout};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::preflight::{Preflight, conflicting_swarm_error};
use super::unfinished;
use crate::cli::args::RunArgs;
use crate::cli::config::{AgentConfig, PromptConfig};
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::settings::Settings;
use crate::coordinator::notify::{EscalationNotifier, NotifyPolicy, NotifyTargets, NotifyUrl};
use crate::coordinator::{
    DEFAULT_MEMORY_BUDGET, EscalationListener, MAX_MEMORY_BUDGET, Reserve, ReviewSettings, SandboxSettings, SwarmSetup,
};
use crate::delivery::acp_repo_url;
use crate::engine::EngineInfo;
use crate::handoff::assignment::{AgentSpec, GitIdentity, PromptDelivery};
use crate::ids::SwarmId;
use crate::plan::Plan;
use crate::protocol::amp::store::Ssot;
use crate::report::{self, FirstWriteError, ReportMode, StoryLabels, TextStyle};
use crate::state::journal::JOURNAL_VERSION;
use crate::state::{JournalHeader, SwarmDir, SwarmLock, SwarmStore};
use crate::swarm::{self, AckTimeouts, AmpSpec, SwarmLimits};

/// Processes in a sandbox.
const PIDS_LIMIT: i64 = 512;
/// The largest result bundle that is taken, in bytes.
pub(crate) const MAX_BUNDLE_BYTES: u64 = 2 << 30;
/// Sandboxes at once that are never exceeded unless asked for.
const MAX_AUTOMATIC_CONCURRENCY: usize = 16;

/// What `resume` needs beside the spec and the tasks files. The names of environment variables, and never their values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistedSettings {
    /// Image reference.
    pub image: String,
    /// `none`, or a network's name.
    pub network: String,
    /// Bytes.
    #[serde(rename = "memory")]
    pub memory_bytes: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes.
    #[serde(rename = "pids")]
    pub pids_limit: i64,
    /// The agent.
    pub agent: Option<AgentSpec>,
    /// Who reviews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewSettings>,
    /// A command that hears of escalations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<String>,
    /// A URL that does. It may hold a secret, and is shown nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_url: Option<String>,
    /// The most bytes that a story is given of what others learned.
    #[serde(default = "default_memory_budget")]
    pub memory_budget: usize,
    /// Verify commands beyond those of the tasks files.
    pub verify: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
    /// Who commits.
    pub identity: GitIdentity,
    /// The repo's URL, as ACP has it.
    pub repo_url: String,
    /// What must be left on the engine.
    #[serde(default)]
    pub reserve: Reserve,
    /// Keep containers and volumes.
    pub keep: bool,
    /// The agents have a mailbox.
    #[serde(default)]
    pub mailbox: bool,
    /// Write the outcome into the tasks files.
    pub write_back: bool,
    /// How stories were spread.
    pub fan_out: crate::plan::FanOut,
    /// Stories done before were run again.
    pub again: bool,
    /// Replaced the files' integration branch.
    pub branch: Option<String>,
}

fn default_memory_budget() -> usize {
    DEFAULT_MEMORY_BUDGET
}

/// Makes the swarm's folder and record. The lock is the caller's to hold until the swarm is over.
pub async fn set_up_swarm(
    args: &RunArgs,
    checked: Preflight,
    trouble: &FirstWriteError,
) -> Result<(SwarmSetup, SwarmLock), CommandError> {
    let Preflight { settings, mut plan, bases, repo, engine, engine_info: info, image, shim, env, .. } = checked;
    let started = Timestamp::now();
    let limits = limits(&settings, &plan, &info);
    let ssot = Arc::new(Ssot::open(repo.root())?);
    if !plan.assignments.is_empty() {
        let (year, count) = (plan.year(), u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX));
        plan.renumber(year, ssot.allocate_task_numbers(year, count)?);
    }
    let mut spec = plan.to_swarm_spec(SwarmId::random(), &bases, limits);
    spec.amp = Some(amp_spec(&settings, started)?);
    // A remote whose URL ACP cannot say is as good as none: the sandbox's git maps either to the objects volume.
    let repo_url = match acp_repo_url(repo.remote_url().await.as_deref(), &repo.hash()).parse() {
        Ok(url) => url,
        Err(_) => acp_repo_url(None, &repo.hash()).parse().map_err(|error| {
            CommandError::machinery("the placeholder for the repository's URL is not one").with_cause(&error)
        })?,
    };
    let sandbox = SandboxSettings {
        image: settings.image.value.clone(),
        image_path: image.path,
        network: settings.network.value.clone(),
        memory: settings.memory.value.0,
        milli_cpus: settings.cpus.value.0.min(info.cpus as u64 * 1000),
        pids: PIDS_LIMIT,
        agent: settings.agent()?.map(|(name, agent)| agent_spec(name, agent)),
        review: settings.reviewer()?.map(|(name, agent)| ReviewSettings {
            agent: agent_spec(name, agent),
            criteria: settings.review_criteria.value.clone(),
        }),
        memory_budget: usize::try_from(settings.memory_budget.value.0).unwrap_or(MAX_MEMORY_BUDGET),
        verify: settings.verify.value.clone(),
        env,
        identity: commit_identity(&settings, repo.identity().await),
        repo_url,
        reserve: Reserve { memory: settings.reserve_memory.value.0, disk: settings.reserve_disk.value.0 },
        keep_containers: settings.keep.value,
        max_bundle: MAX_BUNDLE_BYTES,
        supports_subpath: info.volume_subpath,
    };
    let tasks = unfinished::copy_tasks_files(&plan);
    let beginning = SwarmDir::lock_repo(repo.root())?;
    // Again: somebody may have begun since it was checked.
    let branches = plan.files.iter().map(|file| file.branch.as_str()).collect();
    let mut problems: Vec<CommandError> = conflicting_swarm_error(repo.root(), &branches, None).into_iter().collect();
    if !args.new {
        problems.extend(
            unfinished::find_unfinished_swarms(repo.root(), &tasks).iter().map(unfinished::UnfinishedSwarm::to_error),
        );
    }
    CommandError::combine(problems)?;
    let dir = SwarmDir::create(repo.root(), spec.swarm)?;
    let lock = dir.lock()?;
    init_file_logging(&dir);
    let header = JournalHeader {
        schema_version: JOURNAL_VERSION,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        swarm_id: spec.swarm,
        started,
        spec: spec.clone(),
        settings: persist_settings(args, &settings, &sandbox, &plan)?,
        tasks,
    };
    let store = SwarmStore::create(dir.clone(), &header)?;
    // From here on the swarm's own lock and its record are there for others to see.
    drop(beginning);
    let mode = ReportMode::detect(args.plan.json, args.quiet, &CommandContext::env_var);
    let look = if mode == ReportMode::Json {
        TextStyle::for_stream(&stdout(), &CommandContext::env_var)
    } else {
        TextStyle::for_stream(&stderr(), &CommandContext::env_var)
    };
    let reporter = report::new_reporter(mode, StoryLabels::from_spec(&spec), look, trouble);
    let shim = shim.bytes.into();
    let heard: Box<dyn EscalationListener> =
        match build_listeners(settings.notify.value.as_deref(), settings.notify_url.value.as_deref())? {
            Some(listeners) => Box::new(EscalationNotifier::new(listeners, repo.root(), &dir, NotifyPolicy::default())),
            None => Box::new(()),
        };
    Ok((
        SwarmSetup {
            plan,
            spec,
            sandbox,
            repo,
            engine,
            dir,
            store,
            reporter,
            ssot,
            escalation_listener: heard,
            shim,
            resumed: None,
        },
        lock,
    ))
}

/// Who hears of escalations; none where nobody is to.
pub(crate) fn build_listeners(command: Option<&str>, url: Option<&str>) -> Result<Option<NotifyTargets>, CommandError> {
    let url = url.map(NotifyUrl::parse).transpose();
    let url =
        url.map_err(|problem| CommandError::input(format!("the URL for notifications cannot be used: {problem}")))?;
    let listeners = NotifyTargets { command: command.map(str::to_owned), url };
    Ok((listeners.command.is_some() || listeners.url.is_some()).then_some(listeners))
}

fn persist_settings(
    args: &RunArgs,
    settings: &Settings,
    sandbox: &SandboxSettings,
    plan: &Plan,
) -> Result<serde_json::Value, CommandError> {
    let kept = PersistedSettings {
        image: sandbox.image.clone(),
        network: sandbox.network.clone(),
        memory_bytes: sandbox.memory,
        milli_cpus: sandbox.milli_cpus,
        pids_limit: sandbox.pids,
        agent: sandbox.agent.clone(),
        review: sandbox.review.clone(),
        notify: settings.notify.value.clone(),
        notify_url: settings.notify_url.value.clone(),
        memory_budget: sandbox.memory_budget,
        verify: sandbox.verify.clone(),
        env: sandbox.env.names().map(str::to_owned).collect(),
        identity: sandbox.identity.clone(),
        repo_url: sandbox.repo_url.to_string(),
        reserve: sandbox.reserve,
        keep: sandbox.keep_containers,
        mailbox: plan.has_mailbox(),
        write_back: args.write_back,
        fan_out: plan.fan_out,
        again: args.plan.again,
        branch: args.plan.branch.clone(),
    };
    serde_json::to_value(kept).map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))
}

/// What the machine needs to speak AMP.
fn amp_spec(settings: &Settings, started: Timestamp) -> Result<AmpSpec, CommandError> {
    let clocks = &settings.amp;
    Ok(AmpSpec {
        began_ms: u64::try_from(started.as_millisecond())
            .map_err(|error| CommandError::machinery("the clock stands before 1970").with_cause(&error))?,
        ack_timeouts: AckTimeouts {
            dispatch: clocks.ack_dispatch.value.0,
            result: clocks.ack_result.value.0,
            request: clocks.ack_request.value.0,
            verdict: clocks.ack_verdict.value.0,
        },
        heartbeat_timeout: clocks.heartbeat.value.0,
        review_rounds: settings.review.value.is_some().then_some(settings.review_rounds.value),
    })
}

fn limits(settings: &Settings, plan: &Plan, info: &EngineInfo) -> SwarmLimits {
    SwarmLimits {
        max_sandboxes: settings.max.value.map_or_else(|| automatic_concurrency(settings, plan, info), usize::from),
        retries: settings.retries.value,
        machinery_retries: 3,
        backoff: Duration::from_secs(1),
        story_timeout: settings.timeout.value.0,
        idle_timeout: settings.idle_timeout.value.0,
        slack: Duration::from_secs(60),
        grace_period: settings.grace.value.0,
        max_bad_records: 100,
        liveness_timeout: liveness_timeout(),
    }
}

/// How long a sandbox may say nothing at all.
fn liveness_timeout() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(shorter) = super::test_overrides::liveness_override() {
        return shorter;
    }
    swarm::default_liveness_timeout()
}

/// Sandboxes at once where nobody said: the file's wish, else what fits into three quarters of the engine's memory, and two
/// for each processor, because agents wait more than they compute.
fn automatic_concurrency(settings: &Settings, plan: &Plan, info: &EngineInfo) -> usize {
    if let Some(wish) = plan.max_concurrency() {
        return wish.max(1);
    }
    let by_memory = match (settings.memory.value.0, info.memory) {
        (0, _) | (_, 0) => MAX_AUTOMATIC_CONCURRENCY,
        (each, all) => usize::try_from(all / 4 * 3 / each).unwrap_or(MAX_AUTOMATIC_CONCURRENCY),
    };
    by_memory.min(2 * info.cpus).clamp(1, MAX_AUTOMATIC_CONCURRENCY)
}

fn agent_spec(name: &str, agent: &AgentConfig) -> AgentSpec {
    AgentSpec {
        name: name.to_owned(),
        argv: agent.argv.clone(),
        prompt: match agent.prompt {
            PromptConfig::Stdin => PromptDelivery::Stdin,
            PromptConfig::File => PromptDelivery::File,
        },
    }
}

/// Who commits: the settings, else the repository's own identity, else longshore itself.
fn commit_identity(settings: &Settings, repo: Option<GitIdentity>) -> GitIdentity {
    let fallback =
        repo.unwrap_or_else(|| GitIdentity { name: "longshore".to_owned(), email: "longshore@localhost".to_owned() });
    GitIdentity {
        name: settings.git_name.value.clone().unwrap_or(fallback.name),
        email: settings.git_email.value.clone().unwrap_or(fallback.email),
    }
}

/// The program's own diagnostics go beside the swarm's record: the terminal belongs to the report.
pub(crate) fn init_file_logging(dir: &SwarmDir) {
    let Ok(file) = std::fs::OpenOptions::new().create(true).append(true).open(dir.logs_dir().join("longshore.log"))
    else {
        // A swarm does not need it.
        return;
    };
    let filter = EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,longshore=info"));
    let file = std::sync::Mutex::new(file);
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings;

    fn load_settings(text: &str) -> Settings {
        let config = crate::cli::config::parse_config(text, std::path::Path::new("c.toml")).expect("a good config");
        settings::load(config, None, &|_| None).expect("good settings")
    }

    fn engine_info(cpus: usize, memory: u64) -> EngineInfo {
        EngineInfo {
            name: "Docker".to_owned(),
            api_version: "1.41".to_owned(),
            endpoint: "unix".to_owned(),
            arch: "x86_64".to_owned(),
            cpus,
            memory,
            volume_subpath: false,
            cgroup_version: 2,
            missing_limits: Vec::new(),
        }
    }

    #[test]
    fn automatic_concurrency_fits_memory_and_cpus() {
        let plan = Plan {
            fan_out: Default::default(),
            files: Vec::new(),
            stories: Vec::new(),
            assignments: Vec::new(),
            waves: Vec::new(),
            agents: Vec::new(),
        };
        let gigabytes = |number: u64| number << 30;
        let table = [
            ("memory = '2g'", 2, gigabytes(16), 4),
            ("memory = '2g'", 8, gigabytes(16), 6),
            ("memory = '2g'", 2, gigabytes(1), 1),
            ("memory = '0'", 64, gigabytes(16), 16),
            ("max = 40", 1, gigabytes(1), 40),
        ];
        for (text, cpus, memory, wanted) in table {
            assert_eq!(
                limits(&load_settings(text), &plan, &engine_info(cpus, memory)).max_sandboxes,
                wanted,
                "{text} {cpus}"
            );
        }
    }

    #[test]
    fn commit_identity_prefers_settings_over_the_repo() {
        let of_repo = || Some(GitIdentity { name: "Ada".to_owned(), email: "ada@example.org".to_owned() });
        assert_eq!(commit_identity(&load_settings(""), of_repo()).name, "Ada");
        assert_eq!(commit_identity(&load_settings(""), None).email, "longshore@localhost");
        let mixed = commit_identity(&load_settings("[git]\nname = 'Bot'"), of_repo());
        assert_eq!((mixed.name.as_str(), mixed.email.as_str()), ("Bot", "ada@example.org"));
    }
}
