//! Landings: seeded swarms whose stories break each other's checks and conflict, on a simulated repository. After every move of the
//! branch its checks pass, nobody innocent is blamed, and a swarm ends the same way wherever its orchestrator was killed.
//!
//! A failing seed is printed; `LONGSHORE_SEED=<seed>` runs only that one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::swarm::effect::CandidateSpec;
use crate::swarm::event::{CheckOutcome, CheckableCommit};
use crate::swarm::spec::LandingSpec;
use crate::test_rng::SeededRng;

const RUNS: u64 = 600;
const MAX_EVENTS: usize = 20_000;
const VERIFY: &str = "make test";

/// What one story put into the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    story: u32,
    /// The stories that its author saw.
    knows: BTreeSet<u32>,
    good: bool,
}

type Tree = BTreeSet<Piece>;

/// A swarm on a simulated repository, with the sandboxes and the host that answer its machine.
struct World {
    random: SeededRng,
    rig: MachineHarness,
    trees: BTreeMap<CommitId, Tree>,
    parents: BTreeMap<CommitId, Vec<CommitId>>,
    branch: CommitId,
    last_commit: u32,
    scripts: BTreeMap<AttemptId, VecDeque<Event>>,
    full_scripts: BTreeMap<AttemptId, Vec<Event>>,
    responses: Vec<Event>,
    /// Stories that pass their checks alone and fail them together, unless the later one knows the earlier.
    incompatible: BTreeSet<(u32, u32)>,
    /// Stories whose texts do not merge, unless the later one knows the earlier.
    conflicting: BTreeSet<(u32, u32)>,
    /// How many of a story's first attempts fail their checks.
    bad_attempts: BTreeMap<u32, u32>,
    tries: BTreeMap<u32, u32>,
    /// Each prepared commit with the one before it and the stories of its candidate.
    prepared: Vec<(CommitId, CommitId, Vec<u32>)>,
    checks: BTreeSet<AttemptId>,
    /// What passed, and what the story then broke: its next attempt must see it.
    passed_before: BTreeMap<u32, CommitId>,
    head_checks: u32,
    largest_batch: usize,
    landings: u32,
    culprits: u32,
    pushes: u32,
    faults: bool,
    outcome: Option<SwarmOutcome>,
    kills: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = SeededRng(seed);
        let count = 2 + random.below(8) as u32;
        let dependencies: Vec<Vec<u32>> =
            (1..=count).map(|story| (1..story).filter(|_| random.chance(8)).collect()).collect();
        let stories: Vec<[(u32, &[u32]); 1]> =
            (1..=count).zip(&dependencies).map(|(story, on)| [(story, on.as_slice())]).collect();
        let assignments: Vec<&[(u32, &[u32])]> = stories.iter().map(|story| story.as_slice()).collect();
        let mut plan = spec(&assignments);
        plan.landing = Some(LandingSpec { merge_check: true, red_base: random.chance(10) });
        plan.files[0].has_verify = true;
        plan.limits.max_sandboxes = 1 + random.below(8) as usize;
        plan.limits.retries = random.below(3) as u32;
        for story in &mut plan.stories {
            story.has_command = random.chance(50);
        }
        let pairs = |random: &mut SeededRng, percent: u64| {
            let all = (1..=count).flat_map(|a| (1..a).map(move |b| (b, a)));
            all.filter(|_| random.chance(percent)).collect::<BTreeSet<_>>()
        };
        let percent = random.choose(&[0, 10, 30]);
        let (incompatible, conflicting) = (pairs(&mut random, percent), pairs(&mut random, percent / 2));
        let bad_attempts = (1..=count).filter_map(|story| {
            let times = random.choose(&[0, 0, 0, 0, 1, 9]);
            (times > 0).then_some((story, times))
        });
        let base = plan.files[0].base.clone();
        Self {
            bad_attempts: bad_attempts.collect(),
            faults: seed.is_multiple_of(3),
            random,
            rig: MachineHarness { full_check_every: 1, ..MachineHarness::new(plan) },
            trees: [(base.clone(), Tree::new())].into(),
            parents: BTreeMap::new(),
            branch: base,
            last_commit: 1000,
            scripts: BTreeMap::new(),
            full_scripts: BTreeMap::new(),
            responses: Vec::new(),
            incompatible,
            conflicting,
            tries: BTreeMap::new(),
            prepared: Vec::new(),
            checks: BTreeSet::new(),
            passed_before: BTreeMap::new(),
            head_checks: 0,
            largest_batch: 1,
            landings: 0,
            culprits: 0,
            pushes: 0,
            outcome: None,
            kills: 0,
        }
    }

    fn commit_tree(&mut self, tree: Tree, parents: Vec<CommitId>) -> CommitId {
        self.last_commit += 1;
        let id = commit(self.last_commit);
        self.trees.insert(id.clone(), tree);
        self.parents.insert(id.clone(), parents);
        id
    }

    fn contains(&self, head: &CommitId, wanted: &CommitId) -> bool {
        let mut open = vec![head.clone()];
        while let Some(next) = open.pop() {
            if next == *wanted {
                return true;
            }
            open.extend(self.parents.get(&next).cloned().unwrap_or_default());
        }
        false
    }

    fn passes(&self, tree: &Tree) -> bool {
        let knows = |piece: &Piece, other: u32| piece.knows.contains(&other);
        let clash = |a: &Piece, b: &Piece| {
            a.story < b.story
                && self.incompatible.contains(&(a.story, b.story))
                && !knows(a, b.story)
                && !knows(b, a.story)
        };
        tree.iter().all(|piece| piece.good) && !tree.iter().any(|a| tree.iter().any(|b| clash(a, b)))
    }

    fn merges(&self, onto: &Tree, tip: &Tree) -> bool {
        let conflict = |a: &Piece, b: &Piece| {
            let pair = (a.story.min(b.story), a.story.max(b.story));
            self.conflicting.contains(&pair) && !b.knows.contains(&a.story) && !a.knows.contains(&b.story)
        };
        !onto.iter().any(|a| tip.iter().any(|b| conflict(a, b)))
    }

    fn run(&mut self) -> SwarmOutcome {
        self.handle_event(Event::Began);
        for _ in 0..MAX_EVENTS {
            if let Some(outcome) = self.outcome {
                if outcome != SwarmOutcome::MachineryFailed && outcome != SwarmOutcome::Interrupted {
                    return outcome;
                }
                self.kill_and_resume();
                continue;
            }
            self.rig.now += Duration::from_millis(self.random.below(50));
            self.step();
        }
        panic!("it does not end");
    }

    fn step(&mut self) {
        if self.faults {
            match self.random.below(400) {
                0..=3 if self.kills < 6 => return self.kill_and_resume(),
                4..=8 if self.pushes < 4 => {
                    // Somebody else's commit, which may break the checks.
                    self.pushes += 1;
                    let mut tree = self.trees[&self.branch].clone();
                    let good = self.random.chance(70);
                    tree.insert(Piece { story: 100 + self.pushes, knows: BTreeSet::new(), good });
                    self.branch = self.commit_tree(tree, vec![self.branch.clone()]);
                    return;
                }
                9 if self.kills < 6 => {
                    self.handle_event(stop_requested(StopLevel::Graceful));
                    return;
                }
                _ => {}
            }
        }
        let talking: Vec<AttemptId> =
            self.scripts.iter().filter(|(_, script)| !script.is_empty()).map(|(id, _)| id.clone()).collect();
        let choices = talking.len() + self.responses.len();
        if choices == 0 {
            let at = self.rig.machine.next_deadline().expect("nothing can happen any more");
            self.rig.now = self.rig.now.max(at);
            self.handle_event(Event::DeadlinePassed);
            return;
        }
        let choice = self.random.below(choices as u64) as usize;
        let event = match talking.get(choice) {
            Some(id) => self.scripts.get_mut(id).and_then(VecDeque::pop_front).expect("not empty"),
            None => self.responses.remove(choice - talking.len()),
        };
        self.handle_event(event);
    }

    fn kill_and_resume(&mut self) {
        self.kills += 1;
        self.rig.machine = self.rig.replay_journal();
        self.responses.clear();
        for (id, script) in &mut self.scripts {
            *script = match self.rig.machine.attempt(id).is_some_and(|view| view.phase.has_container()) {
                true => self.full_scripts[id].iter().cloned().collect(),
                false => VecDeque::new(),
            };
        }
        self.outcome = None;
        self.handle_event(Event::Resumed);
    }

    fn handle_event(&mut self, event: Event) {
        if let Event::BranchMoved { landing: _, head } = &event {
            let machine_green = self.rig.machine.branches.iter().all(|branch| branch.tolerated.is_empty());
            if machine_green {
                assert!(self.passes(&self.trees[head]), "the branch moved to {head}, whose checks fail");
            }
        }
        let effects = self.rig.handle(event);
        for effect in &effects {
            self.observe(effect);
        }
        for effect in effects {
            self.respond(effect);
        }
    }

    fn observe(&mut self, effect: &Effect) {
        match effect {
            Effect::Finish(outcome) => self.outcome = Some(*outcome),
            Effect::StartCheck { attempt, check } => {
                if self.checks.insert(attempt.clone()) && check.stories.is_empty() {
                    self.head_checks += 1;
                }
                let running = self.rig.machine.slots.len();
                assert!(running <= self.rig.machine.spec.limits.max_sandboxes);
            }
            Effect::PrepareLanding { candidates, .. } => {
                self.largest_batch = self.largest_batch.max(candidates.len());
            }
            Effect::Announce(Announcement::StoryLanded { .. }) => self.landings += 1,
            Effect::Announce(
                Announcement::StoryRetried { story, failure, .. } | Announcement::StoryFailed { story, failure, .. },
            ) if failure.cause == Cause::VerificationFailed => {
                self.culprits += 1;
                let number: u32 = story.key.id.as_str()[3..].parse().expect("digits");
                let broke = |(commit, before, stories): &&(CommitId, CommitId, Vec<u32>)| {
                    stories.contains(&number)
                        && !self.passes(&self.without_strangers(commit))
                        && self.passes(&self.without_strangers(before))
                };
                let guilty = self.prepared.iter().rev().find(broke).map(|(_, before, _)| before.clone());
                let before =
                    guilty.unwrap_or_else(|| panic!("US-{number:03} is blamed, and broke nothing that passed before"));
                self.passed_before.insert(number, before);
            }
            _ => {}
        }
    }

    /// The tree without what others pushed that fails: it is held against nobody.
    fn without_strangers(&self, commit: &CommitId) -> Tree {
        self.trees[commit].iter().filter(|piece| piece.story < 100).cloned().collect()
    }

    fn respond(&mut self, effect: Effect) {
        match effect {
            Effect::Start { attempt, stories, base, .. } => self.start_executor(&attempt, &stories[0].0, &base),
            Effect::StartCheck { attempt, check } => {
                let script = vec![
                    Event::SandboxCreated {
                        attempt: attempt.clone(),
                        container: container(&attempt),
                        name: "box".to_owned(),
                    },
                    Event::SandboxStarted { attempt: attempt.clone() },
                    completion_reported(&attempt, 1, CompletionStatus::Completed),
                    sandbox_ended(&attempt, container_exit(0)),
                ];
                assert_eq!(self.rig.machine.attempt(&attempt).map(|view| &view.base), Some(&check.commit));
                self.start_script(&attempt, script);
            }
            Effect::Collect { attempt, .. } => {
                let event = self.collect(&attempt);
                self.responses.push(event);
            }
            Effect::PrepareLanding { landing, onto, candidates, .. } => {
                let event = match self.faults && self.random.chance(5) {
                    true => Event::LandingFailed {
                        landing,
                        fault: MachineryFault::new(Cause::HostError, "locked", self.random.chance(80)),
                    },
                    false => self.prepare(landing, &onto, &candidates),
                };
                self.responses.push(event);
            }
            Effect::MoveBranch { landing, from, to, .. } => {
                // The branch moves at once; what is said of it may be lost with the orchestrator.
                let event = if self.contains(&self.branch, &to) {
                    Event::BranchMoved { landing, head: self.branch.clone() }
                } else if self.branch == from {
                    self.branch = to.clone();
                    Event::BranchMoved { landing, head: to }
                } else {
                    Event::BranchAdvanced { landing, found: self.branch.clone() }
                };
                self.responses.push(event);
            }
            Effect::Remove { attempt, .. } => self.responses.push(Event::SandboxRemoved { attempt }),
            Effect::Terminate { attempt } | Effect::Kill { attempt } => {
                if let Some(script) = self.scripts.get_mut(&attempt) {
                    script.clear();
                    script.push_back(sandbox_ended(&attempt, container_exit(143)));
                }
            }
            Effect::Merge { .. } => panic!("what has checks is not merged without them"),
            _ => {}
        }
    }

    fn start_script(&mut self, attempt: &AttemptId, script: Vec<Event>) {
        let script = self.full_scripts.entry(attempt.clone()).or_insert(script).clone();
        self.scripts.insert(attempt.clone(), script.into());
    }

    fn start_executor(&mut self, attempt: &AttemptId, key: &StoryKey, base: &CommitId) {
        let story: u32 = key.id.as_str()[3..].parse().expect("digits");
        if let Some(before) = self.passed_before.get(&story) {
            let merges = self.rig.machine.attempt(attempt).and_then(|view| view.merge.clone());
            let sees = self.contains(base, before) || merges.is_some_and(|merge| self.contains(&merge.head, before));
            assert!(sees, "US-{story:03} starts from what it was before it was blamed");
        }
        let report = |record, status| story_reported(attempt, record, story, status);
        let script = vec![
            Event::SandboxCreated { attempt: attempt.clone(), container: container(attempt), name: "box".to_owned() },
            Event::SandboxStarted { attempt: attempt.clone() },
            report(1, StoryStatus::InProgress),
            report(2, StoryStatus::Completed),
            completion_reported(attempt, 3, CompletionStatus::Completed),
            sandbox_ended(attempt, container_exit(0)),
        ];
        self.start_script(attempt, script);
    }

    fn collect(&mut self, attempt: &AttemptId) -> Event {
        let view = self.rig.machine.attempt(attempt).expect("it ran").clone();
        if view.completion.is_none() {
            return collect_failed(attempt, Cause::StoppedByUser, false, None);
        }
        if let Some(check) = view.check() {
            if self.faults && self.random.chance(10) {
                return collect_failed(attempt, Cause::EngineError, true, None);
            }
            let passes = self.passes(&self.trees[&check.commit]);
            let tolerated = check.tolerated.contains(&VERIFY.to_owned());
            let failure = (!passes && !tolerated).then(|| Failure::new(Cause::VerificationFailed, "red"));
            let failed_verify = if passes { Vec::new() } else { vec![VERIFY.to_owned()] };
            let outcome = CheckOutcome { failure, failed_verify, ..CheckOutcome::default() };
            return Event::CheckCollected { attempt: attempt.clone(), outcome: Box::new(outcome) };
        }
        let story: u32 = view.stories[0].0.id.as_str()[3..].parse().expect("digits");
        let tries = self.tries.entry(story).or_default();
        *tries += 1;
        let good = *tries > self.bad_attempts.get(&story).copied().unwrap_or(0);
        let mut tree = self.trees[&view.base].clone();
        if let Some(merge) = &view.merge {
            tree.extend(self.trees[&merge.head].clone());
        }
        tree.retain(|piece| piece.story != story);
        let knows = tree.iter().map(|piece| piece.story).collect();
        tree.insert(Piece { story, knows, good });
        let parents = view.merge.iter().map(|merge| merge.head.clone()).chain([view.base.clone()]).collect();
        let tip = self.commit_tree(tree, parents);
        Event::ResultCollected {
            attempt: attempt.clone(),
            tip: Some(tip),
            stories: vec![finished_story(story)],
            leftover: None,
            diffs: Vec::new(),
            tree: None,
            result_ref: Some(format!("refs/kept/{attempt}")),
        }
    }

    fn prepare(&mut self, landing: u64, known: &CommitId, candidates: &[CandidateSpec]) -> Event {
        let onto = self.branch.clone();
        assert!(self.contains(&onto, known), "the machine's head is on the branch");
        let mut head = onto.clone();
        let (mut commits, mut conflict) = (Vec::new(), None);
        if candidates.is_empty() {
            commits.push(CheckableCommit { commit: onto.clone(), checked: false });
        }
        for candidate in candidates {
            let (tree, tip) = (self.trees[&head].clone(), self.trees[&candidate.tip].clone());
            assert!(self.contains(&onto, &candidate.base), "the base of a candidate is on the branch");
            if !self.merges(&tree, &tip) {
                conflict = Some(vec!["file".to_owned()]);
                break;
            }
            let own: BTreeSet<u32> = tip.iter().map(|piece| piece.story).collect();
            // What the tip was made from is older than the branch.
            let mut merged: Tree = tip;
            merged.retain(|piece| !tree.iter().any(|other| other.story == piece.story) || self.is_of(piece, candidate));
            merged.extend(tree.into_iter().filter(|piece| {
                !own.contains(&piece.story) || !candidate.stories.iter().any(|key| key.id == story_id(piece.story))
            }));
            let before = head.clone();
            head = self.commit_tree(merged, vec![head, candidate.tip.clone()]);
            let stories = candidate.stories.iter().map(|key| key.id.as_str()[3..].parse().expect("digits"));
            self.prepared.push((head.clone(), before, stories.collect()));
            commits.push(CheckableCommit { commit: head.clone(), checked: false });
        }
        Event::LandingPrepared { landing, onto, commits, conflict }
    }

    fn is_of(&self, piece: &Piece, candidate: &CandidateSpec) -> bool {
        candidate.stories.iter().any(|key| key.id == story_id(piece.story))
    }
}

