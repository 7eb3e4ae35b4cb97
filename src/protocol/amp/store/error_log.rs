//! The log of rejected messages: `errors/<year>-<month>.ndjson`, a line each, appended.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::error::{SsotError, SsotResult};
use super::ssot::Ssot;
use crate::json::text::take_chars;
use crate::protocol::rule::Violation;

const MAX_EXCERPT_CHARS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedMessage {
    pub at: Timestamp,
    /// The origin, as free text.
    pub from: String,
    pub rule: String,
    pub field: String,
    pub problem: String,
    /// The beginning of the message.
    pub excerpt: String,
    /// The length of the whole message.
    pub bytes: u64,
}

impl Ssot {
    pub fn log_rejected(&self, text: &str, violation: &Violation, at: Timestamp, from: &str) -> SsotResult<()> {
        let rejected = RejectedMessage {
            at,
            from: from.to_owned(),
            rule: violation.rule.to_owned(),
            field: violation.field.clone(),
            problem: violation.problem.clone(),
            excerpt: take_chars(text, MAX_EXCERPT_CHARS).to_owned(),
            bytes: text.len() as u64,
        };
        let date = at.to_zoned(TimeZone::UTC).date();
        let path = self.files.path(format!("errors/{:04}-{:02}.ndjson", date.year(), date.month()));
        let line =
            serde_json::to_string(&rejected).map_err(|source| SsotError::Encode { path: path.clone(), source })?;
        self.files.append_line(&path, &line)
    }

    /// All rejected messages, in order. Torn lines are skipped.
    pub fn rejected_messages(&self) -> SsotResult<Vec<RejectedMessage>> {
        let dir = self.files.path("errors");
        let mut names = self.files.file_names(&dir)?;
        names.retain(|name| name.ends_with(".ndjson"));
        names.sort();
        let mut rejected = Vec::new();
        for name in names {
            let bytes = self.files.read(&dir.join(name))?.unwrap_or_default();
            let lines = bytes.split(|byte| *byte == b'\n');
            rejected.extend(lines.filter_map(|line| serde_json::from_slice::<RejectedMessage>(line).ok()));
        }
        Ok(rejected)
    }
}
