//! Carries out the machine's effects. The executor owns the tasks, the attempts' handles and the clients; the loop only calls its
//! methods, and everything that takes time runs in a task that sends an event back. Used by `event_loop.rs` and `shutdown.rs`.
//! Must not: decide anything, or wait for a sandbox, the engine or git.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::delivery::Repo;
use crate::engine::depot::DepotClient;
use crate::engine::{EngineResource, EngineResult, Signal, label};
use crate::error_chain::error_chain;
use crate::ids::{AttemptId, CommitId, ContainerId, StoryKey};
use crate::report::Reporter;
use crate::swarm::{AmpIntent, Announcement, AttemptRole, CollectMode, Effect, Event, SwarmMachine};

use super::amp::ssot_writer::SsotWriter;
use super::attempt::{AttemptContext, AttemptHandle};
use super::collect::collector::Collector;
use super::collect::{collect_check, collect_result, collect_review};
use super::landing::{BranchMove, LandingPreparation};
use super::mailbox::MailboxHandle;
use super::memory::SwarmMemory;
use super::merge::MergeRequest;
use super::pause_worker::PauseWorker;
use super::recovery::reconcile::{ReconcileAction, compare};
use super::recovery::resume::{ResumeAction, find_orphans, resume_action};
use super::session::{SandboxSession, SessionOrigin};
use super::session_context::SessionContext;
use super::start::sandbox_spec::{SandboxSpec, SandboxTask};
use super::swarm_context::SwarmContext;

/// What the engine has of the swarm.
pub(super) type EngineScan = EngineResult<Vec<EngineResource>>;

/// What is left to close once no task runs any more.
pub(super) struct StoppedExecutor {
    pub swarm: SwarmContext,
    pub reporter: Box<dyn Reporter>,
    pub amp: SsotWriter,
    pub mailbox: Option<MailboxHandle>,
    pub mailbox_task: Option<AbortOnDropHandle<()>>,
    pub depot: DepotClient,
}

/// Carries out effects.
pub(super) struct EffectExecutor {
    swarm: SwarmContext,
    reporter: Box<dyn Reporter>,
    amp: SsotWriter,
    memory: SwarmMemory,
    mailbox_task: Option<AbortOnDropHandle<()>>,
    sessions: SessionContext,
    collector: Collector,
    pause_worker: PauseWorker,
    engine_scans: mpsc::UnboundedSender<EngineScan>,
    tasks: JoinSet<()>,
    attempts: BTreeMap<AttemptId, AttemptHandle>,
    collect_tasks: BTreeMap<AttemptId, AbortHandle>,
    /// Containers that a dead orchestrator left of attempts that it was starting.
    orphans: BTreeMap<AttemptId, ContainerId>,
}

