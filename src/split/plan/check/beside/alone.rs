//! What only the target's table has, and rows of the source need not satisfy.

use super::columns;
use super::fact::Fact;
use super::lacks::is_missing;
use super::pair::TablePair;
use crate::split::finding::Finding;
use crate::split::sequences::plainly_filled;
use crate::split::table::computed;
use std::collections::BTreeSet;

/// What every statement of a client is affected by, if only the target has it.
const MET: [&str; 7] =
    ["trigger", "view trigger", "view rule", "view default", "policy", "setting", "foreign key"];
const NAME: &str = "target: unique keys and exclusions";

/// Finds keys that keep two rows apart: those of the source never had to satisfy them.
pub fn keys(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<Finding> {
    let own = there.iter().filter(|fact| fact.position == pair.position);
    own.filter(|fact| fact.is(&["unique key", "exclusion"]) && !pair.is_other(&fact.columns))
        .filter(|fact| !is_promised(pair, fact, given))
        .map(|fact| {
            let detail =
                format!("{}: {}: the source does not enforce it", pair.to.name, fact.text());
            let hint = "The target enforces it. Add it to the source, or drop it on the target and add it again after the split.";
            Finding::new(NAME, false, detail, hint)
        })
        .collect()
}

/// Whether the source has such a key: a key of fewer parts keeps the same rows apart, and more.
fn is_promised(pair: &TablePair<'_>, wanted: &Fact, given: &[Fact]) -> bool {
    let mut promises = given.iter().filter(|fact| fact.position == pair.position);
    promises.any(|fact| {
        is_held_alike(pair, fact, wanted)
            && (fact.kind == wanted.kind && fact.says_as(wanted)
                || fact.is_held && fact.is(&["primary key", "unique key"]) && is_of_fewer(fact, wanted))
    })
}

/// Whether the source's rows are kept apart by what fills the columns of such a key.
fn is_renamed(pair: &TablePair<'_>, wanted: &Fact, given: &[Fact]) -> bool {
    let Some(index) = wanted.index.as_ref().filter(|index| index.parts.len() == wanted.columns.len()) else {
        return false;
    };
    let filled = wanted.columns.iter().map(|name| plainly_filled(&pair.policy.maps, name));
    let Some(filled) = filled.collect::<Option<BTreeSet<String>>>() else { return false };
    given.iter().filter(|fact| fact.position == pair.position).any(|fact| {
        let is_key = fact.is(&["primary key", "unique key"]) && fact.is_held;
        is_key
            && fact.columns.is_subset(&filled)
            && fact.index.as_ref().is_some_and(|promise| {
                !promise.is_of_some
                    && promise.parts.len() == fact.columns.len()
                    && (promise.are_nulls_equal || !index.are_nulls_equal)
            })
    })
}

/// Whether the source's key holds for each of its rows, or neither side's key does for those of all partitions.
fn is_held_alike(pair: &TablePair<'_>, fact: &Fact, wanted: &Fact) -> bool {
    fact.is_held || !wanted.is_held && pair.to.is_partitioned()
}

fn is_of_fewer(promise: &Fact, wanted: &Fact) -> bool {
    let (Some(promise), Some(wanted)) = (&promise.index, &wanted.index) else { return false };
    !promise.is_of_some
        && promise.parts.is_subset(&wanted.parts)
        && (promise.are_nulls_equal || !wanted.are_nulls_equal)
}

/// Returns in words the indexes and columns that are computed from a row, and what affects clients after the cutover.
pub fn others(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let of_table = |fact: &&Fact| fact.position == pair.position && fact.index.is_some();
    let here: Vec<&Fact> = given.iter().filter(of_table).collect();
    let own = there.iter().filter(of_table).filter(|fact| !pair.is_other(&fact.columns));
    // A key that the source does not guarantee is refused already.
    let own = own.filter(|fact| fact.kind != "unique key" || is_promised(pair, fact, given));
    let of_others = there.iter().filter(of_table).filter(|fact| pair.is_other(&fact.columns));
    let of_others =
        of_others.filter(|fact| fact.is(&["unique key", "exclusion"]) && !is_renamed(pair, fact, given));
    let mut alone: Vec<String> = own
        .filter(|fact| !here.iter().any(|other| is_held_alike(pair, other, fact) && is_tried(other, fact)))
        .map(|fact| format!("index \"{}\"", fact.name))
        .collect();
    alone.extend(of_others.map(|fact| format!("{}, over columns that the split computes", fact.text())));
    let met = there.iter().filter(|fact| fact.position == pair.position);
    let met = met.filter(|fact| fact.is(&MET) && !pair.is_other(&fact.columns) && is_missing(fact, given));
    alone.extend(met.map(Fact::text));
    alone.extend(columns::defaults_alone(pair, given, there));
    let generated = pair.to.columns().iter().filter(|column| {
        column.generated.is_some()
            && pair.from.column(&column.name).is_none()
            && !computed::is_own(pair.policy, &column.name)
    });
    alone.extend(generated.map(|column| format!("generated column \"{}\"", column.name)));
    alone
}

/// Whether each row of the source has passed what may fail for it.
fn is_tried(by: &Fact, wanted: &Fact) -> bool {
    let (Some(by_index), Some(index)) = (&by.index, &wanted.index) else { return true };
    by.says_as(wanted)
        || !index.is_of_some
            && (index.untried.is_empty()
                || !by_index.is_of_some
                    && by_index.method == index.method
                    && index.untried.is_subset(&by_index.parts))
}
