//! Notices that an agent or a check does nothing any more: no output, and no CPU use worth the name, for too long.
//!
//! Progress is a byte of output, an `acp-shim progress` of the agent's, or CPU use of the processes below the shim. The last
//! is the sum over `/proc/<pid>/stat` of what each has used and of what it has reaped, so that the time of a process that
//! ended is not lost. It is looked at twenty times in the limit, and not more than once a second.
//!
//! **A trickle does not count.** A hung program often polls something, at a few milliseconds a minute. CPU use is progress
//! where it passes [`TRICKLE_DIVISOR`] of the time since the last progress (0.1 %: 0.6 s of CPU in 10 min), and [`MIN_CPU_USE`], below
//! which the kernel's clock ticks say nothing.
//!
//! **Time in which the shim itself did not run does not count**: of the time between two looks, no more than the distance
//! that was meant. A sandbox that was paused for an hour has not hung.
//!
//! Used by `command.rs`. Must not: end anything, or sleep.

use std::time::Duration;

use tokio::time::Instant;

use super::children::OwnedProcess;
use super::processes;

/// The share of the time, as a divisor, that CPU use has to pass to be progress: 0.1 %.
pub const TRICKLE_DIVISOR: u32 = 1000;
/// CPU use below this is never progress: two ticks of the clock in which the kernel reckons.
pub const MIN_CPU_USE: Duration = Duration::from_millis(20);
/// How often in a limit it is looked.
const CHECKS_PER_LIMIT: u32 = 20;
/// The least time between two looks.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches over one command.
#[derive(Debug)]
pub struct Watchdog {
    /// Zero: it does not watch.
    limit: Duration,
    interval: Duration,
    group: Option<i32>,
    /// The next look.
    next_check: Instant,
    last_check: Instant,
    /// How long nothing has gone on.
    idle: Duration,
    /// What had been used when something last went on.
    cpu_used: Duration,
    /// Something was said since the last look.
    had_output: bool,
    /// The agent's own reports, as far as they were counted.
    report_count: u64,
}

impl Watchdog {
    /// Begins to watch what was just started. A limit of zero watches nothing.
    pub fn new(limit: Duration, owned: &OwnedProcess, reports: u64) -> Self {
        let now = Instant::now();
        let every = (limit / CHECKS_PER_LIMIT).max(MIN_CHECK_INTERVAL).min(limit.max(Duration::from_millis(1)));
        let group = owned.pid().map(rustix::process::Pid::as_raw_nonzero).map(std::num::NonZero::get);
        let used = if limit.is_zero() { Duration::ZERO } else { processes::cpu_used(group) };
        Self {
            limit,
            interval: every,
            group,
            next_check: now + every,
            last_check: now,
            idle: Duration::ZERO,
            cpu_used: used,
            had_output: false,
            report_count: reports,
        }
    }

    /// When to look next; none where nothing is watched.
    pub fn next_check(&self) -> Option<Instant> {
        (!self.limit.is_zero()).then_some(self.next_check)
    }

    /// It printed something.
    pub fn record_output(&mut self) {
        self.had_output = true;
    }

    /// Looks. `reports`: how often the agent has reported by now. Gives how long nothing has gone on, where that is too long.
    pub fn check(&mut self, reports: u64) -> Option<Duration> {
        let now = Instant::now();
        self.idle += (now - self.last_check).min(self.interval * 2);
        self.last_check = now;
        self.next_check = now + self.interval;
        let used = processes::cpu_used(self.group);
        let said = std::mem::take(&mut self.had_output) || reports != self.report_count;
        self.report_count = reports;
        if said || is_progress(used.saturating_sub(self.cpu_used), self.idle) {
            (self.idle, self.cpu_used) = (Duration::ZERO, used);
        }
        // What processes had used that ended unreaped by anybody is gone from the sum.
        self.cpu_used = self.cpu_used.min(used);
        (self.idle >= self.limit).then_some(self.idle)
    }
}

/// Whether so much CPU use in so much time is more than a trickle.
fn is_progress(used: Duration, in_time: Duration) -> bool {
    used >= MIN_CPU_USE && used > in_time / TRICKLE_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_progress_ignores_a_trickle_of_cpu() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!(!is_progress(Duration::from_millis(10), Duration::from_millis(1)), "one tick may be anything");
        assert!(is_progress(Duration::from_millis(40), Duration::from_secs(30)));
        assert!(!is_progress(Duration::from_millis(500), minutes(10)), "0.08 %");
        assert!(is_progress(Duration::from_millis(700), minutes(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_count_as_idle() {
        // Nothing of this group is there: it uses no time.
        let (_child, owned) = super::super::children::spawn(|| Ok(()), |()| Some(i32::MAX as u32)).expect("noted");
        let mut dog = Watchdog::new(Duration::from_secs(600), &owned, 0);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(dog.check(0), None);
        }
        // Paused for an hour: one look's worth, and its double at most.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(dog.check(0), None);
        for _ in 0..7 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(dog.check(0), None);
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(dog.check(0), Some(Duration::from_secs(600)));
        dog.record_output();
        assert_eq!(dog.check(0), None, "it spoke");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(dog.check(0), None);
        assert_eq!(dog.check(1), None, "it reported");
        assert_eq!(dog.idle, Duration::ZERO);
    }
}
