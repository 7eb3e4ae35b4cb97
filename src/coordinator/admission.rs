//! Admission: a sandbox is started when the engine has memory and disk to spare; where it has not, the start waits and says so.
//!
//! Asked by `session.rs` before each start, through the depot, which sees the engine's machine and not the orchestrator's. Sandboxes
//! just let in have not used their memory yet, and are counted for [`SETTLE_TIME`]. Must not: end a swarm for being short while any
//! of its sandboxes runs; but [`MAX_IDLE_WAIT`] without one is the machinery's failure, and the swarm is left to be resumed.

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

use super::event_queue::EventSender;

/// How long a sandbox that was let in is counted as one that will use memory.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// How long an answer of the engine's machine holds.
const SPACE_CACHE_TTL: Duration = Duration::from_millis(250);
/// The pause before it is asked again when it was short.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a start waits while no sandbox runs whose end could make room.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(600);

/// What must be left on the engine's machine when another sandbox starts. In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserve {
    /// Memory.
    pub memory: u64,
    /// Disk under the engine's volumes.
    pub disk: u64,
}

impl Default for Reserve {
    fn default() -> Self {
        Self { memory: 256 << 20, disk: 1 << 30 }
    }
}

/// The gate of a swarm.
pub(super) struct Admission {
    reserve: Reserve,
    /// Sandboxes that run: their end may make room.
    running: Arc<AtomicUsize>,
    state: Mutex<AdmissionState>,
}

/// A sandbox that runs.
pub(super) struct RunningGuard(Arc<AtomicUsize>);

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

    /// A sandbox runs, until what this gives is dropped.
    pub fn track_running(&self) -> RunningGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningGuard(Arc::clone(&self.running))
    }

    /// Waits until there is room; what is short is told once. Gives up when the sandbox is not wanted any more.
    pub async fn admit(
        &self,
        depot: &DepotClient,
        attempt: &AttemptId,
        postbox: &EventSender,
        stop: &mut tokio::sync::watch::Receiver<Option<Signal>>,
    ) -> EngineResult<()> {
        let mut since = Instant::now();
        let mut told = false;
        while stop.borrow().is_none() {
            let Some((cause, reason)) = self.try_admit(depot).await? else { return Ok(()) };
            if !told {
                told = true;
                postbox.send(Event::StartDelayed { attempt: attempt.clone(), reason: reason.clone() }).await;
            }
            if self.running.load(Ordering::Relaxed) > 0 {
                since = Instant::now();
            }
            if since.elapsed() > MAX_IDLE_WAIT {
                let summary = format!("no sandbox could be started for {} s: {reason}", MAX_IDLE_WAIT.as_secs());
                postbox.send(Event::MachineryFailed { fault: MachineryFault::new(cause, summary, false) }).await;
            }
            let _ = tokio::time::timeout(RETRY_INTERVAL, stop.changed()).await;
        }
        Ok(())
    }

    /// What is short; lets one in where nothing is.
    async fn try_admit(&self, depot: &DepotClient) -> EngineResult<Option<(Cause, String)>> {
        let mut seen = self.state.lock().await;
        let now = Instant::now();
        let space = match seen.cached_space {
            Some((at, space)) if now - at < SPACE_CACHE_TTL => space,
            _ => {
                let space = depot.free_space().await?;
                seen.cached_space = Some((Instant::now(), space));
                space
            }
        };
        seen.recently_admitted.retain(|at| now - *at < SETTLE_TIME);
        let short = shortage(self.reserve, space, seen.recently_admitted.len());
        if short.is_none() {
            seen.recently_admitted.push_back(now);
        }
        Ok(short)
    }
}

/// What the engine's machine lacks for one more sandbox, where `let_in` others have not settled yet.
fn shortage(reserve: Reserve, space: EngineSpace, let_in: usize) -> Option<(Cause, String)> {
    let lacks = |what: &str, free: u64, wanted: u64, setting: &str| {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        format!("the engine has {} MB of {what} left, and {} MB are wanted (`{setting}`)", mb(free), mb(wanted))
    };
    if space.free < reserve.disk {
        return Some((Cause::DiskFull, lacks("disk", space.free, reserve.disk, "--reserve-disk")));
    }
    // 0: its machine does not tell.
    let wanted = reserve.memory.saturating_mul(let_in as u64 + 1);
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
        assert_eq!(shortage(reserve, space(1024, 0), 9), None, "a machine that does not tell is not short");
        let (cause, reason) = shortage(reserve, space(1023, 100), 0).expect("short of disk");
        assert_eq!(cause, Cause::DiskFull);
        assert!(reason.contains("1023 MB of disk left, and 1024 MB"), "{reason}");
        let (_, reason) = shortage(reserve, space(1024, 199), 1).expect("the one before has used nothing yet");
        assert!(reason.contains("199 MB of memory left, and 200 MB"), "{reason}");
        assert_eq!(shortage(reserve, space(1024, 200), 1), None);
    }
}
