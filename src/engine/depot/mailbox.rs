//! The depot client's requests for a swarm's mailbox. Used by `coordinator/mailbox`. Must not: trust the content of responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::connection::{AnswerPart, DepotConnection, PendingRequest};
use super::{ANSWER_TIMEOUT, DepotClient, EngineError, EngineResult, expect_nothing, unexpected_answer};
use crate::handoff::depot::{DepotErrorKind, DepotRequest, DepotResponse};
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
        let request = &request;
        let waiting = |link: Arc<DepotConnection>, _| async move {
            let exchange = link.send_request(OPERATION, request, within).await?;
            // In a task of its own, so that a caller that polls slowly does not block the connection.
            match AbortOnDropHandle::new(tokio::spawn(receive_data(exchange))).await {
                Ok(received) => received,
                Err(panicked) => Err(EngineError::Failed { operation: OPERATION, source: Box::new(panicked) }),
            }
        };
        let (answer, data) = self.supervisor.request_with_retry(OPERATION, waiting).await?;
        let DepotResponse::NewMail { files, removed, refused, has_more } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        split_files(files, &data)
            .filter(|files| files.len() <= MAX_BATCH_FILES && refused.len() <= MAX_REFUSALS)
            .map(|files| MailboxChanges { files, removed, refused, has_more })
            .ok_or_else(|| EngineError::Depot {
                operation: OPERATION,
                kind: None,
                message: "its data does not match the files that it lists".to_owned(),
            })
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

async fn receive_data(mut exchange: PendingRequest) -> EngineResult<(DepotResponse, Vec<u8>)> {
    let operation = exchange.operation();
    let mut data = Vec::new();
    loop {
        match exchange.next_part().await? {
            AnswerPart::Answer(answer) => return Ok((answer, data)),
            AnswerPart::Data(bytes) if data.len() as u64 + bytes.len() as u64 > MAX_DATA_BYTES => {
                let message = format!("it sent more than the allowed {MAX_DATA_BYTES} bytes");
                return Err(EngineError::Depot { operation, kind: Some(DepotErrorKind::Refused), message });
            }
            AnswerPart::Data(bytes) => data.extend_from_slice(&bytes),
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
