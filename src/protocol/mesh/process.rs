//! What a node does with a frame (2.6): one pure function from a node, a frame and the time to one outcome.
//!
//! Called by whoever receives frames; the caller answers, forwards and remembers. In this order: the version (2.8), mandatory blocks
//! that are not understood (2.6, step 3), the modules by their stages, so that identity and integrity are known before anything acts
//! on them (7.0), and then the Body, or the relaying. The first fault ends it: there is never more than one (2.4, 2.6 step 7), and those
//! that the spec qualifies with MUST come before all others. Must not: read a clock, do I/O, or change the frame of the caller.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::block::HeaderBlock;
use super::fault::{Fault, FaultCode};
use super::frame::Frame;
use super::gram::{self, MemoryGram};
use super::modules::ModuleStage;
use super::node::{Node, NodeKind};
use super::relay;
use super::replay::ReplayEntry;
use super::role::Role;
use super::rules;

/// What came of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessOutcome {
    /// The ultimate receiver has it.
    Processed(Box<ProcessedFrame>),
    /// An intermediary passes it on.
    Relayed(Box<RelayedFrame>),
    /// It ends here, and its sender is told why.
    Fault(Box<Fault>),
}

/// A frame that reached its ultimate receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessedFrame {
    /// The frame, with what modules opened.
    pub frame: Frame,
    /// The blocks that were processed, by name.
    pub processed_blocks: Vec<String>,
    /// The snapshots that travelled along, all valid. What is sealed, and lone nodes, are in the frame alone.
    pub grams: Vec<MemoryGram>,
    /// The fault that it tells, if it does: nothing else of its Body counts (5.3.1, rule 5).
    pub fault: Option<Box<Fault>>,
    /// The sender, as far as a module made sure who it is.
    pub sender: Option<String>,
    /// Whether a module made sure that the frame is as that sender sent it.
    pub is_intact: bool,
    /// What is to be remembered, so that it is not taken twice.
    pub replay_entries: Vec<ReplayEntry>,
    /// What a log should say.
    pub notes: Vec<String>,
}

/// A frame that goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedFrame {
    /// What the next node is sent.
    pub frame: Frame,
    /// Where it goes, if a module decided that.
    pub next_hop: Option<String>,
    /// The blocks that were processed, by name.
    pub processed_blocks: Vec<String>,
    /// The blocks that are not sent on.
    pub removed_blocks: Vec<String>,
    /// The sender, as far as a module made sure who it is.
    pub sender: Option<String>,
    /// What is to be remembered, so that it is not taken twice.
    pub replay_entries: Vec<ReplayEntry>,
    /// What a log should say.
    pub notes: Vec<String>,
}

/// What is known of a frame while a node processes it. Modules read and write it.
#[derive(Debug)]
pub struct ProcessingContext<'n> {
    /// The node.
    pub node: &'n Node,
    /// The frame as it came.
    pub original: &'n Frame,
    /// The frame as it is now.
    pub frame: Frame,
    /// The time.
    pub now: Timestamp,
    /// The sender, once a module made sure who it is.
    pub sender: Option<String>,
    /// The agents that presented themselves, the sender first.
    pub authenticated_agents: Vec<String>,
    /// When it was sent, once a module made sure of that.
    pub sent_at: Option<Timestamp>,
    /// What it can be told by beside its id, once a module made sure of that.
    pub nonces: Vec<String>,
    /// Whether a module made sure that nobody changed the frame.
    pub is_intact: bool,
    /// What was done that a log should have.
    pub audit_actions: Vec<String>,
    /// What this node may do by the frame's own authorization.
    pub granted_actions: BTreeSet<String>,
    /// Where the frame goes, if a module decides that.
    pub next_hop: Option<String>,
    /// What is to be remembered.
    pub replay_entries: Vec<ReplayEntry>,
    /// What a log should say.
    pub notes: Vec<String>,
    pub(super) targeted_blocks: BTreeSet<String>,
    pub(super) processed_blocks: BTreeSet<String>,
    pub(super) reinserted_blocks: BTreeSet<String>,
}

