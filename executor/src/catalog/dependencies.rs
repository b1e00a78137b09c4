//! Who must be left out because of `depends_on`: what depends on nothing that exists, on itself,
//! or on something that was left out. Two passes over all dependencies, however deep they are.

use std::collections::BTreeMap;

/// Why a node is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrokenDependency<'a> {
    /// It depends on this, which is not there, or not any more.
    Absent(&'a str),
    /// Following its dependencies leads back to it.
    Circular,
}

/// The broken ones of `nodes`, each with the first reason found, causes before consequences.
///
/// `dependencies` gives what a node depends on.
pub(super) fn broken<'a>(
    nodes: &[&'a str],
    mut dependencies: impl FnMut(&'a str) -> Vec<&'a str>,
) -> Vec<(&'a str, BrokenDependency<'a>)> {
    let paths: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let mut forward = vec![Vec::new(); nodes.len()];
    let mut backward = vec![Vec::new(); nodes.len()];
    let mut reasons: Vec<Option<BrokenDependency<'_>>> = vec![None; nodes.len()];
    for (place, node) in nodes.iter().enumerate() {
        for name in dependencies(node) {
            match paths.get(name) {
                Some(&on) => {
                    forward[place].push(on);
                    backward[on].push(place);
                }
                None => {
                    reasons[place].get_or_insert(BrokenDependency::Absent(name));
                }
            }
        }
    }
    for place in circular(&forward) {
        reasons[place].get_or_insert(BrokenDependency::Circular);
    }
    let mut found: Vec<usize> = (0..nodes.len()).filter(|place| reasons[*place].is_some()).collect();
    let mut next = 0;
    while let Some(&gone) = found.get(next) {
        for &place in &backward[gone] {
            if reasons[place].is_none() {
                reasons[place] = Some(BrokenDependency::Absent(nodes[gone]));
                found.push(place);
            }
        }
        next += 1;
    }
    found.into_iter().filter_map(|place| Some((nodes[place], reasons[place]?))).collect()
}

/// The nodes that lie on a circle, by Tarjan's algorithm for strongly connected components (1972),
/// with a stack of its own instead of recursion.
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
        // Each with how many of its dependencies were followed.
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
            if let Some((before, _)) = path.last() {
                lowest[*before] = lowest[*before].min(lowest[node]);
            }
            if lowest[node] == number[node] {
                let start = open.iter().rposition(|other| *other == node).expect("a node is open until it is left");
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
    fn what_is_absent_or_circular_takes_along_what_depends_on_it() {
        use BrokenDependency::{Absent, Circular};
        let graph: &[(&str, &[&str])] = &[
            ("good", &[]),
            ("leans", &["good", "good"]),
            ("falls_too", &["good", "falls"]),
            ("falls", &["nobody"]),
            ("itself", &["itself"]),
            ("a", &["b", "good"]),
            ("b", &["c"]),
            ("c", &["a"]),
            ("d", &["c"]),
            // Between two circles, and on neither.
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
                ("c", Circular),
                ("d", Absent("c")),
                ("e", Circular),
                ("f", Circular),
                ("falls", Absent("nobody")),
                ("falls_too", Absent("falls")),
                ("itself", Circular),
            ]
        );
    }

    #[test]
    fn each_nodes_dependencies_are_asked_once_however_long_the_chain() {
        let names: Vec<_> = (0..5000).map(|number| format!("n{number}")).collect();
        let nodes: Vec<_> = names.iter().map(String::as_str).collect();
        for (end, expected) in [(None, 0), (Some("nobody"), 5000), (Some("n0"), 5000)] {
            let mut asked = 0;
            let found = broken(&nodes, |node| {
                asked += 1;
                let number: usize = node[1..].parse().expect("a number");
                nodes.get(number + 1).copied().or(end).into_iter().collect()
            });
            assert_eq!((found.len(), asked), (expected, 5000), "{end:?}");
        }
    }
}
