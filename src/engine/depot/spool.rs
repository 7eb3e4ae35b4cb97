//! Takes what a request brings to the host's disk: in memory while it is little, in a file from then on.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::super::{EngineError, EngineResult};
use super::connection::{AnswerPart, PendingRequest};
use crate::handoff::depot::{DepotErrorKind, DepotResponse};

/// What is kept in memory: most results are smaller, and many may come at once.
const MEMORY_LIMIT: usize = 256 * 1024;

/// Data that arrived, in order.
pub(super) struct Spool {
    operation: &'static str,
    memory: Vec<u8>,
    /// Holds everything, once it was more than fits [`MEMORY_LIMIT`].
    file: Option<File>,
    /// Where `file` is; removed when this is dropped.
    part_path: PathBuf,
    length: u64,
}

/// Takes data until the answer comes; more than `most` bytes are refused.
pub(super) async fn receive_to_spool(
    mut exchange: PendingRequest,
    most: u64,
    target: &Path,
) -> EngineResult<(DepotResponse, Spool)> {
    let mut part = target.as_os_str().to_owned();
    part.push(".part");
    let operation = exchange.operation();
    let mut spool = Spool { operation, memory: Vec::new(), file: None, part_path: part.into(), length: 0 };
    loop {
        match exchange.next_part().await? {
            AnswerPart::Answer(answer) => return Ok((answer, spool)),
            AnswerPart::Data(bytes) => {
                spool.length += bytes.len() as u64;
                if spool.length > most {
                    let message = format!("it sent more than the {most} bytes that are allowed");
                    return Err(EngineError::Depot { operation, kind: Some(DepotErrorKind::Refused), message });
                }
                spool.push(&bytes).await.map_err(|error| spool.write_error(&error))?;
            }
        }
    }
}

impl Spool {
    /// How much there is.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    async fn push(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(bytes).await;
        }
        self.memory.extend_from_slice(bytes);
        if self.memory.len() > MEMORY_LIMIT {
            let mut file =
                File::options().read(true).write(true).create(true).truncate(true).open(&self.part_path).await?;
            file.write_all(&std::mem::take(&mut self.memory)).await?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// The first `first` bytes; the rest goes to `target`, and no file is made where there is none.
    pub(super) async fn split_to_file(mut self, first: u64, target: &Path) -> EngineResult<Vec<u8>> {
        match self.try_split(first, target).await {
            Ok(head) => Ok(head),
            Err(error) => {
                // Half a bundle must not be taken for one.
                let _ = tokio::fs::remove_file(target).await;
                Err(self.write_error(&error))
            }
        }
    }

    async fn try_split(&mut self, first: u64, target: &Path) -> std::io::Result<Vec<u8>> {
        let Some(file) = &mut self.file else {
            let first = usize::try_from(first).unwrap_or(usize::MAX).min(self.memory.len());
            let rest = self.memory.split_off(first);
            if !rest.is_empty() {
                tokio::fs::write(target, rest).await?;
            }
            return Ok(std::mem::take(&mut self.memory));
        };
        file.flush().await?;
        if first == 0 {
            tokio::fs::rename(&self.part_path, target).await?;
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(0)).await?;
        let mut head = Vec::new();
        file.take(first).read_to_end(&mut head).await?;
        if self.length > first {
            let mut rest = File::create(target).await?;
            tokio::io::copy(file, &mut rest).await?;
            rest.flush().await?;
        }
        Ok(head)
    }

    fn write_error(&self, error: &std::io::Error) -> EngineError {
        let source = format!("writing `{}`: {error}", self.part_path.display()).into();
        EngineError::Failed { operation: self.operation, source }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Gone already where it was renamed.
            let _ = std::fs::remove_file(&self.part_path);
        }
    }
}
