//! Writes the state file. Snapshots are made on the loop and written here, off it. Used by `event_loop.rs`.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error_chain::error_chain;
use crate::state::PendingSnapshot;
use crate::swarm::Event;

use super::event_queue::EventSender;
use super::fault::storage_fault;

pub(super) struct SnapshotWriter {
    snapshots: mpsc::UnboundedSender<PendingSnapshot>,
    task: JoinHandle<()>,
}

impl SnapshotWriter {
    /// A failed write ends the swarm: its record cannot be kept.
    pub fn spawn(events: EventSender) -> Self {
        let (sender, mut snapshots) = mpsc::unbounded_channel::<PendingSnapshot>();
        let task = tokio::spawn(async move {
            while let Some(mut snapshot) = snapshots.recv().await {
                // Only the newest of the waiting snapshots is worth its sync.
                while let Ok(newer) = snapshots.try_recv() {
                    snapshot = newer;
                }
                let written = tokio::task::spawn_blocking(move || snapshot.write()).await;
                if let Ok(Err(error)) = written {
                    let fault = storage_fault(error.is_disk_full(), error_chain(&error), false);
                    events.send_now(Event::MachineryFailed { fault });
                    return;
                }
            }
        });
        Self { snapshots: sender, task }
    }

    pub fn write(&self, snapshot: PendingSnapshot) {
        // After a failure the writer is gone, and its event is in the queue.
        let _ = self.snapshots.send(snapshot);
    }

    /// Waits until all snapshots are written.
    pub async fn close(self) {
        drop(self.snapshots);
        let _ = self.task.await;
    }
}
