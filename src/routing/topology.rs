//! Adding, changing and removing shards.

use super::endpoint::{self, GivenEndpoint};
use super::guarded;
use crate::agent::dropped_shard;
use crate::catalog::caller::Caller;
use crate::catalog::database_location;
use crate::catalog::endpoint as stored;
use crate::catalog::routing;
use crate::catalog::shard::{self, NewShard, POSTGRES, Shard, ShardStatus, TopologyError};
use crate::catalog::{event, execution};
use crate::catalog::{guard_record, in_use};
use crate::catalog::{keyspace, name};
use crate::catalog::{redirect, reference};
use crate::catalog::{shard_decision, table_policy};
use crate::clean;
use crate::error::{Failure, invalid, warn};
use crate::placement::{free_slots, shard as placement};
use crate::remote::quote::literal;
use crate::words::{listed, some_of};

/// Adds a shard and returns its id.
pub fn add(new: NewShard, given: &GivenEndpoint, caller: &Caller) -> Result<i64, Failure> {
    check_new(&new)?;
    endpoint::require_right(&new.kind, given, caller)?;
    let said = given.applied_to(&new.kind, &endpoint::none())?;
    endpoint::require_valid(&new.kind, &said)?;
    if new.kind == POSTGRES && said.conninfo.is_none() {
        check_local(&new.namespace, caller)?;
    }
    if new.kind == POSTGRES {
        check_tables(&new.namespace)?;
    }
    let index = shard::take_index();
    match shard::by_key(&new.shard_key) {
        Err(TopologyError::Unknown(_)) => {}
        Err(other) => return Err(other.into()),
        Ok(existing) => return Err(TopologyError::Exists(existing.shard_key).into()),
    }
    let shard_key = new.shard_key.clone();
    let id = shard::insert(new, index, caller);
    stored::store(&shard::by_key(&shard_key)?, &said);
    placement::added(&shard::by_key(&shard_key)?);
    event::topology_changed();
    Ok(id)
}

/// Adds a shard for each connection string of a list, and returns their names.
pub fn add_many(list: &str, prefix: &str, caller: &Caller) -> Result<Vec<String>, Failure> {
    let mut added = Vec::new();
    for text in endpoint::split_list(list)? {
        let conninfo = text.trim();
        if conninfo.is_empty() {
            continue;
        }
        let given = GivenEndpoint { conninfo: Some(conninfo.to_owned()), ..GivenEndpoint::default() };
        let shard_key = next_name(prefix);
        let new = NewShard {
            shard_key: shard_key.clone(),
            kind: POSTGRES.to_owned(),
            capacity: None,
            namespace: "public".to_owned(),
        };
        add(new, &given, caller)?;
        added.push(shard_key);
    }
    if added.is_empty() {
        return Err(invalid("list", "it names no shard"));
    }
    Ok(added)
}

/// Returns the first name of `prefix` and a number that no shard has.
fn next_name(prefix: &str) -> String {
    let is_free = |shard_key: &String| shard::by_key(shard_key).is_err();
    (0..).map(|n: u32| format!("{prefix}{n}")).find(is_free).unwrap_or_default()
}

fn check_new(new: &NewShard) -> Result<(), Failure> {
    for (argument, value) in
        [("shard_key", &new.shard_key), ("kind", &new.kind), ("namespace", &new.namespace)]
    {
        if let Some(problem) = name::problem(value) {
            return Err(invalid(argument, problem));
        }
    }
    check_capacity(new.capacity)
}

/// Checks a schema of this very database, where splits move rows with the rights of the extension's owner: nobody may
/// gain a table by it.
fn check_local(namespace: &str, caller: &Caller) -> Result<(), Failure> {
    if namespace == "shardmaster" || namespace == "information_schema" || namespace.starts_with("pg_") {
        return Err(invalid("namespace", "it is a schema of the server or of this extension"));
    }
    if !caller.is_superuser() && !caller.owns(namespace) {
        return Err(TopologyError::NamespaceOfOthers(namespace.to_owned()).into());
    }
    Ok(())
}

