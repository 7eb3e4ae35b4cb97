//! The memory of a swarm's stories: from AMP intents to the frame that a later story is dispatched with.
//!
//! Intents contain all facts of a story's memory, and a replayed journal repeats all intents: after a crash the memory is the same.
//! Grams are not made by the loop: a [`StoryMemory`] has the facts and becomes a gram in the session that sends it, or in the
//! thread that writes it. A story is given the merged and pruned memory of its dependencies and of theirs: each story's own gram
//! is merged with what it was given, within the same budget, so that the cost of a dispatch does not grow with the number of
//! stories before it. Used by `effects.rs`. Must not: trust agents' texts beyond their being text.

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
use crate::swarm::{MachineryFault, SwarmMachine};
use crate::tasks::{DoneStatus, HeaderBlocks, Story};
use crate::verdict::{Cause, Failure};

/// The default limit of the memory that a story is given, in bytes.
pub const DEFAULT_MEMORY_BUDGET: usize = 16 * 1024;
/// The highest limit that can be set.
pub const MAX_MEMORY_BUDGET: usize = 64 * 1024;

/// The memory of a swarm.
pub(super) struct SwarmMemory {
    swarm: SwarmId,
    budget: usize,
    secrets: Vec<(String, String)>,
    dependencies: BTreeMap<StoryKey, Vec<StoryKey>>,
    /// Messages that were applied.
    processed_messages: BTreeSet<MsgId>,
    dispatched_stories: BTreeMap<AssignmentId, Vec<StoryKey>>,
    review_rounds: BTreeMap<AssignmentId, u32>,
    facts: BTreeMap<StoryKey, StoryFacts>,
    memories: BTreeMap<StoryKey, Arc<StoryMemory>>,
}

/// What the intents say of a story.
#[derive(Default)]
struct StoryFacts {
    last_result_at: Timestamp,
    learned: StoryKnowledge,
    finished_attempts: Vec<FinishedAttempt>,
}

/// An attempt that reported the story as finished.
struct FinishedAttempt {
    attempt: AttemptId,
    files: Vec<String>,
    commits: Vec<CommitId>,
}

/// The memory of a story that landed. Becomes a gram on demand.
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

/// The outcomes of stories and attempts.
pub(super) trait StoryOutcomes {
    fn landing(&self, story: &StoryKey) -> StoryLanding;
    /// Whether an attempt started with rejected work.
    fn is_rework(&self, attempt: &AttemptId) -> bool;
}

/// Whether a story landed.
pub(super) enum StoryLanding {
    NotLanded,
    /// The story's last commit, if it is known.
    Landed(Option<CommitId>),
}

impl StoryOutcomes for SwarmMachine {
    fn landing(&self, story: &StoryKey) -> StoryLanding {
        match self.story(story).filter(|view| view.has_landed()) {
            Some(view) => StoryLanding::Landed(view.commit.clone()),
            None => StoryLanding::NotLanded,
        }
    }

    fn is_rework(&self, attempt: &AttemptId) -> bool {
        self.attempt(attempt).is_some_and(|view| view.is_rework)
    }
}

