//! What can be wrong with a tasks file.

use std::path::PathBuf;

use thiserror::Error;

/// Everything that is wrong with one tasks file. Shown as one line a problem, each followed by its remedy.
#[derive(Debug, Error)]
#[error("{path}: {} problems", problems.len(), path = path.display())]
pub struct TasksError {
    path: PathBuf,
    problems: Vec<Problem>,
}

impl TasksError {
    /// The problems, in the file's order; at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct Problem {
    /// Where, as a path in the JSON: `userStories[3].dependsOn[0]`. Empty for the file as a whole.
    pub place: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The story's id as the file has it.
    pub story: Option<String>,
    /// What.
    pub defect: Defect,
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum Defect {
    /// The file is not there.
    #[error("there is no such file")]
    Missing,
}
