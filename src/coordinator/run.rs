//! The loop itself. See `mod.rs` for the rules that it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::depot::{DepotClient, DepotSpec, DepotVolumes};
use crate::engine::{EngineResource, EngineResult, Signal};
use crate::error_chain::error_chain;
use crate::ids::{AssignmentId, AttemptId, ContainerId};
use crate::state::PendingSnapshot;
use crate::swarm::{
    AmpIntent, Announcement, AssignmentSpec, AttemptPhase, Effect, Event, MachineryFault, SwarmMachine, SwarmOutcome,
    SwarmSpec, TaskDecision,
};
use crate::verdict::Cause;

use super::admission::Admission;
use super::bridge::AmpComposer;
use super::carry_out::{self, AttemptContext, EffectExecutor};
use super::control::{self, ControlCommand, ControlReply, ControlRequest};
use super::dispatch::AttemptSpec;
use super::engine_monitor::{self, EngineMonitor};
use super::event_queue::{EventSender, QueuedEvent};
use super::mailbox::{self, MailboxHandle};
use super::memory::SwarmMemory;
use super::objects_volume::ObjectsVolume;
use super::reconcile;
use super::session::SessionOrigin;
use super::snapshot_writer::spawn_snapshot_writer;
use super::stop_signals::StopSignals;
use super::telling::SsotWriter;
use super::{CoordinatorError, ResourceNames, ResumedSwarm, RunReport, SwarmSetup, reason_to_keep_volumes};

/// Events taken at once: they share one write to the journal.
const MAX_EVENT_BATCH: usize = 256;
/// How long the last removals may take.
const LAST_TASKS_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the last sandboxes may take to be paused.
const LAST_PAUSES_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a slow engine may take to remove the depot and the volumes. A signal ends the wait.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(900);
/// The same, where the user wants to leave at once.
const INTERRUPTED_CLEANUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs a swarm to its end.
///
/// # Errors
/// [`CoordinatorError`] where the swarm cannot begin, or its record cannot be written.
pub async fn run(mut setup: SwarmSetup) -> Result<RunReport, CoordinatorError> {
    let taken_up = setup.resumed.take();
    let names = ResourceNames::new(setup.spec.swarm, &setup.repo);
    let (postbox, inbox) = EventSender::new();
    let (commands_in, commands) = mpsc::channel(8);
    let server = control::serve(&setup.dir, commands_in)
        .map_err(|source| CoordinatorError::Control { path: setup.dir.path().join(control::SOCKET_FILE), source })?;
    let incoming = setup.dir.path().join("incoming");
    std::fs::create_dir_all(&incoming)
        .map_err(|source| CoordinatorError::Control { path: incoming.clone(), source })?;

    let depot = DepotClient::start(Arc::clone(&setup.engine), &depot_spec(&setup, &names, taken_up.is_some())).await?;
    let prepared = async {
        let objects = Arc::new(prepare_objects(&setup, &depot).await?);
        if setup.plan.has_mailbox() {
            let before = taken_up.as_ref().map(|before| &before.machine);
            let mail = mailbox::open(&depot, &setup.dir, &setup.plan, before).await?;
            return Ok((objects, Some(mail)));
        }
        Ok((objects, None))
    };
    let (objects, mail) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => {
            close_depot(&depot).await;
            // Those of a swarm that began before have its work in them.
            if taken_up.is_none() {
                remove_volumes(&setup, &names).await;
            }
            return Err(error);
        }
    };
    let hands = EffectExecutor {
        engine: Arc::clone(&setup.engine),
        depot: depot.clone(),
        repo: setup.repo.clone(),
        incoming,
        max_bundle: setup.sandbox.max_bundle,
    };
    let (snapshots, writer) = spawn_snapshot_writer(postbox.clone());
    let look = Arc::new(Notify::new());
    let (presence, watching) =
        engine_monitor::watch_engine(Arc::clone(&setup.engine), setup.spec.swarm, postbox.clone(), Arc::clone(&look));
    let watching = AbortOnDropHandle::new(tokio::spawn(watching));
    let (sightings, seen) = mpsc::unbounded_channel();
    let resumed = taken_up.is_some();
    let mut before = ResumeState::default();
    let (machine, origin) = match taken_up {
        Some(ResumedSwarm { machine, elapsed, last_event_at: last, intents: words, decisions }) => {
            before = ResumeState { intents: words, decisions, downtime_ms: last.map(downtime_ms) };
            (machine, elapsed)
        }
        // The journal's header, and AMP with it, counts from before there was a depot.
        None => (SwarmMachine::new(setup.spec.clone()), elapsed_since_header(&setup.spec)),
    };
    let mut heard = std::mem::replace(&mut setup.escalation_listener, Box::new(()));
    let (warn, warnings) = mpsc::unbounded_channel();
    heard.set_warning_sender(warn);
    let verify = !setup.sandbox.verify.is_empty();
    let bridge = AmpComposer::new(&setup.repo, &setup.dir, setup.plan.clone(), verify, setup.sandbox.review.as_ref());
    let telling = SsotWriter::new(bridge, setup.spec.swarm, Arc::clone(&setup.ssot), heard, postbox.clone());
    let memory = SwarmMemory::from_setup(&mut setup);
    let freezer = carry_out::spawn_pause_worker(Arc::clone(&setup.engine), presence.clone());
    let mut coordinator = Coordinator {
        machine,
        names,
        executor: hands,
        objects,
        events: postbox,
        tasks: JoinSet::new(),
        attempts: BTreeMap::new(),
        collect_tasks: BTreeMap::new(),
        clock: SwarmClock { started_at: Instant::now(), offset: origin },
        orphans: BTreeMap::new(),
        resuming: false,
        outcome: None,
        engine_monitor: presence,
        admission: Arc::new(Admission::new(setup.sandbox.reserve)),
        engine_scans: sightings,
        snapshots,
        pause_worker: freezer,
        mailbox: mail,
        ssot_writer: telling,
        memory,
        warnings,
        setup,
    };
    if resumed {
        before.intents.iter().for_each(|word| coordinator.emit_intent(word));
        coordinator.save_all_memories();
        coordinator.resume().await?;
        look.notify_one();
        if let Some(ms) = before.downtime_ms {
            coordinator.events.send_now(Event::OrchestratorAbsent { ms });
        }
        // A swarm that had ended is taken up because of them; in one that had not, what they start is started once.
        let mut events: Vec<Event> =
            before.decisions.into_iter().map(|decision| Event::DecisionMade { decision }).collect();
        let place = if coordinator.machine.outcome().is_some() { events.len() } else { 0 };
        events.insert(place, Event::Resumed);
        events.into_iter().for_each(|event| coordinator.events.send_now(event));
    } else {
        coordinator.events.send_now(Event::Began);
    }
    let looped = coordinator.run_loop(inbox, commands, ReconcileTriggers { requested: look, scans: seen }).await;
    drop(watching);
    let ended = coordinator.close(&depot, looped, writer).await;
    server.abort();
    ended
}

