//! The ping, and the events of containers.
//!
//! The daemon keeps the last 256 events of all containers in memory, and none across a restart; `since` returns what is left
//! of them. So events are hints to look sooner.

use std::collections::HashMap;

use bollard::models::EventMessage;
use bollard::query_parameters as query;
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::client::DockerEngine;
use super::error_mapping;
use crate::engine::{EngineEvent, EngineEventKind, EngineResult, EngineStream, PING_TIMEOUT};

/// Events that wait for the reader.
const EVENT_QUEUE_LEN: usize = 64;

impl DockerEngine {
    pub(super) async fn ping_daemon(&self) -> EngineResult<()> {
        match timeout(PING_TIMEOUT, self.client.ping()).await {
            Ok(answer) => answer.map(drop).map_err(|error| self.map_error("pinging the engine", "", error)),
            Err(_) => Err(error_mapping::ping_timed_out(&self.endpoint, PING_TIMEOUT)),
        }
    }

    /// The events of the containers with this label. A task reads them, because bollard connects only when the first item is
    /// polled, and the daemon drops events without a reader.
    pub(super) async fn event_stream(
        &self,
        label: &str,
        value: &str,
        since: Timestamp,
    ) -> EngineResult<EngineStream<EngineEvent>> {
        self.ping_daemon().await?;
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("label".to_owned(), vec![format!("{label}={value}")]),
        ]);
        let since = format!("{}.{:09}", since.as_second(), since.subsec_nanosecond());
        let options = query::EventsOptionsBuilder::default().since(&since).filters(&filters).build();
        let engine = self.clone();
        let events = self.client.events(Some(options)).filter_map(move |message| {
            std::future::ready(match message {
                Ok(message) => parse_event(message).map(Ok),
                Err(error) => Some(Err(engine.map_error("listening for events", "", error))),
            })
        });
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE_LEN);
        let reading = async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                let is_last = event.is_err();
                if sender.send(event).await.is_err() || is_last {
                    break;
                }
            }
        };
        let reading = AbortOnDropHandle::new(tokio::spawn(reading));
        Ok(Box::pin(futures::stream::unfold((receiver, reading), |(mut receiver, reading)| async move {
            Some((receiver.recv().await?, (receiver, reading)))
        })))
    }
}

/// Parses an event. `None` if it lacks the action, the container or the time.
fn parse_event(message: EventMessage) -> Option<EngineEvent> {
    let action = message.action?;
    let actor = message.actor?;
    let attributes = actor.attributes.unwrap_or_default();
    let number = |key: &str| attributes.get(key).and_then(|text| text.parse::<i64>().ok());
    let at = match (message.time_nano, message.time) {
        (Some(nanoseconds), _) => Timestamp::from_nanosecond(nanoseconds.into()).ok()?,
        (None, Some(seconds)) => Timestamp::from_second(seconds).ok()?,
        (None, None) => return None,
    };
    let kind = match action.as_str() {
        "start" => EngineEventKind::Started,
        "die" if let Some(code) = number("exitCode") => EngineEventKind::Died { code },
        "oom" => EngineEventKind::OutOfMemory,
        "kill" if let Some(Ok(signal)) = number("signal").map(i32::try_from) => EngineEventKind::Killed { signal },
        "pause" => EngineEventKind::Paused,
        "unpause" => EngineEventKind::Unpaused,
        "destroy" => EngineEventKind::Removed,
        _ => EngineEventKind::Other(action),
    };
    Some(EngineEvent { at, container: actor.id?, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_json(json: &str) -> Option<EngineEvent> {
        parse_event(serde_json::from_str(json).expect("an event"))
    }

    fn event_kind(action: &str, attributes: &str) -> EngineEventKind {
        let json = format!(
            r#"{{"Type":"container","Action":"{action}","Actor":{{"ID":"abc","Attributes":{attributes}}},"time":5,"timeNano":5000000007}}"#
        );
        let event = parse_json(&json).expect("of a container");
        assert_eq!((event.container.as_str(), event.at.as_nanosecond()), ("abc", 5_000_000_007));
        event.kind
    }

    #[test]
    fn events_are_parsed() {
        assert_eq!(event_kind("die", r#"{"exitCode":"137"}"#), EngineEventKind::Died { code: 137 });
        assert_eq!(event_kind("kill", r#"{"signal":"15"}"#), EngineEventKind::Killed { signal: 15 });
        assert_eq!(event_kind("oom", "{}"), EngineEventKind::OutOfMemory);
        assert_eq!(event_kind("destroy", "{}"), EngineEventKind::Removed);
        assert_eq!(event_kind("start", "null"), EngineEventKind::Started);
        assert_eq!(event_kind("exec_die", "{}"), EngineEventKind::Other("exec_die".to_owned()));
        // Without the number, only the action is known.
        assert_eq!(event_kind("die", "{}"), EngineEventKind::Other("die".to_owned()));
    }

    #[test]
    fn incomplete_messages_are_not_events() {
        assert_eq!(parse_json("{}"), None);
        assert_eq!(parse_json(r#"{"Action":"die","Actor":{"ID":"abc"}}"#), None);
        assert_eq!(parse_json(r#"{"Action":"die","Actor":{},"time":1}"#), None);
    }
}
