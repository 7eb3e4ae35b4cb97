//! What an update costs does not grow with the number of stories.

use super::*;

/// Plays a whole swarm and gives the bytes written for each event: journal, and snapshots where the policy wants them.
fn bytes_for_each_event(stories: usize) -> (f64, f64) {
    let mut play = SimulatedSwarm::new(stories);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = SwarmDir::create(folder.path(), spec(1).swarm).expect("created");
    let mut store = SwarmStore::create(dir, &header(stories)).expect("created");
    let (mut journal, mut snapshots, mut events) = (0, 0, 0);
    loop {
        // As the coordinator does: what came together is synced together.
        let batch: Vec<(Event, Duration)> = std::iter::from_fn(|| play.next_event()).take(8).collect();
        if batch.is_empty() {
            break;
        }
        events += batch.len() as u32;
        journal += store.append(&batch, started()).expect("appended");
        if let Some(snapshot) = store.snapshot_if_due(&play.machine, play.now).expect("made") {
            snapshots += snapshot.size();
        }
    }
    (journal as f64 / f64::from(events), snapshots as f64 / f64::from(events))
}

#[test]
fn bytes_per_event_do_not_grow_with_the_story_count() {
    let (small_journal, small_snapshots) = bytes_for_each_event(10);
    let (big_journal, big_snapshots) = bytes_for_each_event(1000);
    println!(
        "10 stories: {small_journal:.0} + {small_snapshots:.0} bytes an event; 1000: {big_journal:.0} + {big_snapshots:.0}"
    );
    assert!(big_journal < small_journal * 1.1, "journal: {small_journal:.0} and {big_journal:.0}");
    let (small, big) = (small_journal + small_snapshots, big_journal + big_snapshots);
    assert!(big < small * 1.25, "all: {small:.0} and {big:.0}");
}

#[test]
fn the_policy_depends_on_size_and_time() {
    let ms = Duration::from_millis;
    let mut policy = SnapshotPolicy::new();
    assert_eq!(policy.due_at(), None);
    policy.record_append(300, ms(5));
    assert_eq!(policy.due_at(), Some(ms(5)), "the first at once");
    policy.record_snapshot(4_000, ms(5));
    assert_eq!(policy.due_at(), None, "nothing new");
    policy.record_append(300, ms(6));
    assert_eq!(policy.due_at(), Some(ms(205)), "a small one at most each 200 ms");
    policy.record_append(300, ms(300));
    assert_eq!(policy.due_at(), Some(ms(205)));
    policy.record_snapshot(640 * 1024, ms(400));
    policy.record_append(300, ms(1_000));
    assert_eq!(policy.due_at(), Some(ms(101_000)), "ten times 64 KB after ten times 10 s");
    policy.record_snapshot(40_000, ms(400));
    policy.record_append(300, ms(1_000));
    assert_eq!(policy.due_at(), Some(ms(11_000)), "a big one after 10 s");
    policy.record_append(9_000, ms(2_000));
    assert_eq!(policy.due_at(), Some(ms(11_000)));
    policy.record_append(700, ms(3_000));
    assert!(policy.due_at().is_some_and(|due| due <= ms(3_000)), "or a quarter of its size");
}
