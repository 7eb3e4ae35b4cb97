//! What a node has taken, so that it takes nothing twice (7.3: replay attacks).
//!
//! Kept by `station.rs` beside its node. What a frame is known by, and until when, comes with the outcome of `process`; what is older
//! than that is refused for its age, and need not be remembered. Must not: grow without end; when it is full of what still counts,
//! a new frame is not taken, as one that is forgotten could come again.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;

use super::super::replay::Seen;

/// How many frames a node remembers, unless it is told otherwise.
pub const REMEMBERED: usize = 100_000;

/// Why a frame is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It came before.
    Again,
    /// There is no more room.
    Full,
}

/// The frames that a node has taken.
#[derive(Debug)]
pub struct Memory {
    limit: usize,
    by_end: BTreeSet<Seen>,
    known: HashSet<(String, String)>,
}

impl Memory {
    /// Room for so many.
    pub fn new(limit: usize) -> Self {
        Self { limit, by_end: BTreeSet::new(), known: HashSet::new() }
    }

    /// Remembers a frame, if it is new.
    pub fn take(&mut self, seen: &Seen, now: Timestamp) -> Result<(), Refused> {
        while self.by_end.first().is_some_and(|first| first.until < now) {
            if let Some(Seen { sender, id, .. }) = self.by_end.pop_first() {
                self.known.remove(&(sender, id));
            }
        }
        let key = (seen.sender.clone(), seen.id.clone());
        if self.known.contains(&key) {
            return Err(Refused::Again);
        }
        if self.known.len() >= self.limit {
            return Err(Refused::Full);
        }
        self.known.insert(key);
        self.by_end.insert(seen.clone());
        Ok(())
    }

    /// Forgets a frame that could not be handed on: its sender may send it again (5.4.6, rule 4).
    pub fn forget(&mut self, seen: &Seen) {
        self.known.remove(&(seen.sender.clone(), seen.id.clone()));
        self.by_end.remove(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: &str, until: i64) -> Seen {
        Seen { until: at(until), sender: "agent://a".to_owned(), id: id.to_owned() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn section_7_3_what_came_before_is_not_taken_again_while_it_counts() {
        let mut memory = Memory::new(10);
        assert_eq!(memory.take(&seen("1", 100), at(0)), Ok(()));
        assert_eq!(memory.take(&seen("1", 200), at(100)), Err(Refused::Again));
        let other = Seen { sender: "agent://b".to_owned(), ..seen("1", 100) };
        assert_eq!(memory.take(&other, at(0)), Ok(()));
        assert_eq!(memory.take(&seen("1", 300), at(101)), Ok(()));
        assert_eq!((memory.known.len(), memory.by_end.len()), (1, 1));
    }

    #[test]
    fn it_never_grows_and_never_forgets_what_counts() {
        let mut memory = Memory::new(2);
        assert_eq!(memory.take(&seen("1", 100), at(0)), Ok(()));
        assert_eq!(memory.take(&seen("2", 200), at(0)), Ok(()));
        assert_eq!(memory.take(&seen("3", 100), at(0)), Err(Refused::Full));
        assert_eq!(memory.take(&seen("1", 100), at(0)), Err(Refused::Again));
        assert_eq!(memory.take(&seen("3", 300), at(150)), Ok(()));
        assert_eq!(memory.take(&seen("2", 200), at(150)), Err(Refused::Again));
    }

    #[test]
    fn section_5_4_6_what_could_not_be_handed_on_may_come_again() {
        let mut memory = Memory::new(1);
        assert_eq!(memory.take(&seen("1", 100), at(0)), Ok(()));
        memory.forget(&seen("1", 100));
        assert_eq!(memory.take(&seen("1", 100), at(0)), Ok(()));
    }
}