impl ProcessingContext<'_> {
    /// A block of a module, if it is there and targeted at this node: its module's own fields.
    pub fn targeted_block(&self, name: &str) -> Option<Map<String, Value>> {
        let block = self.original.header.block(name)?;
        self.targeted_blocks.contains(name).then(|| block.content().clone())
    }

    /// All properties of a block, those of its form included.
    pub fn block_properties(&self, name: &str) -> Map<String, Value> {
        self.frame.header.block(name).map(|block| block.properties.clone()).unwrap_or_default()
    }

    /// Puts a processed block in again, as it is or as `properties` say (2.7.1).
    pub fn reinsert(&mut self, name: &str, properties: Option<Map<String, Value>>) -> Result<(), Box<Fault>> {
        if let Some(properties) = properties {
            self.frame.header.set_block(name, properties)?;
        }
        self.reinserted_blocks.insert(name.to_owned());
        Ok(())
    }

    /// Whether a block is for this node, and this node would act on it.
    pub fn will_process(&self, name: &str) -> bool {
        let known = self.node.understood_blocks.contains_key(name) || self.node.module_for_block(name).is_some();
        known && self.targeted_blocks.contains(name)
    }

    /// Whether this node relays what it has.
    pub fn is_intermediary(&self) -> bool {
        self.node.kind() != NodeKind::UltimateReceiver
    }

    /// Whether this node may handle blocks with side effects of that name (7.2, rule 3).
    pub fn is_authorized_for(&self, name: &str) -> bool {
        !self.is_intermediary() || self.node.authorized_blocks.contains(name) || self.granted_actions.contains(name)
    }
}

impl Node {
    /// Reads and processes a frame: what a binding does with the bytes it gets.
    pub fn process_bytes(&self, bytes: &[u8], now: Timestamp) -> ProcessOutcome {
        match Frame::parse_with_versions(bytes, &self.limits, &self.versions) {
            Ok(frame) => process(self, frame, now),
            Err(fault) => ProcessOutcome::Fault(self.attribute_fault(fault)),
        }
    }

    /// Processes a frame and remembers that it was here: what a node does that keeps its own memory.
    pub fn process_and_remember(&mut self, frame: Frame, now: Timestamp) -> ProcessOutcome {
        let outcome = process(self, frame, now);
        let seen = match &outcome {
            ProcessOutcome::Processed(processed) => processed.replay_entries.clone(),
            ProcessOutcome::Relayed(relayed) => relayed.replay_entries.clone(),
            ProcessOutcome::Fault(_) => Vec::new(),
        };
        self.replay_memory.remember(seen, now);
        outcome
    }

    /// The fault with who made it: an intermediary must say (5.4.3), and an ultimate receiver may.
    pub(super) fn attribute_fault(&self, mut fault: Box<Fault>) -> Box<Fault> {
        if fault.code == FaultCode::VersionMismatch {
            fault.supported_modules = self.modules.iter().map(|module| module.descriptor().uri.to_owned()).collect();
        }
        fault.node = Some(self.uri().to_owned());
        fault.role = Some(self.fault_role());
        fault
    }
}

/// Processes a frame at a node.
pub fn process(node: &Node, frame: Frame, now: Timestamp) -> ProcessOutcome {
    try_process(node, &frame, now).unwrap_or_else(|mut fault| {
        fault.set_message_ids(&frame.header);
        ProcessOutcome::Fault(node.attribute_fault(fault))
    })
}

