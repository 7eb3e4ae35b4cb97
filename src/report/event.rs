//! A line of `longshore run --json`: an announcement in its envelope. `longshore schema events` prints its schema.
//!
//! Rules: one JSON object a line; `v` is the version, and a later version only adds fields and types; `seq` counts from 1
//! without gaps. To add a type: see [`Announcement`].

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ids::SwarmId;
use crate::swarm::Announcement;

/// The version of the stream.
pub const EVENT_VERSION: u32 = 1;

/// One line of the stream.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine<'a> {
    /// The version of the stream, [`EVENT_VERSION`].
    pub v: u32,
    /// The line's number in the stream, from 1.
    pub seq: u64,
    /// The time of the event, RFC 3339.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The swarm's id.
    pub swarm: SwarmId,
    /// What happened.
    #[serde(flatten)]
    pub announcement: &'a Announcement,
}
