//! The checks of a history.

use super::graph::{Edge, Graph};
use super::tables::Last;
use super::{Element, Key, Level, Op, Outcome, SUM, Transaction};
use std::collections::{BTreeMap, HashMap, HashSet};

/// All versions of each key, the oldest first, each by the element that it added.
type Versions = BTreeMap<Key, Vec<Element>>;

/// Returns what no order of the transactions explains at their isolation level. `last` is the state at the end.
pub fn anomalies(level: Level, history: &[Transaction], last: &Last) -> Vec<String> {
    let mut found = Vec::new();
    let writers = writers(history);
    let versions = versions(history, last, &mut found);
    found.extend(of_versions(history, &versions, &writers));
    found.extend(of_sums(history, last));
    let position = positions(&versions);
    for (number, one) in committed(history) {
        found.extend(of_reads(number, one, &versions, &position, &writers));
    }
    found.extend(of_time(history, &position));
    found.extend(of_cycles(level, history, &versions, &position, &writers));
    found
}

fn committed(history: &[Transaction]) -> impl Iterator<Item = (usize, &Transaction)> {
    history.iter().enumerate().filter(|(_, one)| one.outcome == Outcome::Committed)
}

fn written(op: &Op) -> Option<(Key, Element)> {
    match op {
        Op::Append(key, element) | Op::Set(key, element, _) => Some((*key, *element)),
        _ => None,
    }
}

fn writers(history: &[Transaction]) -> HashMap<Element, usize> {
    let all = history.iter().enumerate();
    all.flat_map(|(n, one)| one.ops.iter().filter_map(written).map(move |(_, element)| (element, n)))
        .collect()
}

/// Returns the versions of each key. A list contains its own; a register's are followed backwards from the last one.
fn versions(history: &[Transaction], last: &Last, found: &mut Vec<String>) -> Versions {
    let before: HashMap<Element, Element> = history
        .iter()
        .flat_map(|one| &one.ops)
        .filter_map(|op| match op {
            Op::Set(_, value, before) => Some((*value, *before)),
            _ => None,
        })
        .collect();
    let mut versions = last.lists.clone();
    for (key, value) in &last.registers {
        let (mut chain, mut now, mut seen) = (Vec::new(), *value, HashSet::new());
        while now != 0 && seen.insert(now) {
            chain.push(now);
            now = before.get(&now).copied().unwrap_or_else(|| {
                found.push(format!("{key:?}: nobody wrote {now}"));
                0
            });
        }
        chain.reverse();
        versions.insert(*key, chain);
    }
    versions
}

/// Returns the position of each element in the versions of its key.
fn positions(versions: &Versions) -> HashMap<(Key, Element), usize> {
    let all =
        versions.iter().flat_map(|(key, list)| list.iter().enumerate().map(move |(n, e)| ((*key, *e), n)));
    all.collect()
}

/// Checks that no acknowledged element is missing, and that none is there twice or comes from a transaction
/// that was undone.
fn of_versions(
    history: &[Transaction],
    versions: &Versions,
    writers: &HashMap<Element, usize>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (key, list) in versions {
        let mut seen = HashSet::new();
        for element in list {
            match writers.get(element).map(|n| history[*n].outcome) {
                None => found.push(format!("{key:?}: nobody wrote {element}")),
                Some(Outcome::Aborted) => found.push(format!("{key:?}: {element} was undone, and is there")),
                Some(_) => {}
            }
            if !seen.insert(element) {
                found.push(format!("{key:?}: {element} is there twice"));
            }
        }
    }
    let position = positions(versions);
    for (_, one) in committed(history) {
        for (key, element) in one.ops.iter().filter_map(written) {
            if !position.contains_key(&(key, element)) {
                found.push(format!("{key:?}: {element} was acknowledged, and is lost"));
            }
        }
    }
    found
}

fn of_sums(history: &[Transaction], last: &Last) -> Vec<String> {
    let read = committed(history).flat_map(|(_, one)| &one.ops).filter_map(|op| match op {
        Op::Sum(tenant, sum) => Some((*tenant, *sum)),
        _ => None,
    });
    let all = read.chain(last.sums.iter().map(|(tenant, sum)| (*tenant, *sum)));
    all.filter(|(_, sum)| *sum != SUM).map(|(tenant, sum)| format!("tenant {tenant} has {sum}")).collect()
}

/// Returns how many versions a read has seen, or `None` if it has seen no state of its key.
fn seen(
    op: &Op,
    versions: &Versions,
    position: &HashMap<(Key, Element), usize>,
) -> Option<(Key, Option<usize>)> {
    match op {
        Op::Read(key, list) => {
            let is_prefix = versions.get(key).is_some_and(|all| all.starts_with(list));
            Some((*key, is_prefix.then_some(list.len())))
        }
        Op::Get(key, 0) => Some((*key, Some(0))),
        Op::Get(key, value) => Some((*key, position.get(&(*key, *value)).map(|n| n + 1))),
        _ => None,
    }
}

