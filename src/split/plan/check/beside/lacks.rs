//! What the source's table has and the target's does not.

use super::fact::Fact;
use super::pair::TablePair;
use super::{columns, keys, partitions};

/// Facts that are compared separately.
const APART: [&str; 6] = ["index", "primary key", "unique key", "default", "partition key", "partition"];
const VIEWS: [&str; 2] = ["view", "materialized view"];
const FIRE: [&str; 2] = ["trigger", "view trigger"];

/// Returns them in words, one text for each.
pub fn find(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let here = given.iter().filter(|fact| fact.position == pair.position && !fact.is(&APART));
    let here = here.filter(|fact| fact.is(&VIEWS) || !pair.is_other(&fact.columns));
    let mut lacks: Vec<String> = here.filter_map(|fact| lacking(pair, fact, there)).collect();
    lacks.extend(in_another_order(pair, given, there));
    lacks.extend(keys::lacks(pair, given, there));
    lacks.extend(columns::lacks(pair, given, there));
    lacks.extend(partitions::lacks(pair, given, there));
    lacks
}

fn lacking(pair: &TablePair<'_>, fact: &Fact, there: &[Fact]) -> Option<String> {
    let same = || there.iter().filter(|other| other.is_beside(fact) && fact.says_as(other));
    // A setting has only its name. Under the same name a CHECK of the target may refuse less; what it refuses in
    // addition is checked elsewhere.
    match is_missing(fact, there) {
        true => Some(fact.text()),
        false if fact.is(&["setting", "check"]) || pair.is_other(&fact.columns) => None,
        false if same().next().is_none() => Some(format!("{} as it is on the source", fact.text())),
        // ON CONFLICT or SET CONSTRAINTS may name it.
        false if is_named(fact) && !same().any(|other| other.name == fact.name) => {
            Some(keys::by_name(&fact.name))
        }
        false => None,
    }
}

/// Whether statements of clients use its name.
fn is_named(fact: &Fact) -> bool {
    fact.is(&["exclusion"]) || fact.is(&["foreign key"]) && fact.says.contains(" DEFERRABLE")
}

/// Finds triggers of one event, and rules, in another order: they fire by their names, and may have another effect
/// under other names.
fn in_another_order(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let fires = |fact: &&Fact| fact.position == pair.position && fact.is(&FIRE);
    let mut here: Vec<&Fact> = given.iter().filter(fires).collect();
    here.sort_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
    let own: Vec<&Fact> = there.iter().filter(fires).collect();
    let after = here.iter().enumerate().filter(|(at, fact)| {
        here[..*at]
            .iter()
            .any(|before| before.kind == fact.kind && meets(before, fact) && is_turned(before, fact, &own))
    });
    after.map(|(_, fact)| format!("{} by a name that fires as late", fact.text())).collect()
}

/// Whether both are on the target, and the second one fires first there.
fn is_turned(before: &Fact, fact: &Fact, own: &[&Fact]) -> bool {
    let named = |fact: &Fact| -> Vec<&[u8]> {
        let same = own.iter().filter(|other| other.is_beside(fact) && fact.says_as(other));
        same.map(|other| other.name.as_bytes()).collect()
    };
    match (named(before).into_iter().min(), named(fact).into_iter().max()) {
        (Some(before), Some(fact)) => fact < before,
        (None | Some(_), _) => false,
    }
}

/// Whether one statement fires both.
fn meets(one: &Fact, other: &Fact) -> bool {
    let head = |fact: &'_ Fact| fact.says.split(" FOR EACH ").next().unwrap_or_default().to_owned();
    let (one, other) = (head(one), head(other));
    let both = |word: &str| one.split(' ').any(|w| w == word) && other.split(' ').any(|w| w == word);
    ["BEFORE", "AFTER", "INSTEAD"].into_iter().any(both)
        && ["INSERT", "UPDATE", "DELETE", "TRUNCATE"].into_iter().any(both)
}

/// Whether a table has nothing of that name, and nothing with the same effect.
pub fn is_missing(fact: &Fact, there: &[Fact]) -> bool {
    let does_the_same = |other: &Fact| fact.kind != "setting" && fact.says_as(other);
    !there.iter().any(|other| other.is_beside(fact) && (other.name == fact.name || does_the_same(other)))
}
