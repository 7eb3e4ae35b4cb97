//! The loop itself. See `mod.rs` for the rules that it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::delivery::{MergeMessage, refs};
use crate::engine::depot::{Depot, DepotSpec};
use crate::engine::{ContainerSpec, Signal, VolumeMount, label};
use crate::handoff::assignment::{ASSIGNMENT_VERSION, AssignmentFile, StoryWork};
use crate::handoff::depot::TextFile;
use crate::handoff::layout;
use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryKey};
use crate::protocol::acp::message::{TaskFilePath, TaskRequest};
use crate::swarm::{AssignmentSpec, Effect, Event, Machine, Outcome, StopLevel};

use super::carry_out::{self, Hands, Landing, Remains};
use super::control::{self, Command};
use super::inbox::{Posted, Postbox};
use super::objects::Objects;
use super::session::{self, Job, Tools};
use super::{CoordinatorError, Ended, Names, Setup};

/// The first uid of sandboxes; each attempt of a swarm has its own.
const FIRST_UID: u32 = 20_000;
/// How many uids there are: a rootless engine maps 65,536.
const UIDS: u32 = 40_000;
/// Events taken at once: they share one write to the journal.
const BATCH: usize = 256;
/// How long the last removals may take.
const CLOSING: Duration = Duration::from_secs(60);

/// Runs a swarm to its end.
///
/// # Errors
/// [`CoordinatorError`] where the swarm cannot begin, or its record cannot be written.
pub async fn run(setup: Setup) -> Result<Ended, CoordinatorError> {
    let names = Names::new(setup.spec.swarm, &setup.repo);
    let (postbox, inbox) = Postbox::new();
    let (commands_in, commands) = mpsc::channel(8);
    let server = control::serve(&setup.dir, commands_in)
        .map_err(|source| CoordinatorError::Control { path: setup.dir.path().join(control::SOCKET), source })?;
    let incoming = setup.dir.path().join("incoming");
    std::fs::create_dir_all(&incoming)
        .map_err(|source| CoordinatorError::Control { path: incoming.clone(), source })?;

    let depot = Depot::start(Arc::clone(&setup.engine), &depot_spec(&setup, &names)).await?;
    let prepared = prepare(&setup, &depot).await;
    let objects = match prepared {
        Ok(objects) => Arc::new(objects),
        Err(error) => {
            depot.close().await;
            remove_volumes(&setup, &names).await;
            return Err(error);
        }
    };
    let hands = Hands {
        engine: Arc::clone(&setup.engine),
        depot: depot.clone(),
        repo: setup.repo.clone(),
        incoming,
        max_bundle: setup.sandbox.max_bundle,
    };
    let machine = Machine::new(setup.spec.clone());
    let mut coordinator = Coordinator {
        machine,
        names,
        hands,
        objects,
        postbox,
        tasks: JoinSet::new(),
        live: BTreeMap::new(),
        kept: Vec::new(),
        clock: Instant::now(),
        finish: None,
        setup,
    };
    coordinator.postbox.post_now(Event::Began);
    let looped = coordinator.turn(inbox, commands).await;
    let ended = coordinator.close(&depot, looped).await;
    server.abort();
    ended
}

/// Puts the first bases into the objects volume.
async fn prepare(setup: &Setup, depot: &Depot) -> Result<Objects, CoordinatorError> {
    let objects = Objects::open(depot, &setup.repo).await?;
    for file in &setup.spec.files {
        objects.ensure(depot, &setup.repo, &file.branch, &file.base).await?;
    }
    Ok(objects)
}

fn depot_spec(setup: &Setup, names: &Names) -> DepotSpec {
    DepotSpec {
        swarm: setup.spec.swarm,
        image: setup.sandbox.image.clone(),
        name: names.depot.clone(),
        objects: names.objects.clone(),
        inbox: names.inbox.clone(),
        work: names.work.clone(),
        repo: setup.repo.hash(),
        shim: setup.shim.clone(),
    }
}

async fn remove_volumes(setup: &Setup, names: &Names) {
    for volume in [&names.inbox, &names.work] {
        if let Err(error) = setup.engine.remove_volume(volume).await {
            tracing::warn!(volume, error = %session::chain(&error), "cannot remove a volume; `longshore gc` will");
        }
    }
}

/// What the loop knows of an attempt beyond the machine: who it is on the engine.
struct Live {
    container: Option<ContainerId>,
    remains: Remains,
    stop: watch::Sender<Option<Signal>>,
}

struct Coordinator {
    setup: Setup,
    machine: Machine,
    names: Names,
    hands: Hands,
    objects: Arc<Objects>,
    postbox: Postbox,
    tasks: JoinSet<()>,
    live: BTreeMap<AttemptId, Live>,
    kept: Vec<(AttemptId, String)>,
    clock: Instant,
    finish: Option<Outcome>,
}

