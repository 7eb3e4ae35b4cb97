//! The events of the fake engine's containers, as [`Engine::events`](crate::engine::Engine::events) returns them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::FakeEngine;
use crate::engine::{EngineEvent, EngineEventKind, EngineStream};
use crate::ids::ContainerId;

/// All events in order, each with the labels of its container. Clones share the log.
#[derive(Clone)]
pub(super) struct FakeEventLog {
    entries: Arc<watch::Sender<Vec<LoggedEvent>>>,
}

#[derive(Clone)]
struct LoggedEvent {
    event: EngineEvent,
    labels: Arc<BTreeMap<String, String>>,
}

/// Records the events of one container.
#[derive(Clone)]
pub(super) struct ContainerEventLog {
    event_log: FakeEventLog,
    container: String,
    labels: Arc<BTreeMap<String, String>>,
}

impl Default for FakeEventLog {
    fn default() -> Self {
        Self { entries: Arc::new(watch::Sender::new(Vec::new())) }
    }
}

impl FakeEventLog {
    pub(super) fn for_container(
        &self,
        container: &ContainerId,
        labels: &BTreeMap<String, String>,
    ) -> ContainerEventLog {
        ContainerEventLog {
            event_log: self.clone(),
            container: container.to_string(),
            labels: Arc::new(labels.clone()),
        }
    }

    /// The events since then of the containers with this label, and all later ones.
    pub(super) fn subscribe(&self, label: &str, value: &str, since: Timestamp) -> EngineStream<EngineEvent> {
        let (label, value) = (label.to_owned(), value.to_owned());
        let start = (self.entries.subscribe(), 0);
        Box::pin(futures::stream::unfold(start, move |(mut entries, mut at)| {
            let (label, value) = (label.clone(), value.clone());
            async move {
                loop {
                    let next = entries.wait_for(|entries| entries.len() > at).await.ok()?[at].clone();
                    at += 1;
                    if next.event.at >= since && next.labels.get(&label) == Some(&value) {
                        return Some((Ok(next.event), (entries, at)));
                    }
                }
            }
        }))
    }
}

impl ContainerEventLog {
    pub(super) fn record(&self, kind: EngineEventKind) {
        let event = EngineEvent { at: Timestamp::now(), container: self.container.clone(), kind };
        let entry = LoggedEvent { event, labels: Arc::clone(&self.labels) };
        self.event_log.entries.send_modify(|entries| entries.push(entry));
    }
}

impl FakeEngine {
    /// Forgets all events, as a daemon does that restarts.
    pub fn forget_events(&self) {
        let now = Timestamp::now();
        // Readers count entries: none is removed, but all become too old to match.
        self.event_log.entries.send_modify(|entries| {
            for entry in entries.iter_mut().filter(|entry| entry.event.at <= now) {
                entry.event.at = Timestamp::MIN;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;

    use super::*;
    use crate::engine::{ContainerSpec, Engine, EngineError, Signal};

    fn spec(name: &str, swarm: &str) -> ContainerSpec {
        super::super::container_spec(name, &[("swarm", swarm)])
    }

    fn sleeping_engine() -> FakeEngine {
        FakeEngine::new(|_| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            3
        })
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_filtered_by_label() {
        let engine = sleeping_engine();
        let one = engine.create(&spec("one", "a")).await.unwrap();
        let other = engine.create(&spec("other", "b")).await.unwrap();
        engine.start(&other).await.unwrap();
        engine.start(&one).await.unwrap();
        let began = Timestamp::now() - Duration::from_secs(60);
        let mut events = engine.events("swarm", "a", began).await.unwrap();
        // The second call has no effect.
        for _ in 0..2 {
            engine.pause(&one).await.unwrap();
        }
        for _ in 0..2 {
            engine.unpause(&one).await.unwrap();
        }
        engine.signal(&one, Signal::Term).await.unwrap();
        assert_eq!(engine.wait(&one).await.unwrap(), 3);
        assert!(matches!(engine.pause(&one).await, Err(EngineError::Refused { status: 409, .. })), "it has ended");
        engine.remove(&one).await.unwrap();
        let wanted = [
            EngineEventKind::Started,
            EngineEventKind::Paused,
            EngineEventKind::Unpaused,
            EngineEventKind::Killed { signal: 15 },
            EngineEventKind::Died { code: 3 },
            EngineEventKind::Removed,
        ];
        for kind in wanted {
            let event = events.next().await.unwrap().unwrap();
            assert_eq!((event.container, event.kind), (one.to_string(), kind));
        }
        engine.forget_events();
        let mut forgotten = engine.events("swarm", "a", began).await.unwrap();
        engine.oom_kill("other");
        let silence = tokio::time::timeout(Duration::from_secs(1), forgotten.next()).await;
        assert!(silence.is_err(), "{silence:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_breaks_waits_and_streams_until_it_ends() {
        let engine = sleeping_engine();
        let id = engine.create(&spec("one", "a")).await.unwrap();
        let mut attached = engine.attach(&id).await.unwrap();
        engine.start(&id).await.unwrap();
        let mut events = engine.events("swarm", "a", Timestamp::now()).await.unwrap();
        let waiting = tokio::spawn({
            let (engine, id) = (engine.clone(), id.clone());
            async move { engine.wait(&id).await }
        });
        tokio::task::yield_now().await;
        engine.go_down();
        assert!(waiting.await.unwrap().unwrap_err().is_unreachable());
        assert!(attached.output.next().await.unwrap().unwrap_err().is_unreachable());
        assert!(events.next().await.unwrap().unwrap_err().is_unreachable());
        assert!(events.next().await.is_none());
        assert!(engine.ping().await.unwrap_err().is_unreachable());
        assert!(engine.inspect(&id).await.unwrap_err().is_unreachable());
        engine.kill_all(255);
        engine.come_back();
        engine.ping().await.unwrap();
        assert_eq!(engine.wait(&id).await.unwrap(), 255);
        // A stream without a reader breaks too.
        let mut unread = engine.logs(&id, true).await.unwrap();
        engine.go_down();
        engine.go_down();
        engine.come_back();
        assert!(unread.next().await.unwrap().unwrap_err().is_unreachable());
    }
}
