//! Adding and dropping lookup indexes, and claiming keys.

use super::settle::LONGEST;
use crate::catalog::caller::Caller;
use crate::catalog::keyspace::{self, Keyspace, LockedKeyspace};
use crate::catalog::lookup::{self, Lookup};
use crate::catalog::lookup_entry::{self, ClaimRefusal, Conflict, LookupPair};
use crate::catalog::table_policy::{self, Policy, ShardByColumn};
use crate::catalog::{name, routing};
use crate::error::{Failure, SqlState, required};
use crate::guc;
use crate::keys::key_type::KeyType;
use crate::routing::error;
use crate::routing::keyspaces::{self, NewTable};
use crate::server::{sql, wait, wake};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// Adds a keyspace whose keys lead to keys of another one.
pub fn add(
    name: &str,
    of: Option<&str>,
    key_type: pg_sys::Oid,
    rest: &keyspaces::StrategyArguments,
) -> Result<(), Failure> {
    if let Some(problem) = name::problem(name) {
        return Err(error::invalid("keyspace", problem));
    }
    let none = |argument| error::invalid(argument, "a keyspace with the strategy \"lookup\" has none");
    if rest.buckets.is_some() {
        return Err(none("buckets"));
    }
    if rest.shards.is_some() {
        return Err(none("shards"));
    }
    let Some(of) = of else {
        return Err(error::invalid("of", "a lookup index needs the keyspace that its keys lead to"));
    };
    let key_type = KeyType::from_oid(key_type)?;
    let of = keyspace::lock(of)?;
    keyspaces::require_new(name)?;
    lookup::insert(name, &of, key_type);
    Ok(())
}

/// Returns the lookup index with its keyspace locked, as in all changes of one. Returns None if there is none of this
/// name.
fn lock(name: &str) -> Result<Option<(LockedKeyspace, Lookup)>, Failure> {
    let Some(of) = lookup::of(name) else { return Ok(None) };
    let of = keyspace::lock(&of)?;
    Ok(lookup::find(name).map(|lookup| (of, lookup)))
}

/// Drops a lookup index. Returns None if there is none of this name.
pub fn drop(name: &str) -> Result<Option<()>, Failure> {
    let Some((_, lookup)) = lock(name)? else { return Ok(None) };
    if let Some(source) = &lookup.source {
        let by = format!("table \"{}\" is in it", source.table_name);
        return Err(error::keyspace_in_use(name, &by).hint("Remove its table with shard_table_drop()."));
    }
    lookup::delete(name);
    Ok(Some(()))
}

/// Sets the table and column of a lookup index, in its keyspace. Returns None if there is no lookup index of this
/// name.
pub fn table_add(new: &NewTable<'_>, caller: &Caller) -> Result<Option<()>, Failure> {
    let NewTable { name: table, shard_by: column, keyspace: name, key_type, policy, origin } = new;
    let name = *name;
    let Some((of, lookup)) = lock(name)? else { return Ok(None) };
    if *policy != Policy::Sharded.as_str() || origin.is_some() {
        return Err(error::invalid("policy", "a lookup index needs a column of a sharded table"));
    }
    let table = keyspaces::parse_table(table)?;
    keyspaces::check_schema(&table, caller)?;
    let column = table_policy::parse_column(required(*column, "shard_by")?);
    if column.is_empty() {
        return Err(error::invalid("shard_by", "a column's name is needed"));
    }
    if let Some(source) = &lookup.source {
        return Err(error::table_exists(name, &source.table_name)
            .hint("A lookup index has one column of one table. Remove that table with shard_table_drop(), or add another lookup index."));
    }
    let quoted = table.quoted();
    let Some(policy) = table_policy::list(&of.name).into_iter().find(|policy| policy.table_name == quoted)
    else {
        return Err(error::unknown_table(&of.name, &quoted).hint(
            "Its shard-by column says which owner a key has. Add the table to that keyspace first, and name it as shard_tables() does.",
        ));
    };
    if policy.shard_by == column {
        return Err(error::invalid("shard_by", "this column has keys of the other keyspace"));
    }
    let here = match table_policy::column_here(&table, &column) {
        ShardByColumn::Missing => {
            return Err(error::unknown_column(&quoted, &column)
                .hint("Give a column of the table, as it is written there."));
        }
        ShardByColumn::TableUnknown => None,
        ShardByColumn::Type(oid) => Some(oid),
    };
    for found in [*key_type, here].into_iter().flatten() {
        let found = KeyType::from_oid(found)?;
        if !lookup.key_type.takes(found, true) {
            return Err(error::other_key_type(name, lookup.key_type, found));
        }
    }
    lookup::set_source(name, &table, &column, caller);
    // A session that maps a column has done so before, or sees the lookup index.
    if let Some(split) = lookup::split_that_maps(&of.name, &quoted, [&column, &policy.shard_by]) {
        return Err(error::keyspace_in_split(&of.name, split));
    }
    wake::coordinator_on_commit();
    Ok(Some(()))
}

