//! Runs a swarm: starts or resumes it (control socket, depot, objects volume, mailbox, executor, first events), runs the loop, and
//! shuts down. Called by `cli/run` and `cli/resume`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::delivery::Repo;
use crate::engine::Engine;
use crate::engine::depot::DepotClient;
use crate::error_chain::error_chain;
use crate::plan::Plan;
use crate::state::{SwarmDir, SwarmStore};
use crate::swarm::{
    AmpIntent, Announcement, AttemptPhase, Event, StopLevel, SwarmMachine, SwarmOutcome, SwarmSpec, TaskDecision,
};

use super::amp::composer::AmpComposer;
use super::amp::ssot_writer::SsotWriter;
use super::checks::CheckMemory;
use super::collect::collector::{Collector, INCOMING_DIR};
use super::control::{self, ControlRequest};
use super::effects::EffectExecutor;
use super::engine_monitor::EngineMonitor;
use super::error::CoordinatorError;
use super::event_loop::{Coordinator, LoopInputs};
use super::event_queue::EventSender;
use super::mailbox::{self, MailboxHandle};
use super::memory::SwarmMemory;
use super::recovery::reconcile::RECONCILE_INTERVAL;
use super::resource_names::ResourceNames;
use super::runtime::SwarmClock;
use super::session_context::SessionContext;
use super::setup::{ResumedSwarm, SwarmSetup};
use super::shutdown::{CLEANUP_TIMEOUT, close_depot, remove_volumes, shut_down, wait_or_signal};
use super::snapshot_writer::SnapshotWriter;
use super::start::admission::Admission;
use super::start::objects_volume::ObjectsVolume;
use super::stop_signals::StopSignals;
use super::swarm_context::SwarmContext;

/// Runs a swarm to its end. `signals` may have had signals already that were handled.
///
/// # Errors
/// [`CoordinatorError`] if the swarm cannot start, or its record cannot be written.
pub async fn run(setup: SwarmSetup, signals: StopSignals) -> Result<SwarmOutcome, CoordinatorError> {
    let (command_sender, commands) = mpsc::channel(8);
    let control_server = control::serve(&setup.dir, command_sender).map_err(|source| {
        CoordinatorError::ControlSocket { path: setup.dir.path().join(control::SOCKET_FILE), source }
    })?;
    let _control_server = AbortOnDropHandle::new(control_server);
    let Some((mut coordinator, engine_watcher)) = start(setup, commands, signals).await? else {
        return Ok(SwarmOutcome::Interrupted);
    };
    let loop_result = coordinator.run_loop().await;
    drop(engine_watcher);
    shut_down(coordinator, loop_result).await
}

/// What a dead orchestrator left to be done first.
struct PendingWork {
    intents: Vec<AmpIntent>,
    decisions: Vec<TaskDecision>,
    last_event_at: Option<Timestamp>,
}