impl EffectExecutor {
    #[expect(clippy::too_many_arguments, reason = "called once; each argument is a part of its own")]
    pub fn new(
        swarm: SwarmContext,
        reporter: Box<dyn Reporter>,
        amp: SsotWriter,
        memory: SwarmMemory,
        mailbox_task: Option<AbortOnDropHandle<()>>,
        sessions: SessionContext,
        collector: Collector,
        engine_scans: mpsc::UnboundedSender<EngineScan>,
    ) -> Self {
        Self {
            pause_worker: PauseWorker::spawn(Arc::clone(&swarm.engine), sessions.engine_monitor.clone()),
            swarm,
            reporter,
            amp,
            memory,
            mailbox_task,
            sessions,
            collector,
            engine_scans,
            tasks: JoinSet::new(),
            attempts: BTreeMap::new(),
            collect_tasks: BTreeMap::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// Carries out an effect. `resuming`: the effect follows from `Event::Resumed`, so what it starts may exist already.
    pub fn execute(&mut self, effect: Effect, machine: &SwarmMachine, resuming: bool) {
        match effect {
            Effect::Persist | Effect::Finish(_) => unreachable!("handled by the loop"),
            Effect::Start { attempt, stories, guidance, base: _ } => {
                self.start_attempt(&attempt, SandboxTask { stories, guidance }, machine, resuming);
            }
            Effect::StartReview { attempt, review } => {
                let stories = review.stories.iter().map(|key| (key.clone(), None)).collect();
                self.start_attempt(&attempt, SandboxTask { stories, guidance: Vec::new() }, machine, resuming);
            }
            Effect::StartCheck { attempt, check } => {
                let stories = check.stories.iter().map(|key| (key.clone(), None)).collect();
                self.start_attempt(&attempt, SandboxTask { stories, guidance: Vec::new() }, machine, resuming);
            }
            Effect::Pause { attempt } => self.set_paused(&attempt, true),
            Effect::Unpause { attempt } => self.set_paused(&attempt, false),
            Effect::SendAmp(intent) => self.emit_intent(&intent),
            Effect::Terminate { attempt } => self.signal(&attempt, Signal::Term),
            Effect::Kill { attempt } => self.signal(&attempt, Signal::Kill),
            Effect::Inspect { attempt } => self.inspect(attempt),
            Effect::Collect { attempt, mode } => self.collect(attempt, mode, machine),
            Effect::PrepareLanding { landing, file, onto, candidates, merge } => {
                let preparation = LandingPreparation::new(&self.swarm, landing, file, onto, candidates, merge);
                let repo = self.swarm.repo.clone();
                self.spawn_event(async move { Some(preparation.run(&repo).await) });
            }
            Effect::MoveBranch { landing, file, from, to, stories } => {
                let branch_move = BranchMove::new(&self.swarm, landing, file, from, to, &stories);
                let repo = self.swarm.repo.clone();
                self.spawn_event(async move { Some(branch_move.run(&repo).await) });
            }
            Effect::Merge { attempt, file, onto, base, tip, stories } => {
                let Some(handle) = self.attempts.get(&attempt) else { return };
                let request = MergeRequest::new(&self.swarm, handle.context(), file, onto, base, tip, &stories);
                let repo = self.swarm.repo.clone();
                self.spawn_event(async move { Some(request.run(&repo).await) });
            }
            Effect::Remove { attempt, keep_work_dir } => self.remove(attempt, keep_work_dir),
            Effect::Announce(announcement) => {
                if let Announcement::StoryLanded { story, .. } = &announcement {
                    self.save_memory(&story.key, machine);
                }
                self.announce(&announcement);
            }
        }
    }

    /// Spawns a task whose event, if there is one, goes to the loop.
    fn spawn_event(&mut self, task: impl Future<Output = Option<Event>> + Send + 'static) -> AbortHandle {
        let events = self.sessions.events.clone();
        self.tasks.spawn(async move {
            if let Some(event) = task.await {
                events.send_now(event);
            }
        })
    }

    fn start_attempt(&mut self, attempt: &AttemptId, task: SandboxTask, machine: &SwarmMachine, resuming: bool) {
        let container = machine.attempt(attempt).and_then(|view| view.container.clone());
        let origin = match (resuming, self.orphans.remove(attempt), container) {
            (false, ..) => SessionOrigin::Fresh,
            (true, None, Some(container)) => SessionOrigin::Adopted { container, applied_records: 0 },
            (true, container, _) => SessionOrigin::Interrupted { container },
        };
        self.start_session(attempt, task, origin, machine);
    }

    fn start_session(&mut self, attempt: &AttemptId, task: SandboxTask, origin: SessionOrigin, machine: &SwarmMachine) {
        let Some(view) = machine.attempt(attempt) else { return };
        let container = match &origin {
            SessionOrigin::Adopted { container, .. } => Some(container.clone()),
            SessionOrigin::Fresh | SessionOrigin::Interrupted { .. } => None,
        };
        let Some(context) = AttemptContext::new(&self.swarm.spec, view, container) else { return };
        let memories = match &view.role {
            AttemptRole::Reviewer(_) | AttemptRole::Checker(_) => Vec::new(),
            AttemptRole::Executor => {
                let stories: Vec<StoryKey> = task.stories.iter().map(|(key, _)| key.clone()).collect();
                self.memory.dependency_memories(&stories, &self.swarm.plan, machine)
            }
        };
        let spec = SandboxSpec::new(&self.swarm, self.amp.composer(), view, context.clone(), task, memories);
        let Some(spec) = spec else { return };
        let (handle, control) = AttemptHandle::new(context);
        let events = self.sessions.events.with_own_share();
        let session = SandboxSession { spec, context: SessionContext { events, ..self.sessions.clone() }, control };
        self.attempts.insert(attempt.clone(), handle);
        self.tasks.spawn(session.run(origin));
    }

    /// Restores the attempts of a resumed swarm, and adopts the sandboxes that ran.
    pub async fn resume(&mut self, machine: &SwarmMachine) -> EngineResult<()> {
        let swarm = self.swarm.spec.swarm.to_string();
        self.orphans = find_orphans(&self.swarm.engine.find_resources(label::SWARM, Some(&swarm)).await?);
        for view in machine.attempts() {
            let container = view.container.clone().or_else(|| self.orphans.get(&view.id).cloned());
            match resume_action(view, container) {
                ResumeAction::Skip => {}
                ResumeAction::Adopt { container, applied_records } => {
                    let stories = view.stories.iter().map(|(key, _)| (key.clone(), None)).collect();
                    let task = SandboxTask { stories, guidance: Vec::new() };
                    let origin = SessionOrigin::Adopted { container, applied_records };
                    self.start_session(&view.id, task, origin, machine);
                }
                ResumeAction::Track { container } => {
                    let context = AttemptContext::new(&self.swarm.spec, view, container);
                    if let Some(context) = context {
                        self.attempts.insert(view.id.clone(), AttemptHandle::without_session(context));
                    }
                }
            }
        }
        Ok(())
    }

    /// The stories of a tasks file that the history of this commit has, as they are in the plan.
    pub async fn landed_before(&self, file: u16, head: &CommitId) -> Vec<StoryKey> {
        let plan = &self.swarm.plan;
        let path = &plan.files[usize::from(file)].task_file_path;
        let landed = self.swarm.repo.landed_stories(head, path).await.unwrap_or_default();
        let same = |key: &StoryKey| plan.story(key).content_hash();
        let keys = landed.into_iter().map(|landed| (StoryKey { file, id: landed.id }, landed.content));
        let known = |key: &StoryKey| plan.files[usize::from(file)].tasks.stories.iter().any(|story| story.id == key.id);
        keys.filter(|(key, content)| known(key) && same(key) == *content).map(|(key, _)| key).collect()
    }

    pub fn repo(&self) -> &Repo {
        &self.swarm.repo
    }

    /// Records the container that a session created.
    pub fn set_container(&mut self, attempt: &AttemptId, container: &ContainerId) {
        if let Some(handle) = self.attempts.get_mut(attempt) {
            handle.set_container(container.clone());
        }
    }

    fn container(&self, attempt: &AttemptId) -> Option<ContainerId> {
        self.attempts.get(attempt)?.container().cloned()
    }

    fn set_paused(&self, attempt: &AttemptId, paused: bool) {
        if let Some(container) = self.container(attempt) {
            self.pause_worker.set_paused(container, paused);
        }
    }

    fn signal(&self, attempt: &AttemptId, signal: Signal) {
        if let Some(handle) = self.attempts.get(attempt) {
            handle.signal(signal);
        }
    }

    /// Reports what the engine shows of a running sandbox.
    fn inspect(&mut self, attempt: AttemptId) {
        let Some(container) = self.container(&attempt) else { return };
        let engine = Arc::clone(&self.swarm.engine);
        self.spawn_event(async move {
            let inspection = engine.inspect(&container).await.ok().flatten().filter(|seen| seen.running)?;
            let processes = engine.top(&container).await.unwrap_or_default();
            Some(Event::SandboxInspected { attempt, paused: inspection.paused, processes })
        });
    }

    fn collect(&mut self, attempt: AttemptId, mode: CollectMode, machine: &SwarmMachine) {
        let Some(handle) = self.attempts.get(&attempt) else { return };
        let (collector, context) = (self.collector.clone(), handle.context().clone());
        let task = match machine.attempt(&attempt).map(|view| &view.role) {
            Some(AttemptRole::Reviewer(_)) => {
                let criteria = self.amp.composer().review_criteria(&attempt.assignment);
                let ssot = Arc::clone(&self.swarm.ssot);
                self.spawn_event(async move { Some(collect_review(&collector, &context, &criteria, mode, ssot).await) })
            }
            Some(AttemptRole::Checker(_)) => {
                let memory = self.swarm.checks.clone();
                self.spawn_event(async move { Some(collect_check(&collector, &context, mode, &memory).await) })
            }
            Some(AttemptRole::Executor) | None => {
                let start_failure = machine.reported_start_failure(&attempt);
                self.spawn_event(async move { Some(collect_result(&collector, &context, mode, start_failure).await) })
            }
        };
        if let Some(previous) = self.collect_tasks.insert(attempt, task) {
            previous.abort();
        }
    }

    /// Removes a sandbox's container, and its directories unless they are kept.
    fn remove(&mut self, attempt: AttemptId, keep_work_dir: bool) {
        // The handle stays: a merge may follow, and needs the attempt's refs.
        let Some(handle) = self.attempts.get_mut(&attempt) else { return };
        // Either the collection has sent its event, or the machine no longer waits for it; shutdown must not wait either.
        if let Some(task) = self.collect_tasks.remove(&attempt) {
            task.abort();
        }
        let keep_containers = self.swarm.sandbox.keep_containers;
        let container = handle.take_container().filter(|_| !keep_containers);
        let uid = handle.context().uid;
        let (engine, depot) = (Arc::clone(&self.swarm.engine), self.collector.depot.clone());
        self.spawn_event(async move {
            if let Some(container) = container
                && let Err(error) = engine.remove(&container).await
            {
                tracing::warn!(%attempt, error = %error_chain(&error), "cannot remove a sandbox; `longshore gc` will");
            }
            if !keep_work_dir
                && !keep_containers
                && let Err(error) = depot.remove_sandbox_dirs(&attempt.dir_name(), uid).await
            {
                tracing::warn!(%attempt, error = %error_chain(&error), "cannot remove a work directory; it goes with its volume");
            }
            Some(Event::SandboxRemoved { attempt })
        });
    }

    /// Lists what the engine has of the swarm, in a task; the list goes to the loop.
    pub fn scan_engine(&mut self) {
        let (engine, swarm) = (Arc::clone(&self.swarm.engine), self.swarm.spec.swarm.to_string());
        let scans = self.engine_scans.clone();
        self.tasks.spawn(async move {
            // The loop drops the receiver only when the swarm is over.
            let _ = scans.send(engine.find_resources(label::SWARM, Some(&swarm)).await);
        });
    }

    /// Acts on the differences between the engine's resources and the machine's state.
    pub fn reconcile(&mut self, scan: EngineScan, machine: &SwarmMachine) {
        let resources = match scan {
            Ok(resources) => resources,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot list the engine's resources");
                return;
            }
        };
        for action in compare(&resources, machine, self.swarm.sandbox.keep_containers) {
            match action {
                ReconcileAction::CheckSession(attempt) => {
                    if let Some(handle) = self.attempts.get(&attempt) {
                        handle.request_inspection();
                    }
                }
                ReconcileAction::Inspect(attempt) => self.inspect(attempt),
                ReconcileAction::RemoveContainer(attempt, container) => {
                    tracing::info!(container = %container.short(), %attempt, "removing a surplus container");
                    let engine = Arc::clone(&self.swarm.engine);
                    self.tasks.spawn(async move {
                        if let Err(error) = engine.remove(&container).await {
                            tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot remove a surplus container");
                        }
                    });
                }
                ReconcileAction::RestartDepot => {
                    let depot = self.collector.depot.clone();
                    self.tasks.spawn(async move {
                        if let Err(error) = depot.ensure_alive().await {
                            tracing::warn!(error = %error_chain(&error), "the depot is gone and cannot be started again");
                        }
                    });
                }
            }
        }
    }

    /// Writes an AMP message, and updates the stories' memory from it.
    pub fn emit_intent(&mut self, intent: &AmpIntent) {
        self.memory.apply_intent(intent);
        self.amp.write_intent(intent);
    }

    fn save_memory(&mut self, story: &StoryKey, machine: &SwarmMachine) {
        if let Some(memory) = self.memory.story_memory(story, &self.swarm.plan, machine) {
            self.amp.write_memory(memory);
        }
    }

    /// Writes the memory of all stories that landed in this swarm.
    pub fn save_all_memories(&mut self, machine: &SwarmMachine) {
        for view in machine.stories().filter(|view| view.has_landed() && !view.done_before) {
            self.save_memory(&view.key, machine);
        }
    }

    pub fn announce(&mut self, announcement: &Announcement) {
        self.reporter.announce(Timestamp::now(), announcement);
    }

    pub fn announce_notify_failure(&mut self, problem: String) {
        self.announce(&Announcement::NotifyFailed { problem });
    }

    /// The end of the next task; pending while there is none. Cancel-safe.
    pub async fn next_ended_task(&mut self) -> Result<(), JoinError> {
        match self.tasks.join_next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Waits for all tasks.
    pub async fn finish_tasks(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Finishes the requested pauses, then aborts all tasks.
    pub async fn stop(mut self, pause_timeout: Duration) -> StoppedExecutor {
        self.pause_worker.close(pause_timeout).await;
        self.tasks.shutdown().await;
        StoppedExecutor {
            swarm: self.swarm,
            reporter: self.reporter,
            amp: self.amp,
            mailbox: self.sessions.mailbox,
            mailbox_task: self.mailbox_task,
            depot: self.collector.depot,
        }
    }
}
