//! The differences between two shards.

use super::compare::{self, SchemaDifference};
use super::error;
use super::inventory::SchemaLook;
use super::object::Object;
use crate::error::Failure;
use std::time::Duration;

/// A difference as people see it; `None` if that shard does not have the object.
pub struct DiffLine {
    pub kind: String,
    pub object: String,
    pub in_a: Option<String>,
    pub in_b: Option<String>,
}

pub fn run(
    shards: [&str; 2],
    keyspace: &str,
    also: &[String],
    timeout: Duration,
) -> Result<Vec<DiffLine>, Failure> {
    if shards[0] == shards[1] {
        return Err(error::named_twice(shards[0]));
    }
    let found = SchemaLook::open(&shards, keyspace, also, timeout)?.inventories(|_| true)?;
    let [a, b] = found.as_slice() else { return Ok(Vec::new()) };
    Ok(compare::differences(a, b).into_iter().filter_map(line).collect())
}

fn line(difference: SchemaDifference<'_>) -> Option<DiffLine> {
    let object = difference.one.or(difference.other)?;
    let text = |object: &Object| object.definition.clone();
    Some(DiffLine {
        kind: object.kind.clone(),
        object: object.name.clone(),
        in_a: difference.one.map(text),
        in_b: difference.other.map(text),
    })
}
