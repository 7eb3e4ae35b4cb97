//! What stories are to each other: ids made `US-ddd`, dependencies found, circles named, an order given.
//!
//! Called by `import.rs`, and through [`super::topological_order`] by the shim and the plan. Without petgraph, which the shim does
//! not have; the plan's tests hold the two against each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

use super::TasksFile;
use super::error::TasksDefect;
use super::field_reader::FieldReader;
use crate::ids::StoryId;
use crate::json::text::excerpt;
use crate::json::{JsonNode, JsonPath};

/// A story before its dependencies are found.
pub(super) struct StoryDraft<'a> {
    pub node: &'a JsonNode,
    /// As the file has it; none where that was reported.
    pub id: Option<String>,
    pub dependencies: Vec<DependencyRef<'a>>,
}

/// A dependency as the file has it.
pub(super) struct DependencyRef<'a> {
    pub id: String,
    /// The key that it stands under, and its place there.
    pub key: &'static str,
    pub index: usize,
    pub node: &'a JsonNode,
}

/// A story's ids, and what it depends on.
pub(super) struct ResolvedStory {
    pub id: StoryId,
    pub source_id: Option<String>,
    pub depends_on: Vec<StoryId>,
}

/// Gives every story its id and its dependencies, one link a draft, and reports duplicate ids, unknown dependencies and
/// circles. The links mean something only where nothing was reported.
pub(super) fn resolve(checker: &mut FieldReader<'_>, drafts: &[StoryDraft<'_>]) -> Vec<ResolvedStory> {
    let stories = JsonPath::Key(&JsonPath::Root, "userStories");
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some(id) = &draft.id {
            places.entry(id).or_default().push(index);
        }
    }
    for (id, indices) in places.iter().filter(|(_, indices)| indices.len() > 1) {
        let shown = indices.iter().map(|index| {
            let line = checker.line_index.line(drafts[*index].node.span.start);
            format!("`userStories[{index}]` (line {line})")
        });
        let defect = TasksDefect::DuplicateId { id: excerpt(id), places: shown.collect() };
        let again = indices[1];
        checker.report(&JsonPath::Key(&JsonPath::Index(&stories, again), "id"), drafts[again].node, defect);
    }

    let mut edges: Vec<Vec<usize>> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        checker.current_story = draft.id.clone();
        let mut found = Vec::new();
        for wanted in &draft.dependencies {
            let at = JsonPath::Index(&stories, index);
            let at = JsonPath::Key(&at, wanted.key);
            let at = JsonPath::Index(&at, wanted.index);
            match places.get(wanted.id.as_str()) {
                Some(indices) if indices.contains(&index) => {
                    checker.report(&at, wanted.node, TasksDefect::SelfDependency);
                }
                Some(indices) => found.push(indices[0]),
                None => {
                    let known = list_known_ids(drafts);
                    let dependency = excerpt(&wanted.id);
                    checker.report(&at, wanted.node, TasksDefect::UnknownDependency { dependency, known });
                }
            }
        }
        let mut seen = HashSet::new();
        found.retain(|target| seen.insert(*target));
        edges.push(found);
    }
    checker.current_story = None;

    for cycle in find_cycles(&edges) {
        let name = |index: &usize| drafts[*index].id.as_deref().map(excerpt).unwrap_or_default();
        let first = cycle[0];
        let ids = cycle.iter().chain([&first]).map(name).collect();
        let edge = drafts[first].dependencies.iter().find(|wanted| {
            cycle.get(1).and_then(|next| drafts[*next].id.as_ref()).is_some_and(|next| *next == wanted.id)
        });
        let at = JsonPath::Index(&stories, first);
        let (place, node) = match edge {
            Some(wanted) => (JsonPath::Key(&at, wanted.key), wanted.node),
            None => (at, drafts[first].node),
        };
        checker.current_story = drafts[first].id.clone();
        checker.report(&place, node, TasksDefect::Cycle { ids });
    }
    checker.current_story = None;

    let ids = assign_ids(drafts);
    let links = edges.iter().zip(drafts).zip(&ids);
    links
        .map(|((targets, draft), id)| ResolvedStory {
            id: id.clone(),
            source_id: draft.id.clone().filter(|source| source != id.as_str()),
            depends_on: targets.iter().map(|target| ids[*target].clone()).collect(),
        })
        .collect()
}

