//! Unique ids, missed acks and heartbeats.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId};
use crate::protocol::amp::machine::{AmpDeadlines, CATCH_UP_PERIOD, MissedDeadline};
use crate::protocol::amp::message::{AmpMessageType, MsgId};

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
    let mut deadlines = AmpDeadlines::default();
    let ids: BTreeSet<MsgId> =
        (0..100).map(|n| deadlines.next_id(AmpMessageType::ALL[n % 5], &task(1), 1000 + (n as u64) / 50)).collect();
    assert_eq!(ids.len(), 100);
    let times: BTreeSet<u64> = ids.iter().map(MsgId::unix_ms).collect();
    assert_eq!(times.len(), 100, "so that a task's messages have an order");
    assert_eq!(deadlines.next_id(AmpMessageType::Escalation, &task(2), 1000).unix_ms(), 1000, "another task's");
}

#[test]
fn only_missing_acks_of_live_agents_are_reported_and_once() {
    let mut deadlines = AmpDeadlines::default();
    let ids: Vec<MsgId> = (1..=3).map(|n| deadlines.next_id(AmpMessageType::TaskDispatch, &task(n), 1)).collect();
    for (n, id) in ids.iter().enumerate() {
        deadlines.expect_ack(id.clone(), &agent(n as u32 + 1), at(300));
    }
    assert!(deadlines.record_ack(&ids[0]) && !deadlines.record_ack(&ids[0]));
    deadlines.remove_agent(&agent(2));
    assert_eq!(deadlines.next_deadline(), Some(at(300)));
    assert_eq!(deadlines.take_missed(at(299)), []);
    assert_eq!(deadlines.take_missed(at(300)), [MissedDeadline::Ack(ids[2].clone())]);
    assert_eq!(deadlines.take_missed(at(9000)), [], "once");
    assert!(!deadlines.record_ack(&ids[2]), "too late to count as one that was waited for");
    assert_eq!(deadlines.next_deadline(), None);
}

#[test]
fn heartbeat_timeout_counts_from_the_latest_message() {
    let mut deadlines = AmpDeadlines::default();
    deadlines.record_heartbeat(&agent(1), at(1800));
    deadlines.record_heartbeat(&agent(1), at(2000));
    assert_eq!(deadlines.take_missed(at(1999)), []);
    assert_eq!(deadlines.take_missed(at(2000)), [MissedDeadline::Heartbeat(agent(1))]);
    assert!(!deadlines.expects_heartbeat(&agent(1)));
}

#[test]
fn overdue_deadlines_are_postponed_after_a_resume_and_fire_once() {
    let mut deadlines = AmpDeadlines::default();
    let id = deadlines.next_id(AmpMessageType::TaskDispatch, &task(1), 1);
    deadlines.expect_ack(id.clone(), &agent(1), at(300));
    deadlines.record_heartbeat(&agent(1), at(1800));
    deadlines.postpone_overdue(at(5000));
    assert_eq!(deadlines.take_missed(at(5000)), []);
    assert_eq!(deadlines.next_deadline(), Some(at(5000) + CATCH_UP_PERIOD));
    let mut answered = deadlines.clone();
    assert!(answered.record_ack(&id));
    answered.record_heartbeat(&agent(1), at(6800));
    assert_eq!(answered.take_missed(at(5005)), []);
    assert_eq!(deadlines.take_missed(at(5005)), [MissedDeadline::Ack(id), MissedDeadline::Heartbeat(agent(1))]);
    assert_eq!(deadlines.take_missed(at(90000)), []);
}
