//! What the source's table has and the target's does not.

use super::fact::Fact;
use super::pair::Pair;
use crate::agent::shape::Column;

/// In words, one for each.
pub fn find(pair: &Pair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let here =
        given.iter().filter(|fact| fact.position == pair.position && !fact.is(&["index", "primary key"]));
    let mut lacks: Vec<String> =
        here.filter(|fact| !pair.is_other(&fact.columns)).filter_map(|fact| lacking(fact, there)).collect();
    lacks.extend(pair.from.columns().iter().filter_map(|column| of_column(pair, column)));
    lacks
}

fn lacking(fact: &Fact, there: &[Fact]) -> Option<String> {
    let is_same = || there.iter().any(|other| other.is_beside(fact) && fact.says_as(other));
    // By the same name it may do another thing, which is for the table's owner to know; but a policy decides who sees whose
    // rows, and a foreign key what becomes of rows that refer to others.
    match is_missing(fact, there) {
        true => Some(fact.text()),
        false if fact.is(&["policy", "foreign key"]) && !is_same() => {
            Some(format!("{} as it is on the source", fact.text()))
        }
        false => None,
    }
}

/// Whether a table has nothing of that name, and nothing that does the same.
pub fn is_missing(fact: &Fact, there: &[Fact]) -> bool {
    let does_the_same = |other: &Fact| fact.kind != "setting" && fact.says_as(other);
    !there.iter().any(|other| other.is_beside(fact) && (other.name == fact.name || does_the_same(other)))
}

/// What clients rely on who leave a column out, or send a NULL.
fn of_column(pair: &Pair<'_>, column: &Column) -> Option<String> {
    let there = pair.to.column(&column.name)?;
    let name = &column.name;
    if pair.is_other(&[name.clone()].into()) || there.generated.is_some() {
        return None;
    }
    let lacks_default = column.has_default && !there.has_default;
    let lacks_not_null = column.not_null && !there.not_null;
    match (lacks_default, lacks_not_null) {
        (true, true) => Some(format!("DEFAULT and NOT NULL of column \"{name}\"")),
        (true, false) => Some(format!("DEFAULT of column \"{name}\"")),
        (false, true) => Some(format!("NOT NULL of column \"{name}\"")),
        (false, false) => None,
    }
}
