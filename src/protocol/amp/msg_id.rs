//! A message's id: `{type}-{task_id}-{unix_ms}`.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::message_type::AmpMessageType;
use crate::ids::AssignmentId;
use crate::json::text::excerpt;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MsgId {
    text: String,
    message_type: AmpMessageType,
    task_id: AssignmentId,
    unix_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be `{{type}}-T-YYYY-NNN-{{unix_ms}}`, found `{0}`")]
pub struct MsgIdError(String);

impl MsgId {
    pub fn new(kind: AmpMessageType, task: AssignmentId, unix_ms: u64) -> Self {
        Self { text: format!("{kind}-{task}-{unix_ms}"), message_type: kind, task_id: task, unix_ms }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn message_type(&self) -> AmpMessageType {
        self.message_type
    }

    pub fn task_id(&self) -> &AssignmentId {
        &self.task_id
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// [`unix_ms`](Self::unix_ms) as a timestamp; the latest one if it is out of range.
    pub fn timestamp(&self) -> Timestamp {
        i64::try_from(self.unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
    }
}

impl FromStr for MsgId {
    type Err = MsgIdError;
    fn from_str(text: &str) -> Result<Self, MsgIdError> {
        let parse = || {
            let (kind, rest) = text.split_once('-')?;
            let (task, unix_ms) = rest.rsplit_once('-')?;
            let is_plain = unix_ms.bytes().all(|b| b.is_ascii_digit()) && !unix_ms.starts_with('0');
            let unix_ms = unix_ms.parse().ok().filter(|_| is_plain)?;
            Some(Self::new(kind.parse().ok()?, task.parse().ok()?, unix_ms))
        };
        parse().ok_or_else(|| MsgIdError(excerpt(text)))
    }
}

impl TryFrom<String> for MsgId {
    type Error = MsgIdError;
    fn try_from(text: String) -> Result<Self, MsgIdError> {
        text.parse()
    }
}

impl From<MsgId> for String {
    fn from(id: MsgId) -> String {
        id.text
    }
}

impl fmt::Display for MsgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for MsgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
