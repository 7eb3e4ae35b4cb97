//! Planning errors: each problem with its file, location, stories and remedy.
//!
//! Made by the other files of this module, shown by `cli/`. To add a kind of problem: add a variant with its message, and its remedy.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::limits::{MAX_DELIVERED_BYTES, MAX_FILES, MAX_HEADER_BYTES};
use super::slug::slugify;
use crate::tasks::{Shape, Story};

/// All problems of a plan. `Display` shows a line for each problem, with its remedy below.
#[derive(Debug)]
pub struct PlanError {
    problems: Vec<PlanProblem>,
}

impl PlanError {
    pub(super) fn new(problems: Vec<PlanProblem>) -> Self {
        Self { problems }
    }

    /// The problems, by file; at least one.
    pub fn problems(&self) -> &[PlanProblem] {
        &self.problems
    }
}

impl std::error::Error for PlanError {}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}\n    remedy: {}", problem.kind.remedy())?;
        }
        Ok(())
    }
}

/// One problem with a plan.
#[derive(Debug)]
pub struct PlanProblem {
    /// The tasks file as typed; `None` if the problem is not in a single file.
    pub file: Option<PathBuf>,
    /// A path in the JSON, or a flag. Empty for the file as a whole.
    pub location: String,
    /// The stories concerned, by their ids in the file.
    pub stories: Vec<String>,
    pub kind: PlanProblemKind,
}

impl PlanProblem {
    /// A problem of one file as a whole.
    pub(super) fn for_file(path: &std::path::Path, kind: PlanProblemKind) -> Self {
        Self { file: Some(path.to_owned()), location: String::new(), stories: Vec::new(), kind }
    }
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        let named: Vec<String> = self.stories.iter().map(|story| format!("`{story}`")).collect();
        let stories = match named.len() {
            0 => None,
            1 => Some(format!("story {}", named[0])),
            _ => Some(format!("stories {}", named.join(", "))),
        };
        let location = Some(format!("`{}`", self.location)).filter(|_| !self.location.is_empty());
        let subject: Vec<String> = stories.into_iter().chain(location).collect();
        if !subject.is_empty() {
            write!(f, "{}: ", subject.join(", "))?;
        }
        write!(f, "{}", self.kind)
    }
}

/// A story's name in errors: its id in the file.
pub(super) fn story_name(story: &Story) -> String {
    story.source_id.clone().unwrap_or_else(|| story.id.to_string())
}

/// The key of the branch in a file of this shape.
pub(super) fn branch_key(shape: Shape) -> &'static str {
    match shape {
        Shape::Canonical | Shape::Passes => "metadata.branchName",
        Shape::Ralph => "branchName",
    }
}

