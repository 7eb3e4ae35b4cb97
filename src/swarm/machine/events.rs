//! Takes events in: each goes to its rule, then whatever became ready starts.

use std::time::Duration;

use super::settle::{VerifiedResult, WorkDirSalvage};
use super::state::{Applied, SwarmMachine};
use crate::swarm::effect::Effect;
use crate::swarm::event::Event;

impl SwarmMachine {
    /// Applies an event. `now` is the time since the swarm began; it is truncated to whole milliseconds, as the journal
    /// keeps it, and never goes back.
    ///
    /// An event that is a duplicate, too late, impossible, or about something unknown changes nothing and gives no
    /// effects. Any other gives [`Effect::Persist`] first. [`Effect::Finish`] comes once; after it, only [`Event::Resumed`],
    /// [`Event::OrchestratorAbsent`], [`Event::BranchRewound`] and [`Event::DecisionMade`] have an effect. Removals that were requested before it are
    /// still to be carried out.
    pub fn handle(&mut self, event: &Event, now: Duration) -> Vec<Effect> {
        let late = matches!(
            event,
            Event::Resumed
                | Event::OrchestratorAbsent { .. }
                | Event::DecisionMade { .. }
                | Event::BranchRewound { .. }
        );
        if self.outcome.is_some() && !late {
            return Vec::new();
        }
        let before = self.now;
        self.now = before.max(Duration::from_millis(now.as_millis() as u64));
        self.effects.push(Effect::Persist);
        let ended = self.outcome.is_some() && *event != Event::Resumed;
        if self.apply(event).is_none() {
            self.now = before;
            self.effects.clear();
            return Vec::new();
        }
        self.event_count += 1;
        if ended {
            // Effects on sandboxes are given again when the swarm is resumed.
            self.effects.retain(|effect| matches!(effect, Effect::Persist | Effect::SendAmp(_) | Effect::Announce(_)));
        }
        self.start_ready();
        self.finish_if_done();
        std::mem::take(&mut self.effects)
    }

    fn apply(&mut self, event: &Event) -> Option<Applied> {
        match event {
            Event::Began => self.begin(),
            Event::Resumed => self.resume(),
            Event::StopRequested { level, by } => self.stop(*level, by),
            Event::MachineryFailed { fault } => {
                self.fail_machinery(fault);
                Some(Applied)
            }
            Event::DeadlinePassed => self.fire_deadlines(),
            Event::SandboxCreated { attempt, container, name } => self.on_sandbox_created(attempt, container, name),
            Event::SandboxStarted { attempt } => self.on_sandbox_started(attempt),
            Event::StartDelayed { attempt, reason } => self.on_start_delayed(attempt, reason),
            Event::StartFailed { attempt, fault } => self.on_start_failed(attempt, fault),
            Event::SandboxInspected { attempt, paused, processes } => {
                self.on_sandbox_inspected(attempt, *paused, processes)
            }
            Event::EngineLost { problem } => self.on_engine_lost(problem),
            Event::EngineReconnected => self.on_engine_reconnected(),
            Event::StoryReported { attempt, record_number, story, status, output } => {
                self.on_story_reported(attempt, *record_number, story, *status, output)
            }
            Event::ErrorReported { attempt, record_number, code, message } => {
                self.on_error_reported(attempt, *record_number, code, message)
            }
            Event::CompletionReported { attempt, record_number, status, errors } => {
                self.on_completion_reported(attempt, *record_number, *status, errors)
            }
            Event::RecordRefused { attempt, record_number, reason } => {
                self.on_record_refused(attempt, *record_number, reason)
            }
            Event::SandboxEnded { attempt, exit } => self.on_sandbox_ended(attempt, exit),
            Event::ResultCollected { attempt, tip, stories, leftover, diffs, tree, result_ref } => {
                let result = VerifiedResult {
                    tip: tip.as_ref(),
                    stories,
                    diffs,
                    tree: tree.as_ref(),
                    result_ref: result_ref.as_ref(),
                    leftover: leftover.as_ref(),
                };
                self.on_result_collected(attempt, &result)
            }
            Event::ReviewCollected { attempt, outcome } => self.on_review_collected(attempt, outcome),
            Event::DecisionMade { decision } => self.on_decision_made(decision),
            Event::OrchestratorAbsent { ms } => {
                self.amp.record_absence(Duration::from_millis(*ms), self.now);
                Some(Applied)
            }
            Event::CollectFailed {
                attempt,
                fault,
                salvage_ref,
                work_dir_empty,
                salvage_incomplete,
                depot_timed_out,
            } => {
                let salvage = WorkDirSalvage {
                    reference: salvage_ref.as_deref(),
                    salvaged: salvage_ref.is_some() || *work_dir_empty,
                    complete: !salvage_incomplete,
                    depot_timed_out: *depot_timed_out,
                };
                self.on_collect_failed(attempt, fault, &salvage)
            }
            Event::Merged { attempt, head } => self.on_merged(attempt, head),
            Event::MergeConflicted { attempt, paths, result_ref } => {
                self.on_merge_conflicted(attempt, paths, result_ref)
            }
            Event::MergeFailed { attempt, fault, result_ref } => self.on_merge_failed(attempt, fault, result_ref),
            Event::LandingPrepared { landing, onto, commits, conflict } => {
                self.on_landing_prepared(*landing, onto, commits, conflict.as_ref())
            }
            Event::CheckCollected { attempt, outcome } => self.on_check_collected(attempt, outcome),
            Event::BranchMoved { landing, head } => self.on_branch_moved(*landing, head),
            Event::BranchAdvanced { landing, found } => self.on_branch_advanced(*landing, found),
            Event::BranchRewound { file, head, lost } => self.on_branch_rewound(*file, head, lost),
            Event::LandingFailed { landing, fault } => self.on_landing_failed(*landing, fault),
            Event::SandboxRemoved { attempt } => self.on_sandbox_removed(attempt),
        }
    }
}