/// Each read must be a state of its key. It must include what its own transaction wrote before, and must not
/// show another transaction's intermediate write of the key.
fn of_reads(
    number: usize,
    one: &Transaction,
    versions: &Versions,
    position: &HashMap<(Key, Element), usize>,
    writers: &HashMap<Element, usize>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut own: HashMap<Key, usize> = HashMap::new();
    for op in &one.ops {
        if let Some((key, element)) = written(op) {
            own.insert(key, position.get(&(key, element)).map_or(0, |n| n + 1));
        }
        let Some((key, count)) = seen(op, versions, position) else { continue };
        let Some(count) = count else {
            found.push(format!("{op:?} is no state of {:?}", versions.get(&key)));
            continue;
        };
        if own.get(&key).is_some_and(|own| count < *own) {
            found.push(format!("{op:?} misses what its own transaction wrote: {:?}", one.ops));
        }
        let list = &versions[&key];
        let by = |n: usize| list.get(n).and_then(|element| writers.get(element)).copied();
        if count > 0 && by(count - 1) != Some(number) && by(count - 1) == by(count) {
            found.push(format!("{op:?} is in the middle of {:?}", by(count)));
        }
    }
    found
}

/// A transaction must see what was acknowledged before it began.
fn of_time(history: &[Transaction], position: &HashMap<(Key, Element), usize>) -> Vec<String> {
    let mut acknowledged: BTreeMap<Key, Vec<(std::time::Instant, usize)>> = BTreeMap::new();
    for (_, one) in committed(history) {
        for (key, element) in one.ops.iter().filter_map(written) {
            let count = position.get(&(key, element)).map_or(0, |n| n + 1);
            acknowledged.entry(key).or_default().push((one.ended, count));
        }
    }
    for list in acknowledged.values_mut() {
        list.sort();
        let mut most = 0;
        for (_, count) in list {
            most = most.max(*count);
            *count = most;
        }
    }
    let mut found = Vec::new();
    for (_, one) in committed(history) {
        for op in &one.ops {
            let (key, count) = match op {
                Op::Read(key, list) => (*key, list.len()),
                Op::Get(key, value) => (*key, position.get(&(*key, *value)).map_or(0, |n| n + 1)),
                _ => continue,
            };
            let Some(list) = acknowledged.get(&key) else { continue };
            let before = list.partition_point(|(ended, _)| *ended < one.began);
            let known = before.checked_sub(1).map_or(0, |n| list[n].1);
            if count < known {
                found.push(format!(
                    "{op:?} has {count} versions, {known} had been acknowledged before it began"
                ));
            }
        }
    }
    found
}

