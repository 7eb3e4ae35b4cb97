//! The error log: messages that broke a rule, and were not let in. `errors/<year>-<month>.ndjson`, a line each, appended.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::Ssot;
use super::error::SsotResult;
use crate::protocol::amp::rules::AmpViolation;

/// How much of a refused text is kept, in characters.
const MAX_EXCERPT_CHARS: usize = 1000;

/// A message that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedMessage {
    /// When.
    pub at: Timestamp,
    /// Where it came from, in words.
    pub from: String,
    /// The rule that it broke.
    pub rule: String,
    /// Where in it.
    pub field: String,
    /// What is wrong there.
    pub problem: String,
    /// How it began.
    pub excerpt: String,
    /// Of how many bytes that is the beginning.
    pub bytes: u64,
}

impl Ssot {
    /// Notes that a text was refused.
    pub fn log_rejected(&self, text: &str, violation: &AmpViolation, at: Timestamp, from: &str) -> SsotResult<()> {
        let refused = RejectedMessage {
            at,
            from: from.to_owned(),
            rule: violation.rule.to_owned(),
            field: violation.field.clone(),
            problem: violation.problem.clone(),
            excerpt: text.chars().take(MAX_EXCERPT_CHARS).collect(),
            bytes: text.len() as u64,
        };
        let date = at.to_zoned(TimeZone::UTC).date();
        let path = self.files.path(format!("errors/{:04}-{:02}.ndjson", date.year(), date.month()));
        let line = serde_json::to_string(&refused)
            .map_err(|source| super::SsotError::Encode { path: path.clone(), source })?;
        self.files.append_line(&path, &line)
    }

    /// All that was refused, in the order in which it was. Lines that are torn are passed over.
    pub fn rejected_messages(&self) -> SsotResult<Vec<RejectedMessage>> {
        let folder = self.files.path("errors");
        let mut names = self.files.file_names(&folder)?;
        names.retain(|name| name.ends_with(".ndjson"));
        names.sort();
        let mut refused = Vec::new();
        for name in names {
            let bytes = self.files.read(&folder.join(name))?.unwrap_or_default();
            let lines = bytes.split(|byte| *byte == b'\n');
            refused.extend(lines.filter_map(|line| serde_json::from_slice::<RejectedMessage>(line).ok()));
        }
        Ok(refused)
    }
}
