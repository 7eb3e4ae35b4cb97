//! What the host and the depot tell each other about a swarm's mailbox: what each side has, what it wants, and the limits.
//!
//! A message is identified by its outbox and number, and never changes; a shared file has a stamp that changes with it. Paths are
//! those of the Agent Mailbox Protocol: `ROSTER.md`, `PROTOCOL.md`, `agents/<id>/NNN.md`, `shared/<name>`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocol::mailbox::layout::CLAIM_PREFIX;
use crate::protocol::mailbox::message::MAX_READ_BYTES;
use crate::protocol::mailbox::store::MAX_SHARED_BYTES;

/// How many messages of an outbox are transferred.
pub const MAX_OUTBOX_MESSAGES: usize = 10_000;
/// Limit for a message, in bytes. Senders split messages over 10 KB, but not all do.
pub const MAX_MESSAGE_BYTES: u64 = MAX_READ_BYTES as u64;
/// How many files of `shared` are transferred, including claims.
pub const MAX_SHARED_FILES: usize = 200;
/// Limit for a shared file, in bytes.
pub const MAX_SHARED_FILE_BYTES: u64 = MAX_SHARED_BYTES as u64;
/// Limit for a shared file's name.
pub const MAX_SHARED_NAME_LEN: usize = 100;
/// How many entries of a directory are read.
pub const MAX_DIR_ENTRIES: usize = 20_000;
/// How many files a response has.
pub const MAX_BATCH_FILES: usize = 256;
/// A response ends after this many bytes.
pub const MAX_BATCH_BYTES: u64 = 1024 * 1024;
/// How many refusals are reported in a swarm; later ones are silent.
pub const MAX_REFUSALS: usize = 500;

/// What the host already has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MailQuery {
    /// The messages of each outbox.
    #[serde(rename = "messages")]
    pub known_messages: BTreeMap<String, MessageNumbers>,
    /// The stamps of the shared files.
    #[serde(rename = "shared")]
    pub known_shared: BTreeMap<String, String>,
    /// The [`RefusedMailFile::key`]s of reported refusals.
    #[serde(rename = "refused")]
    pub known_refusals: Vec<String>,
    /// Without news, respond after this time.
    #[serde(rename = "within_ms")]
    pub timeout_ms: u64,
    /// Nobody writes any more, so recent files are complete.
    #[serde(rename = "settled")]
    pub writers_stopped: bool,
}

/// A file that is new to the host; its content is in the response's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMailFile {
    /// `agents/<id>/NNN.md` or `shared/<name>`.
    pub path: String,
    /// The length of the content.
    pub bytes: u64,
    /// Empty for a message.
    pub stamp: String,
}

/// A file that is not transferred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedMailFile {
    /// Invalid characters are replaced with `?`.
    pub path: String,
    /// Identifies the refusal. Another file of the same name has another key.
    pub key: String,
    /// For the log.
    #[serde(rename = "why")]
    pub reason: String,
}

/// A file that the host writes to the mailbox, or removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailFileWrite {
    /// A message is never replaced.
    pub path: String,
    /// `None` removes the file, which must be a shared one.
    pub text: Option<String>,
    /// For a shared file: its current stamp, or empty if it must not exist.
    #[serde(rename = "only_if")]
    pub expected_stamp: String,
}

impl MailFileWrite {
    /// A write that expects no stamp.
    pub fn from_text(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: Some(text.into()), expected_stamp: String::new() }
    }

    /// The size as JSON, which is up to six times that of the text.
    pub fn json_len(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |json| json.len())
    }
}

/// The stamp of a file, which changes whenever the file is replaced or written.
pub fn format_stamp(inode: u64, len: u64, seconds: i64, nanoseconds: i64) -> String {
    format!("{inode:x}.{len:x}.{seconds:x}.{nanoseconds:x}")
}

/// A set of message numbers, stored as ranges. An outbox without gaps is one range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageNumbers(Vec<(u32, u32)>);

impl MessageNumbers {
    /// Returns `false` if the number was in the set.
    pub fn insert(&mut self, number: u32) -> bool {
        // The first range that contains the number, or begins or ends next to it, or lies after it.
        let at = self.0.partition_point(|(_, last)| last.saturating_add(1) < number);
        match self.0.get_mut(at) {
            Some((first, last)) if *first <= number && number <= *last => return false,
            Some((first, _)) if number.checked_add(1) == Some(*first) => *first = number,
            Some((_, last)) if last.checked_add(1) == Some(number) => {
                *last = number;
                if let Some((next, end)) = self.0.get(at + 1).copied()
                    && number.checked_add(1) == Some(next)
                {
                    self.0[at].1 = end;
                    self.0.remove(at + 1);
                }
            }
            _ => self.0.insert(at, (number, number)),
        }
        true
    }

    /// Keeps the numbers that are also in `other`. Returns whether any was removed.
    pub fn intersect_with(&mut self, other: &Self) -> bool {
        if self == other {
            return false;
        }
        let numbers = self.0.iter().flat_map(|(first, last)| *first..=*last);
        let remaining: Self = numbers.filter(|number| other.contains(*number)).collect();
        let removed = remaining.count() < self.count();
        *self = remaining;
        removed
    }

    /// Whether the number is in the set.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// The size of the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// The highest number.
    pub fn last(&self) -> Option<u32> {
        self.0.last().map(|(_, last)| *last)
    }
}

impl FromIterator<u32> for MessageNumbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.insert(number);
        }
        set
    }
}

/// Whether a file of `shared` may have this name: plain characters, and hidden only if it is a claim.
pub fn is_shared_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let hidden = name.starts_with('.') && !name.starts_with(CLAIM_PREFIX);
    !name.is_empty() && name.len() <= MAX_SHARED_NAME_LEN && !hidden && name.bytes().all(plain)
}

#[cfg(test)]
mod tests;
