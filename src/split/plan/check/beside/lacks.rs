//! What the source's table has and the target's does not.

use super::fact::Fact;
use super::pair::Pair;
use super::{columns, keys, partitions};

/// Facts that are compared by themselves.
const APART: [&str; 6] = ["index", "primary key", "unique key", "default", "partition key", "partition"];
const VIEWS: [&str; 2] = ["view", "materialized view"];

/// In words, one for each.
pub fn find(pair: &Pair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let here = given.iter().filter(|fact| fact.position == pair.position && !fact.is(&APART));
    let here = here.filter(|fact| fact.is(&VIEWS) || !pair.is_other(&fact.columns));
    let mut lacks: Vec<String> = here.filter_map(|fact| lacking(pair, fact, there)).collect();
    lacks.extend(keys::lacks(pair, given, there));
    lacks.extend(columns::lacks(pair, given, there));
    lacks.extend(partitions::lacks(pair, given, there));
    lacks
}

fn lacking(pair: &Pair<'_>, fact: &Fact, there: &[Fact]) -> Option<String> {
    let same = || there.iter().filter(|other| other.is_beside(fact) && fact.says_as(other));
    // A setting says nothing but its name. By the same name a CHECK of the target may keep out less, and what it keeps out
    // besides is looked at elsewhere.
    match is_missing(fact, there) {
        true => Some(fact.text()),
        false if fact.is(&["setting", "check"]) || pair.is_other(&fact.columns) => None,
        false if same().next().is_none() => Some(format!("{} as it is on the source", fact.text())),
        // By which ON CONFLICT names it.
        false if fact.is(&["exclusion"]) && !same().any(|other| other.name == fact.name) => {
            Some(keys::by_name(&fact.name))
        }
        false => None,
    }
}

/// Whether a table has nothing of that name, and nothing that does the same.
pub fn is_missing(fact: &Fact, there: &[Fact]) -> bool {
    let does_the_same = |other: &Fact| fact.kind != "setting" && fact.says_as(other);
    !there.iter().any(|other| other.is_beside(fact) && (other.name == fact.name || does_the_same(other)))
}
