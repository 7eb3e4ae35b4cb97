//! Gives each assignment an agent in the swarm's mailbox: an id of its own, and a role.
//!
//! The id is the story's own wish, or the story's id in lower case; a sandbox with a whole tasks file has that file's slug. Ids
//! are compared without regard to case, as some file systems do. Called by `build.rs`.

use std::collections::BTreeMap;

use super::agents::*;
use super::error::{PlanDefect, PlanError, PlanProblem, story_name};
use super::model::{FanOut, PlanOptions, PlannedFile};
use crate::ids::{AgentId, StoryKey};
use crate::tasks::Story;

/// A seat for each group of stories; none at all where there is no mailbox.
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
    // By lower case, who has it: a story as errors name it; none for what nobody may have.
    let mut taken: BTreeMap<String, Option<String>> = BTreeMap::from([(HOST_AGENT.to_owned(), None)]);
    let mut problems = Vec::new();
    let mut wishes: Vec<Option<AgentId>> = Vec::with_capacity(groups.len());
    for group in groups {
        let wish = match options.fan_out {
            FanOut::Story => story(&group[0]).mailbox.agent.clone(),
            FanOut::File => None,
        };
        if let Some(agent) = &wish {
            let file = &files[usize::from(group[0].file)];
            let own = story_name(story(&group[0]));
            let whose = if several { format!("{}/{own}", file.slug) } else { own.clone() };
            let ids = [agent.clone(), reviewer_id(agent)];
            match ids.iter().find_map(|id| taken.get(&id.as_str().to_lowercase())) {
                None => taken.extend(ids.iter().map(|id| (id.as_str().to_lowercase(), Some(whose.clone())))),
                Some(first) => {
                    let at = file.tasks.stories.iter().position(|story| story.id == group[0].id).unwrap_or_default();
                    problems.push(PlanProblem {
                        file: Some(file.tasks.path.clone()),
                        location: format!("userStories[{at}].mailbox.agent"),
                        stories: first.iter().cloned().chain([whose]).collect(),
                        defect: PlanDefect::AgentIdTaken { agent: agent.to_string(), by_story: first.is_some() },
                    });
                }
            }
        }
        wishes.push(wish);
    }
    if !problems.is_empty() {
        return Err(PlanError::new(problems));
    }
    let mut seats = Vec::with_capacity(groups.len());
    for (group, wish) in groups.iter().zip(wishes) {
        let slug = &files[usize::from(group[0].file)].slug;
        let agent = wish.unwrap_or_else(|| {
            let story = group[0].id.as_str().to_lowercase();
            let plain = match (options.fan_out, several) {
                (FanOut::File, _) => slug.clone(),
                (FanOut::Story, false) => story,
                (FanOut::Story, true) => truncate_with_suffix(slug, &format!("-{story}")),
            };
            // Others' wishes, and long slugs that begin alike, may be in the way.
            let endings = std::iter::once(String::new()).chain((2_u32..).map(|number| format!("-{number}")));
            let mut all = endings.map(|ending| parse_agent_id(&truncate_with_suffix(&plain, &ending)));
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
        seats.push(PlannedAgent { id: agent, role: role.unwrap_or_else(|| DEFAULT_ROLE.to_owned()) });
    }
    Ok(seats)
}
