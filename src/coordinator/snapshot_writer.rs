//! The state file on its way to the disk: snapshots are made on the loop and written here, off it. Called by `run.rs`.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error_chain::error_chain;
use crate::state::PendingSnapshot;
use crate::swarm::{Event, MachineryFault};
use crate::verdict::Cause;

use super::event_queue::EventSender;

/// Writes snapshots in the order in which they were made, off the loop. A failure ends the swarm: its record cannot be kept.
pub(super) fn spawn_snapshot_writer(postbox: EventSender) -> (mpsc::UnboundedSender<PendingSnapshot>, JoinHandle<()>) {
    let (sender, mut snapshots) = mpsc::unbounded_channel::<PendingSnapshot>();
    let writer = tokio::spawn(async move {
        while let Some(mut snapshot) = snapshots.recv().await {
            // Only the newest of those that wait is worth its sync.
            while let Ok(newer) = snapshots.try_recv() {
                snapshot = newer;
            }
            let written = tokio::task::spawn_blocking(move || snapshot.write()).await;
            if let Ok(Err(error)) = written {
                let cause = if error.is_disk_full() { Cause::DiskFull } else { Cause::HostError };
                let fault = MachineryFault::new(cause, error_chain(&error), false);
                postbox.send_now(Event::MachineryFailed { fault });
                return;
            }
        }
    });
    (sender, writer)
}
