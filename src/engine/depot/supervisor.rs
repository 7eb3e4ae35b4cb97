//! Keeps a depot alive: starts it again when its stream ended, and repeats what was asked of the one that died.
//!
//! - One start at a time, for all who find it dead; those who waited for one that failed get its failure.
//! - What can be repeated is repeated once. A request that kills each depot it is asked of fails on the second.
//! - [`MAX_RESTARTS`] starts in a row without one answer are the last: what is wrong is not going to pass.
//! - An engine that does not answer is no failure of the depot, and costs it none of these.
//! - After [`close`](Keeper::close) nothing is started.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::super::{Engine, EngineError, EngineResult};
use super::DepotSpec;
use super::connection::DepotConnection;
use super::start::{self, RunningDepot, ShimInstall};

/// How often it is started again with no answer in between.
const MAX_RESTARTS: u32 = 5;
/// What callers hear once it was closed.
const CLOSED_REASON: &str = "it was closed";

/// The depot that there is, and what it takes to make another.
pub(super) struct DepotSupervisor {
    engine: Arc<dyn Engine>,
    spec: DepotSpec,
    current: RwLock<RunningDepot>,
    /// Held by whoever starts it again.
    restart_lock: Mutex<RestartOutcome>,
    /// How many tries to start it again have come to an end.
    finished_restarts: AtomicU64,
    /// How often it was started since the last answer.
    restarts_since_answer: AtomicU32,
    closed: CancellationToken,
}

/// What came of the last try, as far as it matters to those who waited for it.
#[derive(Default)]
struct RestartOutcome {
    failure: Option<RestartFailure>,
    /// A try was begun and not ended: a container may be left of it.
    interrupted: bool,
}

/// A failure that many are told of.
enum RestartFailure {
    Unreachable { endpoint: String, message: String },
    DiskFull,
    Other(String),
    GivenUp(String),
}

impl DepotSupervisor {
    pub(super) fn new(engine: Arc<dyn Engine>, spec: DepotSpec, running: RunningDepot) -> Self {
        Self {
            engine,
            spec,
            current: RwLock::new(running),
            restart_lock: Mutex::default(),
            finished_restarts: AtomicU64::new(0),
            restarts_since_answer: AtomicU32::new(0),
            closed: CancellationToken::new(),
        }
    }

    /// The depot as it is known, alive or not.
    pub(super) fn running_depot(&self) -> RunningDepot {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks; where the depot dies of it or during it, asks another one once more, and says that it is the second time.
    pub(super) async fn request_with_retry<T, Asked>(
        &self,
        operation: &'static str,
        ask: impl Fn(Arc<DepotConnection>, bool) -> Asked,
    ) -> EngineResult<T>
    where
        Asked: Future<Output = EngineResult<T>>,
    {
        let (mut again, mut tries) = (false, self.finished_restarts());
        loop {
            let link = self.live_connection_since(operation, tries).await?;
            tries = self.finished_restarts();
            let answer = ask(Arc::clone(&link), again).await;
            if again || !depot_died(&link, &answer) {
                return self.record_answer(answer);
            }
            // Those who were asking when it died get one new depot, or one failure, together.
            again = true;
        }
    }

    /// Asks what cannot be asked twice. Where the depot dies, the next one is there before the caller hears of it.
    pub(super) async fn request_once<T, Asked>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(Arc<DepotConnection>) -> Asked,
    ) -> EngineResult<T>
    where
        Asked: Future<Output = EngineResult<T>>,
    {
        let link = self.live_connection(operation).await?;
        let tries = self.finished_restarts();
        let answer = ask(Arc::clone(&link)).await;
        if depot_died(&link, &answer) {
            self.live_connection_since(operation, tries).await?;
        }
        self.record_answer(answer)
    }

    /// A link that was alive a moment ago.
    pub(super) async fn live_connection(&self, operation: &'static str) -> EngineResult<Arc<DepotConnection>> {
        self.live_connection_since(operation, self.finished_restarts()).await
    }

    fn finished_restarts(&self) -> u64 {
        self.finished_restarts.load(Ordering::Acquire)
    }

