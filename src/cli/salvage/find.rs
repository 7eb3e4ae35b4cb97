//! Finds kept work, and resolves names such as `US-003`, `a1b2/US-003/2` or the name of a ref.

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

/// Kept work with its journal entry.
#[derive(Debug, Clone)]
pub(super) struct SalvagedRef {
    pub(super) kept_ref: KeptRef,
    /// `None` if the swarm's directory is missing or unreadable.
    pub(super) journal_entry: Option<SalvageRecord>,
    /// Labels of its stories; the path in the ref's name if the journal has none.
    pub(super) labels: Vec<String>,
    /// Known titles of the stories.
    pub(super) titles: Vec<String>,
    /// Rank of the swarm by start time; 0 is the newest.
    swarm_rank: usize,
}

impl SalvagedRef {
    /// The first failure of its stories.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.journal_entry.as_ref()?.stories.iter().find_map(|(_, failure)| failure.as_ref())
    }

    /// `US-001`, or several with commas.
    pub(super) fn story_labels(&self) -> String {
        self.labels.join(", ")
    }

    /// The commit that the work is based on.
    pub(super) async fn base(&self, repo: &Repo) -> Result<CommitId, CommandError> {
        Ok(repo.find_base(&self.kept_ref.commit, self.journal_entry.as_ref().map(|record| &record.base)).await?)
    }

    fn matches_story(&self, typed: &str) -> bool {
        let matches_name = |label: &str| label == typed || label.rsplit('/').next() == Some(typed);
        matches_name(&self.kept_ref.path) || self.labels.iter().any(|label| matches_name(label))
    }

    /// Unique name: `SWARM/STORY/ATTEMPT`.
    fn full_name(&self) -> String {
        format!("{}/{}/{}", self.kept_ref.swarm.short(), self.kept_ref.path, self.kept_ref.attempt)
    }
}

/// Lists kept work, except results that landed: the newest swarm first, then by story, the newest attempt first.
pub(super) async fn find_all(repo: &Repo, swarm: Option<&SwarmPrefix>) -> Result<Vec<SalvagedRef>, CommandError> {
    let mut refs = repo.kept_refs().await?;
    refs.retain(|kept_ref| swarm.is_none_or(|swarm| swarm.matches(&kept_ref.swarm)));
    let swarms = SwarmJournals::load(repo, &refs)?;
    let mut found: Vec<SalvagedRef> = Vec::new();
    let mut newest: BTreeMap<(SwarmId, String), u32> = BTreeMap::new();
    for kept_ref in &refs {
        let attempt = newest.entry((kept_ref.swarm, kept_ref.path.clone())).or_default();
        *attempt = kept_ref.attempt.max(*attempt);
    }
    for kept_ref in refs {
        let journal = swarms.journals.get(&kept_ref.swarm);
        let record = journal.and_then(|(_, kept)| kept.get(&kept_ref.name)).cloned();
        // Keep a result only if the journal records it as not landed, or without a journal if no branch has it.
        if kept_ref.is_result
            && record.is_none()
            && (journal.is_some() || is_on_branch(repo, &kept_ref, &newest).await?)
        {
            continue;
        }
        let names = journal.map(|(names, _)| names);
        let keys: Vec<&StoryKey> = record.iter().flat_map(|record| &record.stories).map(|(key, _)| key).collect();
        let label = |key: &&StoryKey| names.map_or_else(|| key.id.to_string(), |names| names.label(key).to_owned());
        let mut labels: Vec<String> = keys.iter().map(label).collect();
        let mut titles: Vec<String> = keys
            .iter()
            .filter_map(|key| Some(names?.title(key).to_owned()))
            .filter(|title| !title.is_empty())
            .collect();
        if labels.is_empty() {
            labels.push(kept_ref.path.clone());
            titles.extend(names.and_then(|names| Some(names.title(names.find(&kept_ref.path).first()?).to_owned())));
        }
        let age = swarms.rank(&kept_ref.swarm);
        found.push(SalvagedRef { kept_ref, journal_entry: record, labels, titles, swarm_rank: age });
    }
    let order = |work: &SalvagedRef| {
        (work.swarm_rank, work.kept_ref.swarm, work.kept_ref.path.clone(), std::cmp::Reverse(work.kept_ref.attempt))
    };
    found.sort_by_key(order);
    Ok(found)
}

