//! Sets of message numbers and names of shared files.

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
