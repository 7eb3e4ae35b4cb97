//! Starting, merging and closing.

use super::*;
use crate::swarm::effect::CollectMode;
use crate::swarm::machine::diagnosis::previous_failure_text;
use crate::tasks::DoneStatus;

#[test]
fn a_story_runs_from_start_to_merge() {
    let (mut rig, effects) = MachineHarness::begun(spec(&[&[(1, &[])]]));
    let id = attempt(1, 1);
    assert_eq!(
        effects,
        [
            Effect::Announce(Announcement::SwarmStarted { stories: 1, done: 0, assignments: 1, max_sandboxes: 2 }),
            Effect::Announce(Announcement::SandboxStarting { attempt: id.clone(), stories: vec![story_ref(1)] }),
            Effect::Start { attempt: id.clone(), stories: vec![(key(1), None)], guidance: Vec::new(), base: commit(1) },
        ]
    );
    rig.start_sandbox(&id);
    assert_eq!(rig.status(1), StoryStatus::Pending);
    let effects = rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    let (story, title) = (story_ref(1), rig.machine.spec().stories[0].title.clone());
    assert_eq!(effects, [Effect::Announce(Announcement::StoryStarted { story, title, attempt: id.clone() })]);
    assert_eq!(rig.status(1), StoryStatus::InProgress);
    let effects = rig.handle(story_reported(&id, 2, 1, StoryStatus::InProgress));
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::StoryProgress { .. })), 1);
    let effects = rig.handle(story_reported(&id, 3, 1, StoryStatus::Completed));
    assert_eq!(effects, [Effect::Announce(Announcement::StoryFinished { story: story_ref(1) })]);
    assert_eq!(rig.status(1), StoryStatus::InProgress, "only landing completes a story");
    assert_eq!(rig.handle(completion_reported(&id, 4, CompletionStatus::Completed)), []);
    let effects = rig.handle(sandbox_ended(&id, container_exit(0)));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), mode: CollectMode::Result }));
    let effects = rig.handle(result_collected(&id, Some(9), vec![finished_story(1)]));
    assert_eq!(
        effects,
        [
            Effect::Remove { attempt: id.clone(), keep_work_dir: false },
            Effect::Merge {
                attempt: id.clone(),
                file: 0,
                onto: commit(1),
                base: commit(1),
                tip: commit(9),
                stories: vec![key(1)]
            },
        ]
    );
    let effects = rig.handle(Event::Merged { attempt: id.clone(), head: commit(10) });
    assert_eq!(effects.len(), 3, "landed, ended, finish: {effects:?}");
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Landed));
    assert_eq!(rig.machine.head(0), &commit(10));
    let view = rig.machine.story(&key(1)).expect("there");
    assert_eq!((view.status, view.commit.clone(), view.attempts), (StoryStatus::Completed, Some(commit(101)), 1));
    rig.assert_ignored(Event::SandboxRemoved { attempt: id });
    rig.assert_ignored(Event::Began);
    rig.assert_ignored(Event::Resumed);
    assert_eq!(rig.machine.next_deadline(), None);
    rig.replay_journal();
}

#[test]
fn dependents_start_only_from_the_merged_head() {
    let (mut rig, effects) = MachineHarness::begun(spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[1, 2])]]));
    assert_eq!(started_attempts(&effects), [attempt(1, 1), attempt(2, 1)]);
    assert_eq!(started_attempts(&rig.run_and_land(&attempt(1, 1), &[1], 11)), []);
    let effects = rig.run_and_land(&attempt(2, 1), &[2], 12);
    assert!(effects.contains(&Effect::Start {
        attempt: attempt(3, 1),
        stories: vec![(key(3), None)],
        guidance: Vec::new(),
        base: commit(12)
    }));
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(3, 1), &[3], 13)), Some(SwarmOutcome::Landed));
    rig.replay_journal();
}

#[test]
fn priority_then_plan_order_decides_and_a_slot_frees_when_the_sandbox_ends() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])], &[(4, &[])]]);
    plan.limits.max_sandboxes = 1;
    plan.assignments[2].priority = 0;
    let (mut rig, effects) = MachineHarness::begun(plan);
    assert_eq!(started_attempts(&effects), [attempt(3, 1)]);
    let effects = rig.run_to_completion(&attempt(3, 1));
    assert_eq!(started_attempts(&effects), [attempt(1, 1)], "while the result is collected");
}

