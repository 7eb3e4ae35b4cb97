//! The fake engine goes away and comes back: no call is answered, and whatever is under way breaks.

use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;

use super::super::{EngineError, EngineResult, EngineStream};
use super::FakeEngine;

/// Whether the engine is away. Clones are the same one.
#[derive(Clone)]
pub(super) struct Outage {
    /// How often it went away or came back; odd while it is away.
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
    /// An error while it is away.
    pub(super) fn ensure_up(&self) -> EngineResult<()> {
        if *self.transitions.borrow() % 2 == 1 { Err(unreachable()) } else { Ok(()) }
    }

    /// What comes of this, unless the engine goes away before that.
    pub(super) fn fail_on_outage<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = EngineResult<T>> {
        let mut turns = self.transitions.subscribe();
        let now = *turns.borrow();
        async move {
            tokio::select! {
                biased;
                _ = turns.wait_for(|turn| *turn != now) => Err(unreachable()),
                done = work => Ok(done),
            }
        }
    }

    /// This stream, broken when the engine goes away, also while nobody reads it. What was not read by then is lost.
    pub(super) fn break_stream_on_outage<T: Send + 'static>(&self, stream: EngineStream<T>) -> EngineStream<T> {
        let turns = self.transitions.subscribe();
        let now = *turns.borrow();
        Box::pin(futures::stream::unfold(Some((stream, turns)), move |state| async move {
            let (mut stream, mut turns) = state?;
            let item = tokio::select! {
                biased;
                _ = turns.wait_for(|turn| *turn != now) => Err(unreachable()),
                item = stream.next() => item?,
            };
            let over = item.is_err();
            Some((item, (!over).then_some((stream, turns))))
        }))
    }
}

impl Outage {
    fn set_down(&self, away: bool) {
        self.transitions.send_if_modified(|turns| {
            let other = (*turns % 2 == 1) != away;
            *turns += u64::from(other);
            other
        });
    }
}

impl FakeEngine {
    /// Goes away: every call fails, every wait and every stream breaks. The containers run on.
    pub fn go_down(&self) {
        self.outage.set_down(true);
    }

    /// Comes back.
    pub fn come_back(&self) {
        self.outage.set_down(false);
    }

    /// Ends every container with this exit code, as a daemon does that finds them dead when it starts.
    pub fn kill_all(&self, code: i64) {
        let mut state = self.state();
        for container in state.containers.values_mut() {
            container.exit_with(code);
        }
    }
}
