//! From tasks files to a plan: which stories run, in which assignments, on which branches, and in what order.
//!
//! `graph.rs` (dependencies, waves) + `touches.rs` (what must not run side by side) + `branch.rs` (names) -> [`build`].
//! Called by `cli/` for `plan` and `run`; the coordinator works from [`Plan::spec`]. Must not: read a clock, or touch
//! Docker or git. Its only look at the file system is to resolve links in the paths of the tasks files.

pub mod show;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{BranchName, CommitId, StoryId, StoryKey, SwarmId};
use crate::swarm::{AssignmentSpec, Limits, StorySpec, SwarmSpec};
use crate::tasks::{Story, TasksFile};

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

/// What the user chose.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// How stories are spread.
    pub fan_out: FanOut,
    /// Run stories that are done too.
    pub again: bool,
    /// Replaces `metadata.branchName`; for a single tasks file.
    pub branch: Option<String>,
    /// For the assignments' ids.
    pub year: u16,
    /// Whether there is an agent for stories without a `command`. False makes such stories a problem.
    pub has_agent: bool,
}

/// What a swarm is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How stories are spread.
    pub fan_out: FanOut,
    /// The tasks files, by [`StoryKey::file`].
    pub files: Vec<PlannedFile>,
    /// Every story, done ones included, by file and then in the file's order.
    pub stories: Vec<StorySpec>,
    /// The assignments: each story that is to run is in exactly one. In the order in which they may start.
    pub assignments: Vec<AssignmentSpec>,
    /// The stories to run, in layers: each depends only on layers before it, and is in the earliest such layer.
    pub waves: Vec<Vec<StoryKey>>,
}

/// A tasks file in a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFile {
    /// What is in it.
    pub tasks: TasksFile,
    /// The file as read.
    pub bytes: Vec<u8>,
    /// A word for it that is unique in the plan and fit for a ref name.
    pub slug: String,
    /// Its integration branch. Files of one plan may share one.
    pub branch: BranchName,
    /// Where the sandbox gets it, by ACP's rules: relative, no `..`, ends in `.json`.
    pub task_file_path: String,
}

/// Everything that is wrong with what was to be planned.
#[derive(Debug, Error)]
#[error("{} problems", problems.len())]
pub struct PlanError {
    problems: Vec<PlanProblem>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct PlanProblem {
    /// The tasks file; none where it is not one file's fault.
    pub file: Option<PathBuf>,
    /// The stories concerned.
    pub stories: Vec<StoryId>,
}

/// Makes the plan.
///
/// # Errors
/// All problems at once.
pub fn build(files: Vec<(TasksFile, Vec<u8>)>, repo_root: &Path, options: &PlanOptions) -> Result<Plan, PlanError> {
    let _ = (files, repo_root, options);
    todo!()
}

impl Plan {
    /// The lowest `metadata.maxConcurrency` of the files that set one.
    pub fn max_concurrency(&self) -> Option<usize> {
        self.files.iter().filter_map(|file| file.tasks.max_concurrency).min()
    }

    /// The story behind a key of this plan.
    pub fn story(&self, key: &StoryKey) -> &Story {
        let _ = key;
        todo!()
    }

    /// How people see a story: `US-001`, or `slug/US-001` where the plan has several files.
    pub fn label(&self, key: &StoryKey) -> String {
        if self.files.len() > 1 {
            format!("{}/{}", self.files[usize::from(key.file)].slug, key.id)
        } else {
            key.id.to_string()
        }
    }

    /// What the machine needs to know. `bases` are the heads of the files' integration branches, one a file.
    pub fn spec(&self, swarm: SwarmId, bases: &[CommitId], limits: Limits) -> SwarmSpec {
        let _ = (swarm, bases, limits);
        todo!()
    }
}
