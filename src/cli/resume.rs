//! `longshore resume`: takes a swarm up again from its journal, after a stop, a failure of the machinery, or the orchestrator's death.
//!
//! The header of the journal says how the swarm was set up; its tasks files are those of then, however they have changed since. The
//! values of environment variables are not kept anywhere: they are taken again from the environment or from `--env`.

use std::sync::Arc;

use super::args::{ResumeArgs, SwarmName};
use super::error::{Kind, Shown};
use super::here::Here;
use super::run::begin::{self, Kept};
use super::run::{check, finish};
use super::{Outcome, admin, remark, shim};
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
pub async fn resume(args: ResumeArgs, here: &Here) -> Outcome {
    let repo = here.repo().await?;
    let dir = here.swarm(args.swarm.as_ref().map(SwarmName::as_str)).await?;
    let beginning = SwarmDir::lock_repo(repo.root())?;
    let _lock = dir.lock()?;
    drop(beginning);
    begin::log_to_file(&dir);
    let (mut store, contents) = SwarmStore::open(dir.clone())?;
    let RecoveredSwarm { header, machine, elapsed, last_event_at: last, amp_intents: words, .. } = replay(contents);
    let ssot = Arc::new(Ssot::open(repo.root())?);
    let (decisions, machine_then) = admin::pending(&ssot, &machine)?;
    if let Some(outcome) = machine.outcome().filter(|_| machine_then.is_complete()) {
        remark(&format!("swarm {} is over: there is nothing to resume", header.swarm_id));
        // It may have ended before all who wanted to had heard of its escalations. Without settings there is nobody.
        if let Ok(kept) = kept_of(&header) {
            let mut heard = heard(&kept, repo.root(), &dir, &ssot, &header.spec)?;
            let (warn, mut warnings) = tokio::sync::mpsc::unbounded_channel();
            heard.set_warning_sender(warn);
            heard.close().await;
            while let Ok(problem) = warnings.try_recv() {
                remark(&format!("warning: a notification failed: {problem}"));
            }
        }
        // Its orchestrator may have died after its last record, and before the state file and the report that say the same.
        let kept = kept_of(&header)?;
        let plan = plan_of(&header, &kept, repo.root())?;
        restore_memories(&plan, &machine, &words, &ssot)?;
        let bridge = AmpComposer::new(&repo, &dir, plan, !kept.verify.is_empty(), kept.review.as_ref());
        restore_messages(bridge, &ssot, &words)?;
        let last = store.snapshot(&machine, elapsed)?;
        if !last.is_written() {
            last.write()?;
            finish::finish(&finish::Ending::resumed(repo, args.json, kept.write_back, kept.keep), &dir).await?;
        }
        return Ok(outcome.exit_code());
    }
    let kept = kept_of(&header)?;
    let plan = plan_of(&header, &kept, repo.root())?;
    let env = environment(&kept, &args)?;
    let branches = header.spec.files.iter().map(|file| file.branch.as_str()).collect();
    Shown::all(check::another_swarm(repo.root(), &branches, Some(header.swarm_id)).into_iter().collect())?;
    let (engine, info, image) = check::engine(here, &kept.image).await?;
    check::network(engine.as_ref(), &kept.network).await?;
    let shim = shim::find(&image.arch, Here::exe().as_deref(), &Here::lookup)?;
    let sandbox = SandboxSettings {
        image: kept.image.clone(),
        image_path: image.path,
        network: kept.network.clone(),
        memory: kept.memory,
        milli_cpus: kept.milli_cpus,
        pids: kept.pids,
        agent: kept.agent.clone(),
        review: kept.review.clone(),
        memory_budget: kept.memory_budget.min(MAX_MEMORY_BUDGET),
        verify: kept.verify.clone(),
        env,
        identity: kept.identity.clone(),
        repo_url: kept.repo_url.parse().map_err(|error| {
            Shown::machinery("the repository's URL in the swarm's record is not one").caused_by(&error)
        })?,
        reserve: Reserve {
            memory: args.reserve_memory.map_or(kept.reserve.memory, |size| size.0),
            disk: args.reserve_disk.map_or(kept.reserve.disk, |size| size.0),
        },
        keep_containers: kept.keep,
        max_bundle: begin::MAX_BUNDLE,
        supports_subpath: info.volume_subpath,
    };
    let (mode, look) = {
        let mode = ReportMode::detect(args.json, args.quiet, &Here::lookup);
        let json = mode == ReportMode::Json;
        (
            mode,
            if json {
                TextStyle::for_stream(&std::io::stdout(), &Here::lookup)
            } else {
                TextStyle::for_stream(&std::io::stderr(), &Here::lookup)
            },
        )
    };
    let ending = finish::Ending::resumed(repo.clone(), args.json, kept.write_back, kept.keep);
    let trouble = FirstWriteError::default();
    let reporter = report::new_reporter(mode, StoryLabels::from_spec(&header.spec), look, &trouble);
    let heard = heard(&kept, repo.root(), &dir, &ssot, &header.spec)?;
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
    let ended = ended.map_err(Shown::from)?;
    told?;
    super::run::events_told(&trouble)?;
    Ok(ended.outcome.exit_code())
}

