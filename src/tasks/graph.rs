//! Story ids and dependencies: maps ids to `US-ddd`, resolves dependencies, finds cycles, sorts stories.
//!
//! Used by `import.rs`, the shim and the plan. Without petgraph, which the shim does not link; tests compare the two.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

use super::error::TasksProblemKind;
use super::field_reader::FieldReader;
use super::tasks_file::TasksFile;
use crate::ids::StoryId;
use crate::json::text::excerpt;
use crate::json::{JsonNode, JsonPath};

/// A story before its dependencies are resolved.
pub(super) struct StoryDraft<'a> {
    pub node: &'a JsonNode,
    /// As in the file; `None` if a problem was reported.
    pub id: Option<String>,
    pub dependencies: Vec<DependencyRef<'a>>,
}

/// A dependency as in the file.
pub(super) struct DependencyRef<'a> {
    pub id: String,
    /// The key of its array, and its index there.
    pub key: &'static str,
    pub index: usize,
    pub node: &'a JsonNode,
}

pub(super) struct ResolvedStory {
    pub id: StoryId,
    pub source_id: Option<String>,
    pub depends_on: Vec<StoryId>,
}

/// Resolves ids and dependencies of each draft, and reports duplicate ids, unknown dependencies and cycles. The result is
/// meaningful only if no problem was reported.
pub(super) fn resolve(reader: &mut FieldReader<'_>, drafts: &[StoryDraft<'_>]) -> Vec<ResolvedStory> {
    let stories = JsonPath::Key(&JsonPath::Root, "userStories");
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some(id) = &draft.id {
            places.entry(id).or_default().push(index);
        }
    }
    for (id, indices) in places.iter().filter(|(_, indices)| indices.len() > 1) {
        let shown = indices.iter().map(|index| {
            let line = reader.line_index.line(drafts[*index].node.span.start);
            format!("`userStories[{index}]` (line {line})")
        });
        let kind = TasksProblemKind::DuplicateId { id: excerpt(id), places: shown.collect() };
        let again = indices[1];
        reader.report(&JsonPath::Key(&JsonPath::Index(&stories, again), "id"), drafts[again].node, kind);
    }

    let mut edges: Vec<Vec<usize>> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        reader.current_story = draft.id.clone();
        let mut found = Vec::new();
        for wanted in &draft.dependencies {
            let at = JsonPath::Index(&stories, index);
            let at = JsonPath::Key(&at, wanted.key);
            let at = JsonPath::Index(&at, wanted.index);
            match places.get(wanted.id.as_str()) {
                Some(indices) if indices.contains(&index) => {
                    reader.report(&at, wanted.node, TasksProblemKind::SelfDependency);
                }
                Some(indices) => found.push(indices[0]),
                None => {
                    let known = list_known_ids(drafts);
                    let dependency = excerpt(&wanted.id);
                    reader.report(&at, wanted.node, TasksProblemKind::UnknownDependency { dependency, known });
                }
            }
        }
        let mut seen = HashSet::new();
        found.retain(|target| seen.insert(*target));
        edges.push(found);
    }
    reader.current_story = None;

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
        reader.current_story = drafts[first].id.clone();
        reader.report(&place, node, TasksProblemKind::Cycle { ids });
    }
    reader.current_story = None;

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

/// Keeps ids of the form `US-ddd`; the others get the lowest free numbers, in the file's order.
fn assign_ids(drafts: &[StoryDraft<'_>]) -> Vec<StoryId> {
    let own_ids: Vec<Option<StoryId>> =
        drafts.iter().map(|draft| draft.id.as_ref().and_then(|id| id.parse().ok())).collect();
    let taken: HashSet<StoryId> = own_ids.iter().flatten().cloned().collect();
    let mut free = (1..).map_while(StoryId::from_number).filter(|id| !taken.contains(id));
    let next = |free: &mut dyn Iterator<Item = StoryId>| {
        free.next().expect("there are at most 999 stories, and each taken id is that of one of them")
    };
    own_ids.into_iter().map(|id| id.unwrap_or_else(|| next(&mut free))).collect()
}

fn list_known_ids(drafts: &[StoryDraft<'_>]) -> String {
    let ids: Vec<&str> = drafts.iter().filter_map(|draft| draft.id.as_deref()).collect();
    let shown: Vec<String> = ids.iter().take(8).map(|id| format!("`{}`", excerpt(id))).collect();
    let more = ids.len() - shown.len();
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Disjoint cycles of a graph given as each node's targets (in range, no self-loops, no duplicates). Each starts with its
/// lowest index and follows targets; without their nodes the graph has no cycle.
pub(super) fn find_cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut removal = LeafRemoval::new(edges);
    let mut found = Vec::new();
    loop {
        removal.remove_leaves();
        // Every remaining node has a remaining target, so the walk must reach a node twice.
        let Some(start) = removal.remaining.first().copied() else { return found };
        let mut walk = vec![start];
        let mut step_of = HashMap::from([(start, 0)]);
        let from = loop {
            let last = walk[walk.len() - 1];
            let next = edges[last].iter().copied().find(|target| removal.remaining.contains(target));
            let next = next.expect("nodes without targets were removed");
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
            removal.remove(*index);
        }
        found.push(cycle);
    }
}

/// Repeatedly removes nodes without targets: the remaining ones lead into cycles.
struct LeafRemoval {
    sources: Vec<Vec<usize>>,
    /// The number of remaining targets by node.
    remaining_targets: Vec<usize>,
    remaining: BTreeSet<usize>,
    leaves: Vec<usize>,
}

impl LeafRemoval {
    fn new(edges: &[Vec<usize>]) -> Self {
        let targets: Vec<usize> = edges.iter().map(Vec::len).collect();
        let leaves = (0..edges.len()).filter(|index| targets[*index] == 0).collect();
        Self {
            sources: reverse_edges(edges),
            remaining_targets: targets,
            remaining: (0..edges.len()).collect(),
            leaves,
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

/// Indices into `stories`, each after its dependencies; among ready stories the lowest priority number first, then the file's
/// order. Stories in a cycle, which a valid file does not have, are left out.
pub fn topological_order(file: &TasksFile) -> Vec<usize> {
    let positions: HashMap<&StoryId, usize> =
        file.stories.iter().enumerate().map(|(index, story)| (&story.id, index)).collect();
    let edges: Vec<Vec<usize>> = file
        .stories
        .iter()
        .map(|story| story.depends_on.iter().filter_map(|id| positions.get(id).copied()).collect())
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
