//! Who each assignment's agent is in the swarm's mailbox: an id of its own, and a role.
//!
//! A story's own wish, or its id in lower case; where a sandbox does a whole tasks file, that file's slug. Ids are told apart
//! without regard to case, as some file systems do. Called by `build.rs`.

use std::collections::BTreeMap;

use super::problem::{PlanDefect, PlanError, PlanProblem, name};
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
const ID_MAX: usize = 64;
/// What a reviewer's id ends with.
const REVIEWER: &str = "-reviewer";

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSeat {
    /// Its id.
    pub agent: AgentId,
    /// Its role.
    pub role: String,
}

impl PlannedSeat {
    /// The seat of who reviews its work.
    pub fn reviewer(&self) -> Self {
        Self { agent: reviewer_of(&self.agent), role: REVIEWER_ROLE.to_owned() }
    }
}

fn reviewer_of(agent: &AgentId) -> AgentId {
    id(&cut(agent.as_str(), REVIEWER))
}

/// The beginning of an id with an ending, no longer than an id may be.
fn cut(beginning: &str, ending: &str) -> String {
    let room = ID_MAX - ending.len();
    format!("{}{ending}", &beginning[..beginning.len().min(room)])
}

fn id(text: &str) -> AgentId {
    text.parse().expect("slugs, story ids and agents' ids are made of an id's characters")
}

/// A seat for each group of stories; none at all where there is no mailbox.
pub(super) fn seats(
    files: &[PlannedFile],
    groups: &[Vec<StoryKey>],
    options: &PlanOptions,
) -> Result<Vec<PlannedSeat>, PlanError> {
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
            let own = name(story(&group[0]));
            let whose = if several { format!("{}/{own}", file.slug) } else { own.clone() };
            let ids = [agent.clone(), reviewer_of(agent)];
            match ids.iter().find_map(|id| taken.get(&id.as_str().to_lowercase())) {
                None => taken.extend(ids.iter().map(|id| (id.as_str().to_lowercase(), Some(whose.clone())))),
                Some(first) => {
                    let at = file.tasks.stories.iter().position(|story| story.id == group[0].id).unwrap_or_default();
                    problems.push(PlanProblem {
                        file: Some(file.tasks.path.clone()),
                        place: format!("userStories[{at}].mailbox.agent"),
                        stories: first.iter().cloned().chain([whose]).collect(),
                        defect: PlanDefect::AgentTaken { agent: agent.to_string(), by_story: first.is_some() },
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
                (FanOut::Story, true) => cut(slug, &format!("-{story}")),
            };
            // Others' wishes, and long slugs that begin alike, may be in the way.
            let endings = std::iter::once(String::new()).chain((2_u32..).map(|number| format!("-{number}")));
            let mut all = endings.map(|ending| id(&cut(&plain, &ending)));
            let free = |agent: &AgentId| {
                let ids = [agent.clone(), reviewer_of(agent)];
                ids.iter().all(|id| !taken.contains_key(&id.as_str().to_lowercase()))
            };
            let agent = all.find(free).expect("numbers do not end before the stories do");
            let ids = [agent.clone(), reviewer_of(&agent)];
            taken.extend(ids.iter().map(|id| (id.as_str().to_lowercase(), None)));
            agent
        });
        let role = match options.fan_out {
            FanOut::Story => story(&group[0]).mailbox.role.clone(),
            FanOut::File => None,
        };
        seats.push(PlannedSeat { agent, role: role.unwrap_or_else(|| DEFAULT_ROLE.to_owned()) });
    }
    Ok(seats)
}