impl Coordinator {
    /// Turns until the machine has finished.
    async fn turn(
        &mut self,
        mut inbox: mpsc::UnboundedReceiver<Posted>,
        mut commands: mpsc::Receiver<Command>,
    ) -> Result<(), CoordinatorError> {
        let mut signals = Signals::new();
        let mut batch = Vec::with_capacity(BATCH);
        while self.finish.is_none() {
            let deadline = self.machine.next_deadline().map(|at| self.clock + at);
            let snapshot = self.setup.store.snapshot_due().map(|at| self.clock + at);
            tokio::select! {
                count = inbox.recv_many(&mut batch, BATCH) => {
                    if count == 0 { break }
                }
                () = until(deadline) => batch.push(Posted::from(Event::DeadlinePassed)),
                () = until(snapshot) => {}
                (level, by) = signals.next() => match level {
                    Some(level) => batch.push(Posted::from(Event::StopRequested { level, by })),
                    // The third: the user wants out, whatever is left. The journal is whole; `gc` and salvage find the rest.
                    None => break,
                },
                Some(command) = commands.recv() => match command {
                    Command::Stop { level } => {
                        batch.push(Posted::from(Event::StopRequested { level, by: "longshore stop".to_owned() }));
                    }
                },
                Some(_) = self.tasks.join_next() => {}
            }
            self.take(&mut batch)?;
        }
        Ok(())
    }

