//! Keeps a depot alive: starts it again when its stream ended, and repeats what was asked of the one that died.
//!
//! - One start at a time, for all who find it dead; those who waited for one that failed get its failure.
//! - What can be repeated is repeated once. A request that kills each depot it is asked of fails on the second.
//! - [`STARTS`] starts in a row without one answer are the last: what is wrong is not going to pass.
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
use super::link::Link;
use super::start::{self, Running, Shim};

/// How often it is started again with no answer in between.
const STARTS: u32 = 5;
/// What callers hear once it was closed.
const CLOSED: &str = "it was closed";

/// The depot that there is, and what it takes to make another.
pub(super) struct Keeper {
    engine: Arc<dyn Engine>,
    spec: DepotSpec,
    running: RwLock<Running>,
    /// Held by whoever starts it again.
    starting: Mutex<Outcome>,
    /// How many tries to start it again have come to an end.
    tries: AtomicU64,
    /// How often it was started since the last answer.
    starts: AtomicU32,
    closed: CancellationToken,
}

/// What came of the last try, as far as it matters to those who waited for it.
#[derive(Default)]
struct Outcome {
    failure: Option<Failure>,
    /// A try was begun and not ended: a container may be left of it.
    unsettled: bool,
}

/// A failure that many are told of.
enum Failure {
    Unreachable { endpoint: String, words: String },
    DiskFull,
    Other(String),
    GivenUp(String),
}

impl Keeper {
    pub(super) fn new(engine: Arc<dyn Engine>, spec: DepotSpec, running: Running) -> Self {
        Self {
            engine,
            spec,
            running: RwLock::new(running),
            starting: Mutex::default(),
            tries: AtomicU64::new(0),
            starts: AtomicU32::new(0),
            closed: CancellationToken::new(),
        }
    }

    /// The depot as it is known, alive or not.
    pub(super) fn running(&self) -> Running {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks; where the depot dies of it or during it, asks another one once more, and says that it is the second time.
    pub(super) async fn twice<T, Asked>(
        &self,
        operation: &'static str,
        ask: impl Fn(Arc<Link>, bool) -> Asked,
    ) -> EngineResult<T>
    where
        Asked: Future<Output = EngineResult<T>>,
    {
        let (mut again, mut tries) = (false, self.tries());
        loop {
            let link = self.alive_since(operation, tries).await?;
            tries = self.tries();
            let answer = ask(Arc::clone(&link), again).await;
            if again || !died(&link, &answer) {
                return self.noted(answer);
            }
            // Those who were asking when it died get one new depot, or one failure, together.
            again = true;
        }
    }

    /// Asks what cannot be asked twice. Where the depot dies, the next one is there before the caller hears of it.
    pub(super) async fn once<T, Asked>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(Arc<Link>) -> Asked,
    ) -> EngineResult<T>
    where
        Asked: Future<Output = EngineResult<T>>,
    {
        let link = self.alive(operation).await?;
        let tries = self.tries();
        let answer = ask(Arc::clone(&link)).await;
        if died(&link, &answer) {
            self.alive_since(operation, tries).await?;
        }
        self.noted(answer)
    }

    /// A link that was alive a moment ago.
    pub(super) async fn alive(&self, operation: &'static str) -> EngineResult<Arc<Link>> {
        self.alive_since(operation, self.tries()).await
    }

    fn tries(&self) -> u64 {
        self.tries.load(Ordering::Acquire)
    }

    /// The same for one who knows of so many tries: a later one that failed is also that caller's failure.
    async fn alive_since(&self, operation: &'static str, tries: u64) -> EngineResult<Arc<Link>> {
        let link = self.running().link;
        if !link.is_dead() {
            return Ok(link);
        }
        let started = async {
            let mut outcome = self.starting.lock().await;
            let dead = self.running();
            if !dead.link.is_dead() {
                return Ok(dead.link);
            }
            if self.tries() == tries || outcome.failure.is_none() {
                outcome.unsettled = true;
                let before = outcome.failure.take();
                let failure = self.start_again(&dead, before).await.err();
                *outcome = Outcome { failure, unsettled: false };
                self.tries.fetch_add(1, Ordering::Release);
            }
            match &outcome.failure {
                Some(failure) => Err(failure.told(operation)),
                None => Ok(self.running().link),
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Failure::Other(CLOSED.to_owned()).told(operation)),
            started = started => started,
        }
    }

