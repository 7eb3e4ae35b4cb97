//! `dispatch.json`: what a sandbox is asked to do, as a frame of the Agentic Mesh Protocol.
//!
//! ```text
//! plan, the initial sender         coordinator, an active intermediary        shim, the ultimate receiver
//! the Body has the task,      -->  blocks for `next` and `intermediary`;  --> blocks for `next` and `ultimateReceiver`;
//! the Header what the              adds the MemoryGram, its mark in           checks the Body, hands the memory on
//! tasks file adds                  `applied`, its entry in `audit`
//! ```
//!
//! Each node processes it by the rules of 2.6 and 2.7; a fault of either ends the attempt. The frame goes beside
//! `assignment.json`, which says how the work is done. No value of an environment variable is in it. Made by `coordinator/`,
//! received by `shim/`. Must not: do I/O or read a clock.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ids::{AttemptId, StoryId, SwarmId};
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

/// The most characters that the Body has of its stories' descriptions and criteria together: the tasks file has them whole.
const MAX_BODY_TEXT_CHARS: usize = 24_000;
/// The version of the Body's schema.
const BODY_VERSION: &str = "1.0.0";
/// The most bytes that a frame may have.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// What the coordinator does to the frames that it relays: it adds what the stories before learned.
const MEMORY_FEATURE: &str = "urn:longshore:mesh:feature:memory";

/// A swarm's plan, as the mesh knows it.
fn plan_uri(swarm: SwarmId) -> String {
    format!("agent://longshore/{swarm}/plan")
}

/// A swarm's coordinator, as the mesh knows it.
pub fn coordinator_uri(swarm: SwarmId) -> String {
    format!("agent://longshore/{swarm}/coordinator")
}

/// A sandbox, as the mesh knows it.
pub fn sandbox_uri(swarm: SwarmId, attempt: &AttemptId) -> String {
    format!("agent://longshore/{swarm}/{}", attempt.dir_name())
}

/// What a frame is made of.
pub struct DispatchFrame<'a> {
    /// The swarm.
    pub swarm: SwarmId,
    /// Who is to do it.
    pub attempt: &'a AttemptId,
    /// The branch to work on.
    pub branch: &'a str,
    /// What is to be done.
    pub stories: &'a [&'a Story],
    /// What the tasks file adds to the header.
    pub blocks: &'a HeaderBlocks,
    /// What was learned before, where something was.
    pub memory: Option<&'a MemoryGram>,
}

impl DispatchFrame<'_> {
    /// The frame as the coordinator passes it on to the sandbox.
    ///
    /// # Errors
    /// The fault that it ends with: what the tasks file adds does not make a header, or a block for the coordinator must be
    /// understood and is not.
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
        let room = MAX_BODY_TEXT_CHARS / self.stories.len().max(1);
        let stories: Vec<Value> = self.stories.iter().map(|story| story_json(story, room)).collect();
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
        // By the coordinator, and by nobody else.
        frame.header.set("ttl", json!({"role": "next", "hops": 1}))?;
        for (name, block) in self.blocks {
            frame.header.set(name, block.clone())?;
        }
        Ok(frame)
    }
}

/// A story, in as many characters.
fn story_json(story: &Story, room: usize) -> Value {
    let mut left = room;
    let mut cut = |text: &str| {
        let text: String = text.chars().take(left).collect();
        left -= text.chars().count();
        text
    };
    let mut card = json!({ "id": story.id, "title": cut(&story.title), "description": cut(&story.description) });
    let criteria: Vec<String> = story.criteria.iter().map(|criterion| cut(&criterion.text)).collect();
    card["acceptanceCriteria"] = criteria.into_iter().filter(|text| !text.is_empty()).collect();
    card
}

/// The Body that this attempt was promised: its own task.
struct OwnTaskSchema {
    attempt: AttemptId,
    stories: Vec<StoryId>,
}

impl BodySchema for OwnTaskSchema {
    fn check(&self, body: &Map<String, Value>) -> Result<(), BodyProblem> {
        let problem = |pointer: &str, problem: String| Err(BodyProblem { pointer: pointer.to_owned(), problem });
        let Some(task) = body.get("task").and_then(Value::as_object) else {
            return problem("/task", "must be there, an object".to_owned());
        };
        let (id, number) = (self.attempt.assignment.as_str(), u64::from(self.attempt.number));
        if task.get("id").and_then(Value::as_str) != Some(id) {
            return problem("/task/id", format!("must be `{id}`"));
        }
        if task.get("attempt").and_then(Value::as_u64) != Some(number) {
            return problem("/task/attempt", format!("must be {number}"));
        }
        let stories = task.get("stories").and_then(Value::as_array);
        let told: Vec<_> = stories.into_iter().flatten().map(|story| story.get("id").and_then(Value::as_str)).collect();
        if told != self.stories.iter().map(|id| Some(id.as_str())).collect::<Vec<_>>() {
            return problem("/task/stories", "must be the assignment's".to_owned());
        }
        Ok(())
    }
}

/// A node with what both ends of a dispatch know.
fn with_common_modules(node: Result<Node, NodeError>, audit: Audit) -> Result<Node, Box<Fault>> {
    let node = node.map_err(|error| Fault::receiver("NodeName", error.to_string()))?;
    Ok(node
        .with_module(Ttl)
        .with_module(Routing)
        .with_module(Upgrade)
        .with_module(Validation::default())
        .with_module(audit))
}

/// Receives a frame as the sandbox of this attempt: what it was given to remember, none where that is nothing.
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
    let (mut grams, mut lone) = (Vec::new(), GramDraft::default());
    for (place, entry) in processed.frame.memory_grams_or_empty().iter().enumerate() {
        let read = MemoryGram::from_entry(entry, &gram::GramLimits::default()).map_err(|error| {
            let text = format!("the MemoryGram is not valid: {error}");
            Fault::sender("MemoryGram", text).at_pointer(&format!("/frame/MemoryGrams/{place}{}", error.pointer))
        })?;
        match read {
            gram::GramEntry::Gram(gram) => grams.push(gram),
            gram::GramEntry::LoneNode(node) => lone.nodes.push(node),
        }
    }
    if !lone.nodes.is_empty() {
        grams.extend(lone.build(now, &gram::GramLimits::default()).ok());
    }
    Ok(match grams.len() {
        0 => None,
        1 => grams.pop(),
        _ => super::story_knowledge::merge_grams(&grams, &sandbox_uri(swarm, attempt), Vec::new(), MAX_FRAME_BYTES),
    })
}
