//! Freezing and thawing. Engines differ in what they answer where nothing is to be done (409, 304, 500), so what the container
//! is decides, and not the answer. Used by `docker.rs`.

use super::super::{CALL_TIMEOUT, EngineError, EngineResult};
use super::Docker;
use super::fault::About;
use crate::ids::ContainerId;

impl Docker {
    pub(super) async fn pause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = About { operation: "pausing a container", subject: id.as_str() };
        let answer = self.call(about, CALL_TIMEOUT, self.client.pause_container(id.as_str())).await;
        self.unless_already(about, id, true, answer).await
    }

    pub(super) async fn unpause_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = About { operation: "unpausing a container", subject: id.as_str() };
        let answer = self.call(about, CALL_TIMEOUT, self.client.unpause_container(id.as_str())).await;
        self.unless_already(about, id, false, answer).await
    }

    /// An error is none where the container runs and is as it was to be; where it does not run, that is the error.
    async fn unless_already(
        &self,
        about: About<'_>,
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
