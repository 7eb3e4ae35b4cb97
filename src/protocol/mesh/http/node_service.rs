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

use super::super::fault::{Fault, FaultCode};
use super::super::frame::{Frame, Header};
use super::super::limits::FrameLimits;
use super::super::node::{Node, NodeKind};
use super::super::process::{ProcessOutcome, ProcessedFrame, RelayedFrame, process};
use super::super::replay::ReplayEntry;
use super::super::rules;
use super::super::version::SupportedVersions;
use super::client::{Client, ClientError, ClientResponse};
use super::handler::{self, Handler};
use super::multipart::{self, Attachment};
use super::status::{self, NEXT_HOP_ANSWER, NEXT_HOP_REFUSED, NEXT_HOP_UNREACHABLE, NO_ROUTE, STORE_FAILED};

/// What a frame is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The frame; empty where the frame that came told a fault, which nobody answers with another.
    pub body: Bytes,
}

/// What the next node answered, and the fault in it if it is one.
type RelayedResponse = (NodeResponse, Option<Box<Fault>>);

/// The nodes behind an intermediary.
#[derive(Default)]
pub struct NextHops {
    /// Where everything goes that has no way of its own.
    pub default_hop: Option<Client>,
    /// The ways to nodes, by their URIs.
    pub by_uri: BTreeMap<String, Client>,
}

/// A node, and what it works with.
pub struct NodeService {
    /// What does not change of the node.
    node: Node,
    /// The node with what it remembers.
    live_node: RwLock<Node>,
    next_hops: NextHops,
    handler: Option<Handler>,
    attachment_dir: Option<PathBuf>,
}

impl NodeService {
    /// A node that acknowledges what reaches it, or relays it on these ways.
    pub fn new(node: Node, hops: NextHops) -> Self {
        // The binding understands its own block at every node; whoever it is for checks it.
        let node = node.with_reinserted_blocks([multipart::ATTACHMENTS_BLOCK]);
        Self { live_node: RwLock::new(node.clone()), node, next_hops: hops, handler: None, attachment_dir: None }
    }

    /// The same with a program that answers.
    pub fn with_handler(mut self, handler: Handler) -> Self {
        self.handler = Some(handler);
        self
    }

