//! What the stories of a swarm learned, from the words that are said of them to the frame that a later story is dispatched with.
//!
//! Words say all that a story's memory is made of, and the journal says all words again: after a crash the same memory is made of
//! them. Grams are made where they are wanted, and not by the loop: a [`StoryMemory`] has the facts, and becomes a gram in the session
//! that hands it on, or in the thread that writes it down. What a story is given is the memory of the stories that it depends on,
//! merged and pruned, and of those that they depend on: each story's own gram is merged with what it was given itself, within the
//! same budget, so that the cost of a dispatch does not grow with the number of stories before it. Called by `run.rs` and
//! `dispatch.rs`. Must not: believe what agents said, beyond its being text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use crate::handoff::depot::TextFile;
use crate::handoff::dispatch::{self, DispatchFrame};
use crate::handoff::layout;
use crate::handoff::secrets::redact;
use crate::handoff::story_knowledge::{self, FailedAttempt, Finding, StoryKnowledge};
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey, SwarmId};
use crate::plan::Plan;
use crate::protocol::amp::message::{MsgId, SubtaskCompletionStatus};
use crate::protocol::amp::store::{Ssot, SsotError};
use crate::protocol::mesh::gram::MemoryGram;
use crate::swarm::amp_intent::{AmpIntent, ResultIntent};
use crate::swarm::effect::Announcement;
use crate::swarm::{MachineryFault, SwarmMachine};
use crate::tasks::{DoneStatus, HeaderBlocks, Story};
use crate::verdict::{Cause, Failure};

use super::SwarmSetup;
use super::run::Coordinator;
use crate::error_chain::error_chain;

/// How much memory a story is given where nobody said, in bytes.
pub const DEFAULT_MEMORY_BUDGET: usize = 16 * 1024;
/// The most that it can be given.
pub const MAX_MEMORY_BUDGET: usize = 64 * 1024;

/// The memory of a swarm.
pub(super) struct SwarmMemory {
    swarm: SwarmId,
    budget: usize,
    secrets: Vec<(String, String)>,
    /// Each story's own dependencies.
    dependencies: BTreeMap<StoryKey, Vec<StoryKey>>,
    /// Whose words were taken in.
    processed_messages: BTreeSet<MsgId>,
    dispatched_stories: BTreeMap<AssignmentId, Vec<StoryKey>>,
    review_rounds: BTreeMap<AssignmentId, u32>,
    facts: BTreeMap<StoryKey, StoryFacts>,
    memories: BTreeMap<StoryKey, Arc<StoryMemory>>,
}

/// What was said of a story.
#[derive(Default)]
struct StoryFacts {
    last_result_at: Timestamp,
    learned: StoryKnowledge,
    /// The attempts that said they finished it.
    finished_attempts: Vec<(AttemptId, Vec<String>, Vec<CommitId>)>,
}

/// What is known of a story that landed. Becomes a gram when somebody wants one.
pub(super) struct StoryMemory {
    /// The name of its file in the SSOT.
    pub name: String,
    label: String,
    at: Timestamp,
    learned: StoryKnowledge,
    budget: usize,
    source: String,
    dependencies: Vec<Arc<StoryMemory>>,
    own_gram: OnceLock<MemoryGram>,
    merged_gram: OnceLock<MemoryGram>,
}

/// What became of stories and attempts.
pub(super) trait StoryOutcomes {
    /// Whether a story landed, and the commit that it ends with.
    fn landed_commit(&self, story: &StoryKey) -> Option<Option<CommitId>>;
    /// Whether an attempt began with what a reviewer rejected.
    fn is_rework(&self, attempt: &AttemptId) -> bool;
}

impl StoryOutcomes for SwarmMachine {
    fn landed_commit(&self, story: &StoryKey) -> Option<Option<CommitId>> {
        self.story(story).filter(|view| view.has_landed()).map(|view| view.commit.clone())
    }

    fn is_rework(&self, attempt: &AttemptId) -> bool {
        self.attempt(attempt).is_some_and(|view| view.is_rework)
    }
}

