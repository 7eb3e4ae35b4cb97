//! What can be wrong with a tasks file, in words: each problem with its file, place, story and remedy.
//!
//! Made by the other files of this module, shown by `cli/`, and by the shim as the message of ACP's `TASK_FILE_INVALID`.
//! To add a defect: a variant with its sentence, and its remedy below.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{MAX_FILE_BYTES, MAX_STORIES};

/// Everything that is wrong with one tasks file. Its `Display` has a line for each problem, and its remedy below it.
#[derive(Debug)]
pub struct TasksError {
    path: PathBuf,
    problems: Vec<TasksProblem>,
}

impl TasksError {
    pub(super) fn new(path: &Path, mut problems: Vec<TasksProblem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self { path: path.to_owned(), problems }
    }

    /// An error that is about the file as a whole.
    pub(super) fn for_file(path: &Path, defect: TasksDefect) -> Self {
        Self::new(path, vec![TasksProblem::for_file(defect)])
    }

    /// The file, as the user typed it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The problems in the file's order; at least one.
    pub fn problems(&self) -> &[TasksProblem] {
        &self.problems
    }
}

impl std::error::Error for TasksError {}

impl fmt::Display for TasksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.path.display())?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {problem}\n    remedy: {}", problem.defect.remedy())?;
        }
        Ok(())
    }
}

/// One thing that is wrong. Its `Display` names place and story, and neither file nor line.
#[derive(Debug)]
pub struct TasksProblem {
    /// Where, as a path in the JSON: `userStories[3].dependsOn[0]`. Empty for the file as a whole.
    pub location: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The story's id as the file has it.
    pub story: Option<String>,
    /// What.
    pub defect: TasksDefect,
}

impl TasksProblem {
    /// A problem of the file as a whole.
    pub(super) fn for_file(defect: TasksDefect) -> Self {
        Self { location: String::new(), line: None, story: None, defect }
    }
}

impl fmt::Display for TasksProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(story) = &self.story {
            write!(f, "story `{story}`, ")?;
        }
        if !self.location.is_empty() {
            write!(f, "`{}`: ", self.location)?;
        }
        write!(f, "{}", self.defect)
    }
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum TasksDefect {
    /// Nothing has this path.
    #[error("there is no such file")]
    NoSuchFile,
    /// The path names a folder.
    #[error("this is a directory, not a file")]
    IsADirectory,
    /// The system does not let it be read.
    #[error("the file cannot be read: {0}")]
    ReadFailed(io::Error),
    /// More than [`MAX_FILE_BYTES`].
    #[error("the file has more than {} MB", MAX_FILE_BYTES / 1024 / 1024)]
    TooLarge,
    /// No bytes, or white space alone.
    #[error("the file is empty")]
    Empty,
    /// Some byte is not UTF-8.
    #[error("the file is not UTF-8: byte {offset} is 0x{byte:02X}")]
    NotUtf8 {
        /// Its place, from 0.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// The text is not JSON.
    #[error("the file is not JSON: line {line}, column {column}: expected {expected}, found {found}")]
    NotJson {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What would fit there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// JSON, and none of the three shapes.
    #[error(
        "this is not a tasks file: found {found}; expected an object with `userStories` (an array) and, beside it, \
         either `metadata` (with `title` and `branchName`) or, as in Ralph's prd.json, `project` or `name`"
    )]
    UnknownShape {
        /// The root value.
        found: String,
    },
    /// A value of the wrong type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A word that is not in the list.
    #[error("found `{found}`; allowed are {allowed}")]
    UnknownKeyword {
        /// The word.
        found: String,
        /// The list.
        allowed: String,
    },
    /// A key that is not in the list.
    #[error("there is no key `{found}` here, only `{allowed}`")]
    UnknownKey {
        /// The key.
        found: String,
        /// The list.
        allowed: String,
    },
    /// What must be there is not, or is blank.
    #[error("{what} is missing")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// A number outside of its range.
    #[error("must be at least 1, found `{found}`")]
    NotPositive {
        /// The number.
        found: String,
    },
    /// A key that stands more than once in an object.
    #[error("the key `{key}` stands {count} times in the same object")]
    DuplicateKey {
        /// The key.
        key: String,
        /// How often.
        count: usize,
    },
    /// Text with a NUL, which no command, commit message or file can hold.
    #[error("the text has a NUL character (`\\u0000`)")]
    NulCharacter,
    /// An empty `userStories`.
    #[error("the file has no stories")]
    NoStories,
    /// More than [`MAX_STORIES`].
    #[error("the file has {count} stories; at most {MAX_STORIES} can be told apart by ids like `US-001`")]
    TooManyStories {
        /// How many.
        count: usize,
    },
    /// An id that several stories have.
    #[error("the id `{id}` is that of {} stories: {}", places.len(), places.join(", "))]
    DuplicateId {
        /// The id.
        id: String,
        /// The stories, with their lines.
        places: Vec<String>,
    },
    /// A dependency on a story that the file does not have.
    #[error("depends on `{dependency}`, which is not in this file")]
    UnknownDependency {
        /// What was asked for.
        dependency: String,
        /// Ids that the file has.
        known: String,
    },
    /// A story that depends on itself.
    #[error("depends on itself")]
    SelfDependency,
    /// Stories that wait for each other.
    #[error("the dependencies go round in a circle: {}", ids.join(" -> "))]
    Cycle {
        /// Each depends on the next; the first stands at the end again.
        ids: Vec<String>,
    },
    /// `status` says one thing and `passes` another.
    #[error("`status` is `{status}`, but `passes` is `{passes}`")]
    ConflictingStatus {
        /// The one.
        status: String,
        /// The other.
        passes: bool,
    },
    /// A header block that cannot be one.
    #[error("{problem}")]
    InvalidHeaderBlock {
        /// Why not.
        problem: String,
    },
    /// A name for an agent that no outbox can have.
    #[error("`{found}` is not an agent's id: 1 to 64 letters, digits, `_` and `-`, beginning with a letter or digit")]
    InvalidAgentId {
        /// The name.
        found: String,
    },
    /// A role that no table can hold.
    #[error("the role `{found}` has more than {} characters, or a `|`", super::import::MAX_ROLE_CHARS)]
    InvalidRole {
        /// The role.
        found: String,
    },
    /// An outcome for a story that the file does not have (any more).
    #[error("there is no story `{id}` to write an outcome to")]
    NoSuchStory {
        /// The story.
        id: crate::ids::StoryId,
    },
}

