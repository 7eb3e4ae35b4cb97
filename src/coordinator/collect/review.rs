//! A reviewer's review: its file is fetched like any result, its verdict is checked by AMP's rules and its fix by git. Called by
//! `collect/mod.rs`. Must not: believe what the shim says of either.

use std::path::Path;

use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::fault::{delivery_fault, protocol_violation};
use crate::delivery::ExpectedBundle;
use crate::handoff::review::{REVIEW_VERSION, ReviewFile};
use crate::ids::CommitId;
use crate::protocol::amp::message::{ReviewDecision, ReviewVerdict};
use crate::protocol::amp::rules::{AmpViolation, RULES};
use crate::swarm::{CollectMode, MachineryFault, ReviewFix, ReviewOutcome};
use crate::verdict::{Cause, Failure};

use super::collector::Collector;
use super::result::{check_identity, check_same, parse_file};

/// Fetches a review. `context.base` is the commit under review, `criteria` are those of its
/// [`ReviewAssignment`](crate::handoff::review::ReviewAssignment), in its order.
///
/// A mistake of the reviewer is a [`ReviewOutcome`] with a failure.
///
/// # Errors
/// A fault of the engine, the depot or the host's disk.
pub(super) async fn fetch_review(
    collector: &Collector,
    context: &AttemptContext,
    criteria: &[String],
    mode: CollectMode,
) -> Result<ReviewOutcome, MachineryFault> {
    match fetch_valid_review(collector, context, criteria, mode).await {
        Err(fault) if fault.cause == Cause::ProtocolViolation => {
            Ok(ReviewOutcome::failed(Failure { cause: fault.cause, evidence: fault.evidence, salvage: None }))
        }
        review => review,
    }
}

async fn fetch_valid_review(
    collector: &Collector,
    context: &AttemptContext,
    criteria: &[String],
    mode: CollectMode,
) -> Result<ReviewOutcome, MachineryFault> {
    let bundle = collector.bundle_file(context);
    let output = collector.fetch_output(context, &bundle).await?;
    let Some((bytes, has_bundle)) = output.and_then(|output| Some((output.result?, output.has_bundle))) else {
        return Err(protocol_violation(match mode {
            CollectMode::Result => "the reviewer's sandbox said `completion` and left no result",
            CollectMode::Salvage => "the reviewer's sandbox ended without a result",
        }));
    };
    let file: ReviewFile = parse_file(&bytes).map_err(protocol_violation)?;
    check_review_matches(&file, context, has_bundle).map_err(protocol_violation)?;
    let value = match (file.verdict, file.failure) {
        (Some(value), None) => value,
        (None, Some(failure)) if file.fix.is_none() => {
            // The host decides where work is kept, and a review has none.
            return Ok(ReviewOutcome::failed(Failure { salvage: None, ..failure }));
        }
        _ => return Err(protocol_violation("the result has not one of a verdict and a failure")),
    };
    let verdict = ReviewVerdict::parse(&value.to_string(), criteria)
        .map_err(|violation| protocol_violation(format!("the verdict is not valid: {violation}")))?;
    let fix = match (verdict.decision, file.fix) {
        (ReviewDecision::ApprovedWithFix, Some(commit)) => {
            Some(import_fix(collector, context, &bundle, &verdict, commit).await?)
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

/// The rule of AMP that a refused verdict breaks, and the text that says so: for the error log. Usually the shim refuses the verdict, and
/// its result carries the violation as text only.
pub(super) fn violated_rule(review: &ReviewOutcome) -> Option<(String, AmpViolation)> {
    let failure = review.failure.as_ref().filter(|failure| failure.cause == Cause::ProtocolViolation)?;
    let summary = &failure.evidence.summary;
    // The inverse of `AmpViolation`'s `Display`.
    let (text, name) = summary.rsplit_once(" (rule `")?;
    let rule = RULES.iter().find(|rule| name.starts_with(&format!("{}`", rule.name)))?.name;
    let (field, problem) = text
        .split_once(": ")
        .map_or(("review_verdict", text), |(_, rest)| rest.split_once(": ").unwrap_or(("review_verdict", rest)));
    let violation = AmpViolation { rule, field: field.to_owned(), problem: problem.to_owned() };
    Some((summary.clone(), violation))
}

fn check_review_matches(file: &ReviewFile, context: &AttemptContext, has_bundle: bool) -> Result<(), String> {
    check_identity("review", (file.schema_version, REVIEW_VERSION), file.swarm_id, &file.attempt, context)?;
    check_same("review", "commit", file.commit == context.base)?;
    if file.bundle != has_bundle || file.fix.is_some() != has_bundle {
        return Err("the review's fix and the bundle contradict each other".to_owned());
    }
    Ok(())
}

/// Imports the fix under a ref and checks its scope.
async fn import_fix(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    verdict: &ReviewVerdict,
    commit: CommitId,
) -> Result<ReviewFix, MachineryFault> {
    if commit == context.base {
        return Err(protocol_violation("the fix is the commit under review"));
    }
    let expected = ExpectedBundle {
        branch: context.branch.clone(),
        base: context.base.clone(),
        merged: None,
        tip: Some(commit.clone()),
        result_ref: context.result_ref(),
        salvage: Vec::new(),
    };
    collector.repo.import_bundle(bundle, &expected).await.map_err(|error| delivery_fault(&error))?;
    let verified = collector.repo.verify_direct_fix(&context.base, &commit, &verdict.direct_fixes).await;
    let scope_violation = verified.map_err(|error| delivery_fault(&error))?.refusal();
    Ok(ReviewFix { commit, scope_violation })
}

#[cfg(test)]
mod tests;