/// Ids of the form `US-ddd` stay; the others get the lowest free numbers from 1, in the file's order.
fn assign_ids(drafts: &[StoryDraft<'_>]) -> Vec<StoryId> {
    let kept: Vec<Option<StoryId>> =
        drafts.iter().map(|draft| draft.id.as_ref().and_then(|id| id.parse().ok())).collect();
    let taken: HashSet<StoryId> = kept.iter().flatten().cloned().collect();
    let mut free = (1..).map_while(StoryId::from_number).filter(|id| !taken.contains(id));
    let next = |free: &mut dyn Iterator<Item = StoryId>| {
        free.next().expect("there are at most 999 stories, and each taken id is that of one of them")
    };
    kept.into_iter().map(|id| id.unwrap_or_else(|| next(&mut free))).collect()
}

fn list_known_ids(drafts: &[StoryDraft<'_>]) -> String {
    let ids: Vec<&str> = drafts.iter().filter_map(|draft| draft.id.as_deref()).collect();
    let shown: Vec<String> = ids.iter().take(8).map(|id| format!("`{}`", excerpt(id))).collect();
    let more = ids.len() - shown.len();
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Circles in a graph given as each node's targets (in range, none its own, none twice). Each begins with its lowest index and goes
/// from a node to one of its targets; no node is in two of them, and without them there is no circle left.
pub(super) fn find_cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut peeling = LeafRemoval::new(edges);
    let mut found = Vec::new();
    loop {
        peeling.remove_leaves();
        // Every node that is left has a target that is left, so the walk must come round.
        let Some(start) = peeling.remaining.first().copied() else { return found };
        let mut walk = vec![start];
        let mut step_of = HashMap::from([(start, 0)]);
        let from = loop {
            let last = walk[walk.len() - 1];
            let next = edges[last].iter().copied().find(|target| peeling.remaining.contains(target));
            let next = next.expect("a node without targets was peeled");
            if let Some(step) = step_of.get(&next) {
                break *step;
            }
            step_of.insert(next, walk.len());
            walk.push(next);
        };
        let mut cycle = walk.split_off(from);
        let lowest = cycle.iter().enumerate().min_by_key(|(_, index)| **index).map_or(0, |(at, _)| at);
        cycle.rotate_left(lowest);
        for index in &cycle {
            peeling.remove(*index);
        }
        found.push(cycle);
    }
}

/// Takes away, again and again, what has no targets: what is left leads into circles.
struct LeafRemoval {
    sources: Vec<Vec<usize>>,
    /// How many targets of a node are left.
    remaining_targets: Vec<usize>,
    remaining: BTreeSet<usize>,
    leaves: Vec<usize>,
}

impl LeafRemoval {
    fn new(edges: &[Vec<usize>]) -> Self {
        let targets: Vec<usize> = edges.iter().map(Vec::len).collect();
        let bare = (0..edges.len()).filter(|index| targets[*index] == 0).collect();
        Self {
            sources: reverse_edges(edges),
            remaining_targets: targets,
            remaining: (0..edges.len()).collect(),
            leaves: bare,
        }
    }

    fn remove_leaves(&mut self) {
        while let Some(index) = self.leaves.pop() {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) {
        if !self.remaining.remove(&index) {
            return;
        }
        for source in &self.sources[index] {
            self.remaining_targets[*source] -= 1;
            if self.remaining_targets[*source] == 0 {
                self.leaves.push(*source);
            }
        }
    }
}

fn reverse_edges(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut sources = vec![Vec::new(); edges.len()];
    for (index, targets) in edges.iter().enumerate() {
        for target in targets {
            sources[*target].push(index);
        }
    }
    sources
}

/// See [`super::topological_order`].
pub(super) fn topological_order(file: &TasksFile) -> Vec<usize> {
    let place: HashMap<&StoryId, usize> =
        file.stories.iter().enumerate().map(|(index, story)| (&story.id, index)).collect();
    let edges: Vec<Vec<usize>> = file
        .stories
        .iter()
        .map(|story| story.depends_on.iter().filter_map(|id| place.get(id).copied()).collect())
        .collect();
    let sources = reverse_edges(&edges);
    let mut waiting: Vec<usize> = edges.iter().map(Vec::len).collect();
    let rank = |index: usize| Reverse((file.stories[index].priority, index));
    let mut ready: BinaryHeap<_> = (0..edges.len()).filter(|index| waiting[*index] == 0).map(rank).collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(Reverse((_, index))) = ready.pop() {
        order.push(index);
        for source in &sources[index] {
            waiting[*source] -= 1;
            if waiting[*source] == 0 {
                ready.push(rank(*source));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "orchestrator")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cycles_start_at_their_lowest_index() {
        let edges = |list: &[&[usize]]| list.iter().map(|targets| targets.to_vec()).collect::<Vec<_>>();
        assert!(find_cycles(&edges(&[&[], &[0], &[0, 1]])).is_empty());
        assert_eq!(find_cycles(&edges(&[&[1], &[0]])), [[0, 1]]);
        assert_eq!(find_cycles(&edges(&[&[2], &[0], &[1], &[0]])), [[0, 2, 1]]);
        // Reached from outside: the way in is no part of it.
        assert_eq!(find_cycles(&edges(&[&[1], &[2], &[3], &[1]])), [[1, 2, 3]]);
        // Two that share nothing.
        assert_eq!(find_cycles(&edges(&[&[1], &[0], &[3], &[2]])), [[0, 1], [2, 3]]);
    }

    #[cfg(feature = "orchestrator")]
    proptest! {
        #[test]
        fn find_cycles_agrees_with_petgraph(list in prop::collection::vec((0usize..12, 0usize..12), 0..40)) {
            let mut edges = vec![Vec::new(); 12];
            let mut graph = petgraph::graph::DiGraph::<(), ()>::new();
            let nodes: Vec<_> = (0..12).map(|_| graph.add_node(())).collect();
            for (from, to) in list.into_iter().filter(|(from, to)| from != to) {
                if !edges[from].contains(&to) {
                    edges[from].push(to);
                    graph.add_edge(nodes[from], nodes[to], ());
                }
            }
            let found = find_cycles(&edges);
            prop_assert_eq!(found.is_empty(), !petgraph::algo::is_cyclic_directed(&graph));
            for cycle in found {
                prop_assert_eq!(cycle.iter().min(), cycle.first());
                for (index, node) in cycle.iter().enumerate() {
                    prop_assert!(edges[*node].contains(&cycle[(index + 1) % cycle.len()]));
                }
            }
        }
    }
}
