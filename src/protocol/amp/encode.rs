//! A message as JSON: keys in the spec's order, times with `+00:00` as in its example. What is written reads back equal.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::message::{Ack, AmpMessage, Payload, VERSION};

/// An RFC 3339 date-time in UTC, its offset written `+00:00`.
pub(super) fn serialize_timestamp<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.display_with_offset(Offset::UTC))
}

struct UtcTimestamp(Timestamp);

impl Serialize for UtcTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_timestamp(&self.0, serializer)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Payload::TaskDispatch(dispatch) => dispatch.serialize(serializer),
            Payload::TaskResult(result) => result.serialize(serializer),
            Payload::ReviewRequest(request) => request.serialize(serializer),
            Payload::ReviewVerdict(verdict) => verdict.serialize(serializer),
            Payload::Escalation(escalation) => escalation.serialize(serializer),
        }
    }
}

impl Serialize for AmpMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("msg_id", &self.id)?;
        map.serialize_entry("protocol_version", VERSION)?;
        map.serialize_entry("type", &self.id.message_type())?;
        map.serialize_entry("from", &self.draft.from)?;
        map.serialize_entry("to", &self.draft.to)?;
        map.serialize_entry("task_id", &self.draft.task_id)?;
        map.serialize_entry("timestamp", &UtcTimestamp(self.draft.timestamp))?;
        map.serialize_entry("requires_ack", &self.draft.requires_ack)?;
        if let Some(seconds) = self.draft.ack_timeout_sec {
            map.serialize_entry("ack_timeout_sec", &seconds)?;
        }
        if !self.draft.context_ref.is_empty() {
            map.serialize_entry("context_ref", &self.draft.context_ref)?;
        }
        map.serialize_entry("payload", &self.draft.payload)?;
        map.end()
    }
}

impl AmpMessage {
    /// As it stands in the SSOT: JSON with line breaks, for people too, without one at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are texts and numbers are finite")
    }
}

impl Ack {
    /// As it stands in the SSOT: JSON with line breaks, for people too, without one at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are texts")
    }
}
