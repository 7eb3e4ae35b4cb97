//! Freezing and thawing. Engines differ in what they answer where nothing is to be done (409, 304, 500), so what the container
//! is decides, and not the answer. Used by `docker.rs`.

use super::super::{CALL_TIMEOUT, EngineError, EngineResult};
use super::DockerEngine;
use super::error_mapping::CallContext;
use crate::ids::ContainerId;

impl DockerEngine {
    pub(super) async fn pause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = CallContext { operation: "pausing a container", subject: id.as_str() };
        let answer = self.bounded_call(about, CALL_TIMEOUT, self.client.pause_container(id.as_str())).await;
        self.ignore_error_if_in_state(about, id, true, answer).await
    }

    pub(super) async fn unpause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = CallContext { operation: "unpausing a container", subject: id.as_str() };
        let answer = self.bounded_call(about, CALL_TIMEOUT, self.client.unpause_container(id.as_str())).await;
        self.ignore_error_if_in_state(about, id, false, answer).await
    }

    /// An error is none where the container runs and is as it was to be; where it does not run, that is the error.
    async fn ignore_error_if_in_state(
        &self,
        about: CallContext<'_>,
        id: &ContainerId,
        paused: bool,
        answer: EngineResult<()>,
    ) -> EngineResult<()> {
        let Err(error @ (EngineError::Refused { .. } | EngineError::Failed { .. })) = answer else { return answer };
        match self.inspect_container(id).await {
            Ok(Some(seen)) if seen.running && seen.paused == paused => Ok(()),
            Ok(Some(seen)) if !seen.running => {
                let message = "the container does not run".to_owned();
                Err(EngineError::Refused { operation: about.operation, status: 409, message })
            }
            _ => Err(error),
        }
    }
}
