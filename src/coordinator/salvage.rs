//! What is in a work folder and in no result, brought out by the depot and onto the host. Called by `carry_out.rs` when a sandbox is
//! over, and in part by `rescue.rs`. Must not: let a folder go of which something was left out, or give one work two names.

use std::path::Path;

use super::carry_out::{AttemptContext, EffectExecutor};
use crate::delivery::{DeliveryError, Repo};
use crate::engine::EngineError;
use crate::engine::depot::SalvagedWork;
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::handoff::layout;
use crate::handoff::result::StoryResult;
use crate::ids::{CommitId, StoryId};
use crate::swarm::{Event, Leftover, MachineryFault};
use crate::verdict::StoryOutcome;

/// What a salvage says of the work folder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct WorkDirStatus {
    nothing_to_keep: bool,
    has_left_out: bool,
    timed_out: bool,
}

impl WorkDirStatus {
    /// `tip`: a commit that the host has already.
    fn from_salvage(saved: &Result<SalvagedWork, EngineError>, tip: Option<&CommitId>) -> Self {
        match saved {
            Ok(SalvagedWork { commit, left_out }) => Self {
                // Nothing beyond the base, or what is known: nothing to keep.
                nothing_to_keep: (commit.is_none() || commit.as_ref() == tip) && left_out.is_empty(),
                has_left_out: !left_out.is_empty(),
                timed_out: false,
            },
            // It was never made, or is gone.
            Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => {
                Self { nothing_to_keep: true, ..Self::default() }
            }
            Err(error) => Self { timed_out: matches!(error, EngineError::TimedOut { .. }), ..Self::default() },
        }
    }
}

/// What came of a salvage.
#[derive(Debug, Default)]
struct SalvageOutcome {
    work_dir: WorkDirStatus,
    /// The host's ref of it; none where there is nothing new, or it could not be had.
    reference: Option<String>,
    /// Paths that are in the folder alone.
    left_out: Vec<String>,
}

/// Has the depot commit what is in the work folder, and takes that in under a ref of the story's. What does not work out is told in
/// the log.
async fn salvage_work_dir(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    (story, path): &(StoryId, String),
    tip: Option<&CommitId>,
) -> SalvageOutcome {
    let (attempt, base) = (&remains.attempt, &remains.base);
    let inside = layout::salvage_ref(story);
    let saved = hands.depot.salvage(&attempt.dir_name(), remains.uid, base, &inside, hands.max_bundle, bundle).await;
    let seen = WorkDirStatus::from_salvage(&saved, tip);
    match saved {
        Ok(SalvagedWork { commit, left_out }) => {
            let mut reference = None;
            if let Some(commit) = commit.filter(|commit| Some(commit) != tip) {
                let imported =
                    import_under_free_name(hands, bundle, &inside, &commit, &remains.salvage_ref(path)).await;
                let problem = |error: &DeliveryError| {
                    tracing::warn!(%attempt, error = %error_chain(error), "cannot import what was salvaged");
                };
                reference = imported.inspect_err(problem).ok();
            }
            SalvageOutcome { work_dir: seen, reference, left_out }
        }
        Err(error) => {
            if !seen.nothing_to_keep {
                tracing::warn!(%attempt, error = %error_chain(&error), "cannot salvage a work folder");
            }
            SalvageOutcome { work_dir: seen, ..SalvageOutcome::default() }
        }
    }
}

/// Takes a salvage in under a name that no other commit has, and gives that name.
async fn import_under_free_name(
    hands: &EffectExecutor,
    bundle: &Path,
    inside: &str,
    commit: &CommitId,
    name: &str,
) -> Result<String, DeliveryError> {
    let name = hands.repo.unused_ref_name(name, commit).await?;
    hands.repo.import_salvage(bundle, inside, commit, &name).await?;
    Ok(name)
}

