//! Pauses and unpauses sandboxes one after the other, in the order of the requests. Started by `effects.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::engine::{Engine, EngineError};
use crate::error_chain::error_chain;
use crate::ids::ContainerId;

use super::engine_monitor::EngineMonitor;

struct PauseRequest {
    container: ContainerId,
    paused: bool,
}

pub(super) struct PauseWorker {
    requests: mpsc::UnboundedSender<PauseRequest>,
    task: JoinHandle<()>,
}

impl PauseWorker {
    pub fn spawn(engine: Arc<dyn Engine>, mut monitor: EngineMonitor) -> Self {
        let (requests, mut queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(PauseRequest { container, paused }) = queue.recv().await {
                let set_paused = || if paused { engine.pause(&container) } else { engine.unpause(&container) };
                if let Err(error) = monitor.retry(EngineError::is_unreachable, set_paused).await {
                    tracing::warn!(container = %container.short(), error = %error_chain(&error), paused, "cannot pause or unpause a sandbox");
                }
            }
        });
        Self { requests, task }
    }

    pub fn set_paused(&self, container: ContainerId, paused: bool) {
        // The worker ends only with this sender.
        let _ = self.requests.send(PauseRequest { container, paused });
    }

    /// Waits until all requests are done.
    pub async fn close(self, timeout: Duration) {
        drop(self.requests);
        let _ = tokio::time::timeout(timeout, self.task).await;
    }
}
