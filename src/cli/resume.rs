//! `longshore resume`: takes a swarm up again from its journal, after a stop, a failure of the machinery, or the orchestrator's death.
//!
//! The header of the journal says how the swarm was set up; its tasks files are those of then, however they have changed since. The
//! values of environment variables are not kept anywhere: they are taken again from the environment or from `--env`.

use std::sync::Arc;

use super::args::{ResumeArgs, SwarmPrefix};
use super::context::CommandContext;
use super::error::{CommandError, CommandErrorKind};
use super::run::setup::{self, PersistedSettings};
use super::run::{finish, preflight};
use super::{CommandResult, admin, print_stderr, shim};
use crate::coordinator::notify::{EscalationNotifier, NotifyPolicy};
use crate::coordinator::{
    self, AmpComposer, EscalationListener, MAX_MEMORY_BUDGET, Reserve, ResumedSwarm, SandboxSettings, SwarmSetup,
    restore_memories, restore_messages,
};
use crate::plan::{self, Plan, PlanOptions};
use crate::protocol::acp::message::{EnvKey, EnvVars};
use crate::protocol::amp::store::Ssot;
use crate::report::{self, FirstWriteError, ReportMode, StoryLabels, TextStyle};
use crate::state::journal::JournalHeader;
use crate::state::recovery::{RecoveredSwarm, replay};
use crate::state::{SwarmDir, SwarmStore};
use crate::swarm::SwarmSpec;
use crate::tasks;

/// Carries it out.
pub async fn resume(args: ResumeArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let dir = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
    let beginning = SwarmDir::lock_repo(repo.root())?;
    let _lock = dir.lock()?;
    drop(beginning);
    setup::init_file_logging(&dir);
    let (mut store, contents) = SwarmStore::open(dir.clone())?;
    let RecoveredSwarm { header, machine, elapsed, last_event_at: last, amp_intents: words, .. } = replay(contents);
    let ssot = Arc::new(Ssot::open(repo.root())?);
    let (decisions, machine_then) = admin::pending_decisions(&ssot, &machine)?;
    if let Some(outcome) = machine.outcome().filter(|_| machine_then.is_complete()) {
        print_stderr(&format!("swarm {} is over: there is nothing to resume", header.swarm_id));
        // It may have ended before all who wanted to had heard of its escalations. Without settings there is nobody.
        if let Ok(kept) = persisted_settings(&header) {
            let mut heard = build_escalation_listener(&kept, repo.root(), &dir, &ssot, &header.spec)?;
            let (warn, mut warnings) = tokio::sync::mpsc::unbounded_channel();
            heard.set_warning_sender(warn);
            heard.close().await;
            while let Ok(problem) = warnings.try_recv() {
                print_stderr(&format!("warning: a notification failed: {problem}"));
            }
        }
        // Its orchestrator may have died after its last record, and before the state file and the report that say the same.
        let kept = persisted_settings(&header)?;
        let plan = rebuild_plan(&header, &kept, repo.root())?;
        restore_memories(&plan, &machine, &words, &ssot)?;
        let bridge = AmpComposer::new(&repo, &dir, plan, !kept.verify.is_empty(), kept.review.as_ref());
        restore_messages(bridge, &ssot, &words)?;
        let last = store.snapshot(&machine, elapsed)?;
        if !last.is_written() {
            last.write()?;
            finish::finish(&finish::FinishContext::for_resume(repo, args.json, kept.write_back, kept.keep), &dir)
                .await?;
        }
        return Ok(outcome.exit_code());
    }
    let kept = persisted_settings(&header)?;
    let plan = rebuild_plan(&header, &kept, repo.root())?;
    let env = resolve_environment(&kept, &args)?;
    let branches = header.spec.files.iter().map(|file| file.branch.as_str()).collect();
    CommandError::combine(
        preflight::conflicting_swarm_error(repo.root(), &branches, Some(header.swarm_id)).into_iter().collect(),
    )?;
    let (engine, info, image) = preflight::connect_engine_with_image(here, &kept.image).await?;
    preflight::check_network(engine.as_ref(), &kept.network).await?;
    let shim = shim::find_shim(&image.arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var)?;
    let sandbox = SandboxSettings {
        image: kept.image.clone(),
        image_path: image.path,
        network: kept.network.clone(),
        memory: kept.memory_bytes,
        milli_cpus: kept.milli_cpus,
        pids: kept.pids_limit,
        agent: kept.agent.clone(),
        review: kept.review.clone(),
        memory_budget: kept.memory_budget.min(MAX_MEMORY_BUDGET),
        verify: kept.verify.clone(),
        env,
        identity: kept.identity.clone(),
        repo_url: kept.repo_url.parse().map_err(|error| {
            CommandError::machinery("the repository's URL in the swarm's record is not one").with_cause(&error)
        })?,
        reserve: Reserve {
            memory: args.reserve_memory.map_or(kept.reserve.memory, |size| size.0),
            disk: args.reserve_disk.map_or(kept.reserve.disk, |size| size.0),
        },
        keep_containers: kept.keep,
        max_bundle: setup::MAX_BUNDLE_BYTES,
        supports_subpath: info.volume_subpath,
    };
    let (mode, look) = {
        let mode = ReportMode::detect(args.json, args.quiet, &CommandContext::env_var);
        let json = mode == ReportMode::Json;
        (
            mode,
            if json {
                TextStyle::for_stream(&std::io::stdout(), &CommandContext::env_var)
            } else {
                TextStyle::for_stream(&std::io::stderr(), &CommandContext::env_var)
            },
        )
    };
    let ending = finish::FinishContext::for_resume(repo.clone(), args.json, kept.write_back, kept.keep);
    let trouble = FirstWriteError::default();
    let reporter = report::new_reporter(mode, StoryLabels::from_spec(&header.spec), look, &trouble);
    let heard = build_escalation_listener(&kept, repo.root(), &dir, &ssot, &header.spec)?;
    let setup = SwarmSetup {
        plan,
        spec: header.spec,
        sandbox,
        repo,
        engine,
        dir: dir.clone(),
        store,
        reporter,
        ssot,
        escalation_listener: heard,
        shim: shim.bytes.into(),
        resumed: Some(ResumedSwarm { machine, elapsed, last_event_at: last, intents: words, decisions }),
    };
    let ended = coordinator::run(setup).await;
    let told = finish::finish(&ending, &dir).await;
    let ended = ended.map_err(CommandError::from)?;
    told?;
    super::run::check_events_written(&trouble)?;
    Ok(ended.exit_code())
}

