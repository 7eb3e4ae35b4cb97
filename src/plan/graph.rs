//! The dependency graph of the stories to run: their waves, and which of them never run in parallel.
//!
//! Called by `build.rs`.

use std::collections::{HashMap, HashSet};

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::ids::StoryKey;
use crate::swarm::StorySpec;

/// Stories that are not done; an edge goes from a story to one that depends on it.
pub(super) struct StoryGraph {
    graph: DiGraph<StoryKey, ()>,
    nodes: HashMap<StoryKey, NodeIndex>,
    /// In topological order.
    sorted: Vec<NodeIndex>,
}

impl StoryGraph {
    /// Builds the graph of the stories to run. Dependencies that are done, `completed` or `skipped`, are ignored.
    pub fn new(stories: &[StorySpec]) -> Self {
        let mut graph = DiGraph::new();
        let running = || stories.iter().filter(|story| story.done.is_none());
        let node: HashMap<_, _> =
            running().map(|story| (story.key.clone(), graph.add_node(story.key.clone()))).collect();
        for story in running() {
            for dependency in story.depends_on.iter().filter_map(|key| node.get(key)) {
                graph.update_edge(*dependency, node[&story.key], ());
            }
        }
        let sorted = toposort(&graph, None).expect("a tasks file that was read has no cycles");
        Self { graph, nodes: node, sorted }
    }

    /// The stories in layers: each in the earliest layer after all its dependencies, sorted by `rank` within a layer.
    pub fn waves<R: Ord>(&self, rank: impl Fn(&StoryKey) -> R) -> Vec<Vec<StoryKey>> {
        let mut depth = vec![0; self.graph.node_count()];
        let mut waves: Vec<Vec<StoryKey>> = Vec::new();
        for node in &self.sorted {
            let before = self.graph.neighbors_directed(*node, Direction::Incoming);
            let wave = before.map(|dependency| depth[dependency.index()] + 1).max().unwrap_or(0);
            depth[node.index()] = wave;
            if waves.len() <= wave {
                waves.resize(wave + 1, Vec::new());
            }
            waves[wave].push(self.graph[*node].clone());
        }
        for wave in &mut waves {
            wave.sort_by_cached_key(&rank);
        }
        waves
    }

    /// For each story, all its direct and indirect dependencies.
    pub fn ancestors(&self) -> Ancestors<'_> {
        let mut sets: Vec<HashSet<NodeIndex>> = vec![HashSet::new(); self.graph.node_count()];
        for node in &self.sorted {
            let mut all = HashSet::new();
            for dependency in self.graph.neighbors_directed(*node, Direction::Incoming) {
                all.insert(dependency);
                all.extend(&sets[dependency.index()]);
            }
            sets[node.index()] = all;
        }
        Ancestors { graph: self, sets }
    }
}

/// See [`StoryGraph::ancestors`].
pub(super) struct Ancestors<'g> {
    graph: &'g StoryGraph,
    sets: Vec<HashSet<NodeIndex>>,
}

impl Ancestors<'_> {
    /// Whether one of the two has to land before the other starts.
    pub fn are_dependent(&self, one: &StoryKey, two: &StoryKey) -> bool {
        let (Some(one), Some(two)) = (self.graph.nodes.get(one), self.graph.nodes.get(two)) else { return false };
        self.sets[one.index()].contains(two) || self.sets[two.index()].contains(one)
    }
}