/// A dispatch that is to be made.
#[derive(Clone)]
pub(super) struct DispatchContext {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    pub branch: String,
    pub stories: Vec<Story>,
    pub header_blocks: HeaderBlocks,
    pub memory: Vec<Arc<StoryMemory>>,
    pub budget: usize,
}

impl SwarmMemory {
    /// Nothing was said yet.
    pub fn new(plan: &Plan, swarm: SwarmId, budget: usize, secrets: Vec<(String, String)>) -> Self {
        let needs = plan.stories.iter().map(|story| (story.key.clone(), story.depends_on.clone())).collect();
        Self {
            swarm,
            budget,
            secrets,
            dependencies: needs,
            processed_messages: BTreeSet::new(),
            dispatched_stories: BTreeMap::new(),
            review_rounds: BTreeMap::new(),
            facts: BTreeMap::new(),
            memories: BTreeMap::new(),
        }
    }

    /// That of a swarm that is begun, with what earlier swarms learned of what is done. What cannot be read of that is told.
    pub fn from_setup(setup: &mut SwarmSetup) -> Self {
        let secrets = setup.sandbox.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut memory = Self::new(&setup.plan, setup.spec.swarm, setup.sandbox.memory_budget, secrets);
        let damaged = memory.load_earlier_memories(&setup.plan, &setup.ssot).unwrap_or_else(|error| vec![error]);
        for error in damaged {
            let problem = error_chain(&error);
            setup.reporter.announce(Timestamp::now(), &Announcement::MemoryDamaged { problem });
        }
        memory
    }

    /// Takes up what swarms before this one kept of the stories that were done before, and that others need, themselves or
    /// through each other. What is damaged.
    fn load_earlier_memories(&mut self, plan: &Plan, ssot: &Ssot) -> Result<Vec<SsotError>, SsotError> {
        let mut damaged = Vec::new();
        if self.budget == 0 {
            return Ok(damaged);
        }
        let done = |key: &StoryKey| plan.story(key).done == Some(DoneStatus::Completed);
        let mut grams: BTreeMap<StoryKey, Option<MemoryGram>> = BTreeMap::new();
        let mut wanted: Vec<StoryKey> = plan.stories.iter().flat_map(|story| story.depends_on.clone()).collect();
        wanted.retain(done);
        wanted.sort();
        wanted.dedup();
        for key in wanted {
            let branch = plan.files[usize::from(key.file)].branch.as_str();
            let newest = ssot.newest_memory(&memory_name(plan, &key), self.swarm, branch)?;
            damaged.extend(newest.damaged);
            grams.insert(key, newest.gram);
        }
        // What a story needs is known before it; the plan has no circles.
        let mut waiting: Vec<StoryKey> = grams.keys().cloned().collect();
        while let Some(key) = waiting.last().cloned() {
            let needs = self.dependencies.get(&key).cloned().unwrap_or_default();
            let open: Vec<StoryKey> = needs.iter().filter(|need| grams.contains_key(*need)).cloned().collect();
            if grams.contains_key(&key) && !open.is_empty() {
                waiting.extend(open);
                continue;
            }
            waiting.pop();
            if let Some(Some(gram)) = grams.remove(&key) {
                let known = self.earlier_memory(&key, &needs, plan, gram);
                self.memories.insert(key, Arc::new(known));
            }
        }
        Ok(damaged)
    }

    fn earlier_memory(&self, key: &StoryKey, needs: &[StoryKey], plan: &Plan, gram: MemoryGram) -> StoryMemory {
        StoryMemory {
            name: memory_name(plan, key),
            label: plan.label(key),
            at: gram.timestamp(),
            learned: StoryKnowledge::default(),
            budget: self.budget,
            source: dispatch::coordinator_uri(self.swarm),
            dependencies: self.memories_of(needs),
            own_gram: OnceLock::from(gram),
            merged_gram: OnceLock::new(),
        }
    }

    fn memories_of(&self, stories: &[StoryKey]) -> Vec<Arc<StoryMemory>> {
        stories.iter().filter_map(|story| self.memories.get(story)).cloned().collect()
    }

