//! The stories that the history of a branch says landed.
//!
//! Called by `coordinator/` and `cli/`. The trailers of commits say it. Sandboxes cannot forge them, because longshore removes their
//! claims from what lands (`landing/message.rs`); commits that people made are trusted. Must not: change anything.

use std::collections::HashSet;
use std::time::Duration;

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::landing::{CONTENT_TRAILER, STORY_TRAILER, TASKS_TRAILER, tasks_trailer};
use super::repo::Repo;
use crate::ids::{CommitId, StoryId};

const TIME_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A story that landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LandedStory {
    pub id: StoryId,
    /// The hash of what the story asked for.
    pub content: String,
    /// The commit whose trailers say it.
    pub commit: CommitId,
}

impl Repo {
    /// The stories of a tasks file that landed in the history of `head`, newest first, each once, as it landed last. `tasks` is
    /// the tasks file's path, relative to the root of the repository.
    ///
    /// A landing counts even if it was reverted later (`git revert`): its commit is still in the history. Landings without a
    /// content hash, by older versions, are left out.
    pub(crate) async fn landed_stories(&self, head: &CommitId, tasks: &str) -> Result<Vec<LandedStory>, DeliveryError> {
        let operation = "read which stories landed";
        let wanted = tasks_trailer(tasks);
        // Git filters by the text; the trailers decide.
        let args = ["rev-list", "--topo-order", "--no-commit-header", "--fixed-strings", "--grep", &wanted];
        let command = self.git(operation, args).arg("--format=%H%n%(trailers:only,unfold)%x00");
        let command = command.args(["--end-of-options", head.as_str(), "--"]).time_limit(TIME_LIMIT);
        let output = command.run().await?;
        let mut seen = HashSet::new();
        let mut landed = Vec::new();
        for record in output.nul_fields() {
            let record = String::from_utf8_lossy(record);
            let mut lines = record.trim_start().lines();
            let Some(id) = lines.next() else { continue };
            let commit: CommitId = id.parse().map_err(|_| unexpected_output(operation, id))?;
            let trailers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
            for (id, content) in stories_of(&trailers, &wanted) {
                if seen.insert(id.clone()) {
                    landed.push(LandedStory { id, content, commit: commit.clone() });
                }
            }
        }
        Ok(landed)
    }
}

/// The stories with the content hash that follows each, if the trailers name the tasks file.
fn stories_of(trailers: &[(&str, &str)], wanted: &str) -> Vec<(StoryId, String)> {
    let is = |key: &str, name: &str| key.eq_ignore_ascii_case(name);
    if !trailers.iter().any(|(key, value)| is(key, TASKS_TRAILER) && format!("{TASKS_TRAILER}: {value}") == wanted) {
        return Vec::new();
    }
    let mut stories = Vec::new();
    let mut last: Option<StoryId> = None;
    for (key, value) in trailers {
        if is(key, STORY_TRAILER) {
            last = value.trim().parse().ok();
        } else if is(key, CONTENT_TRAILER)
            && let Some(id) = last.take()
        {
            stories.push((id, value.trim().to_owned()));
        }
    }
    stories
}

#[cfg(test)]
mod tests;
