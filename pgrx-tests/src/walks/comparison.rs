//! Checks that every acknowledged row is there once, on the shard to which its key is routed. Nobody writes
//! meanwhile.

use super::expected_rows::Rows;
use super::keys::{KeyIndex, Space};
use super::stage::WalkCluster;
use crate::Result;
use std::collections::BTreeMap;

/// For each key the rows of the first and the second table on one shard.
pub type Held = BTreeMap<KeyIndex, [Rows; 2]>;

pub fn held(stage: &WalkCluster, shard: usize) -> Result<Held> {
    let mut client = stage.cluster.owner_of(&stage.cluster.shards[shard])?;
    let mut held: Held = (0..stage.keys.len()).map(|key| (key, Default::default())).collect();
    for space in Space::ALL {
        for (which, table) in space.tables().into_iter().enumerate() {
            let query = format!("SELECT {}::text, id, val FROM {table}", space.column());
            for row in client.query(&query, &[])? {
                let (name, id, value): (String, i32, String) = (row.get(0), row.get(1), row.get(2));
                let key = stage.keys_of(space).find(|key| stage.keys[*key].text == name);
                let Some(key) = key else { return Err(format!("{table} has a row of \"{name}\"").into()) };
                let twice = held.entry(key).or_default()[which].insert(id, value);
                if twice.is_some() {
                    return Err(format!("{table} has row {id} of \"{name}\" twice").into());
                }
            }
        }
    }
    Ok(held)
}
