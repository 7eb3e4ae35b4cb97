//! Attached streams and logs as tagged chunks, and archives as bytes. A chunk ends anywhere, even within a character.

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters as query;
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::timeout;

use super::client::DockerEngine;
use super::error_mapping::{self, CallContext};
use crate::engine::{AttachedStreams, CALL_TIMEOUT, EngineError, EngineResult, EngineStream, OutputChunk};
use crate::ids::ContainerId;

impl DockerEngine {
    /// Attaches. When this returns, the daemon has switched protocols, and no later output is missed.
    pub(super) async fn attach_streams(&self, id: &ContainerId) -> EngineResult<AttachedStreams> {
        let options = query::AttachContainerOptionsBuilder::default()
            .stream(true)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            // Earlier output comes from the log: requesting it here leaves a gap between the two.
            .logs(false)
            .build();
        let call = self.client.attach_container(id.as_str(), Some(options));
        let attached = self.call("attaching to a container", id.as_str(), CALL_TIMEOUT, call).await?;
        Ok(AttachedStreams {
            stdin: attached.input,
            output: self.output_chunks("reading a container's output", id, attached.output),
        })
    }

    /// The log from its start. If the container is missing, the error is the stream's first item.
    pub(super) async fn log_stream(&self, id: &ContainerId, follow: bool) -> EngineResult<EngineStream<OutputChunk>> {
        let options = query::LogsOptionsBuilder::default().follow(follow).stdout(true).stderr(true).tail("all").build();
        Ok(self.output_chunks("reading a container's log", id, self.client.logs(id.as_str(), Some(options))))
    }

    /// A path of a container as a tar. An error of the daemon is returned before the stream starts.
    pub(super) async fn download_archive(&self, id: &ContainerId, path: &str) -> EngineResult<EngineStream<Bytes>> {
        const OPERATION: &str = "downloading files";
        let context = CallContext { operation: OPERATION, subject: id.as_str() };
        let options = query::DownloadFromContainerOptionsBuilder::default().path(path).build();
        let mut chunks = Box::pin(self.client.download_from_container(id.as_str(), Some(options)));
        let timed_out = || EngineError::TimedOut { operation: OPERATION, after: CALL_TIMEOUT };
        let first = timeout(CALL_TIMEOUT, chunks.next()).await.map_err(|_| timed_out())?;
        let first = first.ok_or_else(|| error_mapping::empty_answer(context, &self.endpoint))?;
        let first = first.map_err(|error| self.map_error(OPERATION, id.as_str(), error))?;
        let (engine, id) = (self.clone(), id.clone());
        let rest = futures::stream::unfold(Some(chunks), move |chunks| {
            let (engine, id) = (engine.clone(), id.clone());
            async move {
                let mut chunks = chunks?;
                match timeout(CALL_TIMEOUT, chunks.next()).await {
                    Ok(None) => None,
                    Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(chunks))),
                    // The stream ends after an error.
                    Ok(Some(Err(error))) => Some((Err(engine.map_error(OPERATION, id.as_str(), error)), None)),
                    Err(_) => Some((Err(timed_out()), None)),
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
    ) -> EngineStream<OutputChunk> {
        let (engine, id) = (self.clone(), id.clone());
        let chunks = items.filter_map(move |item| {
            std::future::ready(match item {
                Ok(LogOutput::StdOut { message }) => Some(Ok(OutputChunk::Stdout(message))),
                Ok(LogOutput::StdErr { message }) => Some(Ok(OutputChunk::Stderr(message))),
                // Some engines echo the input.
                Ok(LogOutput::StdIn { .. }) => None,
                Ok(LogOutput::Console { .. }) => Some(Err(EngineError::Failed {
                    operation,
                    source: "the stream is not framed, as if the container had a terminal".into(),
                })),
                Err(error) => Some(Err(engine.map_error(operation, id.as_str(), error))),
            })
        });
        Box::pin(chunks)
    }
}