/// Prepares a swarm for its loop. Also returns the task that watches the engine. `None` if a signal came first: then the depot, and
/// the volumes of a new swarm, are removed again, and the swarm can be resumed.
///
/// # Errors
/// [`CoordinatorError`] if the swarm cannot start. The depot, and the volumes of a new swarm, are removed again.
async fn start(
    setup: SwarmSetup,
    commands: mpsc::Receiver<ControlRequest>,
    mut signals: StopSignals,
) -> Result<Option<(Coordinator, AbortOnDropHandle<()>)>, CoordinatorError> {
    let SwarmSetup { plan, spec, sandbox, repo, engine, dir, ssot, store, mut reporter, resumed, .. } = setup;
    let incoming = create_incoming_dir(&dir)?;
    let names = ResourceNames::new(spec.swarm, &repo, plan.has_mailbox());
    let depot_spec = names.depot_spec(sandbox.image.clone(), setup.shim, resumed.is_some());
    // Dropped halfway, it would leave a container that the engine is still creating.
    let started = signals.defer(DepotClient::start(Arc::clone(&engine), &depot_spec)).await;
    let (depot, stopped_by) = match started {
        Ok((depot, stopped_by)) => (depot?, stopped_by),
        Err(by) => {
            record_early_stop(store, &spec, resumed.is_some(), by)?;
            return Ok(None);
        }
    };
    let resumed_machine = resumed.as_ref().map(|resumed| &resumed.machine);
    let prepared = match stopped_by {
        Some(by) => Err(by),
        None => signals.interrupt(prepare_depot(&depot, &repo, &spec, &dir, &plan, resumed_machine)).await,
    };
    let (objects, mailbox, mailbox_task) = match prepared {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(error)) => {
            abandon_start(&depot, engine.as_ref(), &names, resumed.is_some(), &mut signals).await;
            return Err(error);
        }
        Err(by) => {
            abandon_start(&depot, engine.as_ref(), &names, resumed.is_some(), &mut signals).await;
            record_early_stop(store, &spec, resumed.is_some(), by)?;
            return Ok(None);
        }
    };
    let (events, event_queue) = EventSender::new();
    let reconcile_requested = Arc::new(Notify::new());
    let (engine_monitor, watch_engine) =
        EngineMonitor::new(Arc::clone(&engine), spec.swarm, events.clone(), Arc::clone(&reconcile_requested));
    let (machine, elapsed, pending) = match resumed {
        Some(ResumedSwarm { machine, elapsed, last_event_at, intents, decisions }) => {
            (machine, elapsed, Some(PendingWork { intents, decisions, last_event_at }))
        }
        // The journal's header, and AMP with it, counts from before there was a depot.
        None => (SwarmMachine::new(spec.clone()), elapsed_since_header(&spec), None),
    };
    let secrets = sandbox.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (memory, damaged) = SwarmMemory::open(&plan, spec.swarm, sandbox.memory_budget, secrets, &ssot);
    for error in damaged {
        reporter.announce(Timestamp::now(), &Announcement::MemoryDamaged { problem: error_chain(&error) });
    }
    let mut listener = setup.escalation_listener;
    let (warning_sender, warnings) = mpsc::unbounded_channel();
    listener.set_warning_sender(warning_sender);
    let composer = AmpComposer::new(&repo, &dir, plan.clone(), !sandbox.verify.is_empty(), sandbox.review.as_ref())
        .with_unchecked_named(spec.landing.is_some());
    let amp = SsotWriter::spawn(composer, Arc::clone(&ssot), listener, events.clone());
    let sessions = SessionContext {
        engine: Arc::clone(&engine),
        depot: depot.clone(),
        repo: repo.clone(),
        objects: Arc::new(objects),
        events: events.clone(),
        engine_monitor,
        admission: Arc::new(Admission::new(sandbox.reserve)),
        mailbox,
    };
    let collector = Collector {
        engine: Arc::clone(&engine),
        depot,
        repo: repo.clone(),
        incoming,
        max_bundle: sandbox.max_bundle,
        has_reviews: sandbox.review.is_some(),
    };
    let checks = CheckMemory::new(repo.root(), sandbox.image_id.as_deref(), &sandbox.check_surroundings());
    let swarm = SwarmContext { checks, plan, spec, sandbox, names, dir, repo, engine, ssot };
    let (scan_sender, engine_scans) = mpsc::unbounded_channel();
    let mut executor =
        EffectExecutor::new(swarm, reporter, amp, memory, mailbox_task, sessions, collector, scan_sender);
    let first_events = match pending {
        Some(pending) => {
            reconcile_requested.notify_one();
            resume(pending, &mut executor, &machine).await?
        }
        None => vec![Event::Began],
    };
    let coordinator = Coordinator {
        machine,
        clock: SwarmClock::starting_at(elapsed),
        store,
        snapshots: SnapshotWriter::spawn(events),
        executor,
        inputs: LoopInputs {
            events: event_queue,
            commands,
            signals,
            reconcile_requested,
            next_reconcile: Instant::now() + RECONCILE_INTERVAL,
            engine_scans,
            warnings,
        },
        first_events,
        resuming: false,
        outcome: None,
        abandoned: false,
    };
    Ok(Some((coordinator, AbortOnDropHandle::new(tokio::spawn(watch_engine)))))
}

fn create_incoming_dir(dir: &SwarmDir) -> Result<PathBuf, CoordinatorError> {
    let path = dir.path().join(INCOMING_DIR);
    match std::fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(CoordinatorError::IncomingDir { path, source }),
    }
}

/// Stores the first bases in the objects volume, and opens the mailbox.
async fn prepare_depot(
    depot: &DepotClient,
    repo: &Repo,
    spec: &SwarmSpec,
    dir: &SwarmDir,
    plan: &Plan,
    resumed: Option<&SwarmMachine>,
) -> Result<(ObjectsVolume, Option<MailboxHandle>, Option<AbortOnDropHandle<()>>), CoordinatorError> {
    let objects = ObjectsVolume::open(depot, repo).await?;
    for file in &spec.files {
        objects.ensure(depot, repo, &file.branch, &file.base).await?;
    }
    // The volume may be another one than that of the sandboxes, or a new one: its name follows from the repository's path. Their
    // clones borrow the objects of their bases from it.
    let unsettled = resumed.into_iter().flat_map(SwarmMachine::attempts);
    for view in unsettled.filter(|view| view.phase < AttemptPhase::Settled) {
        if let Some(file) = spec.file_of(&view.id.assignment)
            && let Err(error) = objects.ensure(depot, repo, &file.branch, &view.base).await
        {
            tracing::warn!(attempt = %view.id, error = %error_chain(&error), "cannot send an attempt's base to the objects volume");
        }
    }
    if !plan.has_mailbox() {
        return Ok((objects, None, None));
    }
    let (mailbox, task) = mailbox::open(depot, dir, plan, resumed).await?;
    Ok((objects, Some(mailbox), Some(task)))
}

