//! Random swarms: random plans, and a simulation that answers the machine's effects at random, with crashes, hangs, faults,
//! stops, replays and `kill -9`; half of them with reviews, an admin and long absences. Every event is followed by a check of
//! the invariants.
//!
//! A failing seed is printed. `LONGSHORE_SEED=<seed>` runs only that one; `LONGSHORE_RUNS=<n>` sets the number of runs.

mod responses;
mod invariants;
mod reviews;
mod amp_observer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use amp_observer::AmpObserver;
use invariants::ObservedState;

use super::*;
use crate::swarm::amp_intent::AmpIntent;
use crate::swarm::spec::{AckTimeouts, AmpSpec};
use crate::tasks::DoneStatus;
use crate::test_rng::SeededRng;

/// The number of runs without `LONGSHORE_RUNS`.
const DEFAULT_RUNS: u64 = 2000;
/// A swarm that takes more events than this does not end.
const MAX_EVENTS: usize = 20_000;

#[test]
fn random_swarms() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LONGSHORE_SEED") {
        SwarmSimulation::new(seed).run_to_outcome();
        return;
    }
    let (mut outcomes, mut covered) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..number("LONGSHORE_RUNS").unwrap_or(DEFAULT_RUNS) {
        match catch_unwind(AssertUnwindSafe(|| SwarmSimulation::new(seed).run_to_outcome())) {
            Ok((outcome, also)) => {
                *outcomes.entry(format!("{outcome:?}")).or_insert(0) += 1;
                also.into_iter().for_each(|what| *covered.entry(what).or_insert(0) += 1);
            }
            Err(_) => {
                panic!("random swarm failed: replay it with LONGSHORE_SEED={seed} cargo test --lib random_swarms")
            }
        }
    }
    // Runs that never get anywhere would prove nothing.
    assert_eq!(outcomes.len(), 4, "every outcome occurs: {outcomes:?}");
    let kinds = ["Approval", "Locked", "LowConfidence", "NoVerdict", "Suspended"].map(|kind| format!("Some({kind})"));
    for action in ["approve", "resume", "retry", "abort", "rollback", "answer"] {
        for kind in &kinds {
            let refused = kind == "Some(Approval)" && ["resume", "retry", "rollback"].contains(&action);
            assert_eq!(covered.contains_key(&format!("{action} {kind}")), !refused, "{action} {kind}: {covered:?}");
        }
        assert_eq!(covered.contains_key(&format!("{action} None")), action.starts_with('r') && action != "resume");
    }
    for kind in ["HallucinationLock", "AckTimeout", "HeartbeatTimeout", "Conflict", "PermissionDenied", "Unknown"] {
        assert!(covered.contains_key(kind), "{kind}: {covered:?}");
    }
}

