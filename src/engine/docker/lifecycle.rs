//! Start and removal: the two that fail for a while under load and work a little later.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use bollard::query_parameters as query;

use super::super::{EngineError, EngineResult};
use super::error_mapping::CallContext;
use super::{DockerEngine, LONG_TIMEOUT};
use crate::ids::ContainerId;

/// How long one start may take. With many waiting in the daemon the last has been seen to take 20 s.
const START_TIMEOUT: Duration = Duration::from_secs(120);

impl DockerEngine {
    /// Starts it, in turn, with a few tries where the daemon itself fails. A container is never started twice: after a
    /// failure that leaves it open, its state decides.
    pub(super) async fn start_container(&self, id: &ContainerId) -> EngineResult<()> {
        let _turn = self.start_permits.acquire().await.expect("the semaphore is never closed");
        let about = CallContext { operation: "starting a container", subject: id.as_str() };
        let once = || async {
            let call = self.client.start_container(id.as_str(), None::<query::StartContainerOptions>);
            let error = match self.bounded_call(about, START_TIMEOUT, call).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                error if is_transient(error) => {}
                _ => return Err(error),
            }
            match self.inspect_container(id).await {
                Ok(Some(state)) if !state.never_started && state.error.is_empty() => Ok(()),
                Ok(None) => Err(EngineError::NotFound { operation: about.operation, subject: id.to_string() }),
                _ => Err(error),
            }
        };
        retry_with_backoff(once, is_transient).await
    }

    /// Removes it with its anonymous volumes; the named ones stay.
    pub(super) async fn remove_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = CallContext { operation: "removing a container", subject: id.as_str() };
        let once = || async {
            let options = query::RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match self.bounded_call(about, LONG_TIMEOUT, self.client.remove_container(id.as_str(), Some(options))).await
            {
                Err(EngineError::NotFound { .. }) => Ok(()),
                Err(EngineError::Refused { status: 409, message, .. }) if message.contains("already in progress") => {
                    Ok(())
                }
                other => other,
            }
        };
        retry_with_backoff(once, is_transient).await
    }
}

/// The failures that pass: a connection may break also where the daemon lives on.
fn is_transient(error: &EngineError) -> bool {
    error.is_retryable()
}

/// A few tries within some seconds, while it is worth it.
pub(super) async fn retry_with_backoff<T, F>(once: impl FnMut() -> F, when: fn(&EngineError) -> bool) -> EngineResult<T>
where
    F: Future<Output = EngineResult<T>>,
{
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(5)
        .with_jitter();
    once.retry(pauses)
        .when(when)
        .notify(|error, pause| tracing::debug!(error = error as &dyn std::error::Error, ?pause, "trying again"))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicU32, Ordering};

    async fn count_tries(error: fn() -> EngineError) -> (u32, bool) {
        let tries = AtomicU32::new(0);
        let answer = retry_with_backoff(
            || async { if tries.fetch_add(1, Ordering::Relaxed) < 2 { Err(error()) } else { Ok(()) } },
            is_transient,
        )
        .await;
        (tries.load(Ordering::Relaxed), answer.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn only_transient_errors_are_retried() {
        let failed = || EngineError::Failed { operation: "x", source: "y".into() };
        assert_eq!(count_tries(failed).await, (3, true));
        let broken = || EngineError::Unreachable { endpoint: "x".to_owned(), source: "y".into() };
        assert_eq!(count_tries(broken).await, (3, true));
        let refused = || EngineError::Refused { operation: "x", status: 400, message: String::new() };
        assert_eq!(count_tries(refused).await, (1, false));
        assert_eq!(count_tries(|| EngineError::DiskFull { operation: "x" }).await, (1, false));
    }
}
