//! What a reviewer's sandbox left, brought out and looked at: its result by the same way as any other, its verdict by AMP's
//! rules, its fix by git. Called by `run.rs` when a reviewer's sandbox ended. Must not: believe what the shim says of either.

use std::path::Path;

use crate::delivery::ExpectedBundle;
use crate::handoff::layout;
use crate::handoff::review::{REVIEW_VERSION, ReviewFile};
use crate::ids::CommitId;
use crate::protocol::amp::message::{ReviewDecision, ReviewVerdict};
use crate::protocol::amp::rules::{AmpViolation, RULES};
use crate::swarm::{CollectMode, MachineryFault, ReviewFix, ReviewOutcome};
use crate::verdict::{Cause, Failure};

use super::carry_out::{AttemptContext, EffectExecutor, fetch_output};

/// Gets a review out. `remains.base` is the commit under review, `criteria` are those of its
/// [`ReviewAssignment`](crate::handoff::review::ReviewAssignment), in its order.
///
/// What the reviewer did wrong is a [`ReviewOutcome`] with a failure. An error is the machinery's: the engine, the depot or the
/// host's disk.
pub(super) async fn fetch_review(
    hands: EffectExecutor,
    remains: AttemptContext,
    criteria: Vec<String>,
    what: CollectMode,
) -> Result<ReviewOutcome, MachineryFault> {
    let bundle = hands.incoming.join(format!("{}.bundle", remains.attempt.dir_name()));
    let reviewed = fetch_valid_review(&hands, &remains, &criteria, what, &bundle).await;
    let _ = tokio::fs::remove_file(&bundle).await;
    match reviewed {
        // The sandbox's own doing, whoever saw it.
        Err(fault) if fault.cause == Cause::ProtocolViolation => {
            Ok(ReviewOutcome::failed(Failure { cause: fault.cause, evidence: fault.evidence, salvage: None }))
        }
        reviewed => reviewed,
    }
}

/// A result that is not what it must be.
fn protocol_violation(summary: impl Into<String>) -> MachineryFault {
    MachineryFault::new(Cause::ProtocolViolation, summary, false)
}

async fn fetch_valid_review(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    criteria: &[String],
    what: CollectMode,
    bundle: &Path,
) -> Result<ReviewOutcome, MachineryFault> {
    let fetched = fetch_output(hands, remains, bundle).await?;
    let Some((bytes, brought)) = fetched.and_then(|fetched| Some((fetched.result?, fetched.has_bundle))) else {
        return Err(protocol_violation(match what {
            CollectMode::Result => "the reviewer's sandbox said `completion` and left no result",
            CollectMode::Salvage => "the reviewer's sandbox ended without a result",
        }));
    };
    let file: ReviewFile = serde_json::from_slice(&bytes)
        .map_err(|error| protocol_violation(format!("`{}` cannot be read: {error}", layout::RESULT_FILE)))?;
    check_review_matches(&file, remains, brought).map_err(protocol_violation)?;
    let value = match (file.verdict, file.failure) {
        (Some(value), None) => value,
        (None, Some(failure)) if file.fix.is_none() => {
            // Where work is kept is the host's to say, and a review has none.
            return Ok(ReviewOutcome::failed(Failure { salvage: None, ..failure }));
        }
        _ => return Err(protocol_violation("the result has not one of a verdict and a failure")),
    };
    let verdict = ReviewVerdict::parse(&value.to_string(), criteria)
        .map_err(|violation| protocol_violation(format!("the verdict is not valid: {violation}")))?;
    let fix = match (verdict.decision, file.fix) {
        (ReviewDecision::ApprovedWithFix, Some(commit)) => {
            Some(import_fix(hands, remains, bundle, &verdict, commit).await?)
        }
        (ReviewDecision::ApprovedWithFix, None) => {
            return Err(protocol_violation("the verdict is `approved_with_fix`, and there is no fix"));
        }
        (ReviewDecision::Approved | ReviewDecision::Rejected, Some(_)) => {
            return Err(protocol_violation("there is a fix, and the verdict is not `approved_with_fix`"));
        }
        (ReviewDecision::Approved | ReviewDecision::Rejected, None) => None,
    };
    Ok(ReviewOutcome { verdict: Some(verdict), fix, failure: None })
}

/// What a verdict that AMP refuses said, as far as it is known, and the rule that it breaks: for the error log.
pub(super) fn violated_rule(reviewed: &ReviewOutcome) -> Option<(String, AmpViolation)> {
    let failure = reviewed.failure.as_ref().filter(|failure| failure.cause == Cause::ProtocolViolation)?;
    let summary = &failure.evidence.summary;
    // As `Violation` writes itself.
    let (told, name) = summary.rsplit_once(" (rule `")?;
    let rule = RULES.iter().find(|rule| name.starts_with(&format!("{}`", rule.name)))?.name;
    let (field, problem) = told
        .split_once(": ")
        .map_or(("review_verdict", told), |(_, rest)| rest.split_once(": ").unwrap_or(("review_verdict", rest)));
    let violation = AmpViolation { rule, field: field.to_owned(), problem: problem.to_owned() };
    Some((summary.clone(), violation))
}

/// Whether the file speaks of this attempt and this commit and no other.
fn check_review_matches(file: &ReviewFile, remains: &AttemptContext, brought: bool) -> Result<(), String> {
    let same =
        |what: &str, is: bool| if is { Ok(()) } else { Err(format!("the review's {what} is not this attempt's")) };
    same("version", file.schema_version == REVIEW_VERSION)?;
    same("swarm", file.swarm_id == remains.swarm)?;
    same("attempt", file.attempt == remains.attempt)?;
    same("commit", file.commit == remains.base)?;
    if file.bundle != brought || file.fix.is_some() != brought {
        return Err("the review's fix and the bundle contradict each other".to_owned());
    }
    Ok(())
}

/// Takes the fix in under a ref of ours, and looks at it.
async fn import_fix(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    verdict: &ReviewVerdict,
    commit: CommitId,
) -> Result<ReviewFix, MachineryFault> {
    if commit == remains.base {
        return Err(protocol_violation("the fix is the commit under review"));
    }
    let expected = ExpectedBundle {
        branch: remains.branch.clone(),
        base: remains.base.clone(),
        tip: Some(commit.clone()),
        result_ref: remains.result_ref(),
        salvage: Vec::new(),
    };
    hands.repo.import_bundle(bundle, &expected).await.map_err(|error| error.to_fault())?;
    let checked = hands.repo.verify_direct_fix(&remains.base, &commit, &verdict.direct_fixes).await;
    let refused = checked.map_err(|error| error.to_fault())?.refusal();
    Ok(ReviewFix { commit, scope_violation: refused })
}

#[cfg(test)]
mod tests;