/// Requires that no two tables of keyspaces are one table on the shard.
fn check_tables(namespace: &str) -> Result<(), Failure> {
    let Some((table, other)) = table_policy::find_same_in(namespace) else { return Ok(()) };
    let problem = format!("tables \"{table}\" and \"{other}\" would be the same table there");
    Err(invalid("namespace", problem))
}

fn check_capacity(capacity: Option<i64>) -> Result<(), Failure> {
    match capacity {
        Some(slots) if slots < 0 => Err(invalid("capacity", "it must not be negative")),
        Some(slots) if slots > free_slots::UNLIMITED => {
            Err(invalid("capacity", "it is too large; NULL stands for no limit"))
        }
        _ => Ok(()),
    }
}

/// Sets the status. The keyspaces are locked first: no assignment and no plan comes between the check and the commit.
pub fn set_status(shard_key: &str, status: &str) -> Result<(), Failure> {
    let status = ShardStatus::parse(status)?;
    keyspace::lock_all()?;
    let shard = shard::by_key(shard_key)?;
    if shard.status == status {
        return Ok(());
    }
    if status == ShardStatus::Disabled {
        check_not_in_use(shard_key)?;
    } else if shard.status == ShardStatus::Disabled && shard_decision::is_here() {
        shard_decision::forget_asked(shard_key);
    }
    placement::lock(shard.id);
    shard::set_status(&shard, status);
    placement::status_changed(&shard, status);
    event::topology_changed();
    Ok(())
}

/// Sets where a shard is from now on, and whether it is used. The keyspaces are locked first, like by other changes of
/// a shard's use; its guards are locked before them, like by their steps.
pub fn set_endpoint(
    shard_key: &str,
    given: &GivenEndpoint,
    active: Option<bool>,
    caller: &Caller,
) -> Result<(), Failure> {
    guard_record::lock_of_shard(shard_key);
    if active.is_some() {
        keyspace::lock_all()?;
    }
    endpoint::set(shard_key, given, caller)?;
    active.map_or(Ok(()), |active| set_active(shard_key, active))
}

/// Sets whether a shard is active. An inactive one is neither routed to nor used in plans. One that becomes active
/// again gets its earlier status, which may be draining.
fn set_active(shard_key: &str, active: bool) -> Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    match active {
        _ if active == shard.is_active() => Ok(()),
        true => set_status(shard_key, shard::status_before(&shard).as_str()),
        false => set_status(shard_key, ShardStatus::Disabled.as_str()),
    }
}

pub fn set_capacity(shard_key: &str, capacity: Option<i64>) -> Result<(), Failure> {
    check_capacity(capacity)?;
    let id = shard::by_key(shard_key)?.id;
    // Tenants of a server may not be added or removed meanwhile.
    keyspace::lock_all()?;
    placement::lock(id);
    placement::set_capacity(&shard::by_key(shard_key)?, capacity)?;
    event::topology_changed();
    Ok(())
}

/// Drops a shard. What is noted on it of its splits is removed first, before anything is locked here. If the caller's
/// transaction is rolled back, that is not restored.
pub fn drop(shard_key: &str, may_ask: bool) -> Result<(), Failure> {
    let shard = check_unused(shard_key)?;
    if had_part(&shard) {
        let left = if may_ask {
            dropped_shard::leave(&shard).map_err(|error| error.into_failure().message)
        } else {
            Err("it cannot be asked within a transaction block".to_owned())
        };
        match left {
            Ok(redirected) => warn_of_redirects(shard_key, &redirected),
            Err(why) => warn_of_note(shard_key, &why),
        }
    }
    keyspace::lock_all()?;
    let shard = check_unused(shard_key)?;
    placement::lock(shard.id);
    placement::dropped(&shard)?;
    guard_record::forget_left(shard_key).iter().for_each(|keyspace| guarded::is_left(shard_key, keyspace));
    warn_of_copies(shard_key, &reference::copied_to(shard_key));
    shard::delete(&shard);
    database_location::forget_unused();
    event::topology_changed();
    Ok(())
}

