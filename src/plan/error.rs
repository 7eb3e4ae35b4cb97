//! What can be wrong with what is to be planned, in words: each problem with its file, place, stories and remedy.
//!
//! Made by the other files of this module, shown by `cli/`. To add a defect: a variant with its sentence, and its remedy.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::limits::{MAX_DELIVERED_BYTES, MAX_FILES, MAX_HEADER_BYTES};
use super::slug::slugify;
use crate::tasks::{Shape, Story};

/// Everything that is wrong with what was to be planned. Its `Display` has a line for each problem, and its remedy below it.
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
            write!(f, "{problem}\n    remedy: {}", problem.defect.remedy())?;
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct PlanProblem {
    /// The tasks file, as typed; none where it is not one file's fault.
    pub file: Option<PathBuf>,
    /// Where: a path in the JSON, or a flag. Empty for the file as a whole.
    pub location: String,
    /// The stories concerned, by their ids in the file.
    pub stories: Vec<String>,
    /// What.
    pub defect: PlanDefect,
}

impl PlanProblem {
    /// A problem of one file as a whole.
    pub(super) fn for_file(path: &std::path::Path, defect: PlanDefect) -> Self {
        Self { file: Some(path.to_owned()), location: String::new(), stories: Vec::new(), defect }
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
        let place = Some(format!("`{}`", self.location)).filter(|_| !self.location.is_empty());
        let whose: Vec<String> = stories.into_iter().chain(place).collect();
        if !whose.is_empty() {
            write!(f, "{}: ", whose.join(", "))?;
        }
        write!(f, "{}", self.defect)
    }
}

/// How an error calls a story: by its id in the file.
pub(super) fn story_name(story: &Story) -> String {
    story.source_id.clone().unwrap_or_else(|| story.id.to_string())
}

/// Where a file of this shape has its branch.
pub(super) fn branch_key(shape: Shape) -> &'static str {
    match shape {
        Shape::Canonical | Shape::Passes => "metadata.branchName",
        Shape::Ralph => "branchName",
    }
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum PlanDefect {
    /// Nothing to plan.
    #[error("no tasks file was given")]
    NoFiles,
    /// More than [`MAX_FILES`].
    #[error("{count} tasks files were given; at most {MAX_FILES} go into one swarm")]
    TooManyFiles {
        /// How many.
        count: usize,
    },
    /// A file that was given twice.
    #[error("the file was given twice (also as `{}`)", first.display())]
    DuplicateFile {
        /// How it was given before.
        first: PathBuf,
    },
    /// `main` or `master`.
    #[error("stories are never merged onto `{branch}`: that is for a person to do")]
    ProtectedBranch {
        /// The branch.
        branch: String,
    },
    /// Characters that ACP does not allow in a branch name.
    #[error("the branch name `{branch}` has {wrong}; allowed are letters, digits, `/`, `_` and `-`")]
    BranchCharacters {
        /// The name.
        branch: String,
        /// The characters, listed.
        wrong: String,
    },
    /// Another rule for branch names.
    #[error("the branch name `{branch}` {rule}")]
    InvalidBranch {
        /// The name.
        branch: String,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// `--branch` with several tasks files.
    #[error("one branch was given for {count} tasks files")]
    BranchForSeveralFiles {
        /// How many.
        count: usize,
    },
    /// Git cannot have a branch below another.
    #[error("the branch `{inner}` cannot be beside the branch `{outer}` of `{}`: git keeps branches like files", file.display())]
    NestedBranches {
        /// The longer name.
        inner: String,
        /// The shorter.
        outer: String,
        /// Whose that is.
        file: PathBuf,
    },
    /// A branch name with no room for a story's or file's own ending.
    #[error("the branch name `{branch}` is too long: with `{suffix}` it passes 200 characters")]
    BranchTooLong {
        /// The name.
        branch: String,
        /// What comes after it.
        suffix: String,
    },
    /// A glob that is none.
    #[error("the glob `{glob}` cannot be read: {problem}")]
    InvalidGlob {
        /// The glob.
        glob: String,
        /// Why.
        problem: String,
    },
    /// A glob that is not about the repo.
    #[error("the glob `{glob}` leaves the repository")]
    GlobOutsideRepo {
        /// The glob.
        glob: String,
    },
    /// More than [`MAX_DELIVERED_BYTES`] for one sandbox.
    #[error("the text for one sandbox has {} KB, and at most {} KB can be delivered", bytes.div_ceil(1024), MAX_DELIVERED_BYTES / 1024)]
    TasksFileTooLarge {
        /// How much.
        bytes: usize,
        /// Whether it is that of several stories.
        several: bool,
    },
    /// Stories that share a sandbox and say different things in the same header block.
    #[error("the two say different things in the header block `{block}`, and share a sandbox")]
    HeaderBlockConflict {
        /// The block.
        block: String,
    },
    /// More than [`MAX_HEADER_BYTES`] for one sandbox.
    #[error("the header blocks for one sandbox have {} KB, and at most {} KB can be delivered", bytes.div_ceil(1024), MAX_HEADER_BYTES / 1024)]
    HeaderBlocksTooLarge {
        /// How much.
        bytes: usize,
    },
    /// An agent's id that somebody else has.
    #[error("the agent `{agent}` {}", if *by_story { "is in the mailbox twice, or has the name of the other's reviewer (upper and lower case are the same)" } else { "cannot be: people write under that name" })]
    AgentIdTaken {
        /// The id.
        agent: String,
        /// Whether the other one is a story's.
        by_story: bool,
    },
    /// Stories without a command, and no agent.
    #[error("no agent was named, and there is no `command` to run instead")]
    NoAgent,
}

impl PlanDefect {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        let fixed = match self {
            Self::NoFiles => "name one, as in `longshore plan tasks/feature.json`",
            Self::TooManyFiles { .. } => "run them in several swarms, one after the other",
            Self::DuplicateFile { .. } => "give it once",
            Self::ProtectedBranch { .. } => {
                "give a branch of the work's own with `--branch NAME`, or change it in the tasks file; merge that branch \
                 when you have looked at it"
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
