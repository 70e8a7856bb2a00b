//! Partitions that the source has and the target lacks, even without rows: the rows of next year would have no place.

use super::fact::Fact;
use super::pair::TablePair;

const DEFAULT: &str = "DEFAULT";
/// The number of partitions that a remark names.
const MOST: usize = 3;

pub fn lacks(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let keys = (of(pair, given, "partition key"), of(pair, there, "partition key"));
    let is_alike = keys.0.iter().any(|here| keys.1.iter().any(|own| here.says_as(own)));
    let own = of(pair, there, "partition");
    // A default partition takes every row.
    if !is_alike || own.iter().any(|fact| fact.says == DEFAULT) {
        return Vec::new();
    }
    let here = of(pair, given, "partition");
    let (defaults, bounds): (Vec<&Fact>, Vec<&Fact>) =
        here.into_iter().partition(|fact| fact.says == DEFAULT);
    let missing: Vec<&Fact> =
        bounds.iter().filter(|fact| !own.iter().any(|other| fact.says_as(other))).copied().collect();
    let mut lacks: Vec<String> = defaults.iter().map(|fact| format!("{} {DEFAULT}", fact.text())).collect();
    // A partition of the same name has other bounds.
    let is_there = |fact: &Fact| own.iter().any(|other| other.name == fact.name);
    let (cut, missing): (Vec<&Fact>, Vec<&Fact>) = missing.into_iter().partition(|fact| is_there(fact));
    lacks.extend(cut.iter().take(MOST).map(|fact| format!("{} {}", fact.text(), fact.says)));
    // If the table is divided at other points, it is unknown which rows have no partition.
    if missing.len() * 2 < bounds.len() {
        let named = missing.iter().take(MOST).map(|fact| format!("{} {}", fact.text(), fact.says));
        lacks.extend(named);
        if missing.len() > MOST {
            lacks.push(format!("{} more partitions", missing.len() - MOST));
        }
    }
    lacks
}

fn of<'a>(pair: &TablePair<'_>, facts: &'a [Fact], kind: &str) -> Vec<&'a Fact> {
    facts.iter().filter(|fact| fact.position == pair.position && fact.is(&[kind])).collect()
}
