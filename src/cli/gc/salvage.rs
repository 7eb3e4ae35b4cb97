//! Salvages the work of a stopped swarm to the host before its volumes are removed. The caller holds the swarm's lock.

use super::decision::GcDecision;
use super::report::GcReport;
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::run::persisted_settings::{MAX_BUNDLE_BYTES, PersistedSettings};
use crate::cli::run::preflight;
use crate::cli::shim;
use crate::coordinator::{self, RescueSpec, unsaved_attempts};
use crate::delivery::Repo;
use crate::state::SwarmDir;
use crate::state::recovery::recover;

/// Salvages the swarm's attempts, reports each, and returns the number of failures.
pub(super) async fn salvage_swarm(
    here: &CommandContext,
    repo: &Repo,
    dir: &SwarmDir,
    report: &mut GcReport,
) -> Result<usize, CommandError> {
    let recovered = recover(dir)?;
    let all = unsaved_attempts(&recovered.machine).count();
    let rescued = match try_salvage(here, repo, dir, &recovered).await {
        Ok(rescued) => rescued,
        Err(error) => {
            let reason = format!("nothing could be salvaged: {}", error_on_one_line(&error));
            report.print_decision("swarm", &dir.swarm().to_string(), &GcDecision::keep(reason), Ok(()))?;
            return Ok(all.max(1));
        }
    };
    for (attempt, reference) in &rescued.saved_refs {
        report.print_salvaged(&attempt.dir_name(), &format!("its work is in {reference}"))?;
    }
    for (attempt, reason) in &rescued.failures {
        let reason = format!("it could not be salvaged: {reason}");
        report.print_decision("attempt", &attempt.dir_name(), &GcDecision::keep(reason), Ok(()))?;
    }
    Ok(rescued.failures.len())
}

async fn try_salvage(
    here: &CommandContext,
    repo: &Repo,
    dir: &SwarmDir,
    recovered: &crate::state::RecoveredSwarm,
) -> Result<coordinator::RescueOutcome, CommandError> {
    let settings: PersistedSettings = serde_json::from_value(recovered.header.settings.clone())
        .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    let (engine, _, image) = preflight::connect_engine_with_image(here, &settings.image).await?;
    let shim = shim::find_shim(&image.arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var)?;
    let spec = RescueSpec {
        machine: &recovered.machine,
        repo,
        engine,
        image: settings.image,
        shim: shim.bytes.into(),
        incoming: dir.path().join("incoming"),
        max_bundle: MAX_BUNDLE_BYTES,
        mailbox_swarm_dir: settings.mailbox.then(|| dir.path()),
    };
    Ok(coordinator::rescue(spec).await?)
}

/// Formats an error and its causes on one line, without the prefix `error: `.
fn error_on_one_line(error: &CommandError) -> String {
    let text = error.to_string();
    text.lines().map(|line| line.trim().trim_start_matches("error: ")).collect::<Vec<_>>().join("; ")
}