/// Restores what a dead orchestrator knew, and returns the first events of the resumed swarm.
async fn resume(
    pending: PendingWork,
    executor: &mut EffectExecutor,
    machine: &SwarmMachine,
) -> Result<Vec<Event>, CoordinatorError> {
    let PendingWork { intents, decisions, last_event_at } = pending;
    intents.iter().for_each(|intent| executor.emit_intent(intent));
    executor.save_all_memories(machine);
    executor.resume(machine).await?;
    let absence = last_event_at.map(|last| {
        // Zero if the wall clock was set back.
        let ms = u64::try_from(Timestamp::now().as_millisecond() - last.as_millisecond()).unwrap_or_default();
        Event::OrchestratorAbsent { ms }
    });
    // A finished swarm is resumed because of the decisions, which come first. Otherwise the attempts are restored before the
    // decisions start others.
    let mut rewound = find_rewound_branches(executor, machine).await;
    let resumed_at = if machine.outcome().is_some() { decisions.len() } else { 0 };
    let mut queue: Vec<Event> = decisions.into_iter().map(|decision| Event::DecisionMade { decision }).collect();
    queue.insert(resumed_at, Event::Resumed);
    match machine.outcome() {
        // The stories that are lost are what is resumed.
        Some(_) => queue.splice(0..0, rewound.drain(..)),
        None => queue.splice(1..1, rewound.drain(..)),
    };
    Ok(absence.into_iter().chain(queue).collect())
}

/// The branches that were reset while no orchestrator ran, with what is not on them any more.
async fn find_rewound_branches(executor: &EffectExecutor, machine: &SwarmMachine) -> Vec<Event> {
    let repo = executor.repo();
    let mut events = Vec::new();
    for (file, spec) in (0_u16..).zip(&machine.spec().files) {
        let landed = machine.stories().filter(|view| view.key.file == file && view.has_landed() && !view.done_before);
        let landed: Vec<_> = landed.filter_map(|view| Some((view.key.clone(), view.commit.clone()?))).collect();
        let branch = &spec.branch;
        let known = machine.head(file);
        if machine.spec().landing.is_none() || matches!(repo.is_landed(branch, known).await, Ok(Some(_)) | Err(_)) {
            continue;
        }
        let Ok(head) = repo.branch_head(branch.as_str()).await else { continue };
        if head.is_none() && landed.is_empty() {
            // It is made with the first landing.
            continue;
        }
        // Somebody may have rewritten what landed: the trailers still say what it is.
        let history = match &head {
            Some(head) => executor.landed_before(file, head).await,
            None => Vec::new(),
        };
        let mut lost = Vec::new();
        for (key, commit) in landed {
            if !history.contains(&key) && matches!(repo.is_landed(branch, &commit).await, Ok(None)) {
                lost.push(key);
            }
        }
        // A deleted branch is made again where it began.
        events.push(Event::BranchRewound { file, head: head.unwrap_or_else(|| spec.base.clone()), lost });
    }
    events
}

/// The time since the swarm's journal was created.
fn elapsed_since_header(spec: &SwarmSpec) -> Duration {
    let began = spec.amp.as_ref().and_then(|amp| i64::try_from(amp.began_ms).ok());
    let ms = began.map_or(0, |began| Timestamp::now().as_millisecond() - began);
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// Removes the depot, and the volumes of a new swarm.
async fn abandon_start(
    depot: &DepotClient,
    engine: &dyn Engine,
    names: &ResourceNames,
    is_resumed: bool,
    signals: &mut StopSignals,
) {
    let cleanup = async {
        close_depot(depot).await;
        // The volumes of a resumed swarm have its work.
        if !is_resumed {
            remove_volumes(engine, names).await;
        }
    };
    if wait_or_signal(signals, Some(CLEANUP_TIMEOUT), cleanup).await.is_none() {
        tracing::warn!("the engine did not remove everything in time; `longshore gc` will");
    }
}

/// Writes to the record of a new swarm that it was stopped before it began. The record of a resumed one says already how it ended.
fn record_early_stop(
    mut store: SwarmStore,
    spec: &SwarmSpec,
    is_resumed: bool,
    by: String,
) -> Result<(), CoordinatorError> {
    if !is_resumed {
        let (mut machine, now) = (SwarmMachine::new(spec.clone()), elapsed_since_header(spec));
        let event = Event::StopRequested { level: StopLevel::Graceful, by };
        machine.handle(&event, now);
        store.append(&[(event, now)], Timestamp::now())?;
        store.snapshot(&machine, now)?.write()?;
    }
    Ok(())
}
