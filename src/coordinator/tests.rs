//! The whole coordinator on an engine with all the faults that Docker may have, under a paused clock: it advances only when no work
//! is left, so hours of delays and outages pass in milliseconds. Git, the journal and the merges are real.
//!
//! Each run simulates a swarm from a seed to its end, through orchestrators that may die. A failing seed is printed;
//! `LONGSHORE_SEED=<seed>` runs that seed alone, `LONGSHORE_RUNS=<n>` sets the number of runs. The seed does not control how long git
//! and the disk take: reproducing a failure may need several runs.

mod faulty_engine;
mod resume;
mod sandbox_script;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::delivery::Repo;
use crate::engine::depot::fake::FakeVolumes;
use crate::engine::fake::FakeEngine;
use crate::handoff::assignment::GitIdentity;
use crate::ids::SwarmId;
use crate::plan::{self, Plan};
use crate::protocol::acp::message::EnvVars;
use crate::protocol::amp::store::Ssot;
use crate::report::Reporter;
use crate::state::journal::{JOURNAL_VERSION, JournalHeader, TasksFileCopy};
use crate::state::recovery::{recover, replay};
use crate::state::{StateError, SwarmDir, SwarmLock, SwarmState, SwarmStore};
use crate::swarm::{Announcement, SwarmLimits, SwarmOutcome, SwarmSpec};
use crate::test_rng::SeededRng;
use crate::verdict::Cause;
use faulty_engine::{FaultRates, FaultyEngine};
use sandbox_script::SandboxScript;

/// The number of runs in an ordinary `cargo test`.
const RUNS: u64 = 120;
/// The longest swarm by its own clock.
const MAX_SWARM_TIME: Duration = Duration::from_secs(48 * 3600);
/// The longest run in real time.
const MAX_REAL_TIME: Duration = Duration::from_secs(60);
const BRANCH: &str = "feat/random";

#[test]
fn random_faults() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LONGSHORE_SEED") {
        println!("{:#?}", simulate(seed));
        return;
    }
    let runs = number("LONGSHORE_RUNS").unwrap_or(RUNS);
    let next = std::sync::atomic::AtomicU64::new(0);
    let (seen, failed) = (Mutex::new(BTreeMap::<String, u64>::new()), Mutex::new(BTreeSet::new()));
    let in_progress = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (next, seen, failed, in_progress) = (&next, &seen, &failed, &in_progress);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if seed >= runs {
                        in_progress.lock().unwrap().remove(&thread);
                        return;
                    }
                    in_progress.lock().unwrap().insert(thread, (seed, std::time::Instant::now()));
                    match catch_unwind(AssertUnwindSafe(|| simulate(seed))) {
                        Ok(counts) => {
                            let mut seen = seen.lock().unwrap();
                            counts.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
                        }
                        Err(_) => {
                            println!("failed: LONGSHORE_SEED={seed}");
                            failed.lock().unwrap().insert(seed);
                        }
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        while !in_progress.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(100));
            for (seed, started_at) in in_progress.lock().unwrap().values() {
                if started_at.elapsed() > MAX_REAL_TIME {
                    // Its thread cannot be stopped, and would block the end of this one.
                    eprintln!("stuck: LONGSHORE_SEED={seed} cargo test --lib random_faults");
                    std::process::exit(101);
                }
            }
        }
    });
    let (seen, failed) = (seen.into_inner().unwrap(), failed.into_inner().unwrap());
    println!("{seen:#?}");
    assert!(failed.is_empty(), "replay with LONGSHORE_SEED=<seed> cargo test --lib random_faults: {failed:?}");
    for wanted in [
        "story landed",
        "story agent_failed",
        "life cut",
        "create lost its answer",
        "attach stream cut",
        "directory sealed",
    ] {
        assert!(seen.contains_key(wanted), "`{wanted}` did not occur, so the test proves little: {seen:?}");
    }
}

/// Simulates a swarm to its end, and counts what occurred.
fn simulate(seed: u64) -> BTreeMap<String, u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let counts = runtime.block_on(Simulation::new(seed).run_to_end());
    // Tasks of a cut life may wait forever.
    runtime.shutdown_background();
    counts
}

