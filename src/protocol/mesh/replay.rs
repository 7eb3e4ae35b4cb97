//! Replay memory: the message ids that a node has seen (7.3).
//!
//! Part of the [`Node`](super::node::Node), so that processing stays pure: the outcome carries the new entries, and the caller
//! passes them to [`ReplayMemory::remember`]. Bounded: when full, the node refuses new messages rather than forget old ones.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// Id of an accepted message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayEntry {
    pub expires_at: Timestamp,
    /// Verified sender; empty if unverified.
    pub sender: String,
    /// Message id or nonce.
    pub id: String,
}

#[derive(Debug, Clone)]
pub struct ReplayMemory {
    by_id: BTreeMap<(String, String), Timestamp>,
    by_expiry: BTreeSet<ReplayEntry>,
    capacity: usize,
}

impl Default for ReplayMemory {
    fn default() -> Self {
        Self::with_capacity(100_000)
    }
}

impl ReplayMemory {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { by_id: BTreeMap::new(), by_expiry: BTreeSet::new(), capacity }
    }

    /// Whether a message was seen and has not expired.
    pub fn contains(&self, sender: &str, id: &str, now: Timestamp) -> bool {
        self.by_id.get(&(sender.to_owned(), id.to_owned())).is_some_and(|until| *until > now)
    }

    /// Whether no expired entry could make room for a new one.
    pub fn is_full(&self, now: Timestamp) -> bool {
        self.by_expiry.len() >= self.capacity && self.by_expiry.first().is_some_and(|oldest| oldest.expires_at > now)
    }

    /// Adds the entries of an outcome and drops expired ones.
    pub fn remember(&mut self, entries: impl IntoIterator<Item = ReplayEntry>, now: Timestamp) {
        while let Some(oldest) = self.by_expiry.first().filter(|oldest| oldest.expires_at <= now).cloned() {
            self.by_expiry.remove(&oldest);
            self.by_id.remove(&(oldest.sender, oldest.id));
        }
        for entry in entries {
            let key = (entry.sender.clone(), entry.id.clone());
            if let Some(until) = self.by_id.insert(key, entry.expires_at) {
                self.by_expiry.remove(&ReplayEntry { expires_at: until, ..entry.clone() });
            }
            self.by_expiry.insert(entry);
        }
    }

    /// Removes a message that could not be delivered, so that it may be resent (5.4.6, rule 4).
    pub fn forget(&mut self, entry: &ReplayEntry) {
        if self.by_expiry.remove(entry) {
            self.by_id.remove(&(entry.sender.clone(), entry.id.clone()));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_expiry.len()
    }
}

#[cfg(test)]
#[path = "tests/replay.rs"]
mod tests;
