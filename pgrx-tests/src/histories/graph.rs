//! Dependencies between transactions, and cycles of them.

use std::collections::{BTreeSet, VecDeque};

/// How one transaction comes behind another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// It wrote the next version.
    Write,
    /// It saw the version.
    Read,
    /// It overwrote the version that the other one saw.
    Anti,
}

/// Transactions by their numbers.
#[derive(Default)]
pub struct Graph {
    edges: Vec<BTreeSet<(usize, Edge)>>,
}

impl Graph {
    pub fn new(count: usize) -> Graph {
        Graph { edges: vec![BTreeSet::new(); count] }
    }

    pub fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].insert((to, edge));
        }
    }

    /// A shortest cycle of edges of some kinds, if there is any: its transactions.
    pub fn cycle(&self, kinds: &[Edge]) -> Option<Vec<usize>> {
        let mut cycle = (0..self.edges.len()).find_map(|start| self.way(start, start, kinds))?;
        // Where it ends is where it began.
        cycle.pop();
        Some(cycle)
    }

    /// A cycle with exactly one anti-dependency, if there is any.
    pub fn cycle_with_one_anti(&self) -> Option<Vec<usize>> {
        let all = self.edges.iter().enumerate();
        let mut anti = all.flat_map(|(from, next)| {
            next.iter().filter(|(_, edge)| *edge == Edge::Anti).map(move |(to, _)| (from, *to))
        });
        anti.find_map(|(from, to)| self.way(to, from, &[Edge::Write, Edge::Read]))
    }

    /// A shortest way from one to the other, which may be the same, over edges of some kinds.
    fn way(&self, from: usize, to: usize, kinds: &[Edge]) -> Option<Vec<usize>> {
        let mut before = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(now) = queue.pop_front() {
            for (next, edge) in &self.edges[now] {
                if !kinds.contains(edge) || before[*next].is_some() {
                    continue;
                }
                before[*next] = Some(now);
                if *next == to {
                    return Some(walked(&before, from, to));
                }
                queue.push_back(*next);
            }
        }
        None
    }
}

fn walked(before: &[Option<usize>], from: usize, to: usize) -> Vec<usize> {
    let mut way = vec![to];
    let mut now = to;
    while let Some(earlier) = before[now] {
        way.push(earlier);
        now = earlier;
        if now == from {
            break;
        }
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_by_kind() {
        let mut graph = Graph::new(4);
        graph.add(0, 1, Edge::Write);
        graph.add(1, 2, Edge::Read);
        graph.add(2, 2, Edge::Write);
        assert_eq!(graph.cycle(&[Edge::Write, Edge::Read, Edge::Anti]), None);
        graph.add(2, 0, Edge::Anti);
        assert_eq!(graph.cycle(&[Edge::Write, Edge::Read]), None);
        assert_eq!(graph.cycle_with_one_anti(), Some(vec![0, 1, 2]));
        graph.add(2, 3, Edge::Anti);
        graph.add(3, 2, Edge::Anti);
        assert!(graph.cycle(&[Edge::Anti]).is_some());
        graph.add(2, 0, Edge::Write);
        assert_eq!(graph.cycle(&[Edge::Write, Edge::Read]), Some(vec![0, 1, 2]));
    }
}
