//! Finds the nodes with broken dependencies: those that depend on a missing node, on themselves, or on a broken node.
//! Takes time linear in the number of dependencies.

use std::collections::BTreeMap;

/// A node and what it needs.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    /// It needs these, and none of them may need it in this way.
    pub(super) depends_on: Vec<&'a str>,
    /// It needs these, in any way.
    pub(super) uses: Vec<&'a str>,
    /// Whether it has a mistake of its own.
    pub(super) is_broken: bool,
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeVerdict {
    Usable,
    /// It is not defined, or its definition has a mistake.
    Absent,
    /// It depends on itself, directly or indirectly.
    Circular,
    /// Something that it needs cannot be used.
    Broken,
}

/// Judges `nodes`. They include everything that they need, except what `known` has a verdict on.
pub(super) fn verdicts(nodes: &[Node<'_>], known: impl Fn(&str) -> Option<NodeVerdict>) -> Vec<NodeVerdict> {
    let indexes: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(index, node)| (node.name, index)).collect();
    let mut forward = vec![Vec::new(); nodes.len()];
    let mut backward = vec![Vec::new(); nodes.len()];
    let mut verdicts = vec![NodeVerdict::Usable; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        if node.is_broken {
            verdicts[index] = NodeVerdict::Broken;
        }
        for (number, name) in node.depends_on.iter().chain(&node.uses).enumerate() {
            match (indexes.get(name), known(name)) {
                (Some(&on), _) => {
                    backward[on].push(index);
                    if number < node.depends_on.len() {
                        forward[index].push(on);
                    }
                }
                (None, Some(NodeVerdict::Usable)) => {}
                (None, _) => verdicts[index] = NodeVerdict::Broken,
            }
        }
    }
    for index in circular(&forward) {
        verdicts[index] = NodeVerdict::Circular;
    }
    let mut found: Vec<usize> = (0..nodes.len()).filter(|index| verdicts[*index] != NodeVerdict::Usable).collect();
    let mut next = 0;
    while let Some(&gone) = found.get(next) {
        for &index in &backward[gone] {
            if verdicts[index] == NodeVerdict::Usable {
                verdicts[index] = NodeVerdict::Broken;
                found.push(index);
            }
        }
        next += 1;
    }
    verdicts
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

    fn node<'a>(name: &'a str, depends_on: &[&'a str]) -> Node<'a> {
        Node { name, depends_on: depends_on.to_vec(), ..Node::default() }
    }

    #[test]
    fn what_needs_a_broken_node_is_broken_too() {
        use NodeVerdict::{Broken, Circular, Usable};
        let using = |name, uses: &[&'static str]| Node { name, uses: uses.to_vec(), ..Node::default() };
        let graph = [
            (node("good", &[]), Usable),
            (node("depends", &["good", "good", "known"]), Usable),
            (node("indirectly_broken", &["good", "broken"]), Broken),
            (node("broken", &["missing"]), Broken),
            (node("of_known", &["known_broken"]), Broken),
            (node("itself", &["itself"]), Circular),
            (node("a", &["b", "good"]), Circular),
            (node("b", &["c"]), Circular),
            (node("c", &["a"]), Circular),
            (node("d", &["c"]), Broken),
            // Between two cycles, but in neither of them.
            (node("between", &["itself", "a"]), Broken),
            (node("e", &["between", "f"]), Circular),
            (node("f", &["e"]), Circular),
            // Two subtools may undo each other.
            (using("add", &["remove"]), Usable),
            (using("remove", &["add"]), Usable),
            (using("uses", &["good", "mistaken"]), Broken),
            (Node { is_broken: true, ..node("mistaken", &[]) }, Broken),
        ];
        let (nodes, expected): (Vec<_>, Vec<_>) = graph.into_iter().unzip();
        let known = |name: &str| match name {
            "known" => Some(Usable),
            "known_broken" => Some(Broken),
            _ => None,
        };
        assert_eq!(verdicts(&nodes, known), expected);
    }

    #[test]
    fn a_long_chain_is_judged_in_one_pass() {
        let names: Vec<_> = (0..50_000).map(|number| format!("n{number}")).collect();
        for (end, expected) in
            [(None, NodeVerdict::Usable), (Some("missing"), NodeVerdict::Broken), (Some("n0"), NodeVerdict::Circular)]
        {
            let next = |index: usize| names.get(index + 1).map(String::as_str).or(end);
            let nodes: Vec<_> =
                names.iter().enumerate().map(|(index, name)| node(name, next(index).as_slice())).collect();
            assert!(verdicts(&nodes, |_| None).iter().all(|verdict| *verdict == expected), "{end:?}");
        }
    }
}
