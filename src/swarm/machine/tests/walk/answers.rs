//! What the sandboxes, the depot, git and the engine do about effects.

use std::collections::{BTreeSet, VecDeque};

use super::super::*;
use super::World;
use crate::protocol::amp::message::DiffSummary;
use crate::seeded::Random;
use crate::swarm::effect::Salvaging;
use crate::verdict::WorkLogEntry;

impl World {
    /// What the world does about an effect.
    pub(super) fn answer(&mut self, effect: &Effect) {
        match effect {
            Effect::Start { attempt, stories, .. } => {
                let stories: Vec<StoryKey> = stories.iter().map(|(story, _)| story.clone()).collect();
                self.start(attempt, &stories);
            }
            Effect::StartReview { attempt, review } => self.start(attempt, &review.stories),
            Effect::Pause { attempt } => {
                self.frozen.insert(attempt.clone());
            }
            Effect::Unpause { attempt } => {
                self.frozen.remove(attempt);
            }
            Effect::Terminate { attempt } => {
                // Some do not listen.
                if !self.bad() {
                    let polite = self.random.chance(70);
                    self.cut_short(attempt, polite, 143);
                }
            }
            Effect::Kill { attempt } => {
                // Sometimes the engine does not either.
                if !(self.bad() && self.random.chance(30)) {
                    self.cut_short(attempt, false, 137);
                }
            }
            Effect::Collect { attempt, what } => {
                let event = self.collect(attempt, *what);
                self.answers.push(event);
            }
            Effect::Merge { attempt, .. } => {
                let (attempt, kept) = (attempt.clone(), "refs/kept".to_owned());
                let event = if !self.bad() {
                    Event::Merged { attempt, head: self.commit() }
                } else if self.random.chance(40) {
                    Event::MergeConflicted { attempt, paths: vec!["a".to_owned()], kept }
                } else {
                    let retryable = self.random.chance(80);
                    Event::MergeFailed { attempt, fault: Fault::new(Cause::HostError, "git", retryable), kept }
                };
                self.answers.push(event);
            }
            Effect::Examine { attempt } => {
                // The engine does not always say.
                if !self.bad() {
                    let paused = self.random.chance(50);
                    let processes = vec!["1 acp-shim".to_owned()];
                    self.answers.push(Event::Examined { attempt: attempt.clone(), paused, processes });
                }
            }
            Effect::Remove { attempt, .. } => self.answers.push(Event::SandboxRemoved { attempt: attempt.clone() }),
            Effect::Persist | Effect::Announce(_) | Effect::Finish(_) | Effect::Tell(_) => {}
        }
    }

    fn start(&mut self, attempt: &AttemptId, stories: &[StoryKey]) {
        let script = match self.whole.get(attempt) {
            Some(script) => script.clone(),
            None => self.script(attempt, stories),
        };
        self.whole.insert(attempt.clone(), script.clone());
        self.scripts.insert(attempt.clone(), script.into());
    }

    /// The sandbox ends now, with a last word or without.
    fn cut_short(&mut self, id: &AttemptId, polite: bool, code: i64) {
        self.frozen.remove(id);
        let Some(view) = self.rig.machine.attempt(id) else { return };
        let record = view.records + 1;
        let mut script = VecDeque::new();
        if polite && view.completion.is_none() {
            script.push_back(completion(id, record, CompletionStatus::Stopped));
        }
        script.push_back(ended(id, exit(code)));
        if view.container.is_none() {
            script.push_front(Event::SandboxCreated {
                attempt: id.clone(),
                container: container(id),
                name: "box".to_owned(),
            });
        }
        let whole = self.whole.entry(id.clone()).or_default();
        whole.retain(|event| !matches!(event, Event::SandboxEnded { .. } | Event::CompletionReported { .. }));
        whole.extend(script.iter().cloned());
        self.scripts.insert(id.clone(), script);
    }

