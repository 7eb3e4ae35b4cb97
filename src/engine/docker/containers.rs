//! Calls on one container, except start and removal (`lifecycle.rs`) and its streams (`streams.rs`).

use bollard::errors::Error;
use bollard::models::ContainerStateStatusEnum;
use bollard::query_parameters as query;
use bytes::Bytes;
use futures::StreamExt;

use super::client::{DockerEngine, LONG_TIMEOUT, not_found_as_none};
use super::create::create_body;
use super::error_mapping::{self, CallContext};
use crate::engine::{CALL_TIMEOUT, ContainerInspection, ContainerSpec, EngineError, EngineResult, Signal};
use crate::ids::ContainerId;

const PAUSING: &str = "pausing a container";
const UNPAUSING: &str = "unpausing a container";

impl DockerEngine {
    pub(super) async fn create_container(&self, spec: &ContainerSpec) -> EngineResult<ContainerId> {
        let operation = "creating a container";
        let options = query::CreateContainerOptionsBuilder::default().name(&spec.name).build();
        let body = create_body(spec, self.volume_subpath);
        let call = self.client.create_container(Some(options), body);
        let created = self.call(operation, &spec.image, CALL_TIMEOUT, call).await?;
        for warning in &created.warnings {
            tracing::warn!(container = spec.name, "the engine warns: {warning}");
        }
        created.id.parse().map_err(|error| EngineError::Failed { operation, source: Box::new(error) })
    }

    pub(super) async fn wait_for_exit(&self, id: &ContainerId) -> EngineResult<i64> {
        let context = CallContext { operation: "waiting for a container", subject: id.as_str() };
        let mut answers = Box::pin(self.client.wait_container(id.as_str(), None::<query::WaitContainerOptions>));
        match answers.next().await {
            Some(Ok(answer)) => Ok(answer.status_code),
            // bollard reports every exit code but 0 as an error.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => Ok(code),
            Some(Err(error)) => Err(error_mapping::from_bollard(error, context, &self.endpoint)),
            None => Err(error_mapping::empty_answer(context, &self.endpoint)),
        }
    }

    pub(super) async fn inspect_container(&self, id: &ContainerId) -> EngineResult<Option<ContainerInspection>> {
        let call = self.client.inspect_container(id.as_str(), None);
        let answer = self.call("inspecting a container", id.as_str(), CALL_TIMEOUT, call).await;
        let Some(answer) = not_found_as_none(answer)? else { return Ok(None) };
        let state = answer.state.unwrap_or_default();
        let never_started = state.status == Some(ContainerStateStatusEnum::CREATED);
        let running = state.running.unwrap_or(false);
        Ok(Some(ContainerInspection {
            id: id.clone(),
            never_started,
            running,
            paused: state.paused.unwrap_or(false),
            exit_code: if running || never_started { None } else { state.exit_code },
            oom_killed: state.oom_killed.unwrap_or(false),
            error: state.error.unwrap_or_default(),
        }))
    }

    pub(super) async fn signal_container(&self, id: &ContainerId, signal: Signal) -> EngineResult<()> {
        let name = match signal {
            Signal::Term => "SIGTERM",
            Signal::Kill => "SIGKILL",
        };
        let options = query::KillContainerOptionsBuilder::default().signal(name).build();
        let call = self.client.kill_container(id.as_str(), Some(options));
        match self.call("signalling a container", id.as_str(), CALL_TIMEOUT, call).await {
            // 409: it does not run.
            Err(EngineError::NotFound { .. } | EngineError::Refused { status: 409, .. }) => return Ok(()),
            other => other?,
        }
        if signal == Signal::Kill {
            // A paused container dies when it is unpaused, which not every engine does. An error means that it is not paused.
            let call = self.client.unpause_container(id.as_str());
            let _ = self.call(UNPAUSING, id.as_str(), CALL_TIMEOUT, call).await;
        }
        Ok(())
    }

    pub(super) async fn pause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let answer = self.call(PAUSING, id.as_str(), CALL_TIMEOUT, self.client.pause_container(id.as_str())).await;
        self.accept_if_paused_is(true, PAUSING, id, answer).await
    }

    pub(super) async fn unpause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let answer = self.call(UNPAUSING, id.as_str(), CALL_TIMEOUT, self.client.unpause_container(id.as_str())).await;
        self.accept_if_paused_is(false, UNPAUSING, id, answer).await
    }

    /// Ignores an error if the container runs and is in the wanted state. Engines differ in what they answer if there is nothing to
    /// do (409, 304, 500), so the state decides and not the answer.
    async fn accept_if_paused_is(
        &self,
        paused: bool,
        operation: &'static str,
        id: &ContainerId,
        answer: EngineResult<()>,
    ) -> EngineResult<()> {
        let Err(error @ (EngineError::Refused { .. } | EngineError::Failed { .. })) = answer else { return answer };
        match self.inspect_container(id).await {
            Ok(Some(state)) if state.running && state.paused == paused => Ok(()),
            Ok(Some(state)) if !state.running => {
                let message = "the container does not run".to_owned();
                Err(EngineError::Refused { operation, status: 409, message })
            }
            _ => Err(error),
        }
    }

    pub(super) async fn upload_archive(&self, id: &ContainerId, path: &str, tar: Bytes) -> EngineResult<()> {
        let options = query::UploadToContainerOptionsBuilder::default().path(path).build();
        let call = self.client.upload_to_container(id.as_str(), Some(options), bollard::body_full(tar));
        self.call("uploading files", id.as_str(), LONG_TIMEOUT, call).await
    }

    pub(super) async fn list_processes(&self, id: &ContainerId) -> EngineResult<Vec<String>> {
        let call = self.client.top_processes(id.as_str(), None::<query::TopOptions>);
        let answer = self.call("listing processes", id.as_str(), CALL_TIMEOUT, call).await?;
        let rows = answer.titles.into_iter().chain(answer.processes.into_iter().flatten());
        Ok(rows.map(|row| row.join(" ")).collect())
    }
}