/// What an orchestrator that is gone left to be done first.
#[derive(Default)]
struct ResumeState {
    intents: Vec<AmpIntent>,
    decisions: Vec<TaskDecision>,
    /// Milliseconds.
    downtime_ms: Option<u64>,
}

/// How long nobody ran, by the wall clock; nothing where that was put back.
fn downtime_ms(last: Timestamp) -> u64 {
    u64::try_from(Timestamp::now().as_millisecond() - last.as_millisecond()).unwrap_or_default()
}

/// How long ago the swarm's record was begun.
fn elapsed_since_header(spec: &SwarmSpec) -> Duration {
    let began = spec.amp.as_ref().and_then(|amp| i64::try_from(amp.began_ms).ok());
    let ms = began.map_or(0, |began| Timestamp::now().as_millisecond() - began);
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// Puts the first bases into the objects volume.
async fn prepare_objects(setup: &SwarmSetup, depot: &DepotClient) -> Result<ObjectsVolume, CoordinatorError> {
    let objects = ObjectsVolume::open(depot, &setup.repo).await?;
    for file in &setup.spec.files {
        objects.ensure(depot, &setup.repo, &file.branch, &file.base).await?;
    }
    Ok(objects)
}

fn depot_spec(setup: &SwarmSetup, names: &ResourceNames, again: bool) -> DepotSpec {
    DepotSpec {
        reuse_shim: again,
        swarm: setup.spec.swarm,
        image: setup.sandbox.image.clone(),
        name: names.depot.clone(),
        volumes: DepotVolumes {
            objects: names.objects.clone(),
            inbox: names.inbox.clone(),
            work: names.work.clone(),
            mailbox: setup.plan.has_mailbox().then(|| names.mailbox.clone()),
        },
        repo: setup.repo.hash(),
        shim_binary: setup.shim.clone(),
        memory_limit: 0,
    }
}

async fn close_depot(depot: &DepotClient) {
    if let Err(error) = depot.close().await {
        tracing::warn!(error = %error_chain(&error), "cannot remove the depot; `longshore gc` will");
    }
}

async fn remove_volumes(setup: &SwarmSetup, names: &ResourceNames) {
    let mailbox = setup.plan.has_mailbox().then_some(&names.mailbox);
    for volume in [&names.inbox, &names.work].into_iter().chain(mailbox) {
        if let Err(error) = setup.engine.remove_volume(volume).await {
            tracing::warn!(volume, error = %error_chain(&error), "cannot remove a volume; `longshore gc` will");
        }
    }
}

/// What the loop knows of an attempt beyond the machine: who it is on the engine.
pub(super) struct AttemptHandle {
    pub(super) container: Option<ContainerId>,
    pub(super) context: AttemptContext,
    pub(super) stop_signal: watch::Sender<Option<Signal>>,
    /// The engine may know of an end that its session has not heard of.
    pub(super) inspect_requested: Arc<Notify>,
}

impl AttemptHandle {
    /// One that has no session.
    pub(super) fn without_session(container: Option<ContainerId>, remains: AttemptContext) -> Self {
        let (stop, _) = watch::channel(None);
        Self { container, context: remains, stop_signal: stop, inspect_requested: Arc::default() }
    }
}

/// The machine's time: since the swarm began. It stands still while no orchestrator runs, so that a sandbox whose orchestrator was
/// away has as much time left as before; and no step of the wall clock moves it.
pub(super) struct SwarmClock {
    started_at: Instant,
    offset: Duration,
}

impl SwarmClock {
    fn now(&self) -> Duration {
        self.offset + self.started_at.elapsed()
    }

    fn instant_at(&self, time: Duration) -> Instant {
        self.started_at + time.saturating_sub(self.offset)
    }
}

pub(super) struct Coordinator {
    pub(super) setup: SwarmSetup,
    pub(super) machine: SwarmMachine,
    pub(super) names: ResourceNames,
    pub(super) executor: EffectExecutor,
    pub(super) objects: Arc<ObjectsVolume>,
    pub(super) events: EventSender,
    pub(super) tasks: JoinSet<()>,
    pub(super) attempts: BTreeMap<AttemptId, AttemptHandle>,
    /// What may still be on its way out of a work folder.
    pub(super) collect_tasks: BTreeMap<AttemptId, AbortHandle>,
    pub(super) clock: SwarmClock,
    /// Containers that an orchestrator which is gone left of attempts that it was starting.
    pub(super) orphans: BTreeMap<AttemptId, ContainerId>,
    /// The effects of `Event::Resumed` are being carried out: what they start may be there already.
    pub(super) resuming: bool,
    pub(super) outcome: Option<SwarmOutcome>,
    pub(super) engine_monitor: EngineMonitor,
    pub(super) admission: Arc<Admission>,
    /// What was seen of the engine's things.
    pub(super) engine_scans: mpsc::UnboundedSender<EngineResult<Vec<EngineResource>>>,
    pub(super) snapshots: mpsc::UnboundedSender<PendingSnapshot>,
    pub(super) ssot_writer: SsotWriter,
    pub(super) memory: SwarmMemory,
    pause_worker: (mpsc::UnboundedSender<(ContainerId, bool)>, JoinHandle<()>),
    /// The agents' mailbox, and its task.
    pub(super) mailbox: Option<(MailboxHandle, AbortOnDropHandle<()>)>,
    /// What the user is to know of those who could not be told of an escalation.
    warnings: mpsc::UnboundedReceiver<String>,
}

/// When to look at what the engine has, and what was seen.
struct ReconcileTriggers {
    requested: Arc<Notify>,
    scans: mpsc::UnboundedReceiver<EngineResult<Vec<EngineResource>>>,
}

impl Coordinator {
    /// Turns until the machine has finished.
    async fn run_loop(
        &mut self,
        mut inbox: mpsc::UnboundedReceiver<QueuedEvent>,
        mut commands: mpsc::Receiver<ControlRequest>,
        mut looking: ReconcileTriggers,
    ) -> Result<(), CoordinatorError> {
        let mut signals = StopSignals::new();
        let mut batch = Vec::with_capacity(MAX_EVENT_BATCH);
        let mut next_look = Instant::now() + reconcile::RECONCILE_INTERVAL;
        while self.outcome.is_none() {
            let deadline = self.machine.next_deadline().map(|time| self.clock.instant_at(time));
            let snapshot = self.setup.store.snapshot_due_at().map(|time| self.clock.instant_at(time));
            tokio::select! {
                count = inbox.recv_many(&mut batch, MAX_EVENT_BATCH) => {
                    if count == 0 { break }
                }
                () = sleep_until_deadline(deadline) => batch.push(QueuedEvent::from(Event::DeadlinePassed)),
                () = sleep_until_deadline(snapshot) => {}
                (level, by) = signals.next() => match level {
                    Some(level) => batch.push(QueuedEvent::from(Event::StopRequested { level, by })),
                    // The third: the user wants out, whatever is left. The journal is whole; `gc` and salvage find the rest.
                    None => break,
                },
                Some(command) = commands.recv() => match command {
                    ControlRequest { command: ControlCommand::Stop { level }, reply } => {
                        let _ = reply.send(ControlReply::Accepted);
                        batch.push(QueuedEvent::from(Event::StopRequested { level, by: "longshore stop".to_owned() }));
                    }
                    ControlRequest { command: ControlCommand::Decide { decision }, reply } => {
                        match self.machine.check_decision(&decision.task, &decision.action) {
                            Ok(()) => {
                                let _ = reply.send(ControlReply::Accepted);
                                batch.push(QueuedEvent::from(Event::DecisionMade { decision }));
                            }
                            Err(problem) => drop(reply.send(ControlReply::Refused { problem })),
                        }
                    }
                },
                () = looking.requested.notified() => {
                    next_look = Instant::now() + reconcile::RECONCILE_INTERVAL;
                    self.scan_engine();
                }
                () = tokio::time::sleep_until(next_look) => {
                    next_look = Instant::now() + reconcile::RECONCILE_INTERVAL;
                    self.scan_engine();
                }
                Some(problem) = self.warnings.recv() => self.announce_notify_failure(problem),
                Some(seen) = looking.scans.recv() => self.reconcile(seen),
                Some(ended) = self.tasks.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        // What it was to answer will not come.
                        let fault = MachineryFault::new(Cause::HostError, "a part of longshore failed: see longshore.log", false);
                        batch.push(QueuedEvent::from(Event::MachineryFailed { fault }));
                    }
                }
            }
            self.handle_events(&mut batch)?;
        }
        Ok(())
    }

    /// Events through the machine, to the journal, then the effects.
    fn handle_events(&mut self, batch: &mut Vec<QueuedEvent>) -> Result<(), CoordinatorError> {
        let now = self.clock.now();
        let mut durable = Vec::with_capacity(batch.len());
        let mut effects = Vec::new();
        self.resuming = false;
        for QueuedEvent { event, .. } in batch.drain(..) {
            self.resuming |= event == Event::Resumed;
            if let Event::SandboxCreated { attempt, container, .. } = &event
                && let Some(live) = self.attempts.get_mut(attempt)
            {
                live.container = Some(container.clone());
            }
            let mut wanted = self.machine.handle(&event, now);
            if wanted.first() == Some(&Effect::Persist) {
                wanted.remove(0);
                durable.push((event, now));
            }
            effects.extend(wanted);
        }
        // One write and one sync for the batch. It blocks this thread for a disk's millisecond; nothing that follows could
        // be done meanwhile anyway.
        if !durable.is_empty() {
            run_blocking(|| self.setup.store.append(&durable, Timestamp::now()))?;
        }
        for effect in effects {
            self.execute_effect(effect);
        }
        if let Some(snapshot) = self.setup.store.snapshot_if_due(&self.machine, now)? {
            // The writer is gone only after a failure that is in the inbox by now.
            let _ = self.snapshots.send(snapshot);
        }
        Ok(())
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Persist => unreachable!("taken off by `take`"),
            Effect::Start { attempt, stories, guidance, base } => {
                let origin = self.session_origin(&attempt);
                self.start_attempt(attempt, AttemptSpec { stories, guidance, review: None }, base, origin);
            }
            Effect::StartReview { attempt, review } => {
                let origin = self.session_origin(&attempt);
                let base = review.commit.clone();
                let stories = review.stories.iter().map(|key| (key.clone(), None)).collect();
                self.start_attempt(
                    attempt,
                    AttemptSpec { stories, guidance: Vec::new(), review: Some(review) },
                    base,
                    origin,
                );
            }
            Effect::Pause { attempt } => self.set_paused(&attempt, true),
            Effect::Unpause { attempt } => self.set_paused(&attempt, false),
            Effect::SendAmp(word) => self.emit_intent(&word),
            Effect::Terminate { attempt } => self.signal_sandbox(&attempt, Signal::Term),
            Effect::Kill { attempt } => self.signal_sandbox(&attempt, Signal::Kill),
            Effect::Inspect { attempt } => self.examine(attempt),
            Effect::Collect { attempt, mode: what } => {
                if let Some(live) = self.attempts.get(&attempt) {
                    let remains = AttemptContext { container: live.container.clone(), ..live.context.clone() };
                    let (hands, postbox) = (self.executor.clone(), self.events.clone());
                    let review = self.machine.attempt(&attempt).and_then(|view| view.review.clone());
                    let criteria = self.ssot_writer.composer.review_criteria(&attempt.assignment);
                    let ssot = Arc::clone(&self.setup.ssot);
                    let collect = async move {
                        let event = match review {
                            Some(_) => carry_out::collect_review(hands, remains, criteria, what, ssot).await,
                            None => carry_out::collect(hands, remains, what).await,
                        };
                        postbox.send_now(event);
                    };
                    let task = self.tasks.spawn(collect);
                    if let Some(before) = self.collect_tasks.insert(attempt, task) {
                        before.abort();
                    }
                }
            }
            Effect::Merge { attempt, file, onto, tip, stories } => self.start_merge(attempt, file, onto, tip, &stories),
            Effect::Remove { attempt, keep_work_dir: keep_work } => self.remove_sandbox(attempt, keep_work),
            Effect::Announce(announcement) => {
                if let Announcement::StoryLanded { story, .. } = &announcement {
                    self.save_memory(story);
                }
                self.setup.reporter.announce(Timestamp::now(), &announcement);
            }
            Effect::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn announce_notify_failure(&mut self, problem: String) {
        self.setup.reporter.announce(Timestamp::now(), &Announcement::NotifyFailed { problem });
    }

    /// Where the session of an attempt begins.
    fn session_origin(&mut self, attempt: &AttemptId) -> SessionOrigin {
        let known = self.machine.attempt(attempt).and_then(|view| view.container.clone());
        match (self.resuming, self.orphans.remove(attempt), known) {
            (false, ..) => SessionOrigin::Fresh,
            (true, None, Some(container)) => SessionOrigin::Adopted { container, applied: 0 },
            (true, container, _) => SessionOrigin::Interrupted { container },
        }
    }

    /// Pauses a sandbox, or lets it go on; an engine that is away is waited for.
    fn set_paused(&mut self, attempt: &AttemptId, frozen: bool) {
        let Some(container) = self.attempts.get(attempt).and_then(|live| live.container.clone()) else { return };
        let _ = self.pause_worker.0.send((container, frozen));
    }

    pub(super) fn examine(&mut self, attempt: AttemptId) {
        let Some(container) = self.attempts.get(&attempt).and_then(|live| live.container.clone()) else { return };
        let (engine, postbox) = (Arc::clone(&self.setup.engine), self.events.clone());
        self.tasks.spawn(async move {
            if let Some(event) = carry_out::examine(engine.as_ref(), attempt, &container).await {
                postbox.send_now(event);
            }
        });
    }

    fn signal_sandbox(&self, attempt: &AttemptId, signal: Signal) {
        if let Some(live) = self.attempts.get(attempt) {
            live.stop_signal.send_replace(Some(signal));
        }
    }

    fn remove_sandbox(&mut self, attempt: AttemptId, keep_work: bool) {
        // The entry stays: a merge may still be to come, and wants the name that the commits are kept under.
        let Some(live) = self.attempts.get_mut(&attempt) else { return };
        // It has answered, or the machine waits for it no longer; the end must not wait for it either.
        if let Some(collect) = self.collect_tasks.remove(&attempt) {
            collect.abort();
        }
        let container = live.container.take().filter(|_| !self.setup.sandbox.keep_containers);
        let (hands, postbox, uid) = (self.executor.clone(), self.events.clone(), live.context.uid);
        let keep_work = keep_work || self.setup.sandbox.keep_containers;
        self.tasks.spawn(async move {
            postbox.send_now(carry_out::remove_sandbox(hands, attempt, container, uid, keep_work).await);
        });
    }

    pub(super) fn find_assignment(&self, id: &AssignmentId) -> Option<(usize, &AssignmentSpec)> {
        self.setup.spec.assignments.iter().enumerate().find(|(_, assignment)| assignment.id == *id)
    }

    /// Lets the last removals end, writes the last snapshot, takes the depot down.
    async fn close(
        mut self,
        depot: &DepotClient,
        looped: Result<(), CoordinatorError>,
        writer: JoinHandle<()>,
    ) -> Result<RunReport, CoordinatorError> {
        let outcome = self.outcome.unwrap_or(SwarmOutcome::Interrupted);
        // Whoever was told to stop by three signals waits for nothing; a fourth ends any wait below.
        let mut signals = StopSignals::new();
        // A swarm that is left to be resumed has sandboxes that go on: their sessions would be waited for in vain.
        let settled = self.machine.attempts().all(|view| view.phase == AttemptPhase::Settled);
        if self.outcome.is_some() && looped.is_ok() && settled {
            let tasks = async { while self.tasks.join_next().await.is_some() {} };
            tokio::select! {
                _ = tokio::time::timeout(LAST_TASKS_TIMEOUT, tasks) => {}
                _ = signals.next() => {}
            }
        }
        // What is said to be paused is, also when nobody is there any more.
        let (nobody, _) = mpsc::unbounded_channel();
        self.pause_worker.0 = nobody;
        let _ = tokio::time::timeout(LAST_PAUSES_TIMEOUT, &mut self.pause_worker.1).await;
        self.tasks.shutdown().await;
        if let Some((mail, _task)) = self.mailbox.take() {
            let over = self.outcome.is_some() && looped.is_ok() && self.machine.is_complete();
            tokio::select! {
                () = mail.close(over) => {}
                _ = signals.next() => {}
            }
        }
        let heard = run_blocking(|| self.ssot_writer.close());
        tokio::select! {
            () = heard.close() => {}
            _ = signals.next() => {}
        }
        while let Ok(problem) = self.warnings.try_recv() {
            self.announce_notify_failure(problem);
        }
        self.setup.reporter.close();
        drop(self.snapshots);
        let _ = writer.await;
        // What the journal does not have must not be in the state file either.
        let written = match looped {
            Err(CoordinatorError::State(_)) => Ok(0),
            _ => (self.setup.store.snapshot(&self.machine, self.clock.now()))
                .and_then(|snapshot| run_blocking(|| snapshot.write())),
        };
        let stay = reason_to_keep_volumes(&self.machine, self.setup.sandbox.keep_containers);
        let all = looped.is_ok() && written.is_ok() && stay.is_none();
        let removal = async {
            close_depot(depot).await;
            if all {
                remove_volumes(&self.setup, &self.names).await;
            }
        };
        let patience = if self.outcome.is_some() { CLEANUP_TIMEOUT } else { INTERRUPTED_CLEANUP_TIMEOUT };
        let removed = tokio::select! {
            removed = tokio::time::timeout(patience, removal) => removed.is_ok(),
            _ = signals.next() => false,
        };
        if !removed {
            tracing::warn!("the engine did not remove all in time; `longshore gc` will");
        }
        // A collect that was broken off may have left something in it.
        let _ = std::fs::remove_dir_all(self.setup.dir.path().join("incoming"));
        looped?;
        written?;
        let logs = (self.setup.spec.assignments.iter())
            .flat_map(|assignment| {
                let log = self.setup.dir.log_file(&assignment.id);
                assignment.stories.iter().map(move |key| (key.clone(), log.clone()))
            })
            .collect();
        let kept = self.machine.attempts().filter(|view| view.work_dir_kept);
        let kept = kept.map(|view| (view.id.clone(), self.names.work.clone())).collect();
        Ok(RunReport { outcome, unsalvaged: kept, story_logs: logs })
    }
}

/// Does what blocks for a moment. Where there is one thread alone, nothing else can be done meanwhile anyway.
pub(super) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}

/// Sleeps until then, or for ever.
pub(super) async fn sleep_until_deadline(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
