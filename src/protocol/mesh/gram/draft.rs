//! Grams under construction: merging, pruning, and building with a hash.
//!
//! **Merging.** Nodes with the same id become one with the attributes of all. On conflict the later known value wins (`metadata.at`, or
//! else the gram's timestamp, then the greater gram id). The first 500 characters of up to 8 other texts stay as `also said`, the most
//! important and then the newest first. Importance is the maximum; reference nodes contribute nothing; `metadata.sources` lists the
//! source agents. Of edges with the same ends and label the one with the greatest weight stays. The result does not depend on the
//! order of the grams.
//!
//! **Pruning.** Nodes are kept by [`GramNode::importance_at`], newest first among equals, each with its edges to nodes kept before it, as
//! long as they fit; smaller ones may still fit after one that does not. Edges of dropped nodes are dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::{Builder, Uuid};

use super::super::canonical::to_canonical_json;
use super::memory_gram::{MemoryGram, content_hash};
use super::model::{GramEdge, GramError, GramLimits, GramNode, HASH_KEY, REFERENCE_TYPE};

const MAX_NODE_SOURCES: usize = 16;

/// Attribute with alternative texts of a merged node.
pub const ALSO_SAID_KEY: &str = "also said";
/// Type of a node without a more specific one.
pub const NOTE_TYPE: &str = "note";
const MAX_ALSO_SAID_TEXTS: usize = 8;
const MAX_ALSO_SAID_CHARS: usize = 500;

/// A gram under construction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GramDraft {
    pub nodes: Vec<GramNode>,
    pub edges: Vec<GramEdge>,
    pub metadata: Map<String, Value>,
}

/// Numbers of dropped nodes and edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedCounts {
    pub nodes: usize,
    pub edges: usize,
}

/// A node during a merge.
struct NodeMerge {
    node: GramNode,
    known_since: (Timestamp, Uuid),
    sources: BTreeSet<String>,
    /// Texts by importance and time.
    alternative_texts: BTreeMap<String, (f64, Timestamp)>,
}

