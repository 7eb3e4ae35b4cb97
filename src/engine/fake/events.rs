//! What happened to the containers of the fake engine, told as [`Engine::events`](super::super::Engine::events) tells it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::super::{EngineEvent, EngineEventKind, EngineStream};
use super::FakeEngine;
use crate::ids::ContainerId;

/// Everything that happened, in order, each with the labels of its container. Clones are the same one.
#[derive(Clone)]
pub(super) struct FakeEventLog {
    entries: Arc<watch::Sender<Vec<LoggedEvent>>>,
}

#[derive(Clone)]
struct LoggedEvent {
    event: EngineEvent,
    labels: Arc<BTreeMap<String, String>>,
}

/// Where what happens to one container is written down.
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

    /// The entries since then of the containers with this label, and all that come.
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
    /// Tells something of a container that did not happen, or happened unseen: events are hints.
    pub fn emit_event(&self, name: &str, kind: EngineEventKind) {
        let state = self.state();
        let container = state.containers.values().find(|it| it.spec.name == name).expect("a container of that name");
        container.events.record(kind);
    }

    /// Forgets all events, as a daemon that is started again.
    pub fn forget_events(&self) {
        let now = Timestamp::now();
        // Readers count entries: none is taken away, they are too old for every question.
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

    use super::super::super::{ContainerSpec, Engine, EngineError, Signal};
    use super::*;

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
        // Twice is once.
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
        // What nobody reads breaks too.
        let mut unread = engine.logs(&id, true).await.unwrap();
        engine.go_down();
        engine.go_down();
        engine.come_back();
        assert!(unread.next().await.unwrap().unwrap_err().is_unreachable());
    }
}
