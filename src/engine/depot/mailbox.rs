//! What a depot does for a swarm's mailbox. Called by `coordinator/mailbox.rs`. Must not: believe what came out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::link::{Exchange, Link, Piece};
use super::{ANSWER_WITHIN, Depot, EngineError, EngineResult, nothing, unexpected};
use crate::handoff::depot::{Answer, DepotFaultKind, Request};
use crate::handoff::mailbox::{
    Arrived, BATCH_BYTES, BATCH_FILES, MESSAGE_BYTES, MailAsk, MailFile, Numbers, REFUSALS_MAX, Refused, SHARED_BYTES,
};
use crate::ids::AgentId;

/// The most data of one answer: the last file may begin just below the limit.
const MOST: u64 = BATCH_BYTES + if SHARED_BYTES > MESSAGE_BYTES { SHARED_BYTES } else { MESSAGE_BYTES };

/// What the host had not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailNews {
    /// Files with their contents, which are as hostile as their writers.
    pub files: Vec<(Arrived, Vec<u8>)>,
    /// Shared files that are gone.
    pub gone: Vec<String>,
    /// What is not carried.
    pub refused: Vec<Refused>,
    /// There is more at once.
    pub more: bool,
}

/// What became of the host's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailWritten {
    /// The stamps of the shared files that were written.
    pub stamps: BTreeMap<String, String>,
    /// Paths where something else is, which stays.
    pub kept: Vec<String>,
}

impl Depot {
    /// Makes the mailbox's layout where it is not there. Gives whether it was not, and the messages that are in it.
    pub async fn mail_open(&self) -> EngineResult<(bool, BTreeMap<String, Numbers>)> {
        const OPERATION: &str = "opening the mailbox";
        match self.ask(OPERATION, &Request::MailOpen, ANSWER_WITHIN).await? {
            Answer::MailHas { fresh, messages } => Ok((fresh, messages)),
            other => Err(unexpected(OPERATION, &other)),
        }
    }

    /// Gives an agent's outbox to a sandbox's user.
    pub async fn mail_seat(&self, agent: &AgentId, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "giving a sandbox its outbox";
        let request = Request::MailSeat { agent: agent.to_string(), uid };
        nothing(OPERATION, &self.ask(OPERATION, &request, ANSWER_WITHIN).await?)
    }

    /// Waits for what the host has not. A depot that dies meanwhile is started again, and asked the same.
    pub async fn mail_wait(&self, ask: MailAsk) -> EngineResult<MailNews> {
        const OPERATION: &str = "waiting for mail";
        let within = Duration::from_millis(ask.within_ms) + ANSWER_WITHIN;
        let request = Request::MailWait(ask);
        let request = &request;
        let waiting = |link: Arc<Link>, _| async move {
            let exchange = link.ask(OPERATION, request, within).await?;
            // By a task of its own, so that a caller that is slow to poll holds nobody up.
            match AbortOnDropHandle::new(tokio::spawn(receive(exchange))).await {
                Ok(received) => received,
                Err(panicked) => Err(EngineError::Failed { operation: OPERATION, source: Box::new(panicked) }),
            }
        };
        let (answer, data) = self.keeper.twice(OPERATION, waiting).await?;
        let Answer::Mail { files, gone, refused, more } = answer else { return Err(unexpected(OPERATION, &answer)) };
        apart(files, &data)
            .filter(|files| files.len() <= BATCH_FILES && refused.len() <= REFUSALS_MAX)
            .map(|files| MailNews { files, gone, refused, more })
            .ok_or_else(|| EngineError::Depot {
                operation: OPERATION,
                kind: None,
                message: "its data are not the files that it names".to_owned(),
            })
    }

    /// Writes files of the host's. They have to fit one frame together.
    pub async fn mail_put(&self, files: Vec<MailFile>) -> EngineResult<MailWritten> {
        const OPERATION: &str = "writing to the mailbox";
        match self.ask(OPERATION, &Request::MailPut { files }, ANSWER_WITHIN).await? {
            Answer::MailPut { stamps, kept } => Ok(MailWritten { stamps, kept }),
            other => Err(unexpected(OPERATION, &other)),
        }
    }
}

async fn receive(mut exchange: Exchange) -> EngineResult<(Answer, Vec<u8>)> {
    let operation = exchange.operation();
    let mut data = Vec::new();
    loop {
        match exchange.next().await? {
            Piece::Answer(answer) => return Ok((answer, data)),
            Piece::Data(bytes) if data.len() as u64 + bytes.len() as u64 > MOST => {
                let message = format!("it sent more than the {MOST} bytes that are allowed");
                return Err(EngineError::Depot { operation, kind: Some(DepotFaultKind::Refused), message });
            }
            Piece::Data(bytes) => data.extend_from_slice(&bytes),
        }
    }
}

/// Each file with its own data; none where they do not fit.
fn apart(files: Vec<Arrived>, data: &[u8]) -> Option<Vec<(Arrived, Vec<u8>)>> {
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
    fn data_fall_apart_into_files() {
        let file = |path: &str, bytes| Arrived { path: path.to_owned(), bytes, stamp: String::new() };
        let two = vec![file("a", 2), file("b", 1)];
        let found = apart(two.clone(), b"xyz").expect("they fit");
        assert_eq!(found.iter().map(|(_, bytes)| bytes.as_slice()).collect::<Vec<_>>(), [&b"xy"[..], b"z"]);
        assert!(apart(two.clone(), b"xy").is_none() && apart(two, b"wxyz").is_none());
        assert!(apart(vec![file("a", u64::MAX)], b"x").is_none());
    }
}