/// Forgets the table; the worker removes what is on shards. Returns None if there is no lookup index of this name.
pub fn table_drop(table: &str, name: &str) -> Result<Option<()>, Failure> {
    let Some((_, lookup)) = lock(name)? else { return Ok(None) };
    let table = keyspaces::parse_table(table)?.quoted();
    if lookup.source.is_none_or(|source| source.table_name != table) {
        return Err(error::unknown_table(name, &table));
    }
    lookup::forget_source(name);
    wake::coordinator_on_commit();
    Ok(Some(()))
}

/// Returns the lookup index of this name, for its own functions.
fn require(name: &str) -> Result<Lookup, Failure> {
    if let Some(lookup) = lookup::find(name) {
        return Ok(lookup);
    }
    keyspace::find(name)?;
    Err(error::no_lookup(name))
}

/// Waits until rows of owners are read that were assigned before: one of them may have the key. Owners that are
/// assigned later come after the claim, so this ends even if owners are assigned all the time. Returns the last of
/// them.
fn wait_for_assigned(lookup: &Lookup, key: &str, own: Option<&str>) -> i64 {
    const PAUSE: Duration = Duration::from_millis(20);
    let last = lookup::last_assigned(&lookup.name);
    let is_known = || lookup_entry::owner(&lookup.name, key).is_some_and(|known| known.owner.is_some());
    let deadline = Instant::now() + guc::route_wait_timeout();
    let is_left = || lookup::shard_of_assigned(&lookup.name, own, last).is_some();
    while !sql::keeps_its_snapshot() && is_left() && !is_known() && Instant::now() < deadline {
        wait::sleep(PAUSE);
    }
    last
}

/// Claims a key for an owner before its row exists, and returns the end of the lease. Returns None if the row exists.
pub fn claim(
    key: &str,
    owner: &str,
    name: &str,
    seconds: f64,
) -> Result<Option<TimestampWithTimeZone>, Failure> {
    let lookup = require(name)?;
    let pair = LookupPair {
        key: lookup.key_type.canonical(key).into_owned(),
        owner: lookup.owner_type.canonical(owner).into_owned(),
    };
    for (argument, text) in [("key", &pair.key), ("owner", &pair.owner)] {
        if text.len() > LONGEST {
            let problem = format!("it has more than {LONGEST} bytes");
            return Err(error::invalid(argument, problem));
        }
    }
    if !lookup::hold(&lookup) {
        return Err(Failure::new(
            SqlState::NOT_IN_STATE,
            format!("lookup index \"{name}\" has no table yet"),
        )
        .hint("Add one with shard_table_add()."));
    }
    let of = keyspace::find(&lookup.of)?;
    if routing::places(&of, std::slice::from_ref(&pair.owner)).is_empty() {
        return Err(error::unknown_key(&lookup.of, &pair.owner));
    }
    // Rows of the claim's own owner, which may have been assigned a moment ago, are not waited for.
    let own = of.strategy.is_directory().then_some(pair.owner.as_str());
    let last = wait_for_assigned(&lookup, &pair.key, own);
    let until =
        lookup_entry::claim(&lookup, &pair, seconds).map_err(|taken| refused(&of, &lookup, &pair, taken))?;
    // A row that was not read yet may have the key: an existing claim has precedence.
    if let Some(shard) = until.and_then(|_| lookup::not_filled_but(name, own, last)) {
        return Err(error::not_filled(name, &shard, &pair.key));
    }
    Ok(until)
}

fn refused(of: &Keyspace, lookup: &Lookup, pair: &LookupPair, taken: ClaimRefusal) -> Failure {
    let (key, name) = (&pair.key, &lookup.name);
    match taken {
        ClaimRefusal::Owned => Failure::new(
            SqlState(*b"23505"),
            format!("key \"{key}\" of lookup index \"{name}\" belongs to another owner"),
        )
        .hint("shard_lookup() shows its owner, and shard_lookup_conflicts() who else has it."),
        ClaimRefusal::Ended { owner } => {
            let place = routing::places(of, std::slice::from_ref(&owner)).remove(&owner);
            let shard = place.map_or(String::new(), |place| format!(" \"{}\"", place.shard));
            Failure::new(
                SqlState::NOT_IN_STATE,
                format!(
                    "key \"{key}\" of lookup index \"{name}\" was claimed, and since the lease expired the claim's shard{shard} has not been asked for its row"
                ),
            )
            .hint("Retry after a moment. shard_lookups() shows why the shard cannot be asked.")
        }
    }
}

pub fn conflicts(name: &str) -> Result<Vec<Conflict>, Failure> {
    Ok(lookup_entry::conflicts(&require(name)?.name))
}
