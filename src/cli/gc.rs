//! `longshore gc`: finds what swarms left in the engine and in the repo, explains each thing in a line, and removes what
//! surely belongs to nobody.
//!
//! Rules: only what carries our labels, and never what a live swarm has (its lock is held). What an unfinished swarm left
//! may hold work that is nowhere else, and is kept; so are other repositories' things and the objects volumes, which only
//! save time. `--all` takes those too, but nothing of a swarm that cannot be seen to be dead. Refs go with `--refs` alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::args::GcArgs;
use super::error::Shown;
use super::here::Here;
use super::{Outcome, images, say};
use crate::delivery::Repo;
use crate::engine::{Engine, Found, FoundKind, label};
use crate::ids::{ContainerId, SwarmId};
use crate::report::text::clean;
use crate::state::recover::recover;
use crate::state::{StateError, SwarmDir};
use crate::swarm::Phase;

/// What is known of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// An orchestrator holds its lock.
    Live,
    /// Nobody runs it, and nothing of its work is in the engine alone.
    Over,
    /// Its orchestrator is gone, and there may be work in its volumes.
    Unfinished,
    /// This repository knows no such swarm.
    Unknown,
}

/// What is to become of a thing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    remove: bool,
    reason: String,
}

impl Verdict {
    fn keep(reason: impl Into<String>) -> Self {
        Self { remove: false, reason: reason.into() }
    }
    fn remove(reason: impl Into<String>) -> Self {
        Self { remove: true, reason: reason.into() }
    }
}

/// Carries it out.
pub async fn gc(args: &GcArgs, here: &Here) -> Outcome {
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
    let known = Known::of(&found, repo.as_ref())?;
    let mut tally = Tally { dry_run: args.dry_run, removed: 0, kept: 0, failed: 0 };
    for thing in found.iter().filter(|thing| thing.kind != FoundKind::Image) {
        let verdict = known.judge(thing, args.all);
        let name = format!("{} {}", word(thing.kind), clean(&thing.name));
        let done = if verdict.remove && !args.dry_run { remove(&*engine, thing).await } else { Ok(()) };
        tally.tell(&name, &verdict, done)?;
    }
    for image in images::ours(&*engine).await? {
        let name = image.tags.first().map_or(image.id.as_str(), String::as_str);
        let reason = format!("an image: `docker image rm {name}` removes it");
        tally.tell(&format!("image {}", clean(name)), &Verdict::keep(reason), Ok(()))?;
    }
    if let Some(repo) = &repo {
        refs(repo, args, &mut tally).await?;
    }
    tally.close()
}

/// What is known of all the swarms that things were found of.
struct Known {
    swarms: BTreeMap<SwarmId, Standing>,
    /// Swarms of which something runs.
    running: BTreeSet<SwarmId>,
    repo: Option<String>,
}

