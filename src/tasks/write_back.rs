//! The outcome of a swarm, into the user's own tasks file.

use std::collections::BTreeMap;
use std::path::Path;

use super::TasksError;
use crate::ids::StoryId;

/// What is written for a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It landed.
    Completed,
    /// It was tried and did not land.
    Failed,
    /// A person decided that it is not to be done. A story that was passed over because one that it depends on failed is
    /// `Pending`: written as skipped, the next swarm would take it for done.
    Skipped,
    /// It is still to be done.
    Pending,
}

/// The file with the outcomes in it. `original` must be a valid tasks file.
///
/// # Errors
/// As [`super::parse`]; and stories that the file does not have.
pub fn apply(original: &[u8], path: &Path, outcomes: &BTreeMap<StoryId, Written>) -> Result<Vec<u8>, TasksError> {
    let _ = (original, path, outcomes);
    todo!()
}