    /// Takes in a word. The same word again says nothing new.
    pub fn apply_intent(&mut self, word: &AmpIntent) {
        match word {
            AmpIntent::Dispatch(dispatch) if dispatch.attempt.is_some() => {
                self.dispatched_stories.insert(dispatch.id.task_id().clone(), dispatch.stories.clone());
            }
            AmpIntent::Result(end) if self.processed_messages.insert(end.id.clone()) => self.apply_story_end(end),
            AmpIntent::Escalation { id, failed_stories: Some(failed), .. }
                if self.processed_messages.insert(id.clone()) =>
            {
                // Of a failure within the attempt its result said so.
                for story in &failed.stories {
                    let heard = self.facts.entry(story.clone()).or_default();
                    if heard.finished_attempts.iter().any(|(attempt, ..)| *attempt == failed.attempt) {
                        heard.add_failure(&failed.attempt, &failed.failure, message_timestamp(id), &self.secrets);
                    }
                }
            }
            AmpIntent::Verdict { id, verdict, .. } if self.processed_messages.insert(id.clone()) => {
                let task = id.task_id();
                let round = self.review_rounds.entry(task.clone()).or_default();
                *round += 1;
                for (place, issue) in verdict.issues.iter().enumerate() {
                    let finding = Finding {
                        id: format!("{task}/{round}.{}", place + 1),
                        severity: format!("{:?}", issue.severity).to_lowercase(),
                        file: redact(&issue.file, &self.secrets),
                        line: issue.line,
                        description: redact(&issue.description, &self.secrets),
                        fix: redact(&issue.suggested_fix, &self.secrets),
                        at: message_timestamp(id),
                    };
                    for story in self.dispatched_stories.get(task).into_iter().flatten() {
                        self.facts.entry(story.clone()).or_default().learned.findings.push(finding.clone());
                    }
                }
            }
            _ => {}
        }
    }

    fn apply_story_end(&mut self, end: &ResultIntent) {
        let heard = self.facts.entry(end.story.clone()).or_default();
        heard.last_result_at = message_timestamp(&end.id);
        let number = end.attempt.number;
        if let Some(result) = end.result.as_ref().filter(|result| !result.agent_notes.is_empty()) {
            heard.learned.agent_notes.push((number, result.agent_notes.clone().redacted(&self.secrets)));
        }
        match &end.failure {
            Some(failure) => heard.add_failure(&end.attempt, failure, message_timestamp(&end.id), &self.secrets),
            _ if end.status == SubtaskCompletionStatus::Complete => {
                let commits = end.result.as_ref().map(|result| result.commits.clone()).unwrap_or_default();
                heard.finished_attempts.push((end.attempt.clone(), end.diff.files_changed.clone(), commits));
            }
            _ => {}
        }
    }

    /// What is known of a story that landed; none of one that did not, and of one of which nothing was said.
    pub fn story_memory(
        &mut self,
        key: &StoryKey,
        plan: &Plan,
        outcomes: &impl StoryOutcomes,
    ) -> Option<Arc<StoryMemory>> {
        // What it needs first, and no recursion: a chain may have hundreds.
        let mut waiting = vec![key.clone()];
        // One that did not land never becomes known, and is not waited for twice.
        let mut tried = BTreeSet::new();
        while let Some(next) = waiting.last().cloned() {
            let needs = self.dependencies.get(&next).cloned().unwrap_or_default();
            let open = |need: &&StoryKey| {
                !self.memories.contains_key(*need)
                    && self.facts.contains_key(*need)
                    && !waiting.contains(*need)
                    && !tried.contains(*need)
            };
            let open: Vec<StoryKey> = needs.iter().filter(open).cloned().collect();
            if !open.is_empty() && !self.memories.contains_key(&next) {
                waiting.extend(open);
                continue;
            }
            waiting.pop();
            tried.insert(next.clone());
            if !self.memories.contains_key(&next)
                && let Some(known) = self.build_story_memory(&next, &needs, plan, outcomes)
            {
                self.memories.insert(next, Arc::new(known));
            }
        }
        self.memories.get(key).cloned()
    }