fn try_process(node: &Node, frame: &Frame, now: Timestamp) -> Result<ProcessOutcome, Box<Fault>> {
    node.versions.check_supported(frame.version.as_deref())?;
    let targeted: Vec<HeaderBlock<'_>> =
        frame.header.blocks().into_iter().filter(|block| node.acts_in_role(&block.role(&node.role_registry))).collect();
    let mut work = ProcessingContext {
        node,
        original: frame,
        frame: frame.clone(),
        now,
        sender: None,
        authenticated_agents: Vec::new(),
        sent_at: None,
        nonces: Vec::new(),
        is_intact: false,
        audit_actions: Vec::new(),
        granted_actions: BTreeSet::new(),
        next_hop: None,
        replay_entries: Vec::new(),
        notes: Vec::new(),
        targeted_blocks: targeted.iter().map(|block| block.name.to_owned()).collect(),
        processed_blocks: BTreeSet::new(),
        reinserted_blocks: BTreeSet::new(),
    };
    let known = |block: &HeaderBlock<'_>| {
        node.understood_blocks.contains_key(block.name) || node.module_for_block(block.name).is_some()
    };
    check_mandatory_blocks(&work, &targeted, |block| known(block))?;
    for block in targeted.iter().filter(|block| known(block)) {
        check_encoding_style(node, block.encoding_style(), &format!("/frame/Header/{}", block.name))?;
    }
    // 2.6, step 7: a fault with MUST comes before that of a module, so those that say who may do what are asked even then.
    let mut received = Ok(());
    for module in &node.modules {
        if received.is_ok() || module.descriptor().stage <= ModuleStage::Authorization {
            received = received.and(module.receive(&mut work));
        }
    }
    // 7.2, rule 3: what has side effects is not understood by an intermediary that nobody authorized.
    let understood =
        |block: &HeaderBlock<'_>| known(block) && (!has_side_effects(block.name) || work.is_authorized_for(block.name));
    check_mandatory_blocks(&work, &targeted, understood)?;
    received?;
    work.processed_blocks =
        targeted.iter().filter(|block| understood(block)).map(|block| block.name.to_owned()).collect();
    let again = work.processed_blocks.iter().filter(|name| node.understood_blocks.get(*name) == Some(&true));
    work.reinserted_blocks.extend(again.cloned().collect::<Vec<_>>());
    if work.is_intermediary() {
        return relay::build_relayed_frame(work).map(|relayed| ProcessOutcome::Relayed(Box::new(relayed)));
    }
    let fault = process_body(&work)?;
    let grams = if fault.is_some() { Vec::new() } else { validate_grams(&work)? };
    for module in &node.modules {
        module.finish(&mut work, false)?;
    }
    Ok(ProcessOutcome::Processed(Box::new(ProcessedFrame {
        frame: work.frame,
        processed_blocks: work.processed_blocks.into_iter().collect(),
        fault,
        grams,
        sender: work.sender,
        is_intact: work.is_intact,
        replay_entries: work.replay_entries,
        notes: work.notes,
    })))
}

/// Blocks that do something beside what they say (7.2, rule 3).
fn has_side_effects(name: &str) -> bool {
    ["routing", "audit"].contains(&name)
}