/// Brings out what the work folder has beyond its result, where the result says or leaves open that there is something; none where
/// that was not asked for, or the folder still has what no ref has.
pub(super) async fn salvage_leftover(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    tip: Option<&CommitId>,
    stories: &[StoryResult],
) -> Option<Leftover> {
    let open = stories.iter().find(|story| match &story.outcome {
        StoryOutcome::Failed { unsaved, .. } => *unsaved,
        StoryOutcome::NotReached => true,
        StoryOutcome::Finished { .. } | StoryOutcome::Skipped { .. } => false,
    })?;
    let story = remains.stories.iter().find(|(id, _)| *id == open.id)?;
    let SalvageOutcome { work_dir: seen, reference, .. } = salvage_work_dir(hands, remains, bundle, story, tip).await;
    let Some(reference) = reference else { return seen.nothing_to_keep.then_some(Leftover::Nothing) };
    let known: Vec<String> = stories.iter().filter_map(|story| salvage_ref_of(&story.outcome)).cloned().collect();
    let known_by_name = known.contains(&reference);
    let told = known_by_name || any_ref_has_same_files(&hands.repo, &reference, &known).await.unwrap_or(false);
    if told
        && !known_by_name
        && let Err(error) = hands.repo.delete_ref(&reference).await
    {
        tracing::warn!(%reference, error = %error_chain(&error), "cannot remove the second name of kept work");
    }
    match told {
        true => (!seen.has_left_out).then_some(Leftover::Nothing),
        false => Some(Leftover::Salvaged { reference, incomplete: seen.has_left_out }),
    }
}

/// What can still be had when there is no result to believe.
pub(super) async fn salvage_without_result(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    mut fault: MachineryFault,
) -> Event {
    let nothing = || SalvageOutcome {
        work_dir: WorkDirStatus { nothing_to_keep: true, ..WorkDirStatus::default() },
        ..SalvageOutcome::default()
    };
    let SalvageOutcome { work_dir: seen, reference, left_out } = match remains.stories.first() {
        Some(story) => salvage_work_dir(hands, remains, bundle, story, None).await,
        None => nothing(),
    };
    fault.evidence.paths.extend(left_out);
    let WorkDirStatus { nothing_to_keep: nothing_there, has_left_out: left_out, timed_out: no_answer } = seen;
    let attempt = remains.attempt.clone();
    Event::CollectFailed {
        attempt,
        fault,
        salvage_ref: reference,
        work_dir_empty: nothing_there,
        salvage_incomplete: left_out,
        depot_timed_out: no_answer,
    }
}

/// The host's ref of what a story that failed left.
pub(super) fn salvage_ref_of(outcome: &StoryOutcome) -> Option<&String> {
    match outcome {
        StoryOutcome::Failed { failure, .. } => failure.salvage.as_ref(),
        _ => None,
    }
}

/// Whether one of the refs has the same files: a shim that could still commit kept them itself.
pub(super) async fn any_ref_has_same_files(repo: &Repo, whole: &str, refs: &[String]) -> Result<bool, DeliveryError> {
    let at = async |name: &str| -> Result<Option<CommitId>, DeliveryError> {
        Ok(repo.list_refs(name).await?.into_iter().find(|(found, _)| found == name).map(|(_, commit)| commit))
    };
    let Some(commit) = at(whole).await? else { return Ok(false) };
    for name in refs {
        if let Some(other) = at(name).await?
            && repo.diff_stat(&other, &commit).await?.is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salvage_result_maps_to_work_dir_status() {
        let tip: CommitId = "0".repeat(40).parse().expect("40 digits");
        let other: CommitId = "1".repeat(40).parse().expect("40 digits");
        let saved = |commit: Option<&CommitId>, left_out: &[&str]| {
            let left_out = left_out.iter().map(|path| (*path).to_owned()).collect();
            Ok(SalvagedWork { commit: commit.cloned(), left_out })
        };
        let fault = |kind| Err(EngineError::Depot { operation: "salvaging", kind, message: String::new() });
        let seen = |nothing_there, left_out, no_answer| WorkDirStatus {
            nothing_to_keep: nothing_there,
            has_left_out: left_out,
            timed_out: no_answer,
        };
        let table = [
            (saved(Some(&other), &[]), seen(false, false, false)),
            (saved(Some(&other), &["secret.txt"]), seen(false, true, false)),
            (saved(Some(&tip), &[]), seen(true, false, false)),
            (saved(Some(&tip), &["secret.txt"]), seen(false, true, false)),
            (saved(None, &["secret.txt"]), seen(false, true, false)),
            (saved(None, &[]), seen(true, false, false)),
            (fault(Some(DepotErrorKind::NotFound)), seen(true, false, false)),
            (fault(Some(DepotErrorKind::Failed)), seen(false, false, false)),
            (fault(None), seen(false, false, false)),
        ];
        for (saved, wanted) in table {
            assert_eq!(WorkDirStatus::from_salvage(&saved, Some(&tip)), wanted, "{saved:?}");
        }
    }
}