    fn build_story_memory(
        &self,
        key: &StoryKey,
        needs: &[StoryKey],
        plan: &Plan,
        outcomes: &impl StoryOutcomes,
    ) -> Option<StoryMemory> {
        let commit = outcomes.landed_commit(key)?;
        let heard = self.facts.get(key)?;
        let mut learned = heard.learned.clone();
        learned.story = plan.label(key);
        learned.title = redact(&plan.story(key).title, &self.secrets);
        learned.branch = plan.files[usize::from(key.file)].branch.to_string();
        learned.commit = commit;
        // What was reviewed and mended landed with what it was before; what was begun anew did not.
        for (attempt, files, commits) in heard.finished_attempts.iter().rev() {
            let new = |file: &&String| !learned.files.contains(file);
            let files: Vec<String> = files.iter().map(|file| redact(file, &self.secrets)).collect();
            learned.files.extend(files.iter().filter(new).cloned().collect::<Vec<_>>());
            learned.commits.splice(0..0, commits.iter().cloned());
            learned.source = dispatch::sandbox_uri(self.swarm, attempt);
            if !outcomes.is_rework(attempt) {
                break;
            }
        }
        Some(StoryMemory {
            name: memory_name(plan, key),
            label: plan.label(key),
            at: heard.last_result_at,
            learned,
            budget: self.budget,
            source: dispatch::coordinator_uri(self.swarm),
            dependencies: self.memories_of(needs),
            own_gram: OnceLock::new(),
            merged_gram: OnceLock::new(),
        })
    }

    /// What a sandbox that does these stories is given: the memory of what they need, and are not to do themselves.
    pub fn dependency_memories(
        &mut self,
        stories: &[StoryKey],
        plan: &Plan,
        outcomes: &impl StoryOutcomes,
    ) -> Vec<Arc<StoryMemory>> {
        let needed: BTreeSet<StoryKey> =
            stories.iter().filter_map(|key| self.dependencies.get(key)).flatten().cloned().collect();
        let before = needed.iter().filter(|need| !stories.contains(need));
        before.filter_map(|need| self.story_memory(need, plan, outcomes)).collect()
    }
}

impl StoryFacts {
    /// An attempt did not land. That somebody stopped it says nothing of the story.
    fn add_failure(&mut self, attempt: &AttemptId, failure: &Failure, at: Timestamp, secrets: &[(String, String)]) {
        if failure.cause == Cause::StoppedByUser {
            return;
        }
        self.learned.failures.push(FailedAttempt {
            number: attempt.number,
            cause: failure.cause.as_str().to_owned(),
            summary: redact(&failure.evidence.summary, secrets),
            at,
        });
    }
}

impl StoryMemory {
    /// What this story learned.
    pub fn own_gram(&self) -> &MemoryGram {
        self.own_gram.get_or_init(|| self.learned.to_gram(self.at))
    }

    /// The same with what it was given.
    fn merged_gram(&self) -> &MemoryGram {
        if let Some(all) = self.merged_gram.get() {
            return all;
        }
        // Depth first without recursion.
        let mut waiting: Vec<&Self> = vec![self];
        while let Some(next) = waiting.last().copied() {
            let open: Vec<&Self> =
                next.dependencies.iter().map(Arc::as_ref).filter(|need| need.merged_gram.get().is_none()).collect();
            if !open.is_empty() {
                waiting.extend(open);
                continue;
            }
            next.merged_gram.get_or_init(|| {
                if next.dependencies.is_empty() {
                    return next.own_gram().clone();
                }
                let grams = std::iter::once(next.own_gram())
                    .chain(next.dependencies.iter().filter_map(|need| need.merged_gram.get()));
                story_knowledge::merge_grams(grams, &next.source, Vec::new(), next.budget)
                    .unwrap_or_else(|| next.own_gram().clone())
            });
            waiting.pop();
        }
        self.merged_gram.get_or_init(|| self.own_gram().clone())
    }

