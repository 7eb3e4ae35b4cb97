//! Reads from the journal, for each salvage ref: the attempt, its base commit, and the failures of its stories.
//!
//! Called by `longshore salvage`. `swarm-state.json` has only a story's last failure; the journal has all of them.

use std::collections::BTreeMap;

use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::state::error::StateResult;
use crate::state::journal::{Journal, JournalHeader};
use crate::state::swarm_dir::SwarmDir;
use crate::swarm::{Announcement, Effect, SwarmMachine};
use crate::verdict::Failure;

/// The origin of a salvage ref.
#[derive(Debug, Clone, PartialEq)]
pub struct SalvageRecord {
    /// The attempt that did the work.
    pub attempt: AttemptId,
    /// The commit that the attempt started from.
    pub base: CommitId,
    /// The stories of the work, each with its failure; `None` if the story itself did not fail.
    pub stories: Vec<(StoryKey, Option<Failure>)>,
}

/// Every ref that the journal names, and the journal's first record.
pub fn salvage_records(dir: &SwarmDir) -> StateResult<(JournalHeader, BTreeMap<String, SalvageRecord>)> {
    let contents = Journal::read(&dir.journal_file())?;
    let mut machine = SwarmMachine::new(contents.header.spec.clone());
    let mut by_ref: BTreeMap<String, SalvageRecord> = BTreeMap::new();
    for record in &contents.records {
        for effect in machine.handle(&record.event, record.elapsed) {
            let Effect::Announce(Announcement::Salvaged { attempt, reference }) = effect else { continue };
            let Some(view) = machine.attempt(&attempt) else { continue };
            // Read right after the event, because a later attempt's failure replaces this one.
            let salvaged = view
                .stories
                .iter()
                .filter_map(|(key, _)| machine.story(key))
                .filter(|story| story.salvage_refs.last() == Some(&reference));
            let stories = salvaged.map(|story| {
                let own = story.failure.as_ref().filter(|failure| failure.salvage.as_ref() == Some(&reference));
                (story.key.clone(), own.cloned())
            });
            let stories = stories.collect();
            by_ref.entry(reference).or_insert_with(|| SalvageRecord { attempt, base: view.base.clone(), stories });
        }
    }
    Ok((contents.header, by_ref))
}