#[test]
fn exclusive_assignments_wait_for_the_merge() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])]]);
    plan.limits.max_sandboxes = 3;
    plan.assignments[0].exclusive_with = vec![assignment(2)];
    let (mut rig, effects) = MachineHarness::begun(plan);
    assert_eq!(started_attempts(&effects), [attempt(1, 1), attempt(3, 1)], "the second is passed over");
    rig.run_to_completion(&attempt(1, 1));
    let effects = rig.handle(result_collected(&attempt(1, 1), Some(9), vec![finished_story(1)]));
    assert_eq!(started_attempts(&effects), []);
    let effects = rig.handle(Event::Merged { attempt: attempt(1, 1), head: commit(20) });
    assert!(effects.contains(&Effect::Start {
        attempt: attempt(2, 1),
        stories: vec![(key(2), None)],
        guidance: Vec::new(),
        base: commit(20)
    }));
}

#[test]
fn merges_onto_one_branch_are_serialized() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[])], &[(2, &[])]]));
    rig.run_to_completion(&attempt(1, 1));
    rig.run_to_completion(&attempt(2, 1));
    rig.handle(result_collected(&attempt(2, 1), Some(8), vec![finished_story(2)]));
    let effects = rig.handle(result_collected(&attempt(1, 1), Some(9), vec![finished_story(1)]));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Merge { .. })));
    rig.assert_ignored(Event::Merged { attempt: attempt(1, 1), head: commit(20) });
    let effects = rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(21) });
    let merge = Effect::Merge {
        attempt: attempt(1, 1),
        file: 0,
        onto: commit(21),
        base: commit(1),
        tip: commit(9),
        stories: vec![key(1)],
    };
    assert!(effects.contains(&merge), "{effects:?}");
}

#[test]
fn files_on_one_branch_share_its_head_and_merge_queue() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])]]);
    plan.files.push(TasksFileSpec { slug: "b".to_owned(), ..plan.files[0].clone() });
    let other = StoryKey { file: 1, id: story_id(2) };
    plan.stories[1].key = other.clone();
    plan.assignments[1].file = 1;
    plan.assignments[1].stories = vec![other];
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.run_to_completion(&attempt(1, 1));
    rig.run_to_completion(&attempt(2, 1));
    rig.handle(result_collected(&attempt(1, 1), Some(8), vec![finished_story(1)]));
    rig.handle(result_collected(&attempt(2, 1), Some(9), vec![finished_story(2)]));
    rig.handle(Event::Merged { attempt: attempt(1, 1), head: commit(21) });
    assert_eq!(rig.machine.head(1), &commit(21));
    let effects = rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(22) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Landed));
}

#[test]
fn a_failed_story_skips_each_transitive_dependent_once() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[1])], &[(3, &[2, 1])], &[(4, &[])], &[(5, &[4, 3])]]);
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.run_to_completion(&attempt(1, 1));
    let effects = rig.handle(result_collected(&attempt(1, 1), None, vec![failed_story(1, Cause::NoChanges)]));
    let skipped: Vec<&StoryKey> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Announce(Announcement::StorySkipped { story, blocked_by: because }) => {
                assert_eq!(*because, story_ref(1));
                Some(&story.key)
            }
            _ => None,
        })
        .collect();
    assert_eq!(skipped, [&key(2), &key(3), &key(5)]);
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::StoryFailed { .. })), 1);
    assert_eq!(rig.cause(5), Some(Cause::DependencyFailed));
    let effects = rig.run_and_land(&attempt(4, 1), &[4], 30);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    let ended = Announcement::SwarmEnded {
        outcome: SwarmOutcome::SomeFailed,
        exit_code: 1,
        landed: 1,
        failed: 1,
        skipped: 3,
        pending: 0,
    };
    assert!(effects.contains(&Effect::Announce(ended)));
    rig.replay_journal();
}

#[test]
fn done_stories_are_not_run_and_unblock_their_dependents() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[1])], &[(3, &[])]]);
    plan.stories[0].done = Some(DoneStatus::Completed);
    plan.stories[2].done = Some(DoneStatus::Skipped);
    plan.assignments.remove(2);
    plan.assignments.remove(0);
    let (mut rig, effects) = MachineHarness::begun(plan);
    assert_eq!(started_attempts(&effects), [attempt(2, 1)]);
    let effects = rig.run_and_land(&attempt(2, 1), &[2], 30);
    let ended = Announcement::SwarmEnded {
        outcome: SwarmOutcome::Landed,
        exit_code: 0,
        landed: 2,
        failed: 0,
        skipped: 1,
        pending: 0,
    };
    assert!(effects.contains(&Effect::Announce(ended)), "{effects:?}");
}

