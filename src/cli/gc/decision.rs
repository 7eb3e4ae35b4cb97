//! Decides whether to remove a resource, following the table in `mod.rs`. Must not: remove anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cli::args::GcArgs;
use crate::cli::error::CommandError;
use crate::delivery::{Repo, is_landing_ref};
use crate::engine::{EngineResource, label};
use crate::ids::SwarmId;
use crate::state::recovery::recover;
use crate::state::{StateError, SwarmDir};
use crate::swarm::AttemptPhase;

/// The state of a swarm for garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwarmGcState {
    /// An orchestrator holds its lock.
    Live,
    /// It does not run, and all its work is on the host.
    Finished,
    /// It does not run, and its volumes may hold work.
    Unfinished,
    /// Like `Unfinished`, and all its work was just salvaged.
    Salvaged,
    /// Like `Unfinished`, and some of its work could not be salvaged.
    SalvageFailed,
    /// Its journal cannot be read, so its volumes may hold work.
    Damaged,
    /// This repository has no such swarm.
    Unknown,
}

/// Whether to remove a resource, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GcDecision {
    pub(super) remove: bool,
    pub(super) reason: String,
}

impl GcDecision {
    pub(super) fn keep(reason: impl Into<String>) -> Self {
        Self { remove: false, reason: reason.into() }
    }
    pub(super) fn remove(reason: impl Into<String>) -> Self {
        Self { remove: true, reason: reason.into() }
    }
}

/// The states of all swarms with resources in the engine.
pub(super) struct SwarmInventory {
    pub(super) swarms: BTreeMap<SwarmId, SwarmGcState>,
    /// Swarms with a running container.
    running_swarms: BTreeSet<SwarmId>,
    repo_hash: Option<String>,
}

impl SwarmInventory {
    pub(super) fn from_resources(found: &[EngineResource], repo: Option<&Repo>) -> Result<Self, CommandError> {
        let known = Self::load(found, repo.map(Repo::root))?;
        Ok(Self { repo_hash: repo.map(Repo::hash), ..known })
    }

    /// For a repository of that root, without its objects.
    #[cfg(test)]
    pub(super) fn from_resources_at(found: &[EngineResource], root: &Path) -> Result<Self, CommandError> {
        Self::load(found, Some(root))
    }