/// Who hears of escalations, those among them that an earlier orchestrator did not get to tell.
fn heard(
    kept: &Kept,
    root: &std::path::Path,
    dir: &SwarmDir,
    ssot: &Ssot,
    spec: &SwarmSpec,
) -> Result<Box<dyn EscalationListener>, Shown> {
    let Some(listeners) = begin::listeners(kept.notify.as_deref(), kept.notify_url.as_deref())? else {
        return Ok(Box::new(()));
    };
    let mut notify = EscalationNotifier::new(listeners, root, dir, NotifyPolicy::default());
    notify.notify_missed(ssot, spec)?;
    Ok(Box::new(notify))
}

fn kept_of(header: &JournalHeader) -> Result<Kept, Shown> {
    serde_json::from_value(header.settings.clone()).map_err(|error| {
        Shown::machinery(format!("the settings of swarm {} cannot be read", header.swarm_id)).caused_by(&error)
    })
}

/// The plan as it was: made again from the tasks files in the journal.
fn plan_of(header: &JournalHeader, kept: &Kept, root: &std::path::Path) -> Result<Plan, Shown> {
    let damaged = |what: &str| {
        Shown::machinery(format!("swarm {} cannot be resumed: {what}", header.swarm_id))
            .hint("its finished work is on its branch and under refs/longshore/; `longshore run` starts a new swarm")
    };
    let mut files = Vec::new();
    for copy in &header.tasks {
        let bytes = copy.content.clone().into_bytes();
        let file = tasks::parse(&bytes, std::path::Path::new(&copy.path))
            .map_err(|error| damaged("a tasks file in its journal cannot be read").caused_by(&error))?;
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
        .map_err(|error| damaged("its plan cannot be made again").caused_by(&error))?;
    if let Some(first) = header.spec.assignments.first() {
        plan.renumber(first.id.year(), first.id.number());
    }
    if plan.assignments != header.spec.assignments || plan.stories != header.spec.stories {
        return Err(damaged("this version of longshore plans its tasks files otherwise"));
    }
    Ok(plan)
}

/// The variables' values, from `--env` or from the environment.
fn environment(kept: &Kept, args: &ResumeArgs) -> Result<EnvVars, Shown> {
    let mut env = EnvVars::new();
    let mut missing = Vec::new();
    for name in &kept.env {
        let typed = args.env.iter().filter_map(|typed| typed.0.as_ref().ok()).find(|variable| variable.key() == name);
        let value = match typed.and_then(|variable| variable.value()) {
            Some(value) => Some(value.to_owned()),
            None => Here::lookup(name).and_then(|value| value.into_string().ok()),
        };
        match value {
            Some(value) => {
                let key = name.parse::<EnvKey>().map_err(|error| Shown::of(Kind::Input, &error))?;
                env.insert(key, value).map_err(|error| Shown::of(Kind::Input, &error))?;
            }
            None => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(env);
    }
    Err(Shown::input(format!("variables that the swarm was started with have no value now: {}", missing.join(", ")))
        .hint("values are not kept: set them in the environment, or give them with `--env NAME=VALUE`"))
}
