//! Work directories that have more than their result.

use super::*;
use crate::swarm::event::Leftover;

#[test]
fn a_leftover_is_reported_and_its_work_dir_removed_if_fully_salvaged() {
    let kept = |left_out| Leftover::Salvaged { reference: "refs/rest".to_owned(), incomplete: left_out };
    for (rest, keep_work) in [(Leftover::Nothing, false), (kept(false), false), (kept(true), true)] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
        rig.handle(sandbox_ended(&id, container_exit(137)));
        let stories = vec![story_result(1, StoryOutcome::NotReached)];
        let mut event = result_collected(&id, None, stories);
        if let Event::ResultCollected { leftover, .. } = &mut event {
            *leftover = Some(rest.clone());
        }
        let effects = rig.handle(event);
        assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work_dir: keep_work });
        let view = rig.machine.story(&key(1)).expect("there");
        let kept: &[&str] = if rest == Leftover::Nothing { &[] } else { &["refs/rest"] };
        assert_eq!(view.salvage_refs, kept);
        assert_eq!(view.failure.as_ref().and_then(|failure| failure.salvage.as_deref()), kept.first().copied());
        assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::Salvaged { .. })), kept.len());
        assert_eq!(
            count_announcements(&effects, |said| matches!(said, Announcement::WorkDirKept { .. })),
            usize::from(keep_work)
        );
    }
}

#[test]
fn a_work_dir_with_an_incomplete_salvage_is_kept() {
    for left_out in [false, true] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        rig.handle(sandbox_ended(&id, container_exit(1)));
        let effects = rig.handle(Event::CollectFailed {
            attempt: id.clone(),
            fault: MachineryFault::new(Cause::HostError, "no result", true),
            salvage_ref: Some("refs/salvage".to_owned()),
            work_dir_empty: false,
            salvage_incomplete: left_out,
            depot_timed_out: false,
        });
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work_dir: left_out }), "{effects:?}");
        assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::Salvaged { .. })), 1);
    }
}

#[test]
fn an_old_journal_without_left_out_reads_as_a_complete_salvage() {
    let read: Leftover = serde_json::from_str(r#"{"rest":"kept","reference":"refs/rest"}"#).expect("it is read");
    assert_eq!(read, Leftover::Salvaged { reference: "refs/rest".to_owned(), incomplete: false });
    assert_eq!(serde_json::to_string(&read).expect("JSON"), r#"{"rest":"kept","reference":"refs/rest"}"#);
}
