//! `longshore gc`: finds what swarms left in the engine and in the repo, explains each thing in a line, and removes what
//! surely belongs to nobody.
//!
//! | what | removed |
//! |---|---|
//! | what does not carry our labels, or names no swarm | never |
//! | of a live swarm (its lock is held) | never |
//! | of a swarm that is over, with all its work on the host | yes |
//! | of a swarm that did not finish | with `--all`, or where it is named, and then only after all its work was salvaged (`rescue.rs`) |
//! | the same, where something could not be salvaged; of a swarm whose record is damaged | as before, with `--force` |
//! | of another repository's swarm | as before, with `--force`, where nothing of it runs or it is named |
//! | objects volumes, which only save time | with `--all`, where no swarm needs them; another repository's with `--force` too |
//! | refs | with `--refs`, of swarms whose folder is gone |
//!
//! `judge.rs` holds the table, `tell.rs` says what was done. `claim.rs` takes a swarm's lock, which is held while its things are removed.

mod claim;
mod judge;
mod rescue;
mod tell;

use super::args::GcArgs;
use super::error::Shown;
use super::here::Here;
use super::{Outcome, images};
use crate::delivery::Repo;
use crate::engine::{Engine, Found, FoundKind, label};
use crate::ids::{ContainerId, SwarmId};
use crate::report::text::sanitize;
use crate::state::{StateError, SwarmDir};

use claim::Claim;
use judge::{Known, Standing, Verdict, swarm_of};
use tell::Tally;

/// Carries it out.
pub async fn gc(args: &GcArgs, here: &Here) -> Outcome {
    if args.force && !args.all && args.swarms.is_empty() {
        return Err(Shown::input("`--force` is for what `--all` or a named swarm would remove")
            .hint("`longshore gc --all --force`, or `longshore gc SWARM --force`"));
    }
    // Outside of a repository every swarm is another repository's.
    let repo = here.repo().await.ok();
    let engine = here.engine().await?;
    let mut found = engine.find(label::ROLE, None).await?;
    for more in engine.find(label::SWARM, None).await? {
        if !found.iter().any(|known| known.kind == more.kind && known.id == more.id) {
            found.push(more);
        }
    }
    // Containers first: a volume in use cannot go.
    found.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let mut known = Known::of(&found, repo.as_ref())?;
    known_by_name(args, &known, repo.as_ref())?;
    found.retain(|thing| args.swarms.is_empty() || swarm_of(thing).is_some_and(|swarm| named(args, &swarm)));
    let mut tally = Tally::new(args);
    // Held until the end, so that nobody takes a swarm up whose things are going.
    let _claims = rescue_all(args, here, &found, &mut known, repo.as_ref(), &mut tally).await?;
    for thing in found.iter().filter(|thing| thing.kind != FoundKind::Image) {
        let verdict = known.judge(thing, args);
        let done = if verdict.remove && !args.dry_run { remove(&*engine, thing).await } else { Ok(()) };
        tally.tell(word(thing.kind), &thing.name, &verdict, done)?;
    }
    if args.swarms.is_empty() {
        for image in images::ours(&*engine).await? {
            let name = image.tags.first().map_or(image.id.as_str(), String::as_str);
            let reason = format!("an image: `docker image rm {}` removes it", sanitize(name));
            tally.tell("image", name, &Verdict::keep(reason), Ok(()))?;
        }
    }
    if let Some(repo) = &repo {
        refs(repo, args, &mut tally).await?;
    }
    tally.close()
}

/// Whether this swarm was named; none are where nothing was.
fn named(args: &GcArgs, swarm: &SwarmId) -> bool {
    args.swarms.iter().any(|name| name.matches(swarm))
}

/// Each name must be that of one swarm, here or in the engine.
fn known_by_name(args: &GcArgs, known: &Known, repo: Option<&Repo>) -> Result<(), Shown> {
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
                return Err(Shown::input(message).hint("`longshore gc --dry-run` shows what there is"));
            }
            _ => return Err(StateError::AmbiguousSwarm { typed: name.as_str().to_owned(), matches }.into()),
        }
    }
    Ok(())
}

/// Claims the swarms of which something is to go, salvages what those have that did not finish, and says so in `known`.
async fn rescue_all(
    args: &GcArgs,
    here: &Here,
    found: &[Found],
    known: &mut Known,
    repo: Option<&Repo>,
    tally: &mut Tally,
) -> Result<Vec<Claim>, Shown> {
    let (Some(repo), false) = (repo, args.dry_run) else { return Ok(Vec::new()) };
    let to_go: Vec<(SwarmId, bool)> = (known.swarms.keys())
        .filter(|swarm| args.swarms.is_empty() || named(args, swarm))
        .map(|swarm| (*swarm, args.all || named(args, swarm)))
        .collect();
    let claims = claim::claim(repo.root(), known, &to_go)?;
    for claim in &claims {
        let swarm = claim.dir.swarm();
        let wide = args.all || named(args, &swarm);
        if !wide || known.swarms.get(&swarm) != Some(&Standing::Unfinished) {
            continue;
        }
        let has_work = found.iter().any(|thing| {
            swarm_of(thing) == Some(swarm) && thing.labels.get(label::ROLE).is_some_and(|role| role == "work")
        });
        let lost = if has_work { rescue::rescue(here, repo, &claim.dir, tally).await? } else { 0 };
        known.swarms.insert(swarm, if lost == 0 { Standing::Rescued } else { Standing::Stuck });
    }
    Ok(claims)
}

fn word(kind: FoundKind) -> &'static str {
    match kind {
        FoundKind::Container => "container",
        FoundKind::Volume => "volume",
        FoundKind::Network => "network",
        FoundKind::Image => "image",
    }
}

async fn remove(engine: &dyn Engine, thing: &Found) -> Result<(), Shown> {
    match thing.kind {
        FoundKind::Container => {
            let id: ContainerId = thing.id.parse().map_err(|error| {
                Shown::machinery("the engine gave a container id that cannot be read").caused_by(&error)
            })?;
            Ok(engine.remove(&id).await?)
        }
        FoundKind::Volume => Ok(engine.remove_volume(&thing.name).await?),
        FoundKind::Network => Ok(engine.remove_network(&thing.id).await?),
        FoundKind::Image => Ok(()),
    }
}

/// The refs that keep work of swarms.
async fn refs(repo: &Repo, args: &GcArgs, tally: &mut Tally) -> Result<(), Shown> {
    let known = SwarmDir::list(repo.root())?.iter().map(SwarmDir::swarm).collect();
    for (name, _) in repo.list_refs("refs/longshore/").await? {
        let swarm = judge::swarm_of_ref(&name);
        if !args.swarms.is_empty() && !swarm.is_some_and(|swarm| named(args, &swarm)) {
            continue;
        }
        let verdict = judge::judge_ref(swarm, &known, args.refs);
        let done =
            if verdict.remove && !args.dry_run { repo.delete_ref(&name).await.map_err(Shown::from) } else { Ok(()) };
        tally.tell("ref", &name, &verdict, done)?;
    }
    Ok(())
}
