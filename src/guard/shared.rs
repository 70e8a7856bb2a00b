//! Tables with a schema of their own, which all shards of a database share: a guard of such a table would refuse the
//! keys of the other shards.

use super::error;
use crate::agent::error::Result;
use crate::agent::one_database::shares_locks;
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::keyspace::Keyspace;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::{self, TableName};
use crate::remote::Connection;

/// Requires that no other shard shares such a table. If the addresses do not tell, the servers are asked; a silent one
/// may be the same database.
pub fn require_none(session: &mut Connection, shard: &Shard, keyspace: &Keyspace) -> Result<()> {
    let policies = table_policy::list(&keyspace.name);
    let Some(table) = policies
        .into_iter()
        .map(|policy| policy.table_name)
        .find(|table| TableName::of(table).schema.is_some())
    else {
        return Ok(());
    };
    for (other, sameness) in database_location::in_database(shard) {
        // A shard with the same namespace under another name has the same keys on the list.
        if other.shard_key == shard.shard_key || other.namespace == shard.namespace {
            continue;
        }
        if sameness == Sameness::Same || shares_locks(session, &other)? {
            return Err(error::shared_table(&table, &shard.shard_key, &other.shard_key).into());
        }
    }
    Ok(())
}
