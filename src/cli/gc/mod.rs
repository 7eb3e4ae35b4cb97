//! `longshore gc`: finds the resources of swarms in the engine and the repository, reports each on a line, and removes those that
//! are no longer needed.
//!
//! | resource | removed |
//! |---|---|
//! | without longshore's labels, or without a valid swarm label | never |
//! | of a live swarm (its lock is held) | never |
//! | of a stopped swarm whose work is all on the host | always |
//! | of a stopped swarm whose volumes may hold work | with `--all` or if the swarm is named, after all its work was salvaged |
//! | of a stopped swarm with work that could not be salvaged, or with a damaged journal | with `--all` or if named, and `--force` |
//! | of another repository's swarm | with `--all` and `--force` if none of its containers runs; if named, with `--force` |
//! | objects volume (it only saves time) | with `--all` if no swarm needs it; another repository's also needs `--force` |
//! | ref of a swarm whose directory is gone | with `--refs` |
//! | refs of prepared landings | of swarms that are over |
//!
//! `claim.rs` takes a swarm's lock and holds it while its resources are removed, `salvage.rs` saves its work, `decision.rs` implements
//! the table, and `report.rs` prints a line for each resource.

mod claim;
mod decision;
mod salvage;
mod report;

use std::collections::BTreeMap;

use super::args::GcArgs;
use super::context::CommandContext;
use super::error::CommandError;
use super::{CommandResult, images};
use crate::delivery::{Repo, is_landing_ref};
use crate::engine::{Engine, EngineResource, EngineResourceKind, label};
use crate::ids::{ContainerId, SwarmId};
use crate::report::text::sanitize;
use crate::state::{StateError, SwarmDir};

use claim::SwarmClaim;
use decision::{GcDecision, SwarmGcState, SwarmInventory, is_named, stopped_swarm_gc_state, swarm_of_resource};
use report::GcReport;

pub async fn gc(args: &GcArgs, here: &CommandContext) -> CommandResult {
    if args.force && !args.all && args.swarms.is_empty() {
        return Err(CommandError::input("`--force` is for what `--all` or a named swarm would remove")
            .with_hint("`longshore gc --all --force`, or `longshore gc SWARM --force`"));
    }
    // Outside of a repository every swarm is another repository's.
    let repo = here.discover_repo().await.ok();
    let engine = here.connect_engine().await?;
    let mut found = engine.find_resources(label::ROLE, None).await?;
    for more in engine.find_resources(label::SWARM, None).await? {
        if !found.iter().any(|known| known.kind == more.kind && known.id == more.id) {
            found.push(more);
        }
    }
    // Containers first: a volume in use cannot be removed.
    found.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let mut known = SwarmInventory::from_resources(&found, repo.as_ref())?;
    check_swarm_names(args, &known, repo.as_ref())?;
    found.retain(|resource| {
        args.swarms.is_empty() || swarm_of_resource(resource).is_some_and(|swarm| is_named(args, &swarm))
    });
    let mut report = GcReport::new(args);
    // Held until the end, so that no swarm is resumed while its resources are removed.
    let _claims = claim_and_salvage(args, here, &found, &mut known, repo.as_ref(), &mut report).await?;
    for resource in found.iter().filter(|resource| resource.kind != EngineResourceKind::Image) {
        let decision = known.decide(resource, args);
        let result = if decision.remove && !args.dry_run { remove_resource(&*engine, resource).await } else { Ok(()) };
        report.print_decision(kind_name(resource.kind), &resource.name, &decision, result)?;
    }
    if args.swarms.is_empty() {
        for image in images::longshore_images(&*engine).await? {
            let name = image.tags.first().map_or(image.id.as_str(), String::as_str);
            let reason = format!("an image: `docker image rm {}` removes it", sanitize(name));
            report.print_decision("image", name, &GcDecision::keep(reason), Ok(()))?;
        }
    }
    if let Some(repo) = &repo {
        collect_refs(repo, args, &mut report).await?;
    }
    report.finish()
}

