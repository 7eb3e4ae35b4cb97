//! A story's time, which passes only while the sandbox runs: a pause of an hour costs a story no time.
//!
//! In a paused container the kernel's clock goes on. No process notices that, but one that ticks sees the gap. `setup.rs` makes the
//! clock tick. Must not: end anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// A longer time between two ticks is a pause, and not a busy machine.
const PAUSE_THRESHOLD: Duration = Duration::from_secs(5);

/// Measures how long the sandbox was paused. Without ticks, it measures nothing.
#[derive(Debug, Clone, Default)]
pub struct SandboxClock(Arc<Mutex<PauseTracker>>);

#[derive(Debug, Default)]
struct PauseTracker {
    last_tick: Option<Instant>,
    paused: Duration,
}

impl SandboxClock {
    /// Ticks forever.
    pub async fn run(self) {
        loop {
            self.tick();
            tokio::time::sleep(TICK_INTERVAL).await;
        }
    }

    fn tick(&self) {
        let mut tracker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tracker.record_pause();
        tracker.last_tick = Some(Instant::now());
    }

    /// The total time of all pauses.
    fn paused(&self) -> Duration {
        let mut tracker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tracker.record_pause();
        tracker.paused
    }

    /// The deadline after `limit` of the sandbox's time.
    pub fn deadline_after(&self, limit: Duration) -> StoryDeadline {
        StoryDeadline { at: Instant::now() + limit, paused_before: self.paused(), clock: self.clone() }
    }
}

impl PauseTracker {
    /// Adds a gap since the last tick, once.
    fn record_pause(&mut self) {
        let now = Instant::now();
        if let Some(ticked) = self.last_tick
            && now - ticked > PAUSE_THRESHOLD
        {
            self.paused += now - ticked;
            self.last_tick = Some(now);
        }
    }
}

#[derive(Debug, Clone)]
pub struct StoryDeadline {
    at: Instant,
    /// The total time of pauses when the deadline was set.
    paused_before: Duration,
    clock: SandboxClock,
}

impl StoryDeadline {
    /// The current deadline. A pause moves it.
    pub fn instant(&self) -> Instant {
        self.at + (self.clock.paused() - self.paused_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_pause_extends_the_deadline() {
        let clock = SandboxClock::default();
        let deadline = clock.deadline_after(Duration::from_secs(30));
        let set = Instant::now();
        let ticking = tokio::spawn(clock.clone().run());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(deadline.instant(), set + Duration::from_secs(30));
        // Nothing runs for an hour, not even the tick.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let moved = deadline.instant() - set;
        assert!((3629..=3631).contains(&moved.as_secs()), "{moved:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(deadline.instant() - set, moved, "a pause counts once");
        ticking.abort();
        assert_eq!(
            SandboxClock::default().deadline_after(TICK_INTERVAL).instant(),
            Instant::now() + TICK_INTERVAL,
            "a clock without ticks sees no pause"
        );
    }
}
