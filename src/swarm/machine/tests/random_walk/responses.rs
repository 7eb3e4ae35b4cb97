//! How the simulated sandboxes, depot, git and engine respond to effects.

use std::collections::{BTreeSet, VecDeque};

use super::super::*;
use super::SwarmSimulation;
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::effect::CollectMode;
use crate::test_rng::SeededRng;
use crate::verdict::StoryLogEntry;

impl SwarmSimulation {
    pub(super) fn respond(&mut self, effect: &Effect) {
        match effect {
            Effect::Start { attempt, stories, .. } => {
                let stories: Vec<StoryKey> = stories.iter().map(|(story, _)| story.clone()).collect();
                self.start_script(attempt, &stories);
            }
            Effect::StartReview { attempt, review } => self.start_script(attempt, &review.stories),
            Effect::Pause { attempt } => {
                self.paused.insert(attempt.clone());
            }
            Effect::Unpause { attempt } => {
                self.paused.remove(attempt);
            }
            Effect::Terminate { attempt } => {
                // Some sandboxes ignore the signal.
                if !self.roll_fault() {
                    let polite = self.random.chance(70);
                    self.end_early(attempt, polite, 143);
                }
            }
            Effect::Kill { attempt } => {
                // Sometimes the kill fails.
                if !(self.roll_fault() && self.random.chance(30)) {
                    self.end_early(attempt, false, 137);
                }
            }
            Effect::Collect { attempt, mode: what } => {
                let event = self.collect_response(attempt, *what);
                self.pending_responses.push(event);
            }
            Effect::Merge { attempt, .. } => {
                let (attempt, kept) = (attempt.clone(), "refs/kept".to_owned());
                let event = if !self.roll_fault() {
                    Event::Merged { attempt, head: self.next_commit() }
                } else if self.random.chance(40) {
                    Event::MergeConflicted { attempt, paths: vec!["a".to_owned()], result_ref: kept }
                } else {
                    let retryable = self.random.chance(80);
                    Event::MergeFailed {
                        attempt,
                        fault: MachineryFault::new(Cause::HostError, "git", retryable),
                        result_ref: kept,
                    }
                };
                self.pending_responses.push(event);
            }
            Effect::Inspect { attempt } => {
                // The engine does not always answer.
                if !self.roll_fault() {
                    let paused = self.random.chance(50);
                    let processes = vec!["1 acp-shim".to_owned()];
                    self.pending_responses.push(Event::SandboxInspected {
                        attempt: attempt.clone(),
                        paused,
                        processes,
                    });
                }
            }
            Effect::Remove { attempt, .. } => {
                self.pending_responses.push(Event::SandboxRemoved { attempt: attempt.clone() })
            }
            Effect::StartCheck { .. }
            | Effect::PrepareLanding { .. }
            | Effect::MoveBranch { .. }
            | Effect::Persist
            | Effect::Announce(_)
            | Effect::Finish(_)
            | Effect::SendAmp(_) => {}
        }
    }

    fn start_script(&mut self, attempt: &AttemptId, stories: &[StoryKey]) {
        let script = match self.full_scripts.get(attempt) {
            Some(script) => script.clone(),
            None => self.sandbox_script(attempt, stories),
        };
        self.full_scripts.insert(attempt.clone(), script.clone());
        self.scripts.insert(attempt.clone(), script.into());
    }

    /// The sandbox ends now, with a completion or without.
    fn end_early(&mut self, id: &AttemptId, polite: bool, code: i64) {
        self.paused.remove(id);
        let Some(view) = self.rig.machine.attempt(id) else { return };
        let record = view.record_count + 1;
        let mut script = VecDeque::new();
        if polite && view.completion.is_none() {
            script.push_back(completion_reported(id, record, CompletionStatus::Stopped));
        }
        script.push_back(sandbox_ended(id, container_exit(code)));
        if view.container.is_none() {
            script.push_front(Event::SandboxCreated {
                attempt: id.clone(),
                container: container(id),
                name: "box".to_owned(),
            });
        }
        let whole = self.full_scripts.entry(id.clone()).or_default();
        whole.retain(|event| !matches!(event, Event::SandboxEnded { .. } | Event::CompletionReported { .. }));
        whole.extend(script.iter().cloned());
        self.scripts.insert(id.clone(), script);
    }