/// Checks that each name matches exactly one swarm, here or in the engine.
fn check_swarm_names(args: &GcArgs, known: &SwarmInventory, repo: Option<&Repo>) -> Result<(), CommandError> {
    let mut swarms: Vec<SwarmId> = known.swarms.keys().copied().collect();
    if let Some(repo) = repo {
        swarms.extend(SwarmDir::list(repo.root())?.iter().map(SwarmDir::swarm));
    }
    swarms.sort_unstable();
    swarms.dedup();
    for name in &args.swarms {
        let matches: Vec<String> = swarms.iter().filter(|swarm| name.matches(swarm)).map(ToString::to_string).collect();
        match matches.as_slice() {
            [_] => {}
            [] => {
                let message = format!("no swarm `{}` here, and nothing of one in the engine", name.as_str());
                return Err(CommandError::input(message).with_hint("`longshore gc --dry-run` shows what there is"));
            }
            _ => return Err(StateError::AmbiguousSwarm { typed: name.as_str().to_owned(), matches }.into()),
        }
    }
    Ok(())
}

/// Claims the swarms with resources to remove, salvages the work of unfinished swarms, and updates `known`.
async fn claim_and_salvage(
    args: &GcArgs,
    here: &CommandContext,
    found: &[EngineResource],
    known: &mut SwarmInventory,
    repo: Option<&Repo>,
    report: &mut GcReport,
) -> Result<Vec<SwarmClaim>, CommandError> {
    let (Some(repo), false) = (repo, args.dry_run) else { return Ok(Vec::new()) };
    let to_go: Vec<(SwarmId, bool)> = (known.swarms.keys())
        .filter(|swarm| args.swarms.is_empty() || is_named(args, swarm))
        .map(|swarm| (*swarm, args.all || is_named(args, swarm)))
        .collect();
    let claims = claim::claim_swarms(repo.root(), known, &to_go)?;
    for claim in &claims {
        let swarm = claim.dir.swarm();
        let wide = args.all || is_named(args, &swarm);
        if !wide || known.swarms.get(&swarm) != Some(&SwarmGcState::Unfinished) {
            continue;
        }
        let has_work = found.iter().any(|resource| {
            swarm_of_resource(resource) == Some(swarm)
                && resource.labels.get(label::ROLE).is_some_and(|role| role == "work")
        });
        let lost = if has_work { salvage::salvage_swarm(here, repo, &claim.dir, report).await? } else { 0 };
        known.swarms.insert(swarm, if lost == 0 { SwarmGcState::Salvaged } else { SwarmGcState::SalvageFailed });
    }
    Ok(claims)
}

fn kind_name(kind: EngineResourceKind) -> &'static str {
    match kind {
        EngineResourceKind::Container => "container",
        EngineResourceKind::Volume => "volume",
        EngineResourceKind::Network => "network",
        EngineResourceKind::Image => "image",
    }
}

async fn remove_resource(engine: &dyn Engine, resource: &EngineResource) -> Result<(), CommandError> {
    match resource.kind {
        EngineResourceKind::Container => {
            let id: ContainerId = resource.id.parse().map_err(|error| {
                CommandError::machinery("the engine gave a container id that cannot be read").with_cause(&error)
            })?;
            Ok(engine.remove(&id).await?)
        }
        EngineResourceKind::Volume => Ok(engine.remove_volume(&resource.name).await?),
        EngineResourceKind::Network => Ok(engine.remove_network(&resource.id).await?),
        EngineResourceKind::Image => Ok(()),
    }
}

/// Reports refs with swarms' work, and deletes them with `--refs`.
async fn collect_refs(repo: &Repo, args: &GcArgs, report: &mut GcReport) -> Result<(), CommandError> {
    let dirs = SwarmDir::list(repo.root())?;
    let known = dirs.iter().map(SwarmDir::swarm).collect();
    let mut is_over = BTreeMap::new();
    for (name, _) in repo.list_refs("refs/longshore/").await? {
        let swarm = decision::swarm_of_ref(&name);
        if !args.swarms.is_empty() && !swarm.is_some_and(|swarm| is_named(args, &swarm)) {
            continue;
        }
        let unfinished = match dirs.iter().find(|dir| Some(dir.swarm()) == swarm) {
            Some(dir) if is_landing_ref(&name) => {
                !*is_over.entry(swarm).or_insert_with(|| stopped_swarm_gc_state(dir) == SwarmGcState::Finished)
            }
            _ => false,
        };
        let decision = decision::decide_ref(&name, &known, unfinished, args.refs);
        let result = if decision.remove && !args.dry_run {
            repo.delete_ref(&name).await.map_err(CommandError::from)
        } else {
            Ok(())
        };
        report.print_decision("ref", &name, &decision, result)?;
    }
    Ok(())
}