fn check_seed(seed: u64) -> SwarmOutcome {
    let mut world = World::new(seed);
    let outcome = world.run();
    let machine = world.rig.replay_journal();
    if outcome == SwarmOutcome::RedBase {
        assert_eq!(world.landings, 0);
        return outcome;
    }
    assert!(machine.stories().all(|view| view.is_closed()), "every story is decided");
    for view in machine.stories().filter(|view| view.has_landed()) {
        let commit = view.commit.as_ref().expect("landed");
        assert!(world.contains(&world.branch, commit), "{} landed, and is not on the branch", view.key.id);
    }
    if !world.faults {
        let log2 = usize::BITS - (world.largest_batch.max(2) - 1).leading_zeros();
        let bound = world.landings + 2 * world.culprits * log2 + world.head_checks;
        let checks = world.checks.len() as u32;
        assert!(
            checks <= bound,
            "{checks} checks for {} landings and {} culprits in batches of up to {}",
            world.landings,
            world.culprits,
            world.largest_batch
        );
        assert!(world.passes(&world.trees[&world.branch]));
    }
    outcome
}

#[test]
fn branches_stay_green_and_nobody_innocent_is_blamed() {
    if let Some(seed) = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        check_seed(seed);
        return;
    }
    let mut outcomes = BTreeMap::new();
    for seed in 0..RUNS {
        match catch_unwind(AssertUnwindSafe(|| check_seed(seed))) {
            Ok(outcome) => *outcomes.entry(format!("{outcome:?}")).or_insert(0) += 1,
            Err(_) => panic!("replay it with LONGSHORE_SEED={seed} cargo test --lib branches_stay_green"),
        }
    }
    assert!(outcomes["Landed"] > 50 && outcomes["SomeFailed"] > 50, "{outcomes:?}");
}

