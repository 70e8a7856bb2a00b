//! How rows of each table find their tenant: the search over the graph of foreign keys. It knows tables and keys by
//! numbers alone.

use std::collections::{BTreeMap, VecDeque};

/// A foreign key, from the referencing to the referenced table.
#[derive(Debug, Clone, Copy)]
pub struct PathEdge {
    pub from: usize,
    pub to: usize,
    /// Whether a row may reference none.
    pub is_nullable: bool,
}

/// What the keys of a table lead to. A path is a list of keys; the last one leads to a table that holds the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundPath {
    /// The table holds the tenant itself.
    Own,
    /// No key leads to a tenant.
    Nothing,
    Clear(Vec<usize>),
    /// Several keys lead to a tenant: the best path, and the others.
    Several(Vec<usize>, Vec<Vec<usize>>),
    /// The first key of the only path may be NULL.
    Nullable(Vec<usize>),
    /// The table references itself through these other tables.
    Cycle(Vec<usize>, Vec<usize>),
    /// The only path leads through this table, for which there is no clear path.
    Above(Vec<usize>, usize),
}

impl FoundPath {
    /// Returns the best path to a tenant.
    pub fn best(&self) -> Option<&[usize]> {
        match self {
            FoundPath::Own => Some(&[]),
            FoundPath::Nothing => None,
            FoundPath::Clear(path)
            | FoundPath::Several(path, _)
            | FoundPath::Nullable(path)
            | FoundPath::Cycle(path, _)
            | FoundPath::Above(path, _) => Some(path),
        }
    }
}

struct PathGraph<'a> {
    is_keyed: &'a [bool],
    edges: &'a [PathEdge],
    /// The keys of each table.
    of: BTreeMap<usize, Vec<usize>>,
}

/// Returns what is found for each table. `is_keyed`: which of them hold the tenant.
pub fn search(is_keyed: &[bool], edges: &[PathEdge]) -> Vec<FoundPath> {
    let mut of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, edge) in edges.iter().enumerate().filter(|(_, edge)| edge.from != edge.to) {
        of.entry(edge.from).or_default().push(number);
    }
    let graph = PathGraph { is_keyed, edges, of };
    let reaches = reaching(is_keyed, edges);
    let of_table = |table: usize| match reaches.get(table) {
        Some(true) => graph.of_table(table),
        _ => FoundPath::Nothing,
    };
    let first: Vec<FoundPath> = (0..is_keyed.len()).map(of_table).collect();
    first.iter().map(|found| graph.below_unclear(found, &first)).collect()
}

/// Returns which tables hold the tenant, or reference one that does, directly or through others.
pub fn reaching(is_keyed: &[bool], edges: &[PathEdge]) -> Vec<bool> {
    let mut by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for edge in edges {
        by.entry(edge.to).or_default().push(edge.from);
    }
    let mut found = is_keyed.to_vec();
    let mut waiting: Vec<usize> = (0..found.len()).filter(|table| found[*table]).collect();
    while let Some(table) = waiting.pop() {
        for from in by.get(&table).into_iter().flatten() {
            if found.get(*from) == Some(&false) {
                found[*from] = true;
                waiting.push(*from);
            }
        }
    }
    found
}