/// The kinds of planning problems.
#[derive(Debug, Error)]
pub enum PlanProblemKind {
    /// No tasks file.
    #[error("no tasks file was given")]
    NoFiles,
    /// More than [`MAX_FILES`].
    #[error("{count} tasks files were given; at most {MAX_FILES} go into one swarm")]
    TooManyFiles { count: usize },
    #[error("the file was given twice (also as `{}`)", first.display())]
    DuplicateFile {
        /// The path given first.
        first: PathBuf,
    },
    /// `main` or `master`.
    #[error("longshore never merges stories onto `{branch}`: only a person may")]
    ProtectedBranch { branch: String },
    /// Characters that ACP does not allow in a branch name.
    #[error("the branch name `{branch}` has {wrong}; allowed are letters, digits, `/`, `_` and `-`")]
    BranchCharacters {
        branch: String,
        /// The characters, listed.
        wrong: String,
    },
    /// Another rule for branch names.
    #[error("the branch name `{branch}` {rule}")]
    InvalidBranch {
        branch: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// `--branch` with several tasks files.
    #[error("one branch was given for {count} tasks files")]
    BranchForSeveralFiles { count: usize },
    /// Git cannot store both `a` and `a/b`.
    #[error("the branch `{inner}` conflicts with the branch `{outer}` of `{}`: git cannot store both", file.display())]
    NestedBranches {
        /// The longer name.
        inner: String,
        /// The shorter name.
        outer: String,
        /// The tasks file of `outer`.
        file: PathBuf,
    },
    /// A branch name without room for a story's or file's suffix.
    #[error("the branch name `{branch}` is too long: with `{suffix}` it passes 200 characters")]
    BranchTooLong { branch: String, suffix: String },
    /// An invalid glob.
    #[error("the glob `{glob}` cannot be read: {problem}")]
    InvalidGlob { glob: String, problem: String },
    /// A glob for paths outside the repository.
    #[error("the glob `{glob}` leaves the repository")]
    GlobOutsideRepo { glob: String },
    /// More than [`MAX_DELIVERED_BYTES`] for one sandbox.
    #[error("the text for one sandbox has {} KB, and at most {} KB can be delivered", bytes.div_ceil(1024), MAX_DELIVERED_BYTES / 1024)]
    TasksFileTooLarge {
        bytes: usize,
        /// Whether several stories share the sandbox.
        several: bool,
    },
    /// Stories that share a sandbox but differ in a header block.
    #[error("the two share a sandbox but differ in the header block `{block}`")]
    HeaderBlockConflict { block: String },
    /// More than [`MAX_HEADER_BYTES`] for one sandbox.
    #[error("the header blocks for one sandbox have {} KB, and at most {} KB can be delivered", bytes.div_ceil(1024), MAX_HEADER_BYTES / 1024)]
    HeaderBlocksTooLarge { bytes: usize },
    /// An agent id that is already taken.
    #[error("the agent `{agent}` {}", if *by_story { "is in the mailbox twice, or has the name of the other's reviewer (case is ignored)" } else { "has a reserved name: it stands for the people in the mailbox" })]
    AgentIdTaken {
        agent: String,
        /// Whether another story has it; otherwise the id is reserved.
        by_story: bool,
    },
    /// Stories without a command, when no agent is set.
    #[error("no agent was named, and there is no `command` to run instead")]
    NoAgent,
}

impl PlanProblemKind {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        let fixed = match self {
            Self::NoFiles => "name one, as in `longshore plan tasks/feature.json`",
            Self::TooManyFiles { .. } => "run them in several swarms, one after the other",
            Self::DuplicateFile { .. } => "give it once",
            Self::ProtectedBranch { .. } => {
                "give another branch with `--branch NAME`, or change it in the tasks file; review that branch and merge \
                 it yourself"
            }
            Self::BranchCharacters { branch, .. } | Self::InvalidBranch { branch, .. } => {
                let name = slugify(branch);
                let name = if name.is_empty() || name == "main" || name == "master" { "NAME".to_owned() } else { name };
                return format!("give another one with `--branch {name}`, or change it in the tasks file");
            }
            Self::BranchForSeveralFiles { .. } => "set each file's own branch in the file, or run them one at a time",
            Self::NestedBranches { .. } => "rename one of the two, or give both files the same branch",
            Self::BranchTooLong { .. } => "give a shorter one with `--branch NAME`, or change it in the tasks file",
            Self::InvalidGlob { .. } => "correct it; `*` is any text, `**/` any folders, `{a,b}` either",
            Self::GlobOutsideRepo { .. } => "write it relative to the repository's root, without `..`",
            Self::TasksFileTooLarge { several: true, .. } => {
                "give each story a sandbox of its own (`--fan-out story`), or split the file"
            }
            Self::TasksFileTooLarge { several: false, .. } => {
                "put the long text into a file of the repository and name that"
            }
            Self::HeaderBlockConflict { .. } => {
                "make the two the same, or give each story a sandbox of its own (`--fan-out story`)"
            }
            Self::HeaderBlocksTooLarge { .. } => "put the long text into a file of the repository and name that",
            Self::AgentIdTaken { .. } => "give each agent a name of its own under `mailbox.agent`",
            Self::NoAgent => "name one with `--agent NAME` or in `.longshore.toml`, or give the stories a `command`",
        };
        fixed.to_owned()
    }
}
