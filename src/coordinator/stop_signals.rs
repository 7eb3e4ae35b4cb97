//! SIGINT and SIGTERM, counted: the first stops gracefully, the second kills, the third leaves at once. Used by `event_loop.rs` and
//! `shutdown.rs`.

use crate::swarm::StopLevel;

pub(super) struct StopSignals {
    count: u32,
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

impl StopSignals {
    pub fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self {
            count: 0,
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// The next signal: how hard to stop, or `None` to leave at once, and its name.
    pub async fn next(&mut self) -> (Option<StopLevel>, String) {
        async fn recv_or_pending(signal: &mut Option<tokio::signal::unix::Signal>) {
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
        };
        self.count += 1;
        let level = match self.count {
            1 => Some(StopLevel::Graceful),
            2 => Some(StopLevel::Kill),
            _ => None,
        };
        (level, name.to_owned())
    }
}
