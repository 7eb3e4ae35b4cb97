//! Which work is kept, and which of it a person means by `US-003`, `a1b2/US-003/2` or the name of a ref.

use std::collections::BTreeMap;

use crate::cli::error::CommandError;
use crate::cli::swarm_prefix::SwarmPrefix;
use crate::delivery::{KeptRef, Repo};
use crate::ids::{CommitId, StoryKey, SwarmId};
use crate::report::StoryLabels;
use crate::state::{SalvageRecord, SwarmDir, salvage_records};
use crate::verdict::Failure;

/// How many names an error lists.
const MAX_LISTED_NAMES: usize = 20;

/// Kept work, with what the swarm's journal says of it.
#[derive(Debug, Clone)]
pub(super) struct SalvagedWork {
    /// The ref.
    pub(super) kept_ref: KeptRef,
    /// The journal's word; none where the swarm's folder is gone or cannot be read.
    pub(super) journal_entry: Option<SalvageRecord>,
    /// The labels of the stories whose work it is; what the ref's name says where nothing else does.
    pub(super) labels: Vec<String>,
    /// Their titles, where they are known.
    pub(super) titles: Vec<String>,
    /// When the swarm began among the others: 0 is the newest.
    swarm_rank: usize,
}

impl SalvagedWork {
    /// Why the first of its stories did not land.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.journal_entry.as_ref()?.stories.iter().find_map(|(_, failure)| failure.as_ref())
    }

    /// `US-001`, or several with commas.
    pub(super) fn story_labels(&self) -> String {
        self.labels.join(", ")
    }

    /// Where it begins.
    pub(super) async fn base(&self, repo: &Repo) -> Result<CommitId, CommandError> {
        Ok(repo.find_base(&self.kept_ref.commit, self.journal_entry.as_ref().map(|known| &known.base)).await?)
    }

    fn matches_story(&self, typed: &str) -> bool {
        let named = |label: &str| label == typed || label.rsplit('/').next() == Some(typed);
        named(&self.kept_ref.path) || self.labels.iter().any(|label| named(label))
    }

    /// What tells it from the others for a person.
    fn full_name(&self) -> String {
        format!("{}/{}/{}", self.kept_ref.swarm.short(), self.kept_ref.path, self.kept_ref.attempt)
    }
}

/// All that is kept: the newest swarm first, then by story, the newest attempt first. Results that landed are not among it.
pub(super) async fn find_all(repo: &Repo, swarm: Option<&SwarmPrefix>) -> Result<Vec<SalvagedWork>, CommandError> {
    let mut refs = repo.kept_refs().await?;
    refs.retain(|at| swarm.is_none_or(|swarm| swarm.matches(&at.swarm)));
    let swarms = SwarmJournals::load(repo, &refs)?;
    let mut found: Vec<SalvagedWork> = Vec::new();
    for at in refs {
        let journal = swarms.journals.get(&at.swarm);
        let known = journal.and_then(|(_, kept)| kept.get(&at.name)).cloned();
        // What a sandbox finished is work that did not land only where it says so, or nobody knows and no branch has it.
        if at.is_result
            && known.is_none()
            && (journal.is_some() || !repo.branches_containing(&at.commit).await?.is_empty())
        {
            continue;
        }
        let names = journal.map(|(names, _)| names);
        let keys: Vec<&StoryKey> = known.iter().flat_map(|known| &known.stories).map(|(key, _)| key).collect();
        let label = |key: &&StoryKey| names.map_or_else(|| key.id.to_string(), |names| names.label(key).to_owned());
        let mut labels: Vec<String> = keys.iter().map(label).collect();
        let mut titles: Vec<String> = keys
            .iter()
            .filter_map(|key| Some(names?.title(key).to_owned()))
            .filter(|title| !title.is_empty())
            .collect();
        if labels.is_empty() {
            labels.push(at.path.clone());
            titles.extend(names.and_then(|names| Some(names.title(names.find(&at.path).first()?).to_owned())));
        }
        let age = swarms.rank(&at.swarm);
        found.push(SalvagedWork { kept_ref: at, journal_entry: known, labels, titles, swarm_rank: age });
    }
    let order = |kept: &SalvagedWork| {
        (kept.swarm_rank, kept.kept_ref.swarm, kept.kept_ref.path.clone(), std::cmp::Reverse(kept.kept_ref.attempt))
    };
    found.sort_by_key(order);
    Ok(found)
}

struct SwarmJournals {
    journals: BTreeMap<SwarmId, (StoryLabels, BTreeMap<String, SalvageRecord>)>,
    /// Newest first.
    newest_first: Vec<SwarmId>,
}

impl SwarmJournals {
    fn load(repo: &Repo, refs: &[KeptRef]) -> Result<Self, CommandError> {
        let mut journals = BTreeMap::new();
        let mut times: BTreeMap<SwarmId, i64> = BTreeMap::new();
        for at in refs {
            let newest = times.entry(at.swarm).or_insert(at.committed_at);
            *newest = at.committed_at.max(*newest);
        }
        for dir in SwarmDir::list(repo.root())? {
            // A journal that cannot be read takes nothing away from what the refs say.
            if let (Some(time), Ok((header, kept))) = (times.get_mut(&dir.swarm()), salvage_records(&dir)) {
                *time = header.started.as_second();
                journals.insert(dir.swarm(), (StoryLabels::from_spec(&header.spec), kept));
            }
        }
        let mut order: Vec<SwarmId> = times.keys().copied().collect();
        order.sort_by_key(|swarm| std::cmp::Reverse(times[swarm]));
        Ok(Self { journals, newest_first: order })
    }

    fn rank(&self, swarm: &SwarmId) -> usize {
        self.newest_first.iter().position(|known| known == swarm).unwrap_or(self.newest_first.len())
    }
}

