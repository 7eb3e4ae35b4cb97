//! Tasks files and the user's choices -> [`Plan`], with all problems at once.
//!
//! Called by `cli/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::agent_assignment::assign_agents;
use super::branch;
use super::error::{PlanError, PlanProblem, PlanProblemKind, story_name};
use super::graph::StoryGraph;
use super::limits::{MAX_DELIVERED_BYTES, MAX_FILES, MAX_HEADER_BYTES, json_string_length};
use super::model::{FanOut, Plan, PlanOptions, PlannedFile};
use super::path_scope::{PathScope, any_overlap};
use super::slug::{file_slug, make_unique};
use crate::ids::{AssignmentId, BranchName, StoryKey};
use crate::swarm::{AssignmentSpec, StorySpec};
use crate::tasks::{Criterion, Story, TasksFile, topological_order};

/// Makes a plan from parsed tasks files.
///
/// # Errors
/// All problems at once.
pub fn build(files: Vec<(TasksFile, Vec<u8>)>, repo_root: &Path, options: &PlanOptions) -> Result<Plan, PlanError> {
    let mut problems = check_arguments(&files, options);
    if files.is_empty() || files.len() > MAX_FILES {
        return Err(PlanError::new(problems));
    }
    let mut slugs = BTreeSet::new();
    let mut planned = Vec::with_capacity(files.len());
    let mut scopes = Vec::new();
    for (tasks, bytes) in files {
        let slug = make_unique(file_slug(&tasks.path), &slugs);
        slugs.insert(slug.clone());
        scopes.extend(parse_touches(&tasks, &mut problems));
        check_commands(&tasks, options, &mut problems);
        match branch::integration_branch(&tasks, options.branch.as_deref()) {
            Ok(branch) => {
                let task_file_path = branch::sandbox_path(&tasks.path, repo_root, &slug);
                planned.push(PlannedFile { tasks, bytes, slug, branch, task_file_path });
            }
            Err((location, kind)) => {
                problems
                    .push(PlanProblem { location: location.to_owned(), ..PlanProblem::for_file(&tasks.path, kind) });
            }
        }
    }
    check_nesting(&planned, &mut problems);
    if !problems.is_empty() {
        return Err(PlanError::new(problems));
    }

    let stories = story_specs(&planned, options.rerun_done);
    let graph = StoryGraph::new(&stories);
    let story_index: BTreeMap<&StoryKey, usize> =
        stories.iter().enumerate().map(|(index, story)| (&story.key, index)).collect();
    let as_read: Vec<&Story> = planned.iter().flat_map(|file| &file.tasks.stories).collect();
    let priority = |key: &StoryKey| as_read[story_index[key]].priority;
    let waves = graph.waves(|key| (priority(key), story_index[key]));
    let groups = group_stories(&planned, &stories, options.fan_out);
    let branches = assignment_branches(&planned, &groups, options.fan_out)?;
    let agents = assign_agents(&planned, &groups, options)?;
    let mut assignments: Vec<AssignmentSpec> = (1_u32..)
        .zip(groups.into_iter().zip(branches))
        .map(|(number, (group, branch))| AssignmentSpec {
            id: AssignmentId::new(options.year, number),
            file: group[0].file,
            branch,
            priority: group.iter().map(priority).min().unwrap_or_default(),
            stories: group,
            exclusive_with: Vec::new(),
        })
        .collect();
    check_delivered_sizes(&planned, &assignments)?;
    check_header_blocks(&planned, &assignments)?;
    set_exclusions(&mut assignments, &graph, |key| &scopes[story_index[key]]);
    Ok(Plan { fan_out: options.fan_out, files: planned, stories, assignments, waves, agents })
}

/// Checks the list of files, independent of their contents.
fn check_arguments(files: &[(TasksFile, Vec<u8>)], options: &PlanOptions) -> Vec<PlanProblem> {
    let problem =
        |location: &str, kind| PlanProblem { file: None, location: location.to_owned(), stories: Vec::new(), kind };
    let count = files.len();
    if count == 0 {
        return vec![problem("", PlanProblemKind::NoFiles)];
    }
    if count > MAX_FILES {
        return vec![problem("", PlanProblemKind::TooManyFiles { count })];
    }
    let mut problems = Vec::new();
    if count > 1 && options.branch.is_some() {
        problems.push(problem("--branch", PlanProblemKind::BranchForSeveralFiles { count }));
    }
    let mut seen: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for (file, _) in files {
        if let Some(first) = seen.insert(branch::resolve_path(&file.path), &file.path) {
            problems
                .push(PlanProblem::for_file(&file.path, PlanProblemKind::DuplicateFile { first: first.to_owned() }));
        }
    }
    problems
}