impl PathGraph<'_> {
    fn keys(&self, table: usize) -> &[usize] {
        self.of.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Follows keys from a table to the first one that is wanted; tables that hold the tenant are not passed, nor is
    /// `avoided`.
    fn shortest(
        &self,
        from: usize,
        avoided: Option<usize>,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        // Whether a table was reached, and by which key.
        let mut came_by: Vec<Option<Option<usize>>> = vec![None; self.is_keyed.len()];
        *came_by.get_mut(from)? = Some(None);
        let mut waiting = VecDeque::from([from]);
        while let Some(table) = waiting.pop_front() {
            if is_wanted(table) {
                return Some(self.trace(table, &came_by));
            }
            if self.is_keyed.get(table) == Some(&true) {
                continue;
            }
            for key in self.keys(table) {
                let Some(edge) = self.edges.get(*key).filter(|edge| Some(edge.to) != avoided) else {
                    continue;
                };
                if came_by.get(edge.to) == Some(&None) {
                    came_by[edge.to] = Some(Some(*key));
                    waiting.push_back(edge.to);
                }
            }
        }
        None
    }

    fn trace(&self, end: usize, came_by: &[Option<Option<usize>>]) -> Vec<usize> {
        let (mut table, mut path) = (end, Vec::new());
        while let Some(Some(Some(key))) = came_by.get(table) {
            path.push(*key);
            let Some(edge) = self.edges.get(*key) else { break };
            table = edge.from;
        }
        path.reverse();
        path
    }

    fn of_table(&self, table: usize) -> FoundPath {
        if self.is_keyed.get(table) == Some(&true) {
            return FoundPath::Own;
        }
        let is_keyed = |table: usize| self.is_keyed.get(table) == Some(&true);
        let through = |key: &usize| {
            let edge = self.edges.get(*key)?;
            let rest = self.shortest(edge.to, Some(table), is_keyed)?;
            Some(std::iter::once(*key).chain(rest).collect::<Vec<usize>>())
        };
        let mut paths: Vec<Vec<usize>> = self.keys(table).iter().filter_map(through).collect();
        paths.sort_by_key(|path| (path.iter().any(|key| self.is_nullable(*key)), path.len()));
        let mut paths = paths.into_iter();
        let Some(best) = paths.next() else { return FoundPath::Nothing };
        let others: Vec<Vec<usize>> = paths.collect();
        if let Some(tables) = self.cycle(table) {
            return FoundPath::Cycle(best, tables);
        }
        match best.first() {
            _ if !others.is_empty() => FoundPath::Several(best, others),
            Some(key) if self.is_nullable(*key) => FoundPath::Nullable(best),
            _ => FoundPath::Clear(best),
        }
    }

    fn is_nullable(&self, key: usize) -> bool {
        self.edges.get(key).is_some_and(|edge| edge.is_nullable)
    }

    /// Returns the tables through which a table references itself, shortest way, or None. Keys of a table to itself
    /// connect rows of one tenant, and do not count.
    fn cycle(&self, table: usize) -> Option<Vec<usize>> {
        let around = |key: &usize| {
            let edge = self.edges.get(*key)?;
            let rest = self.shortest(edge.to, None, |other| other == table)?;
            let passed = rest.iter().filter_map(|key| self.edges.get(*key)).map(|edge| edge.from);
            Some(passed.collect::<Vec<usize>>())
        };
        self.keys(table).iter().filter_map(around).min_by_key(Vec::len)
    }

    /// A path is not clear if it leads through a table without a clear path.
    fn below_unclear(&self, found: &FoundPath, all: &[FoundPath]) -> FoundPath {
        let FoundPath::Clear(path) = found else { return found.clone() };
        let passed = path.iter().filter_map(|key| self.edges.get(*key)).map(|edge| edge.to);
        let is_unclear =
            |table: &usize| !matches!(all.get(*table), Some(FoundPath::Own | FoundPath::Clear(_)));
        match passed.into_iter().find(is_unclear) {
            Some(table) => FoundPath::Above(path.clone(), table),
            None => found.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FoundPath, PathEdge, search};

    /// Keys as `from > to`, with `?` for one that may be NULL; the first table holds the tenant.
    fn found(tables: usize, keys: &str) -> Vec<FoundPath> {
        let edge = |key: &str| {
            let (from, to) = key.trim_end_matches('?').split_once('>').unwrap();
            PathEdge { from: from.parse().unwrap(), to: to.parse().unwrap(), is_nullable: key.ends_with('?') }
        };
        let edges: Vec<PathEdge> = keys.split_whitespace().map(edge).collect();
        let is_keyed: Vec<bool> = (0..tables).map(|table| table == 0).collect();
        search(&is_keyed, &edges)
    }

    #[test]
    fn a_path_of_any_length_is_found() {
        use FoundPath::{Clear, Nothing, Own};
        assert_eq!(found(4, "1>0 2>1 3>2"), [Own, Clear(vec![0]), Clear(vec![1, 0]), Clear(vec![2, 1, 0])]);
        assert_eq!(found(3, "0>1 1>2"), [Own, Nothing, Nothing]);
    }

    #[test]
    fn a_key_to_its_own_table_does_not_count() {
        assert_eq!(found(2, "1>1? 1>0")[1], FoundPath::Clear(vec![1]));
    }

    #[test]
    fn of_two_paths_the_one_without_null_is_the_best() {
        assert_eq!(found(3, "1>0 2>0? 2>1")[2], FoundPath::Several(vec![2, 0], vec![vec![1]]));
        assert_eq!(found(2, "1>0 1>0")[1], FoundPath::Several(vec![0], vec![vec![1]]));
    }

    #[test]
    fn a_key_that_may_be_null_makes_no_clear_path() {
        assert_eq!(found(2, "1>0?")[1], FoundPath::Nullable(vec![0]));
        assert_eq!(found(3, "1>0? 2>1")[2], FoundPath::Above(vec![1, 0], 1));
    }

    #[test]
    fn a_cycle_is_told_by_its_other_tables_and_ends_the_search() {
        let of = found(4, "1>2 2>1 1>0 3>2");
        assert_eq!(of[1], FoundPath::Cycle(vec![2], vec![2]));
        assert_eq!(of[2], FoundPath::Cycle(vec![1, 2], vec![1]));
        assert_eq!(of[3], FoundPath::Above(vec![3, 1, 2], 2));
        assert_eq!(found(3, "1>2 2>1")[1], FoundPath::Nothing);
    }

    #[test]
    fn a_cycle_through_a_table_that_holds_the_tenant_is_none() {
        assert_eq!(found(2, "0>1 1>0")[1], FoundPath::Clear(vec![1]));
    }

    #[test]
    fn a_chain_of_a_thousand_tables_is_searched_at_once() {
        let keys: Vec<String> = (1..1000).map(|table| format!("{table}>{}", table - 1)).collect();
        assert_eq!(found(1000, &keys.join(" "))[999].best().map(<[usize]>::len), Some(999));
    }
}
