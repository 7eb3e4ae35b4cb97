//! A node in operation: what it does with a received frame, from bytes to the answer.
//!
//! Adds the I/O to [`process`]: replay memory, stored attachments, handler, next node. Must not: answer a fault with a fault, connect to an
//! address from a frame, or hold a lock across an await.

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

use super::super::fault::Fault;
use super::super::frame::{Frame, FrameHeader};
use super::super::node::Node;
use super::super::process::{ProcessOutcome, ProcessedFrame, process};
use super::super::relay::RelayedFrame;
use super::super::replay::ReplayEntry;
use super::super::role::Role;
use super::super::rules;
use super::attachments::{ATTACHMENTS_BLOCK, Attachment, check_attachments};
use super::binding::BINDING_FEATURES;
use super::client::{Client, ClientError};
use super::handler::{self, Handler};
use super::response::FrameResponse;
use super::status::{self, NEXT_HOP_ANSWER, NEXT_HOP_REFUSED, NEXT_HOP_UNREACHABLE, NO_ROUTE, STORE_FAILED};
use crate::json::text::excerpt;

/// Answer of the next node, and the fault that it carries.
type RelayedResponse = (FrameResponse, Option<Box<Fault>>);

/// Next nodes of an intermediary.
#[derive(Default)]
pub struct NextHops {
    /// For frames without a route of their own.
    pub default_hop: Option<Client>,
    /// Routes by node URI.
    pub by_uri: BTreeMap<String, Client>,
}

pub struct NodeService {
    /// The node without its replay memory: never locked.
    node: Node,
    /// The node with its replay memory.
    live_node: RwLock<Node>,
    next_hops: NextHops,
    handler: Option<Handler>,
    attachment_dir: Option<PathBuf>,
}

impl NodeService {
    pub fn new(node: Node, next_hops: NextHops) -> Self {
        // Every node understands the binding's own block; the nodes of its role check it.
        let node = node.with_reinserted_blocks([ATTACHMENTS_BLOCK]);
        Self { live_node: RwLock::new(node.clone()), node, next_hops, handler: None, attachment_dir: None }
    }

