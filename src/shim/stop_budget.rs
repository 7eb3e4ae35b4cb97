//! By when what has to be over, once the sandbox is to stop.
//!
//! A CI runner gives a stop ten seconds, and then kills. So the time from the SIGTERM on is divided: half of it is the
//! agent's, and what the shim does for a story that runs on (examining, committing); then comes the salvage, then the bundle;
//! what is left is for the result and the last word. Work that is not over by its share is cut off: git is killed, anything
//! else is left behind. What could not be committed is said to be unsaved, and the depot sees to it.
//!
//! Made by `serve.rs`; kept by `git.rs` for its processes and by [`StopDeadline::run_blocking`] for all other blocking work.
//! Must not: stop anything itself.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The least time that a stop is divided from: git needs some of it, and the host waits longer than it says.
const MIN_STOP_TIME: Duration = Duration::from_secs(3);
/// What a killed git may take to be gone before the work around it is left behind.
const KILL_GRACE: Duration = Duration::from_millis(100);

/// How much of a stop's time, in percent, has passed when something must be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StopPhase {
    /// What belongs to a story that was going on.
    Work = 50,
    /// Keeping what it left.
    Salvage = 75,
    /// The bundle.
    Bundle = 90,
}

/// The sandbox's stop, which may come at any time.
#[derive(Debug, Clone)]
pub struct StopBudget {
    token: CancellationToken,
    started_at: Arc<OnceLock<Instant>>,
    total: Duration,
}

impl StopBudget {
    /// A stop that begins when `token` is cancelled, and has `grace`.
    pub fn new(token: CancellationToken, grace: Duration) -> Self {
        Self { token, started_at: Arc::default(), total: grace.max(MIN_STOP_TIME) }
    }

    /// When it began; none where it has not.
    pub fn started_at(&self) -> Option<Instant> {
        self.token.is_cancelled().then(|| *self.started_at.get_or_init(Instant::now))
    }

    /// Notes the time of the stop when it comes.
    pub async fn record_start(self) {
        self.token.cancelled().await;
        self.started_at();
    }

    /// The end of a share.
    pub fn deadline(&self, share: StopPhase) -> StopDeadline {
        StopDeadline { budget: self.clone(), phase: share }
    }
}

/// The end of a share of a stop's time.
#[derive(Debug, Clone)]
pub struct StopDeadline {
    budget: StopBudget,
    phase: StopPhase,
}

impl StopDeadline {
    /// When it is; none as long as nobody stops the sandbox.
    pub fn instant(&self) -> Option<Instant> {
        self.budget.started_at().map(|began| began + self.budget.total * self.phase as u32 / 100)
    }

    /// Whether it is over.
    pub fn has_passed(&self) -> bool {
        self.instant().is_some_and(|at| at <= Instant::now())
    }

    /// Runs blocking work beside the runtime, which goes on serving the socket. None where the deadline came first: the work
    /// is left behind then, and its git processes end by themselves.
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
        let halt = StopBudget::new(token.clone(), Duration::ZERO);
        let deadline = halt.deadline(StopPhase::Work);
        assert_eq!(deadline.run_blocking(|| 1).await, Some(1));
        assert!(deadline.instant().is_none() && !deadline.has_passed());
        token.cancel();
        assert_eq!(deadline.run_blocking(|| 2).await, Some(2), "there is still time");
        let (release, held) = std::sync::mpsc::channel::<()>();
        assert_eq!(deadline.run_blocking(move || held.recv()).await, None);
        drop(release);
        assert!(deadline.has_passed());
        assert!(!halt.deadline(StopPhase::Bundle).has_passed(), "the later shares are still to come");
    }
}