#[test]
fn a_swarm_with_nothing_to_do_ends_at_once() {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.stories[0].done = Some(DoneStatus::Completed);
    let (_, effects) = MachineHarness::begun(plan);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Landed));
}

#[test]
fn a_plan_that_cannot_progress_ends() {
    let (_, effects) = MachineHarness::begun(spec(&[&[(1, &[2])], &[(2, &[1])]]));
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    let mut plan = spec(&[&[(1, &[])], &[(2, &[1])]]);
    plan.assignments.remove(0);
    let (rig, effects) = MachineHarness::begun(plan);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    assert_eq!((rig.status(1), rig.status(2)), (StoryStatus::Failed, StoryStatus::Skipped));
}

#[test]
fn a_story_failure_costs_a_retry_and_is_passed_to_the_next_attempt() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[])]]));
    rig.run_to_completion(&attempt(1, 1));
    let effects = rig.handle(result_collected(&attempt(1, 1), None, vec![failed_story(1, Cause::VerificationFailed)]));
    assert_eq!(
        count_announcements(&effects, |said| matches!(said, Announcement::StoryRetried { next_attempt: 2, .. })),
        1
    );
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::Salvaged { .. })), 1);
    assert!(effects.contains(&Effect::Start {
        attempt: attempt(1, 2),
        stories: vec![(key(1), Some("it went wrong".to_owned()))],
        guidance: Vec::new(),
        base: commit(1)
    }));
    rig.run_to_completion(&attempt(1, 2));
    let effects = rig.handle(result_collected(&attempt(1, 2), None, vec![failed_story(1, Cause::VerificationFailed)]));
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::StoryFailed { attempts: 2, .. })), 1);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    rig.replay_journal();
}

#[test]
fn the_previous_failure_text_is_bounded() {
    let mut failure = Failure::new(Cause::VerificationFailed, "s".repeat(3000));
    assert_eq!(previous_failure_text(&failure).chars().count(), 1000);
    failure.evidence.tail = vec!["é".repeat(490); 50];
    failure.evidence.tail.push("the end".to_owned());
    let text = previous_failure_text(&failure);
    assert_eq!(text.chars().count(), 4000);
    assert!(text.ends_with("\nthe end"));
}

#[test]
fn the_remaining_stories_run_together_after_the_others_land() {
    // 2 depends on 1: 1 fails, 2 is skipped in the sandbox, 3 lands; then 1 and 2 run again.
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[1]), (3, &[])]]));
    rig.run_to_completion(&attempt(1, 1));
    let skipped = story_result(2, StoryOutcome::Skipped { because: story_id(1) });
    let results = vec![failed_story(1, Cause::AgentFailed), skipped, finished_story(3)];
    let effects = rig.handle(result_collected(&attempt(1, 1), Some(9), results));
    assert_eq!(started_attempts(&effects), [], "not before the merge");
    let effects = rig.handle(Event::Merged { attempt: attempt(1, 1), head: commit(20) });
    assert!(effects.contains(&Effect::Start {
        attempt: attempt(1, 2),
        stories: vec![(key(1), Some("it went wrong".to_owned())), (key(2), None)],
        guidance: Vec::new(),
        base: commit(20)
    }));
    assert_eq!(rig.machine.story(&key(2)).expect("there").attempts, 1, "the first never got to it");
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(1, 2), &[1, 2], 21)), Some(SwarmOutcome::Landed));
    rig.replay_journal();
}

#[test]
fn a_merge_conflict_is_retried_once_and_its_commits_are_salvaged() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[1]), (3, &[1])], &[(4, &[3])]]));
    let conflict = |rig: &mut MachineHarness, id: AttemptId| {
        rig.run_to_completion(&id);
        rig.handle(result_collected(
            &id,
            Some(9),
            vec![finished_story(1), finished_story(2), failed_story(3, Cause::AgentFailed)],
        ));
        rig.handle(Event::MergeConflicted {
            attempt: id,
            paths: vec!["a.txt".to_owned()],
            result_ref: "refs/kept".to_owned(),
        })
    };
    let effects = conflict(&mut rig, attempt(1, 1));
    let again = |effect: &Effect| match effect {
        Effect::Start { attempt: next, stories, .. } => {
            *next == attempt(1, 2)
                && stories.len() == 3
                && stories[..2].iter().all(|(_, why)| why.as_ref().is_some_and(|why| why.contains("a.txt")))
        }
        _ => false,
    };
    assert!(effects.iter().any(again), "with the conflict as what went wrong: {effects:?}");
    assert_eq!(rig.machine.story(&key(1)).expect("there").failures, 0, "it costs no retry");
    let effects = conflict(&mut rig, attempt(1, 2));
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    for story in [1, 2] {
        assert_eq!((rig.status(story), rig.cause(story)), (StoryStatus::Failed, Some(Cause::Conflict)));
    }
    let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
    assert_eq!((failure.salvage.as_deref(), failure.evidence.paths.len()), (Some("refs/kept"), 1));
    assert_eq!((rig.status(3), rig.status(4)), (StoryStatus::Failed, StoryStatus::Skipped));
    assert_eq!(rig.cause(3), Some(Cause::AgentFailed), "it had its retry");
}

