//! `longshore resume`: continues a swarm from its journal after a stop, a machinery failure, or a crash of the orchestrator.
//!
//! The journal's header has the swarm's settings and the original content of its tasks files. Values of environment variables are
//! not stored; they come from the environment or from `--env`.

use std::path::Path;
use std::sync::Arc;

use super::args::ResumeArgs;
use super::context::CommandContext;
use super::error::{CommandError, CommandErrorKind};
use super::run::persisted_settings::PersistedSettings;
use super::run::{finish, preflight, setup};
use super::runtime::init_file_logging;
use super::swarm_prefix::SwarmPrefix;
use super::{CommandResult, ExitStatus, admin, print_stderr, shim};
use crate::coordinator::notify::{EscalationNotifier, NotifyPolicy};
use crate::coordinator::{
    AmpComposer, EscalationListener, Reserve, ResumedSwarm, StopSignals, SwarmSetup, restore_memories, restore_messages,
};
use crate::delivery::Repo;
use crate::plan::{self, Plan, PlanOptions};
use crate::protocol::acp::message::{EnvKey, EnvVars};
use crate::protocol::amp::store::Ssot;
use crate::report::FirstWriteError;
use crate::state::journal::JournalHeader;
use crate::state::recovery::{RecoveredSwarm, replay};
use crate::state::{SwarmDir, SwarmLock, SwarmStore};
use crate::swarm::{SwarmOutcome, TaskDecision};
use crate::tasks;

/// The swarm to resume, locked.
struct InterruptedSwarm {
    repo: Repo,
    dir: SwarmDir,
    store: SwarmStore,
    ssot: Arc<Ssot>,
    recovered: RecoveredSwarm,
}

/// What is left to do after everything was checked.
enum PreparedSwarm {
    /// Nothing: the swarm was over.
    Complete(ExitStatus),
    Ready {
        setup: Box<SwarmSetup>,
        context: finish::FinishContext,
        write_error: FirstWriteError,
        _lock: SwarmLock,
    },
}

pub(crate) async fn resume(args: ResumeArgs, here: &CommandContext) -> CommandResult {
    let mut signals = StopSignals::new();
    match signals.interrupt(prepare(&args, here)).await {
        Ok(prepared) => match prepared? {
            PreparedSwarm::Complete(status) => Ok(status),
            PreparedSwarm::Ready { setup, context, write_error, _lock } => {
                finish::run_and_finish(*setup, signals, &context, &write_error).await
            }
        },
        Err(by) => {
            print_stderr(&format!("interrupted by {by}: the swarm was not resumed, and is as it was"));
            Ok(ExitStatus::Interrupted)
        }
    }
}

/// Everything before the coordinator runs. May be dropped at any of its awaits.
async fn prepare(args: &ResumeArgs, here: &CommandContext) -> Result<PreparedSwarm, CommandError> {
    let repo = here.discover_repo().await?;
    let dir = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
    let starting = setup::lock_repo(repo.root()).await?;
    let lock = dir.lock()?;
    drop(starting);
    init_file_logging(&dir);
    let (store, contents) = SwarmStore::open(dir.clone())?;
    let ssot = Arc::new(Ssot::open(repo.root())?);
    let swarm = InterruptedSwarm { repo, dir, store, ssot, recovered: replay(contents) };
    let (decisions, machine_with_decisions) = admin::pending_decisions(&swarm.ssot, &swarm.recovered.machine)?;
    match swarm.recovered.machine.outcome().filter(|_| machine_with_decisions.is_complete()) {
        Some(outcome) => swarm.complete_record(args, outcome).await.map(PreparedSwarm::Complete),
        None => swarm.prepare(args, decisions, here, lock).await,
    }
}

impl InterruptedSwarm {
    /// Writes what an orchestrator that died after the swarm's last record may have left out: notifications, memories,
    /// messages, the state file and the report.
    async fn complete_record(mut self, args: &ResumeArgs, outcome: SwarmOutcome) -> CommandResult {
        let RecoveredSwarm { header, machine, elapsed, amp_intents, .. } = &self.recovered;
        print_stderr(&format!("swarm {} is over: there is nothing to resume", header.swarm_id));
        let settings = PersistedSettings::from_journal(header)?;
        let mut listener = self.escalation_listener(&settings)?;
        let (warn, mut warnings) = tokio::sync::mpsc::unbounded_channel();
        listener.set_warning_sender(warn);
        listener.close().await;
        while let Ok(problem) = warnings.try_recv() {
            print_stderr(&format!("warning: a notification failed: {problem}"));
        }
        let plan = rebuild_plan(header, &settings, self.repo.root())?;
        restore_memories(&plan, machine, amp_intents, &self.ssot)?;
        let has_verify = !settings.verify.is_empty();
        let composer = AmpComposer::new(&self.repo, &self.dir, plan, has_verify, settings.review.as_ref())
            .with_unchecked_named(header.spec.landing.is_some());
        restore_messages(composer, &self.ssot, amp_intents)?;
        let snapshot = self.store.snapshot(machine, *elapsed)?;
        if !snapshot.is_written() {
            snapshot.write()?;
            let context = finish::FinishContext::for_resume(self.repo, args.json, settings.write_back, settings.keep);
            finish::finish(&context, &self.dir).await?;
        }
        Ok(outcome.into())
    }