impl Known {
    fn of(found: &[Found], repo: Option<&Repo>) -> Result<Self, Shown> {
        let mut known = Self { swarms: BTreeMap::new(), running: BTreeSet::new(), repo: repo.map(Repo::hash) };
        for thing in found {
            let Some(swarm) = swarm_of(thing) else { continue };
            if thing.running {
                known.running.insert(swarm);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = known.swarms.entry(swarm) {
                entry.insert(match repo {
                    Some(repo) => standing(repo.root(), swarm)?,
                    None => Standing::Unknown,
                });
            }
        }
        // A live swarm of this repository without a thing in the engine yet still needs the objects volume.
        if let Some(repo) = repo {
            for dir in SwarmDir::list(repo.root())? {
                if dir.locked()? {
                    known.swarms.insert(dir.swarm(), Standing::Live);
                }
            }
        }
        Ok(known)
    }

    fn judge(&self, thing: &Found, all: bool) -> Verdict {
        let role = thing.labels.get(label::ROLE).map_or("", String::as_str);
        let Some(swarm) = swarm_of(thing) else {
            return if role == "objects" {
                self.judge_objects(thing, all)
            } else {
                Verdict::keep("it names no swarm that can be read: it is not touched")
            };
        };
        let short = swarm.short();
        let role = if role.is_empty() { "part" } else { role };
        match self.swarms.get(&swarm).copied().unwrap_or(Standing::Unknown) {
            Standing::Live => Verdict::keep(format!("{role} of swarm {short}, which is running")),
            Standing::Over => {
                Verdict::remove(format!("{role} of swarm {short}, which does not run and whose work is on the host"))
            }
            Standing::Unfinished if all => Verdict::remove(format!(
                "{role} of swarm {short}, which does not run and whose work may be lost with it"
            )),
            Standing::Unfinished => Verdict::keep(format!(
                "{role} of swarm {short}, which does not run: it may hold work that is nowhere else; --all removes it"
            )),
            Standing::Unknown if self.running.contains(&swarm) => Verdict::keep(format!(
                "{role} of swarm {short}, which this repository does not know and which may be running"
            )),
            Standing::Unknown if all => Verdict::remove(format!("{role} of swarm {short}, of which nothing runs")),
            Standing::Unknown => {
                Verdict::keep(format!("{role} of swarm {short}, which this repository does not know; --all removes it"))
            }
        }
    }

    fn judge_objects(&self, thing: &Found, all: bool) -> Verdict {
        let of = thing.labels.get(label::REPO);
        let ours = of.is_some() && of == self.repo.as_ref();
        let whose = if ours { "this repository's objects" } else { "another repository's objects" };
        let busy = if ours {
            self.swarms.values().any(|standing| *standing == Standing::Live)
        } else {
            // Whose repository a running swarm is of cannot be told from here.
            self.running.iter().any(|swarm| self.swarms.get(swarm) == Some(&Standing::Unknown))
        };
        match (busy, all) {
            (true, _) => Verdict::keep(format!("{whose}: a running swarm may need them")),
            (false, true) => Verdict::remove(format!("{whose}: the next swarm sends them again")),
            (false, false) => Verdict::keep(format!("{whose}: they save time; --all removes them")),
        }
    }
}

fn swarm_of(thing: &Found) -> Option<SwarmId> {
    thing.labels.get(label::SWARM)?.parse().ok()
}

/// How a swarm of this repository stands. One whose journal cannot be read may hold anything: it is unfinished.
fn standing(root: &Path, swarm: SwarmId) -> Result<Standing, Shown> {
    let dir = match SwarmDir::open(root, swarm) {
        Ok(dir) => dir,
        Err(StateError::NoSuchSwarm { .. }) => return Ok(Standing::Unknown),
        Err(error) => return Err(error.into()),
    };
    if dir.locked()? {
        return Ok(Standing::Live);
    }
    let Ok(recovered) = recover(&dir) else { return Ok(Standing::Unfinished) };
    let on_the_host = recovered.machine.attempts().all(|attempt| attempt.phase == Phase::Settled && !attempt.work_kept);
    Ok(if on_the_host { Standing::Over } else { Standing::Unfinished })
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
    let known: BTreeSet<SwarmId> = SwarmDir::list(repo.root())?.iter().map(SwarmDir::swarm).collect();
    for (name, _) in repo.list_refs("refs/longshore/").await? {
        let verdict = judge_ref(&name, &known, args.refs);
        let done =
            if verdict.remove && !args.dry_run { repo.delete_ref(&name).await.map_err(Shown::from) } else { Ok(()) };
        tally.tell(&format!("ref {}", clean(&name)), &verdict, done)?;
    }
    Ok(())
}

/// `refs/longshore/<kind>/<swarm>/...`.
fn judge_ref(name: &str, known: &BTreeSet<SwarmId>, refs: bool) -> Verdict {
    let Some(swarm) = name.split('/').nth(3).and_then(|part| part.parse::<SwarmId>().ok()) else {
        return Verdict::keep("it names no swarm: it is not touched");
    };
    let short = swarm.short();
    match (known.contains(&swarm), refs) {
        (true, _) => Verdict::keep(format!("work of swarm {short}, whose folder is here")),
        (false, true) => Verdict::remove(format!("work of swarm {short}, whose folder is gone")),
        (false, false) => Verdict::keep(format!("work of swarm {short}, whose folder is gone; --refs removes it")),
    }
}

struct Tally {
    dry_run: bool,
    removed: usize,
    kept: usize,
    failed: usize,
}

impl Tally {
    fn tell(&mut self, name: &str, verdict: &Verdict, done: Result<(), Shown>) -> Result<(), Shown> {
        let word = match (verdict.remove, &done) {
            (_, Err(_)) => {
                self.failed += 1;
                "FAILED"
            }
            (true, Ok(())) => {
                self.removed += 1;
                if self.dry_run { "would remove" } else { "removed" }
            }
            (false, Ok(())) => {
                self.kept += 1;
                "kept"
            }
        };
        say(&format!("{word:<12} {name}: {}\n", verdict.reason))?;
        if let Err(error) = done {
            super::remark(error.to_string().trim_end());
        }
        Ok(())
    }