    fn load(found: &[EngineResource], root: Option<&Path>) -> Result<Self, CommandError> {
        let mut known = Self { swarms: BTreeMap::new(), running_swarms: BTreeSet::new(), repo_hash: None };
        for resource in found {
            let Some(swarm) = swarm_of_resource(resource) else { continue };
            if resource.running {
                known.running_swarms.insert(swarm);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = known.swarms.entry(swarm) {
                entry.insert(match root {
                    Some(root) => swarm_gc_state(root, swarm)?,
                    None => SwarmGcState::Unknown,
                });
            }
        }
        // A live swarm of this repository without resources in the engine yet still needs the objects volume.
        if let Some(root) = root {
            for dir in SwarmDir::list(root)? {
                if dir.is_locked()? {
                    known.swarms.insert(dir.swarm(), SwarmGcState::Live);
                }
            }
        }
        Ok(known)
    }

    pub(super) fn decide(&self, resource: &EngineResource, args: &GcArgs) -> GcDecision {
        let role = resource.labels.get(label::ROLE).map_or("", String::as_str);
        let Some(swarm) = swarm_of_resource(resource) else {
            return if role == "objects" {
                self.decide_objects(resource, args)
            } else {
                GcDecision::keep("it has no valid swarm label: it is not touched")
            };
        };
        let what = format!("{} of swarm {}", if role.is_empty() { "part" } else { role }, swarm.short());
        let named = is_named(args, &swarm);
        let (wide, force) = (args.all || named, (args.all || named) && args.force);
        let running = self.running_swarms.contains(&swarm);
        let keep = |why: &str| GcDecision::keep(format!("{what}, {why}"));
        let remove = |why: &str| GcDecision::remove(format!("{what}, {why}"));
        match self.swarms.get(&swarm).copied().unwrap_or(SwarmGcState::Unknown) {
            SwarmGcState::Live => keep("which is running"),
            SwarmGcState::Finished => remove("which does not run and whose work is on the host"),
            // Only a dry run reaches this: otherwise the work is salvaged first.
            SwarmGcState::Unfinished if wide => remove("which does not run: what is not on the host is salvaged first"),
            SwarmGcState::Unfinished => keep(
                "which does not run: it may hold work that is nowhere else; --all salvages that and removes the rest",
            ),
            SwarmGcState::Salvaged => remove("which does not run and whose work was salvaged"),
            SwarmGcState::SalvageFailed | SwarmGcState::Damaged if force => {
                remove("which does not run and whose work may be lost with it")
            }
            SwarmGcState::SalvageFailed => {
                keep("which does not run and has work that could not be salvaged; --force removes it anyway")
            }
            SwarmGcState::Damaged => {
                let how = if wide { "--force" } else { "--all --force" };
                keep(&format!("whose record cannot be read: it may hold work that is nowhere else; {how} removes it"))
            }
            SwarmGcState::Unknown if running && !(named && force) => {
                keep("which this repository does not know and which may be running")
            }
            SwarmGcState::Unknown if force => {
                remove("which this repository does not know: its work may be lost with it")
            }
            SwarmGcState::Unknown => keep(
                "which this repository does not know: `longshore gc` in its own repository salvages its work; --all --force \
                 removes it here",
            ),
        }
    }

    fn decide_objects(&self, resource: &EngineResource, args: &GcArgs) -> GcDecision {
        let of = resource.labels.get(label::REPO);
        if of.is_none() || of != self.repo_hash.as_ref() {
            // A swarm that just started there may have no other resources yet, and its lock is not visible from here.
            return match args.all && args.force && !self.swarms.values().any(|known| *known == SwarmGcState::Unknown) {
                true => GcDecision::remove("another repository's objects: its next swarm sends them again"),
                false => GcDecision::keep(
                    "another repository's objects: they save time; --all --force removes them if none of its swarms has resources here",
                ),
            };
        }
        // Work that could not be salvaged needs them as much as a swarm that runs.
        let needs = |state: &SwarmGcState| {
            matches!(state, SwarmGcState::Live | SwarmGcState::SalvageFailed | SwarmGcState::Damaged)
        };
        match (self.swarms.values().any(needs), args.all) {
            (true, _) => GcDecision::keep("this repository's objects: a swarm that is still there may need them"),
            (false, true) => GcDecision::remove("this repository's objects: the next swarm sends them again"),
            (false, false) => GcDecision::keep("this repository's objects: they save time; --all removes them"),
        }
    }
}

pub(super) fn swarm_of_resource(resource: &EngineResource) -> Option<SwarmId> {
    resource.labels.get(label::SWARM)?.parse().ok()
}

/// Determines the state of a swarm of this repository.
fn swarm_gc_state(root: &Path, swarm: SwarmId) -> Result<SwarmGcState, CommandError> {
    let dir = match SwarmDir::open(root, swarm) {
        Ok(dir) => dir,
        Err(StateError::NoSuchSwarm { .. }) => return Ok(SwarmGcState::Unknown),
        Err(error) => return Err(error.into()),
    };
    if dir.is_locked()? {
        return Ok(SwarmGcState::Live);
    }
    Ok(stopped_swarm_gc_state(&dir))
}

/// Determines the state of a swarm that does not run.
pub(super) fn stopped_swarm_gc_state(dir: &SwarmDir) -> SwarmGcState {
    let Ok(recovered) = recover(dir) else { return SwarmGcState::Damaged };
    let on_the_host =
        recovered.machine.attempts().all(|attempt| attempt.phase == AttemptPhase::Settled && !attempt.work_dir_kept);
    if on_the_host { SwarmGcState::Finished } else { SwarmGcState::Unfinished }
}

/// `refs/longshore/<kind>/<swarm>/...`.
pub(super) fn swarm_of_ref(name: &str) -> Option<SwarmId> {
    name.split('/').nth(3)?.parse().ok()
}

/// What to do with a ref. `unfinished`: its swarm runs or can be resumed.
pub(super) fn decide_ref(name: &str, known: &BTreeSet<SwarmId>, unfinished: bool, refs: bool) -> GcDecision {
    let Some(swarm) = swarm_of_ref(name) else {
        return GcDecision::keep("it names no swarm: it is not touched");
    };
    let short = swarm.short();
    if is_landing_ref(name) {
        // All work in it has a result ref. But only this ref tells a resumed swarm that it had moved the branch.
        return match unfinished {
            true => GcDecision::keep(format!("a landing of swarm {short}, which is not over")),
            false => GcDecision::remove(format!("a landing of swarm {short}, which is over")),
        };
    }
    match (known.contains(&swarm), refs) {
        (true, _) => GcDecision::keep(format!("work of swarm {short}, whose folder is here")),
        (false, true) => GcDecision::remove(format!("work of swarm {short}, whose folder is gone")),
        (false, false) => GcDecision::keep(format!("work of swarm {short}, whose folder is gone; --refs removes it")),
    }
}

/// Whether the arguments name this swarm.
pub(super) fn is_named(args: &GcArgs, swarm: &SwarmId) -> bool {
    args.swarms.iter().any(|name| name.matches(swarm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineResourceKind;

    const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

    fn resource(labels: &[(&str, &str)]) -> EngineResource {
        EngineResource {
            kind: EngineResourceKind::Volume,
            id: "x".to_owned(),
            name: "x".to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            running: false,
            paused: false,
        }
    }

    fn inventory(state: SwarmGcState, running: bool) -> SwarmInventory {
        let swarm: SwarmId = SWARM.parse().expect("valid");
        SwarmInventory {
            swarms: [(swarm, state)].into(),
            running_swarms: running.then_some(swarm).into_iter().collect(),
            repo_hash: Some("abc".to_owned()),
        }
    }

    /// The flags: `a` is `--all`, `f` is `--force`, `n` names the swarm.
    fn gc_args(flags: &str) -> GcArgs {
        let swarms = if flags.contains('n') { vec!["a1b2".parse().expect("valid")] } else { Vec::new() };
        GcArgs { swarms, all: flags.contains('a'), force: flags.contains('f'), ..GcArgs::default() }
    }

    #[test]
    fn swarm_resources_are_removed_by_state_and_flags() {
        // Which of these flags have it removed.
        const FLAGS: [&str; 6] = ["", "a", "n", "af", "nf", "f"];
        let table: [(SwarmGcState, bool, &[&str]); 10] = [
            (SwarmGcState::Live, false, &[]),
            (SwarmGcState::Live, true, &[]),
            (SwarmGcState::Finished, false, &FLAGS),
            (SwarmGcState::Finished, true, &FLAGS),
            (SwarmGcState::Unfinished, false, &["a", "n", "af", "nf"]),
            (SwarmGcState::Salvaged, true, &FLAGS),
            (SwarmGcState::SalvageFailed, false, &["af", "nf"]),
            (SwarmGcState::Damaged, false, &["af", "nf"]),
            (SwarmGcState::Unknown, false, &["af", "nf"]),
            (SwarmGcState::Unknown, true, &["nf"]),
        ];
        for (state, running, removed) in table {
            for flags in FLAGS {
                let volume = resource(&[(label::SWARM, SWARM), (label::ROLE, "work")]);
                let decision = inventory(state, running).decide(&volume, &gc_args(flags));
                let wanted = removed.contains(&flags);
                assert_eq!(decision.remove, wanted, "{state:?} running {running} `{flags}`: {}", decision.reason);
            }
        }
    }

    #[test]
    fn objects_are_removed_only_with_all_and_when_unused() {
        let ours = resource(&[(label::ROLE, "objects"), (label::REPO, "abc")]);
        let theirs = resource(&[(label::ROLE, "objects"), (label::REPO, "def")]);
        assert!(!inventory(SwarmGcState::Finished, false).decide(&ours, &gc_args("")).remove);
        assert!(inventory(SwarmGcState::Finished, false).decide(&ours, &gc_args("a")).remove);
        assert!(inventory(SwarmGcState::Salvaged, false).decide(&ours, &gc_args("a")).remove);
        for needed in [SwarmGcState::Live, SwarmGcState::SalvageFailed, SwarmGcState::Damaged] {
            assert!(!inventory(needed, true).decide(&ours, &gc_args("a")).remove, "{needed:?}");
        }
        assert!(!inventory(SwarmGcState::Finished, true).decide(&theirs, &gc_args("a")).remove);
        assert!(inventory(SwarmGcState::Live, true).decide(&theirs, &gc_args("af")).remove);
        assert!(!inventory(SwarmGcState::Unknown, false).decide(&theirs, &gc_args("af")).remove);
    }

    #[test]
    fn resources_without_a_swarm_are_kept() {
        for labels in [&[][..], &[(label::SWARM, "nonsense")], &[(label::ROLE, "work")]] {
            assert!(!inventory(SwarmGcState::Finished, false).decide(&resource(labels), &gc_args("af")).remove);
        }
    }

    #[test]
    fn refs_are_removed_only_with_flag_and_without_swarm() {
        let known = [SWARM.parse().expect("valid")].into();
        let judged = |name: &str, refs| decide_ref(name, &known, false, refs).remove;
        let of = |swarm: &str| format!("refs/longshore/salvage/{swarm}/US-001/1");
        let missing_swarm = "b1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
        assert!(!judged(&of(SWARM), true));
        assert!(!judged(&of(missing_swarm), false));
        assert!(judged(&of(missing_swarm), true));
        assert!(!judged("refs/longshore/other", true));
    }

    #[test]
    fn landing_refs_are_removed_when_the_swarm_is_over() {
        let name = format!("refs/longshore/landing/{SWARM}/1-2");
        for known in [BTreeSet::new(), [SWARM.parse().expect("valid")].into()] {
            assert!(decide_ref(&name, &known, false, false).remove);
            assert!(!decide_ref(&name, &known, true, true).remove);
        }
    }
}
