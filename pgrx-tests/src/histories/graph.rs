//! Dependencies between transactions, and cycles of dependencies.

use std::collections::{BTreeSet, VecDeque};

/// The way in which one transaction depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// It wrote the next version of a key.
    Write,
    /// It read the version.
    Read,
    /// It overwrote the version that the other one read.
    Anti,
}

/// The edges between transactions, which are numbered.
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

    /// Returns the transactions of a shortest cycle, over edges of these kinds, through some transaction, if
    /// there is any.
    pub fn cycle(&self, kinds: &[Edge]) -> Option<Vec<usize>> {
        let parts = self.parts(kinds);
        let mut sizes = vec![0; self.edges.len()];
        parts.iter().for_each(|part| sizes[*part] += 1);
        // Only a strongly connected part of several transactions has a cycle.
        let start = (0..self.edges.len()).find(|start| sizes[parts[*start]] > 1)?;
        let mut cycle = self.way(start, start, kinds)?;
        // The last transaction is the first one again.
        cycle.pop();
        Some(cycle)
    }

    /// Returns a cycle with exactly one anti-dependency, if there is any.
    pub fn cycle_with_one_anti(&self) -> Option<Vec<usize>> {
        let parts = self.parts(&[Edge::Write, Edge::Read, Edge::Anti]);
        let all = self.edges.iter().enumerate();
        let mut anti = all.flat_map(|(from, next)| {
            next.iter().filter(|(_, edge)| *edge == Edge::Anti).map(move |(to, _)| (from, *to))
        });
        anti.find_map(|(from, to)| {
            let may_return = parts[from] == parts[to];
            may_return.then(|| self.way(to, from, &[Edge::Write, Edge::Read])).flatten()
        })
    }

    /// Numbers the strongly connected parts by Tarjan's algorithm. Histories have hundreds of thousands of
    /// transactions, and a search from each of them would take the square of that.
    fn parts(&self, kinds: &[Edge]) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let count = self.edges.len();
        let (mut order, mut low, mut part) = (vec![NONE; count], vec![0; count], vec![NONE; count]);
        let (mut stack, mut next_order) = (Vec::new(), 0);
        for root in 0..count {
            if order[root] != NONE {
                continue;
            }
            // The transactions on the current path, each with the edges that are still to be followed.
            let mut on_way = vec![(root, self.edges[root].iter())];
            (order[root], low[root]) = (next_order, next_order);
            next_order += 1;
            stack.push(root);
            while let Some((now, edges)) = on_way.last_mut() {
                let now = *now;
                if let Some((next, edge)) = edges.next() {
                    let next = *next;
                    if !kinds.contains(edge) || part[next] != NONE {
                        continue;
                    }
                    if order[next] == NONE {
                        (order[next], low[next]) = (next_order, next_order);
                        next_order += 1;
                        stack.push(next);
                        on_way.push((next, self.edges[next].iter()));
                    } else {
                        low[now] = low[now].min(order[next]);
                    }
                    continue;
                }
                on_way.pop();
                if let Some((before, _)) = on_way.last() {
                    low[*before] = low[*before].min(low[now]);
                }
                if low[now] == order[now] {
                    while let Some(member) = stack.pop() {
                        part[member] = now;
                        if member == now {
                            break;
                        }
                    }
                }
            }
        }
        part
    }

    /// Returns a shortest path between two transactions, which may be the same, over edges of these kinds.
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
    fn parts_are_found_in_long_histories() {
        const COUNT: usize = 300_000;
        let mut graph = Graph::new(COUNT);
        (1..COUNT).for_each(|now| graph.add(now - 1, now, Edge::Write));
        assert_eq!(graph.cycle(&[Edge::Write]), None);
        graph.add(COUNT - 1, COUNT - 3, Edge::Anti);
        assert_eq!(graph.cycle(&[Edge::Write, Edge::Read]), None);
        let last = vec![COUNT - 3, COUNT - 2, COUNT - 1];
        assert_eq!(graph.cycle(&[Edge::Write, Edge::Anti]), Some(last.clone()));
        assert_eq!(graph.cycle_with_one_anti(), Some(last));
    }

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
