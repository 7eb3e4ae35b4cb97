//! Grams that are made: nodes and edges put together, merged from other grams, cut to a size, and sealed.
//!
//! **Merging.** Nodes of the same id become one: all attributes of both; where they contradict, what is known since later
//! counts (`metadata.at`, or else the gram's time; of two of the same time, the one of the greater gram id). Other texts than that one
//! stay as `also said`: 8 of them, those of the greatest importance and then the newest, the first 500 characters of each. Its importance is the greatest of any, a node that only refers to
//! another says nothing, and `metadata.sources` names who said it. Of edges with the same ends and label the strongest stays. What comes
//! out does not depend on the order of what goes in.
//!
//! **Pruning.** Nodes are taken by their importance_at ([`GramNode::importance_at`]), of the same importance_at the newest first, each with its edges to those that were taken before, as long as
//! there is room; what does not fit is left out, and what is smaller may still fit. Edges of nodes that are left out go.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::{Builder, Uuid};

use super::{GramEdge, GramError, GramLimits, GramNode, HASH_KEY, MemoryGram, content_hash, to_canonical_json};

/// The most sources that a node names.
const MAX_NODE_SOURCES: usize = 16;

/// The attribute with what else was said under a node's id.
pub const ALSO_SAID_KEY: &str = "also said";
/// The type of what is of no other.
pub const NOTE_TYPE: &str = "note";
/// The most texts of that, and the most characters of each.
const MAX_ALSO_SAID_TEXTS: usize = 8;
const MAX_ALSO_SAID_CHARS: usize = 500;

/// A gram that is not made yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GramDraft {
    /// Of unique ids, once it is sealed.
    pub nodes: Vec<GramNode>,
    /// Between them.
    pub edges: Vec<GramEdge>,
    /// What is said of the snapshot.
    pub metadata: Map<String, Value>,
}

/// What pruning left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedCounts {
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
}

/// A node under its merge.
struct NodeMerge {
    node: GramNode,
    known_since: (Timestamp, Uuid),
    sources: BTreeSet<String>,
    /// What was said under its id: what it was worth, and since when it is known.
    alternative_texts: BTreeMap<String, (f64, Timestamp)>,
}