/// Whether splits of this master may have left their note there.
fn had_part(shard: &Shard) -> bool {
    shard.holds_rows() && (shard_decision::had_part(&shard.shard_key))
}

fn warn_of_note(shard: &str, why: &str) {
    let text =
        format!("shard \"{shard}\" still records that it belongs to this master: {}", clean::printable(why));
    warn(
        text,
        "If another master is to have it, call shard_adopt() there. If its database has no other shard, DROP SCHEMA shardmaster_agent CASCADE there removes the record.",
    );
}

/// Warns of redirects that a restored master has forgotten.
fn warn_of_redirects(shard: &str, splits: &[i64]) {
    if splits.is_empty() {
        return;
    }
    let names: Vec<String> = splits.iter().map(i64::to_string).collect();
    let which = if names.len() == 1 { "split" } else { "splits" };
    let text = format!(
        "shard \"{shard}\" still refuses clients of keys that left it with {which} {}, which this master does not know",
        some_of(&names)
    );
    let hint =
        format!("Add the shard again, and call shard_cleanup({}) before it is dropped.", literal(shard));
    warn(text, hint);
}

/// Requires that nothing here needs the shard.
fn check_unused(shard_key: &str) -> Result<Shard, Failure> {
    let shard = shard::by_key(shard_key)?;
    check_not_in_use(shard_key)?;
    check_redirects_nobody(shard_key)?;
    if let Some(keyspace) = guard_record::any_of_shard(shard_key) {
        return Err(TopologyError::Guarded { shard: shard.shard_key, keyspace }.into());
    }
    if let Some(execution) = execution::open_on(shard_key) {
        return Err(TopologyError::InExecution { shard: shard.shard_key, execution }.into());
    }
    if let Some((keyspace, key)) = routing::any_key_on(shard_key) {
        return Err(TopologyError::Routed { shard: shard.shard_key, key, keyspace }.into());
    }
    if let Some(keyspace) = reference::keyspace_of_origin(shard_key) {
        return Err(TopologyError::Origin { shard: shard.shard_key, keyspace }.into());
    }
    Ok(shard)
}

/// Warns of copies of reference tables. The shard is not asked, so that a lost one can be dropped: its copies continue
/// to refuse clients.
fn warn_of_copies(shard: &str, tables: &[String]) {
    if tables.is_empty() {
        return;
    }
    let text = format!("shard \"{shard}\" still refuses writes to its copies of {}", tables.join(", "));
    warn(
        text,
        "If clients are to write to them, their owner drops their triggers named 00_shardmaster_reference_...",
    );
}

/// Refuses to drop a shard with a redirect: its endpoint is needed to end it or to admit keys again.
fn check_redirects_nobody(shard_key: &str) -> Result<(), TopologyError> {
    let splits = redirect::since_of_shard(shard_key);
    if splits.is_empty() {
        return Ok(());
    }
    let list = |of: &dyn Fn(&(i64, String)) -> String| listed(splits.iter().map(of));
    let calls = list(&|(split, _)| format!("shard_split_redirect_drop({split})"));
    Err(TopologyError::Redirects {
        shard: shard_key.into(),
        splits: list(&|(split, _)| split.to_string()),
        since: list(&|(split, since)| format!("split {split} since {since}")),
        calls: format!("SELECT {calls}"),
    })
}

fn check_not_in_use(shard_key: &str) -> Result<(), TopologyError> {
    match in_use::split_of_shard(shard_key) {
        Some(split) => Err(TopologyError::InSplit { shard: shard_key.into(), split }),
        None => endpoint::require_not_held(shard_key),
    }
}
