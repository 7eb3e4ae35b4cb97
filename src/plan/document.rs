//! A plan as programs read it: `longshore plan --json`. Versioned; a field may be added within a version, none is changed or
//! removed.
//!
//! Made by `render.rs`.

use schemars::JsonSchema;
use serde::Serialize;

use super::model::{FanOut, Plan};
use crate::ids::StoryKey;
use crate::swarm::StorySpec;
use crate::tasks::{DoneStatus, RiskLevel, Shape};

/// The version that this build writes.
pub const PLAN_VERSION: u32 = 1;

/// The JSON form of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "longshore plan")]
pub struct PlanDocument {
    /// 1.
    pub schema_version: u32,
    /// How stories are spread over sandboxes.
    pub fan_out: FanOut,
    /// The lowest `maxConcurrency` of the files that set one.
    pub max_concurrency: Option<usize>,
    /// Whether the agents have a mailbox.
    pub mailbox: bool,
    /// The tasks files.
    pub files: Vec<FileDocument>,
    /// The labels of the stories to run, in layers: each depends only on layers before it.
    pub waves: Vec<Vec<String>>,
    /// The assignments, one sandbox each.
    pub assignments: Vec<AssignmentDocument>,
}

/// A tasks file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDocument {
    /// As typed.
    pub path: String,
    /// A word for it, unique in the plan.
    pub slug: String,
    /// Its title.
    pub title: String,
    /// The shape that it was read in.
    pub shape: Shape,
    /// The integration branch.
    pub branch: String,
    /// Its path in sandboxes.
    pub task_file_path: String,
    /// Commands that must exit 0 after each of its stories.
    pub verify: Vec<String>,
    /// Its stories, in the file's order.
    pub stories: Vec<StoryDocument>,
}

/// A story.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoryDocument {
    /// Its name in this plan: its id, with the file's slug where there are several files.
    pub label: String,
    /// `US-ddd`.
    pub id: String,
    /// The id in the tasks file, where it was another.
    pub source_id: Option<String>,
    /// Its title.
    pub title: String,
    /// Lower starts first.
    pub priority: i64,
    /// The ids that it depends on.
    pub depends_on: Vec<String>,
    /// How it ended earlier; then it is not run.
    pub done: Option<DoneStatus>,
    /// Its place in `waves`, from 1; null where it is not run.
    pub wave: Option<usize>,
    /// Its assignment; null where it is not run.
    pub assignment: Option<String>,
    /// The command that does it; null where an agent does.
    pub command: Option<String>,
    /// How many acceptance criteria it has.
    pub criteria: usize,
    /// How many of them a command checks.
    pub checked_criteria: usize,
    /// Its own verify commands.
    pub verify: Vec<String>,
    /// The globs of what it changes.
    pub touches: Vec<String>,
    /// Its risk level.
    pub risk_level: RiskLevel,
}

/// An assignment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentDocument {
    /// `T-YYYY-NNN`.
    pub id: String,
    /// The slug of its tasks file.
    pub file: String,
    /// The branch that its sandboxes work on.
    pub branch: String,
    /// The labels of its stories, in the order in which they run.
    pub stories: Vec<String>,
    /// Lower starts first.
    pub priority: i64,
    /// Assignments that do not run while this one does.
    pub apart_from: Vec<String>,
    /// Its agent in the mailbox; null without a mailbox.
    pub agent: Option<AgentDocument>,
}

/// An agent in the mailbox.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDocument {
    /// Its id.
    pub id: String,
    /// Its role.
    pub role: String,
}

impl PlanDocument {
    /// The document of a plan.
    pub fn from_plan(plan: &Plan) -> Self {
        let labels = |keys: &[StoryKey]| keys.iter().map(|key| plan.label(key)).collect::<Vec<_>>();
        let files = (0_u16..).zip(&plan.files).map(|(index, file)| FileDocument {
            path: file.tasks.path.display().to_string(),
            slug: file.slug.clone(),
            title: file.tasks.title.clone(),
            shape: file.tasks.shape,
            branch: file.branch.to_string(),
            task_file_path: file.task_file_path.clone(),
            verify: file.tasks.verify.clone(),
            stories: plan
                .stories
                .iter()
                .filter(|spec| spec.key.file == index)
                .map(|spec| story_document(plan, spec))
                .collect(),
        });
        let assignments = plan.assignments.iter().enumerate().map(|(index, assignment)| AssignmentDocument {
            id: assignment.id.to_string(),
            file: plan.files[usize::from(assignment.file)].slug.clone(),
            branch: assignment.branch.to_string(),
            stories: labels(&assignment.stories),
            priority: assignment.priority,
            apart_from: assignment.exclusive_with.iter().map(ToString::to_string).collect(),
            agent: plan
                .agents
                .get(index)
                .map(|agent| AgentDocument { id: agent.id.to_string(), role: agent.role.clone() }),
        });
        Self {
            schema_version: PLAN_VERSION,
            fan_out: plan.fan_out,
            max_concurrency: plan.max_concurrency(),
            mailbox: plan.has_mailbox(),
            files: files.collect(),
            waves: plan.waves.iter().map(|wave| labels(wave)).collect(),
            assignments: assignments.collect(),
        }
    }
}

fn story_document(plan: &Plan, spec: &StorySpec) -> StoryDocument {
    let story = plan.story(&spec.key);
    let assignment = plan.assignments.iter().find(|assignment| assignment.stories.contains(&spec.key));
    StoryDocument {
        label: plan.label(&spec.key),
        id: story.id.to_string(),
        source_id: story.source_id.clone(),
        title: story.title.clone(),
        priority: story.priority,
        depends_on: story.depends_on.iter().map(ToString::to_string).collect(),
        done: spec.done,
        wave: plan.waves.iter().position(|wave| wave.contains(&spec.key)).map(|wave| wave + 1),
        assignment: assignment.map(|assignment| assignment.id.to_string()),
        command: story.command.clone(),
        criteria: story.criteria.len(),
        checked_criteria: story.criteria.iter().filter(|criterion| criterion.test_command.is_some()).count(),
        verify: story.verify.clone(),
        touches: story.touches.clone(),
        risk_level: story.risk,
    }
}
