//! Cycles, and a comparison with petgraph.

#[cfg(feature = "orchestrator")]
use proptest::prelude::*;

use crate::tasks::graph::find_cycles;

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
