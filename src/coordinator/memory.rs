//! What the stories of a swarm learned, from the words that are said of them to the frame that a later story is dispatched with.
//!
//! Words say all that a story's memory is made of, and the journal says all words again: after a crash the same memory is made of
//! them. Grams are made where they are wanted, and not by the loop: a [`Known`] has the facts, and becomes a gram in the session
//! that hands it on, or in the thread that writes it down. What a story is given is the memory of the stories that it depends on,
//! merged and pruned, and of those that they depend on: each story's own gram is merged with what it was given itself, within the
//! same budget, so that the cost of a dispatch does not grow with the number of stories before it. Called by `run.rs` and
//! `dispatch.rs`. Must not: believe what agents said, beyond its being text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use crate::handoff::depot::TextFile;
use crate::handoff::dispatch::{self, Dispatch};
use crate::handoff::layout;
use crate::handoff::learned::{self, FailedAttempt, Finding, Learned};
use crate::handoff::secrets::without;
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey, SwarmId};
use crate::plan::Plan;
use crate::protocol::amp::message::{CompletionStatus, MsgId};
use crate::protocol::amp::store::{Ssot, SsotError};
use crate::protocol::mesh::gram::MemoryGram;
use crate::swarm::effect::Announcement;
use crate::swarm::word::{StoryEnd, Word};
use crate::swarm::{Fault, Machine};
use crate::tasks::{Done, HeaderBlocks, Story};
use crate::verdict::{Cause, Failure};

use super::Setup;
use super::run::Coordinator;
use super::session::chain;

/// How much memory a story is given where nobody said, in bytes.
pub const MEMORY_BUDGET: usize = 16 * 1024;
/// The most that it can be given.
pub const MEMORY_BUDGET_MAX: usize = 64 * 1024;

/// The memory of a swarm.
pub(super) struct Memory {
    swarm: SwarmId,
    budget: usize,
    secrets: Vec<(String, String)>,
    /// Each story's own dependencies.
    needs: BTreeMap<StoryKey, Vec<StoryKey>>,
    /// Whose words were taken in.
    taken: BTreeSet<MsgId>,
    dispatched: BTreeMap<AssignmentId, Vec<StoryKey>>,
    rounds: BTreeMap<AssignmentId, u32>,
    heard: BTreeMap<StoryKey, Heard>,
    known: BTreeMap<StoryKey, Arc<Known>>,
}

/// What was said of a story.
#[derive(Default)]
struct Heard {
    at: Timestamp,
    learned: Learned,
    /// The attempts that said they finished it.
    finished: Vec<(AttemptId, Vec<String>, Vec<CommitId>)>,
}

/// What is known of a story that landed. Becomes a gram when somebody wants one.
pub(super) struct Known {
    /// The name of its file in the SSOT.
    pub name: String,
    label: String,
    at: Timestamp,
    learned: Learned,
    budget: usize,
    source: String,
    needs: Vec<Arc<Known>>,
    own: OnceLock<MemoryGram>,
    all: OnceLock<MemoryGram>,
}

/// What became of stories and attempts.
pub(super) trait Outcomes {
    /// Whether a story landed, and the commit that it ends with.
    fn landed(&self, story: &StoryKey) -> Option<Option<CommitId>>;
    /// Whether an attempt began with what a reviewer rejected.
    fn mended(&self, attempt: &AttemptId) -> bool;
}

impl Outcomes for Machine {
    fn landed(&self, story: &StoryKey) -> Option<Option<CommitId>> {
        self.story(story).filter(|view| view.landed()).map(|view| view.commit.clone())
    }

    fn mended(&self, attempt: &AttemptId) -> bool {
        self.attempt(attempt).is_some_and(|view| view.rework)
    }
}

/// A dispatch that is to be made.
#[derive(Clone)]
pub(super) struct Handed {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    pub branch: String,
    pub stories: Vec<Story>,
    pub blocks: HeaderBlocks,
    pub memory: Vec<Arc<Known>>,
    pub budget: usize,
}

