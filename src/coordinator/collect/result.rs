//! A sandbox's `result.json` and bundle: parsed, checked against the attempt, and imported under refs. Called by `collect/mod.rs`
//! and by `recovery/rescue.rs`. Must not: believe what is in them.

use std::path::Path;

use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::fault::{delivery_fault, protocol_violation};
use crate::delivery::ExpectedBundle;
use crate::error_chain::error_chain;
use crate::handoff::layout;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{AttemptId, CommitId, StoryId, SwarmId};
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::MachineryFault;
use crate::verdict::StoryOutcome;

use super::collector::Collector;
use super::diff_summary::summarize_diff;

/// A result whose commits are on the host.
pub(crate) struct CollectedResult {
    /// The head of the attempt's branch; `None` if no story finished.
    pub tip: Option<CommitId>,
    pub stories: Vec<StoryResult>,
}

/// `None` if the sandbox left no result.
pub(crate) async fn fetch_result(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
) -> Result<Option<CollectedResult>, MachineryFault> {
    let Some(collected) = collector.fetch_output(context, bundle).await? else { return Ok(None) };
    let Some(bytes) = collected.result else { return Ok(None) };
    let file: ResultFile = parse_file(&bytes).map_err(protocol_violation)?;
    check_result_matches(&file, context).map_err(protocol_violation)?;
    if file.bundle != collected.has_bundle {
        return Err(protocol_violation("the result and the bundle contradict each other"));
    }
    let tip = (file.tip != file.base).then_some(file.tip);
    let mut stories = file.stories;
    for story in &mut stories {
        // The host decides where work is kept.
        if let StoryOutcome::Failed { failure, .. } = &mut story.outcome {
            failure.salvage = None;
        }
    }
    if collected.has_bundle {
        import_result(collector, context, bundle, tip.clone(), &mut stories).await?;
    } else if tip.is_some() {
        return Err(protocol_violation("the result names commits and there is no bundle"));
    }
    Ok(Some(CollectedResult { tip, stories }))
}

/// Imports the bundle's commits, and records the refs of salvaged work in the stories.
async fn import_result(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    tip: Option<CommitId>,
    stories: &mut [StoryResult],
) -> Result<(), MachineryFault> {
    let mut salvage: Vec<(StoryId, CommitId, String)> = Vec::new();
    for story in stories.iter_mut() {
        if let StoryOutcome::Failed { salvage: Some(commit), failure, .. } = &mut story.outcome
            && let Some((_, label)) = context.stories.iter().find(|(id, _)| *id == story.id)
        {
            let name = collector.repo.unused_ref_name(&context.salvage_ref(label), commit).await;
            let name = name.map_err(|error| delivery_fault(&error))?;
            salvage.push((story.id.clone(), commit.clone(), name.clone()));
            failure.salvage = Some(name);
        }
    }
    let expected = ExpectedBundle {
        branch: context.branch.clone(),
        base: context.base.clone(),
        merged: context.merge_head.clone(),
        tip,
        result_ref: context.result_ref(),
        salvage,
    };
    collector.repo.import_bundle(bundle, &expected).await.map(drop).map_err(|error| delivery_fault(&error))
}

/// Parses the content of `result.json`.
pub(super) fn parse_file<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("`{}` cannot be read: {error}", layout::RESULT_FILE))
}

/// The error of a file that belongs to something else than this attempt.
pub(super) fn check_same(file: &str, field: &str, same: bool) -> Result<(), String> {
    if same { Ok(()) } else { Err(format!("the {file}'s {field} is not this attempt's")) }
}

/// The checks that a result and a review share.
pub(super) fn check_identity(
    file: &str,
    (version, known_version): (u32, u32),
    swarm: SwarmId,
    attempt: &AttemptId,
    context: &AttemptContext,
) -> Result<(), String> {
    check_same(file, "version", version == known_version)?;
    check_same(file, "swarm", swarm == context.swarm)?;
    check_same(file, "attempt", *attempt == context.attempt)
}

fn check_result_matches(file: &ResultFile, context: &AttemptContext) -> Result<(), String> {
    check_identity("result", (file.schema_version, RESULT_VERSION), file.swarm_id, &file.attempt, context)?;
    let same = |field, same| check_same("result", field, same);
    same("base", file.base == context.base)?;
    let mut reported: Vec<&StoryId> = file.stories.iter().map(|story| &story.id).collect();
    let mut assigned: Vec<&StoryId> = context.stories.iter().map(|(id, _)| id).collect();
    reported.sort();
    assigned.sort();
    same("list of stories", reported == assigned)?;
    let finished = file.stories.iter().any(|story| matches!(story.outcome, StoryOutcome::Finished { .. }));
    same("tip", (file.tip != file.base) == finished)
}

/// Git's count of each story's changes, in order, and the tip's tree. For people and for the record: what cannot be determined
/// is left out.
pub(super) async fn measure_changes(
    collector: &Collector,
    base: &CommitId,
    tip: Option<&CommitId>,
    stories: &[StoryResult],
) -> (Vec<DiffSummary>, Option<String>) {
    let mut diffs = Vec::with_capacity(stories.len());
    let mut from = base;
    for story in stories {
        let to = match &story.outcome {
            StoryOutcome::Finished { commit } => Some(commit),
            StoryOutcome::Failed { salvage, .. } => salvage.as_ref(),
            StoryOutcome::Skipped { .. } | StoryOutcome::NotReached => None,
        };
        let diff = match to {
            Some(to) => collector.repo.diff_stat(from, to).await.map(summarize_diff).inspect_err(|error| {
                tracing::warn!(error = %error_chain(error), story = %story.id, "cannot count what a story changed");
            }),
            None => Ok(DiffSummary::default()),
        };
        diffs.push(diff.unwrap_or_default());
        if let StoryOutcome::Finished { commit } = &story.outcome {
            from = commit;
        }
    }
    let tree = match tip {
        Some(tip) if collector.has_reviews => collector.repo.tree_id(tip).await.ok(),
        _ => None,
    };
    (diffs, tree)
}