impl GramDraft {
    /// Merges grams into a draft with empty metadata.
    pub fn merge<'a>(grams: impl IntoIterator<Item = &'a MemoryGram>) -> Self {
        let mut grams: Vec<&MemoryGram> = grams.into_iter().collect();
        grams.sort_by(|a, b| (a.timestamp(), a.id(), a.hash()).cmp(&(b.timestamp(), b.id(), b.hash())));
        grams.dedup_by(|a, b| a.hash() == b.hash());
        let mut nodes: BTreeMap<String, NodeMerge> = BTreeMap::new();
        let mut edges: BTreeMap<(String, String, Option<String>), GramEdge> = BTreeMap::new();
        for gram in grams {
            for node in gram.nodes() {
                let known = (node.known_since().unwrap_or(gram.timestamp()), gram.id());
                let sources = node_sources(node, gram);
                match nodes.get_mut(&node.id) {
                    Some(merging) => merging.merge(node, known, sources),
                    None => {
                        let mut merging = NodeMerge {
                            node: node.clone(),
                            known_since: known,
                            sources,
                            alternative_texts: BTreeMap::new(),
                        };
                        merging.node.metadata.shift_remove("sources");
                        merging.record_texts(node, known.0);
                        nodes.insert(node.id.clone(), merging);
                    }
                }
            }
            for edge in gram.edges() {
                let key = (edge.source.clone(), edge.target.clone(), edge.context.clone());
                match edges.get_mut(&key) {
                    Some(kept) if kept.weight >= edge.weight => {}
                    Some(kept) => kept.clone_from(edge),
                    None => drop(edges.insert(key, edge.clone())),
                }
            }
        }
        let nodes = nodes.into_values().map(NodeMerge::finish).collect();
        Self { nodes, edges: edges.into_values().collect(), metadata: Map::new() }
    }

    /// Adds a reference node for each end of an edge that has no node.
    pub fn add_reference_nodes(&mut self) {
        let present: BTreeSet<&str> = self.nodes.iter().map(|node| node.id.as_str()).collect();
        let ends = self.edges.iter().flat_map(|edge| [&edge.source, &edge.target]);
        let missing: BTreeSet<String> = ends.filter(|end| !present.contains(end.as_str())).cloned().collect();
        self.nodes.extend(missing.into_iter().map(|id| GramNode::new(id, REFERENCE_TYPE, 0.0)));
    }

    /// Drops the least important nodes until the built gram has at most `budget` bytes of canonical JSON, or only metadata is left.
    /// Records the counts in `metadata.pruned`.
    pub fn prune(&mut self, now: Timestamp, budget: usize) -> PrunedCounts {
        let all = PrunedCounts { nodes: self.nodes.len(), edges: self.edges.len() };
        let node_sizes: Vec<usize> = self.nodes.iter().map(encoded_size).collect();
        let edge_sizes: Vec<usize> = self.edges.iter().map(encoded_size).collect();
        // Each entry counts a comma; the first one of an array has none.
        let rest = Self { metadata: self.metadata.clone(), ..Self::default() }.into_members(now);
        let commas = usize::from(all.nodes > 0) + usize::from(all.edges > 0);
        let whole = to_canonical_json(&rest).len() + node_sizes.iter().chain(&edge_sizes).sum::<usize>() - commas;
        if whole <= budget {
            return PrunedCounts::default();
        }
        // Reserve room for the largest possible counts.
        self.metadata.insert("pruned".to_owned(), json!({"edges": all.edges, "nodes": all.nodes}));
        let frame = Self { metadata: self.metadata.clone(), ..Self::default() }.into_members(now);
        let mut room = budget.saturating_sub(to_canonical_json(&frame).len());

        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        let importance: Vec<f64> = self.nodes.iter().map(|node| node.importance_at(now, now)).collect();
        let since: Vec<Option<Timestamp>> = self.nodes.iter().map(GramNode::known_since).collect();
        order.sort_by(|a, b| {
            let ids = || self.nodes[*a].id.cmp(&self.nodes[*b].id);
            importance[*b].total_cmp(&importance[*a]).then_with(|| since[*b].cmp(&since[*a])).then_with(ids)
        });
        let mut touching: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, edge) in self.edges.iter().enumerate() {
            touching.entry(&edge.source).or_default().push(index);
            touching.entry(&edge.target).or_default().push(index);
        }
        let (mut kept, mut kept_edges) = (BTreeMap::new(), BTreeSet::new());
        for index in order {
            if node_sizes[index] > room {
                continue;
            }
            room -= node_sizes[index];
            let id = self.nodes[index].id.as_str();
            kept.insert(id, index);
            let mut edges = touching.remove(id).unwrap_or_default();
            edges.sort_by(|a, b| self.edges[*b].weight.total_cmp(&self.edges[*a].weight).then(a.cmp(b)));
            for edge in edges {
                let ends = [&self.edges[edge].source, &self.edges[edge].target];
                let whole = ends.iter().all(|end| kept.contains_key(end.as_str()));
                if whole && !kept_edges.contains(&edge) && edge_sizes[edge] <= room {
                    room -= edge_sizes[edge];
                    kept_edges.insert(edge);
                }
            }
        }
        let kept: BTreeSet<usize> = kept.into_values().collect();
        let mut indexes = 0..;
        self.nodes.retain(|_| indexes.next().is_some_and(|index| kept.contains(&index)));
        let mut indexes = 0..;
        self.edges.retain(|_| indexes.next().is_some_and(|index| kept_edges.contains(&index)));
        let pruned = PrunedCounts { nodes: all.nodes - self.nodes.len(), edges: all.edges - self.edges.len() };
        self.metadata.insert("pruned".to_owned(), json!({"edges": pruned.edges, "nodes": pruned.nodes}));
        pruned
    }

    /// Builds the gram with its hash and the id derived from it. Equal drafts build equal grams.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn build(self, timestamp: Timestamp, limits: &GramLimits) -> Result<MemoryGram, GramError> {
        MemoryGram::from_members(self.into_members(timestamp), limits)
    }

    fn into_members(mut self, timestamp: Timestamp) -> Map<String, Value> {
        self.metadata.shift_remove(HASH_KEY);
        let mut json = Map::new();
        json.insert("id".to_owned(), Value::Null);
        json.insert("timestamp".to_owned(), timestamp.to_string().into());
        json.insert("nodes".to_owned(), json!(self.nodes));
        json.insert("edges".to_owned(), json!(self.edges));
        json.insert("metadata".to_owned(), Value::Object(self.metadata));
        let hash = content_hash(&json);
        let digits = hash.trim_start_matches("sha256:");
        let mut seed = [0; 16];
        for (index, byte) in seed.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap_or_default();
        }
        json.insert("id".to_owned(), Builder::from_random_bytes(seed).into_uuid().to_string().into());
        let hash = content_hash(&json);
        if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
            metadata.insert(HASH_KEY.to_owned(), hash.into());
        }
        json
    }
}