impl Memory {
    /// Nothing was said yet.
    pub fn new(plan: &Plan, swarm: SwarmId, budget: usize, secrets: Vec<(String, String)>) -> Self {
        let needs = plan.stories.iter().map(|story| (story.key.clone(), story.depends_on.clone())).collect();
        Self {
            swarm,
            budget,
            secrets,
            needs,
            taken: BTreeSet::new(),
            dispatched: BTreeMap::new(),
            rounds: BTreeMap::new(),
            heard: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// That of a swarm that is begun, with what earlier swarms learned of what is done. What cannot be read of that is told.
    pub fn of_swarm(setup: &mut Setup) -> Self {
        let secrets = setup.sandbox.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut memory = Self::new(&setup.plan, setup.spec.swarm, setup.sandbox.memory_budget, secrets);
        let damaged = memory.remember_earlier(&setup.plan, &setup.ssot).unwrap_or_else(|error| vec![error]);
        for error in damaged {
            let problem = chain(&error);
            setup.reporter.announce(Timestamp::now(), &Announcement::MemoryDamaged { problem });
        }
        memory
    }

    /// Takes up what swarms before this one kept of the stories that were done before, and that others need, themselves or
    /// through each other. What is damaged.
    fn remember_earlier(&mut self, plan: &Plan, ssot: &Ssot) -> Result<Vec<SsotError>, SsotError> {
        let mut damaged = Vec::new();
        if self.budget == 0 {
            return Ok(damaged);
        }
        let done = |key: &StoryKey| plan.story(key).done == Some(Done::Completed);
        let mut grams: BTreeMap<StoryKey, Option<MemoryGram>> = BTreeMap::new();
        let mut wanted: Vec<StoryKey> = plan.stories.iter().flat_map(|story| story.depends_on.clone()).collect();
        wanted.retain(done);
        wanted.sort();
        wanted.dedup();
        for key in wanted {
            let branch = plan.files[usize::from(key.file)].branch.as_str();
            let newest = ssot.newest_memory(&name(plan, &key), self.swarm, branch)?;
            damaged.extend(newest.damaged);
            grams.insert(key, newest.gram);
        }
        // What a story needs is known before it; the plan has no circles.
        let mut waiting: Vec<StoryKey> = grams.keys().cloned().collect();
        while let Some(key) = waiting.last().cloned() {
            let needs = self.needs.get(&key).cloned().unwrap_or_default();
            let open: Vec<StoryKey> = needs.iter().filter(|need| grams.contains_key(*need)).cloned().collect();
            if grams.contains_key(&key) && !open.is_empty() {
                waiting.extend(open);
                continue;
            }
            waiting.pop();
            if let Some(Some(gram)) = grams.remove(&key) {
                let known = self.earlier(&key, &needs, plan, gram);
                self.known.insert(key, Arc::new(known));
            }
        }
        Ok(damaged)
    }

    fn earlier(&self, key: &StoryKey, needs: &[StoryKey], plan: &Plan, gram: MemoryGram) -> Known {
        Known {
            name: name(plan, key),
            label: plan.label(key),
            at: gram.timestamp(),
            learned: Learned::default(),
            budget: self.budget,
            source: dispatch::coordinator(self.swarm),
            needs: self.known_of(needs),
            own: OnceLock::from(gram),
            all: OnceLock::new(),
        }
    }

    fn known_of(&self, stories: &[StoryKey]) -> Vec<Arc<Known>> {
        stories.iter().filter_map(|story| self.known.get(story)).cloned().collect()
    }

    /// Takes in a word. The same word again says nothing new.
    pub fn hear(&mut self, word: &Word) {
        match word {
            Word::Dispatch(dispatch) if dispatch.attempt.is_some() => {
                self.dispatched.insert(dispatch.id.task().clone(), dispatch.stories.clone());
            }
            Word::Result(end) if self.taken.insert(end.id.clone()) => self.ended(end),
            Word::Escalation { id, failed: Some(failed), .. } if self.taken.insert(id.clone()) => {
                // Of a failure within the attempt its result said so.
                for story in &failed.stories {
                    let heard = self.heard.entry(story.clone()).or_default();
                    if heard.finished.iter().any(|(attempt, ..)| *attempt == failed.attempt) {
                        heard.fail(&failed.attempt, &failed.failure, time(id), &self.secrets);
                    }
                }
            }
            Word::Verdict { id, verdict, .. } if self.taken.insert(id.clone()) => {
                let task = id.task();
                let round = self.rounds.entry(task.clone()).or_default();
                *round += 1;
                for (place, issue) in verdict.issues.iter().enumerate() {
                    let finding = Finding {
                        id: format!("{task}/{round}.{}", place + 1),
                        severity: format!("{:?}", issue.severity).to_lowercase(),
                        file: without(&issue.file, &self.secrets),
                        line: issue.line,
                        description: without(&issue.description, &self.secrets),
                        fix: without(&issue.suggested_fix, &self.secrets),
                        at: time(id),
                    };
                    for story in self.dispatched.get(task).into_iter().flatten() {
                        self.heard.entry(story.clone()).or_default().learned.findings.push(finding.clone());
                    }
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, end: &StoryEnd) {
        let heard = self.heard.entry(end.story.clone()).or_default();
        heard.at = time(&end.id);
        let number = end.attempt.number;
        if let Some(result) = end.result.as_ref().filter(|result| !result.remembered.is_empty()) {
            heard.learned.said.push((number, result.remembered.clone().without(&self.secrets)));
        }
        match &end.failure {
            Some(failure) => heard.fail(&end.attempt, failure, time(&end.id), &self.secrets),
            _ if end.status == CompletionStatus::Complete => {
                let commits = end.result.as_ref().map(|result| result.commits.clone()).unwrap_or_default();
                heard.finished.push((end.attempt.clone(), end.diff.files_changed.clone(), commits));
            }
            _ => {}
        }
    }

    /// What is known of a story that landed; none of one that did not, and of one of which nothing was said.
    pub fn of(&mut self, key: &StoryKey, plan: &Plan, outcomes: &impl Outcomes) -> Option<Arc<Known>> {
        // What it needs first, and no recursion: a chain may have hundreds.
        let mut waiting = vec![key.clone()];
        // One that did not land never becomes known, and is not waited for twice.
        let mut tried = BTreeSet::new();
        while let Some(next) = waiting.last().cloned() {
            let needs = self.needs.get(&next).cloned().unwrap_or_default();
            let open = |need: &&StoryKey| {
                !self.known.contains_key(*need)
                    && self.heard.contains_key(*need)
                    && !waiting.contains(*need)
                    && !tried.contains(*need)
            };
            let open: Vec<StoryKey> = needs.iter().filter(open).cloned().collect();
            if !open.is_empty() && !self.known.contains_key(&next) {
                waiting.extend(open);
                continue;
            }
            waiting.pop();
            tried.insert(next.clone());
            if !self.known.contains_key(&next)
                && let Some(known) = self.make(&next, &needs, plan, outcomes)
            {
                self.known.insert(next, Arc::new(known));
            }
        }
        self.known.get(key).cloned()
    }

    fn make(&self, key: &StoryKey, needs: &[StoryKey], plan: &Plan, outcomes: &impl Outcomes) -> Option<Known> {
        let commit = outcomes.landed(key)?;
        let heard = self.heard.get(key)?;
        let mut learned = heard.learned.clone();
        learned.story = plan.label(key);
        learned.title = without(&plan.story(key).title, &self.secrets);
        learned.branch = plan.files[usize::from(key.file)].branch.to_string();
        learned.commit = commit;
        // What was reviewed and mended landed with what it was before; what was begun anew did not.
        for (attempt, files, commits) in heard.finished.iter().rev() {
            let new = |file: &&String| !learned.files.contains(file);
            let files: Vec<String> = files.iter().map(|file| without(file, &self.secrets)).collect();
            learned.files.extend(files.iter().filter(new).cloned().collect::<Vec<_>>());
            learned.commits.splice(0..0, commits.iter().cloned());
            learned.source = dispatch::sandbox(self.swarm, attempt);
            if !outcomes.mended(attempt) {
                break;
            }
        }
        Some(Known {
            name: name(plan, key),
            label: plan.label(key),
            at: heard.at,
            learned,
            budget: self.budget,
            source: dispatch::coordinator(self.swarm),
            needs: self.known_of(needs),
            own: OnceLock::new(),
            all: OnceLock::new(),
        })
    }

    /// What a sandbox that does these stories is given: the memory of what they need, and are not to do themselves.
    pub fn for_stories(&mut self, stories: &[StoryKey], plan: &Plan, outcomes: &impl Outcomes) -> Vec<Arc<Known>> {
        let needed: BTreeSet<StoryKey> =
            stories.iter().filter_map(|key| self.needs.get(key)).flatten().cloned().collect();
        let before = needed.iter().filter(|need| !stories.contains(need));
        before.filter_map(|need| self.of(need, plan, outcomes)).collect()
    }
}

impl Heard {
    /// An attempt did not land. That somebody stopped it says nothing of the story.
    fn fail(&mut self, attempt: &AttemptId, failure: &Failure, at: Timestamp, secrets: &[(String, String)]) {
        if failure.cause == Cause::StoppedByUser {
            return;
        }
        self.learned.failures.push(FailedAttempt {
            number: attempt.number,
            cause: failure.cause.word().to_owned(),
            summary: without(&failure.evidence.summary, secrets),
            at,
        });
    }
}

impl Known {
    /// What this story learned.
    pub fn own(&self) -> &MemoryGram {
        self.own.get_or_init(|| self.learned.gram(self.at))
    }

    /// The same with what it was given.
    fn all(&self) -> &MemoryGram {
        if let Some(all) = self.all.get() {
            return all;
        }
        // Depth first without recursion.
        let mut waiting: Vec<&Self> = vec![self];
        while let Some(next) = waiting.last().copied() {
            let open: Vec<&Self> = next.needs.iter().map(Arc::as_ref).filter(|need| need.all.get().is_none()).collect();
            if !open.is_empty() {
                waiting.extend(open);
                continue;
            }
            next.all.get_or_init(|| {
                if next.needs.is_empty() {
                    return next.own().clone();
                }
                let grams = std::iter::once(next.own()).chain(next.needs.iter().filter_map(|need| need.all.get()));
                learned::merged(grams, &next.source, Vec::new(), next.budget).unwrap_or_else(|| next.own().clone())
            });
            waiting.pop();
        }
        self.all.get_or_init(|| self.own().clone())
    }

    /// This and all that it was given of, each once.
    fn sources<'k>(&'k self, seen: &mut BTreeSet<&'k str>, named: &mut Vec<(String, String)>) {
        let mut waiting = vec![self];
        while let Some(next) = waiting.pop() {
            if seen.insert(&next.name) {
                named.push((next.label.clone(), next.own().id().to_string()));
                waiting.extend(next.needs.iter().map(Arc::as_ref));
            }
        }
    }
}

impl Handed {
    /// The frame, as the file that the sandbox gets. `now` is when it passes through the coordinator.
    pub fn file(&self, now: Timestamp) -> Result<TextFile, Box<Fault>> {
        let memory = self.memory();
        let stories: Vec<&Story> = self.stories.iter().collect();
        let dispatch = Dispatch {
            swarm: self.swarm,
            attempt: &self.attempt,
            branch: &self.branch,
            stories: &stories,
            blocks: &self.blocks,
            memory: memory.as_ref(),
        };
        let refused = |problem: String| {
            let summary = format!("the coordinator refused the dispatch: {problem}");
            Box::new(Fault::new(Cause::DispatchRefused, summary, false))
        };
        let frame = dispatch.relayed(now).map_err(|fault| refused(fault.to_string()))?;
        let text = String::from_utf8(frame.to_bytes()).map_err(|error| refused(error.to_string()))?;
        if text.len() > dispatch::FRAME_BYTES {
            return Err(refused(format!(
                "it has {} KB, and may have {}",
                text.len() / 1024,
                dispatch::FRAME_BYTES / 1024
            )));
        }
        Ok(TextFile { path: layout::DISPATCH_FILE.to_owned(), text })
    }

    fn memory(&self) -> Option<MemoryGram> {
        if self.budget == 0 {
            return None;
        }
        let (mut seen, mut named) = (BTreeSet::new(), Vec::new());
        self.memory.iter().for_each(|known| known.sources(&mut seen, &mut named));
        let grams = self.memory.iter().map(|known| known.all());
        learned::merged(grams, &dispatch::coordinator(self.swarm), named, self.budget)
    }
}

impl Coordinator {
    /// Says a word, and takes in what it says of a story.
    pub(super) fn tell(&mut self, word: &Word) {
        self.memory.hear(word);
        self.telling.tell(word);
    }

    /// Has what a story learned written down.
    pub(super) fn keep(&mut self, story: &StoryKey) {
        if let Some(known) = self.memory.of(story, &self.setup.plan, &self.machine) {
            self.telling.keep(known);
        }
    }

    /// The same of all that landed under an orchestrator that is gone.
    pub(super) fn keep_all(&mut self) {
        let landed = self.machine.stories().filter(|view| view.landed() && !view.done_before);
        for story in landed.map(|view| view.key.clone()).collect::<Vec<_>>() {
            self.keep(&story);
        }
    }
}

/// Writes down what is missing of the memory of a swarm that is over, whose orchestrator may have died before it had.
///
/// # Errors
/// The SSOT cannot be written.
pub fn remember_again(plan: &Plan, machine: &Machine, words: &[Word], ssot: &Ssot) -> Result<(), SsotError> {
    let swarm = machine.spec().swarm;
    let mut memory = Memory::new(plan, swarm, MEMORY_BUDGET, Vec::new());
    words.iter().for_each(|word| memory.hear(word));
    for story in &plan.stories {
        if let Some(known) = memory.of(&story.key, plan, machine) {
            ssot.ensure_memory(swarm, &known.name, known.own())?;
        }
    }
    ssot.sync()
}

/// The name of a story's file in the SSOT.
pub fn name(plan: &Plan, key: &StoryKey) -> String {
    format!("{}-{}", plan.files[usize::from(key.file)].slug, key.id)
}

fn time(id: &MsgId) -> Timestamp {
    i64::try_from(id.unix_ms())
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