fn of_cycles(
    level: Level,
    history: &[Transaction],
    versions: &Versions,
    position: &HashMap<(Key, Element), usize>,
    writers: &HashMap<Element, usize>,
) -> Vec<String> {
    let mut graph = Graph::new(history.len());
    let writer = |key: &Key, n: usize| versions[key].get(n).and_then(|element| writers.get(element)).copied();
    for key in versions.keys() {
        for n in 1..versions[key].len() {
            if let (Some(before), Some(after)) = (writer(key, n - 1), writer(key, n)) {
                graph.add(before, after, Edge::Write);
            }
        }
    }
    for (number, one) in committed(history) {
        for (key, count) in one.ops.iter().filter_map(|op| seen(op, versions, position)) {
            let Some(count) = count else { continue };
            if let Some(before) = count.checked_sub(1).and_then(|n| writer(&key, n)) {
                graph.add(before, number, Edge::Read);
            }
            if let Some(after) = writer(&key, count) {
                graph.add(number, after, Edge::Anti);
            }
        }
    }
    let cycle = match level {
        Level::ReadCommitted => graph.cycle(&[Edge::Write, Edge::Read]),
        Level::RepeatableRead => {
            graph.cycle(&[Edge::Write, Edge::Read]).or_else(|| graph.cycle_with_one_anti())
        }
        Level::Serializable => graph.cycle(&[Edge::Write, Edge::Read, Edge::Anti]),
    };
    let told = |cycle: Vec<usize>| {
        let ops: Vec<String> = cycle.iter().map(|n| format!("{:?}", history[*n].ops)).collect();
        format!("a cycle of {} transactions: {}", cycle.len(), ops.join(" -> "))
    };
    cycle.map(told).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;
    use std::time::{Duration, Instant};

    const A: Key = Key { tenant: 0, kind: Kind::List, id: 0 };
    const B: Key = Key { tenant: 0, kind: Kind::List, id: 1 };
    const R: Key = Key { tenant: 0, kind: Kind::Register, id: 0 };

    /// Makes transactions that all run at the same time.
    fn history(all: &[(Outcome, &[Op])]) -> Vec<Transaction> {
        let began = Instant::now();
        let ended = began + Duration::from_secs(1);
        let one = |(outcome, ops): &(Outcome, &[Op])| Transaction {
            began,
            ended,
            ops: ops.to_vec(),
            outcome: *outcome,
        };
        all.iter().map(one).collect()
    }

    fn last(lists: &[(Key, &[Element])], registers: &[(Key, Element)]) -> Last {
        Last {
            lists: lists.iter().map(|(key, list)| (*key, list.to_vec())).collect(),
            registers: registers.iter().copied().collect(),
            sums: [(0, SUM)].into(),
        }
    }

    fn found(level: Level, all: &[(Outcome, &[Op])], last: &Last) -> String {
        anomalies(level, &history(all), last).join("; ")
    }

    use Level::{ReadCommitted, RepeatableRead, Serializable};
    use Op::{Append, Get, Read, Set, Sum};
    use Outcome::{Aborted, Committed, Unknown};

    #[test]
    fn what_is_right_is_right() {
        let all: &[(Outcome, &[Op])] = &[
            (Committed, &[Append(A, 1), Read(A, vec![1]), Set(R, 7, 0)]),
            (Committed, &[Read(A, vec![1]), Append(B, 2), Get(R, 7), Sum(0, SUM)]),
            (Aborted, &[Append(A, 3)]),
            (Unknown, &[Append(B, 4)]),
        ];
        assert_eq!(found(Serializable, all, &last(&[(A, &[1]), (B, &[2, 4])], &[(R, 7)])), "");
        assert_eq!(found(Serializable, all, &last(&[(A, &[1]), (B, &[2])], &[(R, 7)])), "");
    }

    #[test]
    fn rows_that_are_lost_doubled_or_undone_are_found() {
        let one: &[(Outcome, &[Op])] = &[(Committed, &[Append(A, 1)])];
        assert!(found(ReadCommitted, one, &last(&[(A, &[])], &[])).contains("is lost"));
        assert!(found(ReadCommitted, one, &last(&[(A, &[1, 1])], &[])).contains("twice"));
        assert!(found(ReadCommitted, one, &last(&[(A, &[1, 9])], &[])).contains("nobody wrote 9"));
        let undone: &[(Outcome, &[Op])] = &[(Aborted, &[Append(A, 1)])];
        assert!(found(ReadCommitted, undone, &last(&[(A, &[1])], &[])).contains("was undone"));
        let registers: &[(Outcome, &[Op])] = &[(Committed, &[Set(R, 1, 0)]), (Committed, &[Set(R, 2, 0)])];
        assert!(found(ReadCommitted, registers, &last(&[], &[(R, 2)])).contains("is lost"));
        let sums: &[(Outcome, &[Op])] = &[(Committed, &[Sum(0, SUM - 1)])];
        assert!(found(ReadCommitted, sums, &last(&[], &[])).contains("tenant 0 has"));
    }

    #[test]
    fn reads_of_what_never_was_are_found() {
        let end = last(&[(A, &[1, 2])], &[]);
        let gap: &[(Outcome, &[Op])] =
            &[(Committed, &[Append(A, 1)]), (Committed, &[Append(A, 2)]), (Committed, &[Read(A, vec![2])])];
        assert!(found(ReadCommitted, gap, &end).contains("is no state"));
        let middle: &[(Outcome, &[Op])] =
            &[(Committed, &[Append(A, 1), Append(A, 2)]), (Committed, &[Read(A, vec![1])])];
        assert!(found(ReadCommitted, middle, &end).contains("in the middle"));
        let own: &[(Outcome, &[Op])] = &[(Committed, &[Append(A, 1), Append(A, 2), Read(A, vec![1])])];
        assert!(found(ReadCommitted, own, &end).contains("its own transaction"));
    }

    #[test]
    fn cycles_count_by_the_level() {
        let end = last(&[(A, &[1]), (B, &[2])], &[]);
        // Each transaction has seen what the other one wrote.
        let circular: &[(Outcome, &[Op])] =
            &[(Committed, &[Append(A, 1), Read(B, vec![2])]), (Committed, &[Append(B, 2), Read(A, vec![1])])];
        assert!(found(ReadCommitted, circular, &end).contains("a cycle of 2"));
        // One transaction has seen half of the other.
        let skewed: &[(Outcome, &[Op])] =
            &[(Committed, &[Append(A, 1), Append(B, 2)]), (Committed, &[Read(A, vec![]), Read(B, vec![2])])];
        assert_eq!(found(ReadCommitted, skewed, &end), "");
        assert!(found(RepeatableRead, skewed, &end).contains("a cycle of 2"));
        // Neither transaction has seen the other.
        let skew: &[(Outcome, &[Op])] =
            &[(Committed, &[Read(B, vec![]), Append(A, 1)]), (Committed, &[Read(A, vec![]), Append(B, 2)])];
        assert_eq!(found(RepeatableRead, skew, &end), "");
        assert!(found(Serializable, skew, &end).contains("a cycle of 2"));
    }

    #[test]
    fn what_was_acknowledged_is_seen() {
        let mut all = history(&[(Committed, &[Append(A, 1)]), (Committed, &[Read(A, vec![])])]);
        let end = last(&[(A, &[1])], &[]);
        assert_eq!(anomalies(Serializable, &all, &end), [""; 0]);
        all[1].began = all[0].ended + Duration::from_millis(1);
        assert!(anomalies(Serializable, &all, &end)[0].contains("had been acknowledged"));
    }
}
