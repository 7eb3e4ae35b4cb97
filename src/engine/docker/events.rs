//! Whether the daemon is there, and what it says of its own accord: the events of containers.
//!
//! The daemon keeps the last 256 events in memory, of all containers together, and none over a restart; `since` brings what is
//! left of them. So events only make others look sooner.

use std::collections::HashMap;

use bollard::models::EventMessage;
use bollard::query_parameters as query;
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::super::{EngineEvent, EngineEventKind, EngineResult, EngineStream, PING_TIMEOUT};
use super::DockerEngine;
use super::error_mapping::{self, CallContext};

/// Events that wait to be taken.
const EVENT_QUEUE_LEN: usize = 64;

impl DockerEngine {
    /// The smallest call there is.
    pub(super) async fn ping_daemon(&self) -> EngineResult<()> {
        let about = CallContext { operation: "asking whether the engine is there", subject: "" };
        match timeout(PING_TIMEOUT, self.client.ping()).await {
            Ok(answer) => answer.map(drop).map_err(|error| error_mapping::from_bollard(error, about, &self.endpoint)),
            Err(_) => Err(error_mapping::ping_timed_out(&self.endpoint, PING_TIMEOUT)),
        }
    }

    /// The events of the containers with this label. A task reads them: bollard connects when it is first asked for an item,
    /// and the daemon forgets what nobody fetches.
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
        let endpoint = self.endpoint.clone();
        let about = CallContext { operation: "listening for events", subject: "" };
        let events = self.client.events(Some(options)).filter_map(move |message| {
            std::future::ready(match message {
                Ok(message) => parse_event(message).map(Ok),
                Err(error) => Some(Err(error_mapping::from_bollard(error, about, &endpoint))),
            })
        });
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE_LEN);
        let reading = async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                let over = event.is_err();
                if sender.send(event).await.is_err() || over {
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

/// An event in our words; none where it does not say what happened to whom.
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
        // Without the number it is not known what happened, but that something did.
        assert_eq!(event_kind("die", "{}"), EngineEventKind::Other("die".to_owned()));
    }

    #[test]
    fn incomplete_messages_are_not_events() {
        assert_eq!(parse_json("{}"), None);
        assert_eq!(parse_json(r#"{"Action":"die","Actor":{"ID":"abc"}}"#), None);
        assert_eq!(parse_json(r#"{"Action":"die","Actor":{},"time":1}"#), None);
    }
}
