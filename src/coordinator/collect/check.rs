//! What a check sandbox found. Called by `collect/mod.rs`. Must not: believe a file that is not about this commit.

use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::checks::{CheckCommand, CheckMemory};
use crate::error_chain::error_chain;
use crate::handoff::check::{CHECK_VERSION, CheckFile};
use crate::swarm::{CheckOutcome, CheckedCriteria, CollectMode, MachineryFault};
use crate::verdict::Cause;

use super::collector::Collector;
use super::result::{check_identity, check_same, parse_file};

/// Fetches the outcome of the checks, and remembers which of them passed. `context.base` is the commit.
///
/// # Errors
/// There is no outcome: a fault of the engine, the depot or the sandbox.
pub(super) async fn fetch_check(
    collector: &Collector,
    context: &AttemptContext,
    mode: CollectMode,
    memory: &CheckMemory,
) -> Result<CheckOutcome, MachineryFault> {
    let bundle = collector.bundle_file(context);
    let output = collector.fetch_output(context, &bundle).await?;
    let Some(bytes) = output.and_then(|output| output.result) else {
        return Err(no_outcome(match mode {
            CollectMode::Result => "the check sandbox said `completion` and left no result",
            CollectMode::Salvage => "the check sandbox ended without a result",
        }));
    };
    let file: CheckFile = parse_file(&bytes).map_err(no_outcome)?;
    check_matches(&file, context).map_err(no_outcome)?;
    match collector.repo.tree_id(&context.base).await {
        Ok(tree) => {
            let passed = file.checks.iter().filter(|check| check.passed);
            memory.remember(
                &tree,
                passed.map(|check| CheckCommand { story: check.story.clone(), command: check.command.clone() }),
            );
        }
        Err(error) => tracing::warn!(error = %error_chain(&error), "cannot remember which checks passed"),
    }
    let failed_verify = file.checks.iter().filter(|check| check.story.is_none() && !check.passed);
    Ok(CheckOutcome {
        failed_verify: failed_verify.map(|check| check.command.clone()).collect(),
        failure: file.failure,
        failed_story: file.failed_story,
        criteria: file
            .stories
            .into_iter()
            .map(|story| CheckedCriteria { story: story.id, results: story.criteria })
            .collect(),
    })
}

/// No story can have caused this: only the shim writes the file.
fn no_outcome(problem: impl Into<String>) -> MachineryFault {
    MachineryFault::new(Cause::ShimCrash, problem, true)
}

fn check_matches(file: &CheckFile, context: &AttemptContext) -> Result<(), String> {
    check_identity("check", (file.schema_version, CHECK_VERSION), file.swarm_id, &file.attempt, context)?;
    check_same("check", "commit", file.commit == context.base)?;
    let mut checked: Vec<_> = file.stories.iter().map(|story| &story.id).collect();
    let mut assigned: Vec<_> = context.stories.iter().map(|(id, _)| id).collect();
    checked.sort();
    assigned.sort();
    // A check that failed may have ended before its stories' own.
    check_same("check", "list of stories", checked == assigned || file.failure.is_some())?;
    let failed = file.checks.iter().any(|check| !check.passed && check.story.is_some());
    if failed && file.failure.is_none() {
        return Err("a check failed, and the result says that all passed".to_owned());
    }
    Ok(())
}
