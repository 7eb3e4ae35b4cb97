//! Tests of `replay.rs`.

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
    assert!(memory.len() == 0);
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