    /// All events of a sandbox.
    fn sandbox_script(&mut self, id: &AttemptId, stories: &[StoryKey]) -> Vec<Event> {
        let mut events = Vec::new();
        let fails = |random: &mut SeededRng| Event::StartFailed {
            attempt: id.clone(),
            fault: MachineryFault {
                engine_unreachable: random.chance(20),
                ..MachineryFault::new(Cause::EngineError, "busy", random.chance(80))
            },
        };
        if self.roll_fault() && self.random.chance(10) {
            events.push(Event::StartDelayed { attempt: id.clone(), reason: "short".to_owned() });
        }
        if self.roll_fault() && self.random.chance(30) {
            events.push(fails(&mut self.random));
            return events;
        }
        events.push(Event::SandboxCreated { attempt: id.clone(), container: container(id), name: "box".to_owned() });
        if self.roll_fault() && self.random.chance(20) {
            events.push(fails(&mut self.random));
            return events;
        }
        events.push(Event::SandboxStarted { attempt: id.clone() });
        let mut record = 0;
        let mut next = || {
            record += 1;
            record
        };
        for story in stories {
            let mut say = |status| {
                let output = "words".to_owned();
                let (attempt, story) = (id.clone(), story.clone());
                events.push(Event::StoryReported { attempt, record_number: next(), story, status, output });
            };
            say(StoryStatus::InProgress);
            if self.random.chance(50) {
                say(StoryStatus::InProgress);
            }
            say(self.random.choose(&[StoryStatus::Completed, StoryStatus::Failed]));
            if self.roll_fault() && self.random.chance(40) {
                let code = self.random.choose(&["AGENT_CRASH", "GIT_CLONE_FAILED", "CONTAINER_OOM", "UNKNOWN_ERROR"]);
                let (attempt, code) = (id.clone(), code.to_owned());
                events.push(Event::ErrorReported { attempt, record_number: next(), code, message: "oh".to_owned() });
            }
            while self.roll_fault() {
                events.push(record_refused(id, next()));
            }
            if self.roll_fault() && self.random.chance(30) {
                break;
            }
        }
        if !(self.roll_fault() && self.random.chance(50)) {
            let status = self.random.choose(&[CompletionStatus::Completed, CompletionStatus::Failed]);
            events.push(completion_reported(id, next(), status));
        }
        // Some sandboxes never end.
        if !(self.roll_fault() && self.random.chance(30)) {
            let mut exit = container_exit(self.random.choose(&[0, 0, 0, 1, 137]));
            exit.oom_killed = self.roll_fault();
            exit.vanished = self.roll_fault();
            exit.engine_lost = self.roll_fault();
            events.push(sandbox_ended(id, exit));
        }
        events
    }

    pub(super) fn random_text(&mut self) -> String {
        match self.random.below(8) {
            0 if self.wild_texts => "\u{1}".repeat(70_000),
            1 if self.wild_texts => "é".repeat(5000),
            2 if self.wild_texts => " ".to_owned(),
            3 if self.wild_texts => String::new(),
            _ => "no".to_owned(),
        }
    }

    fn random_diffs(&mut self, stories: usize) -> Vec<DiffSummary> {
        if !self.wild_texts {
            return Vec::new();
        }
        let diff = |random: &mut SeededRng| {
            let files = random.choose(&[0, 1, 20_000]);
            let long = "d/".repeat(if files == 1 { 2000 } else { 10 });
            let mut files_changed: Vec<String> = (0..files).map(|n| format!("{long}{n}")).collect();
            files_changed.extend((files > 0).then(|| " ".to_owned()));
            DiffSummary { lines_added: u64::from(files > 0), lines_removed: 0, files_changed }
        };
        (0..stories).map(|_| diff(&mut self.random)).collect()
    }

    fn collect_response(&mut self, id: &AttemptId, what: CollectMode) -> Event {
        let view = self.rig.machine.attempt(id).expect("it was started").clone();
        let remains = what == CollectMode::Salvage && self.random.chance(60);
        if remains || (self.roll_fault() && self.random.chance(60)) {
            let retryable = self.random.chance(60);
            let cause = self.random.choose(&[Cause::HostError, Cause::ProtocolViolation, Cause::DiskFull]);
            return Event::CollectFailed {
                attempt: id.clone(),
                fault: MachineryFault::new(cause, "no result", retryable),
                salvage_ref: self.random.chance(50).then(|| "refs/salvage".to_owned()),
                work_dir_empty: self.random.chance(50),
                salvage_incomplete: self.random.chance(20),
                depot_timed_out: self.random.chance(20),
            };
        }
        if view.review().is_some() {
            return Event::ReviewCollected { attempt: id.clone(), outcome: Box::new(self.random_review_outcome()) };
        }
        let mut results: Vec<StoryResult> = Vec::new();
        let mut ok: BTreeSet<StoryId> = BTreeSet::new();
        for (key, _) in &view.stories {
            let depends_on = self.rig.machine.story_spec(key).expect("in the plan").depends_on.clone();
            let unmet = depends_on
                .iter()
                .find(|other| view.stories.iter().any(|(own, _)| own == *other) && !ok.contains(&other.id));
            let outcome = match unmet {
                // A hostile sandbox reports it all the same.
                Some(other) if !self.random.chance(5) => StoryOutcome::Skipped { because: other.id.clone() },
                _ if self.roll_fault() => match self.random.below(4) {
                    0 => StoryOutcome::NotReached,
                    _ => {
                        let causes = [
                            Cause::VerificationFailed,
                            Cause::AgentFailed,
                            Cause::Timeout,
                            Cause::StoppedByUser,
                            Cause::DiskFull,
                            Cause::TaskFileInvalid,
                        ];
                        let cause = self.random.choose(&causes);
                        let failure = Failure::new(cause, self.random_text());
                        StoryOutcome::Failed { failure, salvage: None, unsaved: false }
                    }
                },
                _ => {
                    ok.insert(key.id.clone());
                    StoryOutcome::Finished { commit: self.next_commit() }
                }
            };
            if !(self.roll_fault() && self.random.chance(10)) {
                let mut said = StoryResult { id: key.id.clone(), ..story_result(1, outcome) };
                if self.wild_texts {
                    let at = self.random.choose(&["2026-02-26T14:28:00Z", "", "yesterday"]).to_owned();
                    said.work_log =
                        vec![StoryLogEntry { at, text: self.random_text() }; self.random.below(300) as usize];
                }
                results.push(said);
            }
        }
        let tip = (!ok.is_empty() || self.roll_fault()).then(|| self.next_commit());
        Event::ResultCollected {
            attempt: id.clone(),
            tip,
            stories: results,
            leftover: None,
            diffs: self.random_diffs(view.stories.len()),
            tree: self.random.chance(90).then(|| format!("tree {}", self.random.below(30))),
            result_ref: Some(format!("refs/kept/{id}")),
        }
    }
}
