//! What is to become of a thing, and why: the table of `mod.rs`. Must not: remove anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::named;
use crate::cli::args::GcArgs;
use crate::cli::error::Shown;
use crate::delivery::Repo;
use crate::engine::{Found, label};
use crate::ids::SwarmId;
use crate::state::recovery::recover;
use crate::state::{StateError, SwarmDir};
use crate::swarm::AttemptPhase;

/// What is known of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// An orchestrator holds its lock.
    Live,
    /// Nobody runs it, and nothing of its work is in the engine alone.
    Over,
    /// Its orchestrator is gone, and there may be work in its volumes.
    Unfinished,
    /// The same, and all that work was salvaged a moment ago.
    Rescued,
    /// The same, and some of it could not be.
    Stuck,
    /// Its record cannot be read: it may have left anything.
    Damaged,
    /// This repository knows no such swarm.
    Unknown,
}

/// What is to become of a thing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) remove: bool,
    pub(super) reason: String,
}

impl Verdict {
    pub(super) fn keep(reason: impl Into<String>) -> Self {
        Self { remove: false, reason: reason.into() }
    }
    pub(super) fn remove(reason: impl Into<String>) -> Self {
        Self { remove: true, reason: reason.into() }
    }
}

/// What is known of all the swarms that things were found of.
pub(super) struct Known {
    pub(super) swarms: BTreeMap<SwarmId, Standing>,
    /// Swarms of which something runs.
    running: BTreeSet<SwarmId>,
    repo: Option<String>,
}

impl Known {
    pub(super) fn of(found: &[Found], repo: Option<&Repo>) -> Result<Self, Shown> {
        let known = Self::at_root(found, repo.map(Repo::root))?;
        Ok(Self { repo: repo.map(Repo::hash), ..known })
    }

    /// For a repository of that root, without its objects.
    #[cfg(test)]
    pub(super) fn at(found: &[Found], root: &Path) -> Result<Self, Shown> {
        Self::at_root(found, Some(root))
    }

