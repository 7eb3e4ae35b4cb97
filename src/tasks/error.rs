//! Everything that can be wrong with a tasks file: each problem with its file, location, story and remedy.
//!
//! Shown by `cli/`, and by the shim as the message of ACP's `TASK_FILE_INVALID`. To add a kind of problem: add a variant with its message,
//! and its remedy below.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::ids::StoryId;

/// The largest tasks file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The most stories of a tasks file: the numbers of `US-ddd`, from 1.
pub const MAX_STORIES: usize = 999;
/// The longest role of an agent, in characters.
pub(super) const MAX_ROLE_CHARS: usize = 60;

/// All problems of one tasks file. `Display` renders a line for each, with the remedy below it.
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

    /// An error of the file as a whole.
    pub(super) fn for_file(path: &Path, kind: TasksProblemKind) -> Self {
        Self::new(path, vec![TasksProblem::for_file(kind)])
    }

    /// As the user typed it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In the file's order; at least one.
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
            write!(f, ": {problem}\n    remedy: {}", problem.kind.remedy())?;
        }
        Ok(())
    }
}

/// One problem. `Display` names location and story, but neither file nor line.
#[derive(Debug)]
pub struct TasksProblem {
    /// A path in the JSON: `userStories[3].dependsOn[0]`. Empty for the file as a whole.
    pub location: String,
    /// From 1.
    pub line: Option<usize>,
    /// The story's id in the file.
    pub story: Option<String>,
    pub kind: TasksProblemKind,
}

impl TasksProblem {
    /// A problem of the file as a whole.
    pub(super) fn for_file(kind: TasksProblemKind) -> Self {
        Self { location: String::new(), line: None, story: None, kind }
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
        write!(f, "{}", self.kind)
    }
}

#[derive(Debug, Error)]
pub enum TasksProblemKind {
    #[error("there is no such file")]
    NoSuchFile,
    #[error("this is a directory, not a file")]
    IsADirectory,
    #[error("the file cannot be read: {0}")]
    ReadFailed(io::Error),
    #[error("the file has more than {} MB", MAX_FILE_BYTES / 1024 / 1024)]
    TooLarge,
    #[error("the file is empty")]
    Empty,
    #[error("the file is not UTF-8: byte {offset} is 0x{byte:02X}")]
    NotUtf8 { offset: usize, byte: u8 },
    #[error("the file is not JSON: line {line}, column {column}: expected {expected}, found {found}")]
    NotJson { line: usize, column: usize, expected: &'static str, found: String },
    #[error(
        "this is not a tasks file: found {found}; expected an object with `userStories` (an array) and, beside it, \
         either `metadata` (with `title` and `branchName`) or, as in Ralph's prd.json, `project` or `name`"
    )]
    UnknownShape { found: String },
    #[error("expected {expected}, found {found}")]
    WrongType { expected: &'static str, found: String },
    #[error("found `{found}`; allowed are {allowed}")]
    UnknownKeyword { found: String, allowed: String },
    #[error("there is no key `{found}` here, only `{allowed}`")]
    UnknownKey { found: String, allowed: String },
    #[error("{what} is missing")]
    Missing { what: &'static str },
    #[error("must be at least 1, found `{found}`")]
    NotPositive { found: String },
    #[error("the object has the key `{key}` {count} times")]
    DuplicateKey { key: String, count: usize },
    #[error("the text has a NUL character (`\\u0000`)")]
    NulCharacter,
    #[error("the file has no stories")]
    NoStories,
    #[error("the file has {count} stories; at most {MAX_STORIES} are allowed, the number of ids like `US-001`")]
    TooManyStories { count: usize },
    #[error("{} stories have the id `{id}`: {}", places.len(), places.join(", "))]
    DuplicateId { id: String, places: Vec<String> },
    #[error("depends on `{dependency}`, which is not in this file")]
    UnknownDependency { dependency: String, known: String },
    #[error("depends on itself")]
    SelfDependency,
    #[error("the dependencies form a cycle: {}", ids.join(" -> "))]
    Cycle { ids: Vec<String> },
    #[error("`status` is `{status}`, but `passes` is `{passes}`")]
    ConflictingStatus { status: String, passes: bool },
    #[error("{problem}")]
    InvalidHeaderBlock { problem: String },
    #[error("`{found}` is not an agent's id: 1 to 64 letters, digits, `_` and `-`, beginning with a letter or digit")]
    InvalidAgentId { found: String },
    #[error("the role `{found}` has more than {} characters, or a `|`", MAX_ROLE_CHARS)]
    InvalidRole { found: String },
    #[error("there is no story `{id}` to write an outcome to")]
    NoSuchStory { id: StoryId },
}

impl TasksProblemKind {
    pub fn remedy(&self) -> String {
        let fixed = match self {
            Self::NoSuchFile => "check the path; it is relative to the current directory",
            Self::IsADirectory => "name the JSON file in it",
            Self::ReadFailed(_) => "check the file's permissions",
            Self::TooLarge => "split it into several tasks files; `longshore run` takes any number",
            Self::Empty | Self::NoStories => "write at least one story into `userStories`",
            Self::NotUtf8 { .. } => "save the file as UTF-8",
            Self::NotJson { expected, found, .. } => syntax_remedy(expected, found),
            Self::UnknownShape { .. } => {
                "see `longshore schema tasks`, or name the tasks file instead of another JSON file"
            }
            Self::WrongType { expected, .. } => {
                return format!("make it {expected}, or remove the key if it is optional");
            }
            Self::UnknownKeyword { .. } => "use one of these words, or remove the key",
            Self::UnknownKey { .. } => "correct its name, or remove it",
            Self::Missing { .. } => "add it",
            Self::NotPositive { .. } => "use a number from 1, or remove the key",
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
            Self::InvalidAgentId { .. } => "use a simple name, like `alpha`, or remove the key",
            Self::InvalidRole { .. } => "use a word or two",
            Self::NoSuchStory { .. } => {
                "the file changed since the swarm started: put the story back, or run without --write-back"
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
