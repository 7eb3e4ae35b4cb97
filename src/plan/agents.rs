//! Who each assignment's agent is in the swarm's mailbox: an id of its own, and a role.
//!
//! A story's own wish, or its id in lower case; where a sandbox does a whole tasks file, that file's slug. Ids are told apart
//! without regard to case, as some file systems do. Called by `build.rs`.

use std::collections::BTreeMap;

use super::error::{PlanDefect, PlanError, PlanProblem, story_name};
use super::{FanOut, PlanOptions, PlannedFile};
use crate::ids::{AgentId, StoryKey};
use crate::tasks::Story;

/// Who people are, unless they say otherwise.
pub const HOST_AGENT: &str = "host";
/// What an agent is there for, where nobody says.
const DEFAULT_ROLE: &str = "agent";
/// What a reviewer is there for.
pub const REVIEWER_ROLE: &str = "reviewer";
/// The longest id.
const MAX_AGENT_ID_CHARS: usize = 64;
/// What a reviewer's id ends with.
const REVIEWER_SUFFIX: &str = "-reviewer";

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAgent {
    /// Its id.
    pub id: AgentId,
    /// Its role.
    pub role: String,
}

impl PlannedAgent {
    /// The seat of who reviews its work.
    pub fn reviewer(&self) -> Self {
        Self { id: reviewer_id(&self.id), role: REVIEWER_ROLE.to_owned() }
    }
}

fn reviewer_id(agent: &AgentId) -> AgentId {
    parse_agent_id(&truncate_with_suffix(agent.as_str(), REVIEWER_SUFFIX))
}

/// The beginning of an id with an ending, no longer than an id may be.
fn truncate_with_suffix(beginning: &str, ending: &str) -> String {
    let room = MAX_AGENT_ID_CHARS - ending.len();
    format!("{}{ending}", &beginning[..beginning.len().min(room)])
}

fn parse_agent_id(text: &str) -> AgentId {
    text.parse().expect("slugs, story ids and agents' ids are made of an id's characters")
}

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
