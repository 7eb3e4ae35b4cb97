//! Salvages what is in a work directory and in no result: the depot commits it, and the host imports it. Called by
//! `collect/mod.rs` and in part by `recovery/rescue.rs`. Must not: let a directory go of which something was left out, or give
//! the same work two names.

use std::path::Path;

use super::collector::Collector;
use crate::coordinator::attempt::AttemptContext;
use crate::delivery::{DeliveryError, Repo};
use crate::engine::EngineError;
use crate::engine::depot::SalvagedWork;
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::handoff::layout;
use crate::handoff::result::StoryResult;
use crate::ids::{AttemptId, CommitId, StoryId};
use crate::swarm::{Event, Leftover, MachineryFault};
use crate::verdict::StoryOutcome;

/// The state of a work directory after a salvage.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct WorkDirStatus {
    nothing_to_keep: bool,
    has_left_out: bool,
    timed_out: bool,
}

impl WorkDirStatus {
    /// `tip`: a commit that the host already has.
    fn from_salvage(saved: &Result<SalvagedWork, EngineError>, tip: Option<&CommitId>) -> Self {
        match saved {
            Ok(SalvagedWork { commit, left_out }) => Self {
                // Nothing beyond the base or the known tip.
                nothing_to_keep: (commit.is_none() || commit.as_ref() == tip) && left_out.is_empty(),
                has_left_out: !left_out.is_empty(),
                timed_out: false,
            },
            // The directory was never made, or is gone.
            Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => {
                Self { nothing_to_keep: true, ..Self::default() }
            }
            Err(error) => Self { timed_out: matches!(error, EngineError::TimedOut { .. }), ..Self::default() },
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SalvageOutcome {
    work_dir: WorkDirStatus,
    /// The host's ref; `None` if there is nothing new, or it could not be imported.
    reference: Option<String>,
    /// Paths that are in the directory only.
    left_out: Vec<String>,
}

impl SalvageOutcome {
    /// The work directory has nothing to keep.
    pub(super) fn nothing() -> Self {
        Self { work_dir: WorkDirStatus { nothing_to_keep: true, ..WorkDirStatus::default() }, ..Self::default() }
    }

    pub(super) fn into_failure(self, attempt: AttemptId, fault: MachineryFault) -> Event {
        Event::CollectFailed {
            attempt,
            fault,
            salvage_ref: self.reference,
            work_dir_empty: self.work_dir.nothing_to_keep,
            salvage_incomplete: self.work_dir.has_left_out,
            depot_timed_out: self.work_dir.timed_out,
        }
    }
}

/// Has the depot commit what is in the work directory, and imports it under a ref of the story. Errors are logged.
async fn salvage_work_dir(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    (story, label): &(StoryId, String),
    tip: Option<&CommitId>,
) -> SalvageOutcome {
    let (attempt, base) = (&context.attempt, &context.base);
    let inside = layout::salvage_ref(story);
    let saved =
        collector.depot.salvage(&attempt.dir_name(), context.uid, base, &inside, collector.max_bundle, bundle).await;
    let work_dir = WorkDirStatus::from_salvage(&saved, tip);
    match saved {
        Ok(SalvagedWork { commit, left_out }) => {
            let mut reference = None;
            if let Some(commit) = commit.filter(|commit| Some(commit) != tip) {
                let imported =
                    import_under_free_name(collector, bundle, &inside, &commit, &context.salvage_ref(label)).await;
                let problem = |error: &DeliveryError| {
                    tracing::warn!(%attempt, error = %error_chain(error), "cannot import what was salvaged");
                };
                reference = imported.inspect_err(problem).ok();
            }
            SalvageOutcome { work_dir, reference, left_out }
        }
        Err(error) => {
            if !work_dir.nothing_to_keep {
                tracing::warn!(%attempt, error = %error_chain(&error), "cannot salvage a work directory");
            }
            SalvageOutcome { work_dir, ..SalvageOutcome::default() }
        }
    }
}

/// Imports a salvage under a ref that no other commit has, and returns the ref.
async fn import_under_free_name(
    collector: &Collector,
    bundle: &Path,
    inside: &str,
    commit: &CommitId,
    name: &str,
) -> Result<String, DeliveryError> {
    let name = collector.repo.unused_ref_name(name, commit).await?;
    collector.repo.import_salvage(bundle, inside, commit, &name).await?;
    Ok(name)
}

/// Salvages what the work directory has beyond its result, if the result says or leaves open that there is something. `None` if
/// there is nothing to look for, or if the directory still has work that is under no ref.
pub(super) async fn salvage_leftover(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    tip: Option<&CommitId>,
    stories: &[StoryResult],
) -> Option<Leftover> {
    let open = stories.iter().find(|story| match &story.outcome {
        StoryOutcome::Failed { unsaved, .. } => *unsaved,
        StoryOutcome::NotReached => true,
        StoryOutcome::Finished { .. } | StoryOutcome::Skipped { .. } => false,
    })?;
    let story = context.stories.iter().find(|(id, _)| *id == open.id)?;
    let SalvageOutcome { work_dir, reference, .. } = salvage_work_dir(collector, context, bundle, story, tip).await;
    let Some(reference) = reference else { return work_dir.nothing_to_keep.then_some(Leftover::Nothing) };
    let known: Vec<String> = stories.iter().filter_map(|story| salvage_ref_of(&story.outcome)).cloned().collect();
    let is_known_ref = known.contains(&reference);
    if is_known_ref || any_ref_has_same_files(&collector.repo, &reference, &known).await.unwrap_or(false) {
        if !is_known_ref && let Err(error) = collector.repo.delete_ref(&reference).await {
            tracing::warn!(%reference, error = %error_chain(&error), "cannot remove the second ref of kept work");
        }
        return (!work_dir.has_left_out).then_some(Leftover::Nothing);
    }
    Some(Leftover::Salvaged { reference, incomplete: work_dir.has_left_out })
}

/// Salvages the whole work directory when there is no valid result.
pub(super) async fn salvage_without_result(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    mut fault: MachineryFault,
) -> Event {
    let mut outcome = match context.stories.first() {
        Some(story) => salvage_work_dir(collector, context, bundle, story, None).await,
        None => SalvageOutcome::nothing(),
    };
    fault.evidence.paths.append(&mut outcome.left_out);
    outcome.into_failure(context.attempt.clone(), fault)
}

/// The host's ref of a failed story's work.
pub(crate) fn salvage_ref_of(outcome: &StoryOutcome) -> Option<&String> {
    match outcome {
        StoryOutcome::Failed { failure, .. } => failure.salvage.as_ref(),
        _ => None,
    }
}

/// Whether one of the refs has the same files as `whole`: a shim that could still commit saved them itself.
pub(crate) async fn any_ref_has_same_files(repo: &Repo, whole: &str, refs: &[String]) -> Result<bool, DeliveryError> {
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
mod tests;
