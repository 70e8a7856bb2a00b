//! Keys that clients name: by their columns in ON CONFLICT, or by the constraint's name there and in SET CONSTRAINTS.

use super::fact::Fact;
use super::pair::TablePair;

pub fn lacks(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let is_key = |fact: &&Fact| fact.position == pair.position && fact.is(&["primary key", "unique key"]);
    let own: Vec<&Fact> = there.iter().filter(is_key).collect();
    let here = given.iter().filter(is_key).filter(|fact| !pair.is_other(&fact.columns));
    here.filter_map(|fact| lacking(fact, &own)).collect()
}

fn lacking(fact: &Fact, own: &[&Fact]) -> Option<String> {
    // An invalid key does not serve ON CONFLICT.
    let alike: Vec<&&Fact> =
        own.iter().filter(|other| fact.says_as(other) && (other.is_held || !fact.is_held)).collect();
    if alike.is_empty() {
        // Two primary keys that differ are refused.
        let is_there = own.iter().any(|other| other.name == fact.name);
        let text = fact.text();
        let text = if is_there { format!("{text} as it is on the source") } else { text };
        return (!fact.is(&["primary key"])).then_some(text);
    }
    let index = fact.index.as_ref()?;
    let mut indexes = alike.iter().filter_map(|other| other.index.as_ref());
    let Some(name) = &index.constraint else {
        // A deferred key does not serve it either.
        let is_lost = !indexes.any(|other| other.checked.is_empty());
        return is_lost.then(|| format!("{} as one that is checked at once", fact.text()));
    };
    let named: Vec<_> = indexes.filter(|other| other.constraint.as_ref() == Some(name)).collect();
    if named.is_empty() {
        return Some(by_name(name));
    }
    let is_lost = !named.iter().any(|other| other.checked == index.checked);
    let checked = if index.checked.is_empty() { "NOT DEFERRABLE" } else { index.checked.trim() };
    is_lost.then(|| format!("{checked} of constraint \"{name}\""))
}

/// Describes a constraint that exists under another name.
pub fn by_name(name: &str) -> String {
    format!("constraint \"{name}\" by its name")
}