    /// `failure` is what came of the try before, where it failed.
    async fn start_again(&self, dead: &Running, failure: Option<Failure>) -> Result<(), Failure> {
        self.engine.ping().await.map_err(|error| Failure::of(error, None))?;
        let why = dead.link.reason();
        let before = self.starts.load(Ordering::Acquire);
        if before >= STARTS {
            let last = match failure {
                Some(Failure::GivenUp(said)) => return Err(Failure::GivenUp(said)),
                Some(Failure::Other(said)) => said,
                _ => why,
            };
            return Err(Failure::GivenUp(format!("it was started again {before} times and never answered: {last}")));
        }
        tracing::warn!(container = %dead.container.short(), "the depot is started again: {why}");
        // The first at once.
        if let Some(pause) = before.checked_sub(1).and_then(|before| pauses().nth(before as usize)) {
            tokio::time::sleep(pause).await;
        }
        let started = async {
            // A container whose stream broke may be running still, and has the name.
            self.engine.remove(&dead.container).await?;
            start::start(&self.engine, &self.spec, Shim::Expect).await
        };
        let started = started.await.map_err(|error| Failure::of(error, Some(&why)));
        if !matches!(started, Err(Failure::Unreachable { .. })) {
            self.starts.fetch_add(1, Ordering::AcqRel);
        }
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = started?;
        Ok(())
    }

    /// Ends it for good; the volumes stay.
    pub(super) async fn close(&self) -> EngineResult<()> {
        self.closed.cancel();
        // The stream first: removal can hang on one that nobody reads.
        self.running().link.close(CLOSED);
        // Whoever was starting it has let go.
        let outcome = self.starting.lock().await;
        let running = self.running();
        running.link.close(CLOSED);
        self.engine.remove(&running.container).await?;
        if outcome.unsettled { start::remove_stale(&*self.engine, self.spec.swarm).await } else { Ok(()) }
    }

    /// An answer, good or bad, of a depot that works.
    fn noted<T>(&self, answer: EngineResult<T>) -> EngineResult<T> {
        if matches!(answer, Ok(_) | Err(EngineError::Depot { kind: Some(_), .. })) {
            self.starts.store(0, Ordering::Release);
        }
        answer
    }
}

/// Whether this is no answer because the depot died.
fn died<T>(link: &Link, answer: &EngineResult<T>) -> bool {
    matches!(answer, Err(EngineError::Depot { kind: None, .. })) && link.is_dead()
}

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(STARTS as usize)
        .build()
}

impl Failure {
    /// `why` is what the depot died of before.
    fn of(error: EngineError, why: Option<&str>) -> Self {
        match error {
            EngineError::Unreachable { endpoint, source } => Self::Unreachable { endpoint, words: source.to_string() },
            EngineError::DiskFull { .. } => Self::DiskFull,
            other => {
                let cause = std::error::Error::source(&other).map(|cause| format!(": {cause}")).unwrap_or_default();
                let why = why.map(|why| format!("{why}; ")).unwrap_or_default();
                Self::Other(format!("{why}it cannot be started again: {other}{cause}"))
            }
        }
    }

    fn told(&self, operation: &'static str) -> EngineError {
        match self {
            Self::Unreachable { endpoint, words } => {
                EngineError::Unreachable { endpoint: endpoint.clone(), source: words.clone().into() }
            }
            Self::DiskFull => EngineError::DiskFull { operation },
            Self::Other(message) | Self::GivenUp(message) => {
                EngineError::Depot { operation, kind: None, message: message.clone() }
            }
        }
    }
}
