//! What AMP means over time: message ids that are never given twice, acks that are waited for, and agents that say nothing.
//! Pure: the caller gives the time, since the swarm began, and asks what is late.
//!
//! | clock | begins with | is over with | late |
//! |---|---|---|---|
//! | ack | a message that requires one | its ack, or the end of the agent that owes it | `ack_timeout` |
//! | heartbeat | an agent's start, and each word of it in the SSOT | the agent's end, or its being suspended | `heartbeat_timeout` |
//!
//! Each fires once. What was due while nobody ran fires once too, [`CATCH_UP_PERIOD`] after the swarm is taken up again: by then what
//! the agents said meanwhile has been heard.
//!
//! Used by `swarm/machine/talk.rs`. Must not: know what the messages say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId};

use super::message::{AmpMessageType, MsgId};

/// How long agents that ran on while nobody listened are listened to before anything of theirs counts as late.
pub const CATCH_UP_PERIOD: Duration = Duration::from_secs(5);

/// What is late.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissedDeadline {
    /// No ack of this message came.
    Ack(MsgId),
    /// This agent has written nothing.
    Heartbeat(AttemptId),
}

/// The clocks of a swarm's messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AmpDeadlines {
    /// The newest milliseconds used in an id of each task.
    last_unix_ms: BTreeMap<AssignmentId, u64>,
    /// Messages whose ack is waited for, by what it is waited for of.
    acks: BTreeMap<MsgId, (Duration, AttemptId)>,
    /// Agents that are to write, and when their silence is too long.
    heartbeats: BTreeMap<AttemptId, Duration>,
    /// All of these, in the order of their times.
    deadlines: BTreeSet<(Duration, MissedDeadline)>,
}

impl AmpDeadlines {
    /// A new id: of this time in milliseconds since 1970, or of the next that the task has not used.
    pub fn next_id(&mut self, kind: AmpMessageType, task: &AssignmentId, unix_ms: u64) -> MsgId {
        let newest = self.last_unix_ms.entry(task.clone()).or_default();
        *newest = unix_ms.max(*newest + 1);
        MsgId::new(kind, task.clone(), *newest)
    }

    /// Waits until `by` for the ack that this agent owes.
    pub fn expect_ack(&mut self, message: MsgId, from: &AttemptId, by: Duration) {
        self.deadlines.insert((by, MissedDeadline::Ack(message.clone())));
        self.acks.insert(message, (by, from.clone()));
    }

    /// The ack came. False where none was waited for any more.
    pub fn record_ack(&mut self, message: &MsgId) -> bool {
        let Some((by, _)) = self.acks.remove(message) else { return false };
        self.deadlines.remove(&(by, MissedDeadline::Ack(message.clone())));
        true
    }

    /// The agent began, or wrote something: it has until `by` to write again.
    pub fn record_heartbeat(&mut self, agent: &AttemptId, by: Duration) {
        let before = self.heartbeats.insert(agent.clone(), by);
        if let Some(at) = before {
            self.deadlines.remove(&(at, MissedDeadline::Heartbeat(agent.clone())));
        }
        self.deadlines.insert((by, MissedDeadline::Heartbeat(agent.clone())));
    }

    /// Whether the agent is one that is to write.
    pub fn expects_heartbeat(&self, agent: &AttemptId) -> bool {
        self.heartbeats.contains_key(agent)
    }

    /// The agent will write no more, or is not to: nothing is waited for of it.
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

    /// Nobody listened until `now`: what was due meanwhile is due when what was said meanwhile has been heard.
    pub fn postpone_overdue(&mut self, now: Duration) {
        let by = now + CATCH_UP_PERIOD;
        let missed: Vec<(Duration, MissedDeadline)> =
            self.deadlines.iter().take_while(|(at, _)| *at < by).cloned().collect();
        for (at, late) in missed {
            self.deadlines.remove(&(at, late.clone()));
            match &late {
                MissedDeadline::Ack(message) => self.acks.entry(message.clone()).and_modify(|(at, _)| *at = by),
                // Both are there wherever they are due.
                MissedDeadline::Heartbeat(agent) => {
                    self.heartbeats.insert(agent.clone(), by);
                    self.deadlines.insert((by, late));
                    continue;
                }
            };
            self.deadlines.insert((by, late));
        }
    }