impl NodeMerge {
    /// Records the texts of a node as alternatives to those of later merged ones.
    fn record_texts(&mut self, node: &GramNode, at: Timestamp) {
        for text in node_texts(node) {
            let (importance, known) = self.alternative_texts.entry(text).or_insert((0.0, at));
            *importance = importance.max(node.importance());
            *known = (*known).max(at);
        }
    }

    fn merge(&mut self, other: &GramNode, known: (Timestamp, Uuid), sources: BTreeSet<String>) {
        self.sources.extend(sources);
        if other.is_reference() && !self.node.is_reference() {
            return;
        }
        self.record_texts(other, known.0);
        let newer = known >= self.known_since || self.node.is_reference();
        let importance =
            if self.node.is_reference() { other.importance() } else { self.node.importance().max(other.importance()) };
        let (new, old) = if newer { (other, &self.node) } else { (&self.node, other) };
        let mut node = new.clone();
        // A default type does not replace a specific one.
        if node.kind == NOTE_TYPE && !old.is_reference() {
            node.kind.clone_from(&old.kind);
        }
        for (mine, theirs) in [
            (&mut node.attributes, &old.attributes),
            (&mut node.metadata, &old.metadata),
            (&mut node.extra_members, &old.extra_members),
        ] {
            for (name, value) in theirs {
                if !mine.contains_key(name) {
                    mine.insert(name.clone(), value.clone());
                }
            }
        }
        node.metadata.insert("importance".to_owned(), importance.into());
        node.metadata.shift_remove("sources");
        self.node = node;
        self.known_since = if newer { known } else { self.known_since };
    }

    fn finish(mut self) -> GramNode {
        if !self.node.is_reference() {
            let main = self.node.attributes.get("text").and_then(Value::as_str).map(truncate_text);
            let mut also: Vec<_> =
                self.alternative_texts.into_iter().filter(|(text, _)| Some(text) != main.as_ref()).collect();
            also.sort_by(|(_, (a, at)), (_, (b, bt))| b.total_cmp(a).then(bt.cmp(at)));
            let also: Vec<String> = also.into_iter().map(|(text, _)| text).take(MAX_ALSO_SAID_TEXTS).collect();
            if !also.is_empty() {
                self.node.attributes.insert(ALSO_SAID_KEY.to_owned(), also.into());
            }
            // The merged gram has another timestamp.
            self.node.metadata.insert("at".to_owned(), self.known_since.0.to_string().into());
            let sources: Vec<String> = self.sources.into_iter().take(MAX_NODE_SOURCES).collect();
            self.node.metadata.insert("sources".to_owned(), sources.into());
        }
        self.node
    }
}

/// Text and alternative texts of a node.
fn node_texts(node: &GramNode) -> impl Iterator<Item = String> {
    let also = node.attributes.get(ALSO_SAID_KEY).and_then(Value::as_array).into_iter().flatten();
    node.attributes.get("text").into_iter().chain(also).filter_map(Value::as_str).map(truncate_text)
}

fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_ALSO_SAID_CHARS).collect()
}

fn node_sources(node: &GramNode, gram: &MemoryGram) -> BTreeSet<String> {
    if node.is_reference() {
        return BTreeSet::new();
    }
    let declared = node.metadata.get("sources").and_then(Value::as_array);
    let declared =
        declared.map(|sources| sources.iter().filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>());
    declared.filter(|sources| !sources.is_empty()).unwrap_or_else(|| {
        [gram.source_agent().map_or_else(|| format!("urn:uuid:{}", gram.id()), str::to_owned)].into()
    })
}

/// Bytes of an entry in a canonical array, comma included.
fn encoded_size(entry: &impl Serialize) -> usize {
    to_canonical_json(entry).len() + 1
}
