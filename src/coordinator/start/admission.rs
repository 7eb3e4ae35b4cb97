//! Admission: a sandbox starts only when the engine's machine has memory and disk to spare; otherwise the start waits and
//! reports why.
//!
//! Called by `session.rs` before each start. The depot measures the engine's machine, which may not be the orchestrator's. Sandboxes
//! just admitted have not used their memory yet, and count as users of it for [`SETTLE_TIME`]. Must not: end a swarm because of a
//! shortage while a sandbox runs; a shortage of [`MAX_IDLE_WAIT`] without a running sandbox is a machinery failure, after which
//! the swarm can be resumed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::depot::{DepotClient, EngineSpace};
use crate::engine::{EngineResult, Signal};
use crate::ids::AttemptId;
use crate::swarm::{Event, MachineryFault};
use crate::verdict::Cause;

use crate::coordinator::event_queue::EventSender;

/// How long an admitted sandbox counts as one that will use memory.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// How long a measurement is reused.
const SPACE_CACHE_TTL: Duration = Duration::from_millis(250);
/// The pause between measurements during a shortage.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a start waits while no sandbox runs whose end could free resources.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(600);

/// Free resources that the engine's machine must have before another sandbox starts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserve {
    pub memory: u64,
    /// On the disk of the engine's volumes.
    pub disk: u64,
}

impl Default for Reserve {
    fn default() -> Self {
        Self { memory: 256 << 20, disk: 1 << 30 }
    }
}

pub(crate) struct Admission {
    reserve: Reserve,
    /// The number of running sandboxes: their end may free resources.
    running: Arc<AtomicUsize>,
    state: Mutex<AdmissionState>,
}

/// Counts as a running sandbox until it is dropped.
pub(crate) struct RunningGuard(Arc<AtomicUsize>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct AdmissionState {
    cached_space: Option<(Instant, EngineSpace)>,
    recently_admitted: VecDeque<Instant>,
}

impl Admission {
    pub fn new(reserve: Reserve) -> Self {
        Self { reserve, running: Arc::default(), state: Mutex::default() }
    }

    pub fn track_running(&self) -> RunningGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningGuard(Arc::clone(&self.running))
    }

    /// Waits until resources are free; reports a shortage once. Returns early when the attempt is stopped.
    pub async fn admit(
        &self,
        depot: &DepotClient,
        attempt: &AttemptId,
        events: &EventSender,
        stop: &mut tokio::sync::watch::Receiver<Option<Signal>>,
    ) -> EngineResult<()> {
        let mut since = Instant::now();
        let mut reported = false;
        while stop.borrow().is_none() {
            let Some((cause, reason)) = self.try_admit(depot).await? else { return Ok(()) };
            if !reported {
                reported = true;
                events.send(Event::StartDelayed { attempt: attempt.clone(), reason: reason.clone() }).await;
            }
            if self.running.load(Ordering::Relaxed) > 0 {
                since = Instant::now();
            }
            if since.elapsed() > MAX_IDLE_WAIT {
                let summary = format!("no sandbox could be started for {} s: {reason}", MAX_IDLE_WAIT.as_secs());
                events.send(Event::MachineryFailed { fault: MachineryFault::new(cause, summary, false) }).await;
            }
            let _ = tokio::time::timeout(RETRY_INTERVAL, stop.changed()).await;
        }
        Ok(())
    }

    /// The shortage, if there is one; otherwise admits a sandbox.
    async fn try_admit(&self, depot: &DepotClient) -> EngineResult<Option<(Cause, String)>> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let space = match state.cached_space {
            Some((at, space)) if now - at < SPACE_CACHE_TTL => space,
            _ => {
                let space = depot.free_space().await?;
                state.cached_space = Some((Instant::now(), space));
                space
            }
        };
        state.recently_admitted.retain(|at| now - *at < SETTLE_TIME);
        let short = shortage(self.reserve, space, state.recently_admitted.len());
        if short.is_none() {
            state.recently_admitted.push_back(now);
        }
        Ok(short)
    }
}

/// What the engine's machine lacks for one more sandbox while `unsettled` others have not used their memory yet.
fn shortage(reserve: Reserve, space: EngineSpace, unsettled: usize) -> Option<(Cause, String)> {
    let lacks = |what: &str, free: u64, wanted: u64, setting: &str| {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        format!("the engine has {} MB of {what} left, and {} MB are wanted (`{setting}`)", mb(free), mb(wanted))
    };
    if space.free < reserve.disk {
        return Some((Cause::DiskFull, lacks("disk", space.free, reserve.disk, "--reserve-disk")));
    }
    // 0: the amount is unknown.
    let wanted = reserve.memory.saturating_mul(unsettled as u64 + 1);
    if space.memory_available > 0 && space.memory_available < wanted {
        return Some((Cause::EngineError, lacks("memory", space.memory_available, wanted, "--reserve-memory")));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_reports_missing_memory_and_disk() {
        let reserve = Reserve { memory: 100 << 20, disk: 1 << 30 };
        let space =
            |free: u64, memory: u64| EngineSpace { free: free << 20, total: 1 << 40, memory_available: memory << 20 };
        assert_eq!(shortage(reserve, space(1024, 100), 0), None);
        assert_eq!(shortage(reserve, space(1024, 0), 9), None, "unknown memory is not a shortage");
        let (cause, reason) = shortage(reserve, space(1023, 100), 0).expect("short of disk");
        assert_eq!(cause, Cause::DiskFull);
        assert!(reason.contains("1023 MB of disk left, and 1024 MB"), "{reason}");
        let (_, reason) = shortage(reserve, space(1024, 199), 1).expect("the one before has used nothing yet");
        assert!(reason.contains("199 MB of memory left, and 200 MB"), "{reason}");
        assert_eq!(shortage(reserve, space(1024, 200), 1), None);
    }
}