    /// Answers with a handler instead of an acknowledgment.
    pub fn with_handler(mut self, handler: Handler) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Stores attachments that reach this node under their hashes.
    pub fn with_attachment_dir(mut self, dir: PathBuf) -> Self {
        self.attachment_dir = Some(dir);
        self
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Answers with a fault of this node.
    pub fn fault_response(&self, fault: Box<Fault>) -> FrameResponse {
        let fault = self.node.attribute_fault(fault);
        FrameResponse { status: status::status_for_fault(&fault), body: fault.to_frame().to_bytes().into() }
    }

    /// Processes a frame and answers it.
    pub async fn handle_frame(&self, bytes: Bytes, attachments: Vec<Attachment>) -> FrameResponse {
        let (carries_fault, header, result) =
            match Frame::parse_with_versions(&bytes, &self.node.limits, &self.node.versions) {
                // An invalid fault is not a fault, and is answered as malformed.
                Ok(frame) => (
                    Fault::from_frame(&frame).is_ok_and(|fault| fault.is_some()),
                    frame.header.clone(),
                    self.process_frame(frame, attachments).await,
                ),
                Err(fault) => (false, FrameHeader::default(), Err(fault)),
            };
        result.unwrap_or_else(|fault| {
            let fault = fault.with_message_ids(header.message_id(), header.trace_id());
            info!(node = self.node.uri(), %fault, "refused");
            let answer = self.fault_response(fault);
            if carries_fault { FrameResponse { body: Bytes::new(), ..answer } } else { answer }
        })
    }

    async fn process_frame(&self, frame: Frame, attachments: Vec<Attachment>) -> Result<FrameResponse, Box<Fault>> {
        let now = Timestamp::now();
        let checked = check_attachments(&frame, &attachments);
        let is_listed = frame.header.block(ATTACHMENTS_BLOCK).is_some();
        // Frames are processed in parallel; only the replay memory needs the write lock.
        let outcome = process(&self.live_node(), frame, now);
        let entries = outcome.record().map(|record| record.replay_entries.clone()).unwrap_or_default();
        let is_targeted = outcome.processed_blocks().iter().any(|name| name == ATTACHMENTS_BLOCK);
        // Faults of the processing model precede those of the binding (3.1, 4). A list for other nodes is not checked (2.3);
        // unlisted attachments are refused by every node.
        if is_targeted || (!is_listed && !matches!(outcome, ProcessOutcome::Fault(_))) {
            checked?;
        }
        self.remember_unseen(&entries, now)?;
        let result = match outcome {
            ProcessOutcome::Processed(processed) => {
                // The ultimate receiver does not accept attachments that are listed for other nodes.
                let own = if is_targeted { &attachments[..] } else { &[] };
                self.respond_to_processed(*processed, own).await.map(|answer| (answer, None))
            }
            ProcessOutcome::Relayed(relayed) => self.forward_to_next_hop(*relayed, &attachments).await,
            ProcessOutcome::Fault(fault) => Err(fault),
        };
        let fault = result.as_ref().map_or_else(Some, |(_, fault)| fault.as_ref());
        if fault.is_some_and(|fault| is_resendable(fault)) {
            let mut live = self.live_node.write().unwrap_or_else(PoisonError::into_inner);
            entries.iter().for_each(|entry| live.replay_memory.forget(entry));
        }
        result.map(|(answer, _)| answer)
    }

    fn live_node(&self) -> RwLockReadGuard<'_, Node> {
        // Each update of the replay memory is complete, so a poisoned lock is safe to use.
        self.live_node.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame to the replay memory, unless a concurrent copy was faster.
    fn remember_unseen(&self, entries: &[ReplayEntry], now: Timestamp) -> Result<(), Box<Fault>> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut live = self.live_node.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|entry| live.replay_memory.contains(&entry.sender, &entry.id, now)) {
            return Err(Fault::security_violation("Replay", "the message was seen before"));
        }
        live.replay_memory.remember(entries.iter().cloned(), now);
        Ok(())
    }

    /// Answers at the end of the path.
    async fn respond_to_processed(
        &self,
        processed: ProcessedFrame,
        attachments: &[Attachment],
    ) -> Result<FrameResponse, Box<Fault>> {
        let ProcessedFrame { frame, processed_blocks, fault, is_intact, record, .. } = processed;
        info!(
            node = self.node.uri(),
            message = frame.header.message_id(),
            processed = ?processed_blocks,
            sender = ?record.sender,
            notes = ?record.notes,
            "processed"
        );
        if let Some(dir) = &self.attachment_dir {
            for attachment in attachments {
                store_attachment(dir, attachment).await.map_err(|error| {
                    tracing::error!(%error, dir = %dir.display(), "cannot store an attachment");
                    Fault::receiver(STORE_FAILED, "an attachment cannot be stored")
                })?;
            }
        }
        // A sender counts only if a signature covers the message (7.0, rule 4).
        let sender = record.sender.filter(|_| is_intact);
        let body = match &self.handler {
            // A received fault is only acknowledged.
            Some(handler) if fault.is_none() => {
                let id = frame.header.message_id().unwrap_or_default().to_owned();
                let variables = [
                    ("LONGSHORE_MESH_NODE", self.node.uri().to_owned()),
                    ("LONGSHORE_MESH_MESSAGE_ID", id),
                    ("LONGSHORE_MESH_SENDER", sender.unwrap_or_default()),
                ];
                let body = handler.run(&frame.to_bytes(), &variables, &self.node.limits).await?;
                // The answer becomes a frame, so it must obey the rules of frames.
                let answer = Frame::new(body.clone()).to_bytes();
                Frame::parse(&answer, &self.node.limits).map_err(|fault| handler::invalid_output(&fault))?;
                body
            }
            _ => self.acknowledgment_body(&frame, &processed_blocks, sender, attachments),
        };
        let mut answer = Frame::new(body);
        answer.version.clone_from(&frame.version);
        answer.header.set("messageId", json!(Uuid::new_v4().to_string()))?;
        for (key, id) in [("relatesTo", frame.header.message_id()), ("traceId", frame.header.trace_id())] {
            if let Some(id) = id {
                answer.header.set(key, json!(id))?;
            }
        }
        let fault = Fault::from_frame(&answer).map_err(|fault| {
            let text = format!("the handler answered with an invalid fault: {}", fault.reason_text());
            Fault::receiver(status::HANDLER_FAILED, text)
        })?;
        match fault {
            Some(fault) => Err(fault),
            None => Ok(FrameResponse { status: StatusCode::OK, body: answer.to_bytes().into() }),
        }
    }

    /// Forwards a frame, and returns the next node's answer.
    async fn forward_to_next_hop(
        &self,
        relayed: RelayedFrame,
        attachments: &[Attachment],
    ) -> Result<RelayedResponse, Box<Fault>> {
        let RelayedFrame { frame, next_hop, processed_blocks, removed_blocks, record } = relayed;
        let route = next_hop.as_ref().and_then(|uri| self.next_hops.by_uri.get(uri));
        let client = route.or(self.next_hops.default_hop.as_ref()).ok_or_else(|| {
            let text = next_hop.as_ref().map_or("the frame does not name a destination".to_owned(), |uri| {
                format!("there is no route to `{}`", excerpt(uri))
            });
            Fault::receiver(NO_ROUTE, text)
        })?;
        info!(
            node = self.node.uri(),
            message = frame.header.message_id(),
            to = client.address().to_string(),
            processed = ?processed_blocks,
            removed = ?removed_blocks,
            notes = ?record.notes,
            "relayed"
        );
        let answer = client.send(frame.to_bytes().into(), attachments).await.map_err(|error| next_hop_fault(&error))?;
        self.relay_response(answer, frame.is_fault())
    }

    /// Passes on the next node's answer: a frame unchanged, or a fault without its detail (5.4.5, rule 4).
    fn relay_response(&self, answer: FrameResponse, carried_fault: bool) -> Result<RelayedResponse, Box<Fault>> {
        if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&answer.status) {
            return Err(Fault::receiver(NEXT_HOP_REFUSED, "the next node refuses this node"));
        }
        if carried_fault && answer.body.is_empty() {
            return Ok((answer, None));
        }
        let invalid = |_| Fault::receiver(NEXT_HOP_ANSWER, "the next node's answer is not a frame");
        let mut frame =
            Frame::parse_with_versions(&answer.body, &self.node.limits, &self.node.versions).map_err(invalid)?;
        let Some(fault) = Fault::from_frame(&frame).map_err(invalid)? else {
            return Ok((FrameResponse { status: StatusCode::OK, body: answer.body }, None));
        };
        frame.remove_fault_detail();
        // A status for a subcode of the binding belongs to the hop before; here only the code counts.
        let status = status::status_for_code(fault.code);
        Ok((FrameResponse { status, body: frame.to_bytes().into() }, Some(fault)))
    }

    /// The answer of an ultimate receiver without a handler.
    fn acknowledgment_body(
        &self,
        frame: &Frame,
        processed_blocks: &[String],
        sender: Option<String>,
        attachments: &[Attachment],
    ) -> Map<String, Value> {
        let stored = self.attachment_dir.is_some();
        let entries = attachments.iter().map(|attachment| {
            json!({"cid": attachment.cid, "size": attachment.data.len(), "sha256": attachment.sha256(), "stored": stored})
        });
        let mut acknowledgment = Map::new();
        acknowledgment.insert("node".to_owned(), json!(self.node.uri()));
        acknowledgment.extend(frame.header.message_id().map(|id| ("messageId".to_owned(), json!(id))));
        acknowledgment.extend(sender.map(|sender| ("sender".to_owned(), json!(sender))));
        acknowledgment.insert("processed".to_owned(), json!(processed_blocks));
        if !attachments.is_empty() {
            acknowledgment.insert("attachments".to_owned(), entries.collect());
        }
        Map::from_iter([("acknowledgment".to_owned(), Value::Object(acknowledgment))])
    }
}

