//! What an attempted story teaches, as a MemoryGram: its agents' notes, and what its results show. Made by the host for a story that
//! landed, and by the shim for consecutive stories in one sandbox.
//!
//! | node | id | content | importance | decay per hour |
//! |---|---|---|---|---|
//! | `story` | `story:US-001` | title, and the last commit | 0.6 | |
//! | the agent's type, else `note` | the agent's, or `note:US-001/ATTEMPT.N` | the agent's text | the agent's, else 0.7 | |
//! | `review-finding` | `finding:TASK/ROUND.N` | an issue of a rejected review round | 0.9, 0.8, 0.5 by severity | 0.02 |
//! | `failed-attempt` | `attempt:US-001/ATTEMPT` | why an attempt did not land | 0.7 | 0.02 |
//! | `file` | `file:PATH` | a path that the story changed | 0.3 | 0.05 |
//! | `commit` | `commit:HASH` | a commit of the story | 0.2 | 0.05 |
//!
//! Edges lead from the story to each of these, and from a note or finding to what it is about. The same facts give the same gram,
//! wherever and whenever it is made. Must not: read a clock.

use jiff::Timestamp;
use serde_json::{Map, json};

use super::agent_notes::{AgentNotes, FILE_ID_PREFIX};
use crate::ids::CommitId;
use crate::json::text::take_chars;
use crate::protocol::mesh::gram::{GramDraft, GramEdge, GramLimits, GramNode, MemoryGram, NOTE_TYPE, REFERENCE_TYPE};

/// The most bytes of a story's gram.
pub const MAX_STORY_GRAM_BYTES: usize = 48 * 1024;
/// The most files and the most commits of a story that become nodes.
const MAX_FILE_NODES: usize = 200;
/// The most bytes of a path in an id.
const MAX_PATH_BYTES: usize = 500;
/// The most characters of a text.
const MAX_TEXT_CHARS: usize = 2_000;

/// The facts about a story.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoryKnowledge {
    /// The story's id, `US-001`, after the file's label if there are several files.
    pub story: String,
    /// Its title.
    pub title: String,
    /// The URI of the gram's author.
    pub source: String,
    /// The integration branch; empty if unknown.
    pub branch: String,
    /// The last commit.
    pub commit: Option<CommitId>,
    /// The changed paths.
    pub files: Vec<String>,
    /// All commits, oldest first.
    pub commits: Vec<CommitId>,
    /// The attempts that did not land.
    pub failures: Vec<FailedAttempt>,
    /// The issues of rejected review rounds.
    pub findings: Vec<Finding>,
    /// The agents' notes by attempt.
    pub agent_notes: Vec<(u32, AgentNotes)>,
}

/// An attempt that did not land.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedAttempt {
    /// The number of the attempt.
    pub number: u32,
    /// The name of the cause.
    pub cause: String,
    /// The summary of the failure.
    pub summary: String,
    /// When the attempt ended.
    pub at: Timestamp,
}

/// An issue that a reviewer found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The task, the round and the position in it: `T-2026-001/1.1`.
    pub id: String,
    /// `critical`, `major` or `minor`.
    pub severity: String,
    /// The path of the file.
    pub file: String,
    /// The line in the file.
    pub line: Option<u64>,
    /// The problem.
    pub description: String,
    /// The suggested fix.
    pub fix: String,
    /// When the review ended.
    pub at: Timestamp,
}

impl StoryKnowledge {
    /// The gram as of `at`, pruned to [`MAX_STORY_GRAM_BYTES`].
    pub fn to_gram(&self, at: Timestamp) -> MemoryGram {
        let story = format!("story:{}", self.story);
        let mut node =
            GramNode::new(&story, "story", 0.6).with_known_since(at).with_attribute("title", truncate(&self.title));
        if let Some(commit) = &self.commit {
            node = node.with_attribute("commit", commit.as_str());
        }
        let mut draft = GramDraft { nodes: vec![node], ..GramDraft::default() };
        self.add_agent_notes(&story, at, &mut draft);
        for failed in &self.failures {
            let id = format!("attempt:{}/{}", self.story, failed.number);
            let node = GramNode::new(&id, "failed-attempt", 0.7).with_known_since(failed.at.min(at)).with_decay(0.02);
            let text = format!("{}: {}", failed.cause, failed.summary);
            upsert_node(
                &mut draft,
                node.with_attribute("text", truncate(&text)).with_attribute("cause", failed.cause.as_str()),
            );
            draft.edges.push(GramEdge::new(&story, id, 0.7).with_context("failed first"));
        }
        for finding in &self.findings {
            self.add_finding(finding, &story, at, &mut draft);
        }
        for path in self.files.iter().take(MAX_FILE_NODES) {
            let id = file_node_id(path);
            upsert_node(
                &mut draft,
                GramNode::new(&id, "file", 0.3)
                    .with_known_since(at)
                    .with_decay(0.05)
                    .with_attribute("path", truncate(path)),
            );
            draft.edges.push(GramEdge::new(&story, id, 0.3).with_context("changed"));
        }
        for commit in self.commits.iter().rev().take(MAX_FILE_NODES) {
            let id = format!("commit:{commit}");
            upsert_node(&mut draft, GramNode::new(&id, "commit", 0.2).with_known_since(at).with_decay(0.05));
            draft.edges.push(GramEdge::new(&story, id, 0.2).with_context("committed"));
        }
        draft.add_reference_nodes();
        let mut metadata = Map::new();
        metadata.insert("sourceAgent".to_owned(), self.source.as_str().into());
        metadata.insert("schemaVersion".to_owned(), "1.0.0".into());
        metadata.insert("story".to_owned(), self.story.as_str().into());
        if !self.branch.is_empty() {
            metadata.insert("branch".to_owned(), self.branch.as_str().into());
        }
        draft.metadata = metadata;
        draft.prune(at, MAX_STORY_GRAM_BYTES);
        seal(draft, at)
    }

