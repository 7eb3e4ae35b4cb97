//! `longshore gc`: finds the resources of swarms in the engine and the repository, reports each on a line, and removes those that
//! are no longer needed.
//!
//! | what | removed |
//! |---|---|
//! | what does not carry our labels, or names no swarm | never |
//! | of a live swarm (its lock is held) | never |
//! | of a swarm that is over, with all its work on the host | yes |
//! | of a swarm that did not finish | with `--all`, or where it is named, and then only after all its work was salvaged (`salvage.rs`) |
//! | the same, where something could not be salvaged; of a swarm whose record is damaged | as before, with `--force` |
//! | of another repository's swarm | as before, with `--force`, where nothing of it runs or it is named |
//! | objects volumes, which only save time | with `--all`, where no swarm needs them; another repository's with `--force` too |
//! | refs | with `--refs`, of swarms whose folder is gone |
//! | refs of prepared landings | of swarms that are over |
//!
//! `decision.rs` holds the table, `report.rs` says what was done. `claim.rs` takes a swarm's lock, which is held while its things are removed.

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
    // Containers first: a volume in use cannot go.
    found.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let mut known = SwarmInventory::from_resources(&found, repo.as_ref())?;
    check_swarm_names(args, &known, repo.as_ref())?;
    found
        .retain(|thing| args.swarms.is_empty() || swarm_of_resource(thing).is_some_and(|swarm| is_named(args, &swarm)));
    let mut tally = GcReport::new(args);
    // Held until the end, so that no swarm is resumed while its resources are removed.
    let _claims = claim_and_salvage(args, here, &found, &mut known, repo.as_ref(), &mut tally).await?;
    for thing in found.iter().filter(|thing| thing.kind != EngineResourceKind::Image) {
        let verdict = known.decide(thing, args);
        let done = if verdict.remove && !args.dry_run { remove_resource(&*engine, thing).await } else { Ok(()) };
        tally.report(kind_name(thing.kind), &thing.name, &verdict, done)?;
    }
    if args.swarms.is_empty() {
        for image in images::longshore_images(&*engine).await? {
            let name = image.tags.first().map_or(image.id.as_str(), String::as_str);
            let reason = format!("an image: `docker image rm {}` removes it", sanitize(name));
            tally.report("image", name, &GcDecision::keep(reason), Ok(()))?;
        }
    }
    if let Some(repo) = &repo {
        collect_refs(repo, args, &mut tally).await?;
    }
    tally.finish()
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
    tally: &mut GcReport,
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
        let has_work = found.iter().any(|thing| {
            swarm_of_resource(thing) == Some(swarm) && thing.labels.get(label::ROLE).is_some_and(|role| role == "work")
        });
        let lost = if has_work { salvage::salvage_swarm(here, repo, &claim.dir, tally).await? } else { 0 };
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

async fn remove_resource(engine: &dyn Engine, thing: &EngineResource) -> Result<(), CommandError> {
    match thing.kind {
        EngineResourceKind::Container => {
            let id: ContainerId = thing.id.parse().map_err(|error| {
                CommandError::machinery("the engine gave a container id that cannot be read").with_cause(&error)
            })?;
            Ok(engine.remove(&id).await?)
        }
        EngineResourceKind::Volume => Ok(engine.remove_volume(&thing.name).await?),
        EngineResourceKind::Network => Ok(engine.remove_network(&thing.id).await?),
        EngineResourceKind::Image => Ok(()),
    }
}

/// Reports refs with swarms' work, and deletes them with `--refs`.
async fn collect_refs(repo: &Repo, args: &GcArgs, tally: &mut GcReport) -> Result<(), CommandError> {
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
        let verdict = decision::decide_ref(&name, &known, unfinished, args.refs);
        let done = if verdict.remove && !args.dry_run {
            repo.delete_ref(&name).await.map_err(CommandError::from)
        } else {
            Ok(())
        };
        tally.report("ref", &name, &verdict, done)?;
    }
    Ok(())
}
