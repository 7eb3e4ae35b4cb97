//! What the tests here speak of: agents, numbers, a time.

use jiff::Timestamp;

use super::message::{AgentId, Seq};
use super::text::parse_time;

pub fn id(text: &str) -> AgentId {
    text.parse().expect("an id")
}

pub fn seq(number: u32) -> Seq {
    Seq::new(number).expect("a number")
}

pub fn now() -> Timestamp {
    parse_time("2026-02-19T11:32:15").expect("a time")
}
