//! Keeps a paused test clock from advancing while a real process works.
//!
//! A paused clock jumps to the next timer when all tasks wait, and a process outside is no task. The clock stands still while
//! something runs on a blocking thread, so the guard occupies one.

use std::sync::mpsc;

/// A paused clock stands still until this is dropped.
pub(in crate::delivery) struct PausedClockGuard(
    #[expect(dead_code, reason = "its drop ends the wait")] mpsc::Sender<()>,
);

pub(in crate::delivery) fn hold_paused_clock() -> PausedClockGuard {
    let (sender, receiver) = mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || {
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = receiver.recv();
    });
    PausedClockGuard(sender)
}
