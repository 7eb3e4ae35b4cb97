//! `dispatch.json`: the task of a sandbox, as a frame of the Agentic Mesh Protocol.
//!
//! ```text
//! plan, the initial sender         coordinator, an active intermediary        shim, the ultimate receiver
//! the Body has the task,      -->  blocks for `next` and `intermediary`;  --> blocks for `next` and `ultimateReceiver`;
//! the Header what the              adds the MemoryGram, its mark in           checks the Body, hands the memory on
//! tasks file adds                  `applied`, its entry in `audit`
//! ```
//!
//! Each node processes the frame by the rules of 2.6 and 2.7. A fault of either ends the attempt. `assignment.json`, beside the frame,
//! says how the work is done. The frame contains no values of environment variables. `coordinator/` makes it, `shim/` receives it.
//! Must not: do I/O or read a clock.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ids::{AttemptId, StoryId, SwarmId};
use crate::json::text::take_chars;
use crate::protocol::mesh::change::{ChangeAction, FrameChange};
use crate::protocol::mesh::fault::Fault;
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::gram::{self, GramDraft, MemoryGram};
use crate::protocol::mesh::modules::audit::Audit;
use crate::protocol::mesh::modules::routing::Routing;
use crate::protocol::mesh::modules::ttl::Ttl;
use crate::protocol::mesh::modules::upgrade::Upgrade;
use crate::protocol::mesh::modules::validation::Validation;
use crate::protocol::mesh::node::{BodyProblem, BodySchema, Node, NodeError};
use crate::protocol::mesh::process::{ProcessOutcome, process};
use crate::tasks::{HeaderBlocks, Story};

/// The most characters of all descriptions and criteria in the Body. The tasks file has the whole texts.
const MAX_BODY_TEXT_CHARS: usize = 24_000;
/// The version of the Body's schema.
const BODY_VERSION: &str = "1.0.0";
/// The most bytes of a frame.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// The change that the coordinator makes to the frames it relays: it adds what earlier stories learned.
const MEMORY_FEATURE: &str = "urn:longshore:mesh:feature:memory";

fn plan_uri(swarm: SwarmId) -> String {
    format!("agent://longshore/{swarm}/plan")
}

/// The URI of a swarm's coordinator.
pub fn coordinator_uri(swarm: SwarmId) -> String {
    format!("agent://longshore/{swarm}/coordinator")
}

/// The URI of a sandbox.
pub fn sandbox_uri(swarm: SwarmId, attempt: &AttemptId) -> String {
    format!("agent://longshore/{swarm}/{}", attempt.dir_name())
}

/// The content of a frame.
pub struct DispatchFrame<'a> {
    /// The swarm.
    pub swarm: SwarmId,
    /// The receiving attempt.
    pub attempt: &'a AttemptId,
    /// The branch to work on.
    pub branch: &'a str,
    /// The stories to do.
    pub stories: &'a [&'a Story],
    /// The header blocks of the tasks file.
    pub blocks: &'a HeaderBlocks,
    /// What earlier stories learned.
    pub memory: Option<&'a MemoryGram>,
}

impl DispatchFrame<'_> {
    /// The frame as the coordinator relays it to the sandbox.
    ///
    /// # Errors
    /// The blocks of the tasks file make no valid header, or one of them must be understood by the coordinator and is not.
    pub fn build_relayed(&self, now: Timestamp) -> Result<Frame, Box<Fault>> {
        let memory = self.memory.map(|gram| {
            let Value::Object(gram) = gram.to_json() else { unreachable!("a gram is an object") };
            FrameChange { feature: MEMORY_FEATURE.to_owned(), action: ChangeAction::AddGram(gram) }
        });
        let node = with_common_modules(Node::active_intermediary(&coordinator_uri(self.swarm)), Audit::starting_log())?
            .with_authorized_blocks(["routing", "audit"])
            .with_changes(memory);
        match process(&node, self.build_initial()?, now) {
            ProcessOutcome::Relayed(relayed) => Ok(relayed.frame),
            ProcessOutcome::Fault(fault) => Err(fault),
            ProcessOutcome::Processed(_) => Err(Fault::receiver("NotForOne", "an intermediary processes no Body")),
        }
    }

    /// The frame as the plan sends it.
    fn build_initial(&self) -> Result<Frame, Box<Fault>> {
        let max_chars = MAX_BODY_TEXT_CHARS / self.stories.len().max(1);
        let stories: Vec<Value> = self.stories.iter().map(|story| story_json(story, max_chars)).collect();
        let mut body = Map::new();
        let task = json!({
            "id": self.attempt.assignment, "attempt": self.attempt.number, "branch": self.branch, "stories": stories,
        });
        body.insert("task".to_owned(), task);
        body.insert("schemaVersion".to_owned(), BODY_VERSION.into());
        let mut frame = Frame::new(body);
        frame.version = Some("1.0".to_owned());
        let id = format!("{}/{}", self.swarm, self.attempt.dir_name());
        frame.header.set("messageId", id.into())?;
        frame.header.set("traceId", self.swarm.to_string().into())?;
        frame.header.set("roles", json!(["ultimateReceiver"]))?;
        frame.header.set("routingIntent", "direct".into())?;
        let (from, to) = (plan_uri(self.swarm), sandbox_uri(self.swarm, self.attempt));
        frame.header.set("routing", json!({"role": "next", "to": to, "visited": [from]}))?;
        // One hop: the coordinator.
        frame.header.set("ttl", json!({"role": "next", "hops": 1}))?;
        for (name, block) in self.blocks {
            frame.header.set(name, block.clone())?;
        }
        Ok(frame)
    }
}