/// Each story's path scopes. Invalid globs are reported and left out.
fn parse_touches(file: &TasksFile, problems: &mut Vec<PlanProblem>) -> Vec<Vec<PathScope>> {
    let mut scopes = Vec::with_capacity(file.stories.len());
    for (index, story) in file.stories.iter().enumerate() {
        let mut story_scopes = Vec::with_capacity(story.touches.len());
        for (glob_index, glob) in story.touches.iter().enumerate() {
            match PathScope::from_glob(glob) {
                Ok(scope) => story_scopes.push(scope),
                Err(kind) => problems.push(PlanProblem {
                    file: Some(file.path.clone()),
                    location: format!("userStories[{index}].touches[{glob_index}]"),
                    stories: vec![story_name(story)],
                    kind,
                }),
            }
        }
        scopes.push(story_scopes);
    }
    scopes
}

/// Every story that is to run needs an agent or a command.
fn check_commands(file: &TasksFile, options: &PlanOptions, problems: &mut Vec<PlanProblem>) {
    if options.has_agent {
        return;
    }
    let running = file.stories.iter().filter(|story| options.rerun_done || story.done.is_none());
    let stories: Vec<String> = running.filter(|story| story.command.is_none()).map(story_name).collect();
    if !stories.is_empty() {
        problems.push(PlanProblem { stories, ..PlanProblem::for_file(&file.path, PlanProblemKind::NoAgent) });
    }
}

