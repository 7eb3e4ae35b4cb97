//! Stores the data of an answer: in memory while it is small, then in a file.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::connection::{AnswerPart, PendingRequest};
use crate::engine::{EngineError, EngineResult};
use crate::handoff::depot::{DepotErrorKind, DepotResponse};

/// Most results are smaller, and many may arrive at once.
const MEMORY_LIMIT: usize = 256 * 1024;

/// Received data, in order.
pub(super) struct Spool {
    memory: Vec<u8>,
    /// Where data beyond [`MEMORY_LIMIT`] goes. `None` if all of it stays in memory.
    part_path: Option<PathBuf>,
    /// Holds everything once it is open. Removed when this is dropped.
    file: Option<File>,
    length: u64,
    max_bytes: u64,
}

impl Spool {
    /// A spool that stores larger data in a file beside `target`. More than `max_bytes` are refused.
    pub(super) fn beside(target: &Path, max_bytes: u64) -> Self {
        let mut part_path = target.as_os_str().to_owned();
        part_path.push(".part");
        Self::new(Some(part_path.into()), max_bytes)
    }

    /// A spool that keeps all data in memory. More than `max_bytes` are refused.
    pub(super) fn in_memory(max_bytes: u64) -> Self {
        Self::new(None, max_bytes)
    }

    fn new(part_path: Option<PathBuf>, max_bytes: u64) -> Self {
        Self { memory: Vec::new(), part_path, file: None, length: 0, max_bytes }
    }

    /// Receives data until the answer arrives.
    pub(super) async fn receive(mut self, mut pending: PendingRequest) -> EngineResult<(DepotResponse, Self)> {
        let operation = pending.operation();
        loop {
            let chunk = match pending.next_part().await? {
                AnswerPart::Answer(answer) => return Ok((answer, self)),
                AnswerPart::Data(chunk) => chunk,
            };
            self.length += chunk.len() as u64;
            if self.length > self.max_bytes {
                let message = format!("it sent more than the allowed {} bytes", self.max_bytes);
                return Err(EngineError::Depot { operation, kind: Some(DepotErrorKind::Refused), message });
            }
            self.push(&chunk).await.map_err(|error| self.write_error(operation, &error))?;
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The data of a spool in memory.
    pub(super) fn into_memory(mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }

    async fn push(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(chunk).await;
        }
        self.memory.extend_from_slice(chunk);
        if self.memory.len() > MEMORY_LIMIT
            && let Some(path) = &self.part_path
        {
            let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path).await?;
            file.write_all(&std::mem::take(&mut self.memory)).await?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// Returns the first `head_len` bytes and writes the rest to `target`. Without a rest, no file is created.
    pub(super) async fn split_to_file(
        mut self,
        operation: &'static str,
        head_len: u64,
        target: &Path,
    ) -> EngineResult<Vec<u8>> {
        match self.try_split(head_len, target).await {
            Ok(head) => Ok(head),
            Err(error) => {
                // A truncated bundle must not be used.
                let _ = tokio::fs::remove_file(target).await;
                Err(self.write_error(operation, &error))
            }
        }
    }

    async fn try_split(&mut self, head_len: u64, target: &Path) -> std::io::Result<Vec<u8>> {
        let (Some(file), Some(part_path)) = (&mut self.file, &self.part_path) else {
            let head_len = usize::try_from(head_len).unwrap_or(usize::MAX).min(self.memory.len());
            let rest = self.memory.split_off(head_len);
            if !rest.is_empty() {
                tokio::fs::write(target, rest).await?;
            }
            return Ok(std::mem::take(&mut self.memory));
        };
        file.flush().await?;
        if head_len == 0 {
            tokio::fs::rename(part_path, target).await?;
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(0)).await?;
        let mut head = Vec::new();
        file.take(head_len).read_to_end(&mut head).await?;
        if self.length > head_len {
            let mut rest = File::create(target).await?;
            tokio::io::copy(file, &mut rest).await?;
            rest.flush().await?;
        }
        Ok(head)
    }

    fn write_error(&self, operation: &'static str, error: &std::io::Error) -> EngineError {
        let path = self.part_path.as_deref().unwrap_or(Path::new("")).display();
        EngineError::Failed { operation, source: format!("writing `{path}`: {error}").into() }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let (Some(_), Some(path)) = (self.file.take(), &self.part_path) {
            // Missing if it was renamed.
            let _ = std::fs::remove_file(path);
        }
    }
}