/// A story with at most `max_chars` of text.
fn story_json(story: &Story, max_chars: usize) -> Value {
    let mut left = max_chars;
    let mut cut = |text: &str| {
        let text = take_chars(text, left).to_owned();
        left -= text.chars().count();
        text
    };
    let mut card = json!({ "id": story.id, "title": cut(&story.title), "description": cut(&story.description) });
    let criteria: Vec<String> = story.criteria.iter().map(|criterion| cut(&criterion.text)).collect();
    card["acceptanceCriteria"] = criteria.into_iter().filter(|text| !text.is_empty()).collect();
    card
}

/// The expected Body: the attempt's own task.
struct OwnTaskSchema {
    attempt: AttemptId,
    stories: Vec<StoryId>,
}

impl BodySchema for OwnTaskSchema {
    fn check(&self, body: &Map<String, Value>) -> Result<(), BodyProblem> {
        let problem = |pointer: &str, problem: String| Err(BodyProblem { pointer: pointer.to_owned(), problem });
        let Some(task) = body.get("task").and_then(Value::as_object) else {
            return problem("/task", "must be an object".to_owned());
        };
        let (id, number) = (self.attempt.assignment.as_str(), u64::from(self.attempt.number));
        if task.get("id").and_then(Value::as_str) != Some(id) {
            return problem("/task/id", format!("must be `{id}`"));
        }
        if task.get("attempt").and_then(Value::as_u64) != Some(number) {
            return problem("/task/attempt", format!("must be {number}"));
        }
        let stories = task.get("stories").and_then(Value::as_array);
        let found: Vec<_> =
            stories.into_iter().flatten().map(|story| story.get("id").and_then(Value::as_str)).collect();
        if found != self.stories.iter().map(|id| Some(id.as_str())).collect::<Vec<_>>() {
            return problem("/task/stories", "must be the assignment's".to_owned());
        }
        Ok(())
    }
}

/// Adds the modules that both ends of a dispatch understand.
fn with_common_modules(node: Result<Node, NodeError>, audit: Audit) -> Result<Node, Box<Fault>> {
    let node = node.map_err(|error| Fault::receiver("NodeName", error.to_string()))?;
    Ok(node
        .with_module(Ttl)
        .with_module(Routing)
        .with_module(Upgrade)
        .with_module(Validation::default())
        .with_module(audit))
}

/// Receives a frame as the sandbox of this attempt, and returns its memory.
///
/// # Errors
/// The fault that ends the attempt.
pub fn receive(
    bytes: &[u8],
    swarm: SwarmId,
    attempt: &AttemptId,
    stories: Vec<StoryId>,
    now: Timestamp,
) -> Result<Option<MemoryGram>, Box<Fault>> {
    let schema = OwnTaskSchema { attempt: attempt.clone(), stories };
    let node = with_common_modules(Node::ultimate_receiver(&sandbox_uri(swarm, attempt)), Audit::default())?
        .with_body_schema(schema);
    let processed = match node.process_bytes(bytes, now) {
        ProcessOutcome::Processed(processed) => processed,
        ProcessOutcome::Fault(fault) => return Err(fault),
        ProcessOutcome::Relayed(_) => return Err(Fault::receiver("NotForOthers", "a sandbox relays nothing")),
    };
    if let Some(fault) = processed.fault {
        return Err(fault);
    }
    let (mut grams, mut single_nodes) = (Vec::new(), GramDraft::default());
    for (index, entry) in processed.frame.memory_grams_or_empty().iter().enumerate() {
        let read = MemoryGram::from_entry(entry, &gram::GramLimits::default()).map_err(|error| {
            let text = format!("the MemoryGram is not valid: {error}");
            Fault::sender("MemoryGram", text).at_pointer(&format!("/frame/MemoryGrams/{index}{}", error.pointer))
        })?;
        match read {
            gram::GramEntry::Gram(gram) => grams.push(gram),
            gram::GramEntry::LoneNode(node) => single_nodes.nodes.push(node),
        }
    }
    if !single_nodes.nodes.is_empty() {
        grams.extend(single_nodes.build(now, &gram::GramLimits::default()).ok());
    }
    Ok(match grams.len() {
        0 => None,
        1 => grams.pop(),
        _ => super::story_knowledge::merge_grams(&grams, &sandbox_uri(swarm, attempt), Vec::new(), MAX_FRAME_BYTES),
    })
}
