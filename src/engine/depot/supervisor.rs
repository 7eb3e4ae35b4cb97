//! Keeps a depot alive: restarts it after its stream ended, and repeats the requests of the one that died.
//!
//! - One restart at a time serves all callers. If it fails, all of them get its error.
//! - A repeatable request is repeated once. A request that kills two depots fails.
//! - After [`MAX_RESTARTS`] restarts without an answer, the supervisor gives up.
//! - An unreachable engine is not a failure of the depot, and does not count.
//! - While a request waits and the depot is silent, the depot is probed. One that does not answer although the engine does is frozen,
//!   and is replaced like one that died.
//! - After [`close`](DepotSupervisor::close), nothing is started.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{DepotConnection, depot_error};
use super::spec::DepotSpec;
use super::start::{self, RunningDepot, ShimInstall};
use crate::engine::{Engine, EngineError, EngineResult};
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotRequest;

/// The most restarts without an answer in between.
const MAX_RESTARTS: u32 = 5;
/// How long a depot with pending requests may be silent before it is probed.
pub(super) const PROBE_AFTER: Duration = Duration::from_secs(15);
/// How long it may take to answer a probe, and the engine a ping. Any sign of life in the second half of this counts too.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
const CLOSED_REASON: &str = "it was closed";

/// The running depot, and the spec to start another one.
pub(super) struct DepotSupervisor {
    engine: Arc<dyn Engine>,
    spec: DepotSpec,
    current: RwLock<RunningDepot>,
    /// Held during a restart.
    restart_lock: Mutex<RestartOutcome>,
    /// The number of restarts that have ended, successful or not.
    finished_restarts: AtomicU64,
    /// The number of restarts since the last answer.
    restarts_since_answer: AtomicU32,
    closed: CancellationToken,
    /// Held during a probe: one at a time serves all requests.
    probe_lock: Mutex<()>,
}

/// The outcome of the last restart, for the callers that waited for it.
#[derive(Default)]
struct RestartOutcome {
    failure: Option<RestartFailure>,
    /// Whether the restart was dropped before it ended: its container may be left.
    interrupted: bool,
}