    /// A sandbox's whole life.
    fn script(&mut self, id: &AttemptId, stories: &[StoryKey]) -> Vec<Event> {
        let mut events = Vec::new();
        let fails = |random: &mut Random| Event::StartFailed {
            attempt: id.clone(),
            fault: Fault {
                unreachable: random.chance(20),
                ..Fault::new(Cause::EngineError, "busy", random.chance(80))
            },
        };
        if self.bad() && self.random.chance(10) {
            events.push(Event::StartHeld { attempt: id.clone(), reason: "short".to_owned() });
        }
        if self.bad() && self.random.chance(30) {
            events.push(fails(&mut self.random));
            return events;
        }
        events.push(Event::SandboxCreated { attempt: id.clone(), container: container(id), name: "box".to_owned() });
        if self.bad() && self.random.chance(20) {
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
                events.push(Event::StoryReported { attempt, record: next(), story, status, output });
            };
            say(StoryStatus::InProgress);
            if self.random.chance(50) {
                say(StoryStatus::InProgress);
            }
            say(self.random.pick(&[StoryStatus::Completed, StoryStatus::Failed]));
            if self.bad() && self.random.chance(40) {
                let code = self.random.pick(&["AGENT_CRASH", "GIT_CLONE_FAILED", "CONTAINER_OOM", "UNKNOWN_ERROR"]);
                let (attempt, code) = (id.clone(), code.to_owned());
                events.push(Event::ErrorReported { attempt, record: next(), code, message: "oh".to_owned() });
            }
            while self.bad() {
                events.push(refused(id, next()));
            }
            if self.bad() && self.random.chance(30) {
                break;
            }
        }
        if !(self.bad() && self.random.chance(50)) {
            let status = self.random.pick(&[CompletionStatus::Completed, CompletionStatus::Failed]);
            events.push(completion(id, next(), status));
        }
        // Some never end.
        if !(self.bad() && self.random.chance(30)) {
            let mut exit = exit(self.random.pick(&[0, 0, 0, 1, 137]));
            exit.oom_killed = self.bad();
            exit.vanished = self.bad();
            exit.engine_lost = self.bad();
            events.push(ended(id, exit));
        }
        events
    }

    /// What somebody says.
    pub(super) fn text(&mut self) -> String {
        match self.random.below(8) {
            0 if self.wild_texts => "\u{1}".repeat(70_000),
            1 if self.wild_texts => "é".repeat(5000),
            2 if self.wild_texts => " ".to_owned(),
            3 if self.wild_texts => String::new(),
            _ => "no".to_owned(),
        }
    }

    fn diffs(&mut self, stories: usize) -> Vec<DiffSummary> {
        if !self.wild_texts {
            return Vec::new();
        }
        let diff = |random: &mut Random| {
            let files = random.pick(&[0, 1, 20_000]);
            let long = "d/".repeat(if files == 1 { 2000 } else { 10 });
            let mut files_changed: Vec<String> = (0..files).map(|n| format!("{long}{n}")).collect();
            files_changed.extend((files > 0).then(|| " ".to_owned()));
            DiffSummary { lines_added: u64::from(files > 0), lines_removed: 0, files_changed }
        };
        (0..stories).map(|_| diff(&mut self.random)).collect()
    }

    fn collect(&mut self, id: &AttemptId, what: Salvaging) -> Event {
        let view = self.rig.machine.attempt(id).expect("it was started").clone();
        let remains = what == Salvaging::Remains && self.random.chance(60);
        if remains || (self.bad() && self.random.chance(60)) {
            let retryable = self.random.chance(60);
            let cause = self.random.pick(&[Cause::HostError, Cause::ProtocolViolation, Cause::DiskFull]);
            return Event::CollectFailed {
                attempt: id.clone(),
                fault: Fault::new(cause, "no result", retryable),
                salvage: self.random.chance(50).then(|| "refs/salvage".to_owned()),
                nothing_there: self.random.chance(50),
                left_out: self.random.chance(20),
                no_answer: self.random.chance(20),
            };
        }
        if view.review.is_some() {
            return Event::ReviewCollected { attempt: id.clone(), reviewed: Box::new(self.reviewed()) };
        }
        let mut results: Vec<StoryResult> = Vec::new();
        let mut ok: BTreeSet<StoryId> = BTreeSet::new();
        for (key, _) in &view.stories {
            let depends_on = self.rig.machine.story_spec(key).expect("in the plan").depends_on.clone();
            let unmet = depends_on
                .iter()
                .find(|other| view.stories.iter().any(|(own, _)| own == *other) && !ok.contains(&other.id));
            let outcome = match unmet {
                // A hostile one says so all the same.
                Some(other) if !self.random.chance(5) => StoryOutcome::Skipped { because: other.id.clone() },
                _ if self.bad() => match self.random.below(4) {
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
                        let cause = self.random.pick(&causes);
                        let failure = Failure::new(cause, self.text());
                        StoryOutcome::Failed { failure, salvage: None, unsaved: false }
                    }
                },
                _ => {
                    ok.insert(key.id.clone());
                    StoryOutcome::Finished { commit: self.commit() }
                }
            };
            if !(self.bad() && self.random.chance(10)) {
                let mut said = StoryResult { id: key.id.clone(), ..result(1, outcome) };
                if self.wild_texts {
                    let at = self.random.pick(&["2026-02-26T14:28:00Z", "", "yesterday"]).to_owned();
                    said.work_log = vec![WorkLogEntry { at, text: self.text() }; self.random.below(300) as usize];
                }
                results.push(said);
            }
        }
        let tip = (!ok.is_empty() || self.bad()).then(|| self.commit());
        Event::ResultCollected {
            attempt: id.clone(),
            tip,
            stories: results,
            rest: None,
            diffs: self.diffs(view.stories.len()),
            tree: self.random.chance(90).then(|| format!("tree {}", self.random.below(30))),
            kept: Some(format!("refs/kept/{id}")),
        }
    }
}
