//! What follows from the plan alone, by places instead of names, so that no event has to search.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AssignmentId, BranchName, StoryKey};
use crate::swarm::spec::SwarmSpec;

/// What follows from the spec alone. Stories, assignments, attempts and branches are known by their places.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlanIndex {
    pub(super) stories: BTreeMap<StoryKey, usize>,
    pub(super) assignments: BTreeMap<AssignmentId, usize>,
    /// By story: what must land before it.
    pub(super) dependencies: Vec<Vec<usize>>,
    /// By story: what waits for it.
    pub(super) dependents: Vec<Vec<usize>>,
    /// By story: its assignment.
    pub(super) story_assignment: Vec<Option<usize>>,
    /// By assignment: its stories.
    pub(super) assignment_stories: Vec<Vec<usize>>,
    /// By assignment: those that must not run meanwhile.
    pub(super) exclusive_with: Vec<Vec<usize>>,
    /// By file: its branch.
    pub(super) file_branch: Vec<usize>,
}

impl PlanIndex {
    pub(super) fn new(spec: &SwarmSpec) -> Self {
        let stories: BTreeMap<StoryKey, usize> =
            spec.stories.iter().enumerate().map(|(place, story)| (story.key.clone(), place)).collect();
        let assignments: BTreeMap<AssignmentId, usize> =
            spec.assignments.iter().enumerate().map(|(place, spec)| (spec.id.clone(), place)).collect();
        let mut dependents = vec![Vec::new(); spec.stories.len()];
        let mut dependencies = Vec::with_capacity(spec.stories.len());
        for (place, story) in spec.stories.iter().enumerate() {
            // A story that the plan does not have cannot be waited for; the plan refuses such files before.
            let of_story: BTreeSet<usize> =
                story.depends_on.iter().filter_map(|key| stories.get(key)).copied().collect();
            for dependency in &of_story {
                dependents[*dependency].push(place);
            }
            dependencies.push(of_story.into_iter().collect());
        }
        let mut owner = vec![None; spec.stories.len()];
        let mut members = Vec::with_capacity(spec.assignments.len());
        let mut apart = vec![BTreeSet::new(); spec.assignments.len()];
        for (place, assignment) in spec.assignments.iter().enumerate() {
            let own: Vec<usize> = assignment.stories.iter().filter_map(|key| stories.get(key)).copied().collect();
            for story in &own {
                owner[*story] = Some(place);
            }
            members.push(own);
            for other in assignment.exclusive_with.iter().filter_map(|id| assignments.get(id)).filter(|o| **o != place)
            {
                apart[place].insert(*other);
                apart[*other].insert(place);
            }
        }
        let mut names: Vec<&BranchName> = Vec::new();
        let branch = spec
            .files
            .iter()
            .map(|file| {
                names.iter().position(|name| **name == file.branch).unwrap_or_else(|| {
                    names.push(&file.branch);
                    names.len() - 1
                })
            })
            .collect();
        let apart = apart.into_iter().map(|others| others.into_iter().collect()).collect();
        Self {
            stories,
            assignments,
            dependencies,
            dependents,
            story_assignment: owner,
            assignment_stories: members,
            exclusive_with: apart,
            file_branch: branch,
        }
    }
}
