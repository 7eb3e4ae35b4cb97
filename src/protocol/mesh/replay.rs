//! What a node has seen: the memory by which a message that comes a second time is told (7.3: replay attacks).
//!
//! Part of the [`Node`](super::node::Node), so that processing stays pure: what is to be remembered comes with the outcome, and
//! [`Memory::remember`] takes it. Must not: grow without end. What is older than the window is refused for its age, and is forgotten
//! here; when it is full all the same, new messages are refused, and none of the old ones is let through again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// One id of a message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Until when it has to be remembered.
    pub until: Timestamp,
    /// Who sent it; empty if nobody made sure.
    pub sender: String,
    /// Its id or nonce.
    pub id: String,
}

/// What a node remembers.
#[derive(Debug, Clone)]
pub struct Memory {
    by_id: BTreeMap<(String, String), Timestamp>,
    by_time: BTreeSet<Seen>,
    most: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_room_for(100_000)
    }
}

impl Memory {
    /// One for so many ids.
    pub fn with_room_for(most: usize) -> Self {
        Self { by_id: BTreeMap::new(), by_time: BTreeSet::new(), most }
    }

    /// Whether a message was seen, and still has to be refused.
    pub fn has(&self, sender: &str, id: &str, now: Timestamp) -> bool {
        self.by_id.get(&(sender.to_owned(), id.to_owned())).is_some_and(|until| *until > now)
    }

    /// Whether there is room for one more.
    pub fn is_full(&self, now: Timestamp) -> bool {
        self.by_time.len() >= self.most && self.by_time.first().is_some_and(|oldest| oldest.until > now)
    }

    /// Takes what an outcome says is to be remembered, and forgets what is over.
    pub fn remember(&mut self, seen: impl IntoIterator<Item = Seen>, now: Timestamp) {
        while let Some(oldest) = self.by_time.first().filter(|oldest| oldest.until <= now).cloned() {
            self.by_time.remove(&oldest);
            self.by_id.remove(&(oldest.sender, oldest.id));
        }
        for seen in seen {
            let key = (seen.sender.clone(), seen.id.clone());
            if let Some(until) = self.by_id.insert(key, seen.until) {
                self.by_time.remove(&Seen { until, ..seen.clone() });
            }
            self.by_time.insert(seen);
        }
    }

    /// Forgets a message that could not be handed on, so that it may be sent again (5.4.6, rule 4).
    pub fn forget(&mut self, seen: &Seen) {
        if self.by_time.remove(seen) {
            self.by_id.remove(&(seen.sender.clone(), seen.id.clone()));
        }
    }

    /// How many ids it has.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn seen(until: i64, sender: &str, id: &str) -> Seen {
        Seen { until: at(until), sender: sender.to_owned(), id: id.to_owned() }
    }

    #[test]
    fn section_7_3_what_was_seen_is_known_by_sender_and_id_for_its_time() {
        let mut memory = Memory::default();
        memory.remember([seen(10, "a", "1"), seen(20, "b", "1")], at(0));
        assert!(memory.has("a", "1", at(9)) && memory.has("b", "1", at(9)));
        assert!(!memory.has("c", "1", at(9)) && !memory.has("a", "2", at(9)) && !memory.has("a", "1", at(10)));
        memory.remember([seen(30, "b", "1")], at(15));
        assert_eq!((memory.len(), memory.has("b", "1", at(25))), (1, true));
        memory.remember([], at(30));
        assert!(memory.is_empty());
    }

    #[test]
    fn section_5_4_6_what_could_not_be_handed_on_may_come_again() {
        let mut memory = Memory::default();
        memory.remember([seen(10, "a", "1"), seen(10, "a", "2")], at(0));
        memory.forget(&seen(10, "a", "1"));
        assert!(!memory.has("a", "1", at(1)) && memory.has("a", "2", at(1)));
    }

    #[test]
    fn section_7_3_a_full_memory_lets_nothing_be_forgotten_before_its_time() {
        let mut memory = Memory::with_room_for(2);
        memory.remember([seen(10, "a", "1"), seen(20, "a", "2")], at(0));
        assert!(memory.is_full(at(9)) && !memory.is_full(at(10)));
        memory.remember([seen(30, "a", "3")], at(10));
        assert_eq!(memory.len(), 2);
    }
}
