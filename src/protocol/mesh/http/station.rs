//! A node at its post: what it does with a frame that came, from its bytes to the answer.
//!
//! Called by `server.rs` and `stream.rs`, once a frame. The processing itself is [`process`]; here is what must do I/O: the replay
//! memory, the attachments' folder, the handler, the next node. Must not: answer a fault with a fault, follow an address that a frame
//! names, or hold a lock while it waits.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::info;
use uuid::Uuid;

use super::super::fault::{Code, Fault};
use super::super::frame::{Frame, Header};
use super::super::limits::Limits;
use super::super::node::{Node, Place};
use super::super::process::{Outcome, Processed, Relayed, process};
use super::super::replay::Seen;
use super::super::rules;
use super::super::version::Versions;
use super::client::{Client, ClientError, Reply};
use super::handler::{self, Handler};
use super::multipart::{self, Attachment};
use super::status::{self, NEXT_HOP_ANSWER, NEXT_HOP_REFUSED, NEXT_HOP_UNREACHABLE, NO_ROUTE, STORE_FAILED};

/// What a frame is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The frame; empty where the frame that came told a fault, which nobody answers with another.
    pub content: Bytes,
}

/// What the next node answered, and the fault in it if it is one.
type Relay = (Answer, Option<Box<Fault>>);

/// The nodes behind an intermediary.
#[derive(Default)]
pub struct Hops {
    /// Where everything goes that has no way of its own.
    pub otherwise: Option<Client>,
    /// The ways to nodes, by their URIs.
    pub ways: BTreeMap<String, Client>,
}

/// A node, and what it works with.
pub struct Station {
    /// What does not change of the node.
    node: Node,
    /// The node with what it remembers.
    live: RwLock<Node>,
    hops: Hops,
    handler: Option<Handler>,
    attachments: Option<PathBuf>,
}

impl Station {
    /// A node that acknowledges what reaches it, or relays it on these ways.
    pub fn new(node: Node, hops: Hops) -> Self {
        // The binding understands its own block at every node; whoever it is for checks it.
        let node = node.reinserting([multipart::BLOCK]);
        Self { live: RwLock::new(node.clone()), node, hops, handler: None, attachments: None }
    }

    /// The same with a program that answers.
    pub fn handled_by(mut self, handler: Handler) -> Self {
        self.handler = Some(handler);
        self
    }

