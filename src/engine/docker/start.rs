//! Start and removal: the two that fail for a while under load and work a little later.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use bollard::query_parameters as query;

use super::super::{EngineError, EngineResult};
use super::fault::About;
use super::{Docker, LONG_TIMEOUT};
use crate::ids::ContainerId;

/// How long one start may take. With many waiting in the daemon the last has been seen to take 20 s.
const START_TIMEOUT: Duration = Duration::from_secs(120);

impl Docker {
    /// Starts it, in turn, with a few tries where the daemon itself fails. A container is never started twice: after a
    /// failure that leaves it open, its state decides.
    pub(super) async fn start_container(&self, id: &ContainerId) -> EngineResult<()> {
        let _turn = self.starts.acquire().await.expect("the semaphore is never closed");
        let about = About { operation: "starting a container", subject: id.as_str() };
        let once = || async {
            let call = self.client.start_container(id.as_str(), None::<query::StartContainerOptions>);
            let error = match self.call(about, START_TIMEOUT, call).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                error if passing(error) => {}
                _ => return Err(error),
            }
            match self.inspect_container(id).await {
                Ok(Some(state)) if !state.never_started && state.error.is_empty() => Ok(()),
                Ok(None) => Err(EngineError::NotFound { operation: about.operation, subject: id.to_string() }),
                _ => Err(error),
            }
        };
        retried(once, passing).await
    }

    /// Removes it with its anonymous volumes; the named ones stay.
    pub(super) async fn remove_container(&self, id: &ContainerId) -> EngineResult<()> {
        let about = About { operation: "removing a container", subject: id.as_str() };
        let once = || async {
            let options = query::RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match self.call(about, LONG_TIMEOUT, self.client.remove_container(id.as_str(), Some(options))).await {
                Err(EngineError::NotFound { .. }) => Ok(()),
                Err(EngineError::Refused { status: 409, message, .. }) if message.contains("already in progress") => {
                    Ok(())
                }
                other => other,
            }
        };
        retried(once, passing).await
    }
}

/// The failures that pass: a connection may break also where the daemon lives on.
fn passing(error: &EngineError) -> bool {
    error.retryable()
}

/// A few tries within some seconds, while it is worth it.
pub(super) async fn retried<T, F>(once: impl FnMut() -> F, when: fn(&EngineError) -> bool) -> EngineResult<T>
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

    async fn tries(error: fn() -> EngineError) -> (u32, bool) {
        let tries = AtomicU32::new(0);
        let answer = retried(
            || async { if tries.fetch_add(1, Ordering::Relaxed) < 2 { Err(error()) } else { Ok(()) } },
            passing,
        )
        .await;
        (tries.load(Ordering::Relaxed), answer.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_pass_is_tried_again() {
        let failed = || EngineError::Failed { operation: "x", source: "y".into() };
        assert_eq!(tries(failed).await, (3, true));
        let broken = || EngineError::Unreachable { endpoint: "x".to_owned(), source: "y".into() };
        assert_eq!(tries(broken).await, (3, true));
        let refused = || EngineError::Refused { operation: "x", status: 400, message: String::new() };
        assert_eq!(tries(refused).await, (1, false));
        assert_eq!(tries(|| EngineError::DiskFull { operation: "x" }).await, (1, false));
    }
}