    /// When the next thing is late.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// What is late now; it is waited for no longer.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32) -> AssignmentId {
        AssignmentId::new(2026, number)
    }

    fn agent(number: u32) -> AttemptId {
        AttemptId { assignment: task(number), number: 1 }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ids_are_unique_within_one_millisecond_and_when_the_clock_stops() {
        let mut talk = AmpDeadlines::default();
        let ids: BTreeSet<MsgId> =
            (0..100).map(|n| talk.next_id(AmpMessageType::ALL[n % 5], &task(1), 1000 + (n as u64) / 50)).collect();
        assert_eq!(ids.len(), 100);
        let times: BTreeSet<u64> = ids.iter().map(MsgId::unix_ms).collect();
        assert_eq!(times.len(), 100, "so that a task's messages have an order");
        assert_eq!(talk.next_id(AmpMessageType::Escalation, &task(2), 1000).unix_ms(), 1000, "another task's");
    }

    #[test]
    fn only_missing_acks_of_live_agents_are_reported_and_once() {
        let mut talk = AmpDeadlines::default();
        let ids: Vec<MsgId> = (1..=3).map(|n| talk.next_id(AmpMessageType::TaskDispatch, &task(n), 1)).collect();
        for (n, id) in ids.iter().enumerate() {
            talk.expect_ack(id.clone(), &agent(n as u32 + 1), at(300));
        }
        assert!(talk.record_ack(&ids[0]) && !talk.record_ack(&ids[0]));
        talk.remove_agent(&agent(2));
        assert_eq!(talk.next_deadline(), Some(at(300)));
        assert_eq!(talk.take_missed(at(299)), []);
        assert_eq!(talk.take_missed(at(300)), [MissedDeadline::Ack(ids[2].clone())]);
        assert_eq!(talk.take_missed(at(9000)), [], "once");
        assert!(!talk.record_ack(&ids[2]), "too late to count as one that was waited for");
        assert_eq!(talk.next_deadline(), None);
    }

    #[test]
    fn heartbeat_timeout_counts_from_the_latest_message() {
        let mut talk = AmpDeadlines::default();
        talk.record_heartbeat(&agent(1), at(1800));
        talk.record_heartbeat(&agent(1), at(2000));
        assert_eq!(talk.take_missed(at(1999)), []);
        assert_eq!(talk.take_missed(at(2000)), [MissedDeadline::Heartbeat(agent(1))]);
        assert!(!talk.expects_heartbeat(&agent(1)));
    }

    #[test]
    fn overdue_deadlines_are_postponed_after_a_resume_and_fire_once() {
        let mut talk = AmpDeadlines::default();
        let id = talk.next_id(AmpMessageType::TaskDispatch, &task(1), 1);
        talk.expect_ack(id.clone(), &agent(1), at(300));
        talk.record_heartbeat(&agent(1), at(1800));
        talk.postpone_overdue(at(5000));
        assert_eq!(talk.take_missed(at(5000)), []);
        assert_eq!(talk.next_deadline(), Some(at(5000) + CATCH_UP_PERIOD));
        let mut heard = talk.clone();
        assert!(heard.record_ack(&id));
        heard.record_heartbeat(&agent(1), at(6800));
        assert_eq!(heard.take_missed(at(5005)), []);
        assert_eq!(talk.take_missed(at(5005)), [MissedDeadline::Ack(id), MissedDeadline::Heartbeat(agent(1))]);
        assert_eq!(talk.take_missed(at(90000)), []);
    }
}
