//! Reads the commits that candidates would bring to the branch, in one process for all.
//!
//! Called by `landing.rs`. Must not: change anything.

use std::collections::HashMap;
use std::time::Duration;

use super::candidate::LandingCandidate;
use super::message::MAX_MESSAGE;
use crate::delivery::error::{BundleError, DeliveryError};
use crate::delivery::git_runner::unexpected_output;
use crate::delivery::repo::Repo;
use crate::ids::CommitId;

const TIME_LIMIT: Duration = Duration::from_secs(5 * 60);
/// The most bytes of all messages together.
const MAX_TEXT: usize = 64 * 1024 * 1024;
/// Beyond [`MAX_MESSAGE`], so that removed lines do not count.
const READ_MESSAGE: usize = 2 * MAX_MESSAGE;

/// A commit that is neither on the branch nor below a base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewCommit {
    pub tree: String,
    pub parents: Vec<CommitId>,
    /// May be truncated; invalid UTF-8 is replaced.
    pub message: String,
}

pub(super) type NewCommits = HashMap<CommitId, NewCommit>;

impl Repo {
    /// The commits that the tips reach, and that `onto` and the bases do not.
    pub(super) async fn read_new_commits(
        &self,
        onto: &CommitId,
        candidates: &[LandingCandidate],
    ) -> Result<NewCommits, DeliveryError> {
        let operation = "read the commits that would land";
        let mut revisions = format!("^{onto}\n");
        for candidate in candidates {
            revisions.push_str(&format!("{}\n", candidate.tip));
            // The tip of another candidate lands too, and is written again.
            if candidates.iter().all(|other| other.tip != candidate.base) {
                revisions.push_str(&format!("^{}\n", candidate.base));
            }
        }
        let args = ["rev-list", "--no-commit-header", "--format=%H%x00%T%x00%P%x00%B%x00", "--stdin"];
        let command = self.git(operation, args).input(revisions).time_limit(TIME_LIMIT);
        let mut collector = FieldCollector::default();
        let ended = command.run_streaming(|chunk| collector.push(chunk)).await.map_err(|error| {
            let named = candidates.iter().flat_map(|candidate| [&candidate.tip, &candidate.base]).chain([onto]);
            missing_commit(error, named)
        })?;
        if ended.is_none() {
            return Err(BundleError::TooMuchText { limit: MAX_TEXT }.into());
        }
        collector.finish().map_err(|record| unexpected_output(operation, &record))
    }
}

/// Git says "bad object" for a commit that the repository does not have.
fn missing_commit<'a>(error: DeliveryError, named: impl Iterator<Item = &'a CommitId>) -> DeliveryError {
    let DeliveryError::CommandFailed { tail, .. } = &error else { return error };
    let mut named = named.filter(|commit| tail.contains(&format!("bad object {commit}")));
    named.next().map_or(error, |commit| DeliveryError::MissingCommit { commit: commit.clone() })
}

/// Splits the output of `rev-list` at NUL and keeps the beginning of each field.
#[derive(Default)]
struct FieldCollector {
    fields: Vec<Vec<u8>>,
    field: Vec<u8>,
    kept: usize,
}

impl FieldCollector {
    /// Returns `false` when the text is too long.
    fn push(&mut self, chunk: &[u8]) -> bool {
        for (number, part) in chunk.split(|&byte| byte == 0).enumerate() {
            if number > 0 {
                self.fields.push(std::mem::take(&mut self.field));
            }
            let room = READ_MESSAGE.saturating_sub(self.field.len());
            let part = &part[..part.len().min(room)];
            self.kept += part.len();
            self.field.extend_from_slice(part);
        }
        self.kept <= MAX_TEXT
    }

    /// # Errors
    /// A record that cannot be parsed.
    fn finish(self) -> Result<NewCommits, String> {
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (records, rest) = self.fields.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(text(&rest[0]));
        }
        let parse = |[id, tree, parents, message]: &[Vec<u8>; 4]| {
            let id = text(id);
            // Each record ends with a NUL and a newline.
            let commit = id.trim_start().parse().map_err(|_| id.clone())?;
            let parents = text(parents);
            let parents: Result<_, _> = parents.split(' ').filter(|id| !id.is_empty()).map(str::parse).collect();
            let parents = parents.map_err(|_| id.clone())?;
            Ok((commit, NewCommit { tree: text(tree), parents, message: text(message) }))
        };
        records.iter().map(parse).collect()
    }
}
