//! The depot client's requests for a swarm's mailbox. Used by `coordinator/mailbox`. Must not: trust the content of responses.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::{ANSWER_TIMEOUT, DepotClient, expect_nothing, unexpected_answer};
use super::connection::depot_error;
use super::spool::Spool;
use crate::engine::EngineResult;
use crate::handoff::depot::{DepotRequest, DepotResponse};
use crate::handoff::mailbox::{
    MAX_BATCH_BYTES, MAX_BATCH_FILES, MAX_MESSAGE_BYTES, MAX_REFUSALS, MAX_SHARED_FILE_BYTES, MailFileWrite, MailQuery,
    MessageNumbers, NewMailFile, RefusedMailFile,
};
use crate::ids::AgentId;

/// Limit for the data of a response: the last file may begin just below the batch's limit.
const MAX_DATA_BYTES: u64 =
    MAX_BATCH_BYTES + if MAX_SHARED_FILE_BYTES > MAX_MESSAGE_BYTES { MAX_SHARED_FILE_BYTES } else { MAX_MESSAGE_BYTES };

/// What is new in the mailbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailboxChanges {
    /// New files and their untrusted content.
    pub files: Vec<(NewMailFile, Vec<u8>)>,
    /// The names of removed shared files.
    pub removed: Vec<String>,
    /// Files that are not transferred.
    pub refused: Vec<RefusedMailFile>,
    /// More is available at once.
    pub has_more: bool,
}

/// What became of the host's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailboxWriteOutcome {
    /// The new stamps of shared files, by name.
    pub stamps: BTreeMap<String, String>,
    /// Paths that have a different file, which stays.
    pub conflicts: Vec<String>,
}

impl DepotClient {
    /// Creates the mailbox's directories if needed. Returns whether it did, and the messages in the mailbox.
    pub async fn open_mailbox(&self) -> EngineResult<(bool, BTreeMap<String, MessageNumbers>)> {
        const OPERATION: &str = "opening the mailbox";
        match self.request(OPERATION, &DepotRequest::OpenMailbox, ANSWER_TIMEOUT).await? {
            DepotResponse::MailboxState { created, messages } => Ok((created, messages)),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Makes a sandbox's user the owner of an agent's outbox.
    pub async fn assign_outbox(&self, agent: &AgentId, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "giving a sandbox its outbox";
        let request = DepotRequest::AssignOutbox { agent: agent.to_string(), uid };
        expect_nothing(OPERATION, &self.request(OPERATION, &request, ANSWER_TIMEOUT).await?)
    }

    /// Waits for changes that are new to the host. If the depot dies, it is started again and gets the same request.
    pub async fn wait_for_mail(&self, query: MailQuery) -> EngineResult<MailboxChanges> {
        const OPERATION: &str = "waiting for mail";
        let within = Duration::from_millis(query.timeout_ms) + ANSWER_TIMEOUT;
        let request = DepotRequest::WaitForMail(query);
        let spool = || Spool::in_memory(MAX_DATA_BYTES);
        let (answer, spool) = self.request_data(OPERATION, &request, within, spool).await?;
        let DepotResponse::NewMail { files, removed, refused, has_more } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        split_files(files, &spool.into_memory())
            .filter(|files| files.len() <= MAX_BATCH_FILES && refused.len() <= MAX_REFUSALS)
            .map(|files| MailboxChanges { files, removed, refused, has_more })
            .ok_or_else(|| depot_error(OPERATION, "its data does not match the files that it lists"))
    }

    /// Writes files, which must fit one frame together.
    pub async fn write_mail(&self, files: Vec<MailFileWrite>) -> EngineResult<MailboxWriteOutcome> {
        const OPERATION: &str = "writing to the mailbox";
        match self.request(OPERATION, &DepotRequest::PutMail { files }, ANSWER_TIMEOUT).await? {
            DepotResponse::MailWritten { stamps, conflicts } => Ok(MailboxWriteOutcome { stamps, conflicts }),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }
}

/// Pairs each file with its part of the data. `None` if the lengths do not match.
fn split_files(files: Vec<NewMailFile>, data: &[u8]) -> Option<Vec<(NewMailFile, Vec<u8>)>> {
    let mut rest = data;
    let mut split = Vec::with_capacity(files.len());
    for file in files {
        let (content, remaining) = rest.split_at_checked(usize::try_from(file.bytes).ok()?)?;
        split.push((file, content.to_vec()));
        rest = remaining;
    }
    rest.is_empty().then_some(split)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_split_into_files() {
        let file = |path: &str, bytes| NewMailFile { path: path.to_owned(), bytes, stamp: String::new() };
        let two = vec![file("a", 2), file("b", 1)];
        let found = split_files(two.clone(), b"xyz").expect("they fit");
        assert_eq!(found.iter().map(|(_, bytes)| bytes.as_slice()).collect::<Vec<_>>(), [&b"xy"[..], b"z"]);
        assert!(split_files(two.clone(), b"xy").is_none() && split_files(two, b"wxyz").is_none());
        assert!(split_files(vec![file("a", u64::MAX)], b"x").is_none());
    }
}
