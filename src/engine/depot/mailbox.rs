//! What a depot does for a swarm's mailbox. Called by `coordinator/mailbox.rs`. Must not: believe what came out of it.

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

/// The most data of one answer: the last file may begin just below the limit.
const MAX_DATA_BYTES: u64 =
    MAX_BATCH_BYTES + if MAX_SHARED_FILE_BYTES > MAX_MESSAGE_BYTES { MAX_SHARED_FILE_BYTES } else { MAX_MESSAGE_BYTES };

/// What the host had not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailboxChanges {
    /// Files with their contents, which are as hostile as their writers.
    pub files: Vec<(NewMailFile, Vec<u8>)>,
    /// Shared files that are gone.
    pub removed: Vec<String>,
    /// What is not carried.
    pub refused: Vec<RefusedMailFile>,
    /// There is more at once.
    pub has_more: bool,
}

/// What became of the host's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailboxWriteOutcome {
    /// The stamps of the shared files that were written.
    pub stamps: BTreeMap<String, String>,
    /// Paths where something else is, which stays.
    pub conflicts: Vec<String>,
}

impl DepotClient {
    /// Makes the mailbox's layout where it is not there. Gives whether it was not, and the messages that are in it.
    pub async fn open_mailbox(&self) -> EngineResult<(bool, BTreeMap<String, MessageNumbers>)> {
        const OPERATION: &str = "opening the mailbox";
        match self.request(OPERATION, &DepotRequest::OpenMailbox, ANSWER_TIMEOUT).await? {
            DepotResponse::MailboxState { created: fresh, messages } => Ok((fresh, messages)),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Gives an agent's outbox to a sandbox's user.
    pub async fn assign_outbox(&self, agent: &AgentId, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "giving a sandbox its outbox";
        let request = DepotRequest::AssignOutbox { agent: agent.to_string(), uid };
        expect_nothing(OPERATION, &self.request(OPERATION, &request, ANSWER_TIMEOUT).await?)
    }

    /// Waits for what the host has not. A depot that dies meanwhile is started again, and asked the same.
    pub async fn wait_for_mail(&self, ask: MailQuery) -> EngineResult<MailboxChanges> {
        const OPERATION: &str = "waiting for mail";
        let within = Duration::from_millis(ask.timeout_ms) + ANSWER_TIMEOUT;
        let request = DepotRequest::WaitForMail(ask);
        let spool = || Spool::in_memory(MAX_DATA_BYTES);
        let (answer, spool) = self.request_data(OPERATION, &request, within, spool).await?;
        let DepotResponse::NewMail { files, removed: gone, refused, has_more: more } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        split_files(files, &spool.into_memory())
            .filter(|files| files.len() <= MAX_BATCH_FILES && refused.len() <= MAX_REFUSALS)
            .map(|files| MailboxChanges { files, removed: gone, refused, has_more: more })
            .ok_or_else(|| depot_error(OPERATION, "its data are not the files that it names"))
    }

    /// Writes files of the host's. They have to fit one frame together.
    pub async fn write_mail(&self, files: Vec<MailFileWrite>) -> EngineResult<MailboxWriteOutcome> {
        const OPERATION: &str = "writing to the mailbox";
        match self.request(OPERATION, &DepotRequest::PutMail { files }, ANSWER_TIMEOUT).await? {
            DepotResponse::MailWritten { stamps, conflicts: kept } => {
                Ok(MailboxWriteOutcome { stamps, conflicts: kept })
            }
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }
}

/// Each file with its own data; none where they do not fit.
fn split_files(files: Vec<NewMailFile>, data: &[u8]) -> Option<Vec<(NewMailFile, Vec<u8>)>> {
    let mut rest = data;
    let mut apart = Vec::with_capacity(files.len());
    for file in files {
        let (own, behind) = rest.split_at_checked(usize::try_from(file.bytes).ok()?)?;
        apart.push((file, own.to_vec()));
        rest = behind;
    }
    rest.is_empty().then_some(apart)
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