    /// The same keeping the attachments that reach it in a folder, under their hashes.
    pub fn with_attachment_dir(mut self, folder: PathBuf) -> Self {
        self.attachment_dir = Some(folder);
        self
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The answer that is a fault of this node.
    pub fn fault_response(&self, fault: Box<Fault>) -> NodeResponse {
        let fault = self.node.attribute_fault(fault);
        NodeResponse { status: status::status_for_fault(&fault), body: fault.to_frame().to_bytes().into() }
    }

    /// Takes a frame, and answers it.
    pub async fn handle_frame(&self, bytes: Bytes, attachments: Vec<Attachment>) -> NodeResponse {
        let (tells_fault, header, result) =
            match Frame::parse_with_versions(&bytes, &self.node.limits, &self.node.versions) {
                // What only looks like a fault is answered as what it is: malformed.
                Ok(frame) => (
                    Fault::from_frame(&frame).is_ok_and(|fault| fault.is_some()),
                    frame.header.clone(),
                    self.process_frame(frame, attachments).await,
                ),
                Err(fault) => (false, Header::default(), Err(fault)),
            };
        match result {
            Ok(answer) => answer,
            Err(mut fault) => {
                fault.set_message_ids(&header);
                info!(node = self.node.uri(), %fault, "refused");
                let answer = self.fault_response(fault);
                if tells_fault { NodeResponse { body: Bytes::new(), ..answer } } else { answer }
            }
        }
    }

    async fn process_frame(&self, frame: Frame, attachments: Vec<Attachment>) -> Result<NodeResponse, Box<Fault>> {
        let now = Timestamp::now();
        let checked = multipart::check_attachments(&frame, &attachments);
        let is_listed = frame.header.block(multipart::ATTACHMENTS_BLOCK).is_some();
        // Frames are processed beside each other; only remembering them is one after the other.
        let outcome = process(&self.live_node(), frame, now);
        let (seen, processed) = match &outcome {
            ProcessOutcome::Processed(processed) => (processed.replay_entries.clone(), &processed.processed_blocks[..]),
            ProcessOutcome::Relayed(relayed) => (relayed.replay_entries.clone(), &relayed.processed_blocks[..]),
            // The model's own fault comes before what this binding has to say (3.1, 4).
            ProcessOutcome::Fault(_) => (Vec::new(), &[][..]),
        };
        // A block for others is left alone (2.3); what no block lists at all is nobody's.
        if processed.iter().any(|name| name == multipart::ATTACHMENTS_BLOCK)
            || (!is_listed && !matches!(outcome, ProcessOutcome::Fault(_)))
        {
            checked?;
        }
        self.remember_unseen(&seen, now)?;
        // At the end, what is listed for others is not taken either.
        let own =
            if processed.iter().any(|name| name == multipart::ATTACHMENTS_BLOCK) { &attachments[..] } else { &[] };
        let result = match outcome {
            ProcessOutcome::Processed(processed) => {
                self.respond_to_processed(*processed, own).await.map(|answer| (answer, None))
            }
            ProcessOutcome::Relayed(relayed) => self.forward_to_next_hop(*relayed, &attachments).await,
            ProcessOutcome::Fault(fault) => Err(fault),
        };
        let fault = result.as_ref().map_or_else(Some, |(_, fault)| fault.as_ref());
        if fault.is_some_and(|fault| is_resendable(fault)) {
            let mut live = self.live_node.write().unwrap_or_else(PoisonError::into_inner);
            seen.iter().for_each(|seen| live.replay_memory.forget(seen));
        }
        result.map(|(answer, _)| answer)
    }

    fn live_node(&self) -> RwLockReadGuard<'_, Node> {
        // Each change of its memory is whole, so what a panic left is good.
        self.live_node.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a frame, unless a copy of it was faster.
    fn remember_unseen(&self, seen: &[ReplayEntry], now: Timestamp) -> Result<(), Box<Fault>> {
        if seen.is_empty() {
            return Ok(());
        }
        let mut live = self.live_node.write().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().any(|seen| live.replay_memory.contains(&seen.sender, &seen.id, now)) {
            return Err(Fault::security_violation("Replay", "the message was here before"));
        }
        live.replay_memory.remember(seen.iter().cloned(), now);
        Ok(())
    }

    /// At the end of the path.
    async fn respond_to_processed(
        &self,
        processed: ProcessedFrame,
        attachments: &[Attachment],
    ) -> Result<NodeResponse, Box<Fault>> {
        let ProcessedFrame { frame, processed_blocks: processed, fault, sender, is_intact: intact, notes, .. } =
            processed;
        info!(node = self.node.uri(), message = frame.header.message_id(), ?processed, ?sender, ?notes, "processed");
        if let Some(folder) = &self.attachment_dir {
            for attachment in attachments {
                store_attachment(folder, attachment).await.map_err(|error| {
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
                let body = handler.run(&frame.to_bytes(), &variables, &self.node.limits).await?;
                // What is answered is a frame for whoever gets it, so it is read as one.
                let answer = Frame::new(body.clone()).to_bytes();
                Frame::parse(&answer, &self.node.limits).map_err(|fault| handler::invalid_output(&fault))?;
                body
            }
            _ => acknowledgment_body(self, &frame, &processed, sender, attachments),
        };
        let mut answer = Frame::new(body);
        answer.version.clone_from(&frame.version);
        answer.header.set("messageId", json!(Uuid::new_v4().to_string()))?;
        for (key, id) in [("relatesTo", frame.header.message_id()), ("traceId", frame.header.trace_id())] {
            if let Some(id) = id {
                answer.header.set(key, json!(id))?;
            }
        }
        let told = Fault::from_frame(&answer).map_err(|fault| {
            Fault::receiver(
                status::HANDLER_FAILED,
                format!("the handler answered with a fault that is none: {}", fault.reason_text()),
            )
        })?;
        match told {
            Some(fault) => Err(fault),
            None => Ok(NodeResponse { status: StatusCode::OK, body: answer.to_bytes().into() }),
        }
    }

    /// On the path: the next node's answer goes back the way that the frame came.
    async fn forward_to_next_hop(
        &self,
        relayed: RelayedFrame,
        attachments: &[Attachment],
    ) -> Result<RelayedResponse, Box<Fault>> {
        let RelayedFrame { frame, next_hop: next, processed_blocks: processed, removed_blocks: removed, notes, .. } =
            relayed;
        let way = next.as_ref().and_then(|uri| self.next_hops.by_uri.get(uri)).or(self.next_hops.default_hop.as_ref());
        let hop = way.ok_or_else(|| {
            let text = next.as_ref().map_or("the frame does not say where it goes".to_owned(), |uri| {
                format!("there is no way from here to `{}`", crate::protocol::acp::fields::excerpt(uri))
            });
            Fault::receiver(NO_ROUTE, text)
        })?;
        let to = hop.address().to_string();
        info!(node = self.node.uri(), message = frame.header.message_id(), to, ?processed, ?removed, ?notes, "relayed");
        let reply = hop.send(frame.to_bytes().into(), attachments).await.map_err(|error| next_hop_fault(&error))?;
        relay_response(reply, frame.is_fault(), &self.node.limits, &self.node.versions)
    }
}

/// Why the next node did not answer. Where it is said to be is this node's own business.
fn next_hop_fault(error: &ClientError) -> Box<Fault> {
    tracing::warn!(?error, "the next node did not answer");
    let (subcode, text) = match error {
        ClientError::ResponseTooLarge { limit, .. } => {
            (NEXT_HOP_ANSWER, format!("the next node answered with more than {limit} bytes"))
        }
        ClientError::Timeout { timeout: patience, .. } => {
            (NEXT_HOP_UNREACHABLE, format!("the next node did not answer within {} s", patience.as_secs_f64()))
        }
        ClientError::NoResponse { .. } => (NEXT_HOP_UNREACHABLE, "the next node did not answer".to_owned()),
        _ => (NEXT_HOP_UNREACHABLE, "the next node cannot be reached".to_owned()),
    };
    Fault::receiver(subcode, text)
}

/// What is given back of the next node's answer: the frame as it is, or a fault without its detail (5.4.5, rule 4).
fn relay_response(
    reply: ClientResponse,
    told_fault: bool,
    limits: &FrameLimits,
    versions: &SupportedVersions,
) -> Result<RelayedResponse, Box<Fault>> {
    if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&reply.status) {
        return Err(Fault::receiver(NEXT_HOP_REFUSED, "the next node takes nothing from this one"));
    }
    if told_fault && reply.body.is_empty() {
        return Ok((NodeResponse { status: reply.status, body: reply.body }, None));
    }
    let none = |_| Fault::receiver(NEXT_HOP_ANSWER, "what the next node answered is no frame");
    let mut frame = Frame::parse_with_versions(&reply.body, limits, versions).map_err(none)?;
    let Some(fault) = Fault::from_frame(&frame).map_err(none)? else {
        return Ok((NodeResponse { status: StatusCode::OK, body: reply.body }, None));
    };
    if let Some(Value::Object(told)) = frame.body.get_mut("fault") {
        told.shift_remove("detail");
    }
    // Detail is gone, and with it nothing that a status is made of. A code that HTTP gave occasion to belongs to the hop before.
    let status =
        if fault.code == FaultCode::Sender { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
    Ok((NodeResponse { status, body: frame.to_bytes().into() }, Some(fault)))
}

/// Whether a message that ended so may be sent again as it is (5.4.6, rule 4). One that a check of security refused may not.
fn is_resendable(fault: &Fault) -> bool {
    let refused = fault.subcode.as_deref().is_some_and(|subcode| subcode.starts_with(rules::SECURITY_VIOLATION));
    fault.code.is_retryable() && !refused
}

/// What an ultimate receiver without a handler answers.
fn acknowledgment_body(
    station: &NodeService,
    frame: &Frame,
    processed: &[String],
    sender: Option<String>,
    attachments: &[Attachment],
) -> Map<String, Value> {
    let stored = station.attachment_dir.is_some();
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
async fn store_attachment(folder: &Path, attachment: &Attachment) -> io::Result<()> {
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
pub(super) fn describe_node(node: &Node) -> Value {
    let place = match node.kind() {
        NodeKind::UltimateReceiver => "ultimateReceiver",
        NodeKind::ForwardingIntermediary => "forwardingIntermediary",
        NodeKind::ActiveIntermediary => "activeIntermediary",
    };
    let roles: Vec<&str> = node.roles().iter().map(super::super::role::Role::token).collect();
    let modules: Vec<Value> = node
        .modules
        .iter()
        .map(|module| module.descriptor())
        .map(|about| json!({"uri": about.uri, "features": about.features, "blocks": about.blocks}))
        .collect();
    json!({
        "uri": node.uri(), "place": place, "roles": roles, "versions": node.versions.all(),
        "features": super::BINDING_FEATURES, "modules": modules, "understands": node.understood_blocks.keys().collect::<Vec<_>>(),
    })
}
