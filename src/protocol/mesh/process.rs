//! The processing model (2.6): a pure function from a node, a frame and the time to exactly one outcome.
//!
//! The caller answers, forwards and remembers. The order is: version (2.8), mandatory blocks that are not understood (2.6, step 3),
//! modules by stage, so that identity and integrity are known before anything acts on them (7.0), then the Body or the relaying. The
//! first fault ends processing, and faults that the spec qualifies with MUST precede all others (2.4; 2.6, step 7). Must not: read a
//! clock or do I/O.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::block::{HeaderBlock, is_gram_encrypted};
use super::fault::{Fault, FaultCode};
use super::frame::Frame;
use super::gram::{GramEntry, GramError, GramLimits, MemoryGram};
use super::node::{ModuleStage, Node, ProcessingContext, ProcessingRecord};
use super::relay::{self, RelayedFrame};
use super::rules;
use super::syntax::escape_pointer_token;

#[derive(Debug, Clone, PartialEq)]
pub enum ProcessOutcome {
    /// The ultimate receiver processed the frame.
    Processed(Box<ProcessedFrame>),
    /// An intermediary forwards the frame.
    Relayed(Box<RelayedFrame>),
    Fault(Box<Fault>),
}

impl ProcessOutcome {
    pub(super) fn record(&self) -> Option<&ProcessingRecord> {
        match self {
            Self::Processed(processed) => Some(&processed.record),
            Self::Relayed(relayed) => Some(&relayed.record),
            Self::Fault(_) => None,
        }
    }

    #[cfg(feature = "orchestrator")]
    pub(super) fn processed_blocks(&self) -> &[String] {
        match self {
            Self::Processed(processed) => &processed.processed_blocks,
            Self::Relayed(relayed) => &relayed.processed_blocks,
            Self::Fault(_) => &[],
        }
    }
}

/// A frame at its ultimate receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessedFrame {
    /// The frame, decrypted.
    pub frame: Frame,
    pub processed_blocks: Vec<String>,
    /// Valid snapshots of the frame. Encrypted grams and lone nodes are only in `frame`.
    pub grams: Vec<MemoryGram>,
    /// The fault that the frame carries; if present, the rest of the Body does not count (5.3.1, rule 5).
    pub fault: Option<Box<Fault>>,
    /// Whether a signature proves that the frame is as its sender sent it.
    pub is_intact: bool,
    pub record: ProcessingRecord,
}

impl Node {
    /// Parses and processes a frame.
    pub fn process_bytes(&self, bytes: &[u8], now: Timestamp) -> ProcessOutcome {
        match Frame::parse_with_versions(bytes, &self.limits, &self.versions) {
            Ok(frame) => process(self, frame, now),
            Err(fault) => ProcessOutcome::Fault(self.attribute_fault(fault)),
        }
    }

    /// Processes a frame and adds it to the node's replay memory.
    pub fn process_and_remember(&mut self, frame: Frame, now: Timestamp) -> ProcessOutcome {
        let outcome = process(self, frame, now);
        let entries = outcome.record().map(|record| record.replay_entries.clone()).unwrap_or_default();
        self.replay_memory.remember(entries, now);
        outcome
    }
}

pub fn process(node: &Node, frame: Frame, now: Timestamp) -> ProcessOutcome {
    try_process(node, &frame, now).unwrap_or_else(|fault| {
        let fault = fault.with_message_ids(frame.header.message_id(), frame.header.trace_id());
        ProcessOutcome::Fault(node.attribute_fault(fault))
    })
}

fn try_process(node: &Node, frame: &Frame, now: Timestamp) -> Result<ProcessOutcome, Box<Fault>> {
    node.versions.check_supported(frame.version.as_deref())?;
    let mut context = ProcessingContext::new(node, frame, now);
    let blocks = frame.header.blocks().into_iter();
    let targeted: Vec<HeaderBlock<'_>> = blocks.filter(|block| context.targeted_blocks.contains(block.name)).collect();
    check_mandatory_blocks(&context, &targeted, |name| node.understands(name))?;
    for block in targeted.iter().filter(|block| node.understands(block.name)) {
        check_encoding_style(node, block.encoding_style(), &format!("/frame/Header/{}", block.name))?;
    }
    // 2.6, step 7: a MUST fault precedes a module's fault, so the modules that decide on permissions run even after a fault.
    let mut received = Ok(());
    for module in &node.modules {
        if received.is_ok() || module.descriptor().stage <= ModuleStage::Authorization {
            received = received.and(module.receive(&mut context));
        }
    }
    // 7.2, rule 3: an unauthorized intermediary does not understand blocks with side effects.
    let understood =
        |name: &str| node.understands(name) && (!has_side_effects(name) || context.is_authorized_for(name));
    check_mandatory_blocks(&context, &targeted, understood)?;
    received?;
    context.processed_blocks =
        targeted.iter().filter(|block| understood(block.name)).map(|block| block.name.to_owned()).collect();
    let reinserted = context.processed_blocks.iter().filter(|name| node.understood_blocks.get(*name) == Some(&true));
    context.reinserted_blocks.extend(reinserted.cloned());
    if context.is_intermediary() {
        return relay::build_relayed_frame(context).map(|relayed| ProcessOutcome::Relayed(Box::new(relayed)));
    }
    let fault = process_body(&context)?;
    let grams = if fault.is_some() { Vec::new() } else { validate_grams(&context)? };
    for module in &node.modules {
        module.finish(&mut context, false)?;
    }
    Ok(ProcessOutcome::Processed(Box::new(ProcessedFrame {
        frame: context.frame,
        processed_blocks: context.processed_blocks.into_iter().collect(),
        grams,
        fault,
        is_intact: context.is_intact,
        record: context.record,
    })))
}

