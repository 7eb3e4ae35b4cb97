//! What host and depot say to each other of a swarm's mailbox: what one has, what the other wants, and how much is carried.
//!
//! A message is known by its outbox and number, and never changes; a shared file by a stamp that changes with it. Paths are
//! those of the Agent Mailbox Protocol: `ROSTER.md`, `PROTOCOL.md`, `agents/<id>/NNN.md`, `shared/<name>`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::depot::frames::MAX_PAYLOAD;
use crate::protocol::mailbox::message::MAX_READ_BYTES;
use crate::protocol::mailbox::store::MAX_SHARED_BYTES;

/// What claims' names begin with.
pub const CLAIM_PREFIX: &str = ".claim-";

/// The most messages of one outbox that are carried.
pub const MAX_OUTBOX_MESSAGES: usize = 10_000;
/// The largest message that is carried, in bytes. The protocol has a sender split what is over 10 KB.
pub const MAX_MESSAGE_BYTES: u64 = MAX_READ_BYTES as u64;
/// The most files in `shared` that are carried, claims among them.
pub const MAX_SHARED_FILES: usize = 200;
/// The largest of them, in bytes.
pub const MAX_SHARED_FILE_BYTES: u64 = MAX_SHARED_BYTES as u64;
/// The longest name of one.
pub const MAX_SHARED_NAME_LEN: usize = 100;
/// The most entries of a folder that are looked at.
pub const MAX_DIR_ENTRIES: usize = 20_000;
/// The most files in one answer.
pub const MAX_BATCH_FILES: usize = 256;
/// So many bytes end an answer.
pub const MAX_BATCH_BYTES: u64 = 1024 * 1024;
/// The most refusals that are told of one swarm; what comes then is not carried either, and nobody hears of it.
pub const MAX_REFUSALS: usize = 500;

/// The most bytes of files that are put at once, as JSON: a request is one frame.
pub const MAX_PUT_BYTES: usize = MAX_PAYLOAD - 64 * 1024;

/// What the host wants to hear of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MailQuery {
    /// The messages that the host has.
    #[serde(rename = "messages")]
    pub known_messages: BTreeMap<String, MessageNumbers>,
    /// The shared files that it has, with their stamps.
    #[serde(rename = "shared")]
    pub known_shared: BTreeMap<String, String>,
    /// The [`RefusedMailFile::key`]s of what it has heard of.
    #[serde(rename = "refused")]
    pub known_refusals: Vec<String>,
    /// Answer after so long at the latest, with nothing.
    #[serde(rename = "within_ms")]
    pub timeout_ms: u64,
    /// Nobody writes any more: what was written a moment ago is whole.
    #[serde(rename = "settled")]
    pub writers_stopped: bool,
}

/// A file that the host has not; its content is in the answer's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMailFile {
    /// `agents/<id>/NNN.md` or `shared/<name>`.
    pub path: String,
    /// The length of its content.
    pub bytes: u64,
    /// Of a shared file: what it is known by.
    pub stamp: String,
}

/// What is not carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedMailFile {
    /// Which; characters that are none of a name are shown as `?`.
    pub path: String,
    /// What this refusal is known by. Another file of the same name is looked at anew.
    pub key: String,
    /// Why.
    #[serde(rename = "why")]
    pub reason: String,
}

/// A file of the host's for the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailFileWrite {
    /// As in the mailbox. A message is never replaced.
    pub path: String,
    /// Its content; none: it is removed, which a shared file alone can be.
    pub text: Option<String>,
    /// Of a shared file: only where it has this stamp, which is empty where it must not be there.
    #[serde(rename = "only_if")]
    pub expected_stamp: String,
}

impl MailFileWrite {
    /// Its size as JSON, in bytes: control characters have six.
    pub fn json_len(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |json| json.len())
    }
}

/// A set of message numbers, as ranges: an outbox without gaps is one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageNumbers(Vec<(u32, u32)>);

impl MessageNumbers {
    /// Adds one; false where it was in.
    pub fn insert(&mut self, number: u32) -> bool {
        // The first range that ends at or after the number's left neighbour.
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

    /// Keeps what is in the other too. Whether something was not.
    pub fn intersect_with(&mut self, other: &Self) -> bool {
        if self == other {
            return false;
        }
        let kept: Self =
            self.0.iter().flat_map(|(first, last)| *first..=*last).filter(|n| other.contains(*n)).collect();
        let lost = kept.count() < self.count();
        *self = kept;
        lost
    }

    /// Whether it is in.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// The highest.
    pub fn last(&self) -> Option<u32> {
        self.0.last().map(|(_, last)| *last)
    }
}

impl FromIterator<u32> for MessageNumbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut all = Self::default();
        for number in numbers {
            all.insert(number);
        }
        all
    }
}

/// Whether a file of `shared` may have this name: plain characters, and hidden ones only where they are claims.
pub fn is_shared_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let hidden = name.starts_with('.') && !name.starts_with(CLAIM_PREFIX);
    !name.is_empty() && name.len() <= MAX_SHARED_NAME_LEN && !hidden && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_numbers_are_stored_as_merged_ranges() {
        let mut numbers = MessageNumbers::default();
        let order = [5, 7, 6, 1, 2, 9, 3, u32::MAX, 4, 8, u32::MAX - 1];
        for (place, number) in order.into_iter().enumerate() {
            assert!(!numbers.contains(number) && numbers.insert(number) && !numbers.insert(number), "{number}");
            assert!(order[..=place].iter().all(|known| numbers.contains(*known)));
            assert_eq!(numbers.count(), place + 1);
        }
        assert_eq!(numbers.0, [(1, 9), (u32::MAX - 1, u32::MAX)]);
        assert!(!numbers.contains(10) && numbers.last() == Some(u32::MAX));
        assert!(
            !numbers.intersect_with(&numbers.clone())
                && !numbers.intersect_with(&[u32::MAX, u32::MAX - 1].into_iter().chain(1..12).collect())
        );
        assert!(numbers.intersect_with(&[2, 3, 11, u32::MAX].into_iter().collect()));
        assert_eq!(numbers.0, [(2, 3), (u32::MAX, u32::MAX)]);
    }

    #[test]
    fn is_shared_name_accepts_plain_names_and_claims() {
        assert!(is_shared_name("STATE.md") && is_shared_name(".claim-STATE-alpha"));
        assert!(!is_shared_name(".tmp") && !is_shared_name("a/b") && !is_shared_name("") && !is_shared_name(".."));
    }
}
