//! A new tenant gets its shard by the rules of placement.

use super::after_start;
use super::assign::{canonical_keys, check_directory};
use super::change::replace;
use crate::catalog::reference;
use crate::catalog::routing::{self, RoutedEntries, RoutingChange};
use crate::catalog::shard::{self, POSTGRES, Shard};
use crate::error::Failure;
use crate::placement::choose::{self, PlacementStrategy};
use crate::placement::tenants::logical_key;
use crate::placement::{free_slots, shard as slots};

/// Routes a new tenant to the shard that the strategy chooses; one that is routed already stays where it is. Returns
/// the shard's key.
pub fn place(tenant: String, strategy: PlacementStrategy, keyspace: &str) -> Result<String, Failure> {
    let keyspace = after_start::lock(keyspace)?;
    check_directory(&keyspace)?;
    let keys = canonical_keys(&keyspace, vec![Some(tenant)])?;
    if let Some(shard_key) = routing::current(&keyspace.name, &keys).remove(&keys[0]) {
        return Ok(shard_key);
    }
    let logical_key = logical_key(&keyspace.name, &keys[0]);
    choose::until_taken(POSTGRES, &logical_key, strategy, |choice| {
        slots::lock(choice.shard_id);
        // The chosen shard may have been filled, or closed, before the lock was taken; one that does not have the
        // keyspace's reference tables yet cannot be chosen.
        let chosen = shard::by_id(choice.shard_id).filter(|shard| shard.takes_placement());
        let is_filled = |shard: &Shard| {
            reference::unfilled(&keyspace.name, std::slice::from_ref(&shard.shard_key)).is_none()
        };
        let Some(shard) = chosen.filter(|shard| free_slots::exact(shard.id) > 0 && is_filled(shard)) else {
            slots::unlock(choice.shard_id);
            return Ok(None);
        };
        let target = vec![shard.shard_key.clone()];
        let change = RoutingChange { reason: Some("placed"), ..RoutingChange::default() };
        replace(&keyspace, &[], RoutedEntries { names: &keys, shards: &target }, change)?;
        Ok(Some(shard.shard_key))
    })
}
