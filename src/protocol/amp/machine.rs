//! What AMP means over time: message ids that are never given twice, acks that are waited for, and agents that say nothing.
//! Pure: the caller gives the time, since the swarm began, and asks what is late.
//!
//! | clock | begins with | is over with | late |
//! |---|---|---|---|
//! | ack | a message that requires one | its ack, or the end of the agent that owes it | `ack_timeout` |
//! | heartbeat | an agent's start, and each word of it in the SSOT | the agent's end, or its being suspended | `heartbeat_timeout` |
//!
//! Each fires once. What was due while nobody ran fires once too, [`SETTLE`] after the swarm is taken up again: by then what
//! the agents said meanwhile has been heard.
//!
//! Used by `swarm/machine/talk.rs`. Must not: know what the messages say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId};

use super::message::{Kind, MsgId};

/// How long agents that ran on while nobody listened are listened to before anything of theirs counts as late.
pub const SETTLE: Duration = Duration::from_secs(5);

/// What is late.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Late {
    /// No ack of this message came.
    Ack(MsgId),
    /// This agent has written nothing.
    Silence(AttemptId),
}

/// The clocks of a swarm's messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The newest milliseconds used in an id of each task.
    newest: BTreeMap<AssignmentId, u64>,
    /// Messages whose ack is waited for, by what it is waited for of.
    acks: BTreeMap<MsgId, (Duration, AttemptId)>,
    /// Agents that are to write, and when their silence is too long.
    agents: BTreeMap<AttemptId, Duration>,
    /// All of these, in the order of their times.
    due: BTreeSet<(Duration, Late)>,
}

impl Conversation {
    /// A new id: of this time in milliseconds since 1970, or of the next that the task has not used.
    pub fn id(&mut self, kind: Kind, task: &AssignmentId, unix_ms: u64) -> MsgId {
        let newest = self.newest.entry(task.clone()).or_default();
        *newest = unix_ms.max(*newest + 1);
        MsgId::new(kind, task.clone(), *newest)
    }

    /// Waits until `by` for the ack that this agent owes.
    pub fn expect(&mut self, message: MsgId, from: &AttemptId, by: Duration) {
        self.due.insert((by, Late::Ack(message.clone())));
        self.acks.insert(message, (by, from.clone()));
    }

    /// The ack came. False where none was waited for any more.
    pub fn acked(&mut self, message: &MsgId) -> bool {
        let Some((by, _)) = self.acks.remove(message) else { return false };
        self.due.remove(&(by, Late::Ack(message.clone())));
        true
    }

    /// The agent began, or wrote something: it has until `by` to write again.
    pub fn wrote(&mut self, agent: &AttemptId, by: Duration) {
        let before = self.agents.insert(agent.clone(), by);
        if let Some(at) = before {
            self.due.remove(&(at, Late::Silence(agent.clone())));
        }
        self.due.insert((by, Late::Silence(agent.clone())));
    }

    /// Whether the agent is one that is to write.
    pub fn listens_to(&self, agent: &AttemptId) -> bool {
        self.agents.contains_key(agent)
    }

    /// The agent will write no more, or is not to: nothing is waited for of it.
    pub fn gone(&mut self, agent: &AttemptId) {
        if let Some(at) = self.agents.remove(agent) {
            self.due.remove(&(at, Late::Silence(agent.clone())));
        }
        let owed: Vec<MsgId> =
            self.acks.iter().filter(|(_, (_, owes))| owes == agent).map(|(message, _)| message.clone()).collect();
        for message in owed {
            self.acked(&message);
        }
    }

    /// Nobody listened until `now`: what was due meanwhile is due when what was said meanwhile has been heard.
    pub fn settle(&mut self, now: Duration) {
        let by = now + SETTLE;
        let missed: Vec<(Duration, Late)> = self.due.iter().take_while(|(at, _)| *at < by).cloned().collect();
        for (at, late) in missed {
            self.due.remove(&(at, late.clone()));
            match &late {
                Late::Ack(message) => self.acks.entry(message.clone()).and_modify(|(at, _)| *at = by),
                // Both are there wherever they are due.
                Late::Silence(agent) => {
                    self.agents.insert(agent.clone(), by);
                    self.due.insert((by, late));
                    continue;
                }
            };
            self.due.insert((by, late));
        }
    }

    /// When the next thing is late.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What is late now; it is waited for no longer.
    pub fn late(&mut self, now: Duration) -> Vec<Late> {
        let mut all = Vec::new();
        while let Some((at, late)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, late.clone()));
            match &late {
                Late::Ack(message) => drop(self.acks.remove(message)),
                Late::Silence(agent) => drop(self.agents.remove(agent)),
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
    fn ids_are_unique_within_one_millisecond_and_when_the_clock_stands() {
        let mut talk = Conversation::default();
        let ids: BTreeSet<MsgId> =
            (0..100).map(|n| talk.id(Kind::ALL[n % 5], &task(1), 1000 + (n as u64) / 50)).collect();
        assert_eq!(ids.len(), 100);
        let times: BTreeSet<u64> = ids.iter().map(MsgId::unix_ms).collect();
        assert_eq!(times.len(), 100, "so that a task's messages have an order");
        assert_eq!(talk.id(Kind::Escalation, &task(2), 1000).unix_ms(), 1000, "another task's");
    }

    #[test]
    fn an_ack_in_time_an_ack_that_is_late_and_an_agent_that_is_gone() {
        let mut talk = Conversation::default();
        let ids: Vec<MsgId> = (1..=3).map(|n| talk.id(Kind::TaskDispatch, &task(n), 1)).collect();
        for (n, id) in ids.iter().enumerate() {
            talk.expect(id.clone(), &agent(n as u32 + 1), at(300));
        }
        assert!(talk.acked(&ids[0]) && !talk.acked(&ids[0]));
        talk.gone(&agent(2));
        assert_eq!(talk.next_deadline(), Some(at(300)));
        assert_eq!(talk.late(at(299)), []);
        assert_eq!(talk.late(at(300)), [Late::Ack(ids[2].clone())]);
        assert_eq!(talk.late(at(9000)), [], "once");
        assert!(!talk.acked(&ids[2]), "too late to count as one that was waited for");
        assert_eq!(talk.next_deadline(), None);
    }

    #[test]
    fn silence_is_counted_from_the_newest_word() {
        let mut talk = Conversation::default();
        talk.wrote(&agent(1), at(1800));
        talk.wrote(&agent(1), at(2000));
        assert_eq!(talk.late(at(1999)), []);
        assert_eq!(talk.late(at(2000)), [Late::Silence(agent(1))]);
        assert!(!talk.listens_to(&agent(1)));
    }

    #[test]
    fn what_was_due_while_nobody_ran_is_due_once_and_after_what_was_said_has_been_heard() {
        let mut talk = Conversation::default();
        let id = talk.id(Kind::TaskDispatch, &task(1), 1);
        talk.expect(id.clone(), &agent(1), at(300));
        talk.wrote(&agent(1), at(1800));
        talk.settle(at(5000));
        assert_eq!(talk.late(at(5000)), []);
        assert_eq!(talk.next_deadline(), Some(at(5000) + SETTLE));
        let mut heard = talk.clone();
        assert!(heard.acked(&id));
        heard.wrote(&agent(1), at(6800));
        assert_eq!(heard.late(at(5005)), []);
        assert_eq!(talk.late(at(5005)), [Late::Ack(id), Late::Silence(agent(1))]);
        assert_eq!(talk.late(at(90000)), []);
    }
}
