//! The canonical shape as a JSON schema, for `longshore schema tasks`. The types exist for the schema alone: `import.rs` reads
//! older shapes too, and its errors name locations and remedies.

#![expect(dead_code, reason = "the fields are read by the schema's derive only")]

use schemars::JsonSchema;

use super::tasks_file::RiskLevel;

/// A longshore tasks file: stories, their dependencies and acceptance criteria.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", title = "longshore tasks file")]
struct CanonicalFile {
    /// The version of the shape. Informational: the shape is detected by its keys.
    #[schemars(extend("examples" = ["3.0"]))]
    schema_version: Option<String>,
    metadata: CanonicalMetadata,
    #[schemars(length(min = 1, max = 999))]
    user_stories: Vec<CanonicalStory>,
}

/// What applies to all stories.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalMetadata {
    #[schemars(length(min = 1))]
    title: String,
    /// The kind of change: `feat`, `fix`, ...
    r#type: Option<String>,
    /// The integration branch, where finished stories are merged; never `main` or `master`. Default: `longshore/` and the
    /// title.
    #[schemars(regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9/_-]*$"))]
    branch_name: Option<String>,
    /// Part of every story's prompt.
    description: Option<String>,
    /// When the file was created.
    created_at: Option<String>,
    /// The plan that the file was created from.
    plan_path: Option<String>,
    /// The number of sandboxes at once.
    #[schemars(range(min = 1))]
    max_concurrency: Option<u32>,
    /// Shell commands that must exit 0 after each story.
    verify: Option<OneOrMore>,
    /// Whether the agents have a mailbox to write to each other. Default: whether a story has `mailbox`.
    mailbox: Option<bool>,
    /// For the dispatch frames of every story.
    mesh: Option<CanonicalMesh>,
}

/// For dispatch frames of the Agentic Mesh Protocol.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct CanonicalMesh {
    /// Header blocks by name, in camelCase. A sandbox refuses a dispatch with an unknown block that has `mustUnderstand`.
    header: Option<std::collections::BTreeMap<String, CanonicalHeaderBlock>>,
}

/// A header block: these properties and any others.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalHeaderBlock {
    /// The target: `next`, `none`, `ultimateReceiver`, or a role's IRI. Default: `ultimateReceiver`.
    role: Option<String>,
    /// The target must know the block or refuse the frame.
    must_understand: Option<bool>,
    /// Nodes that do not know the block pass it on.
    relay: Option<bool>,
    /// A URI: the encoding of the other properties.
    encoding_style: Option<String>,
}

/// A story: the work of one agent.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalStory {
    /// `US-` and three digits, unique in the file. Other ids are mapped to this form.
    id: CanonicalId,
    /// One line.
    #[schemars(length(min = 1))]
    title: String,
    /// What to do, and why.
    description: Option<String>,
    /// When the story is done.
    acceptance_criteria: Option<Vec<CanonicalCriterion>>,
    /// Lower runs first among the ready stories. Default: the story's position in the file.
    priority: Option<CanonicalPriority>,
    /// `completed` and `skipped` stories do not run.
    status: Option<CanonicalStatus>,
    /// Ids of stories that must land before.
    depends_on: Option<Vec<CanonicalId>>,
    /// Free text.
    notes: Option<String>,
    /// Shell commands that must exit 0 after this story.
    verify: Option<OneOrMore>,
    /// A shell command to run instead of an agent.
    command: Option<String>,
    /// Globs of the paths that the story changes, relative to the repo. Stories whose globs may overlap do not run at the
    /// same time.
    touches: Option<Vec<String>>,
    /// How much approval the story needs.
    risk_level: Option<RiskLevel>,
    /// For the story's dispatch frame, in addition to the file's.
    mesh: Option<CanonicalMesh>,
    /// The story's agent in the mailbox.
    mailbox: Option<CanonicalMailbox>,
}

/// An agent in the mailbox.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CanonicalMailbox {
    /// Its id, unique in the swarm. Default: the story's id in lower case.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"))]
    agent: Option<String>,
    /// Its role, in a word or two.
    #[schemars(length(max = 60))]
    role: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum CanonicalId {
    Text(#[schemars(length(min = 1))] String),
    Number(i64),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum CanonicalCriterion {
    /// Text alone: only the agent checks it.
    Words(String),
    /// With a command that checks it.
    Checked(CheckedCriterion),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CheckedCriterion {
    /// Its id. Default: `AC-` and its position.
    id: Option<CanonicalId>,
    /// The condition.
    #[schemars(length(min = 1))]
    text: String,
    /// A shell command that exits 0 if the condition holds.
    test_command: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum CanonicalPriority {
    Number(i64),
    Word(PriorityLevel),
}

/// `high`, `medium` and `low` are 1, 2 and 3.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum PriorityLevel {
    High,
    Medium,
    Low,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum CanonicalStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
    Skipped,
}

/// The canonical shape as a JSON schema.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(CanonicalFile)
}
