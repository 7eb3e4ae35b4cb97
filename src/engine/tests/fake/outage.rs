//! Outages of the fake engine: calls fail, and pending waits and streams break.

use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;

use super::FakeEngine;
use crate::engine::{EngineError, EngineResult, EngineStream};

/// Whether the engine is unreachable. Clones share the state.
#[derive(Clone)]
pub(super) struct Outage {
    /// The number of times that it went down or came back; odd during an outage.
    transitions: Arc<watch::Sender<u64>>,
}

impl Default for Outage {
    fn default() -> Self {
        Self { transitions: Arc::new(watch::Sender::new(0)) }
    }
}

fn unreachable() -> EngineError {
    EngineError::Unreachable { endpoint: "fake://".to_owned(), source: "connection refused".into() }
}

impl Outage {
    /// Fails during an outage.
    pub(super) fn ensure_up(&self) -> EngineResult<()> {
        if *self.transitions.borrow() % 2 == 1 { Err(unreachable()) } else { Ok(()) }
    }

    /// The output of `work`, or an error if an outage starts before.
    pub(super) fn fail_on_outage<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = EngineResult<T>> {
        let mut transitions = self.transitions.subscribe();
        let now = *transitions.borrow();
        async move {
            tokio::select! {
                biased;
                _ = transitions.wait_for(|number| *number != now) => Err(unreachable()),
                done = work => Ok(done),
            }
        }
    }

    /// The stream, which breaks when an outage starts, even without a reader. Unread items are lost.
    pub(super) fn break_stream_on_outage<T: Send + 'static>(&self, stream: EngineStream<T>) -> EngineStream<T> {
        let transitions = self.transitions.subscribe();
        let now = *transitions.borrow();
        Box::pin(futures::stream::unfold(Some((stream, transitions)), move |state| async move {
            let (mut stream, mut transitions) = state?;
            let item = tokio::select! {
                biased;
                _ = transitions.wait_for(|number| *number != now) => Err(unreachable()),
                item = stream.next() => item?,
            };
            let is_last = item.is_err();
            Some((item, (!is_last).then_some((stream, transitions))))
        }))
    }

    fn set_down(&self, down: bool) {
        self.transitions.send_if_modified(|transitions| {
            let changes = (*transitions % 2 == 1) != down;
            *transitions += u64::from(changes);
            changes
        });
    }
}

impl FakeEngine {
    /// Starts an outage: every call fails, every wait and stream breaks. The containers go on.
    pub fn go_down(&self) {
        self.outage.set_down(true);
    }

    /// Ends an outage.
    pub fn come_back(&self) {
        self.outage.set_down(false);
    }

    /// Ends every container with this exit code, as a daemon does that finds them dead at its start.
    pub fn kill_all(&self, code: i64) {
        let mut state = self.state();
        for container in state.containers.values_mut() {
            container.exit_with(code);
        }
    }
}
