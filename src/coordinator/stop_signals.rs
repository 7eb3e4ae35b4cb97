//! The signals that stop a swarm, counted: the first stops gracefully, the second kills, the third leaves at once. SIGINT, SIGTERM,
//! and SIGHUP, which a terminal sends when it closes. Made by `cli/` before it does anything, so that no signal ends the process in
//! the middle of something; used by `startup.rs`, `event_loop.rs` and `shutdown.rs`.

use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::swarm::StopLevel;

/// SIGHUP's bit in the masks of `/proc/self/status`.
const HANGUP_BIT: u64 = 1;

pub struct StopSignals {
    count: u32,
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    /// `None` if the process was started to ignore it, as `nohup` does.
    hangup: Option<Signal>,
}

impl StopSignals {
    pub fn new() -> Self {
        Self {
            count: 0,
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            hangup: (!ignores_hangup()).then(|| signal(SignalKind::hangup()).ok()).flatten(),
        }
    }

    /// The next signal: how hard to stop, or `None` to leave at once, and its name.
    pub async fn next(&mut self) -> (Option<StopLevel>, String) {
        async fn recv_or_pending(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
        let name = tokio::select! {
            () = recv_or_pending(&mut self.interrupt) => "SIGINT",
            () = recv_or_pending(&mut self.terminate) => "SIGTERM",
            () = recv_or_pending(&mut self.hangup) => "SIGHUP",
        };
        self.count += 1;
        let level = match self.count {
            1 => Some(StopLevel::Graceful),
            2 => Some(StopLevel::Kill),
            _ => None,
        };
        (level, name.to_owned())
    }

    /// Runs `work`, which may be dropped at any of its awaits.
    ///
    /// # Errors
    /// The name of the signal that came first.
    pub async fn interrupt<T>(&mut self, work: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            biased;
            (_, by) = self.next() => Err(by),
            output = work => Ok(output),
        }
    }

    /// Runs `work`, which should not be dropped. Also returns the name of the first signal that came meanwhile.
    ///
    /// # Errors
    /// The name of the signal that asked to leave at once.
    pub async fn defer<T>(&mut self, work: impl Future<Output = T>) -> Result<(T, Option<String>), String> {
        tokio::pin!(work);
        let mut first = None;
        loop {
            tokio::select! {
                biased;
                (level, by) = self.next() => match level {
                    Some(_) => drop(first.get_or_insert(by)),
                    None => return Err(by),
                },
                output = &mut work => return Ok((output, first)),
            }
        }
    }
}

/// Whether the process was started to ignore SIGHUP.
fn ignores_hangup() -> bool {
    match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => parse_ignored_signals(&status).is_some_and(|mask| mask & HANGUP_BIT != 0),
        // `nohup` leaves no output on a terminal.
        Err(_) => !std::io::stderr().is_terminal(),
    }
}

fn parse_ignored_signals(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status =
            "Name:\tlongshore\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n";
        assert_eq!(parse_ignored_signals(status), Some(0x1001));
        assert_eq!(parse_ignored_signals("Name:\tlongshore\n"), None);
    }
}
