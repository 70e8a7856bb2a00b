//! Tables whose rows move together, because they refer to each other: those that are referred to arrive first, and
//! leave last.

use crate::misplaced::facts::ForeignKey;
use std::collections::BTreeSet;

#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Positions, those that are referred to before those that refer to them.
    pub tables: Vec<usize>,
    /// Whether all rows of a key move at once.
    pub is_whole: bool,
}

/// Returns the units of this many tables, or None if they refer to each other in a circle. `here`: foreign keys at the
/// wrong shard, `there`: at the right one.
pub fn units(tables: usize, here: &[ForeignKey], there: &[ForeignKey]) -> Option<Vec<Unit>> {
    let references: BTreeSet<(usize, usize)> =
        here.iter().chain(there).filter_map(|key| key.from_position.zip(key.to_position)).collect();
    let followed: BTreeSet<usize> =
        here.iter().filter(|key| key.follows_deletes()).filter_map(|key| key.to_position).collect();
    let mut unit_of: Vec<usize> = (0..tables).collect();
    for (from, to) in &references {
        let (old, new) = (unit_of[*from], unit_of[*to]);
        unit_of.iter_mut().filter(|unit| **unit == old).for_each(|unit| *unit = new);
    }
    let numbers: BTreeSet<usize> = unit_of.iter().copied().collect();
    numbers
        .into_iter()
        .map(|number| {
            let members: Vec<usize> = (0..tables).filter(|table| unit_of[*table] == number).collect();
            let is_whole = members
                .iter()
                .any(|table| followed.contains(table) || references.iter().any(|(from, _)| from == table));
            Some(Unit { tables: in_order(members, &references)?, is_whole })
        })
        .collect()
}

fn in_order(mut left: Vec<usize>, references: &BTreeSet<(usize, usize)>) -> Option<Vec<usize>> {
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let waits = |table: &usize| {
            references.iter().any(|(from, to)| from == table && to != table && left.contains(to))
        };
        let next = left.iter().position(|table| !waits(table))?;
        ordered.push(left.remove(next));
    }
    Some(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: Option<usize>, to: Option<usize>, follows: &str) -> ForeignKey {
        ForeignKey {
            from_position: from,
            to_position: to,
            follows: follows.to_owned(),
            ..ForeignKey::default()
        }
    }

    fn unit(tables: &[usize], is_whole: bool) -> Unit {
        Unit { tables: tables.to_vec(), is_whole }
    }

    #[test]
    fn tables_that_refer_to_each_other_go_together() {
        assert_eq!(units(2, &[], &[]), Some(vec![unit(&[0], false), unit(&[1], false)]));
        let chain = [key(Some(0), Some(2), ""), key(Some(2), Some(1), "")];
        assert_eq!(units(4, &chain[..1], &chain[1..]), Some(vec![unit(&[1, 2, 0], true), unit(&[3], false)]));
        assert_eq!(units(1, &[key(Some(0), Some(0), "")], &[]), Some(vec![unit(&[0], true)]));
    }

    #[test]
    fn what_deletes_of_others_follow_goes_whole() {
        let outside = |follows| [key(None, Some(0), follows)];
        assert_eq!(units(1, &outside("ON DELETE CASCADE"), &[]), Some(vec![unit(&[0], true)]));
        assert_eq!(units(1, &outside("ON UPDATE CASCADE"), &[]), Some(vec![unit(&[0], false)]));
        assert_eq!(units(1, &[], &outside("ON DELETE CASCADE")), Some(vec![unit(&[0], false)]));
    }

    #[test]
    fn a_circle_has_no_order() {
        assert_eq!(units(2, &[key(Some(0), Some(1), "")], &[key(Some(1), Some(0), "")]), None);
    }
}