    fn add_agent_notes(&self, story: &str, at: Timestamp, draft: &mut GramDraft) {
        for (attempt, notes) in &self.agent_notes {
            for (index, note) in notes.notes.iter().enumerate() {
                let id = note.id.clone().unwrap_or_else(|| format!("note:{}/{attempt}.{}", self.story, index + 1));
                // Do not trust a sandbox's clock: no note is from the future.
                let since = note.at.parse::<Timestamp>().map_or(at, |time| time.min(at));
                let kind = if note.kind == REFERENCE_TYPE { NOTE_TYPE } else { note.kind.as_str() };
                let node = GramNode::new(&id, kind, note.importance.unwrap_or(0.7));
                upsert_node(
                    draft,
                    node.with_known_since(since)
                        .with_attribute("text", note.text.as_str())
                        .with_attribute("attempt", *attempt),
                );
                draft.edges.push(GramEdge::new(story, &id, 1.0).with_context("learned"));
                for about in note.about.iter().filter(|about| **about != id) {
                    draft.edges.push(GramEdge::new(&id, about, 1.0).with_context("is about"));
                }
            }
            for link in &notes.links {
                draft.edges.push(GramEdge::new(&link.source, &link.target, link.weight));
            }
        }
    }

    fn add_finding(&self, finding: &Finding, story: &str, at: Timestamp, draft: &mut GramDraft) {
        let importance = match finding.severity.as_str() {
            "critical" => 0.9,
            "major" => 0.8,
            _ => 0.5,
        };
        let id = format!("finding:{}", finding.id);
        let mut node =
            GramNode::new(&id, "review-finding", importance).with_known_since(finding.at.min(at)).with_decay(0.02);
        node = node
            .with_attribute("text", truncate(&finding.description))
            .with_attribute("severity", finding.severity.as_str());
        if !finding.fix.trim().is_empty() {
            node = node.with_attribute("suggested fix", truncate(&finding.fix));
        }
        if let Some(line) = finding.line {
            node = node.with_attribute("line", line);
        }
        upsert_node(draft, node);
        draft.edges.push(GramEdge::new(story, &id, importance).with_context("review found"));
        if !finding.file.trim().is_empty() {
            draft.edges.push(GramEdge::new(&id, file_node_id(&finding.file), 1.0).with_context("is about"));
        }
    }
}

/// Merges grams into one of at most `budget` bytes, as of the newest of them; `None` without grams. The metadata lists as many
/// `sources` as fit into a quarter of the budget.
pub fn merge_grams<'a>(
    grams: impl IntoIterator<Item = &'a MemoryGram>,
    source: &str,
    sources: impl IntoIterator<Item = (String, String)>,
    budget: usize,
) -> Option<MemoryGram> {
    let grams: Vec<&MemoryGram> = grams.into_iter().collect();
    let at = grams.iter().map(|gram| gram.timestamp()).max()?;
    let mut draft = GramDraft::merge(grams);
    draft.metadata.insert("sourceAgent".to_owned(), source.into());
    draft.metadata.insert("schemaVersion".to_owned(), "1.0.0".into());
    let (mut named, mut left_out, mut room) = (Vec::new(), 0_u32, budget / 4);
    for (story, gram) in sources {
        let entry = json!({"gram": gram, "story": story});
        let size = entry.to_string().len() + 1;
        if size <= room {
            room -= size;
            named.push(entry);
        } else {
            left_out += 1;
        }
    }
    draft.metadata.insert("sources".to_owned(), named.into());
    if left_out > 0 {
        draft.metadata.insert("moreSources".to_owned(), left_out.into());
    }
    draft.prune(at, budget);
    Some(seal(draft, at))
}

/// A gram without nodes.
pub fn empty_gram(at: Timestamp) -> MemoryGram {
    seal(GramDraft::default(), at)
}

fn seal(draft: GramDraft, at: Timestamp) -> MemoryGram {
    let sealed = draft.build(at, &GramLimits::default()).or_else(|error| {
        debug_assert!(false, "{error}");
        GramDraft::default().build(at, &GramLimits::default())
    });
    sealed.expect("an empty gram is valid")
}

/// Adds a node, or replaces the one with its id: newer knowledge is better.
fn upsert_node(draft: &mut GramDraft, node: GramNode) {
    match draft.nodes.iter_mut().find(|existing| existing.id == node.id) {
        // A note about a file is more important than the fact that it was changed.
        Some(existing) if existing.importance() > node.importance() => existing.attributes.extend(node.attributes),
        Some(existing) => *existing = node,
        None => draft.nodes.push(node),
    }
}

/// The id of a file's node. Of a path that is too long, the end is kept.
fn file_node_id(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let mut from = path.len().saturating_sub(MAX_PATH_BYTES);
    while !path.is_char_boundary(from) {
        from += 1;
    }
    format!("{FILE_ID_PREFIX}{}", &path[from..])
}

fn truncate(text: &str) -> &str {
    take_chars(text, MAX_TEXT_CHARS)
}