/// The one that is meant.
pub(super) async fn find_one(repo: &Repo, typed: &str) -> Result<SalvagedWork, CommandError> {
    let found = find_all(repo, None).await?;
    match select(&found, typed) {
        Ok(kept) => Ok(kept.clone()),
        Err(several) if several.is_empty() => {
            let message = format!("no kept work is called `{typed}`");
            Err(match found.is_empty() {
                true => CommandError::input(message)
                    .with_hint("nothing is kept: everything that a swarm made here has landed"),
                false => {
                    let names: Vec<String> = found.iter().map(SalvagedWork::full_name).take(MAX_LISTED_NAMES).collect();
                    CommandError::input(message)
                        .with_hint(format!("`longshore salvage list` shows it all: {}", names.join(", ")))
                }
            })
        }
        Err(several) => Err(CommandError::input(format!("`{typed}` may be the work of several stories"))
            .with_hint(format!("name one of {}", several.join(", ")))),
    }
}

/// By the ref's name, or `[SWARM/]STORY[/ATTEMPT]`: the newest swarm's newest attempt of what is left out. `Err` has the names that
/// it could mean.
fn select<'a>(found: &'a [SalvagedWork], typed: &str) -> Result<&'a SalvagedWork, Vec<String>> {
    if let Some(kept) = found.iter().find(|kept| kept.kept_ref.name == typed) {
        return Ok(kept);
    }
    let (rest, attempt) = match typed.rsplit_once('/') {
        Some((rest, number)) if number.parse::<u32>().is_ok() => (rest, number.parse::<u32>().ok()),
        _ => (typed, None),
    };
    // A slug may look like the beginning of a swarm's id: it is the slug that is meant.
    let exact = |kept: &SalvagedWork| kept.kept_ref.path == rest || kept.labels.iter().any(|label| label == rest);
    let only_exact = found.iter().any(exact);
    let matches = |kept: &&SalvagedWork| {
        let of_swarm = |name: &str| name.parse::<SwarmPrefix>().is_ok_and(|name| name.matches(&kept.kept_ref.swarm));
        let named = || {
            kept.matches_story(rest)
                || rest.split_once('/').is_some_and(|(swarm, story)| of_swarm(swarm) && kept.matches_story(story))
        };
        attempt.is_none_or(|attempt| attempt == kept.kept_ref.attempt) && if only_exact { exact(kept) } else { named() }
    };
    // They are in order, so the first swarm is the newest, and the first of a story is its newest attempt.
    let all: Vec<&SalvagedWork> = found.iter().filter(matches).collect();
    let Some(first) = all.first() else { return Err(Vec::new()) };
    let mut stories: Vec<&SalvagedWork> =
        all.iter().copied().filter(|kept| kept.kept_ref.swarm == first.kept_ref.swarm).collect();
    // The newest attempt, whichever of its stories names the ref.
    stories.sort_by_key(|kept| std::cmp::Reverse(kept.kept_ref.attempt));
    let slug = |kept: &SalvagedWork| {
        kept.labels.first().and_then(|label| label.split_once('/')).map(|(slug, _)| slug.to_owned())
    };
    if stories.iter().any(|kept| slug(kept) != slug(first)) {
        return Err(stories.into_iter().map(SalvagedWork::full_name).collect());
    }
    stories.into_iter().next().ok_or_else(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
    const OLD: &str = "feedc3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

    fn salvaged_work(age: usize, swarm: &str, path: &str, attempt: u32) -> SalvagedWork {
        let at = KeptRef {
            name: format!("refs/longshore/salvage/{swarm}/{path}/{attempt}"),
            is_result: false,
            swarm: swarm.parse().expect("valid"),
            path: path.to_owned(),
            attempt,
            commit: "0123456789".repeat(4).parse().expect("valid"),
            committed_at: 0,
            subject: String::new(),
        };
        SalvagedWork {
            kept_ref: at,
            journal_entry: None,
            labels: vec![path.to_owned()],
            titles: Vec::new(),
            swarm_rank: age,
        }
    }

    #[test]
    fn select_resolves_refs_stories_and_attempts() {
        let found = [
            salvaged_work(0, NEW, "US-001", 2),
            salvaged_work(0, NEW, "US-001", 1),
            salvaged_work(0, NEW, "US-002", 1),
            salvaged_work(1, OLD, "feed/US-002", 1),
            salvaged_work(1, OLD, "other/US-002", 3),
            salvaged_work(1, OLD, "other/US-004", 1),
        ];
        let full = |typed: &str| select(&found, typed).map(SalvagedWork::full_name);
        for (typed, wanted) in [
            ("US-001", "a1b2c3d4/US-001/2"),
            ("US-001/1", "a1b2c3d4/US-001/1"),
            ("A1B2/US-001/1", "a1b2c3d4/US-001/1"),
            ("US-002", "a1b2c3d4/US-002/1"),
            ("US-004", "feedc3d4/other/US-004/1"),
            ("other/US-002", "feedc3d4/other/US-002/3"),
            ("feed/US-002", "feedc3d4/feed/US-002/1"),
            ("feedc3d4/other/US-002/3", "feedc3d4/other/US-002/3"),
            (&found[1].kept_ref.name, "a1b2c3d4/US-001/1"),
        ] {
            assert_eq!(full(typed), Ok(wanted.to_owned()), "{typed}");
        }
        for nothing in ["US-009", "US-001/3", "b1b2/US-001", "", "refs/longshore/salvage/x"] {
            assert_eq!(full(nothing), Err(Vec::new()), "{nothing}");
        }
        let several = full("feedc3d4/US-002").expect_err("two files have it");
        assert_eq!(several.len(), 2, "{several:?}");
    }
}