impl GramDraft {
    /// All of these grams as one. Its metadata are empty.
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
                    Some(there) if there.weight >= edge.weight => {}
                    Some(there) => there.clone_from(edge),
                    None => drop(edges.insert(key, edge.clone())),
                }
            }
        }
        let nodes = nodes.into_values().map(NodeMerge::finish).collect();
        Self { nodes, edges: edges.into_values().collect(), metadata: Map::new() }
    }

    /// Adds a node for each end of an edge that has none, which only refers to it: what it is, another gram says.
    pub fn add_reference_nodes(&mut self) {
        let there: BTreeSet<&str> = self.nodes.iter().map(|node| node.id.as_str()).collect();
        let ends = self.edges.iter().flat_map(|edge| [&edge.source, &edge.target]);
        let missing: BTreeSet<String> = ends.filter(|end| !there.contains(end.as_str())).cloned().collect();
        self.nodes.extend(missing.into_iter().map(|id| GramNode::new(id, super::REFERENCE_TYPE, 0.0)));
    }

    /// Leaves out what is worth least by then, so that what is sealed of it has at most so many bytes as RFC 8785 JSON; where
    /// its metadata alone have more, nothing else is left. `metadata.pruned` says what went.
    pub fn prune(&mut self, now: Timestamp, budget: usize) -> PrunedCounts {
        let all = PrunedCounts { nodes: self.nodes.len(), edges: self.edges.len() };
        let node_sizes: Vec<usize> = self.nodes.iter().map(|node| encoded_size(&node.to_json())).collect();
        let edge_sizes: Vec<usize> = self.edges.iter().map(|edge| encoded_size(&edge.to_json())).collect();
        // As RFC 8785 has them: a comma between two, the rest with nothing in its arrays.
        let rest = Self { metadata: self.metadata.clone(), ..Self::default() }.into_members(now);
        let commas = usize::from(all.nodes > 0) + usize::from(all.edges > 0);
        let whole = to_canonical_json(&rest).len() + node_sizes.iter().chain(&edge_sizes).sum::<usize>() - commas;
        if whole <= budget {
            return PrunedCounts::default();
        }
        // With room for what is said of the pruning, as if all went.
        self.metadata.insert("pruned".to_owned(), json!({"edges": all.edges, "nodes": all.nodes}));
        let frame = Self { metadata: self.metadata.clone(), ..Self::default() }.into_members(now);
        let mut room = budget.saturating_sub(to_canonical_json(&frame).len());

        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        let worth: Vec<f64> = self.nodes.iter().map(|node| node.importance_at(now, now)).collect();
        // Of what is worth the same, the newest.
        let since: Vec<Option<Timestamp>> = self.nodes.iter().map(GramNode::known_since).collect();
        order.sort_by(|a, b| {
            let ids = || self.nodes[*a].id.cmp(&self.nodes[*b].id);
            worth[*b].total_cmp(&worth[*a]).then_with(|| since[*b].cmp(&since[*a])).then_with(ids)
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
        let mut place = 0..;
        self.nodes.retain(|_| place.next().is_some_and(|index| kept.contains(&index)));
        let mut place = 0..;
        self.edges.retain(|_| place.next().is_some_and(|index| kept_edges.contains(&index)));
        let pruned = PrunedCounts { nodes: all.nodes - self.nodes.len(), edges: all.edges - self.edges.len() };
        self.metadata.insert("pruned".to_owned(), json!({"edges": pruned.edges, "nodes": pruned.nodes}));
        pruned
    }

    /// Makes the gram, with its hash in it, and an id that is made of that. The same draft gives the same gram.
    ///
    /// # Errors
    /// [`GramError`] where it breaks a rule.
    pub fn build(self, timestamp: Timestamp, limits: &GramLimits) -> Result<MemoryGram, GramError> {
        MemoryGram::from_members(self.into_members(timestamp), limits)
    }

    fn into_members(mut self, timestamp: Timestamp) -> Map<String, Value> {
        self.metadata.shift_remove(HASH_KEY);
        let mut json = Map::new();
        json.insert("id".to_owned(), Value::Null);
        json.insert("timestamp".to_owned(), timestamp.to_string().into());
        json.insert("nodes".to_owned(), self.nodes.iter().map(GramNode::to_json).collect());
        json.insert("edges".to_owned(), self.edges.iter().map(GramEdge::to_json).collect());
        json.insert("metadata".to_owned(), Value::Object(self.metadata));
        let bytes = content_hash(&json);
        let digits = bytes.trim_start_matches("sha256:");
        let mut seed = [0; 16];
        for (place, byte) in seed.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).unwrap_or_default();
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
    /// Takes up what a node says, for the day when another says something else.
    fn record_texts(&mut self, node: &GramNode, at: Timestamp) {
        for text in node_texts(node) {
            let (worth, known) = self.alternative_texts.entry(text).or_insert((0.0, at));
            *worth = worth.max(node.importance());
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
        // Who said no type knows no better one.
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
            // Its gram's time is not this one's.
            self.node.metadata.insert("at".to_owned(), self.known_since.0.to_string().into());
            let sources: Vec<String> = self.sources.into_iter().take(MAX_NODE_SOURCES).collect();
            self.node.metadata.insert("sources".to_owned(), sources.into());
        }
        self.node
    }
}

/// What was said under a node's id.
fn node_texts(node: &GramNode) -> impl Iterator<Item = String> {
    let also = node.attributes.get(ALSO_SAID_KEY).and_then(Value::as_array).into_iter().flatten();
    node.attributes.get("text").into_iter().chain(also).filter_map(Value::as_str).map(truncate_text)
}

fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_ALSO_SAID_CHARS).collect()
}

/// Who says that there is this node.
fn node_sources(node: &GramNode, gram: &MemoryGram) -> BTreeSet<String> {
    if node.is_reference() {
        return BTreeSet::new();
    }
    let said = node.metadata.get("sources").and_then(Value::as_array);
    let said = said.map(|sources| sources.iter().filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>());
    said.filter(|sources| !sources.is_empty()).unwrap_or_else(|| {
        [gram.source_agent().map_or_else(|| format!("urn:uuid:{}", gram.id()), str::to_owned)].into()
    })
}

/// What it takes in an array.
fn encoded_size(json: &Value) -> usize {
    json.as_object().map_or(0, |json| to_canonical_json(json).len() + 1)
}
