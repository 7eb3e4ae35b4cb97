//! What becomes of a work folder that has more than its result.

use super::*;
use crate::swarm::event::Rest;

fn one() -> (Rig, AttemptId) {
    let (rig, _) = Rig::began(spec(&[&[(1, &[])]]));
    (rig, attempt(1, 1))
}

#[test]
fn what_a_result_lacks_is_told_where_it_was_salvaged_and_its_folder_goes_if_that_is_all() {
    let kept = |left_out| Rest::Kept { reference: "refs/rest".to_owned(), left_out };
    for (rest, keep_work) in [(Rest::Nothing, false), (kept(false), false), (kept(true), true)] {
        let (mut rig, id) = one();
        rig.run(&id);
        rig.give(said(&id, 1, 1, StoryStatus::InProgress));
        rig.give(ended(&id, exit(137)));
        let stories = vec![result(1, StoryOutcome::NotReached)];
        let event = Event::ResultCollected {
            attempt: id.clone(),
            tip: None,
            stories,
            rest: Some(rest.clone()),
            diffs: Vec::new(),
            tree: None,
            kept: None,
        };
        let effects = rig.give(event);
        assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work });
        let view = rig.machine.story(&key(1)).expect("there");
        let kept: &[&str] = if rest == Rest::Nothing { &[] } else { &["refs/rest"] };
        assert_eq!(view.salvaged, kept);
        assert_eq!(view.failure.as_ref().and_then(|failure| failure.salvage.as_deref()), kept.first().copied());
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::Salvaged { .. })), kept.len());
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::WorkKept { .. })), usize::from(keep_work));
    }
}

#[test]
fn a_work_folder_is_kept_where_its_salvage_has_not_all_of_it() {
    for left_out in [false, true] {
        let (mut rig, id) = one();
        rig.run(&id);
        rig.give(ended(&id, exit(1)));
        let effects = rig.give(Event::CollectFailed {
            attempt: id.clone(),
            fault: Fault::new(Cause::HostError, "no result", true),
            salvage: Some("refs/salvage".to_owned()),
            nothing_there: false,
            left_out,
            no_answer: false,
        });
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work: left_out }), "{effects:?}");
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::Salvaged { .. })), 1);
    }
}

#[test]
fn a_journal_from_before_says_of_a_salvage_that_it_has_all() {
    let read: Rest = serde_json::from_str(r#"{"rest":"kept","reference":"refs/rest"}"#).expect("it is read");
    assert_eq!(read, Rest::Kept { reference: "refs/rest".to_owned(), left_out: false });
    assert_eq!(serde_json::to_string(&read).expect("JSON"), r#"{"rest":"kept","reference":"refs/rest"}"#);
}
