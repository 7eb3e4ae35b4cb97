//! A story's time: what passes while the sandbox runs. A sandbox that is paused for an hour has as much time left as before.
//!
//! The kernel's clock goes on in a paused container, and no process of it can see that; but one that ticks sees the gap. Used by
//! `story.rs`, `review.rs` and `command.rs`; `serve.rs` makes it tick. Must not: end anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often it ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// A longer time between two ticks is no busy machine's doing.
const PAUSE_THRESHOLD: Duration = Duration::from_secs(5);

/// Sees how long the sandbox did not run. One that does not tick has never seen a gap.
#[derive(Debug, Clone, Default)]
pub struct SandboxClock(Arc<Mutex<PauseTracker>>);

#[derive(Debug, Default)]
struct PauseTracker {
    last_tick: Option<Instant>,
    paused: Duration,
}

impl SandboxClock {
    /// Ticks for ever.
    pub async fn run(self) {
        loop {
            self.tick();
            tokio::time::sleep(TICK_INTERVAL).await;
        }
    }

    fn tick(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.record_pause();
        seen.last_tick = Some(Instant::now());
    }

    /// How long the sandbox did not run, all in all.
    fn paused(&self) -> Duration {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.record_pause();
        seen.paused
    }

    /// So much of the sandbox's time from now on.
    pub fn deadline_after(&self, limit: Duration) -> StoryDeadline {
        StoryDeadline { at: Instant::now() + limit, paused_before: self.paused(), clock: self.clone() }
    }
}

impl PauseTracker {
    /// Takes a gap in, once.
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

/// When a story's time is over.
#[derive(Debug, Clone)]
pub struct StoryDeadline {
    at: Instant,
    /// What had been frozen when it was set.
    paused_before: Duration,
    clock: SandboxClock,
}

impl StoryDeadline {
    /// As far as is known now: a pause moves it.
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
        // Nothing runs for an hour: not even the tick.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let moved = deadline.instant() - set;
        assert!((3629..=3631).contains(&moved.as_secs()), "{moved:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(deadline.instant() - set, moved, "a pause counts once");
        ticking.abort();
        assert_eq!(
            SandboxClock::default().deadline_after(TICK_INTERVAL).instant(),
            Instant::now() + TICK_INTERVAL,
            "one that does not tick sees nothing"
        );
    }
}