    async fn prepare(
        self,
        args: &ResumeArgs,
        decisions: Vec<TaskDecision>,
        here: &CommandContext,
        lock: SwarmLock,
    ) -> Result<PreparedSwarm, CommandError> {
        let header = &self.recovered.header;
        let mut settings = PersistedSettings::from_journal(header)?;
        settings.reserve = Reserve {
            memory: args.reserve_memory.map_or(settings.reserve.memory, |size| size.0),
            disk: args.reserve_disk.map_or(settings.reserve.disk, |size| size.0),
        };
        let plan = rebuild_plan(header, &settings, self.repo.root())?;
        let env = resolve_environment(&settings, args)?;
        let branches = header.spec.files.iter().map(|file| file.branch.as_str()).collect();
        let conflict = preflight::conflicting_swarm_error(self.repo.root(), &branches, Some(header.swarm_id));
        CommandError::combine(conflict.into_iter().collect())?;
        let (engine, info, image) = preflight::connect_engine_with_image(here, &settings.image).await?;
        preflight::check_network(engine.as_ref(), &settings.network).await?;
        let shim = shim::find_shim(&image.arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var)?;
        let sandbox = settings.to_sandbox_settings(env, &info, image.id)?;
        let context =
            finish::FinishContext::for_resume(self.repo.clone(), args.json, settings.write_back, settings.keep);
        let write_error = FirstWriteError::default();
        let escalation_listener = self.escalation_listener(&settings)?;
        let RecoveredSwarm { header, machine, elapsed, last_event_at, amp_intents, .. } = self.recovered;
        let setup = SwarmSetup {
            plan,
            sandbox,
            repo: self.repo,
            engine,
            dir: self.dir.clone(),
            store: self.store,
            reporter: setup::new_reporter(args.json, args.quiet, header.spec.swarm, &write_error),
            spec: header.spec,
            ssot: self.ssot,
            escalation_listener,
            shim: shim.bytes.into(),
            resumed: Some(ResumedSwarm { machine, elapsed, last_event_at, intents: amp_intents, decisions }),
        };
        Ok(PreparedSwarm::Ready { setup: Box::new(setup), context, write_error, _lock: lock })
    }

    /// Creates the listener for escalations and sends the notifications that an earlier orchestrator missed.
    fn escalation_listener(&self, settings: &PersistedSettings) -> Result<Box<dyn EscalationListener>, CommandError> {
        let Some(targets) = setup::notify_targets(settings)? else { return Ok(Box::new(())) };
        let mut notifier = EscalationNotifier::new(targets, self.repo.root(), &self.dir, NotifyPolicy::default());
        notifier.notify_missed(&self.ssot, &self.recovered.header.spec)?;
        Ok(Box::new(notifier))
    }
}

/// Builds the plan as it was, from the tasks files in the journal.
fn rebuild_plan(header: &JournalHeader, settings: &PersistedSettings, root: &Path) -> Result<Plan, CommandError> {
    let damaged = |problem: &str| {
        CommandError::machinery(format!("swarm {} cannot be resumed: {problem}", header.swarm_id)).with_hint(
            "its finished work is on its branch and under refs/longshore/; start a new swarm with `longshore run`",
        )
    };
    let mut files = Vec::new();
    for copy in &header.tasks {
        let bytes = copy.content.clone().into_bytes();
        let mut file = tasks::parse(&bytes, Path::new(&copy.path))
            .map_err(|error| damaged("a tasks file in its journal cannot be read").with_cause(&error))?;
        // What had landed before the swarm began is not in the file.
        for story in &mut file.stories {
            let mut known = header.spec.stories.iter();
            let spec = known.find(|spec| usize::from(spec.key.file) == files.len() && spec.key.id == story.id);
            story.done = story.done.or(spec.and_then(|spec| spec.done));
        }
        files.push((file, bytes));
    }
    let first = header.spec.assignments.first();
    let options = PlanOptions {
        fan_out: settings.fan_out,
        rerun_done: settings.again,
        branch: settings.branch.clone(),
        year: first.and_then(|first| first.id.as_str().get(2..6)?.parse().ok()).unwrap_or_default(),
        mailbox: Some(settings.mailbox),
        has_agent: true,
    };
    let mut plan =
        plan::build(files, root, &options).map_err(|error| damaged("its plan cannot be rebuilt").with_cause(&error))?;
    if let Some(first) = first {
        plan.renumber(first.id.year(), first.id.number());
    }
    if header.spec.landing.is_none() {
        // A journal of an earlier version does not have these.
        for story in &mut plan.stories {
            (story.has_command, story.has_verify) = (false, false);
            story.tested_criteria.clear();
        }
    }
    if plan.assignments != header.spec.assignments || plan.stories != header.spec.stories {
        return Err(damaged("this version of longshore plans its tasks files differently"));
    }
    Ok(plan)
}

/// The values of the swarm's variables, from `--env` or from the environment.
fn resolve_environment(settings: &PersistedSettings, args: &ResumeArgs) -> Result<EnvVars, CommandError> {
    let invalid = |error: &dyn std::error::Error| CommandError::from_error(CommandErrorKind::Input, error);
    let mut env = EnvVars::new();
    let mut missing = Vec::new();
    for name in &settings.env {
        let typed = args.env.iter().filter_map(|typed| typed.0.as_ref().ok()).find(|variable| variable.key() == name);
        let value = match typed.and_then(|variable| variable.value()) {
            Some(value) => Some(value.to_owned()),
            None => CommandContext::env_var(name).and_then(|value| value.into_string().ok()),
        };
        match value {
            Some(value) => {
                let key = name.parse::<EnvKey>().map_err(|error| invalid(&error))?;
                env.insert(key, value).map_err(|error| invalid(&error))?;
            }
            None => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(env);
    }
    let message = format!("variables that the swarm was started with have no value: {}", missing.join(", "));
    Err(CommandError::input(message)
        .with_hint("values are not kept: set them in the environment, or give them with `--env NAME=VALUE`"))
}