    /// The same for one who knows of so many tries: a later one that failed is also that caller's failure.
    async fn live_connection_since(&self, operation: &'static str, tries: u64) -> EngineResult<Arc<DepotConnection>> {
        let link = self.running_depot().connection;
        if !link.is_closed() {
            return Ok(link);
        }
        let started = async {
            let mut outcome = self.restart_lock.lock().await;
            let dead = self.running_depot();
            if !dead.connection.is_closed() {
                return Ok(dead.connection);
            }
            if self.finished_restarts() == tries || outcome.failure.is_none() {
                outcome.interrupted = true;
                let before = outcome.failure.take();
                let failure = self.restart(&dead, before).await.err();
                *outcome = RestartOutcome { failure, interrupted: false };
                self.finished_restarts.fetch_add(1, Ordering::Release);
            }
            match &outcome.failure {
                Some(failure) => Err(failure.to_engine_error(operation)),
                None => Ok(self.running_depot().connection),
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(RestartFailure::Other(CLOSED_REASON.to_owned()).to_engine_error(operation)),
            started = started => started,
        }
    }

    /// `failure` is what came of the try before, where it failed.
    async fn restart(&self, dead: &RunningDepot, failure: Option<RestartFailure>) -> Result<(), RestartFailure> {
        self.engine.ping().await.map_err(|error| RestartFailure::from_engine_error(error, None))?;
        let why = dead.connection.close_reason();
        let before = self.restarts_since_answer.load(Ordering::Acquire);
        if before >= MAX_RESTARTS {
            let last = match failure {
                Some(RestartFailure::GivenUp(said)) => return Err(RestartFailure::GivenUp(said)),
                Some(RestartFailure::Other(said)) => said,
                _ => why,
            };
            return Err(RestartFailure::GivenUp(format!(
                "it was started again {before} times and never answered: {last}"
            )));
        }
        tracing::warn!(container = %dead.container.short(), "the depot is started again: {why}");
        // The first at once.
        if let Some(pause) = before.checked_sub(1).and_then(|before| restart_delays().nth(before as usize)) {
            tokio::time::sleep(pause).await;
        }
        let started = async {
            // A container whose stream broke may be running still, and has the name.
            self.engine.remove(&dead.container).await?;
            start::start_depot(&self.engine, &self.spec, ShimInstall::IfMissing).await
        };
        let started = started.await.map_err(|error| RestartFailure::from_engine_error(error, Some(&why)));
        if !matches!(started, Err(RestartFailure::Unreachable { .. })) {
            self.restarts_since_answer.fetch_add(1, Ordering::AcqRel);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = started?;
        Ok(())
    }

    /// Ends it for good; the volumes stay.
    pub(super) async fn close(&self) -> EngineResult<()> {
        self.closed.cancel();
        // The stream first: removal can hang on one that nobody reads.
        self.running_depot().connection.close(CLOSED_REASON);
        // Whoever was starting it has let go.
        let outcome = self.restart_lock.lock().await;
        let running = self.running_depot();
        running.connection.close(CLOSED_REASON);
        self.engine.remove(&running.container).await?;
        if outcome.interrupted { start::remove_stale_depots(&*self.engine, self.spec.swarm).await } else { Ok(()) }
    }

    /// An answer, good or bad, of a depot that works.
    fn record_answer<T>(&self, answer: EngineResult<T>) -> EngineResult<T> {
        if matches!(answer, Ok(_) | Err(EngineError::Depot { kind: Some(_), .. })) {
            self.restarts_since_answer.store(0, Ordering::Release);
        }
        answer
    }
}

/// Whether this is no answer because the depot died.
fn depot_died<T>(link: &DepotConnection, answer: &EngineResult<T>) -> bool {
    matches!(answer, Err(EngineError::Depot { kind: None, .. })) && link.is_closed()
}

fn restart_delays() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(MAX_RESTARTS as usize)
        .build()
}

impl RestartFailure {
    /// `why` is what the depot died of before.
    fn from_engine_error(error: EngineError, why: Option<&str>) -> Self {
        match error {
            EngineError::Unreachable { endpoint, source } => {
                Self::Unreachable { endpoint, message: source.to_string() }
            }
            EngineError::DiskFull { .. } => Self::DiskFull,
            other => {
                let cause = std::error::Error::source(&other).map(|cause| format!(": {cause}")).unwrap_or_default();
                let why = why.map(|why| format!("{why}; ")).unwrap_or_default();
                Self::Other(format!("{why}it cannot be started again: {other}{cause}"))
            }
        }
    }

    fn to_engine_error(&self, operation: &'static str) -> EngineError {
        match self {
            Self::Unreachable { endpoint, message: words } => {
                EngineError::Unreachable { endpoint: endpoint.clone(), source: words.clone().into() }
            }
            Self::DiskFull => EngineError::DiskFull { operation },
            Self::Other(message) | Self::GivenUp(message) => {
                EngineError::Depot { operation, kind: None, message: message.clone() }
            }
        }
    }
}