/// A random plan: up to 12 stories in up to 3 files, assignments of 1 to 4 stories.
fn random_plan(random: &mut SeededRng) -> SwarmSpec {
    let mut plan = spec(&[]);
    let template = limits();
    plan.limits = SwarmLimits {
        max_sandboxes: 1 + random.below(4) as usize,
        retries: random.below(3) as u32,
        machinery_retries: random.below(3) as u32,
        liveness_timeout: random.choose(&[Duration::from_secs(1), Duration::from_secs(30), template.liveness_timeout]),
        ..template
    };
    let amp = random.chance(50);
    if amp {
        let second = Duration::from_secs(1);
        plan.amp = Some(AmpSpec {
            began_ms: amp_fixtures::BEGAN_MS,
            ack_timeouts: AckTimeouts { dispatch: random.choose(&[second, second * 300]), ..AckTimeouts::default() },
            heartbeat_timeout: random.choose(&[second, second * 5, second * 1800]),
            review_rounds: random.chance(80).then(|| 1 + random.below(4) as u32),
        });
    }
    let files = 1 + random.below(3) as u16;
    let shared = random.chance(50);
    plan.files = (0..files)
        .map(|file| TasksFileSpec {
            path: format!("{file}.json"),
            slug: format!("f{file}"),
            title: String::new(),
            branch: format!("feat/{}", if shared { 0 } else { file }).parse().expect("valid"),
            base: commit(if shared { 1 } else { 1 + u32::from(file) }),
            has_verify: false,
        })
        .collect();
    let widest = if random.chance(50) { 1 } else { 4 };
    let mut number = 0;
    for file in 0..files {
        let stories = 1 + random.below(6) as u32;
        let mut open: Vec<StoryKey> = Vec::new();
        for story in 1..=stories {
            let key = StoryKey { file, id: story_id(story) };
            let depends_on = (1..story).filter(|_| random.chance(30)).map(|id| StoryKey { file, id: story_id(id) });
            let depends_on: Vec<StoryKey> = depends_on.collect();
            let done = match random.below(20) {
                0 => Some(DoneStatus::Completed),
                1 => Some(DoneStatus::Skipped),
                _ => None,
            };
            let title = String::new();
            let risk = if amp && random.chance(10) { RiskLevel::High } else { RiskLevel::Low };
            plan.stories.push(StorySpec {
                key: key.clone(),
                title,
                depends_on,
                done,
                risk,
                has_command: false,
                has_verify: false,
                tested_criteria: Vec::new(),
            });
            if done.is_none() {
                open.push(key);
            }
        }
        // Consecutive stories, so that assignments cannot wait for each other in a cycle.
        while !open.is_empty() {
            let width = (1 + random.below(widest) as usize).min(open.len());
            number += 1;
            plan.assignments.push(AssignmentSpec {
                id: assignment(number),
                file,
                branch: format!("longshore/{number}").parse().expect("valid"),
                stories: open.drain(..width).collect(),
                priority: random.below(3) as i64,
                exclusive_with: (1..number).filter(|_| random.chance(15)).map(assignment).collect(),
            });
        }
    }
    plan
}

/// The AMP intents of a random swarm of this plan.
pub(crate) fn random_amp_intents(seed: u64, plan: SwarmSpec) -> Vec<AmpIntent> {
    let mut simulation = SwarmSimulation::with_plan(seed, SeededRng(seed), plan);
    simulation.wild_texts = true;
    simulation.run();
    simulation.amp_observer.intents
}

/// Simulates sandboxes, depot, git, engine and admin, and checks the invariants.
struct SwarmSimulation {
    random: SeededRng,
    rig: MachineHarness,
    /// The next events of each attempt.
    scripts: BTreeMap<AttemptId, VecDeque<Event>>,
    /// All events of each attempt, which a new orchestrator reads again.
    full_scripts: BTreeMap<AttemptId, Vec<Event>>,
    /// The paused sandboxes, which send nothing and do not end.
    paused: BTreeSet<AttemptId>,
    /// The answers of the depot, git and the engine that are on their way.
    pending_responses: Vec<Event>,
    last_commit: u32,
    stop_count: u32,
    engine_lost: bool,
    /// The probability of a fault.
    fault_percent: u64,
    decision_count: u32,
    /// Sandboxes send texts of any length.
    wild_texts: bool,
    observed: ObservedState,
    amp_observer: AmpObserver,
}

impl SwarmSimulation {
    fn new(seed: u64) -> Self {
        let mut random = SeededRng(seed);
        let plan = random_plan(&mut random);
        Self::with_plan(seed, random, plan)
    }

    fn with_plan(seed: u64, mut random: SeededRng, plan: SwarmSpec) -> Self {
        let fault_percent = random.choose(&[0, 10, 40]);
        let mut observed = ObservedState::default();
        for file in &plan.files {
            observed.heads.insert(file.branch.to_string(), file.base.clone());
        }
        Self {
            random,
            rig: MachineHarness {
                full_check_every: if seed.is_multiple_of(20) { 1 } else { 13 },
                ..MachineHarness::new(plan)
            },
            scripts: BTreeMap::new(),
            full_scripts: BTreeMap::new(),
            paused: BTreeSet::new(),
            pending_responses: Vec::new(),
            last_commit: 1000,
            stop_count: 0,
            engine_lost: false,
            fault_percent,
            decision_count: 0,
            wild_texts: false,
            observed,
            amp_observer: AmpObserver::default(),
        }
    }

