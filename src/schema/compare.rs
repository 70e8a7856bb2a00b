//! Compares the objects of two shards.

use super::object::Object;
use std::collections::BTreeMap;

/// An object that differs between two shards; `None` if a shard does not have it.
pub struct SchemaDifference<'a> {
    pub one: Option<&'a Object>,
    pub other: Option<&'a Object>,
}

/// Returns what differs, in the order of the first shard, followed by what only the other one has.
pub fn differences<'a>(one: &'a [Object], other: &'a [Object]) -> Vec<SchemaDifference<'a>> {
    let known = by_key(one);
    let found = by_key(other);
    let of_one = one.iter().filter(|object| !object.is_unused()).filter_map(|object| {
        let there = found.get(&object.key()).copied();
        let is_same = there.is_some_and(|there| there.definition == object.definition);
        (!is_same).then_some(SchemaDifference { one: Some(object), other: there })
    });
    let of_other = other
        .iter()
        .filter(|object| !object.is_unused() && !known.contains_key(&object.key()))
        .map(|object| SchemaDifference { one: None, other: Some(object) });
    of_one.chain(of_other).collect()
}

pub fn by_key(objects: &[Object]) -> BTreeMap<(&str, &str, &str), &Object> {
    objects.iter().map(|object| (object.key(), object)).collect()
}