struct Simulation {
    random: SeededRng,
    repo_dir: tempfile::TempDir,
    sandboxes: SandboxScript,
    engine: FakeEngine,
    faulty_engine: FaultyEngine,
    counts: BTreeMap<String, u64>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = SeededRng(seed);
        let repo_dir = tempfile::tempdir().unwrap();
        git(repo_dir.path(), &["init", "--quiet", "--initial-branch=main", "."]);
        std::fs::write(repo_dir.path().join("lines.txt"), "one\n").unwrap();
        git(repo_dir.path(), &["add", "."]);
        git(repo_dir.path(), &["-c", "user.name=Ada", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "Begin"]);
        let sandboxes = SandboxScript {
            seed,
            volumes: FakeVolumes::default(),
            repo: repo_dir.path().to_owned(),
            finished_commits: Arc::default(),
            unsalvageable_dirs: Arc::default(),
            bad_agent_percent: random.choose(&[0, 20, 50]),
            noise_percent: random.choose(&[0, 30]),
        };
        let script = sandboxes.clone();
        let engine = FakeEngine::new(move |run| script.clone().run(run)).with_image("image");
        let calm = random.chance(40);
        let rates = FaultRates {
            failed_calls: random.choose(&[0, 2, 10]),
            lost_replies: random.choose(&[0, 2, 5]),
            slow_calls: random.choose(&[0, 10, 30]),
            broken_streams: random.choose(&[0, 5, 30]),
        };
        // In a calm run only orchestrators and the whole engine die.
        let rates = if calm { FaultRates::default() } else { rates };
        let faulty_engine = FaultyEngine::new(engine.clone(), random.next_u64(), rates);
        Self { random, repo_dir, sandboxes, engine, faulty_engine, counts: BTreeMap::new() }
    }

    async fn run_to_end(mut self) -> BTreeMap<String, u64> {
        let (setup, lock) = self.new_swarm().await;
        let dir = setup.dir.clone();
        let mut ended = self.run_orchestrator(setup, true).await;
        drop(lock);
        for life in 0.. {
            let over = recover(&dir).unwrap().machine.is_complete();
            if over {
                break;
            }
            assert!(life < 6, "it cannot be resumed to its end");
            if life == 2 {
                self.faulty_engine.stop_faults();
                self.engine.come_back();
            }
            let (setup, lock) = self.resume(&dir).await;
            ended = self.run_orchestrator(setup, life < 2).await;
            drop(lock);
        }
        self.check_invariants(&dir, ended);
        for (what, count) in self.faulty_engine.counts() {
            *self.counts.entry(what).or_default() += count;
        }
        self.counts
    }

    /// A swarm with random stories.
    async fn new_swarm(&mut self) -> (SwarmSetup, SwarmLock) {
        let count = 1 + self.random.below(4);
        let mut stories = Vec::new();
        for number in 1..=count {
            let after: Vec<String> =
                (1..number).filter(|_| self.random.chance(30)).map(|other| format!("US-{other:03}")).collect();
            stories.push(json!({
                "id": format!("US-{number:03}"), "title": "Story", "description": "", "acceptanceCriteria": [],
                "priority": number, "status": "pending", "dependsOn": after, "notes": "", "command": "true",
            }));
        }
        let max_sandboxes = 1 + self.random.below(3) as usize;
        let retries = self.random.below(3) as u32;
        self.swarm_of(&stories, max_sandboxes, retries).await
    }

    async fn swarm_of(
        &self,
        stories: &[serde_json::Value],
        max_sandboxes: usize,
        retries: u32,
    ) -> (SwarmSetup, SwarmLock) {
        let metadata = json!({ "title": "T", "type": "feat", "branchName": BRANCH, "createdAt": "2026-01-01" });
        let text = json!({ "schemaVersion": "3.0", "metadata": metadata, "userStories": stories }).to_string();
        let plan = parse_plan(&text, self.repo_dir.path());
        let repo = Repo::discover(self.repo_dir.path()).await.unwrap();
        let limits = SwarmLimits {
            max_sandboxes,
            retries,
            machinery_retries: 3,
            backoff: Duration::from_secs(1),
            story_timeout: Duration::from_secs(1800),
            idle_timeout: Duration::from_secs(600),
            slack: Duration::from_secs(60),
            grace_period: Duration::from_secs(10),
            max_bad_records: 100,
            liveness_timeout: crate::swarm::spec::default_liveness_timeout(),
        };
        let spec = plan.to_swarm_spec(SwarmId::random(), &[repo.head().await.unwrap().commit], limits);
        let dir = SwarmDir::create(repo.root(), spec.swarm).unwrap();
        let lock = dir.lock().unwrap();
        let header = JournalHeader {
            schema_version: JOURNAL_VERSION,
            program_version: "test".to_owned(),
            swarm_id: spec.swarm,
            started: Timestamp::now(),
            spec: spec.clone(),
            settings: json!({}),
            tasks: vec![TasksFileCopy { path: "tasks.json".to_owned(), content: text, canonical: None }],
        };
        let store = SwarmStore::create(dir.clone(), &header).unwrap();
        (self.setup(plan, spec, repo, dir, store, None), lock)
    }

    /// Resumes as `longshore resume` does.
    async fn resume(&mut self, dir: &SwarmDir) -> (SwarmSetup, SwarmLock) {
        let lock = loop {
            // A process that another thread is starting shares all open files for a moment.
            match dir.lock() {
                Ok(lock) => break lock,
                Err(StateError::Locked { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let (store, contents) = SwarmStore::open(dir.clone()).unwrap();
        let recovered = replay(contents);
        let plan = parse_plan(&recovered.header.tasks[0].content, self.repo_dir.path());
        let repo = Repo::discover(self.repo_dir.path()).await.unwrap();
        let resumed = ResumedSwarm {
            machine: recovered.machine,
            elapsed: recovered.elapsed,
            last_event_at: recovered.last_event_at,
            intents: recovered.amp_intents,
            decisions: Vec::new(),
        };
        (self.setup(plan, recovered.header.spec, repo, dir.clone(), store, Some(resumed)), lock)
    }

    fn setup(
        &self,
        plan: Plan,
        spec: SwarmSpec,
        repo: Repo,
        dir: SwarmDir,
        store: SwarmStore,
        resumed: Option<ResumedSwarm>,
    ) -> SwarmSetup {
        let sandbox = SandboxSettings {
            image: "image".to_owned(),
            image_id: None,
            network: "none".to_owned(),
            memory: 0,
            milli_cpus: 0,
            pids: 1,
            agent: None,
            review: None,
            verify: Vec::new(),
            memory_budget: DEFAULT_MEMORY_BUDGET,
            env: EnvVars::new(),
            identity: GitIdentity { name: "Ada".to_owned(), email: "a@b.c".to_owned() },
            sign_landings: false,
            repo_url: "https://longshore.invalid/0.git".parse().unwrap(),
            reserve: Reserve::default(),
            keep_containers: false,
            max_bundle: 1 << 30,
            supports_subpath: false,
        };
        let reporter = Box::new(DebugReporter(std::env::var_os("LONGSHORE_SEED").is_some()));
        let engine = Arc::new(self.faulty_engine.clone());
        let shim = Bytes::from_static(b"shim");
        let ssot = Arc::new(Ssot::open(repo.root()).unwrap());
        let escalation_listener = Box::new(());
        SwarmSetup { plan, spec, sandbox, repo, engine, dir, store, reporter, ssot, escalation_listener, shim, resumed }
    }

    /// Runs one orchestrator from its start to its end, or to its death.
    async fn run_orchestrator(&mut self, setup: SwarmSetup, may_be_cut: bool) -> Option<SwarmOutcome> {
        let outages = tokio::spawn(inject_outages(self.engine.clone(), self.random.next_u64(), may_be_cut));
        let mut running = std::pin::pin!(run(setup, StopSignals::new()));
        // Cut by the clock, or by the number of polls: the clock does not advance while git works.
        let (mut bound, mut turns) = (MAX_SWARM_TIME, u64::MAX);
        if may_be_cut && self.random.chance(60) {
            match self.random.chance(30) {
                true => bound = Duration::from_millis(self.random.below(200_000)),
                false => {
                    let most = self.random.choose(&[20, 60, 150]);
                    turns = 1 + self.random.below(most);
                }
            }
        }
        let running = std::future::poll_fn(|context| {
            if turns == 0 {
                return Poll::Ready(None);
            }
            turns -= 1;
            running.as_mut().poll(context).map(Some)
        });
        let ended = tokio::time::timeout(bound, running).await;
        outages.abort();
        self.engine.come_back();
        let (what, ended) = match ended {
            Ok(Some(Ok(ended))) => (format!("life {ended:?}"), Some(ended)),
            Ok(Some(Err(error))) => (format!("life error: {error}"), None),
            Ok(None) => ("life cut".to_owned(), None),
            Err(_) => {
                assert!(bound < MAX_SWARM_TIME, "it does not end");
                ("life cut".to_owned(), None)
            }
        };
        *self.counts.entry(what).or_default() += 1;
        ended
    }

    /// Checks what must hold after a swarm has ended.
    fn check_invariants(&mut self, dir: &SwarmDir, ended: Option<SwarmOutcome>) {
        let machine = recover(dir).unwrap().machine;
        let root = self.repo_dir.path();
        let branch = format!("refs/heads/{BRANCH}");
        let landed = git(root, &["for-each-ref", "--format=%(refname)", &branch]);
        let history = match landed.is_empty() {
            true => String::new(),
            false => git(root, &["log", "--format=%s", &branch]),
        };
        for story in machine.stories() {
            let subject = format!("{}: Story", story.key.id);
            let times = history.lines().filter(|line| *line == subject).count();
            let cause = story.failure.as_ref().map(|failure| failure.cause);
            let has_landed = story.has_landed();
            assert_eq!(times, usize::from(has_landed), "{} is in the history so often; {cause:?}", story.key.id);
            let word = if has_landed { "landed" } else { cause.map_or("undecided", Cause::as_str) };
            *self.counts.entry(format!("story {word}")).or_default() += 1;
            let injected = [
                Cause::AgentFailed,
                Cause::ShimCrash,
                Cause::EngineError,
                Cause::ConnectionLost,
                Cause::KilledOutside,
                Cause::DependencyFailed,
            ];
            assert!(
                has_landed || cause.is_some_and(|cause| injected.contains(&cause)),
                "{} is {word}: {:?}",
                story.key.id,
                story.failure
            );
        }
        // Work that a sandbox reported as finished, or could not save, is under a ref, or its directory is kept.
        let reachable = git(root, &["log", "--all", "--format=%H"]);
        let kept_dirs: Vec<String> =
            machine.attempts().filter(|it| it.work_dir_kept).map(|it| it.id.dir_name()).collect();
        for (attempt_dir, commit) in self.sandboxes.finished_commits.lock().unwrap().iter() {
            let saved = reachable.lines().any(|line| line == commit.to_string());
            let held =
                kept_dirs.contains(attempt_dir) && self.sandboxes.volumes.attempt_dir_names().contains(attempt_dir);
            assert!(saved || held, "the work of {attempt_dir} is lost");
        }
        for attempt_dir in self.sandboxes.unsalvageable_dirs.lock().unwrap().iter() {
            let held =
                kept_dirs.contains(attempt_dir) && self.sandboxes.volumes.attempt_dir_names().contains(attempt_dir);
            assert!(held, "the unsalvageable work of {attempt_dir} is lost");
            *self.counts.entry("directory sealed".to_owned()).or_default() += 1;
        }
        // `longshore gc` removes what could not be removed, and what a life left that was cut after the last decision.
        let mut left = self.engine.containers();
        left.extend(self.engine.volumes().into_keys().filter(|name| !name.contains("objects") && kept_dirs.is_empty()));
        // The depot and its volumes are removed one after the other within a limit: a slow removal leaves the next ones.
        let excused = self.faulty_engine.expected_leftovers();
        let order = ["-depot", "-in", "-work"];
        let stuck = order.iter().position(|end| excused.iter().any(|name| name.ends_with(end)));
        let after = stuck.map_or(&[][..], |first| &order[first..]);
        left.retain(|name| !(excused.contains(name) || after.iter().any(|end| name.ends_with(end))));
        assert!(left.is_empty() || ended.is_none(), "left behind: {left:?}");
        if let Some(ended) = ended {
            assert_eq!(machine.outcome(), Some(ended));
            let state: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.state_file()).unwrap()).unwrap();
            let folded = SwarmState::from_machine(&machine, recover(dir).unwrap().header.started).to_bytes().unwrap();
            assert_eq!(state, serde_json::from_slice::<serde_json::Value>(&folded).unwrap());
        }
    }
}

/// Makes the engine unavailable now and then, with or without its containers.
async fn inject_outages(engine: FakeEngine, seed: u64, wanted: bool) {
    let mut random = SeededRng(seed);
    if !wanted || !random.chance(40) {
        return;
    }
    for _ in 0..random.below(4) {
        tokio::time::sleep(Duration::from_millis(random.below(100_000))).await;
        engine.go_down();
        tokio::time::sleep(Duration::from_millis(random.below(300_000))).await;
        if random.chance(50) {
            engine.kill_all(random.choose(&[137, 143, 255]));
        }
        if random.chance(30) {
            engine.forget_events();
        }
        engine.come_back();
    }
}

fn parse_plan(text: &str, root: &Path) -> Plan {
    let file = crate::tasks::parse(text.as_bytes(), Path::new("tasks.json")).unwrap();
    plan::build(vec![(file, text.as_bytes().to_vec())], root, &plan::tests::options()).unwrap()
}

fn git(root: &Path, args: &[&str]) -> String {
    let output = Command::new("git").current_dir(root).args(args).env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Prints announcements if a single seed is run.
struct DebugReporter(bool);

impl Reporter for DebugReporter {
    fn announce(&mut self, _at: Timestamp, announcement: &Announcement) {
        if self.0 {
            println!("{announcement:?}");
        }
    }

    fn close(&mut self) {}
}