/// 2.6, steps 2 and 3; 2.3: only what is targeted at this node counts.
fn check_mandatory_blocks(
    work: &ProcessingContext<'_>,
    targeted: &[HeaderBlock<'_>],
    understood: impl Fn(&HeaderBlock<'_>) -> bool,
) -> Result<(), Box<Fault>> {
    let mut missing: Vec<String> = targeted
        .iter()
        .filter(|block| block.must_understand() && !understood(block))
        .map(|block| block.name.to_owned())
        .collect();
    if work.frame.memory_grams_or_empty().iter().any(|gram| {
        is_gram_targeted(work.node, gram) && gram_as_block(gram).must_understand() && !can_read_gram(work, gram)
    }) {
        missing.push("memoryGrams".to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("mandatory header blocks are not understood: {}", missing.join(", "));
    let mut fault = Fault::new(FaultCode::MustUnderstand, text);
    fault.not_understood = missing;
    Err(fault)
}

/// A gram follows the rules of blocks (1.4), whether it is wrapped (6.0) or not.
pub(super) fn gram_as_block(gram: &Map<String, Value>) -> HeaderBlock<'_> {
    let inner = gram.get("MemoryGram").and_then(Value::as_object);
    HeaderBlock { name: "memoryGrams", form: super::block::BlockForm::Keyed, properties: inner.unwrap_or(gram) }
}

/// Whether a gram names a role, and this node acts in it. One that names none is for all.
pub(super) fn is_gram_targeted(node: &Node, gram: &Map<String, Value>) -> bool {
    let block = gram_as_block(gram);
    block.properties.contains_key("role") && node.acts_in_role(&block.role(&node.role_registry))
}

/// Whether a gram is sealed: its graph is not there to be looked at (1.4).
pub(super) fn is_gram_encrypted(gram: &Map<String, Value>) -> bool {
    gram.get("encryption").is_some_and(Value::is_object)
        && !gram.contains_key("nodes")
        && !gram.contains_key("MemoryGram")
}

/// Whether this node understands a gram: it is not sealed, or a module opens it.
pub(super) fn can_read_gram(work: &ProcessingContext<'_>, gram: &Map<String, Value>) -> bool {
    !is_gram_encrypted(gram) || work.node.modules.iter().any(|module| module.can_decrypt(gram))
}

/// 5.4.6: an encoding that is not known.
fn check_encoding_style(node: &Node, style: Option<&str>, pointer: &str) -> Result<(), Box<Fault>> {
    match style {
        Some(style) if !node.encoding_styles.contains(style) => {
            let shown: String = style.chars().take(80).collect();
            Err(Fault::new(FaultCode::DataEncodingUnknown, format!("the encoding style `{shown}` is not known"))
                .at_pointer(pointer))
        }
        _ => Ok(()),
    }
}

/// 6.0, rule 5: grams are validated where they are merged or presented, at the end of the path; intermediaries carry them. What is
/// sealed cannot be, and a lone node (1.4) is no snapshot. One that came twice is one; two with one id are none (rule 1).
fn validate_grams(work: &ProcessingContext<'_>) -> Result<Vec<MemoryGram>, Box<Fault>> {
    let limits = gram::GramLimits {
        nodes: work.node.limits.nodes,
        edges: work.node.limits.edges,
        ..gram::GramLimits::default()
    };
    let mut snapshots: Vec<MemoryGram> = Vec::new();
    for (place, entry) in
        work.frame.memory_grams_or_empty().iter().enumerate().filter(|(_, gram)| !is_gram_encrypted(gram))
    {
        let problem = match MemoryGram::from_entry(entry, &limits) {
            Ok(Ok(gram)) => match snapshots.iter().find(|other| other.id() == gram.id()) {
                None => {
                    snapshots.push(gram);
                    continue;
                }
                Some(same) if *same == gram => continue,
                Some(_) => gram::GramError::conflicting_id(),
            },
            Ok(Err(_lone_node)) => continue,
            Err(problem) => problem,
        };
        let pointer = format!("/frame/MemoryGrams/{place}{}", problem.pointer);
        let rule = Value::from(problem.rule);
        return Err(Fault::sender(rules::GRAM, problem.to_string()).at_pointer(&pointer).with_detail("rule", rule));
    }
    Ok(snapshots)
}

/// 2.5, 5.3: the ultimate receiver's part.
fn process_body(work: &ProcessingContext<'_>) -> Result<Option<Box<Fault>>, Box<Fault>> {
    let body = &work.frame.body;
    if let Some(fault) = Fault::from_frame(&work.frame)? {
        if let Some(schema) = &work.node.body_schema {
            schema.check_fault(&fault).map_err(|problem| {
                let text = format!("the fault does not fit its schema: `{}` {}", problem.pointer, problem.problem);
                Fault::sender(rules::FAULT_SCHEMA, text).at_pointer(&format!("/frame/Body/fault{}", problem.pointer))
            })?;
        }
        return Ok(Some(fault));
    }
    check_encoding_style(work.node, encoding_style_of(body, "/frame/Body")?, "/frame/Body/encodingStyle")?;
    for (key, child) in body {
        let pointer = format!("/frame/Body/{}", super::limits::escape_pointer_token(key));
        if let Value::Object(child) = child {
            check_encoding_style(work.node, encoding_style_of(child, &pointer)?, &format!("{pointer}/encodingStyle"))?;
        }
    }
    let Some(schema) = &work.node.body_schema else { return Ok(None) };
    schema.check(body).map_err(|problem| {
        let text = format!("the Body does not fit its schema: `{}` {}", problem.pointer, problem.problem);
        Fault::sender(rules::BODY_SCHEMA, text).at_pointer(&format!("/frame/Body{}", problem.pointer))
    })?;
    Ok(None)
}

/// 5.3.1, rule 3: the two standard fields are strings.
fn encoding_style_of<'v>(of: &'v Map<String, Value>, pointer: &str) -> Result<Option<&'v str>, Box<Fault>> {
    for key in ["encodingStyle", "schemaVersion"] {
        if of.get(key).is_some_and(|value| !value.is_string()) {
            let problem = format!("`{key}` must be a string");
            return Err(Fault::sender(rules::ENCODING_STYLE_TYPE, problem).at_pointer(&format!("{pointer}/{key}")));
        }
    }
    Ok(of.get("encodingStyle").and_then(Value::as_str))
}

/// A block that nobody processes: its data is for others (2.3).
pub(super) fn targets_none(node: &Node, block: &HeaderBlock<'_>) -> bool {
    block.role(&node.role_registry) == Role::None
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