/// The content of a dispatch.
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
    /// A memory without any story.
    fn new(plan: &Plan, swarm: SwarmId, budget: usize, secrets: Vec<(String, String)>) -> Self {
        let dependencies = plan.stories.iter().map(|story| (story.key.clone(), story.depends_on.clone())).collect();
        Self {
            swarm,
            budget,
            secrets,
            dependencies,
            processed_messages: BTreeSet::new(),
            dispatched_stories: BTreeMap::new(),
            review_rounds: BTreeMap::new(),
            facts: BTreeMap::new(),
            memories: BTreeMap::new(),
        }
    }

    /// The memory at the start of a swarm: that of the stories that earlier swarms completed. Also returns the errors of damaged
    /// files.
    pub fn open(
        plan: &Plan,
        swarm: SwarmId,
        budget: usize,
        secrets: Vec<(String, String)>,
        ssot: &Ssot,
    ) -> (Self, Vec<SsotError>) {
        let mut memory = Self::new(plan, swarm, budget, secrets);
        let damaged = memory.load_earlier_memories(plan, ssot).unwrap_or_else(|error| vec![error]);
        (memory, damaged)
    }

    /// Loads the memories of completed stories that others depend on, and returns the errors of damaged files.
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
        let needs = |story: &StoryKey| self.dependencies.get(story).into_iter().flatten();
        let known = |story: &StoryKey| needs(story).filter(|need| grams.contains_key(*need)).cloned().collect();
        for key in dependencies_first(grams.keys().cloned().collect(), known) {
            if let Some(Some(gram)) = grams.remove(&key) {
                let at = gram.timestamp();
                let memory = StoryMemory { at, own_gram: OnceLock::from(gram), ..self.empty_memory(&key, plan) };
                self.memories.insert(key, Arc::new(memory));
            }
        }
        Ok(damaged)
    }

    /// A story's memory without facts.
    fn empty_memory(&self, key: &StoryKey, plan: &Plan) -> StoryMemory {
        let needs = self.dependencies.get(key).into_iter().flatten();
        StoryMemory {
            name: memory_name(plan, key),
            label: plan.label(key),
            at: Timestamp::default(),
            learned: StoryKnowledge::default(),
            budget: self.budget,
            source: dispatch::coordinator_uri(self.swarm),
            dependencies: needs.filter_map(|story| self.memories.get(story)).cloned().collect(),
            own_gram: OnceLock::new(),
            merged_gram: OnceLock::new(),
        }
    }

    /// Applies an intent. Applying it again changes nothing.
    pub fn apply_intent(&mut self, intent: &AmpIntent) {
        match intent {
            AmpIntent::Dispatch(dispatch) if dispatch.attempt.is_some() => {
                self.dispatched_stories.insert(dispatch.id.task_id().clone(), dispatch.stories.clone());
            }
            AmpIntent::Result(end) if self.processed_messages.insert(end.id.clone()) => self.apply_story_end(end),
            AmpIntent::Escalation { id, failed_stories: Some(failed), .. }
                if self.processed_messages.insert(id.clone()) =>
            {
                // A failure within the attempt is in its result.
                for story in &failed.stories {
                    let facts = self.facts.entry(story.clone()).or_default();
                    if facts.finished_attempts.iter().any(|finished| finished.attempt == failed.attempt) {
                        facts.add_failure(&failed.attempt, &failed.failure, id.timestamp(), &self.secrets);
                    }
                }
            }
            AmpIntent::Verdict { id, verdict, .. } if self.processed_messages.insert(id.clone()) => {
                let task = id.task_id();
                let round = self.review_rounds.entry(task.clone()).or_default();
                *round += 1;
                for (index, issue) in verdict.issues.iter().enumerate() {
                    let finding = Finding {
                        id: format!("{task}/{round}.{}", index + 1),
                        severity: format!("{:?}", issue.severity).to_lowercase(),
                        file: redact(&issue.file, &self.secrets),
                        line: issue.line,
                        description: redact(&issue.description, &self.secrets),
                        fix: redact(&issue.suggested_fix, &self.secrets),
                        at: id.timestamp(),
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
        let facts = self.facts.entry(end.story.clone()).or_default();
        facts.last_result_at = end.id.timestamp();
        let number = end.attempt.number;
        if let Some(result) = end.result.as_ref().filter(|result| !result.agent_notes.is_empty()) {
            facts.learned.agent_notes.push((number, result.agent_notes.clone().redacted(&self.secrets)));
        }
        match &end.failure {
            Some(failure) => facts.add_failure(&end.attempt, failure, end.id.timestamp(), &self.secrets),
            _ if end.status == SubtaskCompletionStatus::Complete => {
                let commits = end.result.as_ref().map(|result| result.commits.clone()).unwrap_or_default();
                let files = end.diff.files_changed.clone();
                facts.finished_attempts.push(FinishedAttempt { attempt: end.attempt.clone(), files, commits });
            }
            _ => {}
        }
    }

    /// The memory of a story; `None` if it did not land, or if no intent is about it.
    pub fn story_memory(
        &mut self,
        key: &StoryKey,
        plan: &Plan,
        outcomes: &impl StoryOutcomes,
    ) -> Option<Arc<StoryMemory>> {
        if self.memories.contains_key(key) {
            return self.memories.get(key).cloned();
        }
        let is_open = |story: &&StoryKey| !self.memories.contains_key(*story) && self.facts.contains_key(*story);
        let open =
            |story: &StoryKey| self.dependencies.get(story).into_iter().flatten().filter(is_open).cloned().collect();
        for story in dependencies_first(vec![key.clone()], open) {
            if let Some(memory) = self.build_story_memory(&story, plan, outcomes) {
                self.memories.insert(story, Arc::new(memory));
            }
        }
        self.memories.get(key).cloned()
    }

    fn build_story_memory(&self, key: &StoryKey, plan: &Plan, outcomes: &impl StoryOutcomes) -> Option<StoryMemory> {
        let StoryLanding::Landed(commit) = outcomes.landing(key) else { return None };
        let facts = self.facts.get(key)?;
        let mut learned = facts.learned.clone();
        learned.story = plan.label(key);
        learned.title = redact(&plan.story(key).title, &self.secrets);
        learned.branch = plan.files[usize::from(key.file)].branch.to_string();
        learned.commit = commit;
        // Rework landed together with the attempt before it; a new start did not.
        for FinishedAttempt { attempt, files, commits } in facts.finished_attempts.iter().rev() {
            for file in files.iter().map(|file| redact(file, &self.secrets)) {
                if !learned.files.contains(&file) {
                    learned.files.push(file);
                }
            }
            learned.commits.splice(0..0, commits.iter().cloned());
            learned.source = dispatch::sandbox_uri(self.swarm, attempt);
            if !outcomes.is_rework(attempt) {
                break;
            }
        }
        Some(StoryMemory { at: facts.last_result_at, learned, ..self.empty_memory(key, plan) })
    }

    /// The memories of the stories' dependencies, without those among the stories themselves.
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
    /// Adds a failed attempt. A stop by the user says nothing about the story.
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
    pub fn own_gram(&self) -> &MemoryGram {
        self.own_gram.get_or_init(|| self.learned.to_gram(self.at))
    }

    /// The story's gram merged with those of its dependencies.
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

    /// Adds the labels and grams of this story and its dependencies, each once.
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
    /// The frame, as the file that the sandbox gets. `now` is the time at which the coordinator relays it.
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
        self.memory.iter().for_each(|memory| memory.collect_sources(&mut seen, &mut named));
        let grams = self.memory.iter().map(|memory| memory.merged_gram());
        story_knowledge::merge_grams(grams, &dispatch::coordinator_uri(self.swarm), named, self.budget)
    }
}

/// Writes the memories of a finished swarm that the SSOT lacks. Its orchestrator may have died before it had written them.
///
/// # Errors
/// The SSOT cannot be written.
pub fn restore_memories(
    plan: &Plan,
    machine: &SwarmMachine,
    intents: &[AmpIntent],
    ssot: &Ssot,
) -> Result<(), SsotError> {
    let swarm = machine.spec().swarm;
    let mut memory = SwarmMemory::new(plan, swarm, DEFAULT_MEMORY_BUDGET, Vec::new());
    intents.iter().for_each(|intent| memory.apply_intent(intent));
    for story in &plan.stories {
        if let Some(story_memory) = memory.story_memory(&story.key, plan, machine) {
            ssot.ensure_memory(swarm, &story_memory.name, story_memory.own_gram())?;
        }
    }
    ssot.sync()
}

/// The stories and their dependencies, each once and after its own dependencies, which must have no cycle. Without recursion: a
/// chain may have hundreds.
fn dependencies_first(stories: Vec<StoryKey>, dependencies: impl Fn(&StoryKey) -> Vec<StoryKey>) -> Vec<StoryKey> {
    let mut stack: Vec<(StoryKey, bool)> = stories.into_iter().map(|story| (story, false)).collect();
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    while let Some((story, is_expanded)) = stack.pop() {
        if is_expanded {
            order.push(story);
        } else if seen.insert(story.clone()) {
            let next = dependencies(&story);
            stack.push((story, true));
            stack.extend(next.into_iter().map(|need| (need, false)));
        }
    }
    order
}

/// The name of a story's memory in the SSOT.
fn memory_name(plan: &Plan, key: &StoryKey) -> String {
    format!("{}-{}", plan.files[usize::from(key.file)].slug, key.id)
}

#[cfg(test)]
mod tests;
