//! Keeps the clock of a test from running ahead while a real process works. A paused clock jumps to the next timer when all tasks
//! wait; a process outside is no task. It does not jump while something runs on a blocking thread, so something does.

use std::sync::mpsc;

/// While it is held, a paused clock stands still.
pub(super) struct RealTimeGuard(#[expect(dead_code, reason = "its drop ends the wait")] mpsc::Sender<()>);

pub(super) fn hold_paused_clock() -> RealTimeGuard {
    let (sender, receiver) = mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || {
        // Nothing is ever sent: this waits for the sender's end.
        let _ = receiver.recv();
    });
    RealTimeGuard(sender)
}