    fn at_root(found: &[Found], root: Option<&Path>) -> Result<Self, Shown> {
        let mut known = Self { swarms: BTreeMap::new(), running: BTreeSet::new(), repo: None };
        for thing in found {
            let Some(swarm) = swarm_of(thing) else { continue };
            if thing.running {
                known.running.insert(swarm);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = known.swarms.entry(swarm) {
                entry.insert(match root {
                    Some(root) => standing(root, swarm)?,
                    None => Standing::Unknown,
                });
            }
        }
        // A live swarm of this repository without a thing in the engine yet still needs the objects volume.
        if let Some(root) = root {
            for dir in SwarmDir::list(root)? {
                if dir.is_locked()? {
                    known.swarms.insert(dir.swarm(), Standing::Live);
                }
            }
        }
        Ok(known)
    }

    pub(super) fn judge(&self, thing: &Found, args: &GcArgs) -> Verdict {
        let role = thing.labels.get(label::ROLE).map_or("", String::as_str);
        let Some(swarm) = swarm_of(thing) else {
            return if role == "objects" {
                self.judge_objects(thing, args)
            } else {
                Verdict::keep("it names no swarm that can be read: it is not touched")
            };
        };
        let what = format!("{} of swarm {}", if role.is_empty() { "part" } else { role }, swarm.short());
        let named = named(args, &swarm);
        let (wide, force) = (args.all || named, (args.all || named) && args.force);
        let running = self.running.contains(&swarm);
        let keep = |why: &str| Verdict::keep(format!("{what}, {why}"));
        let remove = |why: &str| Verdict::remove(format!("{what}, {why}"));
        match self.swarms.get(&swarm).copied().unwrap_or(Standing::Unknown) {
            Standing::Live => keep("which is running"),
            Standing::Over => remove("which does not run and whose work is on the host"),
            // Only a dry run asks of one before its rescue.
            Standing::Unfinished if wide => remove("which does not run: what is not on the host is salvaged first"),
            Standing::Unfinished => keep(
                "which does not run: it may hold work that is nowhere else; --all salvages that and removes the rest",
            ),
            Standing::Rescued => remove("which does not run and whose work was salvaged"),
            Standing::Stuck | Standing::Damaged if force => {
                remove("which does not run and whose work may be lost with it")
            }
            Standing::Stuck => {
                keep("which does not run and has work that could not be salvaged; --force removes it all the same")
            }
            Standing::Damaged => {
                let how = if wide { "--force" } else { "--all --force" };
                keep(&format!("whose record cannot be read: it may hold work that is nowhere else; {how} removes it"))
            }
            Standing::Unknown if running && !(named && force) => {
                keep("which this repository does not know and which may be running")
            }
            Standing::Unknown if force => remove("which this repository does not know: its work may be lost with it"),
            Standing::Unknown => keep(
                "which this repository does not know: `longshore gc` in its own repository salvages its work; --all --force \
                 removes it here",
            ),
        }
    }

    fn judge_objects(&self, thing: &Found, args: &GcArgs) -> Verdict {
        let of = thing.labels.get(label::REPO);
        if of.is_none() || of != self.repo.as_ref() {
            // A swarm that has just begun there has nothing else in the engine yet, and its lock cannot be seen from here.
            return match args.all && args.force && !self.swarms.values().any(|known| *known == Standing::Unknown) {
                true => Verdict::remove("another repository's objects: its next swarm sends them again"),
                false => Verdict::keep(
                    "another repository's objects: they save time; --all --force removes them, while none of its swarms is there",
                ),
            };
        }
        // Work that could not be salvaged needs them as much as a swarm that runs.
        let needs = |standing: &Standing| matches!(standing, Standing::Live | Standing::Stuck | Standing::Damaged);
        match (self.swarms.values().any(needs), args.all) {
            (true, _) => Verdict::keep("this repository's objects: a swarm that is still there may need them"),
            (false, true) => Verdict::remove("this repository's objects: the next swarm sends them again"),
            (false, false) => Verdict::keep("this repository's objects: they save time; --all removes them"),
        }
    }
}

pub(super) fn swarm_of(thing: &Found) -> Option<SwarmId> {
    thing.labels.get(label::SWARM)?.parse().ok()
}

/// How a swarm of this repository stands.
fn standing(root: &Path, swarm: SwarmId) -> Result<Standing, Shown> {
    let dir = match SwarmDir::open(root, swarm) {
        Ok(dir) => dir,
        Err(StateError::NoSuchSwarm { .. }) => return Ok(Standing::Unknown),
        Err(error) => return Err(error.into()),
    };
    if dir.is_locked()? {
        return Ok(Standing::Live);
    }
    Ok(at_rest(&dir))
}

/// How a swarm stands that nobody runs.
pub(super) fn at_rest(dir: &SwarmDir) -> Standing {
    let Ok(recovered) = recover(dir) else { return Standing::Damaged };
    let on_the_host =
        recovered.machine.attempts().all(|attempt| attempt.phase == AttemptPhase::Settled && !attempt.work_dir_kept);
    if on_the_host { Standing::Over } else { Standing::Unfinished }
}

/// `refs/longshore/<kind>/<swarm>/...`.
pub(super) fn swarm_of_ref(name: &str) -> Option<SwarmId> {
    name.split('/').nth(3)?.parse().ok()
}

pub(super) fn judge_ref(swarm: Option<SwarmId>, known: &BTreeSet<SwarmId>, refs: bool) -> Verdict {
    let Some(swarm) = swarm else {
        return Verdict::keep("it names no swarm: it is not touched");
    };
    let short = swarm.short();
    match (known.contains(&swarm), refs) {
        (true, _) => Verdict::keep(format!("work of swarm {short}, whose folder is here")),
        (false, true) => Verdict::remove(format!("work of swarm {short}, whose folder is gone")),
        (false, false) => Verdict::keep(format!("work of swarm {short}, whose folder is gone; --refs removes it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::FoundKind;

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

    /// The flags: `a` is `--all`, `f` is `--force`, `n` names the swarm.
    fn args(flags: &str) -> GcArgs {
        let swarms = if flags.contains('n') { vec!["a1b2".parse().expect("valid")] } else { Vec::new() };
        GcArgs { swarms, all: flags.contains('a'), force: flags.contains('f'), ..GcArgs::default() }
    }

    #[test]
    fn things_of_swarms() {
        // Which of these flags have it removed.
        const FLAGS: [&str; 6] = ["", "a", "n", "af", "nf", "f"];
        let table: [(Standing, bool, &[&str]); 10] = [
            (Standing::Live, false, &[]),
            (Standing::Live, true, &[]),
            (Standing::Over, false, &FLAGS),
            (Standing::Over, true, &FLAGS),
            (Standing::Unfinished, false, &["a", "n", "af", "nf"]),
            (Standing::Rescued, true, &FLAGS),
            (Standing::Stuck, false, &["af", "nf"]),
            (Standing::Damaged, false, &["af", "nf"]),
            (Standing::Unknown, false, &["af", "nf"]),
            (Standing::Unknown, true, &["nf"]),
        ];
        for (standing, running, removed) in table {
            for flags in FLAGS {
                let volume = thing(&[(label::SWARM, SWARM), (label::ROLE, "work")]);
                let verdict = known(standing, running).judge(&volume, &args(flags));
                let wanted = removed.contains(&flags);
                assert_eq!(verdict.remove, wanted, "{standing:?} running {running} `{flags}`: {}", verdict.reason);
            }
        }
    }

    #[test]
    fn objects_go_only_with_all_and_when_nobody_needs_them() {
        let ours = thing(&[(label::ROLE, "objects"), (label::REPO, "abc")]);
        let theirs = thing(&[(label::ROLE, "objects"), (label::REPO, "def")]);
        assert!(!known(Standing::Over, false).judge(&ours, &args("")).remove);
        assert!(known(Standing::Over, false).judge(&ours, &args("a")).remove);
        assert!(known(Standing::Rescued, false).judge(&ours, &args("a")).remove);
        for needed in [Standing::Live, Standing::Stuck, Standing::Damaged] {
            assert!(!known(needed, true).judge(&ours, &args("a")).remove, "{needed:?}");
        }
        assert!(!known(Standing::Over, true).judge(&theirs, &args("a")).remove);
        assert!(known(Standing::Live, true).judge(&theirs, &args("af")).remove);
        assert!(!known(Standing::Unknown, false).judge(&theirs, &args("af")).remove);
    }

    #[test]
    fn what_names_no_swarm_is_not_touched() {
        for labels in [&[][..], &[(label::SWARM, "nonsense")], &[(label::ROLE, "work")]] {
            assert!(!known(Standing::Over, false).judge(&thing(labels), &args("af")).remove);
        }
    }

    #[test]
    fn refs_go_only_when_asked_for_and_their_swarm_is_gone() {
        let known = [SWARM.parse().expect("valid")].into();
        let judged = |name: &str, refs| judge_ref(swarm_of_ref(name), &known, refs).remove;
        let of = |swarm: &str| format!("refs/longshore/salvage/{swarm}/US-001/1");
        let gone = "b1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
        assert!(!judged(&of(SWARM), true));
        assert!(!judged(&of(gone), false));
        assert!(judged(&of(gone), true));
        assert!(!judged("refs/longshore/other", true));
    }
}