#[test]
fn a_failed_merge_is_retried_and_keeps_its_turn() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[])], &[(2, &[])]]));
    rig.run_to_completion(&attempt(1, 1));
    rig.run_to_completion(&attempt(2, 1));
    rig.handle(result_collected(&attempt(1, 1), Some(8), vec![finished_story(1)]));
    rig.handle(result_collected(&attempt(2, 1), Some(9), vec![finished_story(2)]));
    let fails = |id: &AttemptId| Event::MergeFailed {
        attempt: id.clone(),
        fault: MachineryFault::new(Cause::HostError, "git said no", true),
        result_ref: "refs/kept".to_owned(),
    };
    for wait in [1, 2, 4] {
        assert_eq!(rig.handle(fails(&attempt(1, 1))), []);
        rig.assert_ignored(Event::Merged { attempt: attempt(1, 1), head: commit(99) });
        let effects = rig.fire_deadline_in(wait);
        assert!(matches!(&effects[..], [Effect::Merge { attempt: again, .. }] if *again == attempt(1, 1)));
    }
    let effects = rig.handle(fails(&attempt(1, 1)));
    assert_eq!((rig.status(1), rig.cause(1)), (StoryStatus::Failed, Some(Cause::HostError)));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Merge { attempt: next, .. } if *next == attempt(2, 1)))
    );
    let effects = rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(20) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    rig.replay_journal();
}

#[test]
fn a_contradictory_result_lands_nothing() {
    for (tip, results) in [
        (None, vec![finished_story(1), finished_story(2)]),
        (Some(9), vec![failed_story(1, Cause::AgentFailed), finished_story(2)]),
        (Some(9), vec![finished_story(2)]),
    ] {
        let mut plan = spec(&[&[(1, &[]), (2, &[1])]]);
        plan.limits.retries = 0;
        let (mut rig, _) = MachineHarness::begun(plan);
        rig.run_to_completion(&attempt(1, 1));
        let effects = rig.handle(result_collected(&attempt(1, 1), tip, results));
        assert_eq!(effects[0], Effect::Remove { attempt: attempt(1, 1), keep_work_dir: true });
        assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
        assert_eq!((rig.cause(1), rig.cause(2)), (Some(Cause::ProtocolViolation), Some(Cause::ProtocolViolation)));
    }
}

#[test]
fn every_salvage_ref_is_recorded() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[])]]));
    let salvaged =
        |rig: &MachineHarness, story: u32| rig.machine.story(&key(story)).expect("there").salvage_refs.clone();
    // A ref for each story, one for the work directory of both, and one for the commits that did not merge.
    rig.run_to_completion(&attempt(1, 1));
    let none = |story| failed_story(story, Cause::AgentFailed);
    let effects = rig.handle(result_collected(&attempt(1, 1), None, vec![none(1), none(2)]));
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::Salvaged { .. })), 2);
    rig.start_sandbox(&attempt(1, 2));
    rig.handle(sandbox_ended(&attempt(1, 2), container_exit(1)));
    rig.handle(collect_failed(&attempt(1, 2), Cause::HostError, false, Some("refs/salvage/both")));
    rig.fire_deadline_in(1);
    rig.run_to_completion(&attempt(1, 3));
    rig.handle(result_collected(&attempt(1, 3), Some(7), vec![finished_story(1), failed_story(2, Cause::NoChanges)]));
    let kept = "refs/results/3".to_owned();
    rig.handle(Event::MergeConflicted { attempt: attempt(1, 3), paths: vec!["a".to_owned()], result_ref: kept });
    assert_eq!(salvaged(&rig, 1), ["refs/salvage/1", "refs/salvage/both", "refs/results/3"]);
    assert_eq!(salvaged(&rig, 2), ["refs/salvage/2", "refs/salvage/both"], "each once");
    let of_attempts: Vec<_> = rig.machine.attempts().map(|view| view.salvage_refs.len()).collect();
    assert_eq!(of_attempts, [2, 1, 2, 0]);
    rig.replay_journal();
}
