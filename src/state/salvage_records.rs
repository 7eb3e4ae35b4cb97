//! What each ref that keeps work is of, by the journal: the attempt, where it began, and why its stories did not land.
//!
//! Called by `longshore salvage`. `swarm-state.json` knows the last failure of a story alone; the journal knows them all.

use std::collections::BTreeMap;

use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::state::error::StateResult;
use crate::state::journal::{Journal, JournalHeader};
use crate::state::swarm_dir::SwarmDir;
use crate::swarm::{Announcement, Effect, SwarmMachine};
use crate::verdict::Failure;

/// What a ref keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct SalvageRecord {
    /// What the work was done in.
    pub attempt: AttemptId,
    /// Where that began.
    pub base: CommitId,
    /// The stories whose work it is, each with why it did not land; none where it was not that story's doing.
    pub stories: Vec<(StoryKey, Option<Failure>)>,
}

/// Every ref that the journal names, and the journal's first record.
pub fn salvage_records(dir: &SwarmDir) -> StateResult<(JournalHeader, BTreeMap<String, SalvageRecord>)> {
    let contents = Journal::read(&dir.journal_file())?;
    let mut machine = SwarmMachine::new(contents.header.spec.clone());
    let mut kept: BTreeMap<String, SalvageRecord> = BTreeMap::new();
    for record in &contents.records {
        for effect in machine.handle(&record.event, record.elapsed) {
            let Effect::Announce(Announcement::Salvaged { attempt, reference }) = effect else { continue };
            let Some(view) = machine.attempt(&attempt) else { continue };
            // Right after the event: a later attempt's failure takes this one's place.
            let of_it = view
                .stories
                .iter()
                .filter_map(|(key, _)| machine.story(key))
                .filter(|story| story.salvage_refs.last() == Some(&reference));
            let stories = of_it.map(|story| {
                let own = story.failure.as_ref().filter(|failure| failure.salvage.as_ref() == Some(&reference));
                (story.key.clone(), own.cloned())
            });
            let stories = stories.collect();
            kept.entry(reference).or_insert_with(|| SalvageRecord { attempt, base: view.base.clone(), stories });
        }
    }
    Ok((contents.header, kept))
}