/// 7.2, rule 3.
fn has_side_effects(name: &str) -> bool {
    ["routing", "audit"].contains(&name)
}

/// 2.6, steps 2 and 3; only targeted blocks count (2.3).
fn check_mandatory_blocks(
    context: &ProcessingContext<'_>,
    targeted: &[HeaderBlock<'_>],
    understood: impl Fn(&str) -> bool,
) -> Result<(), Box<Fault>> {
    let mut missing: Vec<String> = targeted
        .iter()
        .filter(|block| block.must_understand() && !understood(block.name))
        .map(|block| block.name.to_owned())
        .collect();
    let is_missing = |gram: &Map<String, Value>| {
        relay::is_gram_targeted(context.node, gram)
            && HeaderBlock::from_gram(gram).must_understand()
            && !relay::can_read_gram(context.node, gram)
    };
    if context.frame.memory_grams_or_empty().iter().any(is_missing) {
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

/// 5.4.6.
fn check_encoding_style(node: &Node, style: Option<&str>, pointer: &str) -> Result<(), Box<Fault>> {
    match style {
        Some(style) if !node.encoding_styles.contains(style) => {
            let shown: String = style.chars().take(80).collect();
            let text = format!("the encoding style `{shown}` is not known");
            Err(Fault::new(FaultCode::DataEncodingUnknown, text).at_pointer(pointer))
        }
        _ => Ok(()),
    }
}

/// Validates grams at the end of the path (6.0, rule 5). Skips encrypted grams and lone nodes (1.4), drops copies of a gram, and refuses
/// different grams with one id (rule 1).
fn validate_grams(context: &ProcessingContext<'_>) -> Result<Vec<MemoryGram>, Box<Fault>> {
    let (nodes, edges) = (context.node.limits.nodes, context.node.limits.edges);
    let limits = GramLimits { nodes, edges, ..GramLimits::default() };
    let mut snapshots: Vec<MemoryGram> = Vec::new();
    for (index, entry) in context.frame.memory_grams_or_empty().iter().enumerate() {
        if is_gram_encrypted(entry) {
            continue;
        }
        let error = match MemoryGram::from_entry(entry, &limits) {
            Ok(GramEntry::Gram(gram)) => match snapshots.iter().find(|other| other.id() == gram.id()) {
                None => {
                    snapshots.push(gram);
                    continue;
                }
                Some(same) if *same == gram => continue,
                Some(_) => GramError::conflicting_id(),
            },
            Ok(GramEntry::LoneNode(_)) => continue,
            Err(error) => error,
        };
        let pointer = format!("/frame/MemoryGrams/{index}{}", error.pointer);
        let fault = Fault::sender(rules::GRAM, error.to_string()).at_pointer(&pointer);
        return Err(fault.with_detail("rule", Value::from(error.rule)));
    }
    Ok(snapshots)
}

/// 2.5, 5.3. Returns the fault that the Body carries.
fn process_body(context: &ProcessingContext<'_>) -> Result<Option<Box<Fault>>, Box<Fault>> {
    let (node, body) = (context.node, &context.frame.body);
    if let Some(fault) = Fault::from_frame(&context.frame)? {
        if let Some(schema) = &node.body_schema {
            schema.check_fault(&fault).map_err(|problem| {
                let text = format!("the fault does not match its schema: `{}` {}", problem.pointer, problem.problem);
                Fault::sender(rules::FAULT_SCHEMA, text).at_pointer(&format!("/frame/Body/fault{}", problem.pointer))
            })?;
        }
        return Ok(Some(fault));
    }
    check_encoding_style(node, encoding_style_of(body, "/frame/Body")?, "/frame/Body/encodingStyle")?;
    for (key, child) in body {
        let pointer = format!("/frame/Body/{}", escape_pointer_token(key));
        if let Value::Object(child) = child {
            check_encoding_style(node, encoding_style_of(child, &pointer)?, &format!("{pointer}/encodingStyle"))?;
        }
    }
    let Some(schema) = &node.body_schema else { return Ok(None) };
    schema.check(body).map_err(|problem| {
        let text = format!("the Body does not match its schema: `{}` {}", problem.pointer, problem.problem);
        Fault::sender(rules::BODY_SCHEMA, text).at_pointer(&format!("/frame/Body{}", problem.pointer))
    })?;
    Ok(None)
}

/// 5.3.1, rule 3: the two standard fields are strings.
fn encoding_style_of<'v>(object: &'v Map<String, Value>, pointer: &str) -> Result<Option<&'v str>, Box<Fault>> {
    for key in ["encodingStyle", "schemaVersion"] {
        if object.get(key).is_some_and(|value| !value.is_string()) {
            let problem = format!("`{key}` must be a string");
            return Fault::reject(rules::ENCODING_STYLE_TYPE, &format!("{pointer}/{key}"), problem);
        }
    }
    Ok(object.get("encodingStyle").and_then(Value::as_str))
}

#[cfg(test)]
#[path = "tests/process.rs"]
mod tests;