/// The fault for a missing answer of the next node. Does not reveal the node's address.
fn next_hop_fault(error: &ClientError) -> Box<Fault> {
    tracing::warn!(?error, "the next node did not answer");
    let (subcode, text) = match error {
        ClientError::ResponseTooLarge { limit, .. } => {
            (NEXT_HOP_ANSWER, format!("the next node answered with more than {limit} bytes"))
        }
        ClientError::Timeout { timeout, .. } => {
            (NEXT_HOP_UNREACHABLE, format!("the next node did not answer within {} s", timeout.as_secs_f64()))
        }
        ClientError::NoResponse { .. } => (NEXT_HOP_UNREACHABLE, "the next node did not answer".to_owned()),
        _ => (NEXT_HOP_UNREACHABLE, "the next node cannot be reached".to_owned()),
    };
    Fault::receiver(subcode, text)
}

/// Whether a message may be resent unchanged (5.4.6, rule 4). One that failed a security check may not.
fn is_resendable(fault: &Fault) -> bool {
    let refused = fault.subcode.as_deref().is_some_and(|subcode| subcode.starts_with(rules::SECURITY_VIOLATION));
    fault.code.is_retryable() && !refused
}

/// Stores an attachment under its hash, atomically.
async fn store_attachment(dir: &Path, attachment: &Attachment) -> io::Result<()> {
    let path = dir.join(attachment.sha256());
    if tokio::fs::try_exists(&path).await? {
        return Ok(());
    }
    let temporary = dir.join(format!(".{}", Uuid::new_v4().simple()));
    let mut stored = tokio::fs::write(&temporary, &attachment.data).await;
    if stored.is_ok() {
        stored = tokio::fs::rename(&temporary, &path).await;
    }
    if stored.is_err() {
        let _ = tokio::fs::remove_file(&temporary).await;
    }
    stored
}

/// Describes a node for `GET /mesh`.
pub(super) fn describe_node(node: &Node) -> Value {
    let roles: Vec<&str> = node.roles().iter().map(Role::token).collect();
    let descriptors = node.modules.iter().map(|module| module.descriptor());
    let modules: Vec<Value> = descriptors
        .map(|module| json!({"uri": module.uri, "features": module.features, "blocks": module.blocks}))
        .collect();
    json!({
        "uri": node.uri(), "place": node.kind().as_str(), "roles": roles, "versions": node.versions.all(),
        "features": BINDING_FEATURES, "modules": modules, "understands": node.understood_blocks.keys().collect::<Vec<_>>(),
    })
}