    /// This and all that it was given of, each once.
    fn collect_sources<'k>(&'k self, seen: &mut BTreeSet<&'k str>, named: &mut Vec<(String, String)>) {
        let mut waiting = vec![self];
        while let Some(next) = waiting.pop() {
            if seen.insert(&next.name) {
                named.push((next.label.clone(), next.own_gram().id().to_string()));
                waiting.extend(next.dependencies.iter().map(Arc::as_ref));
            }
        }
    }
}

impl DispatchContext {
    /// The frame, as the file that the sandbox gets. `now` is when it passes through the coordinator.
    pub fn to_file(&self, now: Timestamp) -> Result<TextFile, Box<MachineryFault>> {
        let memory = self.merged_memory();
        let stories: Vec<&Story> = self.stories.iter().collect();
        let dispatch = DispatchFrame {
            swarm: self.swarm,
            attempt: &self.attempt,
            branch: &self.branch,
            stories: &stories,
            blocks: &self.header_blocks,
            memory: memory.as_ref(),
        };
        let refused = |problem: String| {
            let summary = format!("the coordinator refused the dispatch: {problem}");
            Box::new(MachineryFault::new(Cause::DispatchRefused, summary, false))
        };
        let frame = dispatch.build_relayed(now).map_err(|fault| refused(fault.to_string()))?;
        let text = String::from_utf8(frame.to_bytes()).map_err(|error| refused(error.to_string()))?;
        if text.len() > dispatch::MAX_FRAME_BYTES {
            return Err(refused(format!(
                "it has {} KB, and may have {}",
                text.len() / 1024,
                dispatch::MAX_FRAME_BYTES / 1024
            )));
        }
        Ok(TextFile { path: layout::DISPATCH_FILE.to_owned(), text })
    }

    fn merged_memory(&self) -> Option<MemoryGram> {
        if self.budget == 0 {
            return None;
        }
        let (mut seen, mut named) = (BTreeSet::new(), Vec::new());
        self.memory.iter().for_each(|known| known.collect_sources(&mut seen, &mut named));
        let grams = self.memory.iter().map(|known| known.merged_gram());
        story_knowledge::merge_grams(grams, &dispatch::coordinator_uri(self.swarm), named, self.budget)
    }
}

impl Coordinator {
    /// Says a word, and takes in what it says of a story.
    pub(super) fn emit_intent(&mut self, word: &AmpIntent) {
        self.memory.apply_intent(word);
        self.ssot_writer.write_intent(word);
    }

    /// Has what a story learned written down.
    pub(super) fn save_memory(&mut self, story: &StoryKey) {
        if let Some(known) = self.memory.story_memory(story, &self.setup.plan, &self.machine) {
            self.ssot_writer.write_memory(known);
        }
    }

    /// The same of all that landed under an orchestrator that is gone.
    pub(super) fn save_all_memories(&mut self) {
        let landed = self.machine.stories().filter(|view| view.has_landed() && !view.done_before);
        for story in landed.map(|view| view.key.clone()).collect::<Vec<_>>() {
            self.save_memory(&story);
        }
    }
}

/// Writes down what is missing of the memory of a swarm that is over, whose orchestrator may have died before it had.
///
/// # Errors
/// The SSOT cannot be written.
pub fn restore_memories(
    plan: &Plan,
    machine: &SwarmMachine,
    words: &[AmpIntent],
    ssot: &Ssot,
) -> Result<(), SsotError> {
    let swarm = machine.spec().swarm;
    let mut memory = SwarmMemory::new(plan, swarm, DEFAULT_MEMORY_BUDGET, Vec::new());
    words.iter().for_each(|word| memory.apply_intent(word));
    for story in &plan.stories {
        if let Some(known) = memory.story_memory(&story.key, plan, machine) {
            ssot.ensure_memory(swarm, &known.name, known.own_gram())?;
        }
    }
    ssot.sync()
}

/// The name of a story's file in the SSOT.
pub fn memory_name(plan: &Plan, key: &StoryKey) -> String {
    format!("{}-{}", plan.files[usize::from(key.file)].slug, key.id)
}

fn message_timestamp(id: &MsgId) -> Timestamp {
    i64::try_from(id.unix_ms())
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