impl TasksDefect {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        let fixed = match self {
            Self::NoSuchFile => "check the path; it is taken from the current directory",
            Self::IsADirectory => "name the JSON file in it",
            Self::ReadFailed(_) => "check the file's permissions",
            Self::TooLarge => "split it into several tasks files; `longshore run` takes any number",
            Self::Empty | Self::NoStories => "write at least one story into `userStories`",
            Self::NotUtf8 { .. } => "save the file as UTF-8",
            Self::NotJson { expected, found, .. } => syntax_remedy(expected, found),
            Self::UnknownShape { .. } => {
                "see `longshore schema tasks`, or give the tasks file and not another JSON file"
            }
            Self::WrongType { expected, .. } => {
                return format!("make it {expected}, or remove the key if it is optional");
            }
            Self::UnknownKeyword { .. } => "use one of these words, or remove the key",
            Self::UnknownKey { .. } => "correct its name, or remove it",
            Self::Missing { .. } => "add it",
            Self::NotPositive { .. } => "give a number from 1, or remove the key",
            Self::DuplicateKey { .. } => "keep one of them",
            Self::NulCharacter => "remove the character",
            Self::TooManyStories { .. } => "split it into several tasks files; `longshore run` takes any number",
            Self::DuplicateId { .. } => "give each story an id of its own",
            Self::UnknownDependency { known, .. } => {
                return format!("correct the id, or remove it; the file has {known}");
            }
            Self::SelfDependency => "remove it",
            Self::Cycle { .. } => "remove one of these dependencies",
            Self::ConflictingStatus { .. } => "make the two agree, or remove one of them",
            Self::InvalidHeaderBlock { .. } => "correct it, or remove the block; see docs/memory.md of longshore",
            Self::InvalidAgentId { .. } => "give it a simple name, like `alpha`, or remove the key",
            Self::InvalidRole { .. } => "say it in a word or two",
            Self::NoSuchStory { .. } => {
                "the file was changed since the swarm began: put the story back, or run without \
                                         --write-back"
            }
        };
        fixed.to_owned()
    }
}

fn syntax_remedy(expected: &str, found: &str) -> &'static str {
    match found {
        "the end of the file" => "the file is cut off: complete it",
        "`/`" | "`#`" => "remove the comment: JSON has none",
        "`}`" | "`]`" if matches!(expected, "a value" | "a key in double quotes") => "remove the comma before it",
        "`'`" => "use double quotes",
        _ => "correct it there; `python3 -m json.tool FILE` or an editor shows the place",
    }
}