/// What the sandbox reported before its result, which says that the story is finished.
fn verdict_after(reports: &[Event], exit: i64) -> Option<Cause> {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.landing = Some(LandingSpec { merge_check: true, red_base: false });
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    for report in reports {
        rig.handle(report.clone());
    }
    rig.handle(sandbox_ended(&id, container_exit(exit)));
    rig.handle(result_collected(&id, Some(9), vec![finished_story(1)]));
    rig.cause(1)
}

#[test]
fn a_result_that_the_sandbox_itself_contradicts_lands_nothing() {
    let id = attempt(1, 1);
    let finished = story_reported(&id, 1, 1, StoryStatus::Completed);
    let failed = story_reported(&id, 1, 1, StoryStatus::Failed);
    let ended = |status| completion_reported(&id, 9, status);
    let bad: Vec<Event> = (2..=4).map(|record| record_refused(&id, record)).collect();
    assert_eq!(verdict_after(&[finished.clone(), ended(CompletionStatus::Completed)], 0), None);
    let violation = Some(Cause::ProtocolViolation);
    assert_eq!(verdict_after(&[failed, ended(CompletionStatus::Completed)], 0), violation, "the story failed");
    assert_eq!(verdict_after(&[ended(CompletionStatus::Completed)], 0), violation, "nothing was said of the story");
    assert_eq!(verdict_after(&[finished.clone(), ended(CompletionStatus::Failed)], 0), violation);
    assert_eq!(verdict_after(&[finished.clone(), ended(CompletionStatus::Stopped)], 0), violation, "nobody stopped it");
    assert_eq!(verdict_after(&[finished.clone(), ended(CompletionStatus::Completed)], 3), violation, "its exit code");
    let late = [vec![finished.clone()], vec![ended(CompletionStatus::Completed)], bad_after_completion(&id)].concat();
    assert_eq!(verdict_after(&late, 0), violation, "bad records");
    assert_eq!(verdict_after(&[vec![finished], bad].concat(), 137), violation, "it was ended for its bad records");
}

fn bad_after_completion(id: &AttemptId) -> Vec<Event> {
    (10..=12).map(|record| record_refused(id, record)).collect()
}
