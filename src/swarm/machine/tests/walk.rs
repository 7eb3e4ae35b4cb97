//! Random swarms: random plans, and a world that answers the machine's effects at random, with crashes, hangs, faults, stops,
//! replays and `kill -9`; half of them with reviews, an admin and long absences. What must always hold is checked after every event.
//!
//! A failing seed is printed. `LONGSHORE_SEED=<seed>` plays that one alone; `LONGSHORE_RUNS=<n>` plays more of them.

mod answers;
mod checks;
mod reviews;
mod said;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use checks::Seen;
use said::Said;

use super::*;
use crate::seeded::Random;
use crate::swarm::event::StopLevel;
use crate::swarm::spec::{AckTimeouts, AmpSpec};
use crate::swarm::word::Word;
use crate::tasks::Done;

/// Runs of an ordinary `cargo test`.
const RUNS: u64 = 2000;
/// A swarm that takes more events than this does not end.
const MOST_EVENTS: usize = 20_000;

#[test]
fn random_swarms() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LONGSHORE_SEED") {
        World::new(seed).play();
        return;
    }
    let (mut met, mut others) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..number("LONGSHORE_RUNS").unwrap_or(RUNS) {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed).play())) {
            Ok((outcome, also)) => {
                *met.entry(format!("{outcome:?}")).or_insert(0) += 1;
                also.into_iter().for_each(|what| *others.entry(what).or_insert(0) += 1);
            }
            Err(_) => {
                panic!("random swarm failed: replay it with LONGSHORE_SEED={seed} cargo test --lib random_swarms")
            }
        }
    }
    // A walk that never gets anywhere would prove nothing.
    assert_eq!(met.len(), 4, "every outcome is met: {met:?}");
    let kinds = ["Approval", "Locked", "LowConfidence", "NoVerdict", "Suspended"].map(|kind| format!("Some({kind})"));
    for action in ["approve", "resume", "retry", "abort", "rollback", "answer"] {
        for kind in &kinds {
            let refused = kind == "Some(Approval)" && ["resume", "retry", "rollback"].contains(&action);
            assert_eq!(others.contains_key(&format!("{action} {kind}")), !refused, "{action} {kind}: {others:?}");
        }
        assert_eq!(others.contains_key(&format!("{action} None")), action.starts_with('r') && action != "resume");
    }
    for kind in ["HallucinationLock", "AckTimeout", "HeartbeatTimeout", "Conflict", "PermissionDenied", "Unknown"] {
        assert!(others.contains_key(kind), "{kind}: {others:?}");
    }
}

/// A random plan: up to 12 stories in up to 3 files, assignments of 1 to 4 stories.
fn plan(random: &mut Random) -> SwarmSpec {
    let mut plan = spec(&[]);
    let template = limits();
    plan.limits = Limits {
        max: 1 + random.below(4) as usize,
        retries: random.below(3) as u32,
        machinery_retries: random.below(3) as u32,
        liveness: random.pick(&[Duration::from_secs(1), Duration::from_secs(30), template.liveness]),
        ..template
    };
    let amp = random.chance(50);
    if amp {
        let second = Duration::from_secs(1);
        plan.amp = Some(AmpSpec {
            began_ms: amp::BEGAN,
            acks: AckTimeouts { dispatch: random.pick(&[second, second * 300]), ..AckTimeouts::default() },
            heartbeat: random.pick(&[second, second * 5, second * 1800]),
            rounds: random.chance(80).then(|| 1 + random.below(4) as u32),
        });
    }
    let files = 1 + random.below(3) as u16;
    let shared = random.chance(50);
    plan.files = (0..files)
        .map(|file| FileSpec {
            path: format!("{file}.json"),
            slug: format!("f{file}"),
            title: String::new(),
            branch: format!("feat/{}", if shared { 0 } else { file }).parse().expect("valid"),
            base: commit(if shared { 1 } else { 1 + u32::from(file) }),
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
                0 => Some(Done::Completed),
                1 => Some(Done::Skipped),
                _ => None,
            };
            let title = String::new();
            let risk = if amp && random.chance(10) { RiskLevel::High } else { RiskLevel::Low };
            plan.stories.push(StorySpec { key: key.clone(), title, depends_on, done, risk });
            if done.is_none() {
                open.push(key);
            }
        }
        // Runs of neighbours: their dependencies cannot wait for each other in a ring.
        while !open.is_empty() {
            let width = (1 + random.below(widest) as usize).min(open.len());
            number += 1;
            plan.assignments.push(AssignmentSpec {
                id: assignment(number),
                file,
                branch: format!("longshore/{number}").parse().expect("valid"),
                stories: open.drain(..width).collect(),
                priority: random.below(3) as i64,
                apart_from: (1..number).filter(|_| random.chance(15)).map(assignment).collect(),
            });
        }
    }
    plan
}

