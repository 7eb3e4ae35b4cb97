//! Divides the time between a stop of the sandbox and its kill.
//!
//! A CI runner kills ten seconds after a stop. So the time since SIGTERM is divided: the first half is for the agent and for
//! examining and committing its work, then comes the salvage, then the bundle. The rest is for the result and the completion. Work
//! that exceeds its share is cut off: git is killed, anything else is abandoned. Uncommitted work is reported as unsaved, and the
//! depot salvages it.
//!
//! Made by `setup.rs`. `git.rs` applies it to its processes, and [`StopDeadline::run_blocking`] to all other blocking work. Must not:
//! stop anything itself.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The minimum time of a stop. Git needs some time, and the host waits longer than it announces.
const MIN_STOP_TIME: Duration = Duration::from_secs(3);
/// How long a killed git may take to end before the work around it is abandoned.
const KILL_GRACE: Duration = Duration::from_millis(100);

/// When work must be over, in percent of the stop's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StopPhase {
    /// The running story.
    Work = 50,
    Salvage = 75,
    Bundle = 90,
}

#[derive(Debug, Clone)]
pub struct StopBudget {
    token: CancellationToken,
    started_at: Arc<OnceLock<Instant>>,
    total: Duration,
}

impl StopBudget {
    /// A stop that starts when `token` is cancelled, and takes `grace`.
    pub fn new(token: CancellationToken, grace: Duration) -> Self {
        Self { token, started_at: Arc::default(), total: grace.max(MIN_STOP_TIME) }
    }

    /// When the stop started, if it did.
    pub fn started_at(&self) -> Option<Instant> {
        self.token.is_cancelled().then(|| *self.started_at.get_or_init(Instant::now))
    }

    /// Waits for the stop, and records its time.
    pub async fn record_start(self) {
        self.token.cancelled().await;
        self.started_at();
    }

    pub fn deadline(&self, phase: StopPhase) -> StopDeadline {
        StopDeadline { budget: self.clone(), phase }
    }

    /// [`StopDeadline::run_blocking`] until the end of a phase.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        phase: StopPhase,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.deadline(phase).run_blocking(work).await
    }
}

/// The end of a phase.
#[derive(Debug, Clone)]
pub struct StopDeadline {
    budget: StopBudget,
    phase: StopPhase,
}

impl StopDeadline {
    /// The deadline, once the sandbox is being stopped.
    pub fn instant(&self) -> Option<Instant> {
        self.budget.started_at().map(|started| started + self.budget.total * self.phase as u32 / 100)
    }

    pub fn has_passed(&self) -> bool {
        self.instant().is_some_and(|at| at <= Instant::now())
    }

    /// Runs blocking work beside the runtime, which keeps serving the socket. Returns `None` at the deadline. The work is then
    /// abandoned, and its git processes end by themselves.
    pub async fn run_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let reached = async {
            self.budget.token.cancelled().await;
            let at = self.instant().unwrap_or_else(Instant::now) + KILL_GRACE;
            tokio::time::sleep(at.saturating_duration_since(Instant::now())).await;
        };
        tokio::select! {
            biased;
            done = tokio::task::spawn_blocking(work) => Some(done.expect("blocking work does not panic")),
            () = reached => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn run_blocking_abandons_work_at_the_stop_deadline() {
        let token = CancellationToken::new();
        let budget = StopBudget::new(token.clone(), Duration::ZERO);
        let deadline = budget.deadline(StopPhase::Work);
        assert_eq!(deadline.run_blocking(|| 1).await, Some(1));
        assert!(deadline.instant().is_none() && !deadline.has_passed());
        token.cancel();
        assert_eq!(deadline.run_blocking(|| 2).await, Some(2), "there is still time");
        let (release, held) = std::sync::mpsc::channel::<()>();
        assert_eq!(deadline.run_blocking(move || held.recv()).await, None);
        drop(release);
        assert!(deadline.has_passed());
        assert!(!budget.deadline(StopPhase::Bundle).has_passed(), "the later phases are still to come");
    }
}