    fn close(self) -> Outcome {
        let verb = if self.dry_run { "to remove" } else { "removed" };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        say(&format!("{} {verb}, {} kept{failed}\n", self.removed, self.kept))?;
        Ok(if self.failed > 0 { 3 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

    fn thing(labels: &[(&str, &str)]) -> Found {
        Found {
            kind: FoundKind::Volume,
            id: "x".to_owned(),
            name: "x".to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            running: false,
            paused: false,
        }
    }

    fn known(standing: Standing, running: bool) -> Known {
        let swarm: SwarmId = SWARM.parse().expect("valid");
        Known {
            swarms: [(swarm, standing)].into(),
            running: running.then_some(swarm).into_iter().collect(),
            repo: Some("abc".to_owned()),
        }
    }

    #[test]
    fn things_of_swarms() {
        let table = [
            (Standing::Live, false, false, false),
            (Standing::Live, true, true, false),
            (Standing::Over, false, false, true),
            (Standing::Over, true, true, true),
            (Standing::Unfinished, false, false, false),
            (Standing::Unfinished, false, true, true),
            (Standing::Unknown, false, false, false),
            (Standing::Unknown, false, true, true),
            (Standing::Unknown, true, true, false),
        ];
        for (standing, running, all, wanted) in table {
            let volume = thing(&[(label::SWARM, SWARM), (label::ROLE, "work")]);
            let verdict = known(standing, running).judge(&volume, all);
            assert_eq!(verdict.remove, wanted, "{standing:?} running {running} all {all}: {}", verdict.reason);
        }
    }

    #[test]
    fn objects_go_only_with_all_and_when_nobody_needs_them() {
        let ours = thing(&[(label::ROLE, "objects"), (label::REPO, "abc")]);
        let theirs = thing(&[(label::ROLE, "objects"), (label::REPO, "def")]);
        assert!(!known(Standing::Over, false).judge(&ours, false).remove);
        assert!(known(Standing::Over, false).judge(&ours, true).remove);
        assert!(!known(Standing::Live, true).judge(&ours, true).remove);
        assert!(known(Standing::Live, true).judge(&theirs, true).remove);
        assert!(!known(Standing::Unknown, true).judge(&theirs, true).remove);
    }

    #[test]
    fn what_names_no_swarm_is_not_touched() {
        for labels in [&[][..], &[(label::SWARM, "nonsense")], &[(label::ROLE, "work")]] {
            assert!(!known(Standing::Over, false).judge(&thing(labels), true).remove);
        }
    }

    #[test]
    fn refs_go_only_when_asked_for_and_their_swarm_is_gone() {
        let known = [SWARM.parse().expect("valid")].into();
        let of = |swarm: &str| format!("refs/longshore/salvage/{swarm}/US-001/1");
        let gone = "b1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
        assert!(!judge_ref(&of(SWARM), &known, true).remove);
        assert!(!judge_ref(&of(gone), &known, false).remove);
        assert!(judge_ref(&of(gone), &known, true).remove);
        assert!(!judge_ref("refs/longshore/other", &known, true).remove);
    }
}