    fn roll_fault(&mut self) -> bool {
        let percent = self.fault_percent;
        self.random.chance(percent)
    }

    fn next_commit(&mut self) -> CommitId {
        self.last_commit += 1;
        commit(self.last_commit)
    }

    fn run_to_outcome(mut self) -> (SwarmOutcome, BTreeSet<String>) {
        let outcome = self.run();
        (outcome, self.amp_observer.covered)
    }

    fn run(&mut self) -> SwarmOutcome {
        self.handle_event(Event::Began);
        for _ in 0..MAX_EVENTS {
            if let Some(outcome) = self.observed.outcome {
                self.check_end(outcome);
                if outcome == SwarmOutcome::Suspended || outcome != SwarmOutcome::Landed && self.random.chance(30) {
                    self.decide_after_end(outcome);
                    self.kill_and_resume();
                    continue;
                }
                let unfinished = matches!(outcome, SwarmOutcome::Interrupted | SwarmOutcome::MachineryFailed);
                if !unfinished || self.stop_count == 0 || self.random.chance(20) {
                    return outcome;
                }
                self.kill_and_resume();
                match self.observed.outcome {
                    // Only held work was left.
                    Some(SwarmOutcome::Suspended) => continue,
                    Some(_) => return outcome,
                    None => {}
                }
            }
            self.rig.now += Duration::from_millis(self.random.below(300));
            self.step();
        }
        panic!("it does not end");
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..=3 if self.stop_count < 3 => {
                self.stop_count += 1;
                let level = self.random.choose(&[StopLevel::Graceful, StopLevel::Graceful, StopLevel::Kill]);
                self.handle_event(stop_requested(level));
            }
            4 if self.stop_count < 3 => {
                self.stop_count += 1;
                self.handle_event(Event::MachineryFailed {
                    fault: MachineryFault::new(Cause::EngineError, "gone", false),
                });
            }
            91..=96 => {
                self.engine_lost = !self.engine_lost;
                self.handle_event(match self.engine_lost {
                    true => Event::EngineLost { problem: "refused".to_owned() },
                    false => Event::EngineReconnected,
                });
            }
            5..=12 if self.stop_count < 6 => {
                self.stop_count += 1;
                self.kill_and_resume();
            }
            13..=60 => {
                // A duplicate of an earlier event, at any time.
                if let Some((event, _)) =
                    self.rig.journal.get(self.random.below(self.rig.journal.len() as u64) as usize)
                {
                    let once = matches!(
                        event,
                        Event::StopRequested { .. }
                            | Event::MachineryFailed { .. }
                            | Event::Resumed
                            | Event::EngineLost { .. }
                            | Event::EngineReconnected
                            | Event::OrchestratorAbsent { .. }
                    );
                    if !once {
                        let event = event.clone();
                        self.handle_event(event);
                    }
                }
            }
            61..=90 => {
                let event = self.random_event();
                self.handle_event(event);
            }
            97..=104 if self.decision_count < 40 => self.decide_randomly(),
            _ => self.advance(),
        }
    }

    /// Delivers a pending event, or fires the next deadline if there is none.
    fn advance(&mut self) {
        let talking: Vec<AttemptId> =
            self.scripts.iter().filter(|(_, script)| !script.is_empty()).map(|(id, _)| id.clone()).collect();
        // Records that were on their way when a sandbox was paused still arrive.
        let frozen = |id: &AttemptId| self.paused.contains(id);
        let late = self.random.chance(5);
        let talking: Vec<AttemptId> = talking.into_iter().filter(|id| late || !frozen(id)).collect();
        let choices = talking.len() + self.pending_responses.len();
        if self.engine_lost && self.random.chance(20) {
            self.engine_lost = false;
            self.handle_event(Event::EngineReconnected);
            return;
        }
        if choices == 0 || self.random.chance(5) {
            match self.rig.machine.next_deadline() {
                Some(at) => {
                    self.rig.now = self.rig.now.max(at);
                    self.handle_event(Event::DeadlinePassed);
                }
                None => assert!(choices > 0 || !self.paused.is_empty(), "nothing can happen any more"),
            }
            return;
        }
        let choice = self.random.below(choices as u64) as usize;
        let event = match talking.get(choice) {
            Some(id) => self.scripts.get_mut(id).and_then(VecDeque::pop_front).expect("not empty"),
            None => self.pending_responses.remove(choice - talking.len()),
        };
        self.handle_event(event);
    }

    /// A valid event, possibly about something unknown.
    fn random_event(&mut self) -> Event {
        let number = 1 + self.random.below(12) as u32;
        let id = attempt(number, 1 + self.random.below(3) as u32);
        let story = 1 + self.random.below(6) as u32;
        match self.random.below(11) {
            0 => Event::SandboxStarted { attempt: id },
            1 => sandbox_ended(&id, container_exit(0)),
            2 => story_reported(&id, 1 + self.random.below(20), story, StoryStatus::Completed),
            3 => result_collected(&id, Some(5), vec![finished_story(story)]),
            4 => result_collected(&id, None, vec![]),
            5 => collect_failed(&id, Cause::HostError, true, None),
            6 => Event::Merged { attempt: id, head: self.next_commit() },
            7 => Event::MergeConflicted { attempt: id, paths: vec![], result_ref: "refs/kept".to_owned() },
            8 => Event::SandboxRemoved { attempt: id },
            9 => Event::ReviewCollected { attempt: id, outcome: Box::new(amp_fixtures::approved_review()) },
            _ => Event::DeadlinePassed,
        }
    }

    /// `kill -9`, possibly before the newest effects were carried out, and `resume`: the sandboxes kept running, and their records
    /// are read from the beginning; all other answers are lost.
    fn kill_and_resume(&mut self) {
        self.amp_observer.check_replay(&self.rig);
        self.rig.machine = self.rig.replay_journal();
        self.pending_responses.clear();
        self.engine_lost = false;
        for (id, script) in &mut self.scripts {
            if self.rig.machine.attempt(id).is_some_and(|view| view.phase.has_container()) {
                *script = self.full_scripts[id].iter().cloned().collect();
            } else {
                script.clear();
            }
        }
        self.observed.merging.clear();
        if self.random.chance(50) {
            let ms = self.random.choose(&[1, 4000, 86_400_000]);
            self.handle_event(Event::OrchestratorAbsent { ms });
        }
        // Decisions made meanwhile come before the resume if the swarm had ended, else after it.
        let decisions = (0..5).filter(|_| self.random.chance(10)).count();
        let ended = self.rig.machine.outcome().is_some();
        if ended {
            (0..decisions).for_each(|_| self.decide_randomly());
        }
        self.observed.outcome = None;
        if self.handle_event(Event::Resumed).is_empty() {
            self.observed.outcome = self.rig.machine.outcome();
        } else if !ended {
            (0..decisions).for_each(|_| self.decide_randomly());
        }
    }

    fn handle_event(&mut self, event: Event) -> Vec<Effect> {
        let over = self.observed.outcome;
        let before = self.rig.journal.len();
        let held = self.hold_kind_before(&event);
        let effects = self.rig.handle(event.clone());
        let late = matches!(event, Event::Resumed | Event::OrchestratorAbsent { .. } | Event::DecisionMade { .. });
        if over.is_some() {
            assert!(effects.is_empty() || late, "after the end: {event:?} gave {effects:?}");
        }
        if self.rig.journal.len() > before {
            self.observe_event(&event);
            if let Event::DecisionMade { decision } = &event {
                self.observe_decision(decision, held);
            }
        }
        for effect in &effects {
            self.check_effect(effect);
            self.amp_observer.observe_effect(effect);
        }
        self.check_sandbox_limit();
        for effect in &effects {
            self.respond(effect);
        }
        effects
    }
}
