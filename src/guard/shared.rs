//! Tables of a schema of their own, which all shards of a database have in common: a guard of one of
//! these would refuse the keys of the others.

use super::error::GuardError;
use crate::agent::error::Result;
use crate::agent::one_database::shares_locks;
use crate::catalog::keyspace::Keyspace;
use crate::catalog::place::{self, Sameness};
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::{self, TableName};
use crate::error::Failure;
use crate::remote::Connection;

/// Of shards whose addresses do not say it the servers are asked; one that does not answer may be
/// the same database.
pub fn require_none(session: &mut Connection, shard: &Shard, keyspace: &Keyspace) -> Result<()> {
    let policies = table_policy::list(&keyspace.name);
    let Some(table) = policies.into_iter().map(|policy| policy.table_name).find(|table| has_schema(table))
    else {
        return Ok(());
    };
    for (other, sameness) in place::in_database(shard) {
        // One namespace by another name has the same keys on the list.
        if other.shard_key == shard.shard_key || other.namespace == shard.namespace {
            continue;
        }
        if sameness == Sameness::Same || shares_locks(session, &other)? {
            let (shard, other) = (shard.shard_key.clone(), other.shard_key);
            return Err(Failure::from(GuardError::Shared { table, shard, other }).into());
        }
    }
    Ok(())
}

fn has_schema(table: &str) -> bool {
    TableName::parse(table).is_some_and(|table| table.schema.is_some())
}
