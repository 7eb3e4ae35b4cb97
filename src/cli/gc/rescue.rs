//! The work of a dead swarm onto the host, before its volumes go. The caller holds the swarm's lock.

use super::judge::Verdict;
use super::tell::Tally;
use crate::cli::error::{Kind, Shown};
use crate::cli::here::Here;
use crate::cli::run::begin::{Kept, MAX_BUNDLE};
use crate::cli::run::check;
use crate::cli::shim;
use crate::coordinator::{self, RescueSpec, unsaved_attempts};
use crate::delivery::Repo;
use crate::state::SwarmDir;
use crate::state::recovery::recover;

/// Gives how many attempts could not be salvaged; each is named with its reason, and each ref that was made.
pub(super) async fn rescue(here: &Here, repo: &Repo, dir: &SwarmDir, tally: &mut Tally) -> Result<usize, Shown> {
    let recovered = recover(dir)?;
    let all = unsaved_attempts(&recovered.machine).count();
    let rescued = match tried(here, repo, dir, &recovered).await {
        Ok(rescued) => rescued,
        Err(error) => {
            let reason = format!("nothing of it could be salvaged: {}", one_line(&error));
            tally.tell("swarm", &dir.swarm().to_string(), &Verdict::keep(reason), Ok(()))?;
            return Ok(all.max(1));
        }
    };
    for (attempt, reference) in &rescued.saved_refs {
        tally.salvaged(&attempt.dir_name(), &format!("its work is in {reference}"))?;
    }
    for (attempt, reason) in &rescued.failures {
        let reason = format!("it could not be salvaged: {reason}");
        tally.tell("attempt", &attempt.dir_name(), &Verdict::keep(reason), Ok(()))?;
    }
    Ok(rescued.failures.len())
}

async fn tried(
    here: &Here,
    repo: &Repo,
    dir: &SwarmDir,
    recovered: &crate::state::RecoveredSwarm,
) -> Result<coordinator::RescueOutcome, Shown> {
    let kept: Kept = serde_json::from_value(recovered.header.settings.clone())
        .map_err(|error| Shown::of(Kind::Machinery, &error))?;
    let (engine, _, image) = check::engine(here, &kept.image).await?;
    let shim = shim::find(&image.arch, Here::exe().as_deref(), &Here::lookup)?;
    let with = RescueSpec {
        machine: &recovered.machine,
        repo,
        engine,
        image: kept.image,
        shim: shim.bytes.into(),
        incoming: dir.path().join("incoming"),
        max_bundle: MAX_BUNDLE,
        mailbox_swarm_dir: kept.mailbox.then(|| dir.path()),
    };
    Ok(coordinator::rescue(with).await?)
}

/// An error and its causes without the word before it.
fn one_line(error: &Shown) -> String {
    let text = error.to_string();
    text.lines().map(|line| line.trim().trim_start_matches("error: ")).collect::<Vec<_>>().join("; ")
}
