//! What a node has seen: the memory by which a message that comes a second time is told (7.3: replay attacks).
//!
//! Part of the [`GramNode`](super::node::GramNode), so that processing stays pure: what is to be remembered comes with the outcome, and
//! [`ReplayMemory::remember_unseen`] takes it. Must not: grow without end. What is older than the window is refused for its age, and is forgotten
//! here; when it is full all the same, new messages are refused, and none of the old ones is let through again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// One id of a message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayEntry {
    /// Until when it has to be remembered.
    pub expires_at: Timestamp,
    /// Who sent it; empty if nobody made sure.
    pub sender: String,
    /// Its id or nonce.
    pub id: String,
}

/// What a node remembers.
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
    /// One for so many ids.
    pub fn with_capacity(most: usize) -> Self {
        Self { by_id: BTreeMap::new(), by_expiry: BTreeSet::new(), capacity: most }
    }

    /// Whether a message was seen, and still has to be refused.
    pub fn contains(&self, sender: &str, id: &str, now: Timestamp) -> bool {
        self.by_id.get(&(sender.to_owned(), id.to_owned())).is_some_and(|until| *until > now)
    }

    /// Whether there is room for one more.
    pub fn is_full(&self, now: Timestamp) -> bool {
        self.by_expiry.len() >= self.capacity && self.by_expiry.first().is_some_and(|oldest| oldest.expires_at > now)
    }

    /// Takes what an outcome says is to be remembered, and forgets what is over.
    pub fn remember(&mut self, seen: impl IntoIterator<Item = ReplayEntry>, now: Timestamp) {
        while let Some(oldest) = self.by_expiry.first().filter(|oldest| oldest.expires_at <= now).cloned() {
            self.by_expiry.remove(&oldest);
            self.by_id.remove(&(oldest.sender, oldest.id));
        }
        for seen in seen {
            let key = (seen.sender.clone(), seen.id.clone());
            if let Some(until) = self.by_id.insert(key, seen.expires_at) {
                self.by_expiry.remove(&ReplayEntry { expires_at: until, ..seen.clone() });
            }
            self.by_expiry.insert(seen);
        }
    }

    /// Forgets a message that could not be handed on, so that it may be sent again (5.4.6, rule 4).
    pub fn forget(&mut self, seen: &ReplayEntry) {
        if self.by_expiry.remove(seen) {
            self.by_id.remove(&(seen.sender.clone(), seen.id.clone()));
        }
    }

    /// How many ids it has.
    pub fn len(&self) -> usize {
        self.by_expiry.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.by_expiry.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn entry(until: i64, sender: &str, id: &str) -> ReplayEntry {
        ReplayEntry { expires_at: timestamp(until), sender: sender.to_owned(), id: id.to_owned() }
    }

    #[test]
    fn section_7_3_entries_are_known_by_sender_and_id_until_they_expire() {
        let mut memory = ReplayMemory::default();
        memory.remember([entry(10, "a", "1"), entry(20, "b", "1")], timestamp(0));
        assert!(memory.contains("a", "1", timestamp(9)) && memory.contains("b", "1", timestamp(9)));
        assert!(
            !memory.contains("c", "1", timestamp(9))
                && !memory.contains("a", "2", timestamp(9))
                && !memory.contains("a", "1", timestamp(10))
        );
        memory.remember([entry(30, "b", "1")], timestamp(15));
        assert_eq!((memory.len(), memory.contains("b", "1", timestamp(25))), (1, true));
        memory.remember([], timestamp(30));
        assert!(memory.is_empty());
    }

    #[test]
    fn section_5_4_6_a_forgotten_message_may_be_resent() {
        let mut memory = ReplayMemory::default();
        memory.remember([entry(10, "a", "1"), entry(10, "a", "2")], timestamp(0));
        memory.forget(&entry(10, "a", "1"));
        assert!(!memory.contains("a", "1", timestamp(1)) && memory.contains("a", "2", timestamp(1)));
    }

    #[test]
    fn section_7_3_a_full_memory_keeps_entries_until_they_expire() {
        let mut memory = ReplayMemory::with_capacity(2);
        memory.remember([entry(10, "a", "1"), entry(20, "a", "2")], timestamp(0));
        assert!(memory.is_full(timestamp(9)) && !memory.is_full(timestamp(10)));
        memory.remember([entry(30, "a", "3")], timestamp(10));
        assert_eq!(memory.len(), 2);
    }
}
