//! Start and removal of containers, which fail under load and succeed a little later.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use bollard::query_parameters as query;

use super::client::{DockerEngine, LONG_TIMEOUT};
use crate::engine::{EngineError, EngineResult};
use crate::ids::ContainerId;

/// The timeout of one start. With many starts waiting in the daemon, one has taken 20 s.
const START_TIMEOUT: Duration = Duration::from_secs(120);

impl DockerEngine {
    /// Starts a container when a permit is free, and retries transient errors. It never starts one twice: after an error that
    /// leaves it open whether the container started, its state decides.
    pub(super) async fn start_container(&self, id: &ContainerId) -> EngineResult<()> {
        let _permit = self.start_permits.acquire().await.expect("the semaphore is never closed");
        let operation = "starting a container";
        let once = || async {
            let call = self.client.start_container(id.as_str(), None::<query::StartContainerOptions>);
            let error = match self.call(operation, id.as_str(), START_TIMEOUT, call).await {
                Err(error) if error.is_retryable() => error,
                other => return other,
            };
            match self.inspect_container(id).await {
                Ok(Some(state)) if !state.never_started && state.error.is_empty() => Ok(()),
                Ok(None) => Err(EngineError::NotFound { operation, subject: id.to_string() }),
                _ => Err(error),
            }
        };
        retry_with_backoff(once, EngineError::is_retryable).await
    }

    /// Removes a container with its anonymous volumes; named volumes stay.
    pub(super) async fn remove_container(&self, id: &ContainerId) -> EngineResult<()> {
        let once = || async {
            let options = query::RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            let call = self.client.remove_container(id.as_str(), Some(options));
            match self.call("removing a container", id.as_str(), LONG_TIMEOUT, call).await {
                Err(EngineError::NotFound { .. }) => Ok(()),
                Err(EngineError::Refused { status: 409, message, .. }) if message.contains("already in progress") => {
                    Ok(())
                }
                other => other,
            }
        };
        retry_with_backoff(once, EngineError::is_retryable).await
    }
}

/// Calls `once` up to six times within a few seconds, as long as `when` accepts the error.
pub(super) async fn retry_with_backoff<T, F>(once: impl FnMut() -> F, when: fn(&EngineError) -> bool) -> EngineResult<T>
where
    F: Future<Output = EngineResult<T>>,
{
    let delays = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(5)
        .with_jitter();
    once.retry(delays)
        .when(when)
        .notify(|error, delay| tracing::debug!(error = error as &dyn std::error::Error, ?delay, "retrying"))
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
            EngineError::is_retryable,
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