/// A failed restart, which several callers report.
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
            probe_lock: Mutex::new(()),
        }
    }

    /// The last known depot, alive or not.
    pub(super) fn running_depot(&self) -> RunningDepot {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request. If the depot dies during it, sends it once more to the next depot, with `true` for a retry.
    pub(super) async fn request_with_retry<T, Sent>(
        &self,
        operation: &'static str,
        send: impl Fn(Arc<DepotConnection>, bool) -> Sent,
    ) -> EngineResult<T>
    where
        Sent: Future<Output = EngineResult<T>>,
    {
        let (mut is_retry, mut known_restarts) = (false, self.finished_restarts());
        loop {
            let connection = self.live_connection_since(operation, known_restarts).await?;
            // All requests that were pending when the depot died share one restart, or its failure.
            known_restarts = self.finished_restarts();
            let answer = self.watched(&connection, send(Arc::clone(&connection), is_retry)).await;
            if is_retry || !depot_died(&connection, &answer) {
                return self.record_answer(answer);
            }
            is_retry = true;
        }
    }

    /// Sends a request that cannot be repeated. If the depot dies during it, the next one runs before this returns.
    pub(super) async fn request_once<T, Sent>(
        &self,
        operation: &'static str,
        send: impl FnOnce(Arc<DepotConnection>) -> Sent,
    ) -> EngineResult<T>
    where
        Sent: Future<Output = EngineResult<T>>,
    {
        let connection = self.live_connection(operation).await?;
        let known_restarts = self.finished_restarts();
        let answer = self.watched(&connection, send(Arc::clone(&connection))).await;
        if depot_died(&connection, &answer) {
            self.live_connection_since(operation, known_restarts).await?;
        }
        self.record_answer(answer)
    }

    /// Waits for the answer to a request. If the depot turns out to be frozen, the request fails as if the depot had died. If the
    /// engine does not answer either, a timeout is the engine's.
    async fn watched<T>(
        &self,
        connection: &DepotConnection,
        request: impl Future<Output = EngineResult<T>>,
    ) -> EngineResult<T> {
        let answer = tokio::select! {
            biased;
            answer = request => answer,
            never = self.close_if_frozen(connection) => match never {},
        };
        match answer {
            Err(error @ EngineError::TimedOut { .. }) => match self.ping_engine().await {
                Ok(()) => Err(error),
                Err(unreachable) => Err(unreachable),
            },
            other => other,
        }
    }

    /// Probes a silent depot, and closes the connection to one that does not answer. Never ends: the request that waits does.
    async fn close_if_frozen(&self, connection: &DepotConnection) -> Infallible {
        let begun = Instant::now();
        loop {
            let silence = connection.silence().min(begun.elapsed());
            if silence < PROBE_AFTER {
                tokio::time::sleep(PROBE_AFTER - silence).await;
                continue;
            }
            let _probing = self.probe_lock.lock().await;
            // Another request's probe may have had an answer meanwhile.
            if connection.silence() < PROBE_AFTER || connection.is_closed() {
                tokio::time::sleep(PROBE_AFTER).await;
                continue;
            }
            if !self.shows_life(connection).await {
                let silence = connection.silence().as_secs();
                connection.close(&format!("it has been frozen for {silence} s: the engine answers, and it does not"));
            }
        }
    }

    async fn shows_life(&self, connection: &DepotConnection) -> bool {
        const OPERATION: &str = "checking that it answers";
        let probe = async {
            connection
                .send_request(OPERATION, &DepotRequest::MeasureSpace, PROBE_TIMEOUT)
                .await?
                .wait_for_answer()
                .await
        };
        // An error is an answer too, or the end of the connection.
        timeout(PROBE_TIMEOUT, probe).await.is_ok_and(|answer| !matches!(answer, Err(EngineError::TimedOut { .. })))
            // The depot's streams go through the engine: it proves nothing if that does not answer.
            || self.ping_engine().await.is_err()
            || connection.silence() < PROBE_TIMEOUT / 2
    }

    /// # Errors
    /// [Unreachable](EngineError::is_unreachable), also if the engine accepts connections and does not answer.
    async fn ping_engine(&self) -> EngineResult<()> {
        let problem = match timeout(PROBE_TIMEOUT, self.engine.ping()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.is_unreachable() => return Err(error),
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no answer to a ping within {} s", PROBE_TIMEOUT.as_secs()),
        };
        Err(EngineError::Unreachable { endpoint: "the engine".to_owned(), source: problem.into() })
    }

    /// A connection that is open at this moment. Restarts the depot if needed.
    pub(super) async fn live_connection(&self, operation: &'static str) -> EngineResult<Arc<DepotConnection>> {
        self.live_connection_since(operation, self.finished_restarts()).await
    }

    fn finished_restarts(&self) -> u64 {
        self.finished_restarts.load(Ordering::Acquire)
    }

    /// [`live_connection`](Self::live_connection) for a caller that knows of so many restarts: a later one that failed counts as the
    /// caller's own.
    async fn live_connection_since(
        &self,
        operation: &'static str,
        known_restarts: u64,
    ) -> EngineResult<Arc<DepotConnection>> {
        let connection = self.running_depot().connection;
        if !connection.is_closed() {
            return Ok(connection);
        }
        let started = async {
            let mut outcome = self.restart_lock.lock().await;
            let dead = self.running_depot();
            if !dead.connection.is_closed() {
                return Ok(dead.connection);
            }
            if self.finished_restarts() == known_restarts || outcome.failure.is_none() {
                outcome.interrupted = true;
                let previous = outcome.failure.take();
                let failure = self.restart(&dead, previous).await.err();
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
            () = self.closed.cancelled() => Err(depot_error(operation, CLOSED_REASON)),
            started = started => started,
        }
    }

    /// `previous` is the failure of the last restart.
    async fn restart(&self, dead: &RunningDepot, previous: Option<RestartFailure>) -> Result<(), RestartFailure> {
        self.engine.ping().await.map_err(|error| RestartFailure::from_engine_error(error, None))?;
        let reason = dead.connection.close_reason();
        let restarts = self.restarts_since_answer.load(Ordering::Acquire);
        if restarts >= MAX_RESTARTS {
            let last = match previous {
                Some(RestartFailure::GivenUp(message)) => return Err(RestartFailure::GivenUp(message)),
                Some(RestartFailure::Other(message)) => message,
                _ => reason,
            };
            let message = format!("it was restarted {restarts} times and never answered: {last}");
            return Err(RestartFailure::GivenUp(message));
        }
        tracing::warn!(container = %dead.container.short(), "restarting the depot: {reason}");
        // The first restart has no delay.
        if let Some(delay) = restarts.checked_sub(1).and_then(|number| restart_delays().nth(number as usize)) {
            tokio::time::sleep(delay).await;
        }
        let started = async {
            // A container whose stream broke may still run, and has the name.
            self.engine.remove(&dead.container).await?;
            start::start_depot(&self.engine, &self.spec, ShimInstall::IfMissing).await
        };
        let started = started.await.map_err(|error| RestartFailure::from_engine_error(error, Some(&reason)));
        if !matches!(started, Err(RestartFailure::Unreachable { .. })) {
            self.restarts_since_answer.fetch_add(1, Ordering::AcqRel);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = started?;
        Ok(())
    }

    /// Removes the depot for good and keeps the volumes.
    pub(super) async fn close(&self) -> EngineResult<()> {
        self.closed.cancel();
        // The stream first: removal can hang on a stream without a reader.
        self.running_depot().connection.close(CLOSED_REASON);
        // A restart in progress is cancelled and releases the lock.
        let outcome = self.restart_lock.lock().await;
        let running = self.running_depot();
        running.connection.close(CLOSED_REASON);
        self.engine.remove(&running.container).await?;
        if outcome.interrupted { start::remove_stale_depots(&*self.engine, self.spec.swarm).await } else { Ok(()) }
    }

    /// Resets the count of restarts after any answer of the depot.
    fn record_answer<T>(&self, answer: EngineResult<T>) -> EngineResult<T> {
        if matches!(answer, Ok(_) | Err(EngineError::Depot { kind: Some(_), .. })) {
            self.restarts_since_answer.store(0, Ordering::Release);
        }
        answer
    }
}

/// Whether the request failed because the depot died.
fn depot_died<T>(connection: &DepotConnection, answer: &EngineResult<T>) -> bool {
    matches!(answer, Err(EngineError::Depot { kind: None, .. })) && connection.is_closed()
}

fn restart_delays() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(MAX_RESTARTS as usize)
        .build()
}

impl RestartFailure {
    /// `reason` is why the depot died.
    fn from_engine_error(error: EngineError, reason: Option<&str>) -> Self {
        match error {
            EngineError::Unreachable { endpoint, source } => {
                Self::Unreachable { endpoint, message: source.to_string() }
            }
            EngineError::DiskFull { .. } => Self::DiskFull,
            other => {
                let reason = reason.map(|reason| format!("{reason}; ")).unwrap_or_default();
                Self::Other(format!("{reason}it cannot be started again: {}", error_chain(&other)))
            }
        }
    }

    fn to_engine_error(&self, operation: &'static str) -> EngineError {
        match self {
            Self::Unreachable { endpoint, message } => {
                EngineError::Unreachable { endpoint: endpoint.clone(), source: message.clone().into() }
            }
            Self::DiskFull => EngineError::DiskFull { operation },
            Self::Other(message) | Self::GivenUp(message) => depot_error(operation, message),
        }
    }
}
