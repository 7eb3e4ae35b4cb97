//! Detects that an agent or a check hangs: no output and no significant CPU use for too long.
//!
//! Progress is a byte of output, an `acp-shim progress`, or CPU use of the processes below the shim. The latter is the sum over
//! `/proc/<pid>/stat` of what each process and its reaped children used, so that the time of an ended process is not lost. The
//! watchdog checks twenty times per limit, and at most once a second.
//!
//! **A trickle does not count.** A hung program often polls something, at a few milliseconds per minute. CPU use is progress if it
//! exceeds both a share of the time since the last progress ([`TRICKLE_DIVISOR`]: 0.6 s of CPU in 10 min) and [`MIN_CPU_USE`], the
//! resolution of the kernel's clock ticks.
//!
//! **Time in which the shim itself did not run does not count**, except for twice the check interval. A sandbox that was paused for
//! an hour has not hung.
//!
//! Used by `command.rs`. Must not: end anything, or sleep.

use std::time::Duration;

use tokio::time::Instant;

use super::children::OwnedProcess;
use super::descendants;

/// The share of the time, as a divisor, that CPU use must exceed to be progress: 0.1 %.
const TRICKLE_DIVISOR: u32 = 1000;
/// CPU use below this is never progress: two of the kernel's clock ticks.
const MIN_CPU_USE: Duration = Duration::from_millis(20);
const CHECKS_PER_LIMIT: u32 = 20;
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches one command.
#[derive(Debug)]
pub struct Watchdog {
    /// Zero: no limit.
    limit: Duration,
    interval: Duration,
    group: Option<i32>,
    next_check: Instant,
    last_check: Instant,
    /// The time without progress.
    idle: Duration,
    /// The CPU time at the last progress.
    cpu_used: Duration,
    /// Whether there was output since the last check.
    had_output: bool,
    /// The agent's progress reports at the last check.
    report_count: u64,
}

impl Watchdog {
    /// Starts to watch a command that was just started.
    pub fn new(limit: Duration, owned: &OwnedProcess, reports: u64) -> Self {
        let now = Instant::now();
        let interval = (limit / CHECKS_PER_LIMIT).max(MIN_CHECK_INTERVAL).min(limit.max(Duration::from_millis(1)));
        let group = owned.pid().map(rustix::process::Pid::as_raw_nonzero).map(std::num::NonZero::get);
        let used = if limit.is_zero() { Duration::ZERO } else { descendants::cpu_used(group) };
        Self {
            limit,
            interval,
            group,
            next_check: now + interval,
            last_check: now,
            idle: Duration::ZERO,
            cpu_used: used,
            had_output: false,
            report_count: reports,
        }
    }

    /// When to check next; `None` without a limit.
    pub fn next_check(&self) -> Option<Instant> {
        (!self.limit.is_zero()).then_some(self.next_check)
    }

    pub fn record_output(&mut self) {
        self.had_output = true;
    }

    /// Checks for progress. `reports` counts the agent's progress reports. Returns the time without progress if it exceeds the limit.
    pub fn check(&mut self, reports: u64) -> Option<Duration> {
        let now = Instant::now();
        self.idle += (now - self.last_check).min(self.interval * 2);
        self.last_check = now;
        self.next_check = now + self.interval;
        let used = descendants::cpu_used(self.group);
        let has_progress = std::mem::take(&mut self.had_output) || reports != self.report_count;
        self.report_count = reports;
        if has_progress || is_progress(used.saturating_sub(self.cpu_used), self.idle) {
            (self.idle, self.cpu_used) = (Duration::ZERO, used);
        }
        // The time of a process that nobody reaped is missing from the sum.
        self.cpu_used = self.cpu_used.min(used);
        (self.idle >= self.limit).then_some(self.idle)
    }
}

/// Whether the CPU use in that time is more than a trickle.
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
        // The group does not exist, so it uses no time.
        let (_child, owned) = super::super::children::spawn(|| Ok(()), |()| Some(i32::MAX as u32)).expect("noted");
        let mut dog = Watchdog::new(Duration::from_secs(600), &owned, 0);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(dog.check(0), None);
        }
        // Paused for an hour: counts as two intervals at most.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(dog.check(0), None);
        for _ in 0..7 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(dog.check(0), None);
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(dog.check(0), Some(Duration::from_secs(600)));
        dog.record_output();
        assert_eq!(dog.check(0), None, "it printed something");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(dog.check(0), None);
        assert_eq!(dog.check(1), None, "it reported");
        assert_eq!(dog.idle, Duration::ZERO);
    }
}
