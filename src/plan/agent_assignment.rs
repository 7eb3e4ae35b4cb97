//! Gives each assignment an agent in the swarm's mailbox: an id of its own, and a role.
//!
//! The id is the one that the story requests, or its id in lower case; a sandbox for a whole tasks file uses the file's slug. Ids
//! are compared without regard to case, as some file systems do. Called by `build.rs`.

use std::collections::BTreeMap;

use super::agents::*;
use super::error::{PlanError, PlanProblem, PlanProblemKind, story_name};
use super::model::{FanOut, PlanOptions, PlannedFile};
use crate::ids::{AgentId, StoryKey};
use crate::tasks::Story;

/// Assigns an agent to each group of stories; empty without a mailbox.
pub(super) fn assign_agents(
    files: &[PlannedFile],
    groups: &[Vec<StoryKey>],
    options: &PlanOptions,
) -> Result<Vec<PlannedAgent>, PlanError> {
    if !options.mailbox.unwrap_or_else(|| files.iter().any(|file| file.tasks.wants_mailbox())) {
        return Ok(Vec::new());
    }
    let story = |key: &StoryKey| -> &Story {
        let stories = &files[usize::from(key.file)].tasks.stories;
        stories.iter().find(|story| story.id == key.id).expect("groups are made of the files' stories")
    };
    let several = files.len() > 1;
    // Lower-case ids that are taken, with the owning story's name for errors; `None` if reserved.
    let mut taken: BTreeMap<String, Option<String>> = BTreeMap::from([(HOST_AGENT.to_owned(), None)]);
    let mut problems = Vec::new();
    let mut requested_ids: Vec<Option<AgentId>> = Vec::with_capacity(groups.len());
    for group in groups {
        let requested_id = match options.fan_out {
            FanOut::Story => story(&group[0]).mailbox.agent.clone(),
            FanOut::File => None,
        };
        if let Some(agent) = &requested_id {
            let file = &files[usize::from(group[0].file)];
            let name = story_name(story(&group[0]));
            let subject = if several { format!("{}/{name}", file.slug) } else { name.clone() };
            let ids = [agent.clone(), reviewer_id(agent)];
            match ids.iter().find_map(|id| taken.get(&id.as_str().to_lowercase())) {
                None => taken.extend(ids.iter().map(|id| (id.as_str().to_lowercase(), Some(subject.clone())))),
                Some(first) => {
                    let story_index =
                        file.tasks.stories.iter().position(|story| story.id == group[0].id).unwrap_or_default();
                    problems.push(PlanProblem {
                        file: Some(file.tasks.path.clone()),
                        location: format!("userStories[{story_index}].mailbox.agent"),
                        stories: first.iter().cloned().chain([subject]).collect(),
                        kind: PlanProblemKind::AgentIdTaken { agent: agent.to_string(), by_story: first.is_some() },
                    });
                }
            }
        }
        requested_ids.push(requested_id);
    }
    if !problems.is_empty() {
        return Err(PlanError::new(problems));
    }
    let mut agents = Vec::with_capacity(groups.len());
    for (group, requested_id) in groups.iter().zip(requested_ids) {
        let slug = &files[usize::from(group[0].file)].slug;
        let agent = requested_id.unwrap_or_else(|| {
            let story = group[0].id.as_str().to_lowercase();
            let prefix = match (options.fan_out, several) {
                (FanOut::File, _) => slug.clone(),
                (FanOut::Story, false) => story,
                (FanOut::Story, true) => truncate_with_suffix(slug, &format!("-{story}")),
            };
            // Requested ids and truncated slugs may already be taken.
            let suffixes = std::iter::once(String::new()).chain((2_u32..).map(|number| format!("-{number}")));
            let mut all = suffixes.map(|suffix| parse_agent_id(&truncate_with_suffix(&prefix, &suffix)));
            let free = |agent: &AgentId| {
                let ids = [agent.clone(), reviewer_id(agent)];
                ids.iter().all(|id| !taken.contains_key(&id.as_str().to_lowercase()))
            };
            let agent = all.find(free).expect("numbers do not end before the stories do");
            let ids = [agent.clone(), reviewer_id(&agent)];
            taken.extend(ids.iter().map(|id| (id.as_str().to_lowercase(), None)));
            agent
        });
        let role = match options.fan_out {
            FanOut::Story => story(&group[0]).mailbox.role.clone(),
            FanOut::File => None,
        };
        agents.push(PlannedAgent { id: agent, role: role.unwrap_or_else(|| DEFAULT_ROLE.to_owned()) });
    }
    Ok(agents)
}
