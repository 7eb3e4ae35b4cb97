//! Attached streams and logs as tagged chunks, and archives as bytes. Chunks are not lines, and may split a character.

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters as query;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;

use super::super::{AttachedStreams, CALL_TIMEOUT, EngineError, EngineResult, EngineStream, OutputChunk};
use super::DockerEngine;
use super::error_mapping::{self, CallContext};
use crate::ids::ContainerId;

impl DockerEngine {
    /// Attaches; when this returns, the daemon has switched protocols, and nothing printed from now on is missed.
    pub(super) async fn attach_streams(&self, id: &ContainerId) -> EngineResult<AttachedStreams> {
        let about = CallContext { operation: "attaching to a container", subject: id.as_str() };
        let options = query::AttachContainerOptionsBuilder::default()
            .stream(true)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            // What was printed before comes from the log: asking for it here leaves a gap between the two.
            .logs(false)
            .build();
        let attached =
            self.bounded_call(about, CALL_TIMEOUT, self.client.attach_container(id.as_str(), Some(options))).await?;
        Ok(AttachedStreams {
            stdin: attached.input,
            output: self.output_chunks("reading a container's output", id, attached.output),
        })
    }

    /// The log from its start. A container that is not there is the stream's first item.
    pub(super) fn log_stream(&self, id: &ContainerId, follow: bool) -> BoxStream<'static, EngineResult<OutputChunk>> {
        let options = query::LogsOptionsBuilder::default().follow(follow).stdout(true).stderr(true).tail("all").build();
        self.output_chunks("reading a container's log", id, self.client.logs(id.as_str(), Some(options)))
    }

    /// A path of a container as a tar. What the daemon has to say against it is said before any of it comes.
    pub(super) async fn download_archive(&self, id: &ContainerId, path: &str) -> EngineResult<EngineStream<Bytes>> {
        const OPERATION: &str = "downloading files";
        let about = CallContext { operation: OPERATION, subject: id.as_str() };
        let options = query::DownloadFromContainerOptionsBuilder::default().path(path).build();
        let mut pieces = Box::pin(self.client.download_from_container(id.as_str(), Some(options)));
        let late = || EngineError::TimedOut { operation: OPERATION, after: CALL_TIMEOUT };
        let first = timeout(CALL_TIMEOUT, pieces.next()).await.map_err(|_| late())?;
        let first = first.ok_or_else(|| error_mapping::empty_answer(about, &self.endpoint))?;
        let first = first.map_err(|error| error_mapping::from_bollard(error, about, &self.endpoint))?;
        let (id, endpoint) = (id.clone(), self.endpoint.clone());
        let rest = futures::stream::unfold(Some(pieces), move |pieces| {
            let (id, endpoint) = (id.clone(), endpoint.clone());
            async move {
                let mut pieces = pieces?;
                let about = CallContext { operation: OPERATION, subject: id.as_str() };
                match timeout(CALL_TIMEOUT, pieces.next()).await {
                    Ok(None) => None,
                    Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
                    // Nothing comes after an error.
                    Ok(Some(Err(error))) => Some((Err(error_mapping::from_bollard(error, about, &endpoint)), None)),
                    Err(_) => Some((Err(late()), None)),
                }
            }
        });
        Ok(Box::pin(futures::stream::once(std::future::ready(Ok(first))).chain(rest)))
    }

    fn output_chunks(
        &self,
        operation: &'static str,
        id: &ContainerId,
        items: impl futures::Stream<Item = Result<LogOutput, Error>> + Send + 'static,
    ) -> BoxStream<'static, EngineResult<OutputChunk>> {
        let (id, endpoint) = (id.clone(), self.endpoint.clone());
        let chunks = items.filter_map(move |item| {
            std::future::ready(match item {
                Ok(LogOutput::StdOut { message }) => Some(Ok(OutputChunk::Stdout(message))),
                Ok(LogOutput::StdErr { message }) => Some(Ok(OutputChunk::Stderr(message))),
                // Some engines echo what was written.
                Ok(LogOutput::StdIn { .. }) => None,
                Ok(LogOutput::Console { .. }) => Some(Err(EngineError::Failed {
                    operation,
                    source: "the stream is not framed, as if the container had a terminal".into(),
                })),
                Err(error) => Some(Err(error_mapping::from_bollard(
                    error,
                    CallContext { operation, subject: id.as_str() },
                    &endpoint,
                ))),
            })
        });
        Box::pin(chunks)
    }
}
