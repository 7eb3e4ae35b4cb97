//! Small helpers around tokio's runtime and clock.

use std::time::Duration;

use tokio::time::Instant;

/// Runs `work`, which blocks for a moment. On a current-thread runtime nothing else could run in the meantime anyway.
pub(super) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}

/// Sleeps until `at`; forever if there is no deadline.
pub(super) async fn sleep_until_deadline(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The machine's time: the time since the swarm began during which an orchestrator ran. A sandbox whose orchestrator was away
/// keeps its remaining time, and steps of the wall clock have no effect.
pub(super) struct SwarmClock {
    started_at: Instant,
    offset: Duration,
}

impl SwarmClock {
    /// A clock that shows `offset` now.
    pub fn starting_at(offset: Duration) -> Self {
        Self { started_at: Instant::now(), offset }
    }

    pub fn now(&self) -> Duration {
        self.offset + self.started_at.elapsed()
    }

    pub fn instant_at(&self, time: Duration) -> Instant {
        self.started_at + time.saturating_sub(self.offset)
    }
}