/// Git keeps branches like files: `a` and `a/b` cannot both be there.
fn check_nesting(files: &[PlannedFile], problems: &mut Vec<PlanProblem>) {
    for inner in files {
        let outer = files.iter().find(|outer| {
            inner.branch.as_str().strip_prefix(outer.branch.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
        if let Some(outer) = outer {
            let kind = PlanProblemKind::NestedBranches {
                inner: inner.branch.to_string(),
                outer: outer.branch.to_string(),
                file: outer.tasks.path.clone(),
            };
            problems.push(PlanProblem::for_file(&inner.tasks.path, kind));
        }
    }
}

/// Checks that each sandbox's tasks file fits the delivery limit.
fn check_delivered_sizes(files: &[PlannedFile], assignments: &[AssignmentSpec]) -> Result<(), PlanError> {
    // A small file is delivered whole, whatever the assignment.
    let large = |file: &PlannedFile| json_string_length(&String::from_utf8_lossy(&file.bytes)) > MAX_DELIVERED_BYTES;
    let large: Vec<bool> = files.iter().map(large).collect();
    let mut problems = Vec::new();
    for assignment in assignments.iter().filter(|one| large[usize::from(one.file)]) {
        let file = &files[usize::from(assignment.file)];
        let bytes = json_string_length(&file.tasks_file_for(&assignment.stories));
        if bytes > MAX_DELIVERED_BYTES {
            let stories = assignment.stories.iter().map(|key| story_name(story_by_key(file, key))).collect();
            let kind = PlanProblemKind::TasksFileTooLarge { bytes, several: assignment.stories.len() > 1 };
            problems.push(PlanProblem { stories, ..PlanProblem::for_file(&file.tasks.path, kind) });
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(PlanError::new(problems)) }
}

/// Checks that stories in one sandbox have equal header blocks, because they share one dispatch frame.
fn check_header_blocks(files: &[PlannedFile], assignments: &[AssignmentSpec]) -> Result<(), PlanError> {
    let mut problems = Vec::new();
    for assignment in assignments {
        let file = &files[usize::from(assignment.file)];
        let stories: Vec<&Story> = assignment.stories.iter().map(|key| story_by_key(file, key)).collect();
        let mut blocks: BTreeMap<String, (&Story, serde_json::Value)> = BTreeMap::new();
        let problem = |stories: Vec<&Story>, kind| PlanProblem {
            stories: stories.into_iter().map(story_name).collect(),
            ..PlanProblem::for_file(&file.tasks.path, kind)
        };
        for story in &stories {
            let common = file.tasks.mesh.iter().filter(|(block, _)| !story.mesh.contains_key(*block));
            for (block, content) in common.chain(&story.mesh) {
                let (other, existing_content) = blocks.entry(block.clone()).or_insert_with(|| (story, content.clone()));
                if existing_content != content {
                    let kind = PlanProblemKind::HeaderBlockConflict { block: block.clone() };
                    problems.push(problem(vec![other, story], kind));
                }
            }
        }
        let blocks: BTreeMap<&String, &serde_json::Value> =
            blocks.iter().map(|(name, (_, content))| (name, content)).collect();
        let bytes = serde_json::to_string(&blocks).map_or(0, |text| text.len());
        if bytes > MAX_HEADER_BYTES {
            problems.push(problem(stories, PlanProblemKind::HeaderBlocksTooLarge { bytes }));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(PlanError::new(problems)) }
}

fn story_by_key<'f>(file: &'f PlannedFile, key: &StoryKey) -> &'f Story {
    file.tasks.stories.iter().find(|story| story.id == key.id).expect("assignments are made of the file's stories")
}

fn story_specs(files: &[PlannedFile], again: bool) -> Vec<StorySpec> {
    let of_file = |(index, file): (u16, &PlannedFile)| -> Vec<StorySpec> {
        let key = |id: &crate::ids::StoryId| StoryKey { file: index, id: id.clone() };
        let stories = file.tasks.stories.iter();
        let is_tested = |criterion: &&Criterion| criterion.test_command.is_some();
        stories
            .map(|story| StorySpec {
                key: key(&story.id),
                title: story.title.clone(),
                depends_on: story.depends_on.iter().map(key).collect(),
                done: story.done.filter(|_| !again),
                risk: story.risk,
                has_command: story.command.is_some(),
                has_verify: !story.verify.is_empty(),
                tested_criteria: story
                    .criteria
                    .iter()
                    .filter(is_tested)
                    .map(|criterion| criterion.id.clone())
                    .collect(),
            })
            .collect()
    };
    (0_u16..).zip(files).flat_map(of_file).collect()
}

/// The stories of each assignment: one story each in the file's order, or all stories of a file in execution order.
fn group_stories(files: &[PlannedFile], stories: &[StorySpec], fan_out: FanOut) -> Vec<Vec<StoryKey>> {
    if fan_out == FanOut::Story {
        return stories.iter().filter(|story| story.done.is_none()).map(|story| vec![story.key.clone()]).collect();
    }
    let of_file = |(index, file): (u16, &PlannedFile)| -> Vec<StoryKey> {
        let first = stories.partition_point(|story| story.key.file < index);
        let running = topological_order(&file.tasks).into_iter().map(|at| &stories[first + at]);
        running.filter(|story| story.done.is_none()).map(|story| story.key.clone()).collect()
    };
    (0_u16..).zip(files).map(of_file).filter(|group| !group.is_empty()).collect()
}

/// A branch for each group, all different, and different from the integration branches.
fn assignment_branches(
    files: &[PlannedFile],
    groups: &[Vec<StoryKey>],
    fan_out: FanOut,
) -> Result<Vec<BranchName>, PlanError> {
    let mut taken: BTreeSet<String> = files.iter().map(|file| file.branch.to_string()).collect();
    let shared = |file: &PlannedFile| files.iter().filter(|other| other.branch == file.branch).count() > 1;
    let mut branches = Vec::with_capacity(groups.len());
    for group in groups {
        let file = &files[usize::from(group[0].file)];
        let story = group[0].id.as_str().to_ascii_lowercase();
        let suffix = match fan_out {
            FanOut::File => file.slug.clone(),
            FanOut::Story if shared(file) => format!("{}-{story}", file.slug),
            FanOut::Story => story,
        };
        let branch = branch::assignment_branch(&file.branch, &suffix, &mut taken)
            .map_err(|kind| PlanError::new(vec![PlanProblem::for_file(&file.tasks.path, kind)]))?;
        branches.push(branch);
    }
    Ok(branches)
}

/// Sets `exclusive_with` for assignments whose paths may overlap, unless one already waits for the other.
fn set_exclusions<'r>(
    assignments: &mut [AssignmentSpec],
    graph: &StoryGraph,
    story_scopes: impl Fn(&StoryKey) -> &'r Vec<PathScope>,
) {
    let scopes: Vec<Vec<PathScope>> = assignments
        .iter()
        .map(|one| one.stories.iter().flat_map(|key| story_scopes(key).iter().cloned()).collect())
        .collect();
    let touching: Vec<usize> = (0..assignments.len()).filter(|index| !scopes[*index].is_empty()).collect();
    if touching.len() < 2 {
        return;
    }
    let ancestors = graph.ancestors();
    for (position, one) in touching.iter().enumerate() {
        for two in &touching[position + 1..] {
            let dependent = ancestors.are_dependent(&assignments[*one].stories[0], &assignments[*two].stories[0]);
            if !dependent && any_overlap(&scopes[*one], &scopes[*two]) {
                let (first, second) = (assignments[*one].id.clone(), assignments[*two].id.clone());
                assignments[*one].exclusive_with.push(second);
                assignments[*two].exclusive_with.push(first);
            }
        }
    }
}
