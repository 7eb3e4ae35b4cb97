//! Collects what an ended sandbox left: its result, its review, or what can be salvaged. Called by `effects.rs`, each collection
//! in a task of its own that ends in an event. Must not: believe what came out of a sandbox.
//!
//! | file | content |
//! |---|---|
//! | `collector.rs` | the clients, and the transfer of `out/` to the host |
//! | `result.rs` | `result.json` and its bundle, checked and imported |
//! | `diff_summary.rs` | AMP's summary of a diff |
//! | `check.rs` | the outcome of a check sandbox |
//! | `review.rs` | a reviewer's verdict and fix |
//! | `salvage.rs` | what is in the work directory and in no result |
//! | `archive.rs` | the transfer without a depot |

pub mod archive;
pub(crate) mod collector;
mod check;
mod diff_summary;
pub(crate) mod result;
mod review;
pub(crate) mod salvage;

use std::sync::Arc;

use jiff::Timestamp;

use crate::error_chain::error_chain;
use crate::protocol::amp::store::Ssot;
use crate::swarm::{CollectMode, Event, MachineryFault};
use crate::verdict::Failure;

use super::attempt::AttemptContext;
use super::checks::CheckMemory;
use super::fault::protocol_violation;
use check::fetch_check;
use collector::Collector;
use result::{CollectedResult, fetch_result, measure_changes};
use review::fetch_review;
use salvage::{SalvageOutcome, salvage_leftover, salvage_without_result};

/// Collects the result, verified and under refs, and what else is in the work directory. `start_failure` explains why a sandbox
/// that completed without beginning a story has no result.
pub(super) async fn collect_result(
    collector: &Collector,
    context: &AttemptContext,
    mode: CollectMode,
    start_failure: Option<Failure>,
) -> Event {
    let bundle = collector.bundle_file(context);
    let fault = match fetch_result(collector, context, &bundle).await {
        Ok(Some(CollectedResult { tip, stories })) => {
            let leftover = salvage_leftover(collector, context, &bundle, tip.as_ref(), &stories).await;
            let (diffs, tree) = measure_changes(collector, &context.base, tip.as_ref(), &stories).await;
            return Event::ResultCollected {
                attempt: context.attempt.clone(),
                result_ref: tip.is_some().then(|| context.result_ref()),
                tip,
                stories,
                leftover,
                diffs,
                tree,
            };
        }
        Ok(None) => {
            let fault = match (mode, start_failure) {
                (CollectMode::Result, Some(Failure { cause, evidence, .. })) => {
                    MachineryFault { evidence, ..MachineryFault::new(cause, "", true) }
                }
                (CollectMode::Result, None) => protocol_violation("the sandbox said `completion` and left no result"),
                (CollectMode::Salvage, _) => protocol_violation("the sandbox ended without a result"),
            };
            MachineryFault { retryable: true, ..fault }
        }
        Err(fault) => fault,
    };
    salvage_without_result(collector, context, &bundle, fault).await
}

/// Collects the outcome of a check sandbox.
pub(super) async fn collect_check(
    collector: &Collector,
    context: &AttemptContext,
    mode: CollectMode,
    memory: &CheckMemory,
) -> Event {
    let attempt = context.attempt.clone();
    match fetch_check(collector, context, mode, memory).await {
        Ok(outcome) => Event::CheckCollected { attempt, outcome: Box::new(outcome) },
        // Its work directory has no work.
        Err(fault) => SalvageOutcome::nothing().into_failure(attempt, fault),
    }
}

/// Collects a reviewer's verdict. A verdict that breaks a rule of AMP goes to the SSOT's error log.
pub(super) async fn collect_review(
    collector: &Collector,
    context: &AttemptContext,
    criteria: &[String],
    mode: CollectMode,
    ssot: Arc<Ssot>,
) -> Event {
    let attempt = context.attempt.clone();
    let outcome = match fetch_review(collector, context, criteria, mode).await {
        Ok(outcome) => outcome,
        // A reviewer's work directory has no work.
        Err(fault) => return SalvageOutcome::nothing().into_failure(attempt, fault),
    };
    if let Some((text, violation)) = review::violated_rule(&outcome) {
        let from = format!("reviewer, {attempt}");
        let log = move || ssot.log_rejected(&text, &violation, Timestamp::now(), &from);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(log).await {
            tracing::warn!(%attempt, error = %error_chain(&error), "cannot write a refused verdict to the error log");
        }
    }
    Event::ReviewCollected { attempt, outcome: Box::new(outcome) }
}