    /// Events through the machine, to the journal, then the effects.
    fn take(&mut self, batch: &mut Vec<Posted>) -> Result<(), CoordinatorError> {
        let now = self.clock.elapsed();
        let mut durable = Vec::with_capacity(batch.len());
        let mut effects = Vec::new();
        for Posted { event, .. } in batch.drain(..) {
            if let Event::SandboxCreated { attempt, container, .. } = &event
                && let Some(live) = self.live.get_mut(attempt)
            {
                live.container = Some(container.clone());
            }
            let mut wanted = self.machine.handle(&event, now);
            if wanted.first() == Some(&Effect::Persist) {
                wanted.remove(0);
                durable.push(event);
            }
            effects.extend(wanted);
        }
        // One write and one sync for the batch. It blocks this thread for a disk's millisecond; nothing that follows could
        // be done meanwhile anyway.
        if !durable.is_empty() {
            tokio::task::block_in_place(|| self.setup.store.append(&durable, now, Timestamp::now()))?;
        }
        for effect in effects {
            self.carry_out(effect);
        }
        tokio::task::block_in_place(|| self.setup.store.maybe_snapshot(&self.machine, now, Timestamp::now()))?;
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Persist => unreachable!("taken off by `take`"),
            Effect::Start { attempt, stories, base } => self.start(attempt, stories, base),
            Effect::Terminate { attempt } => self.signal(&attempt, Signal::Term),
            Effect::Kill { attempt } => self.signal(&attempt, Signal::Kill),
            Effect::Collect { attempt, what } => {
                if let Some(live) = self.live.get(&attempt) {
                    let (hands, remains, postbox) = (self.hands.clone(), live.remains.clone(), self.postbox.clone());
                    self.tasks.spawn(async move { postbox.post_now(carry_out::collect(hands, remains, what).await) });
                }
            }
            Effect::Merge { attempt, file, onto, tip, stories } => self.merge(attempt, file, onto, tip, &stories),
            Effect::Remove { attempt, keep_work } => self.remove(attempt, keep_work),
            Effect::Announce(announcement) => self.setup.reporter.announce(Timestamp::now(), &announcement),
            Effect::Finish(outcome) => self.finish = Some(outcome),
        }
    }

    fn start(&mut self, attempt: AttemptId, stories: Vec<(StoryKey, Option<String>)>, base: CommitId) {
        let Some((index, assignment)) = self.assignment(&attempt.assignment) else { return };
        let assignment = assignment.clone();
        let spec = &self.setup.spec;
        let file = &spec.files[usize::from(assignment.file)];
        let planned = &self.setup.plan.files[usize::from(assignment.file)];
        // By place and number, so that a resumed swarm gives each attempt the same uid again.
        let place = index as u32 + (attempt.number - 1) * spec.assignments.len() as u32;
        let uid = FIRST_UID + place % UIDS;
        let several = spec.files.len() > 1;
        let remains = Remains {
            swarm: spec.swarm,
            attempt: attempt.clone(),
            uid,
            branch: assignment.branch.clone(),
            base: base.clone(),
            stories: stories
                .iter()
                .map(|(key, _)| (key.id.clone(), refs::story_path(several.then_some(file.slug.as_str()), &key.id)))
                .collect(),
        };
        let sandbox = &self.setup.sandbox;
        let brief = AssignmentFile {
            schema_version: ASSIGNMENT_VERSION,
            swarm_id: spec.swarm,
            attempt: attempt.clone(),
            branch: assignment.branch.clone(),
            base: base.clone(),
            integration_branch: file.branch.to_string(),
            object_format: self.setup.repo.object_format().to_owned(),
            task_file_path: planned.task_file_path.clone(),
            stories: stories
                .iter()
                .map(|(key, previous)| StoryWork { id: key.id.clone(), previous_failure: previous.clone() })
                .collect(),
            agent: sandbox.agent.clone(),
            verify: sandbox.verify.clone(),
            story_timeout_secs: spec.limits.story_timeout.as_secs().max(1),
            grace_secs: spec.limits.grace.as_secs().max(1),
            identity: sandbox.identity.clone(),
        };
        let files = vec![
            TextFile {
                path: layout::ASSIGNMENT_FILE.to_owned(),
                text: serde_json::to_string_pretty(&brief).expect("an assignment file has string keys only"),
            },
            TextFile {
                path: format!("{}/{}", layout::TASKS_DIR, planned.task_file_path),
                text: String::from_utf8_lossy(&planned.bytes).into_owned(),
            },
        ];
        let request = TaskRequest {
            task_file_path: TaskFilePath::try_from(planned.task_file_path.clone())
                .expect("the plan makes paths that ACP allows"),
            branch_name: assignment.branch.clone(),
            repo_url: sandbox.repo_url.clone(),
            env_vars: sandbox.env.clone(),
        };
        let (stop, stopped) = watch::channel(None);
        let job = Job {
            swarm: spec.swarm,
            attempt: attempt.clone(),
            file: assignment.file,
            stories: stories.iter().map(|(key, _)| key.id.clone()).collect(),
            integration: file.branch.clone(),
            base,
            uid,
            container: self.container(&attempt, &stories, uid),
            files,
            request,
            log: self.setup.dir.log_file(&attempt.assignment),
        };
        let tools = Tools {
            engine: Arc::clone(&self.setup.engine),
            depot: self.hands.depot.clone(),
            objects: Arc::clone(&self.objects),
            repo: self.setup.repo.clone(),
            postbox: self.postbox.share(),
            stop: stopped,
        };
        self.live.insert(attempt, Live { container: None, remains, stop });
        self.tasks.spawn(session::run(job, tools));
    }

    fn container(&self, attempt: &AttemptId, stories: &[(StoryKey, Option<String>)], uid: u32) -> ContainerSpec {
        let sandbox = &self.setup.sandbox;
        let folder = attempt.folder();
        let own = |volume: &str, target: &str, read_only: bool, path: Option<String>| VolumeMount {
            volume: volume.to_owned(),
            target: target.to_owned(),
            read_only,
            subpath: path,
        };
        let mut mounts = vec![own(&self.names.objects, layout::OBJECTS, true, None)];
        if sandbox.subpath {
            mounts.push(own(&self.names.inbox, layout::BIN, true, Some("bin".to_owned())));
            let target = format!("{}/{folder}", layout::IN);
            mounts.push(own(&self.names.inbox, &target, true, Some(folder.clone())));
            let target = format!("{}/{folder}", layout::WORK);
            mounts.push(own(&self.names.work, &target, false, Some(folder.clone())));
        } else {
            mounts.push(own(&self.names.inbox, layout::IN, true, None));
            mounts.push(own(&self.names.work, layout::WORK, false, None));
        }
        let ids: Vec<&str> = stories.iter().map(|(key, _)| key.id.as_str()).collect();
        let labels = BTreeMap::from([
            (label::SWARM.to_owned(), self.setup.spec.swarm.to_string()),
            (label::ASSIGNMENT.to_owned(), attempt.assignment.to_string()),
            (label::STORY.to_owned(), ids.join(",")),
            (label::ATTEMPT.to_owned(), attempt.number.to_string()),
            (label::ROLE.to_owned(), "sandbox".to_owned()),
            (label::REPO.to_owned(), self.setup.repo.hash()),
        ]);
        ContainerSpec {
            name: self.names.sandbox(attempt),
            image: sandbox.image.clone(),
            argv: vec![layout::SHIM.to_owned(), "serve".to_owned(), folder],
            env: vec![("HOME".to_owned(), layout::HOME.to_owned())],
            user: (uid, uid),
            workdir: "/".to_owned(),
            labels,
            mounts,
            tmpfs: vec![
                ("/tmp".to_owned(), "rw,exec,nosuid,nodev,mode=1777".to_owned()),
                (layout::HOME.to_owned(), format!("rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={uid}")),
            ],
            memory: sandbox.memory,
            milli_cpus: sandbox.milli_cpus,
            pids: sandbox.pids,
            network: sandbox.network.clone(),
            capabilities: Vec::new(),
        }
    }

    fn signal(&self, attempt: &AttemptId, signal: Signal) {
        if let Some(live) = self.live.get(attempt) {
            live.stop.send_replace(Some(signal));
        }
    }

    fn merge(&mut self, attempt: AttemptId, file: u16, onto: CommitId, tip: CommitId, stories: &[StoryKey]) {
        let Some(live) = self.live.get(&attempt) else { return };
        let titles: Vec<String> =
            stories.iter().map(|key| format!("{}: {}", key.id, self.setup.plan.story(key).title)).collect();
        let subject = match titles.as_slice() {
            [only] => format!("Merge {only}"),
            several => format!("Merge {} stories of {}", several.len(), self.setup.plan.files[usize::from(file)].tasks.title),
        };
        let mut body = if titles.len() > 1 { titles } else { Vec::new() };
        if !body.is_empty() {
            body.push(String::new());
        }
        body.push(format!("Longshore-Swarm: {}", self.setup.spec.swarm));
        body.extend(stories.iter().map(|key| format!("Longshore-Story: {}", key.id)));
        let landing = Landing {
            branch: self.setup.spec.files[usize::from(file)].branch.clone(),
            onto,
            tip,
            message: MergeMessage { subject, body: body.join("\n") },
            identity: self.setup.sandbox.identity.clone(),
            kept: live.remains.result_ref(),
            attempt,
        };
        let (repo, postbox) = (self.setup.repo.clone(), self.postbox.clone());
        self.tasks.spawn(async move { postbox.post_now(carry_out::merge(repo, landing).await) });
    }

    fn remove(&mut self, attempt: AttemptId, keep_work: bool) {
        let Some(live) = self.live.remove(&attempt) else { return };
        if keep_work {
            self.kept.push((attempt.clone(), self.names.work.clone()));
        }
        let container = live.container.filter(|_| !self.setup.sandbox.keep);
        let (hands, postbox, uid) = (self.hands.clone(), self.postbox.clone(), live.remains.uid);
        let keep_work = keep_work || self.setup.sandbox.keep;
        self.tasks.spawn(async move {
            postbox.post_now(carry_out::remove(hands, attempt, container, uid, keep_work).await);
        });
    }

    fn assignment(&self, id: &AssignmentId) -> Option<(usize, &AssignmentSpec)> {
        self.setup.spec.assignments.iter().enumerate().find(|(_, assignment)| assignment.id == *id)
    }

    /// Lets the last removals end, writes the last snapshot, takes the depot down.
    async fn close(
        mut self,
        depot: &Depot,
        looped: Result<(), CoordinatorError>,
    ) -> Result<Ended, CoordinatorError> {
        let outcome = self.finish.unwrap_or(Outcome::Interrupted);
        let settled = matches!(outcome, Outcome::Landed | Outcome::SomeFailed);
        if self.finish.is_some() && looped.is_ok() {
            let _ = tokio::time::timeout(CLOSING, async { while self.tasks.join_next().await.is_some() {} }).await;
        }
        self.tasks.shutdown().await;
        self.setup.reporter.close();
        let written = self.setup.store.snapshot_now(&self.machine, self.clock.elapsed(), Timestamp::now());
        depot.close().await;
        // An interrupted swarm is resumed on the same volumes; a kept folder is in one of them.
        if settled && self.kept.is_empty() && !self.setup.sandbox.keep {
            remove_volumes(&self.setup, &self.names).await;
        }
        let _ = std::fs::remove_dir(self.setup.dir.path().join("incoming"));
        looped?;
        written?;
        let logs = (self.setup.spec.assignments.iter())
            .flat_map(|assignment| {
                let log = self.setup.dir.log_file(&assignment.id);
                assignment.stories.iter().map(move |key| (key.clone(), log.clone()))
            })
            .collect();
        Ok(Ended { outcome, kept: self.kept, logs })
    }
}

/// Sleeps until then, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// SIGINT and SIGTERM, counted.
struct Signals {
    count: u32,
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self {
            count: 0,
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// The next one: how hard to stop, or `None` for at once, and its name.
    async fn next(&mut self) -> (Option<StopLevel>, String) {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
        let name = tokio::select! {
            () = one(&mut self.interrupt) => "SIGINT",
            () = one(&mut self.terminate) => "SIGTERM",
        };
        self.count += 1;
        let level = match self.count {
            1 => Some(StopLevel::Graceful),
            2 => Some(StopLevel::Kill),
            _ => None,
        };
        (level, name.to_owned())
    }
}
