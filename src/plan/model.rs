//! A plan: the tasks files, their stories, the assignments, and the order in which they run. Made by `build.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agents::PlannedAgent;
use super::limits::{MAX_DELIVERED_BYTES, json_string_length};
use crate::ids::{AssignmentId, BranchName, CommitId, StoryId, StoryKey, SwarmId};
use crate::swarm::{AssignmentSpec, StorySpec, SwarmLimits, SwarmSpec, TasksFileSpec};
use crate::tasks::{HeaderBlocks, Story, TasksFile};

/// How stories are spread over sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanOut {
    /// A sandbox for each story, started when its dependencies have landed.
    #[default]
    Story,
    /// A sandbox for each tasks file, with all its stories one after the other.
    File,
}

/// Options of the user for planning.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// How stories are spread.
    pub fan_out: FanOut,
    /// Run stories that are done too.
    pub rerun_done: bool,
    /// Replaces `metadata.branchName`; for a single tasks file.
    pub branch: Option<String>,
    /// For the assignments' ids.
    pub year: u16,
    /// Whether the agents have a mailbox; `None` leaves it to the tasks files.
    pub mailbox: Option<bool>,
    /// Whether there is an agent for stories without a `command`. False makes such stories a problem.
    pub has_agent: bool,
}

/// The plan of a swarm.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How stories are spread.
    pub fan_out: FanOut,
    /// The tasks files, by [`StoryKey::file`].
    pub files: Vec<PlannedFile>,
    /// Every story, done ones included, by file and then in the file's order.
    pub stories: Vec<StorySpec>,
    /// The assignments: each story that is to run is in exactly one. By file, and then in the file's order.
    pub assignments: Vec<AssignmentSpec>,
    /// The stories to run, in layers: each depends only on layers before it, and is in the earliest such layer.
    pub waves: Vec<Vec<StoryKey>>,
    /// Each assignment's agent, in the order of `assignments`; empty without a mailbox.
    pub agents: Vec<PlannedAgent>,
}

/// A tasks file in a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFile {
    /// Its parsed contents.
    pub tasks: TasksFile,
    /// The file as read.
    pub bytes: Vec<u8>,
    /// A word for it that is unique in the plan and fit for a ref name.
    pub slug: String,
    /// Its integration branch. Files of one plan may share one.
    pub branch: BranchName,
    /// Its path in the sandbox, by ACP's rules: relative, no `..`, ends in `.json`.
    pub task_file_path: String,
}

impl Plan {
    /// Whether the agents have a mailbox.
    pub fn has_mailbox(&self) -> bool {
        !self.agents.is_empty()
    }

    /// The lowest `metadata.maxConcurrency` of the files that set one.
    pub fn max_concurrency(&self) -> Option<usize> {
        self.files.iter().filter_map(|file| file.tasks.max_concurrency).min()
    }

    /// The story behind a key of this plan.
    ///
    /// # Panics
    /// If the key is not in this plan.
    pub fn story(&self, key: &StoryKey) -> &Story {
        let stories = &self.files[usize::from(key.file)].tasks.stories;
        stories.iter().find(|story| story.id == key.id).expect("the key is of this plan")
    }

    /// A story's display label: `US-001`, or `slug/US-001` where the plan has several files.
    pub fn label(&self, key: &StoryKey) -> String {
        if self.files.len() > 1 {
            format!("{}/{}", self.files[usize::from(key.file)].slug, key.id)
        } else {
            key.id.to_string()
        }
    }

    /// The tasks file as the sandbox of these stories gets it: the user's own, or, where that is too large, its part for them.
    ///
    /// # Panics
    /// If the file is not in this plan.
    pub fn tasks_file_for(&self, file: u16, stories: &[StoryKey]) -> String {
        self.files[usize::from(file)].tasks_file_for(stories)
    }

    /// The header blocks for a sandbox that does these stories of a file: the file's, and each story's own in their place.
    ///
    /// # Panics
    /// If the file is not in this plan.
    pub fn header_blocks(&self, file: u16, stories: &[StoryKey]) -> HeaderBlocks {
        let tasks = &self.files[usize::from(file)].tasks;
        let mut blocks = tasks.mesh.clone();
        for key in stories {
            blocks.extend(self.story(key).mesh.clone());
        }
        blocks
    }

    /// The year of the assignments' ids.
    pub fn year(&self) -> u16 {
        self.assignments.first().map(|first| first.id.year()).unwrap_or_default()
    }

    /// Gives the assignments other numbers: the first is `first`, and the others follow.
    pub fn renumber(&mut self, year: u16, first: u32) {
        let new: BTreeMap<AssignmentId, AssignmentId> =
            (first..).zip(&self.assignments).map(|(n, one)| (one.id.clone(), AssignmentId::new(year, n))).collect();
        for assignment in &mut self.assignments {
            for id in std::iter::once(&mut assignment.id).chain(&mut assignment.exclusive_with) {
                if let Some(other) = new.get(id) {
                    *id = other.clone();
                }
            }
        }
    }

    /// The spec for the state machine. `bases` are the heads of the files' integration branches, one a file.
    ///
    /// # Panics
    /// If the number of bases differs from the number of files.
    pub fn to_swarm_spec(&self, swarm: SwarmId, bases: &[CommitId], limits: SwarmLimits) -> SwarmSpec {
        assert_eq!(bases.len(), self.files.len(), "each tasks file has a base");
        let files = self.files.iter().zip(bases).map(|(file, base)| TasksFileSpec {
            path: file.tasks.path.display().to_string(),
            slug: file.slug.clone(),
            title: file.tasks.title.clone(),
            branch: file.branch.clone(),
            base: base.clone(),
            has_verify: !file.tasks.verify.is_empty(),
        });
        SwarmSpec {
            swarm,
            files: files.collect(),
            stories: self.stories.clone(),
            assignments: self.assignments.clone(),
            limits,
            amp: None,
            landing: None,
        }
    }
}

impl PlannedFile {
    pub(super) fn tasks_file_for(&self, stories: &[StoryKey]) -> String {
        let whole = String::from_utf8_lossy(&self.bytes);
        if json_string_length(&whole) <= MAX_DELIVERED_BYTES {
            return whole.into_owned();
        }
        let ids: Vec<StoryId> = stories.iter().map(|key| key.id.clone()).collect();
        self.tasks.excerpt(&ids)
    }
}