/// Who hears of escalations, those among them that an earlier orchestrator did not get to tell.
fn build_escalation_listener(
    kept: &PersistedSettings,
    root: &std::path::Path,
    dir: &SwarmDir,
    ssot: &Ssot,
    spec: &SwarmSpec,
) -> Result<Box<dyn EscalationListener>, CommandError> {
    let Some(listeners) = setup::build_listeners(kept.notify.as_deref(), kept.notify_url.as_deref())? else {
        return Ok(Box::new(()));
    };
    let mut notify = EscalationNotifier::new(listeners, root, dir, NotifyPolicy::default());
    notify.notify_missed(ssot, spec)?;
    Ok(Box::new(notify))
}

fn persisted_settings(header: &JournalHeader) -> Result<PersistedSettings, CommandError> {
    serde_json::from_value(header.settings.clone()).map_err(|error| {
        CommandError::machinery(format!("the settings of swarm {} cannot be read", header.swarm_id)).with_cause(&error)
    })
}

/// The plan as it was: made again from the tasks files in the journal.
fn rebuild_plan(
    header: &JournalHeader,
    kept: &PersistedSettings,
    root: &std::path::Path,
) -> Result<Plan, CommandError> {
    let damaged = |what: &str| {
        CommandError::machinery(format!("swarm {} cannot be resumed: {what}", header.swarm_id)).with_hint(
            "its finished work is on its branch and under refs/longshore/; `longshore run` starts a new swarm",
        )
    };
    let mut files = Vec::new();
    for copy in &header.tasks {
        let bytes = copy.content.clone().into_bytes();
        let file = tasks::parse(&bytes, std::path::Path::new(&copy.path))
            .map_err(|error| damaged("a tasks file in its journal cannot be read").with_cause(&error))?;
        files.push((file, bytes));
    }
    let year = header.spec.assignments.first().and_then(|first| first.id.as_str().get(2..6)?.parse().ok());
    let options = PlanOptions {
        fan_out: kept.fan_out,
        rerun_done: kept.again,
        branch: kept.branch.clone(),
        year: year.unwrap_or_default(),
        mailbox: Some(kept.mailbox),
        has_agent: true,
    };
    let mut plan = plan::build(files, root, &options)
        .map_err(|error| damaged("its plan cannot be made again").with_cause(&error))?;
    if let Some(first) = header.spec.assignments.first() {
        plan.renumber(first.id.year(), first.id.number());
    }
    if plan.assignments != header.spec.assignments || plan.stories != header.spec.stories {
        return Err(damaged("this version of longshore plans its tasks files otherwise"));
    }
    Ok(plan)
}

/// The variables' values, from `--env` or from the environment.
fn resolve_environment(kept: &PersistedSettings, args: &ResumeArgs) -> Result<EnvVars, CommandError> {
    let mut env = EnvVars::new();
    let mut missing = Vec::new();
    for name in &kept.env {
        let typed = args.env.iter().filter_map(|typed| typed.0.as_ref().ok()).find(|variable| variable.key() == name);
        let value = match typed.and_then(|variable| variable.value()) {
            Some(value) => Some(value.to_owned()),
            None => CommandContext::env_var(name).and_then(|value| value.into_string().ok()),
        };
        match value {
            Some(value) => {
                let key = name
                    .parse::<EnvKey>()
                    .map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))?;
                env.insert(key, value).map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))?;
            }
            None => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(env);
    }
    Err(CommandError::input(format!(
        "variables that the swarm was started with have no value now: {}",
        missing.join(", ")
    ))
    .with_hint("values are not kept: set them in the environment, or give them with `--env NAME=VALUE`"))
}
