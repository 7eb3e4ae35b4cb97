//! The canonical shape as a JSON schema, for `longshore schema tasks`. The types here exist for the schema alone: reading
//! is `import.rs`, which also takes the older shapes, and whose errors name places and remedies.

#![expect(dead_code, reason = "the fields are read by the schema's derive only")]

use schemars::JsonSchema;

use super::RiskLevel;

/// A longshore tasks file: stories, what they depend on, and how it is known that they are done.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", title = "longshore tasks file")]
struct CanonicalFile {
    /// The version of the shape. Not decisive: the shape is known by its keys.
    #[schemars(extend("examples" = ["3.0"]))]
    schema_version: Option<String>,
    metadata: CanonicalMetadata,
    /// The stories.
    #[schemars(length(min = 1, max = 999))]
    user_stories: Vec<CanonicalStory>,
}

/// What is true of all stories.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalMetadata {
    /// A name for the whole.
    #[schemars(length(min = 1))]
    title: String,
    /// The kind of change: `feat`, `fix`, ...
    r#type: Option<String>,
    /// The integration branch, where finished stories are merged; never `main` or `master`. Without it: `longshore/` and the
    /// title.
    #[schemars(regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9/_-]*$"))]
    branch_name: Option<String>,
    /// Goes into every story's prompt.
    description: Option<String>,
    /// When the file was made.
    created_at: Option<String>,
    /// The plan that it was made from.
    plan_path: Option<String>,
    /// Sandboxes at once.
    #[schemars(range(min = 1))]
    max_concurrency: Option<u32>,
    /// Shell commands that must exit 0 after each story.
    verify: Option<OneOrMore>,
    /// The agents have a mailbox, in which they write to each other. Without it: if a story has `mailbox`.
    mailbox: Option<bool>,
    /// For the frames that every story's sandbox is dispatched with.
    mesh: Option<CanonicalMesh>,
}

/// For the frames of the Agentic Mesh Protocol that sandboxes are dispatched with.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct CanonicalMesh {
    /// Header blocks, by their names in camelCase. A sandbox refuses a dispatch with a block that says `mustUnderstand` and that
    /// it does not know.
    header: Option<std::collections::BTreeMap<String, CanonicalHeaderBlock>>,
}

/// A header block: these properties, and any others.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalHeaderBlock {
    /// Whom it is for: `next`, `none`, `ultimateReceiver`, or a role's IRI. Without it: `ultimateReceiver`.
    role: Option<String>,
    /// Whoever it is for must know it, or refuse the frame.
    must_understand: Option<bool>,
    /// Passed on also by those that do not know it.
    relay: Option<bool>,
    /// A URI: how the rest of it is encoded.
    encoding_style: Option<String>,
}

/// A story: what one agent does in one go.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CanonicalStory {
    /// `US-` and three digits, unique in the file. Other ids are mapped to this form.
    id: CanonicalId,
    /// One line.
    #[schemars(length(min = 1))]
    title: String,
    /// What is wanted, and why.
    description: Option<String>,
    /// When it is done.
    acceptance_criteria: Option<Vec<CanonicalCriterion>>,
    /// Lower runs first among the stories that could run. Without it: the story's place in the file.
    priority: Option<CanonicalPriority>,
    /// What became of it. `completed` and `skipped` stories are not run.
    status: Option<CanonicalStatus>,
    /// Ids of stories that must have landed before.
    depends_on: Option<Vec<CanonicalId>>,
    /// Anything else.
    notes: Option<String>,
    /// Shell commands that must exit 0 after this story.
    verify: Option<OneOrMore>,
    /// A shell command that does the story, instead of an agent.
    command: Option<String>,
    /// Globs of the paths that it changes, relative to the repo. Stories whose globs may overlap do not run at the same
    /// time.
    touches: Option<Vec<String>>,
    /// How much approval it wants.
    risk_level: Option<RiskLevel>,
    /// For the frame that its sandbox is dispatched with, beside that of the file.
    mesh: Option<CanonicalMesh>,
    /// Who the story's agent is in the mailbox, where there is one.
    mailbox: Option<CanonicalMailbox>,
}

/// An agent in the mailbox.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CanonicalMailbox {
    /// Its id, unique in the swarm. Without it: the story's id in lower case.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"))]
    agent: Option<String>,
    /// What it is there for, in a word or two.
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
    /// Words alone: nobody but the agent checks it.
    Words(String),
    /// With a command that checks it.
    Checked(CheckedCriterion),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct CheckedCriterion {
    /// Its own id. Without it: `AC-` and its place.
    id: Option<CanonicalId>,
    /// What must hold.
    #[schemars(length(min = 1))]
    text: String,
    /// A shell command that exits 0 if it holds.
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

/// See [`super::schema()`].
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(CanonicalFile)
}