/// What a random swarm of this plan says in AMP.
pub(crate) fn random_words(seed: u64, plan: SwarmSpec) -> Vec<Word> {
    let mut world = World::of(seed, Random(seed), plan);
    world.wild_texts = true;
    world.play_on();
    world.said.words
}

/// What the sandboxes, the depot and git do, and what must hold meanwhile.
struct World {
    random: Random,
    rig: Rig,
    /// By attempt: what it will say next.
    scripts: BTreeMap<AttemptId, VecDeque<Event>>,
    /// The whole of it, which a new orchestrator reads again.
    whole: BTreeMap<AttemptId, Vec<Event>>,
    /// The sandboxes that are paused: they say nothing and do not end.
    frozen: BTreeSet<AttemptId>,
    /// Answers of the depot, git and the engine that are on their way.
    answers: Vec<Event>,
    commits: u32,
    stops: u32,
    /// Whether the engine is away.
    away: bool,
    /// How bad this world is, in percent.
    badness: u64,
    /// How many decisions the admin made.
    decisions: u32,
    /// Sandboxes say things of any length.
    wild_texts: bool,
    seen: Seen,
    said: Said,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let plan = plan(&mut random);
        Self::of(seed, random, plan)
    }

    fn of(seed: u64, mut random: Random, plan: SwarmSpec) -> Self {
        let badness = random.pick(&[0, 10, 40]);
        let mut seen = Seen::default();
        for file in &plan.files {
            seen.heads.insert(file.branch.to_string(), file.base.clone());
        }
        Self {
            random,
            rig: Rig { thorough: if seed.is_multiple_of(20) { 1 } else { 13 }, ..Rig::new(plan) },
            scripts: BTreeMap::new(),
            whole: BTreeMap::new(),
            frozen: BTreeSet::new(),
            answers: Vec::new(),
            commits: 1000,
            stops: 0,
            away: false,
            badness,
            decisions: 0,
            wild_texts: false,
            seen,
            said: Said::default(),
        }
    }

    fn bad(&mut self) -> bool {
        let badness = self.badness;
        self.random.chance(badness)
    }

    fn commit(&mut self) -> CommitId {
        self.commits += 1;
        commit(self.commits)
    }

    fn play(mut self) -> (Outcome, BTreeSet<String>) {
        let outcome = self.play_on();
        (outcome, self.said.met)
    }

    fn play_on(&mut self) -> Outcome {
        self.give(Event::Began);
        for _ in 0..MOST_EVENTS {
            if let Some(outcome) = self.seen.finished {
                self.check_end(outcome);
                if outcome == Outcome::Suspended || outcome != Outcome::Landed && self.random.chance(30) {
                    self.decide_at_the_end(outcome);
                    self.restart();
                    continue;
                }
                let unfinished = matches!(outcome, Outcome::Interrupted | Outcome::MachineryFailed);
                if !unfinished || self.stops == 0 || self.random.chance(20) {
                    return outcome;
                }
                self.restart();
                match self.seen.finished {
                    // Nothing but what waits for the admin was left.
                    Some(Outcome::Suspended) => continue,
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
            0..=3 if self.stops < 3 => {
                self.stops += 1;
                let level = self.random.pick(&[StopLevel::Graceful, StopLevel::Graceful, StopLevel::Kill]);
                self.give(Event::StopRequested { level, by: "SIGINT".to_owned() });
            }
            4 if self.stops < 3 => {
                self.stops += 1;
                self.give(Event::MachineryFailed { fault: Fault::new(Cause::EngineError, "gone", false) });
            }
            91..=96 => {
                self.away = !self.away;
                self.give(match self.away {
                    true => Event::EngineLost { problem: "refused".to_owned() },
                    false => Event::EngineBack,
                });
            }
            5..=12 if self.stops < 6 => {
                self.stops += 1;
                self.restart();
            }
            13..=60 => {
                // A duplicate of anything, at any time; a sandbox's records only, so that answers stay believable.
                if let Some((event, _)) =
                    self.rig.journal.get(self.random.below(self.rig.journal.len() as u64) as usize)
                {
                    let once = matches!(
                        event,
                        Event::StopRequested { .. }
                            | Event::MachineryFailed { .. }
                            | Event::Resumed
                            | Event::EngineLost { .. }
                            | Event::EngineBack
                            | Event::Away { .. }
                    );
                    if !once {
                        let event = event.clone();
                        self.give(event);
                    }
                }
            }
            61..=90 => {
                let event = self.nonsense();
                self.give(event);
            }
            97..=104 if self.decisions < 40 => self.decide_anything(),
            _ => self.go_on(),
        }
    }

    /// Something legal happens, or, if nothing can, the next deadline comes.
    fn go_on(&mut self) {
        let talking: Vec<AttemptId> =
            self.scripts.iter().filter(|(_, script)| !script.is_empty()).map(|(id, _)| id.clone()).collect();
        // What was on its way when it was frozen still arrives.
        let frozen = |id: &AttemptId| self.frozen.contains(id);
        let late = self.random.chance(5);
        let talking: Vec<AttemptId> = talking.into_iter().filter(|id| late || !frozen(id)).collect();
        let choices = talking.len() + self.answers.len();
        if self.away && self.random.chance(20) {
            self.away = false;
            self.give(Event::EngineBack);
            return;
        }
        if choices == 0 || self.random.chance(5) {
            match self.rig.machine.next_deadline() {
                Some(at) => {
                    self.rig.now = self.rig.now.max(at);
                    self.give(Event::DeadlinePassed);
                }
                None => assert!(choices > 0 || !self.frozen.is_empty(), "nothing can happen any more"),
            }
            return;
        }
        let choice = self.random.below(choices as u64) as usize;
        let event = match talking.get(choice) {
            Some(id) => self.scripts.get_mut(id).and_then(VecDeque::pop_front).expect("not empty"),
            None => self.answers.remove(choice - talking.len()),
        };
        self.give(event);
    }

    /// An event that is well-formed, and may be about anything.
    fn nonsense(&mut self) -> Event {
        let number = 1 + self.random.below(12) as u32;
        let id = attempt(number, 1 + self.random.below(3) as u32);
        let story = 1 + self.random.below(6) as u32;
        match self.random.below(11) {
            0 => Event::SandboxStarted { attempt: id },
            1 => ended(&id, exit(0)),
            2 => said(&id, 1 + self.random.below(20), story, StoryStatus::Completed),
            3 => collected(&id, Some(5), vec![finished(story)]),
            4 => collected(&id, None, vec![]),
            5 => collect_failed(&id, Cause::HostError, true, None),
            6 => Event::Merged { attempt: id, head: self.commit() },
            7 => Event::MergeConflicted { attempt: id, paths: vec![], kept: "refs/kept".to_owned() },
            8 => Event::SandboxRemoved { attempt: id },
            9 => Event::ReviewCollected { attempt: id, reviewed: Box::new(amp::approved()) },
            _ => Event::DeadlinePassed,
        }
    }

    /// `kill -9`, perhaps before the newest effects were carried out, and `resume`: sandboxes went on meanwhile and are read
    /// from their beginning; all other answers are lost.
    fn restart(&mut self) {
        self.said.again(&self.rig);
        self.rig.machine = self.rig.fold();
        self.answers.clear();
        self.away = false;
        for (id, script) in &mut self.scripts {
            if self.rig.machine.attempt(id).is_some_and(|view| view.phase.holds_slot()) {
                *script = self.whole[id].iter().cloned().collect();
            } else {
                script.clear();
            }
        }
        self.seen.merging.clear();
        if self.random.chance(50) {
            let ms = self.random.pick(&[1, 4000, 86_400_000]);
            self.give(Event::Away { ms });
        }
        // What was decided while nobody ran comes before the swarm is taken up, if it had ended; else after.
        let decisions = (0..5).filter(|_| self.random.chance(10)).count();
        let ended = self.rig.machine.finished().is_some();
        if ended {
            (0..decisions).for_each(|_| self.decide_anything());
        }
        self.seen.finished = None;
        if self.give(Event::Resumed).is_empty() {
            self.seen.finished = self.rig.machine.finished();
        } else if !ended {
            (0..decisions).for_each(|_| self.decide_anything());
        }
    }

    fn give(&mut self, event: Event) -> Vec<Effect> {
        let over = self.seen.finished;
        let before = self.rig.journal.len();
        let held = self.held_before(&event);
        let effects = self.rig.give(event.clone());
        let late = matches!(event, Event::Resumed | Event::Away { .. } | Event::Decided { .. });
        if over.is_some() {
            assert!(effects.is_empty() || late, "after the end: {event:?} gave {effects:?}");
        }
        if self.rig.journal.len() > before {
            self.follow(&event);
            if let Event::Decided { decision } = &event {
                self.decided(decision, held);
            }
        }
        for effect in &effects {
            self.check(effect);
            self.said.hear(effect);
        }
        self.check_places();
        for effect in &effects {
            self.answer(effect);
        }
        effects
    }
}
