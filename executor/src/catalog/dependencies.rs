//! Finds the nodes with broken dependencies: those that depend on a missing node, on themselves, or on a broken node.
//! Takes time linear in the number of dependencies.

use std::collections::BTreeMap;

/// Why a node is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrokenDependency<'a> {
    /// It depends on this node, which is missing or broken.
    Absent(&'a str),
    /// It depends on itself, directly or indirectly.
    Circular,
}

/// Returns the broken ones of `nodes`, each with the first reason found, causes before consequences.
///
/// `dependencies` returns what a node depends on; it is called once for each node.
pub(super) fn broken<'a>(
    nodes: &[&'a str],
    mut dependencies: impl FnMut(&'a str) -> Vec<&'a str>,
) -> Vec<(&'a str, BrokenDependency<'a>)> {
    let indexes: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let mut forward = vec![Vec::new(); nodes.len()];
    let mut backward = vec![Vec::new(); nodes.len()];
    let mut reasons: Vec<Option<BrokenDependency<'_>>> = vec![None; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for name in dependencies(node) {
            match indexes.get(name) {
                Some(&on) => {
                    forward[index].push(on);
                    backward[on].push(index);
                }
                None => {
                    reasons[index].get_or_insert(BrokenDependency::Absent(name));
                }
            }
        }
    }
    for index in circular(&forward) {
        reasons[index].get_or_insert(BrokenDependency::Circular);
    }
    let mut found: Vec<usize> = (0..nodes.len()).filter(|index| reasons[*index].is_some()).collect();
    let mut next = 0;
    while let Some(&gone) = found.get(next) {
        for &index in &backward[gone] {
            if reasons[index].is_none() {
                reasons[index] = Some(BrokenDependency::Absent(nodes[gone]));
                found.push(index);
            }
        }
        next += 1;
    }
    found.into_iter().filter_map(|index| Some((nodes[index], reasons[index]?))).collect()
}

/// Returns the nodes that are part of a cycle, by Tarjan's algorithm for strongly connected components (1972), with an
/// explicit stack instead of recursion.
fn circular(forward: &[Vec<usize>]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let mut number = vec![UNSEEN; forward.len()];
    let mut lowest = vec![UNSEEN; forward.len()];
    let mut is_open = vec![false; forward.len()];
    let (mut open, mut count, mut circular) = (Vec::new(), 0, Vec::new());
    for root in 0..forward.len() {
        if number[root] != UNSEEN {
            continue;
        }
        // Nodes, each with how many of its dependencies were followed.
        let mut path = vec![(root, 0)];
        while let Some((node, followed)) = path.last_mut() {
            let node = *node;
            if number[node] == UNSEEN {
                (number[node], lowest[node]) = (count, count);
                count += 1;
                open.push(node);
                is_open[node] = true;
            }
            if let Some(&next) = forward[node].get(*followed) {
                *followed += 1;
                if number[next] == UNSEEN {
                    path.push((next, 0));
                } else if is_open[next] {
                    lowest[node] = lowest[node].min(number[next]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                lowest[*parent] = lowest[*parent].min(lowest[node]);
            }
            if lowest[node] == number[node] {
                let start = open
                    .iter()
                    .rposition(|other| *other == node)
                    .expect("a node is open until its component is complete");
                let component = open.split_off(start);
                for member in &component {
                    is_open[*member] = false;
                }
                if component.len() > 1 || forward[node].contains(&node) {
                    circular.extend(component);
                }
            }
        }
    }
    circular
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_of<'a>(graph: &[(&'a str, &[&'a str])]) -> Vec<(&'a str, BrokenDependency<'a>)> {
        let nodes: Vec<_> = graph.iter().map(|(node, _)| *node).collect();
        broken(&nodes, |node| {
            graph.iter().find(|(name, _)| *name == node).map_or(Vec::new(), |(_, dependencies)| dependencies.to_vec())
        })
    }

    #[test]
    fn what_depends_on_a_broken_node_is_broken_too() {
        use BrokenDependency::{Absent, Circular};
        let graph: &[(&str, &[&str])] = &[
            ("good", &[]),
            ("depends", &["good", "good"]),
            ("indirectly_broken", &["good", "broken"]),
            ("broken", &["missing"]),
            ("itself", &["itself"]),
            ("a", &["b", "good"]),
            ("b", &["c"]),
            ("c", &["a"]),
            ("d", &["c"]),
            // Between two cycles, but in neither of them.
            ("between", &["itself", "a"]),
            ("e", &["between", "f"]),
            ("f", &["e"]),
        ];
        let mut found = broken_of(graph);
        found.sort_by_key(|(node, _)| *node);
        assert_eq!(
            found,
            [
                ("a", Circular),
                ("b", Circular),
                ("between", Absent("itself")),
                ("broken", Absent("missing")),
                ("c", Circular),
                ("d", Absent("c")),
                ("e", Circular),
                ("f", Circular),
                ("indirectly_broken", Absent("broken")),
                ("itself", Circular),
            ]
        );
    }

    #[test]
    fn the_dependencies_of_each_node_are_queried_once_even_in_a_long_chain() {
        let names: Vec<_> = (0..5000).map(|number| format!("n{number}")).collect();
        let nodes: Vec<_> = names.iter().map(String::as_str).collect();
        for (end, expected) in [(None, 0), (Some("missing"), 5000), (Some("n0"), 5000)] {
            let mut queries = 0;
            let found = broken(&nodes, |node| {
                queries += 1;
                let number: usize = node[1..].parse().expect("a number");
                nodes.get(number + 1).copied().or(end).into_iter().collect()
            });
            assert_eq!((found.len(), queries), (expected, 5000), "{end:?}");
        }
    }
}