/// Whether a branch has the result. Of a story that landed, the newest attempt did.
async fn is_on_branch(
    repo: &Repo,
    result: &KeptRef,
    newest: &BTreeMap<(SwarmId, String), u32>,
) -> Result<bool, CommandError> {
    if !repo.branches_containing(&result.commit).await?.is_empty() {
        return Ok(true);
    }
    let story = result.path.rsplit('/').next().unwrap_or_default();
    let is_newest = newest.get(&(result.swarm, result.path.clone())) == Some(&result.attempt);
    Ok(is_newest && repo.has_landing(result.swarm, story).await?)
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
        for kept_ref in refs {
            let newest = times.entry(kept_ref.swarm).or_insert(kept_ref.committed_at);
            *newest = kept_ref.committed_at.max(*newest);
        }
        for dir in SwarmDir::list(repo.root())? {
            // Without a readable journal, the refs alone are used.
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
        self.newest_first.iter().position(|newest| newest == swarm).unwrap_or(self.newest_first.len())
    }
}

/// Finds the kept work with this name.
pub(super) async fn find_one(repo: &Repo, typed: &str) -> Result<SalvagedRef, CommandError> {
    let found = find_all(repo, None).await?;
    match select(&found, typed) {
        Ok(kept) => Ok(kept.clone()),
        Err(several) if several.is_empty() => {
            let message = format!("no kept work is called `{typed}`");
            Err(match found.is_empty() {
                true => CommandError::input(message).with_hint("this repository has no kept work"),
                false => {
                    let names: Vec<String> = found.iter().map(SalvagedRef::full_name).take(MAX_LISTED_NAMES).collect();
                    CommandError::input(message)
                        .with_hint(format!("`longshore salvage list` lists it: {}", names.join(", ")))
                }
            })
        }
        Err(several) => Err(CommandError::input(format!("`{typed}` may be the work of several stories"))
            .with_hint(format!("name one of {}", several.join(", ")))),
    }
}

/// Selects work by the ref's name or `[SWARM/]STORY[/ATTEMPT]`; omitted parts default to the newest. `Err` has the candidates' names.
fn select<'a>(found: &'a [SalvagedRef], typed: &str) -> Result<&'a SalvagedRef, Vec<String>> {
    if let Some(work) = found.iter().find(|work| work.kept_ref.name == typed) {
        return Ok(work);
    }
    let (rest, attempt) = match typed.rsplit_once('/') {
        Some((rest, number)) if number.parse::<u32>().is_ok() => (rest, number.parse::<u32>().ok()),
        _ => (typed, None),
    };
    // A slug may look like the start of a swarm id; the slug takes precedence.
    let exact = |work: &SalvagedRef| work.kept_ref.path == rest || work.labels.iter().any(|label| label == rest);
    let only_exact = found.iter().any(exact);
    let matches = |work: &&SalvagedRef| {
        let of_swarm = |name: &str| name.parse::<SwarmPrefix>().is_ok_and(|name| name.matches(&work.kept_ref.swarm));
        let matches_name = || {
            work.matches_story(rest)
                || rest.split_once('/').is_some_and(|(swarm, story)| of_swarm(swarm) && work.matches_story(story))
        };
        attempt.is_none_or(|attempt| attempt == work.kept_ref.attempt)
            && if only_exact { exact(work) } else { matches_name() }
    };
    // They are in order, so the first swarm is the newest, and the first of a story is its newest attempt.
    let all: Vec<&SalvagedRef> = found.iter().filter(matches).collect();
    let Some(first) = all.first() else { return Err(Vec::new()) };
    let mut stories: Vec<&SalvagedRef> =
        all.iter().copied().filter(|work| work.kept_ref.swarm == first.kept_ref.swarm).collect();
    // The newest attempt, whichever of its stories names the ref.
    stories.sort_by_key(|work| std::cmp::Reverse(work.kept_ref.attempt));
    let slug = |work: &SalvagedRef| {
        work.labels.first().and_then(|label| label.split_once('/')).map(|(slug, _)| slug.to_owned())
    };
    if stories.iter().any(|work| slug(work) != slug(first)) {
        return Err(stories.into_iter().map(SalvagedRef::full_name).collect());
    }
    stories.into_iter().next().ok_or_else(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
    const OLD: &str = "feedc3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

    fn salvaged_work(age: usize, swarm: &str, path: &str, attempt: u32) -> SalvagedRef {
        let kept_ref = KeptRef {
            name: format!("refs/longshore/salvage/{swarm}/{path}/{attempt}"),
            is_result: false,
            swarm: swarm.parse().expect("valid"),
            path: path.to_owned(),
            attempt,
            commit: "0123456789".repeat(4).parse().expect("valid"),
            committed_at: 0,
            subject: String::new(),
        };
        SalvagedRef {
            kept_ref,
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
        let full = |typed: &str| select(&found, typed).map(SalvagedRef::full_name);
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
