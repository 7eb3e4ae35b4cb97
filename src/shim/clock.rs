//! A story's time: what passes while the sandbox runs. A sandbox that is paused for an hour has as much time left as before.
//!
//! The kernel's clock goes on in a paused container, and no process of it can see that; but one that ticks sees the gap. Used by
//! `story.rs`, `review.rs` and `run.rs`; `serve.rs` makes it tick. Must not: end anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often it ticks.
const TICK: Duration = Duration::from_secs(1);
/// A longer time between two ticks is no busy machine's doing.
const GAP: Duration = Duration::from_secs(5);

/// Sees how long the sandbox did not run. One that does not tick has never seen a gap.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    ticked: Option<Instant>,
    frozen: Duration,
}

impl Clock {
    /// Ticks for ever.
    pub async fn run(self) {
        loop {
            self.tick();
            tokio::time::sleep(TICK).await;
        }
    }

    fn tick(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.look();
        seen.ticked = Some(Instant::now());
    }

    /// How long the sandbox did not run, all in all.
    fn frozen(&self) -> Duration {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.look();
        seen.frozen
    }

    /// So much of the sandbox's time from now on.
    pub fn within(&self, limit: Duration) -> Deadline {
        Deadline { at: Instant::now() + limit, frozen: self.frozen(), clock: self.clone() }
    }
}

impl Seen {
    /// Takes a gap in, once.
    fn look(&mut self) {
        let now = Instant::now();
        if let Some(ticked) = self.ticked
            && now - ticked > GAP
        {
            self.frozen += now - ticked;
            self.ticked = Some(now);
        }
    }
}

/// When a story's time is over.
#[derive(Debug, Clone)]
pub struct Deadline {
    at: Instant,
    /// What had been frozen when it was set.
    frozen: Duration,
    clock: Clock,
}

impl Deadline {
    /// As far as is known now: a pause moves it.
    pub fn at(&self) -> Instant {
        self.at + (self.clock.frozen() - self.frozen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_moves_the_deadline_and_running_does_not() {
        let clock = Clock::default();
        let deadline = clock.within(Duration::from_secs(30));
        let set = Instant::now();
        let ticking = tokio::spawn(clock.clone().run());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(deadline.at(), set + Duration::from_secs(30));
        // Nothing runs for an hour: not even the tick.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let moved = deadline.at() - set;
        assert!((3629..=3631).contains(&moved.as_secs()), "{moved:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(deadline.at() - set, moved, "a pause counts once");
        ticking.abort();
        assert_eq!(Clock::default().within(TICK).at(), Instant::now() + TICK, "one that does not tick sees nothing");
    }
}
