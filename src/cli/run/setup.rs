//! Makes what the coordinator runs from what preflight checked: the swarm's directory, its lock, the journal's first record.
//!
//! Called by `run/mod.rs`.

use std::io::{stderr, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::limits::{amp_spec, swarm_limits};
use super::persisted_settings::PersistedSettings;
use super::preflight::{Preflight, conflicting_swarm_error};
use super::unfinished::{UnfinishedSwarm, copy_tasks_files, find_unfinished_swarms};
use crate::cli::args::RunArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::runtime::init_file_logging;
use crate::coordinator::notify::{EscalationNotifier, NotifyPolicy, NotifyTargets, NotifyUrl};
use crate::coordinator::{EscalationListener, SwarmSetup};
use crate::delivery::{Repo, acp_repo_url};
use crate::ids::{BranchName, SwarmId};
use crate::protocol::acp::message::RepoUrl;
use crate::protocol::amp::store::Ssot;
use crate::report::{self, FirstWriteError, ReportMode, Reporter, TextStyle};
use crate::state::journal::JOURNAL_VERSION;
use crate::state::{JournalHeader, RepoLock, SwarmDir, SwarmLock, SwarmStore};
use crate::swarm::LandingSpec;

/// The pause between two tries to lock the repository.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Creates the swarm's directory and record. The caller holds the lock until the swarm is over.
pub(super) async fn set_up_swarm(
    args: &RunArgs,
    mut checked: Preflight,
    write_error: &FirstWriteError,
) -> Result<(SwarmSetup, SwarmLock), CommandError> {
    let started = Timestamp::now();
    let ssot = Arc::new(Ssot::open(checked.repo.root())?);
    if !checked.plan.assignments.is_empty() {
        let plan = &mut checked.plan;
        let (year, count) = (plan.year(), u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX));
        plan.renumber(year, ssot.allocate_task_numbers(year, count)?);
    }
    let limits = swarm_limits(&checked.settings, &checked.plan, &checked.engine_info);
    let mut spec = checked.plan.to_swarm_spec(SwarmId::random(), &checked.bases, limits);
    spec.amp = Some(amp_spec(&checked.settings, started)?);
    spec.landing = Some(LandingSpec {
        merge_check: !checked.settings.no_merge_check.value,
        red_base: checked.settings.red_base.value,
    });
    // Every landing on a branch must pass what any of its tasks files asks for.
    let verified: Vec<BranchName> =
        spec.files.iter().filter(|file| file.has_verify).map(|file| file.branch.clone()).collect();
    for file in &mut spec.files {
        file.has_verify = !checked.settings.verify.value.is_empty() || verified.contains(&file.branch);
    }
    let repo_url = repo_url(&checked.repo).await?;
    let persisted = PersistedSettings::new(args, &checked, checked.repo.identity().await, &repo_url)?;
    let Preflight { plan, repo, engine, engine_info, image_id, shim, env, .. } = checked;
    let sandbox = persisted.to_sandbox_settings(env, &engine_info, image_id)?;
    let tasks = copy_tasks_files(&plan);
    let starting = lock_repo(repo.root()).await?;
    // Checked again under the lock: another swarm may have started since.
    let branches = plan.files.iter().map(|file| file.branch.as_str()).collect();
    let mut problems: Vec<CommandError> = conflicting_swarm_error(repo.root(), &branches, None).into_iter().collect();
    if !args.new {
        problems.extend(find_unfinished_swarms(repo.root(), &tasks).iter().map(UnfinishedSwarm::to_error));
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
        settings: persisted.to_json()?,
        tasks,
    };
    let store = SwarmStore::create(dir.clone(), &header)?;
    // From here on others see the swarm's own lock and record.
    drop(starting);
    let reporter = new_reporter(args.json, args.quiet, spec.swarm, write_error);
    let escalation_listener: Box<dyn EscalationListener> = match notify_targets(&persisted)? {
        Some(targets) => Box::new(EscalationNotifier::new(targets, repo.root(), &dir, NotifyPolicy::default())),
        None => Box::new(()),
    };
    let setup = SwarmSetup {
        plan,
        spec,
        sandbox,
        repo,
        engine,
        dir,
        store,
        reporter,
        ssot,
        escalation_listener,
        shim: shim.bytes.into(),
        resumed: None,
    };
    Ok((setup, lock))
}

/// Waits for the repository lock. Signals are seen meanwhile, which a blocking wait would not let happen.
pub(crate) async fn lock_repo(root: &Path) -> Result<RepoLock, CommandError> {
    loop {
        if let Some(lock) = SwarmDir::try_lock_repo(root)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
    }
}

/// The repository's URL for ACP. A remote that ACP cannot express counts as none: the sandbox's git maps either to the
/// objects volume.
async fn repo_url(repo: &Repo) -> Result<RepoUrl, CommandError> {
    let remote = repo.remote_url().await;
    acp_repo_url(remote.as_deref(), &repo.hash()).parse().or_else(|_| {
        acp_repo_url(None, &repo.hash()).parse().map_err(|error| {
            CommandError::machinery("the placeholder for the repository's URL is invalid").with_cause(&error)
        })
    })
}

pub(crate) fn new_reporter(
    json: bool,
    quiet: bool,
    swarm: SwarmId,
    write_error: &FirstWriteError,
) -> Box<dyn Reporter> {
    let mode = ReportMode::detect(json, quiet, &CommandContext::env_var);
    let style = if mode == ReportMode::Json {
        TextStyle::for_stream(&stdout(), &CommandContext::env_var)
    } else {
        TextStyle::for_stream(&stderr(), &CommandContext::env_var)
    };
    report::new_reporter(mode, swarm, style, write_error)
}

/// What to notify of escalations. `None` if there is nothing.
pub(crate) fn notify_targets(settings: &PersistedSettings) -> Result<Option<NotifyTargets>, CommandError> {
    let url = settings.notify_url.as_deref().map(NotifyUrl::parse).transpose();
    let url = url.map_err(|problem| CommandError::input(format!("the URL for notifications is invalid: {problem}")))?;
    let targets = NotifyTargets { command: settings.notify.clone(), url };
    Ok((targets.command.is_some() || targets.url.is_some()).then_some(targets))
}
