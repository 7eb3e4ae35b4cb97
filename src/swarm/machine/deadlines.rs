//! The machine's deadlines, each known by its timer. Pure bookkeeping: `timers.rs` has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::swarm::index::{AssignmentIndex, AttemptIndex};

/// What a deadline belongs to. The order decides among deadlines that are due at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Attempt(AttemptIndex),
    AssignmentBackoff(AssignmentIndex),
    AttemptSilence(AttemptIndex),
    EngineReturn,
    /// By the landing's number.
    Landing(u64),
}

/// What an attempt's timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptTimer {
    SandboxTimeout,
    ExitOverdue,
    Grace,
    KillTimeout,
    CollectTimeout,
    CollectRetry,
    ReviewRetry,
    MergeRetry,
}

/// At most one deadline a timer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Deadlines {
    by_timer: BTreeMap<Timer, Duration>,
    by_time: BTreeSet<(Duration, Timer)>,
}

impl Deadlines {
    /// Replaces the timer's deadline, or removes it with `None`.
    pub(super) fn set(&mut self, timer: Timer, due: Option<Duration>) {
        let before = match due {
            Some(due) => {
                self.by_time.insert((due, timer));
                self.by_timer.insert(timer, due)
            }
            None => self.by_timer.remove(&timer),
        };
        if let Some(before) = before.filter(|before| Some(*before) != due) {
            self.by_time.remove(&(before, timer));
        }
    }

    pub(super) fn get(&self, timer: Timer) -> Option<Duration> {
        self.by_timer.get(&timer).copied()
    }

    pub(super) fn contains(&self, timer: Timer) -> bool {
        self.by_timer.contains_key(&timer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_timer.is_empty()
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// The deadlines due at `now`, in order.
    pub(super) fn due(&self, now: Duration) -> Vec<(Duration, Timer)> {
        self.by_time.iter().take_while(|(due, _)| *due <= now).copied().collect()
    }
}
