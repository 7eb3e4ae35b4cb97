//! Sorts the stories of an attempt by what comes next for them. Pure.

use std::collections::BTreeMap;

use super::attempt::{Attempt, EndReason, FailedStory, FinishedStory, ReportedStory};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::index::StoryIndex;
use crate::verdict::{Cause, CauseClass, Failure};

#[derive(Default)]
pub(super) struct StoryTriage {
    pub(super) finished: Vec<FinishedStory>,
    pub(super) story_failures: Vec<FailedStory>,
    pub(super) machinery_failures: Vec<FailedStory>,
    pub(super) stopped: Vec<FailedStory>,
    pub(super) untried: Vec<StoryIndex>,
    /// The sandbox's own reports.
    pub(super) reported: BTreeMap<StoryIndex, ReportedStory>,
    /// The work directory may have something that no ref on the host has.
    pub(super) has_unsaved_work: bool,
}

impl StoryTriage {
    pub(super) fn failures(&self) -> impl Iterator<Item = &FailedStory> {
        [&self.story_failures, &self.machinery_failures, &self.stopped].into_iter().flatten()
    }

    pub(super) fn failures_mut(&mut self) -> impl Iterator<Item = &mut FailedStory> {
        [&mut self.story_failures, &mut self.machinery_failures, &mut self.stopped].into_iter().flatten()
    }

    pub(super) fn add_failure(&mut self, attempt: &Attempt, story: StoryIndex, failure: Failure) {
        let stopped = matches!(
            attempt.end_reason,
            Some(EndReason::SwarmStopped | EndReason::AdminRetry | EndReason::AdminRollback)
        );
        let group = match failure.cause.class() {
            CauseClass::Story => &mut self.story_failures,
            CauseClass::User if stopped => &mut self.stopped,
            CauseClass::User | CauseClass::Machinery => &mut self.machinery_failures,
        };
        group.push(FailedStory { story, failure });
    }

    /// Sorts stories without an outcome. `failure` explains why they were not reached.
    pub(super) fn add_unreached(&mut self, attempt: &Attempt, stories: &[StoryIndex], failure: Option<Failure>) {
        if stories.is_empty() {
            return;
        }
        let progress =
            !(self.finished.is_empty() && self.story_failures.is_empty() && self.machinery_failures.is_empty());
        let Some(failure) = failure else {
            if progress {
                self.untried.extend(stories);
            } else {
                let failure = Failure::new(Cause::ShimCrash, "the sandbox completed without trying its stories");
                self.machinery_failures.extend(FailedStory::for_all(stories.iter().copied(), &failure));
            }
            return;
        };
        if failure.cause.class() != CauseClass::Story {
            stories.iter().for_each(|story| self.add_failure(attempt, *story, failure.clone()));
            return;
        }
        let in_progress = |story: &StoryIndex| attempt.reported_status(*story) == Some(StoryStatus::InProgress);
        let (blamed, rest): (Vec<StoryIndex>, Vec<StoryIndex>) = stories.iter().copied().partition(in_progress);
        if blamed.is_empty() && !progress {
            self.story_failures.extend(FailedStory::for_all(rest, &failure));
        } else {
            self.story_failures.extend(FailedStory::for_all(blamed, &failure));
            self.untried.extend(rest);
        }
    }
}