    /// The same keeping the attachments that reach it in a folder, under their hashes.
    pub fn keeping_attachments(mut self, folder: PathBuf) -> Self {
        self.attachments = Some(folder);
        self
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The answer that is a fault of this node.
    pub fn refusal(&self, fault: Box<Fault>) -> Answer {
        let fault = self.node.sign_off(fault);
        Answer { status: status::status(&fault), content: fault.frame().to_bytes().into() }
    }

    /// Takes a frame, and answers it.
    pub async fn take(&self, bytes: Bytes, attachments: Vec<Attachment>) -> Answer {
        let (tells_fault, header, result) = match Frame::parse_as(&bytes, &self.node.limits, &self.node.versions) {
            // What only looks like a fault is answered as what it is: malformed.
            Ok(frame) => (
                Fault::read(&frame).is_ok_and(|fault| fault.is_some()),
                frame.header.clone(),
                self.carry_out(frame, attachments).await,
            ),
            Err(fault) => (false, Header::default(), Err(fault)),
        };
        match result {
            Ok(answer) => answer,
            Err(mut fault) => {
                fault.relate(&header);
                info!(node = self.node.uri(), %fault, "refused");
                let answer = self.refusal(fault);
                if tells_fault { Answer { content: Bytes::new(), ..answer } } else { answer }
            }
        }
    }

    async fn carry_out(&self, frame: Frame, attachments: Vec<Attachment>) -> Result<Answer, Box<Fault>> {
        let now = Timestamp::now();
        let checked = multipart::check(&frame, &attachments);
        let is_listed = frame.header.block(multipart::BLOCK).is_some();
        // Frames are processed beside each other; only remembering them is one after the other.
        let outcome = process(&self.live(), frame, now);
        let (seen, processed) = match &outcome {
            Outcome::Processed(processed) => (processed.seen.clone(), &processed.processed[..]),
            Outcome::Relayed(relayed) => (relayed.seen.clone(), &relayed.processed[..]),
            // The model's own fault comes before what this binding has to say (3.1, 4).
            Outcome::Fault(_) => (Vec::new(), &[][..]),
        };
        // A block for others is left alone (2.3); what no block lists at all is nobody's.
        if processed.iter().any(|name| name == multipart::BLOCK)
            || (!is_listed && !matches!(outcome, Outcome::Fault(_)))
        {
            checked?;
        }
        self.remember(&seen, now)?;
        // At the end, what is listed for others is not taken either.
        let own = if processed.iter().any(|name| name == multipart::BLOCK) { &attachments[..] } else { &[] };
        let result = match outcome {
            Outcome::Processed(processed) => self.processed(*processed, own).await.map(|answer| (answer, None)),
            Outcome::Relayed(relayed) => self.relayed(*relayed, &attachments).await,
            Outcome::Fault(fault) => Err(fault),
        };
        let fault = result.as_ref().map_or_else(Some, |(_, fault)| fault.as_ref());
        if fault.is_some_and(|fault| may_come_again(fault)) {
            let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
            seen.iter().for_each(|seen| live.memory.forget(seen));
        }
        result.map(|(answer, _)| answer)
    }

    fn live(&self) -> RwLockReadGuard<'_, Node> {
        // Each change of its memory is whole, so what a panic left is good.
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a frame, unless a copy of it was faster.
    fn remember(&self, seen: &[Seen], now: Timestamp) -> Result<(), Box<Fault>> {
        if seen.is_empty() {
            return Ok(());
        }
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().any(|seen| live.memory.has(&seen.sender, &seen.id, now)) {
            return Err(Fault::security("Replay", "the message was here before"));
        }
        live.memory.remember(seen.iter().cloned(), now);
        Ok(())
    }

    /// At the end of the path.
    async fn processed(&self, processed: Processed, attachments: &[Attachment]) -> Result<Answer, Box<Fault>> {
        let Processed { frame, processed, fault, sender, intact, notes, .. } = processed;
        info!(node = self.node.uri(), message = frame.header.message_id(), ?processed, ?sender, ?notes, "processed");
        if let Some(folder) = &self.attachments {
            for attachment in attachments {
                keep(folder, attachment).await.map_err(|error| {
                    tracing::error!(%error, folder = %folder.display(), "an attachment cannot be kept");
                    Fault::receiver(STORE_FAILED, "an attachment cannot be kept")
                })?;
            }
        }
        // Whose message it is, is said of what is as they sent it (7.0, rule 4), and not of a name alone.
        let sender = sender.filter(|_| intact);
        let body = match &self.handler {
            // A fault that is told is taken note of; there is nothing to be done for it.
            Some(handler) if fault.is_none() => {
                let id = frame.header.message_id().unwrap_or_default().to_owned();
                let variables = [
                    ("LONGSHORE_MESH_NODE", self.node.uri().to_owned()),
                    ("LONGSHORE_MESH_MESSAGE_ID", id),
                    ("LONGSHORE_MESH_SENDER", sender.unwrap_or_default()),
                ];
                let body = handler.answer(&frame.to_bytes(), &variables, &self.node.limits).await?;
                // What is answered is a frame for whoever gets it, so it is read as one.
                let answer = Frame::new(body.clone()).to_bytes();
                Frame::parse(&answer, &self.node.limits).map_err(|fault| handler::no_frame(&fault))?;
                body
            }
            _ => acknowledgment(self, &frame, &processed, sender, attachments),
        };
        let mut answer = Frame::new(body);
        answer.version.clone_from(&frame.version);
        answer.header.set("messageId", json!(Uuid::new_v4().to_string()))?;
        for (key, id) in [("relatesTo", frame.header.message_id()), ("traceId", frame.header.trace_id())] {
            if let Some(id) = id {
                answer.header.set(key, json!(id))?;
            }
        }
        let told = Fault::read(&answer).map_err(|fault| {
            Fault::receiver(
                status::HANDLER_FAILED,
                format!("the handler answered with a fault that is none: {}", fault.text()),
            )
        })?;
        match told {
            Some(fault) => Err(fault),
            None => Ok(Answer { status: StatusCode::OK, content: answer.to_bytes().into() }),
        }
    }

    /// On the path: the next node's answer goes back the way that the frame came.
    async fn relayed(&self, relayed: Relayed, attachments: &[Attachment]) -> Result<Relay, Box<Fault>> {
        let Relayed { frame, next, processed, removed, notes, .. } = relayed;
        let way = next.as_ref().and_then(|uri| self.hops.ways.get(uri)).or(self.hops.otherwise.as_ref());
        let hop = way.ok_or_else(|| {
            let text = next.as_ref().map_or("the frame does not say where it goes".to_owned(), |uri| {
                format!("there is no way from here to `{}`", crate::protocol::acp::fields::shown(uri))
            });
            Fault::receiver(NO_ROUTE, text)
        })?;
        let to = hop.address().to_string();
        info!(node = self.node.uri(), message = frame.header.message_id(), to, ?processed, ?removed, ?notes, "relayed");
        let reply = hop.send(frame.to_bytes().into(), attachments).await.map_err(|error| unreachable(&error))?;
        give_back(reply, frame.is_fault(), &self.node.limits, &self.node.versions)
    }
}

/// Why the next node did not answer. Where it is said to be is this node's own business.
fn unreachable(error: &ClientError) -> Box<Fault> {
    tracing::warn!(?error, "the next node did not answer");
    let (subcode, text) = match error {
        ClientError::TooLong { limit, .. } => {
            (NEXT_HOP_ANSWER, format!("the next node answered with more than {limit} bytes"))
        }
        ClientError::Late { patience, .. } => {
            (NEXT_HOP_UNREACHABLE, format!("the next node did not answer within {} s", patience.as_secs_f64()))
        }
        ClientError::NoAnswer { .. } => (NEXT_HOP_UNREACHABLE, "the next node did not answer".to_owned()),
        _ => (NEXT_HOP_UNREACHABLE, "the next node cannot be reached".to_owned()),
    };
    Fault::receiver(subcode, text)
}

/// What is given back of the next node's answer: the frame as it is, or a fault without its detail (5.4.5, rule 4).
fn give_back(reply: Reply, told_fault: bool, limits: &Limits, versions: &Versions) -> Result<Relay, Box<Fault>> {
    if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&reply.status) {
        return Err(Fault::receiver(NEXT_HOP_REFUSED, "the next node takes nothing from this one"));
    }
    if told_fault && reply.content.is_empty() {
        return Ok((Answer { status: reply.status, content: reply.content }, None));
    }
    let none = |_| Fault::receiver(NEXT_HOP_ANSWER, "what the next node answered is no frame");
    let mut frame = Frame::parse_as(&reply.content, limits, versions).map_err(none)?;
    let Some(fault) = Fault::read(&frame).map_err(none)? else {
        return Ok((Answer { status: StatusCode::OK, content: reply.content }, None));
    };
    if let Some(Value::Object(told)) = frame.body.get_mut("fault") {
        told.shift_remove("detail");
    }
    // Detail is gone, and with it nothing that a status is made of. A code that HTTP gave occasion to belongs to the hop before.
    let status = if fault.code == Code::Sender { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
    Ok((Answer { status, content: frame.to_bytes().into() }, Some(fault)))
}

/// Whether a message that ended so may be sent again as it is (5.4.6, rule 4). One that a check of security refused may not.
fn may_come_again(fault: &Fault) -> bool {
    let refused = fault.subcode.as_deref().is_some_and(|subcode| subcode.starts_with(rules::SECURITY_VIOLATION));
    fault.code.is_retryable() && !refused
}

/// What an ultimate receiver without a handler answers.
fn acknowledgment(
    station: &Station,
    frame: &Frame,
    processed: &[String],
    sender: Option<String>,
    attachments: &[Attachment],
) -> Map<String, Value> {
    let stored = station.attachments.is_some();
    let attached = attachments.iter().map(|attachment| {
        json!({"cid": attachment.cid, "size": attachment.data.len(), "sha256": attachment.sha256(), "stored": stored})
    });
    let mut inner = Map::new();
    inner.insert("node".to_owned(), json!(station.node.uri()));
    inner.extend(frame.header.message_id().map(|id| ("messageId".to_owned(), json!(id))));
    inner.extend(sender.map(|sender| ("sender".to_owned(), json!(sender))));
    inner.insert("processed".to_owned(), json!(processed));
    if !attachments.is_empty() {
        inner.insert("attachments".to_owned(), attached.collect());
    }
    let mut body = Map::new();
    body.insert("acknowledgment".to_owned(), Value::Object(inner));
    body
}

/// Keeps an attachment under its hash: written aside, and whole once it has its name.
async fn keep(folder: &Path, attachment: &Attachment) -> io::Result<()> {
    let path = folder.join(attachment.sha256());
    if tokio::fs::try_exists(&path).await? {
        return Ok(());
    }
    let aside = folder.join(format!(".{}", Uuid::new_v4().simple()));
    let mut kept = tokio::fs::write(&aside, &attachment.data).await;
    if kept.is_ok() {
        kept = tokio::fs::rename(&aside, &path).await;
    }
    if kept.is_err() {
        let _ = tokio::fs::remove_file(&aside).await;
    }
    kept
}

/// What a node says of itself.
pub(super) fn describe(node: &Node) -> Value {
    let place = match node.place() {
        Place::Ultimate => "ultimateReceiver",
        Place::Forwarding => "forwardingIntermediary",
        Place::Active => "activeIntermediary",
    };
    let roles: Vec<&str> = node.roles().iter().map(super::super::role::Role::token).collect();
    let modules: Vec<Value> = node
        .modules
        .iter()
        .map(|module| module.about())
        .map(|about| json!({"uri": about.uri, "features": about.features, "blocks": about.blocks}))
        .collect();
    json!({
        "uri": node.uri(), "place": place, "roles": roles, "versions": node.versions.all(),
        "features": super::FEATURES, "modules": modules, "understands": node.understands.keys().collect::<Vec<_>>(),
    })
}
