//! AMP over time: unique message ids, ack timeouts and heartbeats. Pure: the caller passes the time since the swarm began.
//!
//! | deadline | starts with | ends with | missed |
//! |---|---|---|---|
//! | ack | a message that requires one | its ack, or the end of the agent that owes it | `ack_timeout` |
//! | heartbeat | an agent's start, and each of its messages in the SSOT | the agent's end or suspension | `heartbeat_timeout` |
//!
//! Each fires once. A deadline that passed while no orchestrator ran fires [`CATCH_UP_PERIOD`] after the swarm is resumed: by then
//! the messages that agents sent in between have been read.
//!
//! Used by `swarm/`. Must not: know the content of messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId};

use super::message::{AmpMessageType, MsgId};

/// How long a resumed swarm reads the backlog of its agents before a deadline counts as missed.
pub const CATCH_UP_PERIOD: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissedDeadline {
    Ack(MsgId),
    Heartbeat(AttemptId),
}

/// The deadlines of a swarm's messages and agents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AmpDeadlines {
    /// The newest milliseconds used in an id, by task.
    last_unix_ms: BTreeMap<AssignmentId, u64>,
    /// Messages without an ack: its deadline, and the agent that owes it.
    acks: BTreeMap<MsgId, (Duration, AttemptId)>,
    /// Running agents, and when their silence is too long.
    heartbeats: BTreeMap<AttemptId, Duration>,
    /// All of the above, by time.
    deadlines: BTreeSet<(Duration, MissedDeadline)>,
}

impl AmpDeadlines {
    /// A new id with this time in milliseconds since 1970, or with the next that the task has not used.
    pub fn next_id(&mut self, kind: AmpMessageType, task: &AssignmentId, unix_ms: u64) -> MsgId {
        let newest = self.last_unix_ms.entry(task.clone()).or_default();
        *newest = unix_ms.max(*newest + 1);
        MsgId::new(kind, task.clone(), *newest)
    }

    /// Expects the ack that the agent owes until `by`.
    pub fn expect_ack(&mut self, message: MsgId, from: &AttemptId, by: Duration) {
        self.deadlines.insert((by, MissedDeadline::Ack(message.clone())));
        self.acks.insert(message, (by, from.clone()));
    }

    /// Records an ack. `false` if it is not expected any more.
    pub fn record_ack(&mut self, message: &MsgId) -> bool {
        let Some((by, _)) = self.acks.remove(message) else { return false };
        self.deadlines.remove(&(by, MissedDeadline::Ack(message.clone())));
        true
    }

    /// Records that the agent started or sent a message. Its next one is due at `by`.
    pub fn record_heartbeat(&mut self, agent: &AttemptId, by: Duration) {
        let before = self.heartbeats.insert(agent.clone(), by);
        if let Some(at) = before {
            self.deadlines.remove(&(at, MissedDeadline::Heartbeat(agent.clone())));
        }
        self.deadlines.insert((by, MissedDeadline::Heartbeat(agent.clone())));
    }

    pub fn expects_heartbeat(&self, agent: &AttemptId) -> bool {
        self.heartbeats.contains_key(agent)
    }

    /// Removes the deadlines of an agent that ended or was suspended.
    pub fn remove_agent(&mut self, agent: &AttemptId) {
        if let Some(at) = self.heartbeats.remove(agent) {
            self.deadlines.remove(&(at, MissedDeadline::Heartbeat(agent.clone())));
        }
        let owed: Vec<MsgId> =
            self.acks.iter().filter(|(_, (_, owes))| owes == agent).map(|(message, _)| message.clone()).collect();
        for message in owed {
            self.record_ack(&message);
        }
    }

    /// Postpones deadlines that passed, or will soon pass, after a time without an orchestrator.
    pub fn postpone_overdue(&mut self, now: Duration) {
        let by = now + CATCH_UP_PERIOD;
        let missed: Vec<(Duration, MissedDeadline)> =
            self.deadlines.iter().take_while(|(at, _)| *at < by).cloned().collect();
        for (at, late) in missed {
            self.deadlines.remove(&(at, late.clone()));
            match &late {
                MissedDeadline::Ack(message) => {
                    if let Some((at, _)) = self.acks.get_mut(message) {
                        *at = by;
                    }
                }
                MissedDeadline::Heartbeat(agent) => drop(self.heartbeats.insert(agent.clone(), by)),
            }
            self.deadlines.insert((by, late));
        }
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Removes and returns the deadlines that are missed at `now`.
    pub fn take_missed(&mut self, now: Duration) -> Vec<MissedDeadline> {
        let mut all = Vec::new();
        while let Some((at, late)) = self.deadlines.first().filter(|(at, _)| *at <= now).cloned() {
            self.deadlines.remove(&(at, late.clone()));
            match &late {
                MissedDeadline::Ack(message) => drop(self.acks.remove(message)),
                MissedDeadline::Heartbeat(agent) => drop(self.heartbeats.remove(agent)),
            }
            all.push(late);
        }
        all
    }
}
